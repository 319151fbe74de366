"""MatMul of integers of 32 and 64 bits."""

from __future__ import annotations

from ort_core.cpu.codegen.products.integer_matrices import integer_matrices_kernel
from ort_core.cpu.lowering.images.layout_steps import kernel_text
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.steps import Argument, NotLowered, pointer
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, count_of
from ort_core.plugin.ir import DataType, KnownDim, Node

TYPES = frozenset({DataType.INT32, DataType.INT64, DataType.UINT32, DataType.UINT64})


def integer_matmul(lowering: Lowering, node: Node) -> None:
    """MatMul of matrices of one of ``TYPES``, the right one perhaps the same for all on the left."""
    integer_product(lowering, node, lowering.contiguous(node.input(0)), lowering.contiguous(node.input(1)))


def integer_product(lowering: Lowering, node: Node, a: View, b: View) -> None:
    """Set a node's result to the product of two contiguous views of one of ``TYPES``."""
    _, shape = tensor_type(node.output)
    if len(a.shape) < 2 or len(b.shape) < 2:
        raise NotLowered("only matrices of integers are multiplied natively")
    *outer, rows, depth = a.shape
    *others, length, columns = b.shape
    lowering.require_equal(depth, length)
    steps: tuple[KnownDim, KnownDim] = (rows * depth, depth * columns)
    batch = count_of(outer)
    if all(size == 1 for size in others) and len(others) <= len(outer):
        batch, rows, steps = 1, count_of(a.shape[:-1]), (0, 0)
    elif len(others) != len(outer):
        raise NotLowered("the batches of the two operands have other axes")
    else:
        for left, right in zip(outer, others, strict=True):
            lowering.require_equal(left, right)
    target = lowering.result_view(node.output, (*outer, a.shape[-2], columns))
    if len(shape) != len(target.shape):
        raise NotLowered("the result has another rank")
    bits, machine = a.dtype.bits, lowering.target
    kernel = kernel_text("integermatrices", str(bits), lambda name: integer_matrices_kernel(name, bits, machine))
    words: list[Argument] = [pointer(target), pointer(a), pointer(b), batch, rows, depth, columns, *steps]
    work = count_of(target.shape) * depth
    lowering.emit(kernel, words, [a.buffer, b.buffer], [target.buffer], work, (node,), work * 2)
    lowering.set(node.output, target)
