"""Attentions of drawn sizes and spellings: fused, they give the same results in both engines, and nothing raises."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from spelled_attentions import spelled_attention

import ort_core
from ort_core.tolerances import tolerance
from ort_transformers import FusionOptions, fuse_model


def _run(engine: Any, model: onnx.ModelProto, feeds: dict[str, np.ndarray], *, is_plain: bool = False) -> np.ndarray:
    options = engine.SessionOptions()
    if is_plain:
        options.graph_optimization_level = engine.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = engine.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


@pytest.mark.parametrize("seed", [*range(24), *(pytest.param(seed, marks=pytest.mark.sweep) for seed in range(24, 64))])
def test_an_attention_of_any_size_and_spelling_is_fused_to_the_same_results(seed: int) -> None:
    model, feeds, drawn = spelled_attention(seed)
    wanted = _run(onnxruntime, model, feeds, is_plain=True)
    options = FusionOptions("bert")
    options.use_standard_operators = seed % 3 == 0
    fused, report = fuse_model(model, options)
    limits = tolerance("approximate", "float32")
    scale = max(1.0, float(np.abs(wanted).max()))
    for engine in (onnxruntime, ort_core):
        np.testing.assert_allclose(
            _run(engine, fused, feeds), wanted, limits.relative, limits.absolute * scale, err_msg=str(drawn)
        )
    if "replaced" in drawn or any(each.endswith(("1 of 1", " of 1")) or ", 1 of" in each for each in drawn):
        return  # numbers above the lowest do not equal an addend, and one token has no axes to tell apart
    assert report.num_attentions == (2 if "two" in drawn else 1), (report.unfused, drawn)
