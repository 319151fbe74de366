"""Names for sizes that nobody named: reserved symbols starting with ``?``, so that equal unknown sizes stay equal."""

from __future__ import annotations

import functools

from ort_core.ir.dims import Dim, SymbolicDim
from ort_core.ir.types import Shape

UNKNOWN_PREFIX = "?"


def unknown_dim(owner: str, axis: int) -> SymbolicDim:
    """Return the anonymous size of ``axis`` of the value ``owner``."""
    return SymbolicDim.named(f"{UNKNOWN_PREFIX}{owner}_{axis}")


def is_unknown(dim: Dim) -> bool:
    """Return whether a dimension is unknown to a user: ``None``, or an expression with an anonymous size in it."""
    if dim is None:
        return True
    return isinstance(dim, SymbolicDim) and _has_unknown(dim)


@functools.lru_cache(maxsize=65536)
def _has_unknown(dim: SymbolicDim) -> bool:
    return any(name.startswith(UNKNOWN_PREFIX) for name in dim.symbols())


def name_unknown(shape: Shape, owner: str) -> Shape:
    """Return a shape with every ``None`` replaced by an anonymous size of ``owner``."""
    if None not in shape:
        return shape
    return tuple(unknown_dim(owner, axis) if dim is None else dim for axis, dim in enumerate(shape))
