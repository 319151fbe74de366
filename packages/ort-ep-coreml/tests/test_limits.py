"""Integers that Core ML does not look at: proven to lie within limits, looked at before each run, or refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import ort_core as ort
from ort_core.plugin import Rejection
from ort_core.testing.claims import typed_model, view_of
from ort_ep_coreml.capability import find_capability
from ort_ep_coreml.options import CoreMlOptions

HEADER = '<ir_version: 10, opset_import: ["" : 24, "com.microsoft" : 1]> '
BEYOND = {
    "seqlens_k of a shared cache": (
        "g (float[1,1,8] q, float[1,2,4,4] p) => (float[1,1,8] y, float[1,2,4,4] k, float[1,2,4,4] v) "
        "<int32[1] lengths = {BAD}, int32 total = {4}> "
        "{ y, k, v = com.microsoft.GroupQueryAttention<num_heads=2, kv_num_heads=2>(q, q, q, p, p, lengths, total) }",
        (3, 4),
    ),
    "total_sequence_length": (
        "g (float[1,1,8] q, float[1,2,4,4] p, int32[1] lengths) => "
        "(float[1,1,8] y, float[1,2,4,4] k, float[1,2,4,4] v) <int32 total = {BAD}> "
        "{ y, k, v = com.microsoft.GroupQueryAttention<num_heads=2, kv_num_heads=2>(q, q, q, p, p, lengths, total) }",
        (4, 0),
    ),
    "a first position": (
        "g (float[1,2,2,4] x, float[4,2] c) => (float[1,2,2,4] y) <int64[1] first = {BAD}> "
        "{ y = com.microsoft.RotaryEmbedding(x, first, c, c) }",
        (2, 3),
    ),
    "nonpad_kv_seqlen": (
        "g (float[1,1,2,4] q, float[1,1,3,4] k) => (float[1,1,2,4] y) <int64[1] n = {BAD}> "
        "{ y = Attention(q, k, k, , , , n) }",
        (3, 4),
    ),
    "a class": (
        "g (float[1,3] x) => (float y) <int64[1] t = {BAD}> { y = NegativeLogLikelihoodLoss(x, t) }",
        (2, 3),
    ),
    "a length of a sequence": (
        "g (float[3,1] x) => (float[3,1] y) <int64[1] n = {BAD}> "
        "{ y = ReverseSequence<time_axis=0, batch_axis=1>(x, n) }",
        (3, 4),
    ),
    "an index": ("g (float[3] x) => (float[1] y) <int64[1] i = {BAD}> { y = Gather(x, i) }", (-3, -4)),
}
"""ONNX text with a constant, a number of it that is right, and one beyond, by what it is."""


@pytest.mark.parametrize("name", BEYOND)
def test_a_constant_beyond_its_limits_is_refused_and_one_within_is_not(name):
    text, (right, beyond) = BEYOND[name]

    def answer(number: int) -> object:
        model = onnx.parser.parse_model(HEADER + text.replace("BAD", str(number)))
        (found,) = find_capability(view_of(typed_model(model)), CoreMlOptions())
        return found

    assert not isinstance(answer(right), Rejection)
    refused = answer(beyond)
    assert isinstance(refused, Rejection)
    assert "nothing proves" in refused.reason


def test_constant_indices_are_looked_at_axis_by_axis(view):
    text = "g (float[3,4] x) => (float[1] y) <int64[1,2] i = {-3,-4}> { y = GatherND(x, i) }"
    (found,) = find_capability(view(text), CoreMlOptions())
    assert not isinstance(found, Rejection), "each lies within its own axis"


def test_lengths_beyond_the_steps_are_computed_elsewhere(session, caplog):
    text = "g (float[3,2] x, int64[2] n) => (float[3,2] y) { y = ReverseSequence<time_axis=0, batch_axis=1>(x, n) }"
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    with session(text) as opened:
        assert opened.run(None, {"x": x, "n": np.array([2, 0])})[0].T.tolist() == [[2, 0, 4], [1, 3, 5]]
        with pytest.raises(ort.OrtError):
            opened.run(None, {"x": x, "n": np.array([2, 4])})
    assert "holds values outside of [0, 3]" in caplog.text
