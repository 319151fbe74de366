"""Steps that copy activations between channels-first and channels-last, and into images with a border."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ort_core.cpu.codegen.images.layout import (
    border_kernel,
    channels_first_kernel,
    channels_last_kernel,
    pad_kernel,
    padded_channels_last_kernel,
)
from ort_core.cpu.codegen.images.turned_matrices import turned_matrices_kernel
from ort_core.cpu.codegen.llvm_ir.deferred_kernel import deferred_kernel
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter
from ort_core.cpu.lowering.steps import Argument, KernelText, Operators, pointer
from ort_core.cpu.lowering.views import View, channels_last, count_of, moved_nbytes, ordered_strides
from ort_core.plugin.ir import DataType, KnownDim

if TYPE_CHECKING:
    from ort_core.cpu.lowering.lowering import Lowering

LEAST_TURNED = 8  # fewer rows or columns are copied by squares only as channels, which lie side by side
TURNED_BITS = (8, 16, 32, 64)  # of elements that are
LONG_ROW = 64  # pixels; shorter rows are copied faster all as one, as where there is no border


def is_channels_last(view: View) -> bool:
    """Return whether a view of rank 3, 4 or 5 lies channels-last without gaps, with a known number of channels.

    Only of elements of 32 bits: the kernels here move no others.
    """
    rank = len(view.shape)
    if rank not in (3, 4, 5) or not isinstance(view.shape[1], int) or view.dtype.bits != 32:
        return False
    return view.strides == ordered_strides(view.shape, channels_last(rank))


def lies_among_channels(view: View) -> bool:
    """Return whether images of rank 4 are some of the channels of channels-last ones: pixels have gaps, rows have none.

    Only of elements of 32 bits, as above.
    """
    if len(view.shape) != 4 or not isinstance(view.shape[1], int) or view.dtype.bits != 32:
        return False
    image, channel, row, pixel = view.strides
    if channel != 1 or not isinstance(pixel, int) or pixel <= view.shape[1]:
        return False
    return row == pixel * view.shape[3] and image == row * view.shape[2]


def as_it_lies(view: View) -> View:
    """Return a view that names its memory order, if it is of channels-last images, or of some of their channels."""
    if view.order or not (lies_among_channels(view) or (len(view.shape) == 4 and is_channels_last(view))):
        return view
    return View(view.buffer, view.shape, view.strides, view.offset, channels_last(4))


def as_images(view: View) -> View:
    """Return a channels-last view of rank 3 as one of rank 4 with height 1."""
    if len(view.shape) == 4:
        return view
    shape = (view.shape[0], view.shape[1], 1, view.shape[2])
    strides = (view.strides[0], view.strides[1], view.strides[0], view.strides[2])
    return View(view.buffer, shape, strides, view.offset, channels_last(4))


def pixel_pitch(images: View) -> int | None:
    """Return the elements from one pixel to the next where channels-last images (rank 4) lie among other channels."""
    pitch = images.strides[3]
    return pitch if isinstance(pitch, int) and pitch != images.shape[1] else None


def words_of(images: View) -> View:
    """Return channels-last images (rank 4) of bfloat16, pixels without gaps, as images of words, two channels each.

    The buffer and the offset stay those of single elements.
    """
    batch, channels, height, width = images.shape
    assert isinstance(channels, int)
    shape = (batch, channels // 2, height, width)
    strides = ordered_strides(shape, channels_last(4))
    image, _, row, _ = images.strides
    if images.strides != ordered_strides(images.shape, channels_last(4)):
        assert isinstance(image, int)
        assert isinstance(row, int)
        strides = (image // 2, 1, row // 2, strides[3])
    return View(images.buffer, shape, strides, images.offset, channels_last(4))


def inside_border(
    lowering: Lowering, batch: KnownDim, sizes: tuple[int, int, int], pads: tuple[int, int, int, int]
) -> View:
    """Return new channels-last images (rank 4) of bfloat16 inside larger ones, whose border is set to zeros.

    ``sizes``: an even number of channels, height, width; ``pads``: top, left, bottom, right. ``Lowering.bordered``
    knows the larger ones.
    """
    (channels, height, width), (top, left, bottom, right) = sizes, pads
    whole = lowering.new_view(
        DataType.BFLOAT16, (batch, channels, height + top + bottom, width + left + right), channels_last(4)
    )
    words = lowering.bordered[whole.buffer] = words_of(whole)
    count = channels // 2
    kernel = kernel_text("border", f"{count}", lambda name: border_kernel(name, count))
    arguments: list[Argument] = [
        pointer(whole), pointer(whole), batch, height, width, 0, 0, words.strides[2], words.strides[0],
        top, bottom, left, right, 0, 0, 0,
    ]  # fmt: skip
    pixels = (top + bottom) * (width + left + right) + height * (left + right)
    work, first = batch * pixels * count, len(lowering.steps)
    lowering.emit(kernel, arguments, [], [whole.buffer], work, ("Pad",), 0, 4 * work)
    lowering.note_part(first, whole.buffer)
    offset = top * whole.strides[2] + left * whole.strides[3]
    return View(whole.buffer, (batch, *sizes), whole.strides, offset, channels_last(4))


def as_planes(view: View) -> View:
    """Return channels-last volumes (rank 5) as the images that their planes are, of all volumes."""
    batch, channels, depth, height, width = view.shape
    assert isinstance(channels, int)
    shape = (batch * depth, channels, height, width)
    return View(view.buffer, shape, ordered_strides(shape, channels_last(4)), view.offset, channels_last(4))


def emit_channels_last(lowering: Lowering, source: View) -> View:
    """Copy a row-major activation to a new channels-last one."""
    channels = source.shape[1]
    assert isinstance(channels, int)
    target = lowering.new_view(source.dtype, source.shape, channels_last(len(source.shape)))
    _emit_transpose(lowering, source, target, source.shape, channels, to_last=True)
    lowering.row_major[target.buffer] = source
    return target


def emit_channels_first(lowering: Lowering, source: View, target: View) -> None:
    """Copy a channels-last activation, or some channels of one, to a row-major one."""
    channels = source.shape[1]
    assert isinstance(channels, int)
    _emit_transpose(lowering, source, target, source.shape, channels, to_last=False)


def emit_padded(lowering: Lowering, source: View, pads: Sequence[KnownDim], value: float = 0.0) -> View:
    """Copy channels-last images (rank 4) into larger ones with a border; ``pads``: top, left, bottom, right.

    Where they were copied from row-major images, so are these: a copy that nobody else reads is dropped in the end.
    Images of bfloat16 are ``words_of`` such.
    """
    batch, channels, height, width = source.shape
    assert isinstance(channels, int)
    top, left, bottom, right = pads
    shape = (batch, channels, height + (top + bottom), width + (left + right))
    per_word = max(1, 32 // source.dtype.bits)
    target = lowering.new_view(source.dtype, (batch, channels * per_word, *shape[2:]), channels_last(4))
    target = words_of(target) if per_word > 1 else target
    origin = lowering.row_major.get(source.buffer)
    is_whole = origin is not None and origin.shape == source.shape  # else the source is some of its channels
    if origin is not None and is_whole and value == 0.0 and _has_long_rows(origin):
        source, machine = origin, lowering.target
        kernel = kernel_text(
            "padlayout", f"{channels}", lambda name: padded_channels_last_kernel(name, channels, machine),
            is_vectorized=True,
        )  # fmt: skip
    else:
        is_dense = pixel_pitch(source) is None
        kernel = kernel_text(
            "pad", f"{value!r} {is_dense}", lambda name: pad_kernel(name, value=value, is_dense=is_dense)
        )
    arguments: list[Argument] = [
        pointer(source), pointer(target), batch, height, width, source.strides[2], source.strides[0],
        target.strides[2], target.strides[0], top, bottom, left, right, source.strides[1], channels,
        source.strides[3],
    ]  # fmt: skip
    lowering.emit(
        kernel,
        arguments,
        [source.buffer],
        [target.buffer],
        count_of(shape),
        ("Pad",),
        0,
        moved_nbytes([source, target]) * per_word,
    )
    return target


def _has_long_rows(images: View) -> bool:
    return len(images.shape) == 4 and isinstance(images.shape[3], int) and images.shape[3] >= LONG_ROW


def kernel_text(
    prefix: str, facts: str, generate: Callable[[str], Sequence[Emitter]], *, is_vectorized: bool = False
) -> KernelText:
    """Return a kernel that is written when it is needed; ``facts`` say all that its text depends on."""
    deferred = deferred_kernel(prefix, facts, generate, is_vectorized=is_vectorized)
    return KernelText(deferred.name, deferred)


def text_kernel(prefix: str, generate: Callable[[str], str], *, is_vectorized: bool = False) -> KernelText:
    """Return a kernel of a whole module's text, written now; its name is the digest of that text."""
    text = generate("$name")
    name = f"{prefix}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return KernelText(name, text.replace("$name", name), is_vectorized)


