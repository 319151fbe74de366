"""Data movement: views where strides can say it, copies into parts of the result where not."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ort_core.plugin import InvalidArgument
from ort_core.plugin.ops import slice_range
from ort_ep_cuda.lowering.node_facts import LoweredNode, axis_of, broadcast
from ort_ep_cuda.lowering.values.growing import grows
from ort_ep_cuda.lowering.values.tensors import LazyTensor
from ort_ep_cuda.lowering.values.views import Shape, TensorView


def lower_reshape(facts: LoweredNode) -> None:
    """View the elements in the shape that the operator asks for; strided ones are copied first."""
    shape = _target_shape(facts, facts.tensor(0).shape)
    tensor = facts.tensor(0)
    views = [view.reshaped(shape) for view in tensor.operands]
    if all(view is not None for view in views):
        moved = iter([view for view in views if view is not None])
        facts.builder.define(facts.output, tensor.moved(lambda _: next(moved), shape))
        return
    dense = facts.builder.dense(facts.value(0))
    facts.builder.define(facts.output, LazyTensor.of(dense.regrouped(shape)))


def _target_shape(facts: LoweredNode, shape: Shape) -> Shape:
    kind = facts.node.op_type
    if kind == "Flatten":
        axis = facts.node.int_attribute("axis", 1)
        axis = axis + len(shape) if axis < 0 else axis
        return (math.prod(shape[:axis]), math.prod(shape[axis:]))
    if kind == "Identity":
        return shape
    wanted = facts.integers(1, "shape" if kind == "Reshape" else "axes")
    if kind == "Squeeze":
        dropped = {axis_of(a, len(shape)) for a in wanted} if wanted is not None else None
        return tuple(s for a, s in enumerate(shape) if (s != 1 if dropped is None else a not in dropped))
    if kind == "Unsqueeze":
        added = {axis_of(a, len(shape) + len(wanted or ())) for a in wanted or ()}
        left = iter(shape)
        return tuple(1 if a in added else next(left) for a in range(len(shape) + len(added)))
    return reshape_target(shape, wanted or (), facts.node.int_attribute("allowzero", 0) == 1)


def reshape_target(shape: Shape, wanted: Sequence[int], is_zero_allowed: bool) -> Shape:
    """Return the shape that Reshape gives: 0 copies a size (unless allowed), -1 takes what is left."""
    sizes = [shape[a] if s == 0 and not is_zero_allowed and a < len(shape) else s for a, s in enumerate(wanted)]
    total = math.prod(shape)
    rest = math.prod(s for s in sizes if s != -1)
    if not rest:
        rest, left = _without_zeros(shape, wanted, is_zero_allowed)
        result = tuple((left // rest if s == -1 else s) for s in sizes)
    else:
        result = tuple(total // rest if s == -1 else s for s in sizes)
    if math.prod(result) != total or any(size < 0 for size in result):
        raise InvalidArgument(f"a tensor of shape {list(shape)} cannot be reshaped to {list(wanted)}")
    return result


def _without_zeros(shape: Shape, wanted: Sequence[int], is_zero_allowed: bool) -> tuple[int, int]:
    """Return what -1 stands beside, and what there is, where a tensor has no elements.

    Sizes that are copied stand on both sides; of the others those that are not zero decide, and -1 is zero where the
    tensor has another zero than the stated ones.
    """
    copied = {axis for axis, size in enumerate(wanted) if size == 0 and not is_zero_allowed}
    found = [size for axis, size in enumerate(shape) if axis not in copied]
    stated = [size for axis, size in enumerate(wanted) if axis not in copied and size != -1]
    if 0 in stated:
        found, stated = [size for size in found if size], [size for size in stated if size]
    return math.prod(stated), math.prod(found)


def lower_transpose(facts: LoweredNode) -> None:
    """Permute strides."""
    x = facts.tensor(0)
    order = facts.node.ints_attribute("perm") or tuple(reversed(range(len(x.shape))))
    shape = tuple(x.shape[axis] for axis in order)
    facts.builder.define(facts.output, x.moved(lambda view: view.permuted(order), shape))


def lower_expand(facts: LoweredNode) -> None:
    """Repeat by strides of zero."""
    x = facts.tensor(0)
    shape = broadcast(x.shape, facts.integers(1, "shape") or ())
    facts.builder.define(facts.output, x.broadcast_to(shape))


def lower_slice(facts: LoweredNode) -> None:
    """Take every ``step``-th place between bounds; negative steps go backwards."""
    x = facts.tensor(0)
    starts, ends = facts.integers(1, "starts") or (), facts.integers(2, "ends") or ()
    axes = facts.integers(3, "axes") or tuple(range(len(starts)))
    steps = (facts.integers(4, "steps") if facts.opset >= 10 else None) or (1,) * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        axis = axis_of(axis, len(x.shape))
        first, count = _kept(x.shape[axis], start, end, step)
        shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        x = x.moved(lambda v, a=axis, f=first, s=step, n=count: v.sliced(a, f, s, n), shape)  # type: ignore[misc]  # a lambda's defaults bind the loop's variables
    facts.builder.define(facts.output, x)


def _kept(size: int, start: int, end: int, step: int) -> tuple[int, int]:
    """Return the first place that Slice keeps of an axis, and how many."""
    if step != 1 or not any(grows(number) for number in (size, start, end)):
        kept = slice_range(size, start, end, step)
        return kept.start, len(kept)
    first, last = (min(max(bound + size if bound < 0 else bound, 0), size) for bound in (start, end))
    return first, max(last - first, 0)


def lower_split(facts: LoweredNode) -> None:
    """Give each output its part of the axis."""
    x = facts.tensor(0)
    axis = axis_of(facts.node.int_attribute("axis", 0), len(x.shape))
    count = len(facts.node.outputs)
    sizes = facts.integers(1, "split")
    if sizes is None:
        part = -(-x.shape[axis] // count)
        sizes = tuple(min(part, x.shape[axis] - min(k * part, x.shape[axis])) for k in range(count))
    start = 0
    for value, size in zip(facts.node.outputs, sizes, strict=True):
        if value is not None:
            shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
            part_view = x.moved(lambda v, f=start, n=size: v.sliced(axis, f, 1, n), shape)  # type: ignore[misc]  # as in lower_slice
            facts.builder.define(value, part_view)
        start += size


def lower_concat(facts: LoweredNode) -> None:
    """Store each input in its part of the result."""
    tensors = [facts.builder.tensor(value) for value in facts.node.present_inputs()]
    axis = axis_of(facts.node.int_attribute("axis", 1), len(tensors[0].shape))
    total = sum(tensor.shape[axis] for tensor in tensors)
    shape = (*tensors[0].shape[:axis], total, *tensors[0].shape[axis + 1 :])
    out = facts.builder.result(facts.output, shape)
    start = 0
    for tensor in tensors:
        facts.builder.stored(tensor, out.sliced(axis, start, 1, tensor.shape[axis]))
        start += tensor.shape[axis]


def lower_tile(facts: LoweredNode) -> None:
    """Repeat whole axes: view the result as pairs of repetition and axis, and broadcast into it."""
    x = facts.tensor(0)
    repeats = facts.integers(1, "repeats") or ()
    out = facts.builder.result(facts.output, tuple(s * r for s, r in zip(x.shape, repeats, strict=True)))
    pairs = tuple(number for pair in zip(repeats, x.shape, strict=True) for number in pair)
    single = tuple(number for size in x.shape for number in (1, size))
    source = x.moved(lambda view: _paired(view, single), single)
    facts.builder.stored(source.broadcast_to(pairs), TensorView.dense(out.buffer, out.dtype, pairs))


def _paired(view: TensorView, shape: Shape) -> TensorView:
    strides = tuple(number for stride in view.strides for number in (0, stride))
    return TensorView(view.buffer, view.dtype, shape, strides, view.offset)
