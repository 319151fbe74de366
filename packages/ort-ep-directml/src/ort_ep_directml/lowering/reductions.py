"""Operators that fold dimensions: sums, extremes, their places, running sums, softmax and its kin."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ort_core.plugin.ir import Node
from ort_ep_directml.lowering.attributes import axis_of, constant_ints, from_front, sorted_axes
from ort_ep_directml.lowering.elementwise import binary, unary
from ort_ep_directml.lowering.emission import EmissionState
from ort_ep_directml.lowering.operand import Operand
from ort_ep_directml.lowering.plan import Sizes
from ort_ep_directml.lowering.refused import Refused
from ort_ep_directml.lowering.rule import Lower, Rule
from ort_ep_directml.schema.element_types import ElementType
from ort_ep_directml.schema.enumerators import AxisDirection, ReduceFunction

Normalize = Callable[[EmissionState, Operand, Sizes], Operand]
_UNCHANGED_WITHOUT_AXES = frozenset({"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"})


def reduced(to: EmissionState, x: Operand, function: ReduceFunction, axes: Sizes) -> Operand:
    """Append a reduction; the dimensions stay with size 1."""
    sizes = tuple(1 if place in axes else size for place, size in enumerate(x.sizes))
    return to.emit("REDUCE", (x.dtype, sizes), Function=int(function), Input=x, Axes=axes)


def _told_axes(to: EmissionState, node: Node, x: Operand) -> Sizes | None:
    """Return the axes that the sizes of a result tell, where they are no constant: those that have become 1."""
    value, made = node.input(1), to.sizes(node.output)
    if value is None or to.context.constant(value) is not None or not node.int_attribute("keepdims", 1):
        return None
    return tuple(axis for axis, (size, left) in enumerate(zip(x.sizes, made, strict=True)) if left != size)


def _reduction(function: ReduceFunction) -> Lower:
    def lower(to: EmissionState, node: Node) -> Operand:
        x = to.operand(node.input(0))
        is_over_none = node.input(1) is not None and 0 in to.sizes(node.input(1))
        axes = () if is_over_none else _told_axes(to, node, x) or constant_ints(to, node, 1, "axes")
        if not axes:
            if node.int_attribute("noop_with_empty_axes", 0):
                if node.op_type not in _UNCHANGED_WITHOUT_AXES:
                    raise Refused(f"{node.op_type} over no axis at all is left to others")
                return x
            axes = tuple(range(x.rank))
        if not axes:
            axes, x = (0,), to.reshape(x, (1,))  # a scalar
        return to.reshape(reduced(to, x, function, sorted_axes(axes, x.rank)), to.sizes(node.output))

    return lower


def _place(kind: str) -> Lower:
    def lower(to: EmissionState, node: Node) -> Operand:
        x = to.operand(node.input(0))
        axis = axis_of(node, x.rank, 0)
        sizes = tuple(1 if place == axis else size for place, size in enumerate(x.sizes))
        last = AxisDirection.DECREASING if node.int_attribute("select_last_index", 0) else AxisDirection.INCREASING
        made = to.emit(kind, (ElementType.INT64, sizes), Input=x, Axes=(axis,), AxisDirection=int(last))
        return to.reshape(made, to.sizes(node.output))

    return lower


def _cumulative(kind: str, exclusive: str) -> Lower:
    def lower(to: EmissionState, node: Node) -> Operand:
        x = to.operand(node.input(0))
        axes = (0,) if x.rank == 1 else constant_ints(to, node, 1, "axis")
        if axes is None:
            raise Refused(f"{node.op_type} lacks its axis")
        way = AxisDirection.DECREASING if node.int_attribute("reverse", 0) else AxisDirection.INCREASING
        fields: dict[str, object] = {exclusive: node.int_attribute("exclusive", 0), "AxisDirection": int(way)}
        return to.emit(kind, (x.dtype, x.sizes), Input=x, Axis=from_front(axes[0], x.rank), **fields)

    return lower


def log_softmax(to: EmissionState, x: Operand, axes: Sizes) -> Operand:
    """Append ``d - log(sum(exp(d)))`` with ``d = x - max(x)``.

    An element that is minus infinity stays so, and beside plus infinity all is NaN, as ONNX's definition has it; what
    DirectML's own operator makes of infinities is another thing, and nowhere described.
    """
    distances = binary(to, "ELEMENT_WISE_SUBTRACT", x, reduced(to, x, ReduceFunction.MAX, axes))
    total = reduced(to, unary(to, "ELEMENT_WISE_EXP", distances), ReduceFunction.SUM, axes)
    return binary(to, "ELEMENT_WISE_SUBTRACT", distances, unary(to, "ELEMENT_WISE_LOG", total))


def _of_kind(kind: str) -> Normalize:
    return lambda to, x, axes: to.emit(kind, (x.dtype, x.sizes), Input=x, Axes=axes)


def _softmax(normalized: Normalize) -> Lower:
    def lower(to: EmissionState, node: Node) -> Operand:
        x = to.operand(node.input(0))
        is_old = to.context.opset(node) < 13  # over all dimensions from one on
        first = axis_of(node, x.rank, 1 if is_old else -1)
        axes = tuple(range(first, x.rank if is_old else first + 1))
        if not x.sizes:
            raise Refused(f"{node.op_type} of a scalar is left to others")
        wide = to.cast(x, ElementType.FLOAT32) if x.dtype is ElementType.FLOAT16 else x  # sums of halves lose digits
        return to.cast(normalized(to, wide, axes), x.dtype)

    return lower


_REDUCTIONS = {
    "ReduceL1": ReduceFunction.L1,
    "ReduceL2": ReduceFunction.L2,
    "ReduceLogSum": ReduceFunction.LOG_SUM,
    "ReduceLogSumExp": ReduceFunction.LOG_SUM_EXP,
    "ReduceMax": ReduceFunction.MAX,
    "ReduceMean": ReduceFunction.AVERAGE,
    "ReduceMin": ReduceFunction.MIN,
    "ReduceProd": ReduceFunction.MULTIPLY,
    "ReduceSum": ReduceFunction.SUM,
    "ReduceSumSquare": ReduceFunction.SUM_SQUARE,
}

REDUCTIONS: Mapping[str, Rule] = {
    **{name: Rule(_reduction(function)) for name, function in _REDUCTIONS.items()},
    "ArgMax": Rule(_place("ARGMAX")),
    "ArgMin": Rule(_place("ARGMIN")),
    "CumProd": Rule(_cumulative("CUMULATIVE_PRODUCT", "HasExclusiveProduct"), required=2),
    "CumSum": Rule(_cumulative("CUMULATIVE_SUMMATION", "HasExclusiveSum"), required=2),
    "Hardmax": Rule(_softmax(_of_kind("ACTIVATION_HARDMAX1"))),
    "LogSoftmax": Rule(_softmax(log_softmax)),
    "Softmax": Rule(_softmax(_of_kind("ACTIVATION_SOFTMAX1"))),
}
"""Rules by operator."""
