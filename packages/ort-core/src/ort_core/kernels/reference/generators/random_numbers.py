"""Random tensors: RandomNormal, RandomUniform, their Like forms, Bernoulli and Multinomial.

With an attribute ``seed`` a node gives onnxruntime's numbers (``minimal_standard``) and goes on in that sequence from
run to run; without one it draws from the session's generator.
"""

from __future__ import annotations

import math

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.ir.types import DataType
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.element_conversion import convert
from ort_core.kernels.reference.arrays.widening import computing_dtype, widen
from ort_core.kernels.reference.elementwise.cast import element_type
from ort_core.kernels.reference.generators.minimal_standard import MinimalStandard

_POSITION = "minimal_standard_position"


def _result_type(dtype: int | None, like: np.ndarray | None, ctx: KernelContext) -> DataType:
    """Return the output's element type: the attribute ``dtype``, else the type of the input."""
    if dtype is None and like is not None:
        dtype = DataType.from_numpy(like.dtype)
    found = DataType(dtype) if dtype in set(DataType) else DataType.UNDEFINED
    if not found.is_float:
        raise InvalidArgument(
            f"Node ({ctx.node_name}) Op ({ctx.op_type}) [TypeInferenceError] Attribute dtype does not specify a valid "
            f"type in . It is {dtype}; expected float16, float, double or bfloat16"
        )
    return found


def _position(seed: float, ctx: KernelContext) -> MinimalStandard:
    if not math.isfinite(seed):
        raise InvalidArgument(f"{ctx.op_type}: attribute seed is {seed}; expected a finite number")
    return ctx.state.get(_POSITION) or MinimalStandard.seeded(int(seed) & 0xFFFFFFFF)


def _uniforms(count: int, dtype: np.dtype, seed: float | None, ctx: KernelContext) -> np.ndarray:
    """Return ``count`` float32 or float64 numbers in [0, 1)."""
    if seed is None:
        return ctx.generator(None).random(count, dtype)
    values, ctx.state[_POSITION] = _position(seed, ctx).uniforms(count, dtype)
    return values


def _normals(count: int, dtype: np.dtype, seed: float | None, ctx: KernelContext) -> np.ndarray:
    if seed is None:
        return ctx.generator(None).standard_normal(count, dtype)
    values, ctx.state[_POSITION] = _position(seed, ctx).normals(count, dtype)
    return values


def _count(shape: tuple[int, ...], ctx: KernelContext) -> int:
    if any(dim < 0 for dim in shape):
        raise InvalidArgument(f"{ctx.op_type}: shape {shape} has a negative dimension")
    count = math.prod(shape)
    ctx.guard.check_allocation(count * 8, f"the output of {ctx.op_type}, shape {shape}")
    return count


def _normal(
    shape: tuple[int, ...], target: DataType, mean: float, scale: float, seed: float | None, ctx: KernelContext
) -> np.ndarray:
    dtype = computing_dtype(target.numpy)
    drawn = _normals(_count(shape, ctx), dtype, seed, ctx) * dtype.type(scale) + dtype.type(mean)
    return convert(drawn.reshape(shape), target)


def _uniform(
    shape: tuple[int, ...], target: DataType, low: float, high: float, seed: float | None, ctx: KernelContext
) -> np.ndarray:
    dtype = computing_dtype(target.numpy)
    drawn = _uniforms(_count(shape, ctx), dtype, seed, ctx) * dtype.type(high - low) + dtype.type(low)
    return convert(drawn.reshape(shape), target)


@kernel("RandomNormal")
@np.errstate(all="ignore")
def random_normal(
    *,
    shape: tuple[int, ...],
    dtype: int = 1,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    ctx: KernelContext,
) -> np.ndarray:
    """Return normally distributed numbers."""
    return _normal(shape, _result_type(dtype, None, ctx), mean, scale, seed, ctx)


@kernel("RandomNormalLike")
@np.errstate(all="ignore")
def random_normal_like(
    x: np.ndarray,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    ctx: KernelContext,
) -> np.ndarray:
    """Return normally distributed numbers in the shape of ``x``."""
    return _normal(x.shape, _result_type(dtype, x, ctx), mean, scale, seed, ctx)


@kernel("RandomUniform")
@np.errstate(all="ignore")
def random_uniform(
    *,
    shape: tuple[int, ...],
    dtype: int = 1,
    low: float = 0.0,
    high: float = 1.0,
    seed: float | None = None,
    ctx: KernelContext,
) -> np.ndarray:
    """Return numbers evenly distributed in [low, high)."""
    return _uniform(shape, _result_type(dtype, None, ctx), low, high, seed, ctx)


@kernel("RandomUniformLike")
@np.errstate(all="ignore")
def random_uniform_like(
    x: np.ndarray,
    *,
    dtype: int | None = None,
    low: float = 0.0,
    high: float = 1.0,
    seed: float | None = None,
    ctx: KernelContext,
) -> np.ndarray:
    """Return numbers evenly distributed in [low, high), in the shape of ``x``."""
    return _uniform(x.shape, _result_type(dtype, x, ctx), low, high, seed, ctx)


@kernel("Bernoulli", since=15)
@np.errstate(all="ignore")
def bernoulli(x: np.ndarray, *, dtype: int | None = None, seed: float | None = None, ctx: KernelContext) -> np.ndarray:
    """Return 1 with the probability that ``x`` gives, else 0."""
    probability = widen(x)
    drawn = _uniforms(_count(x.shape, ctx), probability.dtype, seed, ctx).reshape(x.shape)
    target = DataType.from_numpy(x.dtype) if dtype is None else element_type("Bernoulli", dtype)
    return convert(drawn < probability, target)


@kernel("Multinomial", since=7)
@np.errstate(all="ignore")
def multinomial(
    x: np.ndarray, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None, ctx: KernelContext
) -> np.ndarray:
    """Return ``sample_size`` class numbers for each row of unnormalized log-probabilities [batch, classes]."""
    if x.ndim != 2 or x.shape[1] < 1 or sample_size < 1:
        raise InvalidArgument(
            f"Multinomial: input of shape {x.shape} and sample_size {sample_size}; expected [batch, classes] with at "
            "least one class, and at least one sample"
        )
    if dtype not in (DataType.INT32, DataType.INT64):
        raise InvalidArgument(f"Output type not supported in Multinomial: {dtype}; expected int32 (6) or int64 (7)")
    shape = (x.shape[0], sample_size)
    drawn = _uniforms(_count(shape, ctx), np.dtype(np.float64), seed, ctx).reshape(shape)
    logits = x.astype(np.float64)
    peak = np.max(logits, axis=1, keepdims=True, initial=-np.inf, where=np.isfinite(logits))
    weights = np.where(np.isfinite(logits), np.exp(logits - peak), 0)
    bounds = np.cumsum(weights, axis=1)
    chosen = np.sum(bounds[:, np.newaxis, :] <= (drawn * bounds[:, -1:])[:, :, np.newaxis], axis=2)
    return np.minimum(chosen, x.shape[1] - 1).astype(DataType(dtype).numpy)
