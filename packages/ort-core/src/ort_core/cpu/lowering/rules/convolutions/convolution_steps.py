"""One convolution kernel over channels-last images, written for images, volumes and phases of transposed ones alike.

What differs is which images there are: their sizes, where the rows of the result lie, and the planes of volumes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ort_core.cpu.codegen.convolutions.convolution import convolution_kernel
from ort_core.cpu.codegen.convolutions.convolution_bands import Stage
from ort_core.cpu.codegen.convolutions.convolution_plan import (
    ARGUMENTS,
    PAIR,
    Convolution,
    PairConvolution,
    RoundedInputConvolution,
    TwiceStoredConvolution,
    is_tiled,
    pack_weights,
    weights_count,
)
from ort_core.cpu.codegen.convolutions.depthwise import is_narrow, narrow_count, narrow_kernel, pack_narrow_weights
from ort_core.cpu.codegen.convolutions.tile_convolution import tile_convolution_kernel
from ort_core.cpu.codegen.images.channels_last import Epilogue, OperandKind
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products.packing import aligned_empty
from ort_core.cpu.lowering.images.layout_steps import as_images, emit_padded, kernel_text
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.operand_kinds import operand_kind
from ort_core.cpu.lowering.pending import PendingAnchor
from ort_core.cpu.lowering.rules.images.images import Pads, has_known_pads
from ort_core.cpu.lowering.steps import Argument, KernelText, StageOfImages, pointer
from ort_core.cpu.lowering.views import Buffer, View, count_of, moved_nbytes
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType, KnownDim

F32 = DataType.FLOAT
RESULT_TYPES = frozenset({F32, DataType.BFLOAT16})
MAX_OPERANDS = 4  # of an epilogue


class ConvolutionBase:
    """What all anchors of float32 convolutions are like."""

    __slots__ = ()

    @property
    def operator(self) -> str:
        """Its name in reports."""
        return "Conv"

    @property
    def result_types(self) -> frozenset[DataType]:
        """Convolutions are float32; they may be stored rounded (``rounded_images``)."""
        return RESULT_TYPES

    def can_fuse(self, shape: Sequence[KnownDim], inputs: Sequence[View]) -> bool:
        """Return whether each operand is one number per channel, or a channels-last tensor of the result's shape."""
        return len(inputs) <= MAX_OPERANDS and all(operand_kind(view, shape) is not None for view in inputs)


class TransposedBase(ConvolutionBase):
    """What all anchors of transposed convolutions are like: phases lie apart, so tensors are read by no epilogue."""

    __slots__ = ()

    @property
    def operator(self) -> str:
        """Its name in reports."""
        return "ConvTranspose"

    def can_fuse(self, shape: Sequence[KnownDim], inputs: Sequence[View]) -> bool:
        """Return whether each operand is one number per channel."""
        is_channels = (operand_kind(view, shape) is OperandKind.CHANNEL for view in inputs)
        return len(inputs) <= MAX_OPERANDS and all(is_channels)


@frozen
class ConvolvedImages:
    """The images that a kernel reads and writes.

    Attributes:
        x: channels-last images of rank 4, with their border where the kernel makes up none.
        y: where the results lie, of rank 4; those of a phase begin at its first one.
        sizes: how many images, rows and pixels of a row are computed.
        x_image: elements from one image, or volume, of the input to the next.
        y_row: elements from one row of the result to the next.
        y_image: elements from one image of the result to the next.
        planes: of volumes: elements from one plane to the next, and how many the input and the result have.
        scale: a number for each image and channel of the input.
    """

    x: View
    y: View
    sizes: tuple[KnownDim, KnownDim, KnownDim]
    x_image: KnownDim
    y_row: KnownDim
    y_image: KnownDim
    planes: tuple[KnownDim, KnownDim, KnownDim] = (0, 0, 0)
    scale: View | None = None


def bordered(lowering: Lowering, x: View, spec: Convolution, pads: Pads) -> tuple[View, Convolution]:
    """Return images with a border, and the convolution that reads them: narrow kernels make up one that is known."""
    if not any(pads):
        return x, spec
    around = lowering.bordered.get(x.buffer)
    if around is not None and isinstance(spec, PairConvolution):
        return around, spec
    if has_known_pads(pads) and is_narrow(spec, lowering.target):
        return x, replace(spec, border=pads)
    return emit_padded(lowering, x, pads), replace(spec, x_pixel=None)


