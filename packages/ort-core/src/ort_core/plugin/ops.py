"""Operators for plugin authors (provisional): the schemas that the hook ``ort_custom_ops`` returns with kernels."""

from __future__ import annotations

from ort_core.ops.schema import AttributeSchema, OpSchema, Parameter, ParameterOption

__all__ = ["AttributeSchema", "OpSchema", "Parameter", "ParameterOption"]
