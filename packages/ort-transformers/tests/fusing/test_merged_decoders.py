"""Decoders with and without a past in one file, an If with two branches as optimum writes it, are fused in both."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from exported_graphs import encoder, encoder_feeds
from onnx import helper

import ort_core
from ort_core.tolerances import tolerance
from ort_transformers import fuse_model


def _branch(model: onnx.ModelProto, tag: str) -> onnx.GraphProto:
    """Return the nodes of a model as a branch that takes inputs and weights from around it."""
    taken = {each.name for each in (*model.graph.input, *model.graph.initializer)}
    branch = onnx.GraphProto(name=tag, node=model.graph.node, output=model.graph.output)
    for place, node in enumerate(branch.node):
        node.name = f"{tag}{place}"
        node.input[:] = [name if name in taken or not name else f"{tag}{name}" for name in node.input]
        node.output[:] = [f"{tag}{name}" for name in node.output]
    for value in branch.output:
        value.name = f"{tag}{value.name}"
    return branch


def _merged(first: onnx.ModelProto, second: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model that runs one or the other; both have the same weights."""
    results = [each.name for each in first.graph.output]
    chosen = helper.make_node(
        "If", ["use_cache_branch"], results, then_branch=_branch(first, "then_"), else_branch=_branch(second, "else_")
    )
    flag = helper.make_tensor_value_info("use_cache_branch", onnx.TensorProto.BOOL, [])
    weights = {each.name: each for each in (*first.graph.initializer, *second.graph.initializer)}
    graph = helper.make_graph(
        [chosen], "merged", [flag, *first.graph.input], list(first.graph.output), list(weights.values())
    )
    return helper.make_model(graph, opset_imports=first.opset_import, ir_version=first.ir_version)


@pytest.mark.parametrize("flag", [True, False])
def test_both_branches_are_fused_with_the_same_results(flag: bool):
    merged = _merged(encoder(), encoder(keys="[0, 2, 3, 1]"))
    fused, report = fuse_model(merged)
    assert (report.num_attentions, report.num_norms) == (2, 2), str(report)
    assert not report.unfused
    feeds = {**encoder_feeds(), "use_cache_branch": np.array(flag)}
    before = onnxruntime.InferenceSession(merged.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = before.run(None, feeds)
    limits = tolerance("approximate", "float32")
    for engine in (onnxruntime, ort_core):
        session = engine.InferenceSession(fused.SerializeToString(), providers=["CPUExecutionProvider"])
        np.testing.assert_allclose(session.run(None, feeds)[0], wanted, limits.relative, limits.absolute)


def test_an_attention_in_pieces_within_a_branch_is_told_of():
    _, report = fuse_model(_merged(encoder(), encoder(axis=2)))
    (left,) = report.unfused_of("attention")
    assert left.node.startswith("else_")
    assert "last axis" in left.reason
