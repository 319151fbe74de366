"""Schemas of onnxruntime's own operators, as plain facts."""

from __future__ import annotations

from ort_core.ops.schema import OpSchema


def find_contrib_schema(domain: str, op_type: str, opset: int) -> OpSchema | None:
    """Return the schema of an operator of onnxruntime's domains, or ``None``; a ``SchemaSource``."""
    return None
