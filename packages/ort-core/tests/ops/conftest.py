"""Registries for the tests of shape inference, built once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ort_core.ir.model import Model
from ort_core.onnx_io.schemas import find_onnx_schema
from ort_core.onnx_io.text import parse_model
from ort_core.ops.contrib_schemas import find_contrib_schema
from ort_core.ops.infer.all_rules import build_rules
from ort_core.ops.infer_rule import InferenceRules
from ort_core.ops.inference_report import InferenceReport
from ort_core.ops.registry import SchemaRegistry
from ort_core.ops.shape_inference import infer_types

Infer = Callable[..., tuple[Model, InferenceReport]]


@pytest.fixture(scope="session")
def schemas() -> SchemaRegistry:
    """Schemas of ONNX and of onnxruntime's own operators."""
    return SchemaRegistry(find_onnx_schema, find_contrib_schema)


@pytest.fixture(scope="session")
def rules() -> InferenceRules:
    """All rules."""
    return build_rules()


@pytest.fixture
def infer(schemas: SchemaRegistry, rules: InferenceRules) -> Infer:
    """Infer a model given as the text of its graph (and functions), at opset 18."""

    def run(graph: str, **options: object) -> tuple[Model, InferenceReport]:
        opset = options.pop("opset", 18)
        header = f'<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1, "local" : 1]>'
        model = parse_model(f"{header}\n{graph}")
        return model, infer_types(model, schemas, rules, **options)  # type: ignore[arg-type]  # given by the tests

    return run
