"""Likely sizes: values that an input which decides sizes may have, to ask TensorRT about a claim before there is a run.

They follow from the sizes that the node makes where the model tells these, else from those that it reads. Nothing is
computed with them: an engine is built for the values of its run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ort_core.plugin import InvalidArgument
from ort_core.plugin.ir import Node, Value
from ort_core.plugin.ops import known_sizes, node_windows
from ort_ep_tensorrt.lowering.editing import fixed_shape

MAX_ELEMENTS = 64  # of an input whose values decide; more are data, not axes or sizes
SIZES_OF_RESIZE = 3  # their place among its inputs; TensorRT else reads them on the host
_SIDE = 2  # of an image of which nothing is known
_SEARCHED = 20_000  # images and blocks that are tried for columns
_LONGEST_SIDE = 256  # of an image or a block that is tried


def element_count(value: Value) -> int | None:
    """Return how many elements an input has, ``None`` where that is open or too many to decide anything."""
    shape = value.shape
    if shape is None or any(not isinstance(size, int) for size in shape):
        return None
    count = int(np.prod([size for size in shape if isinstance(size, int)], dtype=np.int64))
    return count if count <= MAX_ELEMENTS else None


def likely_values(value: Value, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return elements that an input which decides shapes may have: sizes that its reader makes or reads, else ones."""
    count = int(np.prod(shape, dtype=np.int64))
    for reader in value.consumers():
        made = fixed_shape(reader.output)
        if reader.op_type in _MAKES_SHAPE and made is not None and len(made) == count:
            return made
        read = fixed_shape(reader.input(0))
        if reader.op_type in _MAKES_SHAPE and read is not None and reader.input(0) is not value:
            return _spread(read, count)
    return (1,) * count


_MAKES_SHAPE = frozenset({"ConstantOfShape", "Expand", "Reshape", "Resize"})


def _spread(sizes: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return sizes of so many axes and of as many elements: ones in front, or the first axes as one."""
    if count == 0:
        return ()
    extra = len(sizes) - count
    return (1,) * -extra + sizes if extra <= 0 else (math.prod(sizes[: extra + 1]), *sizes[extra + 1 :])


def _grid_size(value: Value, node: Node) -> Sequence[int] | None:
    """Return the size of images that a grid is for: its own, or a small one of as many axes; with one channel."""
    sizes = fixed_shape(node.output)
    if sizes is not None:
        return (sizes[0], 1, *sizes[1:-1])
    theta, count = node.input(0), element_count(value)
    batch = theta.shape[0] if theta is not None and theta.shape else None
    return None if count is None else (batch if isinstance(batch, int) else 1, 1, *(_SIDE,) * (count - 2))


def _transform(value: Value, node: Node) -> Sequence[int] | None:
    """Return the axis that changes its length, or else the first of a known length; or that length."""
    source, result = node.input(0), fixed_shape(node.output)
    sizes = () if source is None or source.shape is None else source.shape[:-1]
    known = [axis for axis, size in enumerate(sizes) if isinstance(size, int)]
    changed = [axis for axis in known if result is not None and result[axis] != sizes[axis]]
    usual = [axis for axis in known if axis > 0]
    axis = next(iter((*changed, *usual, *known)), None)
    if axis is None:
        return None
    size = sizes[axis]
    return (axis,) if value is node.input(2) else (size,) if isinstance(size, int) else None


def _columns(value: Value, node: Node) -> Sequence[int] | None:
    """Return the sizes of an image that has so many columns, or of the block that each of them is."""
    columns, made = fixed_shape(node.input(0)), fixed_shape(node.output)
    rank = element_count(value)
    if columns is None or not rank:
        return None
    image_sizes, block_sizes = (_given(node.input(place)) for place in (1, 2))
    taken = columns[1] // made[1] if made is not None and made[1] else None
    images = [made[2:]] if made is not None else [image_sizes] if image_sizes else _boxes(_SEARCHED, rank)
    blocks = [block_sizes] if block_sizes else [b for b in _boxes(columns[1], rank) if _divides(b, columns[1], taken)]
    for block, image in itertools.islice(itertools.product(blocks, images), _SEARCHED):
        if _slides(node, image, block) == columns[2]:
            return image if value is node.input(1) else block
    return None


def _given(value: Value | None) -> tuple[int, ...] | None:
    """Return the elements of a value that is a constant of its model."""
    if value is None or value.constant is None or value.is_graph_input:
        return None
    return tuple(value.constant.array().reshape(-1).tolist())


def _boxes(most: int, rank: int) -> list[tuple[int, ...]]:
    """Return boxes of so many axes, the small ones first."""
    side = max(1, min(most, int(_SEARCHED ** (1 / rank)), _LONGEST_SIDE))
    return list(itertools.product(range(1, side + 1), repeat=rank))


def _divides(block: Sequence[int], count: int, taken: int | None) -> bool:
    size = math.prod(block)
    return count % size == 0 if taken is None else size == taken


def _slides(node: Node, image: Sequence[int], block: Sequence[int]) -> int:
    """Return how many places of an image a block has; 0 where the node's attributes do not fit."""
    try:
        return math.prod(known_sizes(axis.count for axis in node_windows(node, image, block)))
    except InvalidArgument:
        return 0


def _image(value: Value, node: Node) -> Sequence[int] | None:
    """Return scales that change nothing, or the sizes that Resize makes, else reads."""
    if value is not node.input(SIZES_OF_RESIZE):
        return (1,) * (element_count(value) or 0)
    sizes = fixed_shape(node.output) or fixed_shape(node.input(0))
    axes = node.ints_attribute("axes") or range(len(sizes or ()))
    return None if sizes is None else tuple(sizes[axis] for axis in axes)


LIKELY: Mapping[str, Callable[[Value, Node], Sequence[int] | None]] = {
    "AffineGrid": _grid_size,
    "Col2Im": _columns,
    "DFT": _transform,
    "Resize": _image,
    "Upsample": _image,
}
"""By operator: what an input that decides sizes may hold."""
