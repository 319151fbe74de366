"""MatMul, Gemm, Det and Einsum: products of matrices and of tensors."""

from __future__ import annotations

import re

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.widening import is_float, narrow, widen
from ort_core.tensors.broadcasting import broadcast_shapes


def check_matmul_shapes(op_type: str, a: np.ndarray, b: np.ndarray) -> None:
    """Raise ``InvalidArgument`` when ``a`` and ``b`` cannot be multiplied as (stacks of) matrices."""
    inner_a = a.shape[-1] if a.ndim else None
    inner_b = (b.shape[-2] if b.ndim > 1 else b.shape[0]) if b.ndim else None
    if inner_a is None or inner_a != inner_b:
        raise InvalidArgument(
            f"MatMul dimension mismatch ({op_type}): shapes {a.shape} and {b.shape}; the last dimension of A "
            "must equal the last but one of B"
        )
    try:
        broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError as error:
        raise InvalidArgument(
            f"MatMul dimension mismatch ({op_type}): leading dimensions of {a.shape} and {b.shape} do not broadcast"
        ) from error


@kernel("MatMul")
@np.errstate(all="ignore")
def mat_mul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the matrix product, stacked over leading dimensions as ``numpy.matmul`` does."""
    check_matmul_shapes("MatMul", a, b)
    return narrow(np.matmul(widen(a), widen(b)), a.dtype)


@kernel("Gemm")
@np.errstate(all="ignore")
def gemm(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    broadcast: int = 0,
) -> np.ndarray:
    """Return alpha A' B' + beta C; C broadcasts to the product's shape."""
    if a.ndim != 2 or b.ndim != 2:
        raise InvalidArgument(f"Gemm: inputs A {a.shape} and B {b.shape} must be matrices")
    left, right = (a.T if transA else a), (b.T if transB else b)
    if left.shape[1] != right.shape[0]:
        raise InvalidArgument(
            f"GEMM: Dimension mismatch, W: {b.shape} K: {left.shape[1]} N: {right.shape[1]} "
            f"(A has shape {a.shape}, transA={transA}, transB={transB})"
        )
    product = _scaled(np.matmul(widen(left), widen(right)), alpha)
    if c is not None and beta != 0:
        try:
            addend = np.broadcast_to(_scaled(widen(c), beta), product.shape)
        except ValueError as error:
            raise InvalidArgument(f"Gemm: Invalid bias shape for broadcast: {c.shape} to {product.shape}") from error
        product = product + addend
    return narrow(product, a.dtype)


def _scaled(x: np.ndarray, factor: float) -> np.ndarray:
    if factor == 1:
        return x
    return x * x.dtype.type(factor) if is_float(x.dtype) else x * factor


@kernel("Det", since=11)
@np.errstate(all="ignore")
def det(x: np.ndarray) -> np.ndarray:
    """Return the determinants of a stack of square matrices."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise InvalidArgument(f"Det: input of shape {x.shape} is not a (stack of) square matrix")
    return narrow(np.linalg.det(x.astype(np.float64)), x.dtype)


_LETTERS = 52
_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")


@kernel("Einsum", since=12)
@np.errstate(all="ignore")
def einsum(*inputs: np.ndarray, equation: str) -> np.ndarray:
    """Return the Einstein sum that ``equation`` writes down."""
    text = equation.replace(" ", "")
    terms = text.split("->")[0].split(",")
    if text.count("->") > 1 or not all(map(_TERM.fullmatch, [*terms, *text.split("->")[1:]])):
        raise InvalidArgument(f"Einsum: equation {equation!r} holds more than letters, commas, '...' and one '->'")
    if len(terms) != len(inputs):
        raise InvalidArgument(f"Einsum: equation {equation!r} names {len(terms)} inputs, the node has {len(inputs)}")
    _check_repeated(terms, inputs, equation)
    try:
        result = np.einsum(text, *map(widen, inputs), optimize=_can_be_ordered(text, inputs))
    except ValueError as error:
        shapes = ", ".join(str(x.shape) for x in inputs)
        raise InvalidArgument(
            f"Einsum: equation {equation!r} does not fit inputs of shapes {shapes}: {error}"
        ) from error
    return narrow(result, inputs[0].dtype)


def _can_be_ordered(text: str, inputs: tuple[np.ndarray, ...]) -> bool:
    """Return whether numpy can look for a better order of products: it gives each axis of an ellipsis a letter, too."""
    letters = len(set(text) - set(",.->"))
    return len(inputs) > 1 and letters + max(x.ndim for x in inputs) <= _LETTERS


def _check_repeated(terms: list[str], inputs: tuple[np.ndarray, ...], equation: str) -> None:
    """Refuse a letter that stands twice in a term for unequal sizes, which numpy takes where one of them is 0 or 1."""
    for term, array in zip(terms, inputs, strict=True):
        head, _, tail = term.partition("...")
        sizes = [*zip(head, array.shape, strict=False), *zip(tail[::-1], array.shape[::-1], strict=False)]
        known: dict[str, int] = {}
        for letter, size in sizes:
            if known.setdefault(letter, size) != size:
                raise InvalidArgument(
                    f"Einsum: equation {equation!r} does not fit an input of shape {array.shape}: {letter!r} is "
                    f"{known[letter]} and {size}"
                )
