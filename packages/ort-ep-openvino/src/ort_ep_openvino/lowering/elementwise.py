"""Elementwise operators: arithmetic, functions of one number, comparisons, logic, choices and conversions."""

from __future__ import annotations

from collections.abc import Mapping

from ort_core.plugin import GraphView
from ort_core.plugin.claims import dtype_of, held_constant, is_static
from ort_core.plugin.ir import DataType, Node
from ort_ep_openvino.lowering.conditions import (
    comparable_integers,
    fits_float32,
    fits_int32,
    without_attributes,
)
from ort_ep_openvino.lowering.input_bounds import WIDE
from ort_ep_openvino.lowering.movement import MOVEMENT
from ort_ep_openvino.lowering.rule import BOOL, BYTES, FLOATS, INDICES, MOVED, SHORTS, Rule

INT32 = frozenset({DataType.INT32})
BOOLEAN_MASK = 10  # before opset 10 the mask of Dropout had the type of the data
NUMPY_BROADCAST = 7  # before opset 7 broadcasting was asked for by an attribute

_FUNCTIONS = (
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor",
    "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Mish", "PRelu", "Reciprocal", "Relu", "Selu",
    "Sigmoid", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "SwiGLU", "Swish", "Tan", "Tanh",
    "ThresholdedRelu",
)  # fmt: skip
_EXACT_INTEGERS = ("Abs", "Neg", "Sign")
_WRAPPING = ("Add", "Mul", "Sub")
_COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_CONVERSIONS = ("Cast", "CastLike")
_LOGIC = ("And", "Not", "Or", "Xor")


def _exact_conversion(view: GraphView, node: Node) -> str | None:
    source, target = dtype_of(node.input(0)), dtype_of(node.output)
    if source in FLOATS and target is DataType.INT64:
        return "OpenVINO converts to int64 by int32; numbers from 2**31 on would be wrong"
    return None


def _rounds_for_good(view: GraphView, node: Node) -> str | None:
    """Refuse a conversion to float16 of what is only moved before it is float32 again.

    OpenVINO takes both out: nothing is rounded, and with open sizes runs read freed memory.
    """
    if dtype_of(node.input(0)) is not DataType.FLOAT or dtype_of(node.output) is not DataType.FLOAT16:
        return None
    seen, waiting = {node.output}, [node.output]
    while waiting:
        for reader in waiting.pop().consumers():
            if reader.op_type in _CONVERSIONS and dtype_of(reader.output) is DataType.FLOAT:
                return "OpenVINO leaves out a conversion to float16 and back, which rounds"
            if reader.op_type in MOVEMENT or reader.op_type == "Identity":
                moved = [value for value in reader.present_outputs() if value not in seen]
                seen.update(moved)
                waiting += moved
    return None


def _not_of_a_constants_quotient(view: GraphView, node: Node) -> str | None:
    source = node.input(0)
    quotient = None if source is None else source.producer
    if quotient is None or quotient.op_type != "Div" or held_constant(view, quotient.input(0)) is None:
        return None
    return "OpenVINO divides a constant with an error in the last place, which rounding makes a whole step"


def _bytes_of_fixed_sizes(view: GraphView, node: Node) -> str | None:
    """Refuse quotients of bytes of open sizes: the kernels that OpenVINO generates for these round to the nearest."""
    values = (*node.present_inputs(), *node.present_outputs())
    if dtype_of(node.output) not in BYTES or all(is_static(value) for value in values):
        return None
    return "OpenVINO rounds quotients of bytes to the nearest where sizes are open; ONNX cuts off what is left over"


def _shifts_nothing_out(view: GraphView, node: Node) -> str | None:
    if node.string_attribute("direction", "") == "RIGHT":
        return None
    return "OpenVINO saturates where a shift to the left loses bits"


def _not_training(view: GraphView, node: Node) -> str | None:
    training = node.input(2)
    constant = held_constant(view, training)
    if training is None or (constant is not None and not constant.array().any()):
        return None
    return "OpenVINO drops nothing out: that is for training"


def _same_types(view: GraphView, node: Node) -> str | None:
    left, right = dtype_of(node.input(0)), dtype_of(node.input(1))
    if left is right or (left is DataType.FLOAT and right in WIDE):
        return None
    return "OpenVINO computes a power of two element types in the wrong one"


ELEMENTWISE: Mapping[str, Rule] = {
    **{name: Rule(FLOATS) for name in _FUNCTIONS},
    **{name: Rule(FLOATS | INDICES, conditions=(fits_int32,)) for name in _EXACT_INTEGERS},
    **{
        name: Rule(FLOATS | BYTES | SHORTS | WIDE, conditions=(fits_int32,), oldest=NUMPY_BROADCAST)
        for name in _WRAPPING
    },
    "Round": Rule(FLOATS, conditions=(_not_of_a_constants_quotient,)),
    "Div": Rule(
        FLOATS | BYTES | SHORTS | WIDE, conditions=(fits_float32, _bytes_of_fixed_sizes), oldest=NUMPY_BROADCAST
    ),
    "Pow": Rule(FLOATS, ports={1: FLOATS | WIDE}, conditions=(_same_types, fits_float32), oldest=NUMPY_BROADCAST),
    "Mod": Rule(FLOATS | BYTES | SHORTS | WIDE, conditions=(fits_float32,)),
    "Max": Rule(FLOATS | BYTES | SHORTS | WIDE, conditions=(fits_int32,)),
    "Min": Rule(FLOATS | BYTES | SHORTS | WIDE, conditions=(fits_int32,)),
    "Mean": Rule(FLOATS),
    "Sum": Rule(FLOATS),
    "Clip": Rule(FLOATS | BYTES),
    "IsNaN": Rule(FLOATS, results={0: BOOL}),
    "IsInf": Rule(FLOATS, results={0: BOOL}),
    **{name: Rule(BOOL, oldest=NUMPY_BROADCAST) for name in _LOGIC if name != "Not"},
    "Not": Rule(BOOL),
    **{
        name: Rule(MOVED | SHORTS | WIDE, results={0: BOOL}, conditions=(comparable_integers,), oldest=NUMPY_BROADCAST)
        for name in _COMPARISONS
    },
    "BitwiseAnd": Rule(BYTES | SHORTS | WIDE, conditions=(fits_int32,)),
    "BitwiseOr": Rule(BYTES | SHORTS | WIDE, conditions=(fits_int32,)),
    "BitwiseXor": Rule(BYTES | SHORTS | WIDE, conditions=(fits_int32,)),
    "BitwiseNot": Rule(BYTES | INT32),
    "BitShift": Rule(frozenset({DataType.UINT8}), conditions=(_shifts_nothing_out, _bytes_of_fixed_sizes)),
    "Where": Rule(MOVED, ports={0: BOOL}),
    "Cast": Rule(MOVED, conditions=(_exact_conversion, _rounds_for_good, without_attributes(saturate=1))),
    "CastLike": Rule(
        MOVED,
        ports={1: frozenset(DataType)},
        conditions=(_exact_conversion, _rounds_for_good, without_attributes(saturate=1)),
    ),
    "Constant": Rule(MOVED),
    "Identity": Rule(MOVED),
    "Dropout": Rule(FLOATS, ports={2: BOOL}, results={1: BOOL}, conditions=(_not_training,), oldest=BOOLEAN_MASK),
    "CumSum": Rule(FLOATS | INT32, ports={1: INDICES}),
}
"""Rules by operator."""
