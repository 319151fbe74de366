"""Matrix products with something folded in: transposes, a scale, an activation."""

from __future__ import annotations

from ort_core.ir.types import DataType
from ort_core.ir.values import Value
from ort_core.ops.bodies.activations import Results, activated, tanh_gelu
from ort_core.ops.bodies.writer import BodyWriter


def _oriented(w: BodyWriter, index: int, x: Value, transpose: str, transpose_batch: str) -> Value:
    """Return an operand as (batch..., rows, columns): first the batch rotation, then the last two axes."""
    rotates, turns = bool(w.int_of(transpose_batch)), bool(w.int_of(transpose))
    if not rotates and not turns:
        return x
    axes = list(range(w.rank(index)))
    if rotates:
        axes = [*axes[1:-1], 0, axes[-1]]
    if turns and len(axes) > 1:
        axes[-2:] = axes[:-3:-1]
    return w.transpose(x, *axes)


def _product(w: BodyWriter, alpha: float) -> Value:
    """Return alpha * op(A) @ op(B); in the type of A where nothing but the product is computed."""
    plain = alpha == 1.0 and w.node.op_type in _PLAIN
    a, b = (w.input(0), w.input(1)) if plain else (w.wide(0), w.wide(1))
    product = w.op("MatMul", _oriented(w, 0, a, "transA", "transBatchA"), _oriented(w, 1, b, "transB", "transBatchB"))
    return product if alpha == 1.0 else w.op("Mul", product, w.constant(alpha, w.computing()))


_PLAIN = frozenset({"FusedMatMul", "TransposeMatMul"})


def fused_matmul(w: BodyWriter) -> Results:
    """Y = alpha * op(A) @ op(B)."""
    alpha = w.float_of("alpha", 1.0)
    product = _product(w, alpha)
    return [product if alpha == 1.0 else w.narrow(product)]


def fused_matmul_activation(w: BodyWriter) -> Results:
    """Y = activation(alpha * op(A) @ op(B)); only Softmax uses ``activation_axis``."""
    product, name = _product(w, w.float_of("alpha", 1.0)), w.string_of("activation")
    if name == "Softmax":
        axis = w.attribute("activation_axis")
        return [w.narrow(w.op("Softmax", product, axis=-1 if axis is None else axis))]
    return [w.narrow(_activated(w, product, name))]


def _activated(w: BodyWriter, x: Value, name: str) -> Value:
    alpha, beta = (w.optional_float_of(f"activation_{each}") for each in ("alpha", "beta"))
    return activated(w, x, w.computing(), name, alpha, beta)


def fused_gemm(w: BodyWriter) -> Results:
    """Y = activation(alpha * op(A) @ op(B) + beta * C)."""
    total = _product(w, w.float_of("alpha", 1.0))
    if w.has(2):
        added, beta = w.wide(2), w.float_of("beta", 1.0)
        total = w.op("Add", total, added if beta == 1.0 else w.op("Mul", added, w.constant(beta, w.computing())))
    return [w.narrow(_activated(w, total, w.string_of("activation")))]


def gemm_fast_gelu(w: BodyWriter) -> Results:
    """Y = FastGelu(X @ W + bias)."""
    product = w.op("MatMul", w.wide(0), w.wide(1))
    return [w.narrow(tanh_gelu(w, w.sum(product, w.find_wide(2)), w.computing()))]


def matmul_integer16(w: BodyWriter) -> Results:
    """Y = A @ B of 16-bit integers, with 32-bit sums."""
    return [w.op("MatMul", *(w.cast(w.input(index), DataType.INT32) for index in (0, 1)))]
