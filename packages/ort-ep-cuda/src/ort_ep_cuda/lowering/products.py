"""Products and convolutions: library calls; what is added behind them is left to the next elementwise kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ort_core.plugin.ir import DataType, Node, Value
from ort_core.plugin.loops import Scalar, cast, lift
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.elementwise import along_axis
from ort_ep_cuda.lowering.node_facts import LoweredNode, broadcast
from ort_ep_cuda.lowering.preamble import compute_type
from ort_ep_cuda.lowering.program import Convolution, MatrixProduct
from ort_ep_cuda.lowering.tensors import LazyTensor, combine
from ort_ep_cuda.lowering.views import Shape, TensorView, collapse

PRODUCT_TYPES = frozenset({DataType.FLOAT, DataType.DOUBLE, DataType.FLOAT16, DataType.BFLOAT16})
CONVOLUTION_TYPES = frozenset({DataType.FLOAT, DataType.FLOAT16, DataType.BFLOAT16})


def refuse_product(node: Node) -> str | None:
    """Return why a product is not run: element types that the library does not multiply."""
    return _refuse_type(node, PRODUCT_TYPES)


def lower_matmul(facts: LoweredNode) -> None:
    """Multiply matrices in batches that broadcast; vectors are matrices of one row or column."""
    left, right, shape = as_matrices(facts.builder.view(facts.value(0)), facts.builder.view(facts.value(1)))
    out = facts.builder.result(facts.output, shape)
    batch = broadcast(left.shape[:-2], right.shape[:-2])
    multiply(facts, left, right, TensorView.dense(out.buffer, out.dtype, (*batch, left.shape[-2], right.shape[-1])))


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
    """Add the product; a right matrix that all batches share makes it one product of more rows."""
    if not out.size:
        return
    if not a.shape[-1]:  # an empty sum
        facts.builder.stored(_zeros(out), out)
        return
    batch, rows, columns = out.shape[:-2], out.shape[-2], out.shape[-1]
    a, b = _readable(facts, a), _readable(facts, b)
    if batch and len(b.shape) == 2 and a.is_dense and a.shape[:-2] == batch:
        count = math.prod(batch) * rows
        a = TensorView(a.buffer, a.dtype, (count, a.shape[-1]), (a.shape[-1], 1), a.offset)
        batch, rows = (), count
    a, b = a.broadcast_to((*batch, *a.shape[-2:])), b.broadcast_to((*batch, *b.shape[-2:]))
    a, b = _one_batch(facts, a, b, batch)
    flat = TensorView.dense(out.buffer, out.dtype, (math.prod(batch), rows, columns))
    facts.builder.add(MatrixProduct(a, b, flat, alpha))


def _zeros(view: TensorView) -> LazyTensor:
    return LazyTensor(lift(0.0, compute_type(view.dtype)), (), view.shape, view.dtype)


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


def lower_gemm(facts: LoweredNode) -> None:
    """Multiply matrices, each maybe transposed; the addend joins the next elementwise kernel."""
    a, b = facts.builder.view(facts.value(0)), facts.builder.view(facts.value(1))
    a = a.permuted((1, 0)) if facts.node.int_attribute("transA", 0) else a
    b = b.permuted((1, 0)) if facts.node.int_attribute("transB", 0) else b
    shape = (a.shape[0], b.shape[1])
    alpha, beta = facts.node.float_attribute("alpha", 1.0), facts.node.float_attribute("beta", 1.0)
    if not facts.has(2) or beta == 0.0:
        multiply(facts, a, b, facts.builder.result(facts.output, shape), alpha)
        return
    product = facts.builder.temporary(a.dtype, shape)
    multiply(facts, a, b, product, alpha)
    _define_sum(facts, product, facts.tensor(2).broadcast_to(shape), beta)


def _define_sum(facts: LoweredNode, product: TensorView, addend: LazyTensor, beta: float = 1.0) -> None:
    def meaning(roots: Sequence[Scalar]) -> Scalar:
        added = cast(roots[1], roots[0].dtype)
        return roots[0] + (added if beta == 1.0 else added * beta)

    facts.builder.define(facts.output, combine([LazyTensor.of(product), addend], meaning, product.dtype))


def refuse_convolution(node: Node) -> str | None:
    """Return why a convolution is not run: types, weights of unknown shape, or more than three axes of space."""
    weights = node.input(1)
    shape = getattr(weights.type, "shape", None) if isinstance(weights, Value) else None
    if shape is None or not 3 <= len(shape) <= 5:
        return "only convolutions over one to three axes of space with weights of known rank are run"
    return _refuse_type(node, CONVOLUTION_TYPES)


def lower_convolution(facts: LoweredNode) -> None:
    """Convolve by the library; the bias joins the next elementwise kernel."""
    x, weights = facts.builder.dense(facts.value(0)), facts.builder.dense(facts.value(1))
    space = len(x.shape) - 2
    strides = facts.node.ints_attribute("strides") or (1,) * space
    dilations = facts.node.ints_attribute("dilations") or (1,) * space
    extent = [dilation * (size - 1) + 1 for dilation, size in zip(dilations, weights.shape[2:], strict=True)]
    before, after = window_pads(facts.node, x.shape[2:], extent, strides)
    sizes = [
        (size + b + a - window) // stride + 1
        for size, b, a, window, stride in zip(x.shape[2:], before, after, extent, strides, strict=True)
    ]
    shape = (x.shape[0], weights.shape[0], *sizes)
    out = facts.builder.temporary(x.dtype, shape) if facts.has(2) else facts.builder.result(facts.output, shape)
    if out.size:
        groups = facts.node.int_attribute("group", 1)
        facts.builder.add(Convolution(x, weights, out, before, after, tuple(strides), tuple(dilations), groups))
    if facts.has(2):
        _define_sum(facts, out, along_axis(facts.tensor(2), shape, 1))


def refuse_transposed(node: Node) -> str | None:
    """Return why a transposed convolution is not run: as a convolution, or sizes that a run does not know."""
    if node.string_attribute("auto_pad", "NOTSET") not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        return "ConvTranspose with this auto_pad is not run"
    return refuse_convolution(node)


def lower_transposed(facts: LoweredNode) -> None:
    """Run the transpose of a convolution by the library; the bias joins the next elementwise kernel."""
    x, weights = facts.builder.dense(facts.value(0)), facts.builder.dense(facts.value(1))
    space = len(x.shape) - 2
    strides = facts.node.ints_attribute("strides") or (1,) * space
    dilations = facts.node.ints_attribute("dilations") or (1,) * space
    extent = [dilation * (size - 1) + 1 for dilation, size in zip(dilations, weights.shape[2:], strict=True)]
    groups = facts.node.int_attribute("group", 1)
    sizes, before, after = _transposed_sizes(facts.node, x.shape[2:], extent, strides)
    shape = (x.shape[0], weights.shape[1] * groups, *sizes)
    out = facts.builder.temporary(x.dtype, shape) if facts.has(2) else facts.builder.result(facts.output, shape)
    if out.size:
        step = Convolution(x, weights, out, before, after, tuple(strides), tuple(dilations), groups, is_transposed=True)
        facts.builder.add(step)
    if facts.has(2):
        _define_sum(facts, out, along_axis(facts.tensor(2), shape, 1))


def _transposed_sizes(
    node: Node, sizes: Sequence[int], extent: Sequence[int], strides: Sequence[int]
) -> tuple[Shape, Shape, Shape]:
    """Return the result's sizes and the padding that is cut off before and behind."""
    space = range(len(sizes))
    added = node.ints_attribute("output_padding") or (0,) * len(sizes)
    full = [(sizes[a] - 1) * strides[a] + extent[a] + added[a] for a in space]
    wanted = node.ints_attribute("output_shape")
    mode = node.string_attribute("auto_pad", "NOTSET")
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = tuple(sizes[a] * strides[a] for a in space)
    if wanted is None:
        pads = (node.ints_attribute("pads") if mode != "VALID" else None) or (0,) * (2 * len(sizes))
        before, after = tuple(pads[: len(sizes)]), tuple(pads[len(sizes) :])
        return tuple(full[a] - before[a] - after[a] for a in space), before, after
    total = [max(full[a] - wanted[-len(sizes) :][a], 0) for a in space]  # what lies beyond all windows stays zero
    small, large = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    before, after = (small, large) if mode == "SAME_UPPER" else (large, small)
    return tuple(wanted[-len(sizes) :]), before, after


def window_pads(node: Node, sizes: Sequence[int], extent: Sequence[int], strides: Sequence[int]) -> tuple[Shape, Shape]:
    """Return how far windows reach beyond each side of the space: ``pads``, or computed as ``auto_pad`` says."""
    mode = node.string_attribute("auto_pad", "NOTSET")
    space = len(sizes)
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        needed = [
            max(0, (-(-size // stride) - 1) * stride + window - size)
            for size, stride, window in zip(sizes, strides, extent, strict=True)
        ]
        small, large = tuple(n // 2 for n in needed), tuple(n - n // 2 for n in needed)
        return (small, large) if mode == "SAME_UPPER" else (large, small)
    pads = node.ints_attribute("pads") if mode != "VALID" else None
    pads = pads or (0,) * (2 * space)
    return tuple(pads[:space]), tuple(pads[space:])


def _refuse_type(node: Node, allowed: frozenset[DataType]) -> str | None:
    for value in node.present_inputs():
        if element_type(value) not in allowed:
            return f"{node.op_type} of {element_type(value).text} is not run by the libraries"
    return None
