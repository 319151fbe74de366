"""Reductions and what else goes along an axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ort_core.plugin.ir import Node
from ort_ep_coreml.lowering.emission import EmissionState, axis_of
from ort_ep_coreml.lowering.indexing import one_hot_mask
from ort_ep_coreml.lowering.lowering_context import LoweringContext, rank_of, sizes_of
from ort_ep_coreml.lowering.rule import FLOATS, INTS, MOVED, NUMBERS, Lower, Rule
from ort_ep_coreml.lowering.terms import Term, chosen, first, joined
from ort_ep_coreml.mil import Operand


def reduced_axes(context: LoweringContext, node: Node) -> tuple[int, ...]:
    """Return the axes of a reduction, counted from the front; none where nothing is reduced."""
    rank = rank_of(node.input(0))
    given = context.constant(node.input(1))
    axes = node.ints_attribute("axes") if given is None else tuple(int(each) for each in given.reshape(-1))
    if not axes:
        return () if node.int_attribute("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted(axis + rank if axis < 0 else axis for axis in axes))


def _reduce(kind: str, of_one: Callable[[Term], Term]) -> Lower:
    def lower(to: EmissionState, node: Node) -> Operand:
        x, axes = first(to, node), reduced_axes(to.context, node)
        if x.dtype == np.bool_:  # MIL reduces numbers only
            x = x.cast(np.dtype(np.int32), "int32")
            found = x.reduced(kind, *axes, keeps=bool(node.int_attribute("keepdims", 1))) if axes else x
            return found.cast(np.dtype(np.bool_), "bool").operand
        if not axes:
            return of_one(x).operand
        return x.reduced(kind, *axes, keeps=bool(node.int_attribute("keepdims", 1))).operand

    return lower


def _itself(x: Term) -> Term:
    return x.do("identity")


def _size(x: Term) -> Term:
    return x.do("abs")


def _square(x: Term) -> Term:
    return x * x


def _logarithm(x: Term) -> Term:
    return x.do("log", epsilon=x.number(0))


def _softmax(to: EmissionState, node: Node) -> Operand:
    x, axis = first(to, node), _softmax_axis(to.context, node)
    rank = rank_of(node.input(0))
    if to.context.opset(node) >= _SOFTMAX_OF_ONE_AXIS or axis == rank - 1:
        if node.op_type == "Softmax":
            return x.do("softmax", axis=axis).operand
        return (x - x.reduced("reduce_log_sum_exp", axis)).operand
    axes = range(axis, rank)  # before opset 13 it runs over all axes from there on
    if node.op_type == "LogSoftmax":
        return (x - x.reduced("reduce_log_sum_exp", *axes)).operand
    powers = (x - x.reduced("reduce_max", *axes)).do("exp")
    return (powers / powers.reduced("reduce_sum", *axes)).operand


def _softmax_axis(context: LoweringContext, node: Node) -> int:
    return axis_of(node, node.input(0), -1 if context.opset(node) >= _SOFTMAX_OF_ONE_AXIS else 1)


def _has_an_axis(context: LoweringContext, node: Node) -> str | None:
    return "a scalar has no axis" if rank_of(node.input(0)) == 0 else None


def _hardmax(to: EmissionState, node: Node) -> Operand:
    x, rank = first(to, node), rank_of(node.input(0))
    axis = _softmax_axis(to.context, node)
    depth = sizes_of(node.input(0))[axis]  # type: ignore[arg-type]  # required
    assert isinstance(depth, int), "_one_known_axis was asked"
    best = Term(to, to.emit("reduce_argmax", x=x.operand, axis=axis, keep_dims=True), np.dtype(np.int32))
    return chosen(one_hot_mask(best, axis, depth, rank), 1, 0, x).operand


def _one_known_axis(context: LoweringContext, node: Node) -> str | None:
    rank = rank_of(node.input(0))
    if rank == 0 or not isinstance(sizes_of(node.input(0))[_softmax_axis(context, node)], int):  # type: ignore[arg-type]  # required
        return "Hardmax over an axis whose size is open"
    if context.opset(node) >= _SOFTMAX_OF_ONE_AXIS or _softmax_axis(context, node) == rank - 1:
        return None
    return f"Hardmax before opset {_SOFTMAX_OF_ONE_AXIS} runs over several axes"


_SOFTMAX_OF_ONE_AXIS = 13


def _arg(kind: str) -> Lower:
    def lower(to: EmissionState, node: Node) -> Operand:
        x, axis, keeps = first(to, node), axis_of(node, node.input(0), 0), bool(node.int_attribute("keepdims", 1))
        if not node.int_attribute("select_last_index", 0):
            return to.emit(kind, x=x.operand, axis=axis, keep_dims=keeps)
        size = sizes_of(node.input(0))[axis]  # type: ignore[arg-type]  # required
        assert isinstance(size, int), "_last_is_known was asked"
        turned = x.do("reverse", axes=np.array([axis], np.int32))
        found = Term(to, to.emit(kind, x=turned.operand, axis=axis, keep_dims=keeps), np.dtype(np.int32))
        return (size - 1 - found).operand

    return lower


def _last_is_known(context: LoweringContext, node: Node) -> str | None:
    size = sizes_of(node.input(0))[axis_of(node, node.input(0), 0)]  # type: ignore[arg-type]  # required
    if isinstance(size, int) or not node.int_attribute("select_last_index", 0):
        return None
    return f"{node.op_type} with select_last_index=1 over an axis whose size is open is not lowered"


def _cumulative(to: EmissionState, node: Node) -> Operand:
    axis = to.context.constant(node.input(1))
    assert axis is not None, "a constant is read beforehand"
    place = int(axis.reshape(-1)[0])
    return to.emit(
        "cumsum",
        x=to.operand(node.input(0)),
        axis=place + rank_of(node.input(0)) if place < 0 else place,
        exclusive=bool(node.int_attribute("exclusive", 0)),
        reverse=bool(node.int_attribute("reverse", 0)),
    )


def _cumulative_product(to: EmissionState, node: Node) -> Operand:
    """Lower to one product for each place along the axis."""
    given, rank = to.context.constant(node.input(1)), rank_of(node.input(0))
    assert given is not None, "a constant is read beforehand"
    x, axis = first(to, node), int(given.reshape(-1)[0]) % rank
    size = sizes_of(node.input(0))[axis]  # type: ignore[arg-type]  # required
    assert isinstance(size, int), "_few_places was asked"
    places = range(size - 1, -1, -1) if node.int_attribute("reverse", 0) else range(size)
    parts = [x.cut(axis, place, place + 1, rank) for place in places]
    one = chosen(parts[0].with_("equal", parts[0]), 1, 1, parts[0])  # no product: infinite parts have none with 0
    found = [one, *parts[:-1]] if node.int_attribute("exclusive", 0) else parts
    for place in range(1, size):
        found[place] = found[place - 1] * found[place]
    return joined(found[::-1] if node.int_attribute("reverse", 0) else found, axis).operand


def _few_places(context: LoweringContext, node: Node) -> str | None:
    given = context.constant(node.input(1))
    assert given is not None, "a constant is read beforehand"
    size = sizes_of(node.input(0))[int(given.reshape(-1)[0]) % rank_of(node.input(0))]  # type: ignore[arg-type]  # required
    is_few = isinstance(size, int) and size <= _MOST_PRODUCTS
    return None if is_few else f"CumProd is written out, over {_MOST_PRODUCTS} places at most; this axis has {size}"


_MOST_PRODUCTS = 128
_REDUCTIONS = (
    ("ReduceSum", "reduce_sum", NUMBERS, _itself), ("ReduceMax", "reduce_max", MOVED, _itself),
    ("ReduceMin", "reduce_min", MOVED, _itself), ("ReduceProd", "reduce_prod", NUMBERS, _itself),
    ("ReduceMean", "reduce_mean", FLOATS, _itself), ("ReduceL1", "reduce_l1_norm", NUMBERS, _size),
    ("ReduceL2", "reduce_l2_norm", FLOATS, _size), ("ReduceLogSum", "reduce_log_sum", FLOATS, _logarithm),
    ("ReduceLogSumExp", "reduce_log_sum_exp", FLOATS, _itself),
    ("ReduceSumSquare", "reduce_sum_square", NUMBERS, _square),
)  # fmt: skip

REDUCTIONS: Mapping[str, Rule] = {
    **{name: Rule(_reduce(kind, of_one), types, beforehand=(1,)) for name, kind, types, of_one in _REDUCTIONS},
    "ArgMax": Rule(_arg("reduce_argmax"), NUMBERS, results={0: INTS}, conditions=(_last_is_known,)),
    "ArgMin": Rule(_arg("reduce_argmin"), NUMBERS, results={0: INTS}, conditions=(_last_is_known,)),
    "Softmax": Rule(_softmax, conditions=(_has_an_axis,)),
    "LogSoftmax": Rule(_softmax, conditions=(_has_an_axis,)),
    "Hardmax": Rule(_hardmax, conditions=(_one_known_axis,)),
    "CumProd": Rule(_cumulative_product, NUMBERS, beforehand=(1,), conditions=(_has_an_axis, _few_places), required=2),
    "CumSum": Rule(_cumulative, NUMBERS, beforehand=(1,), required=2),
}
"""Rules by operator."""
