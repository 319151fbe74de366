"""Operators for plugin authors (provisional): schemas for the hook ``ort_custom_ops``, known contents of tensors."""

from __future__ import annotations

from ort_core.ops.known_contents import known_contents
from ort_core.ops.schema import AttributeSchema, OpSchema, Parameter, ParameterOption

__all__ = ["AttributeSchema", "OpSchema", "Parameter", "ParameterOption", "known_contents"]
