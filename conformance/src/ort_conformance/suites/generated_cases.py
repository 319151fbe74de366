"""Generated operator cases: element types, ranks, broadcasts, odd and empty sizes, negative axes, every version.

Simple operators are rows of a table. The truth is onnx's own evaluator.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from ort_conformance.case import Case
from ort_conformance.suites.model_text import OPSET, evaluated, node_model, seeded
from ort_core.tolerances import ToleranceName

Shape = tuple[int, ...]
OLDEST = 7  # the oldest opset that ort-core promises

SHAPES: tuple[Shape, ...] = ((), (1,), (7,), (0,), (3, 0, 2), (2, 3, 5), (1, 2, 3, 4, 5), (65, 33), (1, 1, 2, 1, 3, 1))
BROADCASTS: tuple[tuple[Shape, Shape], ...] = (
    ((2, 3, 5), (2, 3, 5)), ((2, 3, 5), (5,)), ((2, 3, 5), ()), ((3, 1), (1, 7)), ((1, 3, 1, 5), (2, 1, 4, 1)),
    ((0, 3), (1, 3)), ((5,), (4, 3, 5)), ((17, 9), (17, 1)),
)  # fmt: skip
DTYPES = ("float32", "float16", "float64", "int32", "int64", "int8", "uint8", "bool")
AXES = (-1, 0, 1, -2)


@dataclass(frozen=True, slots=True)
class Elementwise:
    """An elementwise operator with the interval that its float inputs come from, and how exact it is."""

    op_type: str
    low: float = -3.0
    high: float = 3.0
    limits: ToleranceName = "approximate"


UNARY = (
    Elementwise("Abs", limits="exact"), Elementwise("Neg", limits="exact"), Elementwise("Relu", limits="exact"),
    Elementwise("Ceil", limits="exact"), Elementwise("Floor", limits="exact"), Elementwise("Round", limits="exact"),
    Elementwise("Sign", limits="exact"), Elementwise("Not", limits="exact"), Elementwise("Identity", limits="exact"),
    Elementwise("IsNaN", limits="exact"), Elementwise("IsInf", limits="exact"),
    Elementwise("Sqrt", 0.0, 9.0, "rounding"), Elementwise("Reciprocal", 0.3, 3.0, "rounding"),
    Elementwise("Exp"), Elementwise("Log", 0.1, 9.0), Elementwise("Sin"), Elementwise("Cos"),
    Elementwise("Tan", -1.4, 1.4), Elementwise("Asin", -0.95, 0.95), Elementwise("Acos", -0.95, 0.95),
    Elementwise("Atan"), Elementwise("Sinh"), Elementwise("Cosh"), Elementwise("Tanh"), Elementwise("Asinh"),
    Elementwise("Acosh", 1.1, 4.0), Elementwise("Atanh", -0.95, 0.95), Elementwise("Erf"), Elementwise("Sigmoid"),
    Elementwise("HardSigmoid"), Elementwise("HardSwish"), Elementwise("Elu"), Elementwise("Selu"),
    Elementwise("Celu"), Elementwise("LeakyRelu"), Elementwise("ThresholdedRelu"), Elementwise("Softplus"),
    Elementwise("Softsign"), Elementwise("Mish"), Elementwise("Gelu"),
)  # fmt: skip
BINARY = (
    Elementwise("Add", limits="rounding"), Elementwise("Sub", limits="rounding"), Elementwise("Mul", limits="rounding"),
    Elementwise("Div", 0.5, 4.0, "rounding"), Elementwise("Pow", 0.5, 3.0), Elementwise("Min", limits="exact"),
    Elementwise("Max", limits="exact"), Elementwise("Equal", limits="exact"), Elementwise("Less", limits="exact"),
    Elementwise("Greater", limits="exact"), Elementwise("LessOrEqual", limits="exact"),
    Elementwise("GreaterOrEqual", limits="exact"), Elementwise("And", limits="exact"), Elementwise("Or", limits="exact"),
    Elementwise("Xor", limits="exact"), Elementwise("PRelu", limits="rounding"),
)  # fmt: skip
REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare", "ReduceL1",
              "ReduceL2", "ReduceLogSum", "ReduceLogSumExp")  # fmt: skip
ROWS = ("Softmax", "LogSoftmax", "Hardmax")


def generated_cases() -> list[Case]:
    """Return every generated case."""
    return [*_unary(), *_binary(), *_reductions(), *_rows(), *_products(), *_movements(), *_windows()]


def numbers(facts: Sequence[object], shape: Shape, dtype: str, low: float = -3.0, high: float = 3.0) -> np.ndarray:
    """Return seeded numbers of a type within an interval; integers and truth values are scaled to fit."""
    generator = seeded(*facts, shape, dtype)
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return generator.random(shape) > 0.5
    if kind.kind in "iu":
        bottom = 0 if kind.kind == "u" else int(low * 3)
        return generator.integers(max(bottom, 1 if low > 0 else bottom), int(high * 3) + 1, shape).astype(kind)
    return generator.uniform(low, high, shape).astype(kind)


@functools.cache
def accepted_types(op_type: str, opset: int) -> frozenset[str]:
    """Return the numpy names of element types that the first input of an operator takes."""
    schema = onnx.defs.get_schema(op_type, opset, "")
    label = schema.inputs[0].type_str
    constraint = next((c for c in schema.type_constraints if c.type_param_str == label), None)
    texts = constraint.allowed_type_strs if constraint is not None else [label]
    names = {text.removeprefix("tensor(").removesuffix(")") for text in texts}
    return frozenset({"float": "float32", "double": "float64"}.get(name, name) for name in names)


def versions(op_type: str, *, newest: int = OPSET) -> list[int]:
    """Return an opset for each meaning of an operator: each version from the oldest promised opset on."""
    changes = {
        schema.since_version
        for schema in onnx.defs.get_all_schemas_with_history()
        if schema.name == op_type and schema.domain == "" and schema.since_version <= newest
    }
    before = [version for version in changes if version <= OLDEST]
    return sorted({*(version for version in changes if version > OLDEST), *([OLDEST] if before else [])})


def _text(*shapes: Shape) -> str:
    return "_".join("x".join(map(str, shape)) or "scalar" for shape in shapes)


def _elementwise_case(row: Elementwise, dtype: str, shapes: Sequence[Shape], opset: int, suffix: str = "") -> Case:
    def build() -> tuple[onnx.ModelProto, Mapping[str, np.ndarray]]:
        feeds = {
            f"x{index}": numbers((row.op_type, index), shape, dtype, row.low, row.high)
            for index, shape in enumerate(shapes)
        }
        return node_model(row.op_type, feeds, {}, opset=opset), feeds

    return evaluated(f"{row.op_type}_{dtype}_{_text(*shapes)}{suffix}", build, row.limits)


def _unary() -> Iterator[Case]:
    for row in UNARY:
        allowed = accepted_types(row.op_type, OPSET)
        types = [dtype for dtype in DTYPES if dtype in allowed]
        for shape in SHAPES:
            yield _elementwise_case(row, types[0], [shape], OPSET)
        for dtype in types[1:]:
            yield _elementwise_case(row, dtype, [(2, 3, 5)], OPSET)
        for opset in versions(row.op_type)[:-1]:
            if types[0] in accepted_types(row.op_type, opset):
                yield _elementwise_case(row, types[0], [(2, 3, 5)], opset, f"@{opset}")


def _binary() -> Iterator[Case]:
    for row in BINARY:
        allowed = accepted_types(row.op_type, OPSET)
        types = [dtype for dtype in DTYPES if dtype in allowed]
        pairs = [pair for pair in BROADCASTS if row.op_type != "PRelu" or np.broadcast_shapes(*pair) == pair[0]]
        for pair in pairs:
            yield _elementwise_case(row, types[0], pair, OPSET)
        for dtype in types[1:]:
            yield _elementwise_case(row, dtype, pairs[1], OPSET)
        for opset in versions(row.op_type)[:-1]:
            if types[0] in accepted_types(row.op_type, opset):
                yield _elementwise_case(row, types[0], pairs[1], opset, f"@{opset}")


def _one(
    name: str,
    op_type: str,
    feeds: Mapping[str, np.ndarray],
    attributes: Mapping[str, object],
    limits: ToleranceName,
    *,
    opset: int = OPSET,
    constants: Mapping[str, np.ndarray] | None = None,
    output_count: int = 1,
) -> Case:
    def build() -> tuple[onnx.ModelProto, Mapping[str, np.ndarray]]:
        model = node_model(
            op_type, feeds, attributes, opset=opset, constants=constants, output_count=output_count
        )
        return model, feeds

    return evaluated(name, build, limits)


def _reductions() -> Iterator[Case]:
    for op_type in REDUCTIONS:
        low = 0.5 if op_type in ("ReduceLogSum", "ReduceProd") else -2.0
        for shape in ((2, 3, 5), (7,), (3, 65), (2, 1, 3, 4)):
            x = numbers((op_type,), shape, "float32", low)
            for axis in (axis for axis in AXES if -len(shape) <= axis < len(shape)):
                for keepdims in (0, 1):
                    name = f"{op_type}_{_text(shape)}_axis{axis}_keep{keepdims}"
                    axes = {"axes": np.array([axis], np.int64)}
                    yield _one(name, op_type, {"x": x}, {"keepdims": keepdims}, "approximate", constants=axes)
        x = numbers((op_type,), (2, 3, 5), "float32", low)
        yield _one(f"{op_type}_all", op_type, {"x": x}, {}, "approximate")
        if op_type != "ReduceSum":  # whose axes became an input earlier
            yield _one(f"{op_type}_axes@11", op_type, {"x": x}, {"axes": [-1, 0]}, "approximate", opset=11)
        yield _one(f"{op_type}_all@7", op_type, {"x": x}, {}, "approximate", opset=7)


def _rows() -> Iterator[Case]:
    for op_type in ROWS:
        for shape in ((2, 3, 5), (7,), (4, 65), (1, 1), (0, 4)):
            x = numbers((op_type,), shape, "float32")
            for axis in (axis for axis in AXES if -len(shape) <= axis < len(shape)):
                yield _one(f"{op_type}_{_text(shape)}_axis{axis}", op_type, {"x": x}, {"axis": axis}, "approximate")
        x = numbers((op_type,), (2, 3, 5), "float32")
        yield _one(f"{op_type}_default@13", op_type, {"x": x}, {}, "approximate", opset=13)
    for shape, axis in (((2, 3, 8), -1), ((4, 33), 1), ((2, 3, 4, 5), -2)):
        x = numbers(("LayerNormalization",), shape, "float32")
        tail = shape[axis:]
        given = {"scale": numbers(("scale",), tail, "float32"), "bias": numbers(("bias",), tail, "float32")}
        name = f"LayerNormalization_{_text(shape)}_axis{axis}"
        yield _one(name, "LayerNormalization", {"x": x}, {"axis": axis}, "approximate", constants=given)


def _products() -> Iterator[Case]:
    pairs: tuple[tuple[Shape, Shape], ...] = (
        ((3, 5), (5, 7)), ((1, 1), (1, 1)), ((2, 3, 5), (5, 7)), ((2, 1, 3, 5), (4, 5, 2)), ((5,), (5,)), ((5,), (5, 3)),
        ((3, 5), (5,)), ((0, 5), (5, 3)), ((3, 0), (0, 4)), ((65, 33), (33, 17)),
    )  # fmt: skip
    for left, right in pairs:
        for dtype in ("float32", "float64", "int32"):
            feeds = {"a": numbers(("a",), left, dtype), "b": numbers(("b",), right, dtype)}
            yield _one(f"MatMul_{dtype}_{_text(left, right)}", "MatMul", feeds, {}, "approximate")
        feeds = {"a": numbers(("a",), left, "float32")}
        given = {"b": numbers(("b",), right, "float32")}
        yield _one(f"MatMul_constant_{_text(left, right)}", "MatMul", feeds, {}, "approximate", constants=given)
    for trans_a in (0, 1):
        for trans_b in (0, 1):
            for bias in ((7,), (1, 7), (3, 1), ()):
                feeds = {
                    "a": numbers(("a",), (5, 3) if trans_a else (3, 5), "float32"),
                    "b": numbers(("b",), (7, 5) if trans_b else (5, 7), "float32"),
                    "c": numbers(("c",), bias, "float32"),
                }
                attributes = {"transA": trans_a, "transB": trans_b, "alpha": 0.5, "beta": 1.5}
                yield _one(f"Gemm_{trans_a}{trans_b}_{_text(bias)}", "Gemm", feeds, attributes, "approximate")


def _movements() -> Iterator[Case]:
    x = numbers(("movement",), (2, 3, 5), "float32")
    for permutation in ([0, 1, 2], [2, 1, 0], [1, 0, 2], [0, 2, 1], [1, 2, 0]):
        name = f"Transpose_{''.join(map(str, permutation))}"
        yield _one(name, "Transpose", {"x": x}, {"perm": permutation}, "exact")
    for axis in (0, 1, 2, -1, -3):
        yield _one(f"Concat_axis{axis}", "Concat", {"x": x, "y": x + 1}, {"axis": axis}, "exact")
        indices = np.array([[0, -1], [1, 0]], np.int64)
        yield _one(f"Gather_axis{axis}", "Gather", {"x": x}, {"axis": axis}, "exact", constants={"i": indices})
        yield _one(f"CumSum_axis{axis}", "CumSum", {"x": x}, {}, "rounding", constants={"axis": np.array(axis, np.int64)})
        yield _one(f"ArgMax_axis{axis}", "ArgMax", {"x": x}, {"axis": axis, "keepdims": 0}, "exact")
        yield _one(f"Flatten_axis{axis}", "Flatten", {"x": x}, {"axis": axis}, "exact")
    for name, (starts, ends, axes, steps) in {
        "plain": ([0, 1], [2, 3], [0, 1], [1, 1]), "negative": ([-3], [-1], [-1], [1]),
        "backwards": ([4], [-9], [2], [-2]), "empty": ([3], [1], [2], [1]), "beyond": ([1], [99], [1], [1]),
    }.items():  # fmt: skip
        given = dict(zip(("s", "e", "a", "t"), (np.array(v, np.int64) for v in (starts, ends, axes, steps)), strict=True))
        yield _one(f"Slice_{name}", "Slice", {"x": x}, {}, "exact", constants=given)
    for target in ([5, 6], [-1], [0, -1], [2, 3, 5, 1], [1, -1, 3]):
        given = {"shape": np.array(target, np.int64)}
        yield _one(f"Reshape_{'_'.join(map(str, target))}", "Reshape", {"x": x}, {}, "exact", constants=given)
    for source in ("float32", "int32", "int64", "bool", "float16", "uint8"):
        for target in ("float32", "int32", "int64", "bool", "float16", "int8"):
            to = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(target))
            feeds = {"x": numbers(("Cast",), (2, 3, 5), source, 0.6, 3.0)}
            yield _one(f"Cast_{source}_{target}", "Cast", feeds, {"to": to}, "exact")
    condition = numbers(("Where",), (3, 1), "bool")
    yield _one("Where_broadcast", "Where", {"c": condition, "x": x, "y": x[:1] * 2}, {}, "exact")
    yield _one("Expand_broadcast", "Expand", {"x": x[:, :1]}, {}, "exact", constants={"s": np.array([4, 1, 3, 1], np.int64)})
    yield _one("Pad_constant", "Pad", {"x": x}, {}, "exact", constants={"p": np.array([0, 1, 2, 1, 0, 3], np.int64)})
    yield _one("Tile_plain", "Tile", {"x": x}, {}, "exact", constants={"r": np.array([1, 2, 3], np.int64)})


def _windows() -> Iterator[Case]:
    for channels, groups, kernel, stride, pad, dilation in (
        (4, 1, 3, 1, 1, 1), (4, 4, 3, 1, 1, 1), (4, 2, 3, 2, 0, 1), (3, 1, 1, 1, 0, 1), (5, 1, 5, 2, 2, 1), (4, 1, 3, 1, 2, 2),
    ):  # fmt: skip
        facts = ("Conv", channels, groups, kernel)
        x = numbers(facts, (2, channels, 9, 11), "float32")
        out = groups * 3
        given = {
            "w": numbers((*facts, "w"), (out, channels // groups, kernel, kernel), "float32", -1.0, 1.0),
            "b": numbers((*facts, "b"), (out,), "float32"),
        }
        attributes = {"group": groups, "strides": [stride] * 2, "pads": [pad] * 4, "dilations": [dilation] * 2}
        name = f"Conv_c{channels}_g{groups}_k{kernel}_s{stride}_p{pad}_d{dilation}"
        yield _one(name, "Conv", {"x": x}, attributes, "approximate", constants=given)
        yield _one(f"{name}_run_time_weights", "Conv", {"x": x, **given}, attributes, "approximate")
    for op_type in ("MaxPool", "AveragePool"):
        for kernel, stride, pad in ((2, 2, 0), (3, 2, 1), (3, 1, 1)):
            x = numbers((op_type,), (2, 3, 9, 7), "float32")
            attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
            yield _one(f"{op_type}_k{kernel}_s{stride}_p{pad}", op_type, {"x": x}, attributes, "approximate")
    x = numbers(("Global",), (2, 3, 9, 7), "float32")
    yield _one("GlobalAveragePool_odd", "GlobalAveragePool", {"x": x}, {}, "approximate")
    yield _one("GlobalMaxPool_odd", "GlobalMaxPool", {"x": x}, {}, "exact")
