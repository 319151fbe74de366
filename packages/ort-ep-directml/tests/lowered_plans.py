"""Graphs in ONNX text as the plans that their claims become; needs no DirectML."""

from __future__ import annotations

import onnx
from lowered_programs import FAMILIES, NEWER, OLDER, OPSET

from ort_core.plugin import Claim
from ort_core.testing.claims import request_for, typed_model, view_of
from ort_ep_directml.capability import find_capability
from ort_ep_directml.lowering.lowered import lower
from ort_ep_directml.lowering.plan import GraphPlan
from ort_ep_directml.schema.operators import parse_level

LEVEL = parse_level("6.2")
OPEN = 4  # what stands for sizes with names


def model_of_text(text: str, opset: int) -> onnx.ModelProto:
    """A model of a graph in ONNX text."""
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {text}')


def plans(text: str, opset: int, level: int = LEVEL) -> list[GraphPlan]:
    """The plans of a model's claims."""
    view = view_of(typed_model(model_of_text(text, opset)))
    found = []
    for claim in find_capability(view, level):
        assert isinstance(claim, Claim), claim
        request = request_for(view, claim)
        shapes = [tuple(s if isinstance(s, int) else OPEN for s in v.shape or ()) for v in request.graph.inputs]
        found.append(lower(request, shapes, level))
    return found


def programs() -> dict[str, dict[str, tuple[str, int]]]:
    """Graphs and their opsets, by family and name."""
    found = {
        family: {name: (text, NEWER.get(name, OPSET)) for name, text in members.items()}
        for family, members in FAMILIES.items()
    }
    return {**found, "older": OLDER}
