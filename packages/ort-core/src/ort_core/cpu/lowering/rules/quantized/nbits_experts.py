"""Layers of experts whose weights have 4 or 8 bits: each expert's product is one of MatMulNBits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.products.expert_product import ExpertTable, over_experts
from ort_core.cpu.codegen.products.expression_epilogue import ExpressionEpilogue
from ort_core.cpu.codegen.products.matrix_product import ARGUMENTS as PRODUCT_ARGUMENTS
from ort_core.cpu.codegen.products.packing import aligned_empty
from ort_core.cpu.codegen.quantized.integer_convolution_plan import ARGUMENTS, IntegerOperand
from ort_core.cpu.codegen.quantized.nbits_product import NBitsKernel, nbits_functions, panel_multiple
from ort_core.cpu.codegen.quantized.nbits_tile import NBitsProduct, pack_nbits
from ort_core.cpu.lowering.images.layout_steps import text_kernel
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import structure_of
from ort_core.cpu.lowering.products.expert_products import (
    NBYTES,
    Activation,
    ExpertRows,
    biases_of,
    differing,
    expert_bias,
    expert_memory,
    expert_product_words,
    with_bias,
)
from ort_core.cpu.lowering.steps import Argument, NotLowered, pointer
from ort_core.cpu.lowering.views import View
from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.loops import element
from ort_core.plugin.memory import release_pages

F32 = DataType.FLOAT
_PRODUCT = element(0, F32)


@dataclass(frozen=True, slots=True, eq=False)
class NBitsLayer:
    """A layer of codes: uint32 words ``[experts][columns][blocks][words]`` with what they stand for, by blocks.

    Scales and zero points (or ``None``) are float32 ``[experts][columns][blocks]``.
    """

    words: np.ndarray
    scales: np.ndarray
    zero_points: np.ndarray | None
    bits: int
    block: int
    depth: int
    columns: int
    bias: View | None

    def product(
        self, lowering: Lowering, node: Node, rows: ExpertRows, a: View, activation: Activation = lambda x: x
    ) -> View:
        """Write the step of ``activation(a @ matrix + bias)``, each row by its expert; return the result."""
        machine, biases = lowering.target, biases_of(self.bias)
        target, value = lowering.new_view(F32, (rows.count, self.columns)), activation(with_bias(self.bias))
        spec = NBitsProduct(
            self.depth, self.columns, value, tuple(IntegerOperand("channel", F32) for _ in biases), bits=self.bits,
            block=self.block, has_zero_points=self.zero_points is not None, x_pixel=self.depth * NBYTES,
        )  # fmt: skip
        streams = self._streams(lowering, spec)
        matrices, memory = lowering.constant_view(streams, DataType.INT32), expert_memory(lowering)
        words: list[Argument] = [
            *map(pointer, (a, matrices, target)), 1, 1, rows.count, 0, 0, 0, 0, self.depth * NBYTES, self.columns,
            *map(pointer, biases), rows.count,
        ]  # fmt: skip
        many = len(words)
        words.extend(expert_product_words(a, matrices, target, biases, memory))
        epilogue = None
        if value.operation != "input":
            epilogue = ExpressionEpilogue(value, (True,) * len(biases), PRODUCT_ARGUMENTS.count)
        kernel, table = NBitsKernel(spec, epilogue, many), _differing(len(words), many, len(biases))
        text = lowering.kernel(
            ("experts", replace(spec, expression=_PRODUCT), structure_of(value)),
            lambda: text_kernel(
                "nbits_experts",
                lambda name: module_text(
                    [*nbits_functions(f"{name}_one", kernel, machine), over_experts(name, f"{name}_one", table)]
                ),
                is_vectorized=True,
            ),
        )
        own = [self.columns * NBYTES] * len(biases)
        by_expert = [streams[0].nbytes, *own] * 2  # of the form for few rows, and of that for many
        words.extend(
            [pointer(rows.starts), rows.experts, *[self.depth * NBYTES, self.columns * NBYTES] * 2, *by_expert]
        )
        reads = [a.buffer, matrices.buffer, rows.starts.buffer, *(bias.buffer for bias in biases)]
        flops = rows.count * (2 * self.columns * self.depth)
        lowering.emit(text, words, reads, [target.buffer, memory.scratch], flops // 16 + 1, (node,), flops)
        return target

    def _streams(self, lowering: Lowering, spec: NBitsProduct) -> np.ndarray:
        """Return the streams of weights of all experts, one after the other."""
        machine, streams = lowering.target, None
        for expert, words in enumerate(self.words):
            zeros = None if self.zero_points is None else self.zero_points[expert]
            stream = pack_nbits(spec, words, self.scales[expert], zeros, machine, panel_multiple(machine))
            if streams is None:
                streams = aligned_empty((len(self.words), stream.size), stream.dtype)
            streams[expert] = stream.reshape(-1)
        assert streams is not None
        release_pages(self.words)
        return streams


def _differing(count: int, many: int, biases: int) -> ExpertTable:
    """Return what differs between experts in the table of MatMulNBits, whose form for many rows begins at ``many``."""
    rows, by_row, by_expert = differing(biases, many)
    own = (ARGUMENTS.weights, *range(ARGUMENTS.epilogue, ARGUMENTS.epilogue + biases))
    few = (ARGUMENTS.width, many - 1)
    return ExpertTable(count, (*few, *rows), (ARGUMENTS.x, ARGUMENTS.y, *by_row), (*own, *by_expert))


def nbits_layer(
    lowering: Lowering, node: Node, places: Sequence[int], name: str, experts: int, columns: int, depth: int
) -> NBitsLayer:
    """Return a layer of QMoE: its codes, scales, biases and zero points are the inputs at ``places``.

    Raises:
        NotLowered: they are not constant, or lie otherwise than generated code reads them.
    """
    inputs = [*node.inputs, *[None] * 14]
    given = [inputs[place] for place in places]
    codes, scales, zeros = (lowering.constant_of(given[i]) for i in (0, 1, 3))
    bits = node.int_attribute(f"{name}_expert_weight_bits", 0) or node.int_attribute("expert_weight_bits", 4)
    if codes is None or scales is None or codes.dtype != np.uint8 or (given[3] is not None and zeros is None):
        raise NotLowered("the codes of the experts, their scales or zero points are not constant")
    if bits not in (4, 8) or codes.shape != (experts, columns, depth * bits // 8):
        raise NotLowered(f"codes of {bits} bits of shape {codes.shape} are not generated")
    blocks = scales.size // (experts * columns)
    block = (node.int_attribute("block_size", 0) or depth // max(blocks, 1)) if blocks > 1 else depth
    if scales.shape[:2] != (experts, columns) or block * blocks != depth or block % 8:
        raise NotLowered(f"rows of {depth} in {blocks} blocks of {block} are not generated")
    words = np.ascontiguousarray(codes).reshape(experts, columns, blocks, -1).view("<u4")
    real = np.asarray(scales, np.float32).reshape(experts, columns, blocks)
    middle = None if zeros is None else _zero_points(zeros, bits, real.shape, is_blocked=scales.ndim == zeros.ndim == 3)
    return NBitsLayer(
        words, real, middle, bits, block, depth, columns, expert_bias(lowering, given[2], experts, columns)
    )


def _zero_points(packed: np.ndarray, bits: int, shape: tuple[int, ...], *, is_blocked: bool) -> np.ndarray:
    """Return zero points by blocks; they are packed along the blocks, or one for each column along the columns."""
    whole = packed if bits == 8 else np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)
    experts, columns, blocks = shape
    kept = whole[:, :, :blocks] if is_blocked else whole.reshape(experts, -1)[:, :columns, None]
    if kept.shape[:2] != (experts, columns):
        raise NotLowered(f"zero points of shape {packed.shape} do not fit")
    return np.ascontiguousarray(np.broadcast_to(kept, shape), np.float32)