def emit_turned(
    lowering: Lowering, source: View, target: View, sizes: Sequence[KnownDim], steps: Sequence[KnownDim],
    operators: Operators,
) -> bool:  # fmt: skip
    """Copy matrices whose columns are contiguous into row-major ones by squares; return whether they are such.

    Args:
        lowering: takes the step.
        source: where the elements lie, of ``TURNED_BITS``.
        target: where they go, row-major without gaps.
        sizes: of the collapsed axes: rows and columns, perhaps matrices before them.
        steps: elements of the source from one place of each axis to the next.
        operators: what the copy computes.
    """
    if len(sizes) not in (2, 3):
        return False
    batch, between = (sizes[0], steps[0]) if len(sizes) == 3 else (1, 0)
    (rows, columns), (down, right) = sizes[-2:], steps[-2:]
    if down != 1 or right == 0 or 1 in (rows, columns):
        return False
    count = count_of(sizes)
    if isinstance(columns, int) and not _is_short(rows):
        places: list[Argument] = [batch, 1, rows, 0, right, between, 0, count_of((rows, columns))]
        _emit_turn(lowering, source, target, columns, places, count, operators, to_last=True)
        return True
    if isinstance(rows, int) and right == rows and not _is_short(columns):
        places = [batch, 1, columns, 0, columns, count_of((rows, columns)), 0, between]
        _emit_turn(lowering, source, target, rows, places, count, operators, to_last=False)
        return True
    if _is_short(rows) or _is_short(columns):
        return False
    bits, machine = source.dtype.bits, lowering.target
    kernel = kernel_text(
        "turned", f"{bits}", lambda name: turned_matrices_kernel(name, machine, bits), is_vectorized=True
    )
    lowering.emit(
        kernel, [pointer(source), pointer(target), batch, rows, columns, right, between], [source.buffer],
        [target.buffer], count * 2, operators, 0, moved_nbytes([source, target]),
    )  # fmt: skip
    return True


