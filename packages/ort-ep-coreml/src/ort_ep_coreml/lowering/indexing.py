"""Operators that read and write by index. Core ML does not look whether one lies within its axis: rules and runs do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ort_core.plugin.ir import Node, Value
from ort_ep_coreml.lowering.conditions import lies_within, looked_at, only_attributes
from ort_ep_coreml.lowering.emission import EmissionState, axis_of, mil_type
from ort_ep_coreml.lowering.lowering_context import LoweringContext, rank_of, sizes_of
from ort_ep_coreml.lowering.rule import FLOATS, INTS, MOVED, NARROW, NUMBERS, Condition, Lower, Rule
from ort_ep_coreml.lowering.terms import Term, chosen, first, term
from ort_ep_coreml.mil import Operand, Size

Sizes = Callable[[Node], Sequence[Size]]
"""Returns the sizes of the axes that the elements of a node's indices belong to: of one, or along their last axis."""


def _of_axis(node: Node) -> Sequence[Size]:
    data = node.input(0)
    assert data is not None, "required"
    return (sizes_of(data)[axis_of(node, data, 0)],)


def _of_tuples(node: Node) -> Sequence[Size]:
    data, indices = node.input(0), node.input(1)
    assert data is not None, "required"
    assert indices is not None, "required"
    count, batch = (indices.shape or (0,))[-1], node.int_attribute("batch_dims", 0)
    return sizes_of(data)[batch : batch + count] if isinstance(count, int) else ("?",)


def from_the_front(to: EmissionState, value: Value, sizes: Sequence[Size]) -> Operand:
    """Return indices, those that count from the end counted from the front; the input of a claim gets limits."""
    fixed = [size for size in sizes if isinstance(size, int)]
    wraps = len(fixed) == len(sizes)
    constant = to.context.constant(value)
    if constant is not None:
        return (np.where(constant < 0, constant + np.array(fixed), constant) if wraps else constant).astype(np.int32)
    found = to.context.interval(value)
    if wraps and not _lies_within(found, min(fixed)):  # an input of the claim: looked at before each run
        to.count_on(looked_at(value), -min(fixed), min(fixed) - 1)
    indices = term(to, value)
    if not wraps or (found is not None and found[0] >= 0):
        return indices.operand
    added = np.array(fixed if len(fixed) > 1 else fixed[0], np.int32)
    return chosen(indices.with_("less", 0), indices + Term(to, added, indices.dtype), indices, indices).operand


def _lies_within(found: tuple[int, int] | None, size: int) -> bool:
    return found is not None and -size <= found[0] and found[1] < size


def _constant_lies_within(constant: np.ndarray | None, sizes: Sequence[int]) -> bool:
    """Return whether indices are constants, and each lies within the axis that it belongs to."""
    ends = np.array(sizes)
    return constant is not None and bool(np.all((-ends <= constant) & (constant < ends)))


def _columns(value: Value, sizes: Sequence[Size]) -> list[tuple[Value, Size]]:
    """Return the parts of indices that belong to one axis each, with its size; where they are one, it beside each."""
    join = value.producer
    parts = list(join.present_inputs()) if join is not None and join.op_type == "Concat" else []
    is_apart = len(parts) == len(sizes) and all(rank_of(part) and (part.shape or ())[-1] == 1 for part in parts)
    is_last = join is not None and join.int_attribute("axis", 0) in (-1, rank_of(value) - 1)
    return list(zip(parts if is_apart and is_last else [value] * len(sizes), sizes, strict=True))


def _lies_below(context: LoweringContext, value: Value, size: Size) -> bool:
    """Return whether indices are proven to count from the front and to lie below the smallest size of an axis."""
    found = context.interval(value)
    least = size if isinstance(size, int) else context.sizes.of(size).low
    return found is not None and found[0] >= 0 and found[1] < least


def indices_in_bounds(sizes: Sizes, position: int = 1) -> Condition:
    """Refuse indices that nothing bounds."""

    def check(context: LoweringContext, node: Node) -> str | None:
        value = node.input(position)
        assert value is not None, "required"
        found = sizes(node)
        fixed = [size for size in found if isinstance(size, int)]
        if len(fixed) < len(found):
            if all(_lies_below(context, part, size) for part, size in _columns(value, found)):
                return None
            return (
                f"the size of the axis that {value.name!r} indexes is not known beforehand, and nothing proves that "
                "they lie below its smallest: OpenSizes may bound both"
            )
        if _constant_lies_within(context.constant(value), fixed):
            return None
        if lies_within(context, value, -min(fixed), min(fixed) - 1):
            return None
        return (
            f"nothing proves that the indices {value.name!r} lie within an axis of {min(fixed)}; Core ML does not look"
        )

    return check


