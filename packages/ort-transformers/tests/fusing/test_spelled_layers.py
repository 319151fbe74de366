"""Layers in spellings drawn by chance: fused, they give the same results in both engines, and nothing raises."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from spelled_layers import spelled_layer

import ort_core
from ort_core.tolerances import tolerance
from ort_transformers import FusionOptions, fuse_model
from ort_transformers.fusion_options import AttentionOpType


def _options(target: str) -> FusionOptions:
    options = FusionOptions("gpt2")
    options.use_standard_operators = target == "standard"
    if target == "multi-head":
        options.set_attention_op_type(AttentionOpType.MultiHeadAttention)
    return options


def _run(engine: object, model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> np.ndarray:
    made = engine.InferenceSession  # type: ignore[attr-defined]  # both have it
    session = made(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.sweep(parts=8)) for seed in range(12, 160))]
)
def test_a_layer_in_any_spelling_is_fused_to_the_same_results(seed: int) -> None:
    model, feeds, drawn = spelled_layer(seed)
    wanted = _run(onnxruntime, model, feeds)
    target = ("default", "standard", "multi-head")[seed % 3]
    fused, report = fuse_model(model, _options(target))
    limits = tolerance("approximate", "float32")
    scale = max(1.0, float(np.abs(wanted).max()))
    for engine in (onnxruntime, ort_core):
        np.testing.assert_allclose(
            _run(engine, fused, feeds), wanted, limits.relative, limits.absolute * scale, err_msg=f"{target} {drawn}"
        )
    # A bound is beyond MultiHeadAttention, and GroupQueryAttention takes no cache where nobody asks for it.
    stays = "bounded" in drawn and (target == "multi-head" or (target == "default" and "past" in drawn))
    assert len(report.unfused) == stays, (report.unfused, drawn)
    assert report.num_norms == 2, drawn
