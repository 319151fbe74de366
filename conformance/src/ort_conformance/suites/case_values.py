"""Values and versions of generated cases: seeded numbers by element type, and the opsets where an operator changed."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from ort_conformance.suites.model_text import OPSET, seeded

Shape = tuple[int, ...]
OLDEST = 7  # the oldest opset that ort-core promises


def numbers(facts: Sequence[object], shape: Shape, dtype: str, low: float = -3.0, high: float = 3.0) -> np.ndarray:
    """Return seeded numbers of a type within an interval; integers and truth values are scaled to fit."""
    generator = seeded(*facts, shape, dtype)
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return generator.random(shape) > 0.5
    if kind.kind in "iu":
        bottom = 0 if kind.kind == "u" else int(low * 3)
        return generator.integers(max(bottom, 1 if low > 0 else bottom), int(high * 3) + 1, shape).astype(kind)
    return generator.uniform(low, high, shape).astype(kind)


@functools.cache
def accepted_types(op_type: str, opset: int) -> frozenset[str]:
    """Return the numpy names of element types that the first input of an operator takes."""
    schema = onnx.defs.get_schema(op_type, opset, "")
    label = schema.inputs[0].type_str
    constraint = next((c for c in schema.type_constraints if c.type_param_str == label), None)
    texts = constraint.allowed_type_strs if constraint is not None else [label]
    names = {text.removeprefix("tensor(").removesuffix(")") for text in texts}
    return frozenset({"float": "float32", "double": "float64"}.get(name, name) for name in names)


def versions(op_type: str, *, newest: int = OPSET) -> list[int]:
    """Return an opset for each meaning of an operator: each version from the oldest promised opset on."""
    changes = [version for version in _changes().get(op_type, ()) if version <= newest]
    before = [version for version in changes if version <= OLDEST]
    return sorted({*(version for version in changes if version > OLDEST), *([OLDEST] if before else [])})


@functools.cache
def _changes() -> Mapping[str, set[int]]:
    """Return for each operator of ONNX the opsets in which it changed."""
    found = defaultdict[str, set[int]](set)
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            found[schema.name].add(schema.since_version)
    return found


def shape_text(*shapes: Shape) -> str:
    """Return shapes as they stand in names of cases: ``2x3_scalar``."""
    return "_".join("x".join(map(str, shape)) or "scalar" for shape in shapes)