def _moved(lower: Callable[[EmissionState, Node, Term], Term]) -> Lower:
    """Return a lowering whose data may be booleans, which MIL gathers as numbers."""

    def found(to: EmissionState, node: Node) -> Operand:
        x = first(to, node)
        if mil_type(node.input(0)) != "bool":
            return lower(to, node, x).operand
        return lower(to, node, x.cast(np.dtype(np.int32), "int32")).cast(x.dtype, "bool").operand

    return found


def _gather(to: EmissionState, node: Node, x: Term) -> Term:
    indices = node.input(1)
    assert indices is not None, "required"
    at, axis = from_the_front(to, indices, _of_axis(node)), axis_of(node, node.input(0), 0)
    if node.op_type == "GatherElements":
        for place, size in _shortened(node):
            x = x.cut(place, 0, size, rank_of(indices))
        return x.do("gather_along_axis", indices=at, axis=axis, validate_indices=False)
    if rank_of(indices):
        return x.do("gather", indices=at, axis=axis, validate_indices=False)
    # one index as a row: an index of rank 0 comes back from a written package as one of rank 1
    row = at.reshape(1) if isinstance(at, np.ndarray) else to.emit("expand_dims", x=at, axes=_ints(0))
    return x.do("gather", indices=row, axis=axis, validate_indices=False).do("squeeze", axes=_ints(axis))


def _shortened(node: Node) -> list[tuple[int, int]]:
    """Return (axis, size) of the axes beside its own of which GatherElements reads less than all."""
    data, indices = (sizes_of(node.inputs[place]) for place in (0, 1))  # type: ignore[arg-type]  # required
    axis = axis_of(node, node.input(0), 0)
    pairs = enumerate(zip(data, indices, strict=True))
    return [(place, new) for place, (old, new) in pairs if place != axis and old != new and isinstance(new, int)]


def _other_axes_fit(context: LoweringContext, node: Node) -> str | None:
    data, indices = (sizes_of(node.inputs[place]) for place in (0, 1))  # type: ignore[arg-type]  # required
    axis = axis_of(node, node.input(0), 0)
    for place, (old, new) in enumerate(zip(data, indices, strict=True)):
        is_less = isinstance(old, int) and isinstance(new, int) and new <= old
        if place != axis and old != new and not is_less:
            return f"GatherElements of {new} places along axis {place}, which has {old}: nothing proves that it fits"
    return None


def _gather_nd(to: EmissionState, node: Node, x: Term) -> Term:
    indices = node.input(1)
    assert indices is not None, "required"
    at, batch = from_the_front(to, indices, _of_tuples(node)), node.int_attribute("batch_dims", 0)
    if rank_of(indices) > 1:
        return x.do("gather_nd", indices=at, batch_dims=batch, validate_indices=False)
    row = at.reshape(1, -1) if isinstance(at, np.ndarray) else to.emit("expand_dims", x=at, axes=_ints(0))
    found = x.do("gather_nd", indices=row, batch_dims=0, validate_indices=False)
    return found.do("squeeze", axes=_ints(0))


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


