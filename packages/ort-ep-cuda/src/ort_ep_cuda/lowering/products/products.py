"""Products of matrices: library calls, with what is added and applied behind them where the library fuses it."""

from __future__ import annotations

import math

from ort_core.plugin import InvalidArgument
from ort_core.plugin.ir import DataType, Node
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.libraries.anchors import Addend, Anchor, fill, lower_anchor, nowhere
from ort_ep_cuda.lowering.libraries.library_steps import MatrixProduct
from ort_ep_cuda.lowering.node_facts import LoweredNode, broadcast
from ort_ep_cuda.lowering.values.tensors import LazyTensor
from ort_ep_cuda.lowering.values.views import Shape, TensorView, collapse

PRODUCT_TYPES = frozenset({DataType.FLOAT, DataType.DOUBLE, DataType.FLOAT16, DataType.BFLOAT16})


def refuse_product(node: Node) -> str | None:
    """Return why a product is not run: element types that the library does not multiply."""
    return refuse_type(node, PRODUCT_TYPES)


def refuse_type(node: Node, allowed: frozenset[DataType]) -> str | None:
    """Return that a library does not run an operator of these element types, ``None`` where it does."""
    for value in node.present_inputs():
        if element_type(value) not in allowed:
            return f"{node.op_type} of {element_type(value).text} is not run by the libraries"
    return None


def lower_matmul(facts: LoweredNode) -> None:
    """Multiply matrices in batches that broadcast; vectors are matrices of one row or column."""
    lower_anchor(facts, matmul_anchor(facts))


def lower_gemm(facts: LoweredNode) -> None:
    """Multiply matrices, each maybe transposed; the addend joins the next elementwise kernel."""
    lower_anchor(facts, gemm_anchor(facts))


def matmul_anchor(facts: LoweredNode) -> Anchor:
    """Return the product of MatMul."""
    left, right, shape = as_matrices(facts.builder.view(facts.value(0)), facts.builder.view(facts.value(1)))
    batch = broadcast(left.shape[:-2], right.shape[:-2])
    return Anchor(product_of(facts, left, right, (*batch, left.shape[-2], right.shape[-1])), shape)


def gemm_anchor(facts: LoweredNode) -> Anchor:
    """Return the product of Gemm and what it adds."""
    a, b = facts.builder.view(facts.value(0)), facts.builder.view(facts.value(1))
    a = a.permuted((1, 0)) if facts.node.int_attribute("transA", 0) else a
    b = b.permuted((1, 0)) if facts.node.int_attribute("transB", 0) else b
    shape = (a.shape[0], b.shape[1])
    alpha, beta = facts.node.float_attribute("alpha", 1.0), facts.node.float_attribute("beta", 1.0)
    addend = Addend(facts.tensor(2), beta) if facts.has(2) and beta != 0.0 else None
    return Anchor(product_of(facts, a, b, shape, alpha), shape, addend)


def as_matrices(a: TensorView, b: TensorView) -> tuple[TensorView, TensorView, Shape]:
    """Return the factors of MatMul with two axes at least, and the shape of its result."""
    left = a if len(a.shape) > 1 else _with_axis(a, 0)
    right = b if len(b.shape) > 1 else _with_axis(b, 1)
    rows = (left.shape[-2],) if len(a.shape) > 1 else ()
    columns = (right.shape[-1],) if len(b.shape) > 1 else ()
    return left, right, (*broadcast(left.shape[:-2], right.shape[:-2]), *rows, *columns)


def _with_axis(vector: TensorView, position: int) -> TensorView:
    shape = (1, vector.shape[0]) if position == 0 else (vector.shape[0], 1)
    strides = (vector.shape[0], vector.strides[0]) if position == 0 else (vector.strides[0], 1)
    return TensorView(vector.buffer, vector.dtype, shape, strides, vector.offset)


def multiply(facts: LoweredNode, a: TensorView, b: TensorView, out: TensorView, alpha: float = 1.0) -> None:
    """Add the product of two tensors of matrices to the program, its result in a dense view."""
    fill(facts, Anchor(product_of(facts, a, b, out.shape, alpha), out.shape), out)


def product_of(
    facts: LoweredNode, a: TensorView, b: TensorView, shape: Shape, alpha: float = 1.0
) -> MatrixProduct | None:
    """Return the product without a place; a right matrix that all batches share makes it one product of more rows.

    ``None`` where there is nothing to compute or nothing to sum.

    Raises:
        InvalidArgument: the right matrix has another number of rows than the left one has columns.
    """
    if a.shape[-1] != b.shape[-2]:
        raise InvalidArgument(
            f"{facts.node.describe()}: matrices of shapes {list(a.shape)} and {list(b.shape)} have no product"
        )
    if not math.prod(shape) or not a.shape[-1]:
        return None
    batch, rows, columns = shape[:-2], shape[-2], shape[-1]
    a, b = _readable(facts, a), _readable(facts, b)
    if batch and len(b.shape) == 2 and a.is_dense and a.shape[:-2] == batch:
        count = math.prod(batch) * rows
        a = TensorView(a.buffer, a.dtype, (count, a.shape[-1]), (a.shape[-1], 1), a.offset)
        batch, rows = (), count
    a, b = a.broadcast_to((*batch, *a.shape[-2:])), b.broadcast_to((*batch, *b.shape[-2:]))
    a, b = _one_batch(facts, a, b, batch)
    return MatrixProduct(nowhere(a, (math.prod(batch), rows, columns)), a, b, alpha)


def _readable(facts: LoweredNode, view: TensorView) -> TensorView:
    """Return a matrix that the library reads as it lies (rows or columns side by side), copied if it is not one."""
    rows, columns = view.strides[-2:]
    is_row_major = columns == 1 and (rows >= view.shape[-1] or view.shape[-2] == 1)
    is_column_major = rows == 1 and (columns >= view.shape[-2] or view.shape[-1] == 1)
    return view if is_row_major or is_column_major else facts.builder.stored(LazyTensor.of(view))


def _one_batch(facts: LoweredNode, a: TensorView, b: TensorView, batch: Shape) -> tuple[TensorView, TensorView]:
    """Return both with one batch axis; copied where no stride walks through their batches."""
    sizes, strides = collapse(batch, [a.strides[:-2], b.strides[:-2]])
    if len(sizes) > 1:
        a, b = (facts.builder.stored(LazyTensor.of(view)) for view in (a, b))
        sizes, strides = collapse(batch, [a.strides[:-2], b.strides[:-2]])
    steps = [axis_strides[0] if sizes else 0 for axis_strides in strides] if sizes else [0, 0]
    count = math.prod(batch)
    first, second = (
        TensorView(view.buffer, view.dtype, (count, *view.shape[-2:]), (step, *view.strides[-2:]), view.offset)
        for view, step in zip((a, b), steps, strict=True)
    )
    return first, second