def emit_convolution(
    lowering: Lowering, pending: PendingAnchor, spec: Convolution, weights: np.ndarray, images: ConvolvedImages,
    stage: StageOfImages | None = None, as_rank_4: Callable[[View], View] = as_images, copy: View | None = None,
) -> None:  # fmt: skip
    """Write the step that convolves images and stores what an epilogue makes of the results.

    Args:
        lowering: takes the step.
        pending: whose epilogue it is, with its operands.
        spec: the kernel.
        weights: as ONNX has them.
        images: what is read and written.
        stage: the convolution as one that may run together with its neighbors.
        as_rank_4: returns an operand of the result's shape as ``images.y`` is seen.
        copy: where the results are stored once more, channels-last without gaps in bfloat16; tiles only.
    """
    if copy is not None:
        spec = TwiceStoredConvolution(**{name: getattr(spec, name) for name in Convolution.__match_args__})
    machine, epilogue, x, y = lowering.target, spec.epilogue, images.x, images.y
    is_paired = isinstance(spec, PairConvolution)
    bare, structure = replace(spec, epilogue=None), epilogue.structure if epilogue else ""
    facts, kernel = lowering.remembered(
        ("convolution", type(spec), bare, structure), lambda: _kernel(spec, f"{bare!r} {structure}", machine)
    )
    packed = lowering.constant_view(_packed(lowering, spec, weights, facts), F32)
    scale = images.scale
    words: list[Argument] = [
        pointer(x), pointer(packed), pointer(y), *images.sizes, x.strides[2], images.x_image, images.y_row,
        images.y_image, x.shape[2], x.shape[3], *((0, 0) if scale is None else (pointer(scale), scale.strides[0])),
        *images.planes,
    ]  # fmt: skip
    assert len(words) == ARGUMENTS.epilogue
    for view, kind in zip(pending.inputs, epilogue.operands if epilogue else (), strict=True):
        words.append(pointer(view))
        if kind is OperandKind.TENSOR:
            operand = as_rank_4(view)
            words.extend([operand.strides[2], operand.strides[0]])
    if copy is not None:
        words.extend([pointer(copy), as_rank_4(copy).strides[2], as_rank_4(copy).strides[0]])
    reads = [x.buffer, packed.buffer, *(view.buffer for view in pending.inputs)]
    reads.extend([scale.buffer] if scale is not None else [])
    results = count_of(images.sizes) * spec.out_channels
    flops = results * (2 * spec.depth * (PAIR if is_paired else 1))
    moved = moved_nbytes([x, packed, *pending.inputs]) + results * y.buffer.itemsize
    moved = moved + moved_nbytes([x]) if is_paired else moved  # of an image of words it counts one half
    moved = moved + moved_nbytes([copy]) if copy is not None else moved
    writes = [y.buffer] if copy is None else [y.buffer, copy.buffer]
    over = None if is_narrow(spec, machine) else _overwritten(pending, epilogue, x, y, as_rank_4)
    lowering.emit(kernel, words, reads, writes, flops // 32 + 1, pending.operators, flops, moved, stage, over=over)


def _overwritten(
    pending: PendingAnchor, epilogue: Epilogue | None, x: View, y: View, as_rank_4: Callable[[View], View]
) -> tuple[Buffer, Buffer] | None:
    """Return an operand's memory that the results may take, such as a residual's, and theirs: both lie alike, whole."""
    if epilogue is None or epilogue.stored != "float" or y.offset != 0:
        return None
    for view, kind in zip(pending.inputs, epilogue.operands, strict=True):
        others = [x.buffer, *(each.buffer for each in pending.inputs if each is not view)]
        lies_alike = kind is OperandKind.TENSOR and view.offset == 0 and view.shape == pending.shape
        if lies_alike and as_rank_4(view).strides == y.strides and view.buffer not in others:
            return view.buffer, y.buffer
    return None


def _kernel(spec: Convolution, facts: str, machine: Target) -> tuple[str, KernelText]:
    """Return the facts that a kernel's text depends on, with the kernel."""
    if is_tiled(spec, machine):
        make, prefix = tile_convolution_kernel, "conv_tiles"
    elif is_narrow(spec, machine):
        make, prefix = narrow_kernel, "conv"
    else:
        make, prefix = convolution_kernel, "conv_bfloat16" if isinstance(spec, PairConvolution) else "conv"
    return facts, kernel_text(prefix, facts, lambda name: make(name, spec, machine), is_vectorized=True)


def stage_of(spec: Convolution, target: Target, x: View, y: View) -> StageOfImages | None:
    """Return a convolution as a stage of several, where its images have known sizes and lie by themselves."""
    (x_height, x_width), (y_height, y_width) = x.shape[2:], y.shape[2:]
    if spec.x_pixel is not None or spec.y_pixel is not None:
        return None
    if isinstance(spec, PairConvolution | RoundedInputConvolution) or spec.stored != "float":
        return None  # bands keep floats
    if not (isinstance(x_height, int) and isinstance(x_width, int)):
        return None
    if not (isinstance(y_height, int) and isinstance(y_width, int) and y_height and y_width):
        return None
    return StageOfImages(Stage(spec, is_narrow(spec, target), (x_height, x_width), (y_height, y_width)), y.shape[0])


def _packed(lowering: Lowering, spec: Convolution, weights: np.ndarray, facts: str) -> np.ndarray:
    """Return the weights of a convolution in the layout that its kernel reads: whole, aligned vectors."""
    machine, narrow = lowering.target, is_narrow(spec, lowering.target)
    count = (narrow_count if narrow else weights_count)(spec, machine)

    def fill(out: np.ndarray) -> None:
        if narrow:
            out[...] = pack_narrow_weights(spec, weights, machine)
        else:
            pack_weights(spec, weights, machine, out)

    return lowering.weights.packed(weights, f"convolution {facts}", lambda: aligned_empty((count,)), fill)
