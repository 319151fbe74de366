"""Scales by blocks: an axis is read as two, of blocks and of places within them, along which a scale is repeated.

    x[..., i, ...] and s[..., i // block_size, ...]   as   x[..., b, p, ...] and s[..., b, 0, ...]

A last block that is not full is a step of its own. Where only a run tells the axis's size, it must hold full blocks;
else the reference kernels run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ort_core.cpu.lowering.broadcasting import known_strides
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, dense_strides
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType, KnownDim, Node, Value
from ort_core.plugin.loops import Scalar, element

F32 = DataType.FLOAT
Formula = Callable[[Scalar, Scalar, Scalar | None], Scalar]


@frozen
class _Blocks:
    """Neighboring blocks of one width along an axis: ``count`` of them from block ``first`` on."""

    axis: int
    first: int
    count: KnownDim
    width: int

    def of_elements(self, view: View, shape: Sequence[KnownDim], start: int) -> View:
        """Return what these blocks hold of a view that broadcasts to ``shape``; they start at place ``start``."""
        strides = known_strides(view, shape)
        step = strides[self.axis]
        return self._split(view, shape, strides, (step * self.width, step), start * step)

    def of_scales(self, view: View, shape: Sequence[KnownDim]) -> View:
        """Return the scales of these blocks, out of those of all."""
        step = dense_strides(view.shape)[self.axis]
        return self._split(view, shape, dense_strides(view.shape), (step, 0), self.first * step)

    def _split(
        self,
        view: View,
        shape: Sequence[KnownDim],
        strides: Sequence[KnownDim],
        steps: tuple[KnownDim, KnownDim],
        offset: KnownDim,
    ) -> View:
        sizes = (*shape[: self.axis], self.count, self.width, *shape[self.axis + 1 :])
        return View(
            view.buffer, sizes, (*strides[: self.axis], *steps, *strides[self.axis + 1 :]), view.offset + offset
        )


def by_blocks(lowering: Lowering, node: Node, value: Value, formula: Formula) -> None:
    """Compute ``formula(value, scale, zero point)`` with a scale and a zero point for each block of the node's axis.

    Raises:
        NotLowered: scales or zero points are not one for each block.
    """
    shape = tensor_type(node.output)[1]
    block, axis = node.int_attribute("block_size", 0), node.int_attribute("axis", 1)
    if block < 1 or not -len(shape) <= axis < len(shape):
        raise NotLowered(f"block_size is {block}, and axis {axis} of {len(shape)} axes")
    axis %= len(shape)
    scales = [
        _parameter(lowering, each, shape, axis, block) for each in (node.input(1), node.input(2)) if each is not None
    ]
    if scales[0].dtype is not F32:
        raise NotLowered("the scale is not float32")
    state, (read,) = lowering.operands.fuse(node, [value], shape)
    operands = [element(len(state.inputs) + index, view.dtype) for index, view in enumerate(scales)]
    expression = formula(read, operands[0], operands[1] if len(operands) > 1 else None)
    target = lowering.result_view(node.output)
    for blocks in _ranges(shape[axis], scales[0].shape[axis], axis, block):
        start = blocks.first * block
        inputs = [blocks.of_elements(view, shape, start) for view in state.inputs]
        inputs += [blocks.of_scales(view, shape) for view in scales]
        lowering.stores.store(expression, inputs, blocks.of_elements(target, shape, start), (node,))
    lowering.set(node.output, target)


def _ranges(size: KnownDim, count: KnownDim, axis: int, block: int) -> list[_Blocks]:
    if not isinstance(size, int):
        return [_Blocks(axis, 0, count, block)]
    full, rest = divmod(size, block)
    found = [_Blocks(axis, 0, full, block)] if full else []
    return [*found, _Blocks(axis, full, 1, rest)] if rest else found


def _parameter(lowering: Lowering, value: Value, shape: Sequence[KnownDim], axis: int, block: int) -> View:
    """Return scales or zero points, of the shape that the blocks of ``shape`` have."""
    view = lowering.contiguous(value)
    if len(view.shape) != len(shape):
        raise NotLowered(f"scales by blocks have {len(view.shape)} axes, the tensor has {len(shape)}")
    sizes = list(shape)
    sizes[axis] = view.shape[axis]
    for found, size in zip(view.shape, sizes, strict=True):
        lowering.require_equal(found, size)
    size = shape[axis]
    if isinstance(size, int):
        sizes[axis] = -(-size // block)
        lowering.require_equal(view.shape[axis], sizes[axis])
    else:
        lowering.require_equal(view.shape[axis] * block, size)
    return view.reshaped(sizes)
