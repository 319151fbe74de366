"""Small models of every kind of value that the API hands around: their text, and what each of their inputs takes.

An input is ``(name, kind, element type, sizes)``; the kind is ``tensor``, ``sequence``, ``optional`` or ``map``.
``N`` is any size. Models of ``{type}`` are written for every element type that their operator takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

HEAD = '<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 3, "com.microsoft": 1]> '
FLOATS = ("float", "double", "float16")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NARROW = ("bfloat16", "float8e4m3fn", "float8e5m2", "int4", "uint4")
NUMBERS = (*FLOATS, "int32", "int64")
WIDE = (*FLOATS, *INTEGERS, "bool", "string", *NARROW[:3])
EVERY = (*FLOATS, *INTEGERS, "bool", "string", *NARROW)
DATA, ROOM = "weights.bin", 64  # a file of data, and how far two tensors are apart in it
Input = tuple[str, str, str, list[int | str]]


@dataclass
class Sample:
    """A model: its name, its bytes, its inputs, its outputs, the names that the next run asks for, files beside it.

    ``kept`` lives as long as the program.
    """

    name: str
    content: bytes
    inputs: list[Input]
    outputs: list[str]
    wanted: object = None
    files: dict[str, bytes] = field(default_factory=dict)
    kept: list[object] = field(default_factory=list)


def _sizes(text: str) -> list[int | str]:
    return [int(size) if size.isdigit() else size for size in text.split(",") if size]


# name -> (element types, text, (input, kind, type, sizes) with commas between the sizes, outputs)
TEXTS: dict[str, tuple[tuple[str, ...], str, list[tuple[str, str, str, str]], list[str]]] = {
    "identity": (
        WIDE,
        "g ({type}[N,3] x) => ({type}[N,3] y) {{y = Identity(x)}}",
        [("x", "tensor", "{type}", "N,3")],
        ["y"],
    ),
    "scalar": (WIDE, "g ({type} x) => ({type} y) {{y = Identity(x)}}", [("x", "tensor", "{type}", "")], ["y"]),
    "twice": (
        (*EVERY[:11], "string"),
        "g ({type}[N] x) => ({type}[M] y, {type}[N] z) {{y = Concat<axis=0>(x, x) z = Identity(x)}}",
        [("x", "tensor", "{type}", "N")],
        ["y", "z"],
    ),
    "sum": (
        NUMBERS,
        "g ({type}[N,3] x) => ({type} y) {{y = ReduceSum<keepdims=0>(x)}}",
        [("x", "tensor", "{type}", "N,3")],
        ["y"],
    ),
    "add": (
        NUMBERS,
        "g ({type}[N,3] x, {type}[3] z) => ({type}[N,3] y) {{y = Add(x, z)}}",
        [("x", "tensor", "{type}", "N,3"), ("z", "tensor", "{type}", "3")],
        ["y"],
    ),
    "reshaped": (
        ("float", "string"),
        "g ({type}[N,3] x, int64[R] to) => ({type}[A,B] y) {{y = Reshape(x, to)}}",
        [("x", "tensor", "{type}", "N,3"), ("to", "tensor", "int64", "2")],
        ["y"],
    ),
    "split": (
        ("float", "int64"),
        "g ({type}[N,4] x) => ({type}[N,2] y, {type}[N,2] z) {{y, z = Split<axis=1, num_outputs=2>(x)}}",
        [("x", "tensor", "{type}", "N,4")],
        ["y", "z"],
    ),
    "through": (
        EVERY,
        "g ({type}[N] x, {type}[N] w) => ({type}[N] x, {type}[N] y) {{y = Identity(w)}}",
        [("x", "tensor", "{type}", "N"), ("w", "tensor", "{type}", "N")],
        ["x", "y"],
    ),
    "default": (
        ("float",),
        "g (float[2] x, float[2] w = {{1, 2}}) => (float[2] y) <float[2] v = {{3, 4}}> {{a = Add(x, w) y = Mul(a, v)}}",
        [("x", "tensor", "float", "2"), ("w", "tensor", "float", "2")],
        ["y"],
    ),
    "constant": (("float",), "g () => (float[2] y) {{y = Constant<value = float[2] {{1, 2}}>()}}", [], ["y"]),
    "unread": (
        ("int32",),
        "g (int32[N] x, int32[N] nobody) => (int32[N] y) {{y = Neg(x)}}",
        [("x", "tensor", "int32", "N"), ("nobody", "tensor", "int32", "N")],
        ["y"],
    ),
    "sequence": (
        ("float", "int64", "string"),
        "g ({type}[N] x, {type}[N] z) => (seq({type}[N]) y) {{y = SequenceConstruct(x, z)}}",
        [("x", "tensor", "{type}", "N"), ("z", "tensor", "{type}", "N")],
        ["y"],
    ),
    "items": (
        ("float", "int64", "string"),
        "g (seq({type}[N]) s, int64 at) => ({type}[N] y, int64 n) {{y = SequenceAt(s, at) n = SequenceLength(s)}}",
        [("s", "sequence", "{type}", "N"), ("at", "tensor", "int64", "")],
        ["y", "n"],
    ),
    "optional": (
        ("float", "int64"),
        "g (optional({type}[N]) o) => (bool y) {{y = OptionalHasElement(o)}}",
        [("o", "optional", "{type}", "N")],
        ["y"],
    ),
    "zipmap": (
        ("float",),
        "g (float[N,2] x) => (seq(map(int64, float)) y) {{y = ai.onnx.ml.ZipMap<classlabels_int64s=[3, 5]>(x)}}",
        [("x", "tensor", "float", "N,2")],
        ["y"],
    ),
    "named zipmap": (
        ("float",),
        'g (float[N,2] x) => (seq(map(string, float)) y) {{y = ai.onnx.ml.ZipMap<classlabels_strings=["a", "b"]>(x)}}',
        [("x", "tensor", "float", "N,2")],
        ["y"],
    ),
    "vectorizer": (
        ("float",),
        'g (map(string, float) m) => (float[1,K] y) {{y = ai.onnx.ml.DictVectorizer<string_vocabulary=["a", "b"]>(m)}}',
        [("m", "map", "float", "")],
        ["y"],
    ),
    "lengths": (
        ("string",),
        "g (string[N] x) => (string[N] y) {{y = StringConcat(x, x)}}",
        [("x", "tensor", "string", "N")],
        ["y"],
    ),
    "found": (
        ("float", "int64", "bool"),
        "g ({type}[N,3] x) => (int64[2,K] y) {{y = NonZero(x)}}",
        [("x", "tensor", "{type}", "N,3")],
        ["y"],
    ),
    "shape": (WIDE, "g ({type}[N,3] x) => (int64[2] y) {{y = Shape(x)}}", [("x", "tensor", "{type}", "N,3")], ["y"]),
    "equal": (
        (*FLOATS, *INTEGERS, "bool", "string"),
        "g ({type}[N] x, {type}[N] z) => (bool[N] y) {{y = Equal(x, z)}}",
        [("x", "tensor", "{type}", "N"), ("z", "tensor", "{type}", "N")],
        ["y"],
    ),
    "branches": (
        ("float",),
        "g (bool c, float[N] x) => (float[N] y) {{y = If(c)<then_branch = t () => (float[N] p) {{p = Neg(x)}}, "
        "else_branch = e () => (float[N] q) {{q = Identity(x)}}>}}",
        [("c", "tensor", "bool", ""), ("x", "tensor", "float", "N")],
        ["y"],
    ),
    "unique": (
        ("float", "int64", "string"),
        "g ({type}[N] x) => ({type}[K] y, int64[K] i) {{y, i = Unique(x)}}",
        [("x", "tensor", "{type}", "N")],
        ["y", "i"],
    ),
    "cast": (
        (*FLOATS, "int64", "bool", "uint8"),
        "g ({type}[N] x) => (string[N] y) {{y = Cast<to=8>(x)}}",
        [("x", "tensor", "{type}", "N")],
        ["y"],
    ),
    "narrowed": (
        ("float",),
        "g (float[N] x) => (bfloat16[N] y) {{y = Cast<to=16>(x)}}",
        [("x", "tensor", "float", "N")],
        ["y"],
    ),
    "denoted": (
        ("float", "int64"),
        "g ({type}[N,3] x, {type}[M,3] z) => ({type}[K,3] y) {{y = Concat<axis=0>(x, z)}}",
        [("x", "tensor", "{type}", "N,3"), ("z", "tensor", "{type}", "N,3")],
        ["y"],
    ),
    "external": (
        ("float",),
        "g (float[N,3] x) => (float[N,2] y) <float[3,2] w = {{1,2,3,4,5,6}}, float[2] b = {{1,2}}> "
        "{{p = MatMul(x, w) y = Add(p, b)}}",
        [("x", "tensor", "float", "N,3")],
        ["y"],
    ),
    "product": (
        ("float", "double"),
        "g ({type}[N,3] x) => ({type}[N,2] y) <{type}[3,2] w = {{1,2,3,4,5,6}}> {{y = MatMul(x, w)}}",
        [("x", "tensor", "{type}", "N,3")],
        ["y"],
    ),
}


def _described(model: ModelProto) -> bytes:
    """Return a model's bytes with metadata."""
    model.producer_name, model.producer_version, model.domain = "tests", "1.5", "org.example"
    model.model_version, model.doc_string = 7, "a model\nof two lines"
    helper.set_model_props(model, {"key": "value", "leer": "", "ä": "ö"})
    return model.SerializeToString()


def build(name: str, element_type: str) -> Sample:
    """Return a model of the table for an element type."""
    _, text, inputs, outputs = TEXTS[name]
    model = parser.parse_model(HEAD + text.format(type=element_type))
    given = [(each, kind, of.format(type=element_type), _sizes(sizes)) for each, kind, of, sizes in inputs]
    files: dict[str, bytes] = {}
    if name == "denoted":
        for info in model.graph.input:
            info.type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    if name == "external":
        files = {DATA: b"".join(_taken_out(tensor, place) for place, tensor in enumerate(model.graph.initializer))}
    return Sample(f"{name} {element_type}", _described(model), given, outputs, files=files)


def _taken_out(tensor: TensorProto, place: int) -> bytes:
    """Let a tensor name its place in the file of data; return what stands there."""
    content = numpy_helper.to_array(tensor).tobytes().ljust(ROOM, b"\0")
    length = 4 * int(np.prod(tensor.dims))
    tensor.ClearField("float_data")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", DATA), ("offset", str(place * ROOM)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    return content


def drawn(choice: Callable[[list], object]) -> Sample:
    """Return one of the models; ``choice`` picks from a list."""
    name = choice(list(TEXTS))
    return build(name, choice(list(TEXTS[name][0])))