def _is_short(size: KnownDim) -> bool:
    return isinstance(size, int) and size < LEAST_TURNED


def _emit_transpose(
    lowering: Lowering, source: View, target: View, shape: Sequence[KnownDim], channels: int, *, to_last: bool
) -> None:
    pitch = pixel_pitch(source) if len(shape) == 4 and not to_last else None
    pixels = count_of(shape[2:])
    image = pixels * channels
    spread = image if pitch is None else pixels * pitch
    places: list[Argument] = [shape[0], 1, pixels, pixels, pixels, image, spread, spread]
    _emit_turn(lowering, source, target, channels, places, count_of(shape), ("Layout",), to_last=to_last, pitch=pitch)


def _emit_turn(
    lowering: Lowering, source: View, target: View, channels: int, places: Sequence[Argument], count: KnownDim,
    operators: Operators, *, to_last: bool, pitch: int | None = None,
) -> None:  # fmt: skip
    """Append the step; ``places`` are the arguments of ``TransposeArguments`` behind the two pointers."""
    make = channels_last_kernel if to_last else channels_first_kernel
    machine, bits = lowering.target, source.dtype.bits
    kernel = kernel_text(
        "layout", f"{channels} {to_last} {pitch} {bits}",
        lambda name: make(name, channels, machine, pitch=pitch, bits=bits), is_vectorized=True,
    )  # fmt: skip
    lowering.emit(
        kernel, [pointer(source), pointer(target), *places], [source.buffer], [target.buffer], count * 2, operators, 0,
        moved_nbytes([source, target]),
    )  # fmt: skip
