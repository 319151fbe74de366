"""Elementwise operators as rows of a table: element types, ranks, broadcasts, odd and empty sizes, every version."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from ort_conformance.case import Case
from ort_conformance.suites.case_values import Shape, accepted_types, numbers, shape_text, versions
from ort_conformance.suites.model_text import OPSET, evaluated, node_model
from ort_core.tolerances import ToleranceName

SHAPES: tuple[Shape, ...] = ((), (1,), (7,), (0,), (3, 0, 2), (2, 3, 5), (1, 2, 3, 4, 5), (65, 33), (1, 1, 2, 1, 3, 1))
BROADCASTS: tuple[tuple[Shape, Shape], ...] = (
    ((2, 3, 5), (2, 3, 5)), ((2, 3, 5), (5,)), ((2, 3, 5), ()), ((3, 1), (1, 7)), ((1, 3, 1, 5), (2, 1, 4, 1)),
    ((0, 3), (1, 3)), ((5,), (4, 3, 5)), ((17, 9), (17, 1)),
)  # fmt: skip
DTYPES = ("float32", "float16", "float64", "int32", "int64", "int8", "uint8", "bool")


@dataclass(frozen=True, slots=True)
class Elementwise:
    """An elementwise operator with the interval that its float inputs come from, and how exact it is.

    ``formula`` gives the truth in float64 where onnx's evaluator is less exact than the element type, or fails.
    """

    op_type: str
    low: float = -3.0
    high: float = 3.0
    limits: ToleranceName = "approximate"
    formula: Callable[[np.ndarray], np.ndarray] | None = None


_ERF = np.vectorize(math.erf, otypes=[np.float64])


UNARY = (
    Elementwise("Abs", limits="exact"), Elementwise("Neg", limits="exact"), Elementwise("Relu", limits="exact"),
    Elementwise("Ceil", limits="exact"), Elementwise("Floor", limits="exact"), Elementwise("Round", limits="exact"),
    Elementwise("Sign", limits="exact"), Elementwise("Not", limits="exact"), Elementwise("Identity", limits="exact"),
    Elementwise("IsNaN", limits="exact"), Elementwise("IsInf", limits="exact"),
    Elementwise("Sqrt", 0.0, 9.0, "rounding"), Elementwise("Reciprocal", 0.3, 3.0, "rounding"),
    Elementwise("Exp"), Elementwise("Log", 0.1, 9.0), Elementwise("Sin"), Elementwise("Cos"),
    Elementwise("Tan", -1.4, 1.4), Elementwise("Asin", -0.95, 0.95), Elementwise("Acos", -0.95, 0.95),
    Elementwise("Atan"), Elementwise("Sinh"), Elementwise("Cosh"), Elementwise("Tanh"), Elementwise("Asinh"),
    Elementwise("Acosh", 1.1, 4.0), Elementwise("Atanh", -0.95, 0.95), Elementwise("Erf", formula=_ERF),
    Elementwise("Sigmoid"), Elementwise("HardSigmoid"),
    Elementwise("HardSwish", formula=lambda x: x * np.clip(x / 6 + 0.5, 0, 1)), Elementwise("Elu"), Elementwise("Selu"),
    Elementwise("Celu"), Elementwise("LeakyRelu"), Elementwise("ThresholdedRelu"), Elementwise("Softplus"),
    Elementwise("Softsign", formula=lambda x: x / (1 + np.abs(x))), Elementwise("Mish"),
    Elementwise("Gelu", formula=lambda x: x / 2 * (1 + _ERF(x / math.sqrt(2)))),
)  # fmt: skip
BINARY = (
    Elementwise("Add", limits="rounding"), Elementwise("Sub", limits="rounding"), Elementwise("Mul", limits="rounding"),
    Elementwise("Div", 0.5, 4.0, "rounding"), Elementwise("Pow", 0.5, 3.0), Elementwise("Min", limits="exact"),
    Elementwise("Max", limits="exact"), Elementwise("Equal", limits="exact"), Elementwise("Less", limits="exact"),
    Elementwise("Greater", limits="exact"), Elementwise("LessOrEqual", limits="exact"),
    Elementwise("GreaterOrEqual", limits="exact"), Elementwise("And", limits="exact"),
    Elementwise("Or", limits="exact"), Elementwise("Xor", limits="exact"), Elementwise("PRelu", limits="rounding"),
)  # fmt: skip


def _elementwise_case(row: Elementwise, dtype: str, shapes: Sequence[Shape], opset: int, suffix: str = "") -> Case:
    def build() -> tuple[onnx.ModelProto, Mapping[str, np.ndarray]]:
        feeds = {
            f"x{index}": numbers((row.op_type, index), shape, dtype, row.low, row.high)
            for index, shape in enumerate(shapes)
        }
        return node_model(row.op_type, feeds, {}, opset=opset), feeds

    def truth(feeds: Mapping[str, np.ndarray]) -> Sequence[object]:
        assert row.formula is not None
        return [np.asarray(row.formula(feeds["x0"].astype(np.float64))).astype(dtype)]

    name = f"{row.op_type}_{dtype}_{shape_text(*shapes)}{suffix}"
    return evaluated(name, build, row.limits, truth=truth if row.formula is not None else None)


def unary_cases() -> Iterator[Case]:
    """Yield cases of one input: every shape, every element type, every version."""
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


def binary_cases() -> Iterator[Case]:
    """Yield cases of two inputs: every way of broadcasting, every element type, every version."""
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
