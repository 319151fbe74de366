"""Matrix products: MatMul, Gemm and FusedMatMul as anchors whose epilogue takes in what follows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_core.cpu.codegen.llvm_ir.deferred_kernel import DeferredKernel, deferred_kernel
from ort_core.cpu.codegen.llvm_ir.scalar_printer import TYPES as WORDS_OF
from ort_core.cpu.codegen.products.expression_epilogue import WORDS, ExpressionEpilogue
from ort_core.cpu.codegen.products.matrix_product import ARGUMENTS, BATCH_DIMS, product_functions, scratch_nbytes
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingAnchor, PendingElementwise
from ort_core.cpu.lowering.products.chosen_matrices import chosen_product
from ort_core.cpu.lowering.products.product_panels import (
    Panels,
    float_panels,
    least_piece_flops,
    panels_table_buffer,
    product_kernel,
    tile_table_buffer,
    weight_panels,
)
from ort_core.cpu.lowering.products.quantized import dequantized_constant, quantized_constant, quantized_value
from ort_core.cpu.lowering.rules.integer_matrices import TYPES, integer_matmul
from ort_core.cpu.lowering.rules.vector_products import vector_product
from ort_core.cpu.lowering.steps import Argument, KernelText, NotLowered, Operators, Pointer, pointer
from ort_core.cpu.lowering.value_types import computed_type, tensor_type
from ort_core.cpu.lowering.views import (
    Buffer,
    Place,
    View,
    broadcast_strides,
    collapse,
    count_of,
    dense_strides,
    moved_nbytes,
    tallest_last,
)
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType, KnownDim, Node, Value
from ort_core.plugin.loops import Scalar, element

F32 = DataType.FLOAT
MULTIPLIED = (F32, DataType.DOUBLE)  # by these kernels


@frozen
class Product:
    """``A @ B`` over views of one type; ``packed`` is a constant B in panels, then ``b`` is its matrix's shape only."""

    a: View
    b: View
    packed: Panels | None
    operator: str

    @property
    def result_types(self) -> frozenset[DataType]:
        """Products have the type of their operands."""
        return frozenset({self.a.dtype})

    def can_fuse(self, shape: Sequence[KnownDim], inputs: Sequence[View]) -> bool:
        """Return whether the epilogue can read these views: of its own type, dense or constant along the columns."""
        for view in inputs:
            strides = broadcast_strides(view, shape)
            if view.dtype is not self.a.dtype or strides is None or strides[-1] not in (0, 1):
                return False
        return len(inputs) <= 4

    def with_rows(self, shape: Sequence[KnownDim], inputs: Sequence[View]) -> Product | None:
        """Return the same product with its rows counted by other axes, where A and what is fused allow that."""
        repeated = all(all(size == 1 for size in view.shape[:-1]) for view in inputs)
        a = self.a.with_rows(shape[:-1])
        if self.packed is None or a is None or not repeated:
            return None
        return Product(a, self.b, self.packed, self.operator)

    def store(self, lowering: Lowering, pending: PendingAnchor, target: View) -> None:
        """Write the step that computes the product into ``target``."""
        shape = pending.shape
        if target.strides[-1] != 1 and shape[-1] != 1:
            raise NotLowered("columns of the result are not dense")
        batch_shape = shape[:-2]
        a_batch = _batch_strides(self.a, batch_shape)
        b_batch = (0,) * len(batch_shape) if self.packed is not None else _batch_strides(self.b, batch_shape)
        operands: list[Sequence[KnownDim]] = [
            (*a_batch, self.a.strides[-2]), (*target.strides[:-1],), (*b_batch, 0),
        ]  # fmt: skip
        for view in pending.inputs:
            strides = broadcast_strides(view, shape)
            assert strides is not None
            operands.append(strides[:-1])
        if self.packed is not None:
            sizes, strides_of = tallest_last(*collapse(shape[:-1], operands))
        else:  # B changes from batch to batch: rows stay apart
            sizes, strides_of = collapse(batch_shape, [o[:-1] for o in operands])
            if batch_shape == () or sizes == [1]:
                sizes, strides_of = [], [[] for _ in operands]
            sizes, strides_of = [*sizes, shape[-2]], [[*s, o[-1]] for s, o in zip(strides_of, operands)]
        if len(sizes) - 1 > BATCH_DIMS:
            raise NotLowered(f"more than {BATCH_DIMS} batch dimensions are not generated")
        self._emit(lowering, pending, target, sizes, strides_of)

    def _emit(
        self,
        lowering: Lowering,
        pending: PendingAnchor,
        target: View,
        sizes: Sequence[KnownDim],
        strides: Sequence[Sequence[KnownDim]],
    ) -> None:
        machine, dtype = lowering.target, self.a.dtype
        rows, columns, depth = sizes[-1], pending.shape[-1], self.a.shape[-1]
        epilogue = None
        if pending.expression.operation != "input":
            dense = tuple(_last_stride(v, pending.shape) == 1 for v in pending.inputs)
            epilogue = ExpressionEpilogue(pending.expression, dense, ARGUMENTS.count)
        is_bfloat16 = self.packed is not None and self.packed.is_bfloat16
        what = ("product", dtype, self.packed is None, is_bfloat16, "" if epilogue is None else epilogue.structure)
        kernel = lowering.kernel(what, lambda: _kernel_text(product_kernel(machine, self.packed, epilogue, dtype)))
        each = scratch_nbytes(machine, word=WORDS_OF[dtype])
        scratch = lowering.scratch(DataType.UINT8, each)
        table = panels_table_buffer(machine, self.packed, dtype)
        words: list[Argument] = [0] * ARGUMENTS.count
        b = self.b if self.packed is None else lowering.constant_view(self.packed.words, dtype)
        values: dict[int, Argument] = {
            ARGUMENTS.a: pointer(self.a), ARGUMENTS.b: pointer(b), ARGUMENTS.c: pointer(target), ARGUMENTS.m: rows,
            ARGUMENTS.n: columns, ARGUMENTS.k: depth, ARGUMENTS.a_row: strides[0][-1],
            ARGUMENTS.a_k: self.a.strides[-1],
            ARGUMENTS.b_k: 0 if self.packed is not None else self.b.strides[-2],
            ARGUMENTS.b_n: 0 if self.packed is not None else self.b.strides[-1], ARGUMENTS.c_row: strides[1][-1],
            ARGUMENTS.scratch: Pointer(scratch), ARGUMENTS.scratch_stride: each, ARGUMENTS.tiles: Pointer(table),
        }  # fmt: skip
        for position, value in values.items():
            words[position] = value
        empty = BATCH_DIMS - (len(sizes) - 1)
        words[ARGUMENTS.batch : ARGUMENTS.batch + BATCH_DIMS] = [*[1] * empty, *sizes[:-1]]
        for start, operand in ((ARGUMENTS.a_batch, 0), (ARGUMENTS.b_batch, 2), (ARGUMENTS.c_batch, 1)):
            words[start : start + BATCH_DIMS] = [*[0] * empty, *strides[operand][:-1]]
        for view, steps in zip(pending.inputs, strides[3:]):
            words.extend([pointer(view), steps[-1], *[0] * empty, *steps[:-1]])
            assert len(words) == ARGUMENTS.count + WORDS * ((len(words) - ARGUMENTS.count) // WORDS)
        reads = [self.a.buffer, b.buffer, *(v.buffer for v in pending.inputs)]
        flops = count_of(pending.shape) * depth * 2
        lowering.emit(
            kernel, words, reads, [target.buffer, scratch], flops // 32 + 1,
            pending.operators, flops, moved_nbytes([self.a, b, target, *pending.inputs]),
            least_piece=least_piece_flops(machine, self.packed) // 32,
        )  # fmt: skip


def _kernel_text(deferred: DeferredKernel) -> KernelText:
    return KernelText(deferred.name, deferred)


def _is_quantized(lowering: Lowering, node: Node) -> bool:
    """Lower a product of bytes; return whether it is one."""
    if quantized_constant(lowering, node.input(1)) is None:
        return _is_quantized_twice(lowering, node)
    from ort_core.cpu.lowering.rules.quantized.integer_products import quantized_product  # floats have no use for it

    return quantized_product(lowering, node)


def _is_quantized_twice(lowering: Lowering, node: Node) -> bool:
    """Lower a product of two sides that are computed bytes; return whether it is one."""
    if node.op_type != "MatMul" or any(quantized_value(lowering, each) is None for each in node.present_inputs()):
        return False
    from ort_core.cpu.lowering.rules.quantized.computed_products import dequantized_product

    return dequantized_product(lowering, node)


def matmul(lowering: Lowering, node: Node) -> None:
    """MatMul and FusedMatMul: numpy's semantics; FusedMatMul's operands have rank 2 and more."""
    if _is_quantized(lowering, node):
        return
    dtype, shape = tensor_type(node.output)
    if dtype in TYPES and node.op_type == "MatMul":
        integer_matmul(lowering, node)
        return
    if chosen_product(lowering, node):
        return
    a, b = node.input(0), node.input(1)
    left, right = lowering.view(a), _right(lowering, b)
    if node.op_type == "MatMul" and 1 in (len(left.shape), len(right[0].shape)):
        _with_vectors(lowering, node, left, *right)
        return
    if node.op_type == "FusedMatMul":
        left = _behind_batches(left) if node.int_attribute("transBatchA", 0) else left
        right = (_behind_batches(right[0]), right[1]) if node.int_attribute("transBatchB", 0) else right
        left = _swapped(left) if node.int_attribute("transA", 0) else left
    _check_types(left, right[0])
    if len(left.shape) < 2 or len(right[0].shape) < 2:
        raise NotLowered("only matrices of rank 2 and more are multiplied natively")
    transposed = node.op_type == "FusedMatMul" and node.int_attribute("transB", 0) != 0
    alpha = node.float_attribute("alpha", 1.0)
    if transposed:
        right = _transposed(*right)
    left = _repeated(lowering, left, shape)
    right = (_repeated(lowering, right[0], shape), None) if right[1] is None else right
    sums = vector_product(lowering, node, left, right, shape, is_result=alpha == 1.0)
    if sums is not None:
        scaled = PendingElementwise(element(0, sums.dtype) * alpha, (sums,), shape, (node,))
        lowering.set(node.output, sums if alpha == 1.0 else scaled)
        return
    product = _product(lowering, left, *right, node.op_type)
    value: Scalar = element(0, left.dtype)
    if alpha != 1.0:
        value = value * alpha
    lowering.set(node.output, PendingAnchor(product, lowering.expressions.shared(value), (), shape, (node,)))


def _with_vectors(lowering: Lowering, node: Node, left: View, right: View, constant: np.ndarray | None) -> None:
    """Lower a product with a vector: a matrix of one row, or of one column, which the result does not show."""
    _check_types(left, right)
    _, shape = tensor_type(node.output)
    if len(left.shape) == 1:
        left = lowering.contiguous(node.input(0)).reshaped((1, *left.shape))
        shape = (*shape[:-1], 1, *shape[-1:]) if len(right.shape) > 1 else (1,)
    if len(right.shape) == 1:
        right = lowering.contiguous(node.input(1)).reshaped((*right.shape, 1))
        shape = (*shape, 1)
    left = _repeated(lowering, left, shape)
    right = _repeated(lowering, right, shape) if constant is None else right
    sums = vector_product(lowering, node, left, (right, constant), shape, is_result=True)
    if sums is None:
        sums = lowering.result_view(node.output, shape)
        product = _product(lowering, left, right, constant, "MatMul")
        product.store(lowering, PendingAnchor(product, element(0, left.dtype), (), shape, (node,)), sums)
    lowering.set(node.output, sums.reshaped(tensor_type(node.output)[1]))


def gemm(lowering: Lowering, node: Node) -> None:
    """Gemm: ``alpha A' B' + beta C``."""
    if _is_quantized(lowering, node):
        return
    _, shape = tensor_type(node.output)
    left, right = lowering.view(node.input(0)), _right(lowering, node.input(1))
    _check_types(left, right[0])
    if len(shape) != 2 or len(left.shape) != 2:
        raise NotLowered("Gemm takes matrices")
    if node.int_attribute("transA", 0):
        left = _swapped(left)
    if node.int_attribute("transB", 0):
        right = _transposed(*right)
    value: Scalar = element(0, left.dtype)
    alpha, beta = node.float_attribute("alpha", 1.0), node.float_attribute("beta", 1.0)
    if alpha != 1.0:
        value = value * alpha
    inputs: tuple[View, ...] = ()
    if node.input(2) is not None and beta != 0.0:
        bias = lowering.view(node.input(2))
        if len(bias.shape) > 2:
            raise NotLowered("C has more dimensions than the result")
        term = element(1, left.dtype)
        value = value + (term if beta == 1.0 else term * beta)
        inputs = (lowering.operands.spread(bias, shape),)
    sums = vector_product(lowering, node, left, right, shape, is_result=False)
    if sums is not None:
        lowering.set(node.output, PendingElementwise(value, (sums, *inputs), shape, (node,)))
        return
    product = _product(lowering, left, *right, "Gemm")
    if not product.can_fuse(shape, inputs):
        raise NotLowered("C does not lie along the result's rows")
    lowering.set(node.output, PendingAnchor(product, lowering.expressions.shared(value), inputs, shape, (node,)))


def _check_types(left: View, right: View) -> None:
    if left.dtype not in MULTIPLIED or right.dtype is not left.dtype:
        raise NotLowered(f"{left.dtype.text} and {right.dtype.text} are not multiplied natively")


def _right(lowering: Lowering, value: Value | None) -> tuple[View, np.ndarray | None]:
    constant = lowering.constant_of(value)
    if constant is None and (quantized := quantized_constant(lowering, value)) is not None:
        constant = quantized.real()
        if constant.ndim != 2:
            return lowering.constant_view(constant, F32), None
    elif constant is None and value is not None:
        constant = dequantized_constant(lowering, value.producer)
    if constant is None or constant.ndim != 2:
        return lowering.view(value), None
    # Of the matrix itself only the shape is used, it needs no memory.
    dtype = computed_type(DataType.from_numpy(constant.dtype))
    return View(Buffer(dtype, constant.size, Place.CONSTANT), constant.shape, dense_strides(constant.shape)), constant


def _product(lowering: Lowering, left: View, right: View, constant: np.ndarray | None, operator: str) -> Product:
    lowering.require_equal(left.shape[-1], right.shape[-2])
    packed = None if constant is None else weight_panels(lowering, constant, left.dtype)
    if packed is not None and packed.is_bfloat16 and left.strides[-1] != 1:
        left = lowering.copied(left)
    return Product(left, right, packed, operator)


def computed_product(lowering: Lowering, left: View, right: View, operator: str) -> Product:
    """Return the product of two views of one type and of rank 2 and more, neither of which is constant."""
    return _product(lowering, left, right, None, operator)


def weight_product(lowering: Lowering, left: View, right: Value, operator: str) -> Product:
    """Return the product of a float32 view and a matrix of the model."""
    view, constant = _right(lowering, right)
    if view.dtype is not F32 or len(view.shape) != 2:
        raise NotLowered("the right side is not a float32 matrix")
    return _product(lowering, left, view, constant, operator)


def constant_product(
    lowering: Lowering, left: View, constant: np.ndarray, operator: str, *, is_weight: bool = False
) -> Product:
    """Return the product of a view and a constant matrix [k, n], packed.

    One that ``is_weight`` is packed as the model's weights are: in bfloat16 where the user asked for it.
    """
    lowering.require_equal(left.shape[-1], constant.shape[0])
    dtype = left.dtype
    shape = View(Buffer(dtype, constant.size, Place.CONSTANT, 0, constant), constant.shape, (constant.shape[1], 1))
    packed = (weight_panels if is_weight else float_panels)(lowering, constant, dtype)
    if packed.is_bfloat16 and left.strides[-1] != 1:
        left = lowering.copied(left)
    return Product(left, shape, packed, operator)


def _transposed(right: View, constant: np.ndarray | None) -> tuple[View, np.ndarray | None]:
    return _swapped(right), None if constant is None else constant.T


def _swapped(view: View) -> View:
    order = list(range(len(view.shape)))
    order[-2:] = order[:-3:-1]
    return view.transposed(order)


def _behind_batches(view: View) -> View:
    """Return a view whose first axis goes behind its batches: rows that lie apart, as transposed heads do."""
    rank = len(view.shape)
    if rank < 3:
        raise NotLowered("a matrix has no batches to be transposed")
    return view.transposed([*range(1, rank - 1), 0, rank - 1])


def _repeated(lowering: Lowering, view: View, shape: Sequence[KnownDim]) -> View:
    """Return matrices as they repeat over the batch of a product of ``shape``, as only the run may decide."""
    return lowering.operands.spread(view, (*shape[:-2], *view.shape[-2:]))


def _batch_strides(view: View, batch_shape: Sequence[KnownDim]) -> tuple[KnownDim, ...]:
    outer = View(view.buffer, view.shape[:-2], view.strides[:-2], view.offset)
    strides = broadcast_strides(outer, batch_shape)
    if strides is None:
        raise NotLowered("which batch dimensions repeat is only known at run time")
    return strides


def _last_stride(view: View, shape: Sequence[KnownDim]) -> KnownDim:
    strides = broadcast_strides(view, shape)
    assert strides is not None
    return strides[-1]


def emit_batched_product(lowering: Lowering, a: View, packed: np.ndarray, c: View, operators: Operators) -> None:
    """Write the step ``c[i] = a[i] @ b[i]`` for views of rank 3; ``packed`` is ``b`` in panels, ``pack_panels``."""
    machine = lowering.target
    deferred = deferred_kernel(
        "product", "batched", lambda name: product_functions(name, machine, packed=True), is_vectorized=True
    )
    words, b, scratch = batched_product_words(lowering, a, packed, c)
    flops = count_of(c.shape) * a.shape[2] * 2
    moved = moved_nbytes([a, b, c])
    lowering.emit(
        KernelText(deferred.name, deferred), words, [a.buffer, b.buffer], [c.buffer, scratch], flops // 32 + 1,
        operators, flops, moved,
    )  # fmt: skip


def batched_product_words(
    lowering: Lowering, a: View, packed: np.ndarray, c: View
) -> tuple[list[Argument], View, Buffer]:
    """Return the argument table of ``emit_batched_product``'s kernel, what it reads as ``b``, and its scratch."""
    machine = lowering.target
    scratch = lowering.scratch(DataType.UINT8, scratch_nbytes(machine))
    table = tile_table_buffer(machine)
    b = lowering.constant_view(packed, F32)
    (batch, rows, columns), depth = c.shape, a.shape[2]
    words: list[Argument] = [0] * ARGUMENTS.count
    values: dict[int, Argument] = {
        ARGUMENTS.a: pointer(a), ARGUMENTS.b: pointer(b), ARGUMENTS.c: pointer(c), ARGUMENTS.m: rows,
        ARGUMENTS.n: columns, ARGUMENTS.k: depth, ARGUMENTS.a_row: a.strides[1], ARGUMENTS.a_k: a.strides[2],
        ARGUMENTS.c_row: c.strides[1], ARGUMENTS.scratch: Pointer(scratch),
        ARGUMENTS.scratch_stride: scratch_nbytes(machine), ARGUMENTS.tiles: Pointer(table),
    }  # fmt: skip
    for position, value in values.items():
        words[position] = value
    starts = (ARGUMENTS.batch, ARGUMENTS.a_batch, ARGUMENTS.b_batch, ARGUMENTS.c_batch)
    for start, size in zip(starts, (batch, a.strides[0], packed[0].size, c.strides[0])):
        words[start : start + BATCH_DIMS] = [*[1 if start == ARGUMENTS.batch else 0] * (BATCH_DIMS - 1), size]
    return words, b, scratch
