"""Indices that are computed on the device: claimed where they are proven to lie within their axis, refused else."""

from __future__ import annotations

import pytest

from ort_core.plugin import Claim, Rejection
from ort_core.testing.claims import typed_model, view_of
from ort_core.testing.models import model_of
from ort_ep_directml.capability import find_capability

LEVEL = 0x6400


def claimed(text: str) -> tuple[list[str], dict[str, str]]:
    found = find_capability(view_of(typed_model(model_of(text))), LEVEL)
    operators = [node.op_type for each in found if isinstance(each, Claim) for node in each.nodes]
    return operators, {each.node.op_type: each.reason for each in found if isinstance(each, Rejection)}


@pytest.mark.parametrize(
    "text",
    [
        "g (float[4,3] x, int64[2] i) => (float[2,3] y) { y = Gather(x, i) }",
        "g (float[4,3] x, int64[2,1] i) => (float[2,3] y) { k = Flatten<axis=2>(i) j = Squeeze(i) y = Gather(x, j) }",
        "g (float[4,3] x) => (float[2,3] y) <int64[2] i = {0, -4}> { y = Gather(x, i) }",
        "g (float[4,3] x, float[5,4] z) => (float[5,3] y) { i = ArgMax<axis=1, keepdims=0>(z)  y = Gather(x, i) }",
    ],
    ids=["given", "a view of what is given", "constant", "proven"],
)
def test_indices_that_somebody_looks_at_are_claimed(text):
    operators, reasons = claimed(text)
    assert "Gather" in operators, reasons


@pytest.mark.parametrize(
    "text",
    [
        "g (float[4,3] x, int64[2] i) => (float[2,3] y) { j = Abs(i)  y = Gather(x, j) }",
        "g (float[4,3] x, int64[2] i) => (float[2,3] y) { j = Add(i, i)  k = Identity(j)  y = Gather(x, k) }",
        "g (float[4,3] x, float[5,9] z) => (float[5,3] y) { i = ArgMax<axis=1, keepdims=0>(z)  y = Gather(x, i) }",
        "g (float[N,3] x, float[5,4] z) => (float[5,3] y) { i = ArgMax<axis=1, keepdims=0>(z)  y = Gather(x, i) }",
    ],
    ids=["computed", "a view of what is computed", "wider than the axis", "an axis of unknown size"],
)
def test_indices_that_nobody_looks_at_are_refused(text):
    operators, reasons = claimed(text)
    assert "Gather" not in operators
    assert "nobody looks" in reasons["Gather"]
