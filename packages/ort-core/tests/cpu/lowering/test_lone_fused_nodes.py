"""What a fusion makes of two nodes is compiled where the two were, also where it stands alone."""

from __future__ import annotations

import onnx
import pytest

import ort_core as ort

GRAPHS = {
    "SkipLayerNormalization": "{ a = Add (x, z) y = LayerNormalization (a, g, g) }",
    "SkipSimplifiedLayerNormalization": "{ y = com.microsoft.SkipSimplifiedLayerNormalization (x, z, g) }",
    "BiasGelu": "{ y = com.microsoft.BiasGelu (x, g) }",
    "FastGelu": "{ y = com.microsoft.FastGelu (x) }",
    "QuickGelu": "{ s = Sigmoid (x) y = Mul (x, s) }",
}


@pytest.mark.parametrize("operator", GRAPHS)
def test_a_lone_fused_node_is_native(operator: str) -> None:
    signature = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> g (float[1, 4, 8] x, float[1, 4, 8] z)'
    text = f"{signature} => (float[1, 4, 8] y) <float[8] g = {{1, 1, 1, 1, 1, 1, 1, 1}}> {GRAPHS[operator]}"
    session = ort.InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    executions = [node.execution for node in session.explain().nodes]
    assert {each and each.how for each in executions} == {"native"}, [str(each) for each in executions]
    assert {each and each.op_type for each in executions} == {operator}
