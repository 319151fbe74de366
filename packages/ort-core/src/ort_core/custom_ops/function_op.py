"""ONNX functions as operators: every node of the operator is a call, inlined and optimized with the rest."""

from __future__ import annotations

from ort_core.custom_ops.definition import OpDefinition
from ort_core.onnx_io.function_source import is_function_source, load_function


def is_function(candidate: object) -> bool:
    """Return whether something is an ONNX function: a FunctionProto, its bytes, its text, or what makes one."""
    return is_function_source(candidate)


def function_definition(source: object, since_version: int = 1) -> OpDefinition:
    """Return the operator that an ONNX function defines, from ``since_version`` of its domain on.

    Raises:
        InvalidGraph: it is not a valid function.
    """
    function = load_function(source)
    origin = f"ONNX function {function.domain}::{function.name}"
    return OpDefinition(function.domain, function.name, since_version, function=function, origin=origin)