_MODES = {"none": "update", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _scatter(kind: str, sizes: Sizes) -> Lower:
    def lower(to: EmissionState, node: Node) -> Operand:
        data, indices, updates = node.input(0), node.input(1), node.input(2)
        assert indices is not None, "required"
        inputs: dict[str, Operand] = {"data": to.operand(data), "indices": from_the_front(to, indices, sizes(node))}
        inputs["updates"] = to.operand(updates)
        inputs["mode"] = _MODES[node.string_attribute("reduction", "none")]
        if kind == "scatter_along_axis":
            inputs["axis"] = axis_of(node, data, 0)
        return to.emit(kind, **inputs, validate_indices=False)

    return lower


def _whole_other_axes(context: LoweringContext, node: Node) -> str | None:
    data, indices = node.input(0), node.input(1)
    assert data is not None, "required"
    assert indices is not None, "required"
    axis, pairs = axis_of(node, data, 0), zip(sizes_of(data), sizes_of(indices), strict=True)
    if all(old == new for place, (old, new) in enumerate(pairs) if place != axis):
        return None
    return f"{node.op_type} of less than all places beside axis {axis}: Core ML takes all"


def _top(to: EmissionState, node: Node) -> list[Operand]:
    count = to.context.constant(node.input(1))
    k = int(count.reshape(-1)[0]) if count is not None else node.int_attribute("k", 1)
    x, axis = to.operand(node.input(0)), axis_of(node, node.input(0), -1)
    found = to.emit_many("topk", 2, x=x, k=k, axis=axis, ascending=not node.int_attribute("largest", 1))
    return list(found)


def _one_hot(to: EmissionState, node: Node) -> Operand:
    count, values = to.context.constant(node.input(1)), to.context.constant(node.input(2))
    assert count is not None, "read beforehand"
    assert values is not None, "read beforehand"
    depth, rank = int(count.reshape(-1)[0]), rank_of(node.output)
    axis = node.int_attribute("axis", -1) % rank
    at = term(to, node.input(0))
    at = chosen(at.with_("less", 0), at + depth, at, at).do("expand_dims", axes=_ints(axis))
    off, on = values.tolist()
    if values.dtype == np.bool_:
        return _one_hot_of_flags(one_hot_mask(at, axis, depth, rank), bool(on), bool(off))
    return chosen(one_hot_mask(at, axis, depth, rank), on, off, Term(to, at.operand, values.dtype)).operand


def _one_hot_of_flags(is_hot: Term, on: bool, off: bool) -> Operand:
    hot = is_hot.with_("logical_and", Term(is_hot.to, np.array(on), is_hot.dtype))
    cold = is_hot.do("logical_not").with_("logical_and", Term(is_hot.to, np.array(off), is_hot.dtype))
    return hot.with_("logical_or", cold).operand


def one_hot_mask(at: Term, axis: int, depth: int, rank: int) -> Term:
    """Return where an axis of places holds the one that is named, which has one element along it."""
    shape = [1] * rank
    shape[axis] = depth
    return at.with_("equal", np.arange(depth).reshape(shape))


def _one_hot_as_lowered(context: LoweringContext, node: Node) -> str | None:
    return (
        None if mil_type(node.output) in ("fp32", "fp16", "int32", "bool") else "OneHot of these values is not lowered"
    )


def _reverse_sequence(to: EmissionState, node: Node) -> Operand:
    x, lengths = node.input(0), node.input(1)
    assert lengths is not None, "required"
    size, batch = _steps(node), node.int_attribute("batch_axis", 1)
    assert isinstance(size, int), "_lengths_fit was asked"
    to.count_on(looked_at(lengths), 0, size)
    seq = node.int_attribute("time_axis", 0)
    return to.emit("reverse_sequence", x=to.operand(x), lengths=to.operand(lengths), seq_axis=seq, batch_axis=batch)


def _steps(node: Node) -> Size:
    return sizes_of(node.inputs[0])[node.int_attribute("time_axis", 0)]  # type: ignore[arg-type]  # required


def _lengths_fit(context: LoweringContext, node: Node) -> str | None:
    size, lengths = _steps(node), node.input(1)
    assert lengths is not None, "required"
    if isinstance(size, int) and lies_within(context, lengths, 0, size):
        return None
    return f"nothing proves that the lengths {lengths.name!r} lie within the {size} steps of a sequence"


_MOVABLE = MOVED | NARROW

INDEXING: Mapping[str, Rule] = {
    "Gather": Rule(_moved(_gather), _MOVABLE, ports={1: INTS}, conditions=(indices_in_bounds(_of_axis),), required=2),
    "GatherElements": Rule(
        _moved(_gather),
        _MOVABLE,
        ports={1: INTS},
        conditions=(indices_in_bounds(_of_axis), _other_axes_fit),
        required=2,
    ),
    "GatherND": Rule(
        _moved(_gather_nd), _MOVABLE, ports={1: INTS}, conditions=(indices_in_bounds(_of_tuples),), required=2
    ),
    "ScatterND": Rule(
        _scatter("scatter_nd", _of_tuples),
        NUMBERS,
        ports={1: INTS},
        conditions=(indices_in_bounds(_of_tuples),),
        required=3,
    ),
    **{
        name: Rule(
            _scatter("scatter_along_axis", _of_axis),
            NUMBERS,
            ports={1: INTS},
            conditions=(indices_in_bounds(_of_axis), _whole_other_axes),
            required=3,
        )
        for name in ("Scatter", "ScatterElements")
    },
    "TopK": Rule(_top, results={1: INTS}, beforehand=(1,), conditions=(only_attributes(sorted=1),), outputs=2),
    "OneHot": Rule(_one_hot, MOVED, ports={0: INTS}, beforehand=(1, 2), conditions=(_one_hot_as_lowered,), required=3),
    "ReverseSequence": Rule(_reverse_sequence, FLOATS | INTS, ports={1: INTS}, conditions=(_lengths_fit,), required=2),
}
"""Rules by operator."""
