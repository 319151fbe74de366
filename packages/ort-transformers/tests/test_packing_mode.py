"""Packing mode: the tokens that count alone, or the model as it was, with the reason."""

from __future__ import annotations

import copy
import importlib

import numpy as np
import onnx
import pytest
from exported_graphs import encoder, encoder_feeds

import ort_core
from ort_core.tolerances import tolerance
from ort_transformers.onnx_model_bert import BertOnnxModel
from ort_transformers.optimizer import optimize_model


def result_of(model: onnx.ModelProto) -> np.ndarray:
    """Return the output for two sentences, the second of them padded."""
    return np.asarray(ort_core.InferenceSession(model.SerializeToString()).run(None, encoder_feeds())[0])


def test_packing_mode_computes_the_tokens_that_count():
    optimized = optimize_model(encoder())
    expected = result_of(optimized.model)
    optimized.convert_to_packing_mode()
    kinds = optimized.get_operator_statistics()
    assert {name: kinds[name] for name in ("PackedMultiHeadAttention", "RemovePadding", "RestorePadding")} == {
        "PackedMultiHeadAttention": 1, "RemovePadding": 1, "RestorePadding": 1,
    }  # fmt: skip
    found = result_of(optimized.model)
    counts = encoder_feeds()["attention_mask"] == 1
    limits = tolerance("approximate", "float32")
    np.testing.assert_allclose(found[counts], expected[counts], limits.relative, limits.absolute)
    assert not found[~counts].any()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ("two masks", "several masks"),
        ("left padding", "does more than to hide the padding"),
        ("no mask", "no mask that tells padding"),
        ("tokens mixed", "reads what other tokens take part in"),
        ("not fused", "fuse it first"),
    ],
)
def test_packing_mode_leaves_a_model_that_needs_its_padding(changed, reason, caplog):
    optimized = optimize_model(encoder()) if changed != "not fused" else BertOnnxModel(encoder())
    nodes = optimized.get_nodes_by_op_type("MultiHeadAttention")
    if changed == "no mask":
        nodes[0].input[5] = ""
    if changed == "left padding":
        hidden = optimized.get_nodes_by_op_type("Sub")[0]
        hidden.op_type, hidden.input[1] = "Identity", ""
        del hidden.input[1:]
        hidden.input[0] = optimized.get_nodes_by_op_type("Unsqueeze")[0].output[0]
    if changed == "two masks":
        other = copy.deepcopy(nodes[0])
        other.name, other.output[0], other.input[5] = "other", "other", ""
        optimized.model.graph.node.append(other)
    if changed == "tokens mixed":
        name = nodes[0].input[1]
        turned = onnx.helper.make_node("CumSum", [name, "turned_axis"], ["turned"])
        optimized.add_initializer(onnx.numpy_helper.from_array(np.array(1, np.int64), "turned_axis"))
        optimized.add_node(turned)
        nodes[0].input[1] = "turned"
    optimized.topological_sort()
    before = optimized.model.SerializeToString(deterministic=True)
    optimized.convert_to_packing_mode()
    assert reason in caplog.text
    assert optimized.model.SerializeToString(deterministic=True) == before


def test_one_operator_is_packed_by_the_class_of_its_name(caplog):
    packing = importlib.import_module("ort_transformers.convert_to_packing_mode")
    optimized = optimize_model(encoder())
    expected = optimize_model(encoder())
    packing.PackingMode(expected).convert()
    packing.PackingAttention(optimized).convert()
    assert "it has no Attention: fuse it first" in caplog.text
    packing.PackingMultiHeadAttention(optimized).convert()
    assert optimized.get_operator_statistics() == expected.get_operator_statistics()
    np.testing.assert_array_equal(result_of(optimized.model), result_of(expected.model))
    with pytest.raises(ValueError, match="'Gelu' has no packed form"):
        packing.PackingAttentionBase(optimized, "Gelu")
