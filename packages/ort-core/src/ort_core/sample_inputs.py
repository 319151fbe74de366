"""Values to measure a model with where the caller gave none: sizes that nobody fixed count as 1.

Numbers are drawn around zero from a fixed seed; integers are ones, which are valid as indices, masks and sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType, TensorType
from ort_core.ir.values import Value

_SEED = 20
MAX_NBYTES = 1 << 30  # of one input: a declared size above is not a sample


def sample_inputs(inputs: Sequence[Value], given: Mapping[str, object]) -> dict[str, object] | Rejection:
    """Return a value for each input without a default: the caller's, or one made up; or why there is none."""
    generator = np.random.default_rng(_SEED)
    sizes = _sizes_of(inputs, given)
    found: dict[str, object] = {}
    for value in inputs:
        if value.name in given:
            found[value.name] = given[value.name]
        elif value.constant is None:
            made = _made_up(value, sizes, generator)
            if isinstance(made, Rejection):
                return made
            found[value.name] = made
    return found


def _sizes_of(inputs: Sequence[Value], given: Mapping[str, object]) -> dict[str, int]:
    """Return the named sizes that the caller's values fix."""
    sizes: dict[str, int] = {}
    for value in inputs:
        array = given.get(value.name)
        if isinstance(array, np.ndarray) and isinstance(value.type, TensorType) and value.type.shape is not None:
            for dim, size in zip(value.type.shape, array.shape, strict=False):
                if dim is not None and not isinstance(dim, int):
                    sizes[str(dim)] = size
    return sizes


def _made_up(value: Value, sizes: Mapping[str, int], generator: np.random.Generator) -> np.ndarray | Rejection:
    if not isinstance(value.type, TensorType) or value.type.shape is None:
        return Rejection(f"input {value.name!r} of type {value.type} has no known rank; give it in sample_inputs")
    dtype = value.type.dtype
    shape = tuple(dim if isinstance(dim, int) else sizes.get(str(dim), 1) for dim in value.type.shape)
    if dtype is DataType.STRING:
        return np.full(shape, "a", object)
    if float(np.prod(shape, dtype=np.float64)) * max(1, dtype.bits // 8) > MAX_NBYTES:
        return Rejection(f"input {value.name!r} would take more than {MAX_NBYTES} bytes; give it in sample_inputs")
    if dtype.numpy.kind == "f":
        return generator.standard_normal(shape).astype(dtype.numpy)
    return np.ones(shape).astype(dtype.numpy)
