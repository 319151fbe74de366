"""Operators whose shapes matter: reductions, rows, products, movements and windows, with negative axes and odd sizes.

The truth is onnx's own evaluator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx

from ort_conformance.case import Case
from ort_conformance.suites.case_values import Shape, numbers, shape_text
from ort_conformance.suites.model_text import OPSET, evaluated, node_model
from ort_core.tolerances import ToleranceName

AXES = (-1, 0, 1, -2)
REDUCED_SHAPES: tuple[Shape, ...] = ((2, 3, 5), (7,), (3, 65), (2, 1, 3, 4))
ROW_SHAPES: tuple[Shape, ...] = ((2, 3, 5), (7,), (4, 65), (1, 1), (0, 4))
REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare", "ReduceL1",
              "ReduceL2", "ReduceLogSum", "ReduceLogSumExp")  # fmt: skip
ROWS = ("Softmax", "LogSoftmax", "Hardmax")


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
        model = node_model(op_type, feeds, attributes, opset=opset, constants=constants, output_count=output_count)
        return model, feeds

    return evaluated(name, build, limits)


def reduction_cases() -> Iterator[Case]:
    """Yield reductions over each axis, with axes as input and as attribute."""
    for op_type in REDUCTIONS:
        low = 0.5 if op_type in ("ReduceLogSum", "ReduceProd") else -2.0
        for shape in REDUCED_SHAPES:
            x = numbers((op_type,), shape, "float32", low)
            for axis in (axis for axis in AXES if -len(shape) <= axis < len(shape)):
                for keepdims in (0, 1):
                    name = f"{op_type}_{shape_text(shape)}_axis{axis}_keep{keepdims}"
                    axes = {"axes": np.array([axis], np.int64)}
                    yield _one(name, op_type, {"x": x}, {"keepdims": keepdims}, "approximate", constants=axes)
        x = numbers((op_type,), (2, 3, 5), "float32", low)
        yield _one(f"{op_type}_all", op_type, {"x": x}, {}, "approximate")
        if op_type != "ReduceSum":  # whose axes became an input earlier
            yield _one(f"{op_type}_axes@11", op_type, {"x": x}, {"axes": [-1, 0]}, "approximate", opset=11)
        yield _one(f"{op_type}_all@7", op_type, {"x": x}, {}, "approximate", opset=7)


def row_cases() -> Iterator[Case]:
    """Yield operators along one axis: softmaxes and layer normalization."""
    for op_type in ROWS:
        for shape in ROW_SHAPES:
            x = numbers((op_type,), shape, "float32")
            for axis in (axis for axis in AXES if -len(shape) <= axis < len(shape)):
                yield _one(
                    f"{op_type}_{shape_text(shape)}_axis{axis}", op_type, {"x": x}, {"axis": axis}, "approximate"
                )
        x = numbers((op_type,), (2, 3, 5), "float32")
        yield _one(f"{op_type}_default@13", op_type, {"x": x}, {}, "approximate", opset=13)
    normalized: tuple[tuple[Shape, int], ...] = (((2, 3, 8), -1), ((4, 33), 1), ((2, 3, 4, 5), -2))
    for shape, axis in normalized:
        x = numbers(("LayerNormalization",), shape, "float32")
        tail = shape[axis:]
        given = {"scale": numbers(("scale",), tail, "float32"), "bias": numbers(("bias",), tail, "float32")}
        name = f"LayerNormalization_{shape_text(shape)}_axis{axis}"
        yield _one(name, "LayerNormalization", {"x": x}, {"axis": axis}, "approximate", constants=given)


def product_cases() -> Iterator[Case]:
    """Yield matrix products: vectors, broadcast batches, empty sizes, constants, and Gemm in each of its forms."""
    pairs: tuple[tuple[Shape, Shape], ...] = (
        ((3, 5), (5, 7)), ((1, 1), (1, 1)), ((2, 3, 5), (5, 7)), ((2, 1, 3, 5), (4, 5, 2)), ((5,), (5,)),
        ((5,), (5, 3)), ((3, 5), (5,)), ((0, 5), (5, 3)), ((3, 0), (0, 4)), ((65, 33), (33, 17)),
    )  # fmt: skip
    for left, right in pairs:
        for dtype in ("float32", "float64", "int32"):
            feeds = {"a": numbers(("a",), left, dtype), "b": numbers(("b",), right, dtype)}
            yield _one(f"MatMul_{dtype}_{shape_text(left, right)}", "MatMul", feeds, {}, "approximate")
        feeds = {"a": numbers(("a",), left, "float32")}
        given = {"b": numbers(("b",), right, "float32")}
        yield _one(f"MatMul_constant_{shape_text(left, right)}", "MatMul", feeds, {}, "approximate", constants=given)
    for trans_a in (0, 1):
        for trans_b in (0, 1):
            for bias in ((7,), (1, 7), (3, 1), ()):
                feeds = {
                    "a": numbers(("a",), (5, 3) if trans_a else (3, 5), "float32"),
                    "b": numbers(("b",), (7, 5) if trans_b else (5, 7), "float32"),
                    "c": numbers(("c",), bias, "float32"),
                }
                attributes = {"transA": trans_a, "transB": trans_b, "alpha": 0.5, "beta": 1.5}
                yield _one(f"Gemm_{trans_a}{trans_b}_{shape_text(bias)}", "Gemm", feeds, attributes, "approximate")


def movement_cases() -> Iterator[Case]:
    """Yield operators that move or convert elements."""
    x = numbers(("movement",), (2, 3, 5), "float32")
    for permutation in ([0, 1, 2], [2, 1, 0], [1, 0, 2], [0, 2, 1], [1, 2, 0]):
        name = f"Transpose_{''.join(map(str, permutation))}"
        yield _one(name, "Transpose", {"x": x}, {"perm": permutation}, "exact")
    for axis in (0, 1, 2, -1, -3):
        yield _one(f"Concat_axis{axis}", "Concat", {"x": x, "y": x + 1}, {"axis": axis}, "exact")
        indices = np.array([[0, -1], [1, 0]], np.int64)
        yield _one(f"Gather_axis{axis}", "Gather", {"x": x}, {"axis": axis}, "exact", constants={"i": indices})
        yield _one(
            f"CumSum_axis{axis}", "CumSum", {"x": x}, {}, "rounding", constants={"axis": np.array(axis, np.int64)}
        )
        yield _one(f"ArgMax_axis{axis}", "ArgMax", {"x": x}, {"axis": axis, "keepdims": 0}, "exact")
        yield _one(f"Flatten_axis{axis}", "Flatten", {"x": x}, {"axis": axis}, "exact")
    for name, (starts, ends, axes, steps) in {
        "plain": ([0, 1], [2, 3], [0, 1], [1, 1]), "negative": ([-3], [-1], [-1], [1]),
        "backwards": ([4], [-9], [2], [-2]), "empty": ([3], [1], [2], [1]), "beyond": ([1], [99], [1], [1]),
    }.items():  # fmt: skip
        given = dict(
            zip(("s", "e", "a", "t"), (np.array(v, np.int64) for v in (starts, ends, axes, steps)), strict=True)
        )
        yield _one(f"Slice_{name}", "Slice", {"x": x}, {}, "exact", constants=given)
    for target in ([5, 6], [-1], [0, -1], [2, 3, 5, 1], [1, -1, 3]):
        given = {"shape": np.array(target, np.int64)}
        yield _one(f"Reshape_{'_'.join(map(str, target))}", "Reshape", {"x": x}, {}, "exact", constants=given)
    for given_type in ("float32", "int32", "int64", "bool", "float16", "uint8"):
        for wanted_type in ("float32", "int32", "int64", "bool", "float16", "int8"):
            to = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(wanted_type))
            feeds = {"x": numbers(("Cast",), (2, 3, 5), given_type, 0.6, 3.0)}
            yield _one(f"Cast_{given_type}_{wanted_type}", "Cast", feeds, {"to": to}, "exact")
    condition = numbers(("Where",), (3, 1), "bool")
    yield _one("Where_broadcast", "Where", {"c": condition, "x": x, "y": x[:1] * 2}, {}, "exact")
    yield _one(
        "Expand_broadcast", "Expand", {"x": x[:, :1]}, {}, "exact", constants={"s": np.array([4, 1, 3, 1], np.int64)}
    )
    yield _one("Pad_constant", "Pad", {"x": x}, {}, "exact", constants={"p": np.array([0, 1, 2, 1, 0, 3], np.int64)})
    yield _one("Tile_plain", "Tile", {"x": x}, {}, "exact", constants={"r": np.array([1, 2, 3], np.int64)})


def window_cases() -> Iterator[Case]:
    """Yield convolutions and poolings over odd sizes."""
    for channels, groups, kernel, stride, pad, dilation in (
        (4, 1, 3, 1, 1, 1), (4, 4, 3, 1, 1, 1), (4, 2, 3, 2, 0, 1), (3, 1, 1, 1, 0, 1), (5, 1, 5, 2, 2, 1),
        (4, 1, 3, 1, 2, 2),
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
