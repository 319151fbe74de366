"""Types of the ``onnx`` package that other programs expect to meet: its backend interface and its schema list."""

from __future__ import annotations

import onnx.defs
from onnx.backend.base import Backend, BackendRep

__all__ = ["Backend", "BackendRep", "all_operator_schemas"]


def all_operator_schemas() -> list[onnx.defs.OpSchema]:
    """Return onnx's schema of every version of every standard operator."""
    return list(onnx.defs.get_all_schemas_with_history())
