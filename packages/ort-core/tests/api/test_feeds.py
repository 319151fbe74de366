"""Feeds: what fits is taken as it is; what does not is refused in onnxruntime's words, with the input named."""

import logging
from decimal import Decimal
from fractions import Fraction

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import ort_core
from ort_core.errors import InvalidArgument, InvalidValue, MissingInput
from ort_core.tensors.device import OrtDevice
from ort_core.tensors.ort_value import OrtValue
from ort_core.tensors.sparse_tensor import SparseTensor

X = np.arange(8, dtype=np.float32).reshape(2, 4)
WRONG = {
    "one missing": {"x": X},
    "all missing": {"q": X},
    "unknown": {"x": X, "z": X, "q": X},
    "float64": {"x": X, "z": X.astype(np.float64)},
    "int64": {"x": X, "z": X.astype(np.int64)},
    "text": {"x": X, "z": X.astype(str)},
    "rank": {"x": X, "z": X[0]},
    "dimension": {"x": X, "z": X[:, :3]},
    "a str": {"x": X, "z": "abc"},
    "an object": {"x": X, "z": object()},
}


@pytest.mark.parametrize("feeds", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_feed_is_refused_in_the_words_of_onnxruntime_and_names_the_input(model, session_of, feeds):
    with pytest.raises(Exception, match=r".") as expected:
        onnxruntime.InferenceSession(model("two_inputs")).run(None, feeds)
    with pytest.raises(InvalidArgument) as found:
        session_of("two_inputs").run(None, feeds)
    theirs = str(expected.value).split(" : ", 3)[-1].strip()
    ours = str(found.value)
    core = theirs.rstrip(".")
    assert ours.startswith(core), f"{ours!r} does not begin with {core!r}"
    assert {type(expected.value).__name__, "RuntimeError"} & {c.__name__ for c in type(found.value).__mro__}
    assert "'z'" in ours or "z" in ours.split() or "q" in ours


FITTING = {
    "nested lists": [[0, 1, 2, 3], [4.0, 5, 6, 7]],
    "tuples": ((0, 1, 2, 3), (4, 5, 6, 7)),
    "a transposed array": np.ascontiguousarray(X.T).T,
    "every second element": np.repeat(X, 2, axis=1)[:, ::2],
    "big-endian": X.astype(">f4"),
    "an OrtValue": OrtValue.ortvalue_from_numpy(X),
    "rows as arrays": [X[0], X[1]],
    "read-only": np.frombuffer(X.tobytes(), np.float32).reshape(2, 4),
}


@pytest.mark.parametrize("feed", FITTING.values(), ids=FITTING.keys())
def test_a_feed_in_another_form_gives_the_same_result(session_of, feed):
    total, product = session_of("two_inputs").run(None, {"x": X, "z": feed})
    np.testing.assert_array_equal(total, X + X)
    np.testing.assert_array_equal(product, X * X)


def test_strings_of_numpy_s_own_type_for_numbers_are_refused_as_other_strings_are(session_of):
    texts = np.array([["a", "b", "c", "d"]], np.dtypes.StringDType())
    with pytest.raises(RuntimeError, match=r"Actual: \(tensor\(string\)\) , expected: \(tensor\(float\)\)"):
        session_of("two_inputs").run(None, {"x": X, "z": texts})


class Exporter:
    """An array behind the protocols only."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return (1, 0)


def test_a_tensor_of_another_library_is_taken_by_dlpack(session_of):
    np.testing.assert_array_equal(session_of("two_inputs").run(["total"], {"x": X, "z": Exporter(X)})[0], X + X)


def test_a_number_outside_an_integer_type_and_a_fraction_are_refused(session_of):
    session = session_of("expand")
    with pytest.raises(InvalidArgument, match=r"tensor\(double\).*expected: \(tensor\(int64\)\) for input 'shape'"):
        session.run(None, {"x": [1.0], "shape": [2.5]})
    with pytest.raises(InvalidArgument, match="outside"):
        session.run(None, {"x": [1.0], "shape": np.array([1 << 63], np.uint64).tolist()})


def test_ragged_lists_are_refused(session_of):
    with pytest.raises(InvalidArgument, match="'x' is a list that is not a tensor"):
        session_of("two_inputs").run(None, {"x": [[1.0], [1.0, 2.0]], "z": X})


TEXTS = {
    "str": ["ä", "b"],
    "unicode array": np.array(["ä", "b"]),
    "bytes array": np.array(["ä".encode(), b"b"]),
    "object array": np.array(["ä", "b"], object),
}


@pytest.mark.parametrize("feed", TEXTS.values(), ids=TEXTS.keys())
def test_strings_are_taken_in_every_form(session_of, feed):
    (found,) = session_of("text").run(None, {"s": feed})
    assert found.dtype == object
    assert found.tolist() == ["ä", "b"]


def cells(*values: object) -> np.ndarray:
    array = np.empty(len(values), object)
    for place, value in enumerate(values):
        array[place] = value
    return array


@pytest.mark.parametrize(
    "feed",
    [[b"ab", "c"], np.array([b"ab", "c", 1, None, 2.5], object), np.array([b"\xff", np.bytes_(b"r")], object),
     cells(["a", "b"], ["c"]), cells({"a": 1}, ("x",)), cells(["a"], "b")],
)  # fmt: skip
def test_cells_that_are_no_strings_become_the_text_that_onnxruntime_makes_of_them(session_of, feed):
    value = onnx.helper.make_tensor_value_info("s", onnx.TensorProto.STRING, None)
    result = onnx.helper.make_tensor_value_info("t", onnx.TensorProto.STRING, None)
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["s"], ["t"])], "g", [value], [result])
    imports = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()
    oracle = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (found,) = session_of("text").run(None, {"s": feed})
    assert found.tolist() == oracle.run(None, {"s": feed})[0].tolist()


def vectorizer(key: int, value: int) -> ort_core.InferenceSession:
    fed = onnx.ValueInfoProto(name="x")
    fed.type.map_type.key_type, fed.type.map_type.value_type.tensor_type.elem_type = key, value
    vocabulary = {"int64_vocabulary": [1, 2]} if key == onnx.TensorProto.INT64 else {"string_vocabulary": ["a", "b"]}
    node = onnx.helper.make_node("DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml", **vocabulary)
    graph = onnx.helper.make_graph([node], "g", [fed], [onnx.helper.make_tensor_value_info("y", value, None)])
    imports = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    return ort_core.InferenceSession(onnx.helper.make_model(graph, opset_imports=imports).SerializeToString())


@pytest.mark.parametrize("feed", [{"a": 1.7}, {"a": 1.0}, {"a": 1 << 63}, {"a": -(1 << 63) - 1}, {b"a": 1}])
def test_maps_of_integers_take_what_is_kept_whole(feed):
    session = vectorizer(onnx.TensorProto.STRING, onnx.TensorProto.INT64)
    assert session.run(None, {"x": {"a": (1 << 53) + 1, "b": -1}})[0].tolist() == [[(1 << 53) + 1, -1]]
    with pytest.raises(InvalidArgument, match=r"the feed of input 'x' has the (key|value)"):
        session.run(None, {"x": feed})


@pytest.mark.parametrize("key", [1.0, 1.7, 1 << 63, "1", np.float32(2)])
def test_keys_of_integers_are_whole(key):
    session = vectorizer(onnx.TensorProto.INT64, onnx.TensorProto.FLOAT)
    assert session.run(None, {"x": {1: 1.5, np.int32(2): 2}})[0].tolist() == [[1.5, 2]]
    with pytest.raises(InvalidArgument, match="the feed of input 'x' has the key"):
        session.run(None, {"x": {key: 1.0}})


def test_numbers_for_a_string_input_are_refused(session_of):
    with pytest.raises(InvalidArgument, match=r"tensor\(float\).*tensor\(string\)\) for input 's'"):
        session_of("text").run(None, {"s": X[0]})


def test_none_is_refused_except_for_optional_inputs(session_of):
    with pytest.raises(MissingInput, match="Missing Input: z"):
        session_of("two_inputs").run(None, {"x": X, "z": None})
    session = session_of("optional")
    assert session.run(None, {"maybe": None})[0].item() is False
    assert session.run(None, {})[0].item() is False
    assert session.run(None, {"maybe": X[0]})[0].item() is True


def test_a_sequence_is_checked_item_by_item(session_of):
    session = session_of("sequence")
    np.testing.assert_array_equal(session.run(None, {"items": [X[0], X[1]]})[0], X[0])
    with pytest.raises(InvalidArgument, match=r"tensor\(double\).*'items'"):
        session.run(None, {"items": [X[0], X[1].astype(np.float64)]})
    with pytest.raises(InvalidValue, match="a list"):
        session.run(None, {"items": 3})


def test_an_array_of_doubles_is_checked_where_no_tensor_is_expected(session_of):
    """numpy takes None for its default type, so that a comparison with no type held for doubles alone."""
    with pytest.raises(InvalidArgument, match=r"tensor\(double\).*'items'"):
        session_of("sequence").run(None, {"items": X.astype(np.float64)})
    with pytest.raises(InvalidArgument, match=r"tensor\(double\).*'maybe'"):
        session_of("optional").run(None, {"maybe": X[0].astype(np.float64)})


def test_a_sparse_tensor_for_a_dense_input_is_refused(session_of):
    sparse = SparseTensor.sparse_coo_from_numpy(np.array([2, 4]), X[0, :2], np.array([0, 4]), OrtDevice.make("cpu", 0))
    with pytest.raises(InvalidValue, match="'x' must be a numpy array"):
        session_of("two_inputs").run(None, {"x": sparse, "z": X})


def test_types_that_numpy_lacks_are_fed_as_ml_dtypes_arrays(session_of):
    narrow = np.array([1, 2, 3]).astype(ml_dtypes.bfloat16)
    assert session_of("bfloat16").run(None, {"x": narrow})[0].tolist() == [1, 2, 3]
    with pytest.raises(InvalidArgument, match=r"tensor\(uint16\).*tensor\(bfloat16\)"):
        session_of("bfloat16").run(None, {"x": narrow.view(np.uint16)})


def test_unequal_sizes_of_one_named_dimension_are_warned_about(session_of, caplog):
    session = session_of("two_inputs")
    with caplog.at_level(logging.WARNING, "ort_core"):
        session.run(None, {"x": X[:1], "z": X})
    assert "dimension 'N' has size 1 in input 'x' and 2 in input 'z'" in caplog.text


def test_an_array_of_a_type_without_onnx_element_type_is_refused(session_of):
    with pytest.raises(InvalidArgument, match="numpy datetime64"):
        session_of("two_inputs").run(None, {"x": X, "z": X.astype("datetime64[s]")})


def test_texts_of_fixed_length_are_fed_with_their_zeros():
    head = '<ir_version: 8, opset_import: ["": 13]> '
    model = parser.parse_model(head + "g (string[N] x) => (string[N] y) {y = Identity(x)}")
    texts = np.array([b"ab", b"c"], "V2")
    theirs, ours = (
        engine.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": texts})
        for engine in (onnxruntime, ort_core)
    )
    assert ours[0].tolist() == theirs[0].tolist() == ["ab", "c\0"]


def test_data_of_external_initializers_needs_no_file():
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 13]> g (float[2] x) => (float[2] y) <float[2] w = {0, 0}> {y = Add(x, w)}'
    )
    weights = model.graph.initializer[0]
    weights.ClearField("float_data")
    weights.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "not_there.bin"), ("offset", "0"), ("length", "8")):
        weights.external_data.add(key=key, value=value)
    found = []
    for engine in (onnxruntime, ort_core):
        options = engine.SessionOptions()
        value = engine.OrtValue.ortvalue_from_numpy(np.array([3, 4], np.float32))
        options.add_external_initializers(["w"], [value])
        session = engine.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        found.append(session.run(None, {"x": np.ones(2, np.float32)})[0].tolist())
    assert found == [[4, 5], [4, 5]]


LISTS = {  # what lists become, as numpy makes it of them, and whether onnxruntime and this project take them alike
    "whole_floats": ("int64", [1.0, 2.0, 3.0]), "bools": ("float", [True, False, True]),
    "numpy_numbers": ("float", [np.float64(1.5), np.float64(2), np.float64(3)]), "none": ("float", [1.0, None, 3.0]),
    "arrays": ("int32", [np.array(1), np.array(2), np.array(3)]), "large": ("double", [2**70, 1, 2]),
    "decimals": ("float", [Decimal("1.5")] * 3), "fractions": ("double", [Fraction(1, 2)] * 3),
    "flags": ("bool", [0, 1, 1]), "float_flags": ("bool", [1.0, 0.0, 1.0]), "half": ("float16", [1, 2.5, 3]),
}  # fmt: skip


@pytest.mark.parametrize(("dtype", "feed"), LISTS.values(), ids=LISTS)
def test_lists_take_the_inputs_type_as_in_onnxruntime(dtype, feed):
    content = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 18]> g ({dtype}[3] x) => ({dtype}[3] y) {{ y = Identity(x) }}'
    ).SerializeToString()
    oracle = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    session = ort_core.InferenceSession(content)
    np.testing.assert_array_equal(session.run(None, {"x": feed})[0], oracle.run(None, {"x": feed})[0], strict=True)


class _Refusing:
    """A tensor of another library that cannot be exported."""

    def __dlpack__(self, **_):
        raise BufferError("it requires a gradient")

    def __dlpack_device__(self):
        return (1, 0)

    def __array__(self, *_, **__):
        raise RuntimeError("it requires a gradient")


NO_TENSORS = {
    "number": 1.5, "scalar": np.float32(1), "bytes": b"abc", "bytearray": bytearray(b"abc"), "set": {1.0},
    "ragged": [[1.0], [1.0, 2.0]], "texts": ["a", "b", "c"], "complex": [1j, 2, 3], "ellipsis": ...,
    "generator": (number for number in (1.0, 2.0)), "complex_array": np.ones(3, np.complex64), "refusing": _Refusing(),
    "time": np.zeros(3, "M8[s]"), "bfloat16": np.ones(3, ml_dtypes.bfloat16), "none": None,
}  # fmt: skip


@pytest.mark.parametrize("feed", NO_TENSORS.values(), ids=NO_TENSORS)
def test_what_is_no_tensor_raises_what_onnxruntime_raises(feed):
    content = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (float[3] x) => (float[3] y) { y = Identity(x) }'
    ).SerializeToString()
    oracle = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    with pytest.raises(Exception) as theirs:
        oracle.run(None, {"x": feed})
    with pytest.raises(InvalidArgument, match=r"'x'|: x") as ours:
        ort_core.InferenceSession(content).run(None, {"x": feed})
    assert theirs.type.__name__ in [each.__name__ for each in ours.type.__mro__]


@pytest.mark.parametrize("feed", [[[1.0], [1.0, 2.0]], _Refusing()], ids=["ragged", "refusing"])
def test_binding_what_is_no_array_raises_a_runtime_error(session_of, feed):
    with pytest.raises(RuntimeError, match="the input 'x' is not an array"):
        session_of("two_inputs").io_binding().bind_cpu_input("x", feed)


NAMES = {
    "array": np.array(["product"]), "keys": {"product": 1}.keys(), "set": {"product"}, "tuple": ("product",),
    "generator": (name for name in ["product"]),
}  # fmt: skip


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_output_names_come_in_any_iterable_as_in_onnxruntime(session_of, names):
    found = session_of("two_inputs").run(names, {"x": X, "z": X})
    assert len(found) == 1
    np.testing.assert_array_equal(found[0], X * X)


def test_a_run_in_the_background_refuses_a_callback_that_cannot_be_called(session_of):
    with pytest.raises(TypeError, match="callback is 3"):
        session_of("two_inputs").run_async(None, {"x": X, "z": X}, 3, None)


def test_choices_show_their_names_as_onnxruntimes_do():
    for name in ("GraphOptimizationLevel", "ExecutionMode", "ExecutionOrder"):
        ours, theirs = (getattr(module, name) for module in (ort_core, onnxruntime))
        for member in ours:
            shown = str(getattr(theirs, member.name))
            assert (str(member), f"{member}") == (shown, shown)


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
def test_equal_feeds_give_equal_bits_however_they_lie_in_memory(provider):
    model = parser.parse_model("""<ir_version: 9, opset_import: ["": 17]>
        g (double[N, 40] x, float[N, 40] w) => (double[N, 40] y, float[N, 7] z) { y = Softmax (x) z = MatMul (w, k) }
    """)
    rng = np.random.default_rng(0)
    model.graph.initializer.append(onnx.numpy_helper.from_array(rng.normal(size=(40, 7)).astype(np.float32), "k"))
    session = ort_core.InferenceSession(model.SerializeToString(), providers=[provider])
    plain = {"x": rng.normal(size=(33, 40)), "w": rng.normal(size=(33, 40)).astype(np.float32)}
    expected = session.run(None, plain)
    layouts = {
        "Fortran": np.asfortranarray,
        "strided": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
        "backwards": lambda a: np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1],
        "unaligned": lambda a: np.frombuffer(b"-" + a.tobytes(), np.uint8)[1:].view(a.dtype).reshape(a.shape),
        "swapped": lambda a: np.asfortranarray(a.astype(a.dtype.newbyteorder())),
    }
    for name, layout in layouts.items():
        found = session.run(None, {key: layout(array) for key, array in plain.items()})
        assert [each.tobytes() for each in found] == [each.tobytes() for each in expected], name


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("form", [list, lambda array: [array[:1], array[1:2]]], ids=["numbers", "rows"])
def test_lists_of_numbers_of_a_type_that_numpy_lacks_are_taken(name, form):
    text = name.replace("_", "")
    array = np.array([1, 2]).astype(name)
    shape = np.array(form(array)).shape
    sizes = ", ".join(map(str, shape))
    model = parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        g ({text}[{sizes}] x) => ({text}[{sizes}] y) {{ y = Identity (x) }}""")
    (found,) = ort_core.InferenceSession(model.SerializeToString()).run(None, {"x": form(array)})
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found.reshape(-1).astype(np.float32), [1, 2])


