"""Windows: what auto_pad, pads, strides, dilations, ceil_mode and output sizes mean along each axis of space.

Window ``o`` reads at element ``k`` of its kernel the place ``o * stride + k * dilation - before``. A transposed
convolution turns this around: input ``i`` adds at element ``k`` to the place ``i * stride + k * dilation - before`` of
the result. Inference, kernels, compiled code and providers all ask here. Sizes may be numbers, symbolic, or not known.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ort_core.errors import InvalidArgument
from ort_core.frozen import frozen
from ort_core.ir.dims import Dim, KnownDim, ceil_div, floor_div, maximum, minimum

if TYPE_CHECKING:
    from ort_core.ir.nodes import Node

SAME = ("SAME_UPPER", "SAME_LOWER")
_KEPT = 1024  # answers: layers share a few, and each is asked for by inference, checks and the lowering of its node


@frozen
class WindowAxis:
    """Windows along one axis.

    Attributes:
        size: of the input.
        kernel: how many elements a window has.
        stride: places from one window to the next.
        dilation: places from one element of the kernel to the next.
        before: padding in front; negative where it is cut, ``None`` where it follows from a size that is not known.
        after: padding behind, likewise.
        count: how many windows there are.
    """

    size: Dim
    kernel: Dim
    stride: int
    dilation: int
    before: Dim
    after: Dim
    count: Dim

    @property
    def reach(self) -> Dim:
        """How many places a window spans."""
        return reach_of(self.kernel, self.dilation)

    @property
    def beyond(self) -> Dim:
        """How far the last window reaches beyond the padding, where their number is rounded up; at least 0."""
        known = (self.size, self.reach, self.before, self.after, self.count)
        size, reach, before, after, count = known
        if size is None or reach is None or before is None or after is None or count is None:
            return None
        return maximum((count - 1) * self.stride + reach - size - before - after, 0)


@frozen
class TransposedAxis:
    """A transposed convolution along one axis.

    Attributes:
        size: of the input.
        kernel: how many elements a window has.
        stride: places of the result from one input to the next.
        dilation: places from one element of the kernel to the next.
        extra: zeros behind what windows reach.
        whole: what windows reach, and ``extra``.
        before: what of the whole is cut away in front; negative where zeros are added.
        after: what is cut away behind, likewise.
        result: the size of the result; what exceeds the whole is zeros behind it.
    """

    size: Dim
    kernel: Dim
    stride: int
    dilation: int
    extra: int
    whole: Dim
    before: Dim
    after: Dim
    result: Dim

    @property
    def reach(self) -> Dim:
        """How many places a window spans."""
        return reach_of(self.kernel, self.dilation)

    @property
    def missing(self) -> Dim:
        """How many zeros lie behind the whole where a larger result is asked for."""
        cut = (self.whole, self.before, self.after, self.result)
        whole, before, after, result = cut
        if whole is None or before is None or after is None or result is None:
            return None
        return result - (whole - before - after)


def known_sizes(sizes: Iterable[Dim]) -> tuple[int, ...]:
    """Return sizes that are known as the numbers that they are: at a run, or over an array.

    Raises:
        InvalidArgument: one is not known.
    """
    found = tuple(sizes)
    if not all(isinstance(size, int) for size in found):
        raise InvalidArgument(f"sizes of windows are {found}: not all of them are known before a run")
    return found  # type: ignore[return-value]  # all are int


def reach_of(kernel: Dim, dilation: int) -> Dim:
    """Return how many places a window spans."""
    return None if kernel is None else (kernel - 1) * dilation + 1


def node_windows(node: Node, sizes: Sequence[Dim], kernel: Sequence[Dim]) -> tuple[WindowAxis, ...]:
    """Return the windows of a convolution or pooling node over axes of these sizes. Raises as ``window_axes``."""
    return window_axes(
        sizes,
        kernel,
        node.ints_attribute("strides") or (),
        node.ints_attribute("dilations") or (),
        node.ints_attribute("pads") or (),
        node.string_attribute("auto_pad", "NOTSET"),
        ceil_mode=node.int_attribute("ceil_mode", 0) != 0,
    )


def window_axes(
    sizes: Sequence[Dim],
    kernel: Sequence[Dim],
    strides: Sequence[int] = (),
    dilations: Sequence[int] = (),
    pads: Sequence[int] = (),
    auto_pad: str = "NOTSET",
    *,
    ceil_mode: bool = False,
) -> tuple[WindowAxis, ...]:
    """Return the windows along each axis; attributes are as nodes have them, empty where they are absent.

    With ``ceil_mode`` a last window may hang over the end, unless it would start inside the end padding.

    Raises:
        InvalidArgument: an attribute does not fit the axes, or a stride or dilation is not positive.
    """
    return _window_axes(
        tuple(sizes), tuple(kernel), tuple(strides), tuple(dilations), tuple(pads), auto_pad, bool(ceil_mode)
    )


@functools.lru_cache(_KEPT)
def _window_axes(
    sizes: tuple[Dim, ...], kernel: tuple[Dim, ...], strides: tuple[int, ...], dilations: tuple[int, ...],
    pads: tuple[int, ...], auto_pad: str, ceil_mode: bool,
) -> tuple[WindowAxis, ...]:  # fmt: skip
    rank = len(sizes)
    if len(kernel) != rank:
        raise InvalidArgument(f"kernel_shape {kernel} does not match the input spatial rank {rank}")
    strides, dilations = steps(strides, dilations, rank)
    if auto_pad in SAME:
        return tuple(
            _same_axis(*facts, is_upper=auto_pad == "SAME_UPPER")
            for facts in zip(sizes, kernel, strides, dilations, strict=True)
        )
    if auto_pad not in ("", "NOTSET", "VALID"):
        raise InvalidArgument(f"auto_pad is {auto_pad!r}, expected NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    begin, end = edges(() if auto_pad == "VALID" else pads, rank)
    return tuple(
        WindowAxis(size, count, stride, dilation, *both, window_count(size, count, stride, dilation, both, ceil_mode))
        for size, count, stride, dilation, both in zip(
            sizes, kernel, strides, dilations, zip(begin, end, strict=True), strict=True
        )
    )


def _same_axis(size: Dim, kernel: Dim, stride: int, dilation: int, *, is_upper: bool) -> WindowAxis:
    """Return as many windows as begin in the axis at each stride, with the padding that this takes."""
    if size is None:
        return WindowAxis(size, kernel, stride, dilation, None, None, None)
    count, reach = ceil_div(size, stride), reach_of(kernel, dilation)
    if reach is None:
        return WindowAxis(size, kernel, stride, dilation, None, None, count)
    if reach == 1:  # windows of one place need none, which sizes that are open do not tell
        return WindowAxis(size, kernel, stride, dilation, 0, 0, count)
    before, after = shared(maximum((count - 1) * stride + reach - size, 0), is_upper=is_upper)
    return WindowAxis(size, kernel, stride, dilation, before, after, count)


def window_count(size: Dim, kernel: Dim, stride: int, dilation: int, pads: tuple[int, int], ceil_mode: bool) -> Dim:
    """Return how many windows fit: ``(size + pads - reach) / stride + 1``, rounded as asked, at least 0.

    A window that is larger than its padded axis, by less than a stride, finds one place: the quotient is rounded toward
    zero, as in onnx's own inference and in onnxruntime. Sizes that are open are taken to hold their windows.
    """
    reach = reach_of(kernel, dilation)
    if size is None or reach is None:
        return None
    room = size + sum(pads) - reach
    if not ceil_mode:
        if isinstance(room, int):
            return max(room // stride if room >= 0 else -(-room // stride), -1) + 1
        return floor_div(room, stride) + 1
    count = ceil_div(room, stride) + 1
    if isinstance(count, int) and isinstance(size, int):
        # A last window that would begin in the padding at the end is left out.
        return max(count - 1 if (count - 1) * stride >= size + pads[0] else count, 0)
    if not isinstance(reach, int) or pads[1] > reach:
        return None
    return count if pads[1] + stride <= reach else minimum(count, floor_div(size + pads[0] - 1, stride) + 1)


def node_transposed(node: Node, sizes: Sequence[Dim], kernel: Sequence[Dim]) -> tuple[TransposedAxis, ...]:
    """Return what a ConvTranspose node does along axes of these sizes. Raises as ``transposed_axes``."""
    return transposed_axes(
        sizes,
        kernel,
        node.ints_attribute("strides") or (),
        node.ints_attribute("dilations") or (),
        node.ints_attribute("pads") or (),
        node.string_attribute("auto_pad", "NOTSET"),
        node.ints_attribute("output_padding") or (),
        node.ints_attribute("output_shape") or (),
    )


def transposed_axes(
    sizes: Sequence[Dim],
    kernel: Sequence[Dim],
    strides: Sequence[int] = (),
    dilations: Sequence[int] = (),
    pads: Sequence[int] = (),
    auto_pad: str = "NOTSET",
    output_padding: Sequence[int] = (),
    output_shape: Sequence[int] = (),
) -> tuple[TransposedAxis, ...]:
    """Return what a transposed convolution does along each axis; attributes are as nodes have them.

    A stated ``output_shape`` counts more than pads; some exporters name batch and channels in it, too.

    Raises:
        InvalidArgument: an attribute does not fit the axes, or a stride or dilation is not positive.
    """
    rank = len(sizes)
    if len(kernel) != rank:
        raise InvalidArgument(f"kernel_shape {tuple(kernel)} does not match the input spatial rank {rank}")
    strides, dilations = steps(strides, dilations, rank)
    extra = per_axis(output_padding, rank, 0, "output_padding")
    wanted: Sequence[Dim] = ()
    if output_shape:
        wanted = per_axis(output_shape[2:] if len(output_shape) == rank + 2 else output_shape, rank, 0, "output_shape")
    is_same = auto_pad in SAME and not wanted
    if is_same:
        wanted = [None if size is None else size * stride for size, stride in zip(sizes, strides, strict=True)]
    begin, end = edges(() if wanted or auto_pad == "VALID" else pads, rank)
    found = []
    for a, size in enumerate(sizes):
        reach = reach_of(kernel[a], dilations[a])
        whole = None if size is None or reach is None else strides[a] * (size - 1) + extra[a] + reach
        before: Dim = begin[a]
        after: Dim = end[a]
        result: Dim
        if wanted:
            goal = whole if is_same and _falls_short(reach, extra[a], strides[a]) else wanted[a]
            before, after = _cut(whole, goal, is_upper=auto_pad == "SAME_UPPER")
            result = goal
        else:
            result = None if whole is None else whole - begin[a] - end[a]
        found.append(TransposedAxis(size, kernel[a], strides[a], dilations[a], extra[a], whole, before, after, result))
    return tuple(found)


def _falls_short(reach: Dim, extra: int, stride: int) -> bool:
    """Return whether windows leave places of the last stride out, so that nothing can be cut from what they reach.

    onnx's inference and onnxruntime then give the whole, which is smaller than the size that the text asks for.
    """
    return isinstance(reach, int) and reach + extra < stride


def _cut(whole: Dim, wanted: Dim, *, is_upper: bool) -> tuple[Dim, Dim]:
    """Return what is cut in front and behind to come from a whole to what is wanted."""
    if whole is None or wanted is None:
        return None, None
    return shared(maximum(whole - wanted, 0), is_upper=is_upper)


def shared(total: KnownDim, *, is_upper: bool) -> tuple[KnownDim, KnownDim]:
    """Split total padding into before and after; an odd one goes after when ``is_upper``, else before."""
    small = floor_div(total, 2)
    return (small, total - small) if is_upper else (total - small, small)


def per_axis(values: Sequence[int], rank: int, default: int, name: str) -> tuple[int, ...]:
    """Return an attribute with one value per spatial axis, or the default for each axis where it is absent.

    Raises:
        InvalidArgument: the attribute has another number of values.
    """
    if not values:
        return (default,) * rank
    if len(values) != rank:
        raise InvalidArgument(
            f"{name.capitalize()} dimensions should match kernel shape: {name} are {tuple(values)}, "
            f"expected {rank} values"
        )
    return tuple(int(v) for v in values)


def steps(strides: Sequence[int], dilations: Sequence[int], rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return strides and dilations per axis, 1 where they are absent.

    Raises:
        InvalidArgument: there is another number of them, or one is not positive.
    """
    strides, dilations = per_axis(strides, rank, 1, "strides"), per_axis(dilations, rank, 1, "dilations")
    if min(strides, default=1) <= 0:
        raise InvalidArgument(f"All stride values must be positive, found strides {strides}")
    if min(dilations, default=1) <= 0:
        raise InvalidArgument(f"All dilation values must be positive, found dilations {dilations}")
    return strides, dilations


def edges(pads: Sequence[int], rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the padding before and after each axis, 0 where it is absent.

    Raises:
        InvalidArgument: there is another number of them than two per axis.
    """
    if pads and len(pads) != 2 * rank:
        raise InvalidArgument(
            f"Pads attribute size must be twice the kernel_shape size (twice the kernel_shape rank): "
            f"pads are {tuple(pads)}, expected {2 * rank} values"
        )
    given = tuple(int(p) for p in pads) or (0,) * (2 * rank)
    return given[:rank], given[rank:]
