"""Real models: at least as much is known as ``onnx.shape_inference`` with data propagation finds."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import onnx.shape_inference
import pytest

from ort_core.ir.traversal import walk
from ort_core.ir.types import TensorType
from ort_core.onnx_io.load import load_model
from ort_core.ops.inference_report import NoteKind
from ort_core.ops.shape_inference import infer_types

DATA = os.environ.get("ORT_TEST_DATA", "")
MODELS = sorted(Path(DATA, "models", "real").rglob("*.onnx")) if DATA else []
if not MODELS:
    pytest.skip("ORT_TEST_DATA is not set to a folder with models/real", allow_module_level=True)
MAX_CALLS = 1000  # of functions for each node; today 110 to 470


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.parent.name)
def test_real_model_is_inferred_at_least_as_well_as_by_onnx(path, schemas, rules, calls_of):
    proto = onnx.load(path)
    del proto.graph.value_info[:]
    model = load_model(proto)
    count = sum(1 for _ in walk(model.graph))
    calls, report = calls_of(infer_types, model, schemas, rules)
    assert calls < MAX_CALLS * count, f"{calls} calls for {count} nodes"
    assert report.of_kind(NoteKind.TYPE, NoteKind.REFUSAL, NoteKind.GAP) == ()
    ours = {v.name: v for node in walk(model.graph) for v in node.present_outputs()}
    for info in onnx.shape_inference.infer_shapes(proto, data_prop=True).graph.value_info:
        value = ours.get(info.name)
        if value is None or not info.type.tensor_type.HasField("shape"):
            continue
        assert isinstance(value.type, TensorType)
        assert int(value.type.dtype) == info.type.tensor_type.elem_type
        theirs = [d.dim_value if d.HasField("dim_value") else None for d in info.type.tensor_type.shape.dim]
        assert value.shape is not None, f"onnx knows the rank of {info.name}"
        assert len(value.shape) == len(theirs)
        assert all(b is None or a == b for a, b in zip(value.shape, theirs, strict=True)), info.name
