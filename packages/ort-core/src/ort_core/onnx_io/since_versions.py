"""Which version of an operator an opset has, by ONNX's own table."""

from __future__ import annotations

import functools

import onnx.defs


@functools.cache
def is_same_operator(domain: str, op_type: str, opset: int, other: int) -> bool:
    """Return whether two opsets have the same version of an operator; not of one that ONNX does not know."""
    try:
        found = [onnx.defs.get_schema(op_type, each, domain).since_version for each in (opset, other)]
    except onnx.defs.SchemaError:
        return False
    return found[0] == found[1]
