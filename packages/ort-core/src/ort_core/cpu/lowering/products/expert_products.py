"""Layers of experts as steps: each expert's product over the rows that ask for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from ort_core.cpu.codegen.llvm_ir.deferred_kernel import deferred_kernel
from ort_core.cpu.codegen.products.expert_product import ExpertTable, over_experts
from ort_core.cpu.codegen.products.expression_epilogue import WORDS, ExpressionEpilogue
from ort_core.cpu.codegen.products.matrix_product import ARGUMENTS, product_functions, scratch_nbytes
from ort_core.cpu.codegen.products.microkernel import tile_shape
from ort_core.cpu.codegen.products.packing import aligned_empty, pack_panels, panels_shape
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.products.product_arguments import ProductMemory, ProductRows, product_words
from ort_core.cpu.lowering.products.product_panels import tile_table_buffer
from ort_core.cpu.lowering.steps import Argument, KernelText, NotLowered, pointer
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, moved_nbytes
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType, KnownDim, Node, Value
from ort_core.plugin.loops import Scalar, element

F32 = DataType.FLOAT
NBYTES = F32.numpy.itemsize
Activation = Callable[[Scalar], Scalar]


@frozen
class ExpertRows:
    """Rows sorted by expert: where each expert's begin, and how many there are in all."""

    starts: View
    experts: int
    count: KnownDim


class ExpertLayer(Protocol):
    """One layer of all experts."""

    @property
    def columns(self) -> int:
        """How many numbers it gives for a row."""

    def product(self, lowering: Lowering, node: Node, rows: ExpertRows, a: View, activation: Activation = ...) -> View:
        """Write the step of ``activation(a @ matrix + bias)``, each row by its expert; return the result."""


@frozen
class FloatLayer:
    """A layer of floats: ``matrices`` are [experts, columns, depth] as they lie in memory, or packed.

    ``step`` is how many elements lie from one expert's matrix to the next.
    """

    matrices: View
    step: int
    is_packed: bool
    depth: int
    columns: int
    bias: View | None

    def product(
        self, lowering: Lowering, node: Node, rows: ExpertRows, a: View, activation: Activation = lambda x: x
    ) -> View:
        """Write the step of ``activation(a @ matrix + bias)``, each row by its expert; return the result."""
        machine, biases = lowering.target, biases_of(self.bias)
        target = lowering.new_view(F32, (rows.count, self.columns))
        value = activation(with_bias(self.bias))
        epilogue = None
        if value.operation != "input":
            epilogue = ExpressionEpilogue(value, (True,) * len(biases), ARGUMENTS.count)
        memory = expert_memory(lowering)
        words = expert_product_words(a, self.matrices, target, biases, memory)
        if not self.is_packed:
            words[ARGUMENTS.b_k : ARGUMENTS.b_n + 1] = [1, self.depth]
        table = ExpertTable(len(words), *differing(len(biases)))
        facts = f"{self.is_packed} {len(biases)} {'' if epilogue is None else epilogue.structure}"
        kernel = deferred_kernel(
            "product_experts", facts,
            lambda name: [
                *product_functions(f"{name}_one", machine, packed=self.is_packed, epilogue=epilogue),
                over_experts(name, f"{name}_one", table),
            ],
            is_vectorized=True,
        )  # fmt: skip
        steps = [self.depth, self.columns, self.step, *[self.columns] * len(biases)]
        words.extend([pointer(rows.starts), rows.experts, *(step * NBYTES for step in steps)])
        reads = [a.buffer, self.matrices.buffer, rows.starts.buffer, *(bias.buffer for bias in biases)]
        flops = rows.count * (2 * self.columns * self.depth)
        lowering.emit(
            KernelText(kernel.name, kernel), words, reads, [target.buffer, memory.scratch], flops // 32 + 1, (node,),
            flops, moved_nbytes([a, target]),
        )  # fmt: skip
        return target


def differing(biases: int, first: int = 0) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the positions of rows, ``by_row`` and ``by_expert`` in a product's table that begins at ``first``."""
    rows, a, b, c = (first + at for at in (ARGUMENTS.m, ARGUMENTS.a, ARGUMENTS.b, ARGUMENTS.c))
    return (rows,), (a, c), (b, *(first + ARGUMENTS.count + WORDS * i for i in range(biases)))


def biases_of(bias: View | None) -> tuple[View, ...]:
    """Return the operands of a layer's epilogue: the first expert's bias."""
    if bias is None:
        return ()
    return (View(bias.buffer, bias.shape[1:], bias.strides[1:], bias.offset),)


def with_bias(bias: View | None) -> Scalar:
    """Return the sum of a product with its bias."""
    return element(0, F32) if bias is None else element(0, F32) + element(1, F32)


def expert_memory(lowering: Lowering) -> ProductMemory:
    """Return the scratch and the tiles of a product."""
    machine = lowering.target
    nbytes = scratch_nbytes(machine)
    return ProductMemory(lowering.scratch(DataType.UINT8, nbytes), nbytes, tile_table_buffer(machine))


def expert_product_words(
    a: View, matrices: View, target: View, biases: Sequence[View], memory: ProductMemory
) -> list[Argument]:
    """Return the table of the product of all rows with the first expert's matrix."""
    steps = (a.strides[0],), (target.strides[0],), *[(0,)] * len(biases)
    return product_words(a, matrices, target, biases, ProductRows((a.shape[0],), steps), memory)


def elements_of_expert(value: Value | None, experts: int) -> int:
    """Return how many elements the weights of one expert have.

    Raises:
        NotLowered: they are not matrices of known sizes, one for each expert.
    """
    shape = () if value is None else tensor_type(value)[1]
    sizes = [size for size in shape if isinstance(size, int)]
    if len(sizes) != 3 or sizes[0] != experts or 0 in sizes:
        raise NotLowered("the weights of the experts are not matrices of known sizes, one for each")
    return sizes[1] * sizes[2]


def expert_bias(lowering: Lowering, bias: Value | None, experts: int, columns: int) -> View | None:
    """Return the biases of a layer.

    Raises:
        NotLowered: they are not one for each column of each expert.
    """
    view = None if bias is None else lowering.contiguous(bias)
    if view is not None and (view.shape != (experts, columns) or view.dtype is not F32):
        raise NotLowered("the biases of the experts do not fit")
    return view


def float_layer(
    lowering: Lowering, weights: Value | None, bias: Value | None, experts: int, columns: int, depth: int
) -> FloatLayer:
    """Return a layer of floats; files of earlier exporters turn its shape, not its elements.

    Raises:
        NotLowered: the weights or biases do not fit.
    """
    elements = elements_of_expert(weights, experts)
    if weights is None or elements != columns * depth or set(tensor_type(weights)[1][1:]) != {columns, depth}:
        raise NotLowered("the weights of the experts do not fit")
    added = expert_bias(lowering, bias, experts, columns)
    constant, width = lowering.constant_of(weights), tile_shape(lowering.target).columns
    if constant is None:
        view = lowering.contiguous(weights)
        if view.dtype is not F32:
            raise NotLowered("the weights of the experts are not float32")
        return FloatLayer(view, columns * depth, False, depth, columns, added)

    def fill(out: np.ndarray) -> None:
        for matrix, panels in zip(constant.reshape(experts, columns, depth), out, strict=True):
            pack_panels(np.asarray(matrix, np.float32).T, width, panels)

    packed = panels_shape((experts, depth, columns), width)
    panels = lowering.weights.packed(constant, f"experts {width} {columns}", lambda: aligned_empty(packed), fill)
    return FloatLayer(lowering.constant_view(panels, F32), panels[0].size, True, depth, columns, added)
