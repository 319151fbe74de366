"""Operators about sizes: what reads them, and tensors that are made of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_core.plugin.claims import dtype_of, is_static
from ort_core.plugin.ir import DataType, Node, Value
from ort_ep_coreml.lowering.emission import EmissionState, mil_type, narrow
from ort_ep_coreml.lowering.lowering_context import LoweringContext, rank_of
from ort_ep_coreml.lowering.rule import BOOL, INTS, MOVED, NUMBERS, Rule
from ort_ep_coreml.lowering.terms import Term, chosen, first, term
from ort_ep_coreml.mil import Operand


def _shape(to: EmissionState, node: Node) -> Operand:
    rank = rank_of(node.input(0))
    found = to.emit("shape", x=to.operand(node.input(0)))
    start, end, _ = slice(node.int_attribute("start", 0), node.int_attribute("end", rank)).indices(rank)
    if (start, end) == (0, rank):
        return found
    return to.emit("slice_by_index", x=found, begin=np.array([start], np.int32), end=np.array([end], np.int32))


def _has_sizes(context: LoweringContext, node: Node) -> str | None:
    rank = rank_of(node.input(0))
    start, end, _ = slice(node.int_attribute("start", 0), node.int_attribute("end", rank)).indices(rank)
    return None if end > start else "the result is empty; Core ML has no empty tensors"


def _size(to: EmissionState, node: Node) -> Operand:
    found = to.emit("shape", x=to.operand(node.input(0)))
    return to.emit("reduce_prod", x=found, axes=np.array([0], np.int32), keep_dims=False)


def _constant_of_shape(to: EmissionState, node: Node) -> Operand:
    return to.emit("fill", shape=to.operand(node.input(0)), value=_filling(node))


def _filling(node: Node) -> np.ndarray:
    stated = node.attribute("value")
    found = np.zeros(1, np.float32) if stated is None else stated.array()  # type: ignore[attr-defined]  # a tensor
    return narrow(found.reshape(()))


def _sizes_are_positive(context: LoweringContext, node: Node) -> str | None:
    value = node.input(0)
    assert value is not None, "required"
    found = context.interval(value)
    if found is not None and found[0] >= 0 and value not in context.outside:
        return None
    return f"nothing proves that the sizes {value.name!r} are such of tensors"


def _range(to: EmissionState, node: Node) -> Operand:
    start, end, step = to.operands(node)
    return to.emit("range_1d", start=start, end=end, step=step)


def _counts_up(context: LoweringContext, node: Node) -> str | None:
    limit, step = node.input(1), context.constant(node.input(2))
    if dtype_of(limit) not in INTS:
        return "Range of floats is not lowered: where it ends depends on roundings"
    if step is None or int(step) < 1 or context.constant(node.input(0)) is None:
        return "Range is lowered from a constant start and by a constant step upwards"
    assert limit is not None, "required"
    found = context.interval(limit)
    if found is not None and found[0] >= 0 and limit not in context.outside:
        return None
    return f"nothing proves that the limit {limit.name!r} is the size of a tensor"


def _expand(to: EmissionState, node: Node) -> Operand:
    """Lower to a product with ones: both sides broadcast, and every element times one is itself."""
    x, source = first(to, node), node.input(0)
    shape = node.output.shape or ()
    if is_static(node.output):
        target: Operand = np.array(shape, np.int32)
    elif to.context.constant(node.input(1)) is not None:
        target = np.array(to.context.constant(node.input(1)), np.int32)
    else:
        target = to.operand(node.input(1))
    if source is not None and is_static(source) and is_static(node.output):
        return _tiled(to, x, source, [size for size in shape if isinstance(size, int)])
    one = np.array(True) if dtype_of(source) is DataType.BOOL else x.number(1)
    ones = to.emit("fill", shape=target, value=one)
    kind = "logical_and" if dtype_of(source) is DataType.BOOL else "mul"
    return to.emit(kind, x=x.operand, y=ones)


def _tiled(to: EmissionState, x: Term, source: Value, target: list[int]) -> Operand:
    shape = [1] * (len(target) - rank_of(source)) + [size for size in source.shape or () if isinstance(size, int)]
    if len(shape) != rank_of(source):
        x = x.reshaped(*shape)
    repeats = [new // old for new, old in zip(target, shape, strict=True)]
    if all(each == 1 for each in repeats):
        return to.emit("identity", x=x.operand)
    return x.do("tile", reps=np.array(repeats, np.int32)).operand


def _expands_as_lowered(context: LoweringContext, node: Node) -> str | None:
    if node.output.shape is None or is_static(node.output) or context.constant(node.input(1)) is not None:
        return None
    value = node.input(1)
    assert value is not None, "required"
    found = context.interval(value)
    return None if found is not None and found[0] >= 0 else f"nothing proves that {value.name!r} are sizes of tensors"


def _trilu(to: EmissionState, node: Node) -> Operand:
    source = node.input(0)
    shape = source.shape or ()  # type: ignore[union-attr]  # required
    given = to.context.constant(node.input(1))
    k = 0 if given is None else int(given.reshape(-1)[0])
    upper = bool(node.int_attribute("upper", 1))
    rows, columns = shape[-2:]
    assert isinstance(rows, int), "_is_fixed_matrix was asked"
    assert isinstance(columns, int), "_is_fixed_matrix was asked"
    inside = np.tri(rows, columns, k - 1 if upper else k, dtype=np.bool_)
    x = term(to, source)
    zero = np.zeros((), np.bool_) if mil_type(source) == "bool" else 0
    kept = Term(to, ~inside if upper else inside, x.dtype)
    return chosen(kept, x, zero, x).operand


def _is_fixed_matrix(context: LoweringContext, node: Node) -> str | None:
    shape = node.input(0).shape or ()  # type: ignore[union-attr]  # required
    if len(shape) >= 2 and all(isinstance(size, int) for size in shape[-2:]):
        return None
    return "Trilu of a matrix whose sizes are not known beforehand"


SHAPES: Mapping[str, Rule] = {
    "Shape": Rule(_shape, MOVED, results={0: INTS}, conditions=(_has_sizes,)),
    "Size": Rule(_size, MOVED, results={0: INTS}, conditions=(_has_sizes,)),
    "ConstantOfShape": Rule(_constant_of_shape, MOVED, ports={0: INTS}, conditions=(_sizes_are_positive,)),
    "Range": Rule(_range, INTS, conditions=(_counts_up,), required=3),
    "Expand": Rule(_expand, NUMBERS | BOOL, ports={1: INTS}, conditions=(_expands_as_lowered,), required=2),
    "Trilu": Rule(_trilu, MOVED, beforehand=(1,), conditions=(_is_fixed_matrix,)),
}
"""Rules by operator."""
