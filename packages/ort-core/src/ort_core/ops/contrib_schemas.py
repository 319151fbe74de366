"""Schemas of the operators that onnxruntime has beyond ONNX, from the compact texts in ``ops/contrib``."""

from __future__ import annotations

import functools
from dataclasses import replace

from ort_core.ops.bodies.table import find_body
from ort_core.ops.contrib import (
    attention,
    blocked_layout,
    experimental,
    fused_layers,
    generation,
    matrix,
    ordered_quantization,
    quantization,
    tensors,
)
from ort_core.ops.contrib.notation import parse_schemas
from ort_core.ops.schema import OpSchema

TEXTS = tuple(
    (module.DOMAIN, module.SCHEMAS)
    for module in (
        attention,
        blocked_layout,
        experimental,
        fused_layers,
        generation,
        matrix,
        ordered_quantization,
        quantization,
        tensors,
    )
)


def find_contrib_schema(domain: str, op_type: str, opset: int) -> OpSchema | None:
    """Return the newest schema of an operator not above ``opset``, or ``None``; a ``SchemaSource``.

    In ai.onnx it knows only what ``onnx`` itself does not, so it belongs behind ``find_onnx_schema``.
    """
    for schema in _schemas().get((domain, op_type), ()):
        if schema.since_version <= opset:
            return schema
    return None


def contrib_schemas() -> tuple[OpSchema, ...]:
    """Return every schema, sorted by domain, operator and version."""
    return tuple(schema for _, versions in sorted(_schemas().items()) for schema in reversed(versions))


@functools.cache
def _schemas() -> dict[tuple[str, str], tuple[OpSchema, ...]]:
    found: dict[tuple[str, str], list[OpSchema]] = {}
    for domain, text in TEXTS:
        for schema in parse_schemas(text, domain):
            body = find_body(schema)
            known = schema if body is None else replace(schema, build_body=body)
            found.setdefault((schema.domain, schema.op_type), []).append(known)
    return {key: tuple(sorted(schemas, key=lambda s: -s.since_version)) for key, schemas in found.items()}
