"""Convolution as a channels-last anchor, and pooling of channels-last images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ort_core.cpu.codegen.channels_last import Epilogue, OperandKind
from ort_core.cpu.codegen.convolution import convolution_kernel
from ort_core.cpu.codegen.convolution_plan import ARGUMENTS, Convolution, pack_weights
from ort_core.cpu.codegen.depthwise import is_narrow, narrow_kernel, pack_narrow_weights
from ort_core.cpu.codegen.emitter import module_text
from ort_core.cpu.codegen.packing import aligned_empty
from ort_core.cpu.codegen.pooling import ARGUMENTS as POOLING
from ort_core.cpu.codegen.pooling import Pooling, pooling_kernel
from ort_core.cpu.lowering.layout_steps import as_images, emit_channels_last, emit_padded, is_channels_last, kernel_text
from ort_core.cpu.lowering.lowering import Lowering, tensor_type
from ort_core.cpu.lowering.pending import PendingAnchor
from ort_core.cpu.lowering.quantized import quantized_constant, quantized_value
from ort_core.cpu.lowering.rules.integer_convolutions import quantized_convolution
from ort_core.cpu.lowering.rules.integer_pooling import byte_max_pooling
from ort_core.cpu.lowering.rules.windows import pads_of, pair
from ort_core.cpu.lowering.steps import Argument, NotLowered, pointer
from ort_core.cpu.lowering.views import View, broadcast_strides, channels_last, count_of, moved_nbytes
from ort_core.plugin.ir import DataType, KnownDim, Node, Value
from ort_core.plugin.loops import Scalar, element

F32 = DataType.FLOAT


@dataclass(frozen=True, slots=True)
class ConvolutionAnchor:
    """A convolution of channels-last images (rank 4; a 1-D one has height 1). ``weights`` are as ONNX has them."""

    x: View
    weights: np.ndarray
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]
    groups: int
    rank: int

    @property
    def layout(self) -> tuple[int, ...]:
        """The result lies channels-last."""
        return channels_last(self.rank)

    @property
    def operator(self) -> str:
        """Its name in reports."""
        return "Conv"

    @property
    def result_types(self) -> frozenset[DataType]:
        """Convolutions are float32."""
        return frozenset({F32})

    def can_fuse(self, shape: Sequence[KnownDim], inputs: Sequence[View]) -> bool:
        """Return whether each operand is one number per channel, or a channels-last tensor of the result's shape."""
        return len(inputs) <= 4 and all(_operand_kind(view, shape) is not None for view in inputs)

    def store(self, lowering: Lowering, pending: PendingAnchor, target: View) -> None:
        """Write the steps: a border if there are pads, then the convolution."""
        x, y = self.x, as_images(target)
        if any(self.pads):
            x = emit_padded(lowering, x, self.pads)
        kinds = [_operand_kind(view, pending.shape) for view in pending.inputs]
        epilogue = None
        if pending.expression.operation != "input":
            epilogue = Epilogue(pending.expression, tuple(kind for kind in kinds if kind is not None))
        spec, sizes = self._spec(x, y, epilogue)
        machine = lowering.target
        narrow = is_narrow(spec, machine)
        packed = (pack_narrow_weights if narrow else pack_weights)(spec, self.weights, machine)
        make = narrow_kernel if narrow else convolution_kernel
        kernel = kernel_text("conv", lambda name: module_text(make(name, spec, machine)))
        aligned = aligned_empty(packed.shape)  # the kernels load whole, aligned vectors of weights
        aligned[...] = packed
        weights = lowering.constant_view(aligned, F32)
        batch, height, width = sizes
        words: list[Argument] = [
            pointer(x), pointer(weights), pointer(y), batch, height, width, x.strides[2], x.strides[0], y.strides[2],
            y.strides[0],
        ]  # fmt: skip
        assert len(words) == ARGUMENTS.epilogue
        for view, kind in zip(pending.inputs, kinds):
            words.append(pointer(view))
            if kind is OperandKind.TENSOR:
                image = as_images(view)
                words.extend([image.strides[2], image.strides[0]])
        flops = count_of(y.shape) * (2 * spec.depth)
        reads = [x.buffer, weights.buffer, *(view.buffer for view in pending.inputs)]
        moved = moved_nbytes([x, weights, y, *pending.inputs])
        lowering.emit(kernel, words, reads, [target.buffer], flops // 32 + 1, pending.operators, flops, moved)

    def _spec(
        self, x: View, y: View, epilogue: Epilogue | None
    ) -> tuple[Convolution, tuple[KnownDim, KnownDim, KnownDim]]:
        kernel = self.weights.shape[2:]
        window = (1, kernel[0]) if len(kernel) == 1 else (kernel[0], kernel[1])
        batch, _, height, width = y.shape
        channels = x.shape[1]
        assert isinstance(channels, int)
        pointwise = window == (1, 1) and self.strides == (1, 1) and not any(self.pads)
        sizes: tuple[KnownDim, KnownDim, KnownDim] = (batch, height, width)
        if pointwise:
            sizes = (1, 1, batch * height * width)
        expected = sizes[2] if isinstance(sizes[2], int) else None
        weights = self.weights.reshape(self.weights.shape[0], self.weights.shape[1], *window)
        spec = Convolution(
            channels, weights.shape[0], window, self.strides, self.dilations, self.groups, epilogue,
            expected_width=expected,
        )  # fmt: skip
        return spec, sizes


def convolution(lowering: Lowering, node: Node) -> None:
    """Conv with constant weights, of rank 3 or 4; a bias is part of the epilogue."""
    if quantized_convolution(lowering, node):
        return
    weights = lowering.constant_of(node.input(1))
    if weights is None:
        constant = quantized_constant(lowering, node.input(1))
        weights = None if constant is None else constant.real()
    dtype, shape = tensor_type(node.output)
    if weights is None or weights.ndim not in (3, 4) or dtype is not F32:
        raise NotLowered("only 1-D and 2-D float32 convolutions with constant weights are generated")
    x = images(lowering, node.input(0))
    rank = weights.ndim
    window = weights.shape[2:]
    dilations = pair(node.ints_attribute("dilations"), rank)
    strides = pair(node.ints_attribute("strides"), rank)
    pads = pads_of(node, rank, window, strides, dilations, x.shape[2:])
    if rank == 3:
        weights = weights.reshape(weights.shape[0], weights.shape[1], 1, weights.shape[2])
    anchor = ConvolutionAnchor(x, weights, strides, dilations, pads, node.int_attribute("group", 1), rank)
    value: Scalar = element(0, F32)
    inputs: tuple[View, ...] = ()
    if node.input(2) is not None:
        bias = lowering.contiguous(node.input(2))
        inputs = (bias.reshaped((bias.shape[0], *[1] * (rank - 2))),)
        value = value + element(1, F32)
    lowering.set(node.output, PendingAnchor(anchor, value, inputs, shape, (node,)))


def pooling(lowering: Lowering, node: Node) -> None:
    """MaxPool, AveragePool and GlobalAveragePool/GlobalMaxPool of 1-D and 2-D images."""
    if any(value is not None for value in node.outputs[1:]):
        raise NotLowered("the indices of MaxPool are used")
    if node.int_attribute("ceil_mode", 0) or node.int_attribute("storage_order", 0):
        raise NotLowered("ceil_mode or storage_order")
    if byte_max_pooling(lowering, node):
        return
    dtype, shape = tensor_type(node.output)
    if dtype is not F32 or len(shape) not in (3, 4):
        raise NotLowered("only 1-D and 2-D float32 images are pooled natively")
    x = images(lowering, node.input(0))
    rank, channels = len(shape), x.shape[1]
    assert isinstance(channels, int)
    is_maximum = node.op_type in ("MaxPool", "GlobalMaxPool")
    if node.op_type.startswith("Global"):
        spec = Pooling(channels, None, is_maximum=is_maximum)
    else:
        kernel = pair(node.ints_attribute("kernel_shape"), rank)
        strides, dilations = pair(node.ints_attribute("strides"), rank), pair(node.ints_attribute("dilations"), rank)
        window = kernel[1:] if rank == 3 else kernel
        pads = pads_of(node, rank, window, strides, dilations, x.shape[2:])
        counts = node.int_attribute("count_include_pad", 0) != 0
        spec = Pooling(channels, kernel, strides, dilations, pads, is_maximum, counts)
    target = lowering.new_view(F32, shape, channels_last(rank))
    y = as_images(target)
    kernel_code = kernel_text("pool", lambda name: module_text(pooling_kernel(name, spec, lowering.target)))
    words: list[Argument] = [
        pointer(x), pointer(y), y.shape[0], y.shape[2], y.shape[3], x.shape[2], x.shape[3], x.strides[2], x.strides[0],
        y.strides[2], y.strides[0],
    ]  # fmt: skip
    assert len(words) == POOLING.epilogue
    lowering.emit(
        kernel_code, words, [x.buffer], [target.buffer], count_of(x.shape), (node,), count_of(x.shape),
        moved_nbytes([x, target]),
    )  # fmt: skip
    lowering.set(node.output, target)


def images(lowering: Lowering, value: Value | None) -> View:
    """Return a value as channels-last images of rank 4, copied once if it lies otherwise."""
    assert value is not None
    quantized = quantized_value(lowering, value)
    if quantized is not None and isinstance(lowering.pending(value), PendingAnchor):
        lowering.set(value, quantized.expression(lowering))  # the integers are a quarter of the memory
    view = lowering.view(value)
    if len(view.shape) not in (3, 4) or not isinstance(view.shape[1], int) or view.dtype is not F32:
        raise NotLowered("no images with a known number of channels")
    if not is_channels_last(view):
        view = emit_channels_last(lowering, lowering.contiguous(value))
        lowering.replace(value, view)
    return as_images(view)


def _operand_kind(view: View, shape: Sequence[KnownDim]) -> OperandKind | None:
    strides = broadcast_strides(view, shape)
    if view.dtype is not F32 or strides is None:
        return None
    if all(stride == 0 for axis, stride in enumerate(strides) if axis != 1):
        return OperandKind.CHANNEL if strides[1] == 1 or shape[1] == 1 else None
    same = len(view.shape) == len(shape) and view.shape == tuple(shape)
    return OperandKind.TENSOR if same and is_channels_last(view) else None
