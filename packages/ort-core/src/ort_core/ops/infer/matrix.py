"""Matrix products: MatMul and its relatives, Gemm, Einsum, Det."""

from __future__ import annotations

from ort_core.ir.dims import Dim
from ort_core.ir.types import Shape
from ort_core.ops.infer_rule import infer_rule
from ort_core.ops.inference_context import InferenceContext
from ort_core.ops.shape_arithmetic import broadcast, broadcast_dims, same_dim


def matmul_shape(ctx: InferenceContext, left: Shape | None, right: Shape | None) -> Shape | None:
    """Return the shape of ``numpy.matmul``; refuses inner sizes that differ."""
    if left is None or right is None:
        return None
    if not left or not right:
        ctx.refuse("Input tensors of wrong rank (0).")
    rows: Shape = left[-2:-1] if len(left) > 1 else ()
    columns: Shape = right[-1:] if len(right) > 1 else ()
    inner = right[-2] if len(right) > 1 else right[0]
    if isinstance(left[-1], int) and isinstance(inner, int) and left[-1] != inner:
        ctx.refuse(f"Incompatible dimensions for matrix multiplication: {left[-1]} and {inner}")
    batch = broadcast(ctx, (left[:-2], right[:-2]))
    return (*(batch or ()), *rows, *columns)


@infer_rule("MatMul", "MatMulInteger")
def infer_matmul(ctx: InferenceContext) -> None:
    """As ``numpy.matmul``."""
    ctx.set_shape(0, matmul_shape(ctx, ctx.shape(0), ctx.shape(1)))


@infer_rule("QLinearMatMul")
def infer_qlinear_matmul(ctx: InferenceContext) -> None:
    """The element type is that of the result's zero point."""
    ctx.set_output(0, ctx.dtype(7), matmul_shape(ctx, ctx.shape(0), ctx.shape(3)))


def gemm_shape(ctx: InferenceContext, left: int, right: int) -> Shape | None:
    """Return the shape of a product of two matrices with attributes ``transA`` and ``transB``."""
    a, b = ctx.shape_of_rank(left, 2), ctx.shape_of_rank(right, 2)
    if a is None or b is None:
        return None
    if ctx.int_of("transA"):
        a = a[::-1]
    if ctx.int_of("transB"):
        b = b[::-1]
    same_dim(ctx, a[1], b[0], "the inner size")
    return (a[0], b[1])


@infer_rule("Gemm")
def infer_gemm(ctx: InferenceContext) -> None:
    """The product of two matrices, either transposed or not."""
    ctx.set_shape(0, gemm_shape(ctx, 0, 1))


@infer_rule("Det")
def infer_det(ctx: InferenceContext) -> None:
    """The last two axes, of one size, are gone."""
    shape = ctx.shape_min_rank(0, 2)
    if shape is not None:
        same_dim(ctx, shape[-1], shape[-2], "the matrix size")
        ctx.set_shape(0, shape[:-2])


@infer_rule("Einsum")
def infer_einsum(ctx: InferenceContext) -> None:
    """Letters name sizes; those of the result remain."""
    equation = ctx.string_of("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != ctx.input_count:
        ctx.refuse(f"equation {equation!r} has {len(terms)} terms for {ctx.input_count} inputs")
    sizes: dict[str, Dim] = {}
    ellipsis: Shape | None = ()
    for index, term in enumerate(terms):
        shape = ctx.shape(index)
        if shape is None:
            if "..." in term:
                ellipsis = None
            for letter in term.replace("...", ""):
                sizes.setdefault(letter, None)
            continue
        middle = _bind_letters(ctx, term, shape, sizes)
        if middle is not None and ellipsis is not None:
            ellipsis = broadcast(ctx, (ellipsis, middle))
    result = right if arrow else _implicit_result(left)
    if "..." in result and ellipsis is None:
        return
    before, _, after = result.partition("...")
    unknown = [letter for letter in before + after if letter not in sizes]
    if unknown:
        ctx.refuse(f"equation {equation!r} has {unknown[0]!r} in its result only")
    middle = ellipsis if "..." in result and ellipsis is not None else ()
    ctx.set_shape(0, (*(sizes[c] for c in before), *middle, *(sizes[c] for c in after)))


def _bind_letters(ctx: InferenceContext, term: str, shape: Shape, sizes: dict[str, Dim]) -> Shape | None:
    before, dots, after = term.partition("...")
    named = len(before) + len(after)
    if len(shape) < named or (not dots and len(shape) != named):
        ctx.refuse(f"Einsum term {term!r} does not fit rank {len(shape)}")
    end = len(shape) - len(after)
    for letter, dim in (*zip(before, shape, strict=False), *zip(after, shape[end:], strict=True)):
        sizes[letter] = broadcast_dims(ctx, sizes[letter], dim) if letter in sizes else dim
    return shape[len(before) : end] if dots else None


def _implicit_result(left: str) -> str:
    letters = left.replace("...", "").replace(",", "")
    once = sorted(c for c in set(letters) if letters.count(c) == 1)
    return ("..." if "..." in left else "") + "".join(once)