def test_the_tensor_of_an_optional_input_is_held_against_its_shape_as_in_onnxruntime():
    content = parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (optional(float[N, 2]) o) => (bool y) { y = OptionalHasElement (o) }""").SerializeToString()
    session, oracle = ort_core.InferenceSession(content), onnxruntime.InferenceSession(content)
    for fitting in (None, np.zeros((3, 2), np.float32)):
        assert session.run(None, {"o": fitting}) == oracle.run(None, {"o": fitting})
    for shape in ((2,), (3, 3)):
        feed = {"o": np.zeros(shape, np.float32)}
        with pytest.raises(Exception, match=r"Invalid rank|Got invalid dimensions") as theirs:
            oracle.run(None, feed)
        with pytest.raises(InvalidArgument) as ours:
            session.run(None, feed)
        assert str(ours.value).startswith(str(theirs.value).split(" : ", 3)[-1].split(" Please")[0])


@pytest.mark.parametrize(
    "body",
    [
        "(seq(float[N]) s) => (float[N] y, int64 n) { y = SequenceAt (s, zero) n = SequenceLength (s) }",
        "(seq(float[N]) s) => (seq(float[N]) y) { y = Identity (s) }",
        "(seq(float[N]) s) => (seq(float[N]) y, int64 n) { y = SequenceErase (s, zero) n = SequenceLength (s) }",
        "(seq(float[N]) s) => (seq(float[N]) s, int64 n) { n = SequenceLength (s) }",
    ],
)
def test_results_are_no_views_of_the_arrays_in_a_sequence_that_was_fed(body):
    inputs, _, nodes = body.partition("{")
    content = parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        g {inputs} <int64 zero = {{0}}> {{ {nodes}""").SerializeToString()
    fed = [np.array([1, 2], np.float32), np.array([3], np.float32)]
    session = ort_core.InferenceSession(content)
    for _ in range(3):
        (found, *_) = session.run(None, {"s": list(fed)})
        for each in found if isinstance(found, list) else [found]:
            assert not any(np.shares_memory(each, other) for other in fed)
            each[...] = 9
    assert [each.tolist() for each in fed] == [[1, 2], [3]]
