"""GraphPatch: checked as a whole, applied at once, names and order kept."""

from __future__ import annotations

import numpy as np
import pytest

from ort_core.ir.model import Model
from ort_core.ir.types import DataType, TensorType
from ort_core.ir.verify import verify
from ort_core.onnx_io.text import parse_model
from ort_core.rewrite.fuse import build_fused_body
from ort_core.rewrite.patch import GraphPatch


def model_of(body: str) -> Model:
    return parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{body}')


@pytest.fixture
def chain() -> Model:
    return model_of("g (float[2] x) => (float[2] y) { a = Relu(x)  b = Neg(a)  y = Exp(b) }")


def test_replacement_takes_over_readers_name_and_type(chain: Model) -> None:
    relu, neg, exp = chain.graph.nodes
    patch = GraphPatch(chain, neg)
    new = patch.op("Tanh", [relu.output], type=TensorType(DataType.FLOAT, (2,)))
    patch.replace(neg.output, new)
    patch.remove(neg)
    assert patch.apply() is None
    verify(chain)
    assert [node.op_type for node in chain.graph] == ["Relu", "Tanh", "Exp"]
    assert new.name == "b"
    assert exp.inputs == (new,)


def test_graph_output_keeps_its_name_when_its_producer_is_replaced(chain: Model) -> None:
    _, neg, exp = chain.graph.nodes
    patch = GraphPatch(chain, exp)
    patch.replace(exp.output, neg.output)
    patch.remove(exp)
    assert patch.apply() is None
    verify(chain)
    assert [value.name for value in chain.graph.outputs] == ["y"]
    assert chain.graph.outputs[0].producer is neg


@pytest.mark.parametrize("wrong", [TensorType(DataType.DOUBLE, (2,)), TensorType(DataType.FLOAT, (3,))])
def test_patch_that_changes_a_type_is_refused_and_leaves_no_trace(chain: Model, wrong: TensorType) -> None:
    _, _, exp = chain.graph.nodes
    exp.output.type = TensorType(DataType.FLOAT, (2,))
    patch = GraphPatch(chain, exp)
    patch.replace(exp.output, patch.op("Tanh", exp.inputs, type=wrong))
    patch.remove(exp)
    rejection = patch.apply()
    assert rejection is not None
    assert "the replacement's is" in rejection.reason
    verify(chain)
    assert [node.op_type for node in chain.graph] == ["Relu", "Neg", "Exp"]
    assert exp.inputs[0].use_count == 1


def test_overridable_initializer_is_never_replaced() -> None:
    model = model_of("g (float[2] x, float[2] w = {1.0, 2.0}) => (float[2] y) { y = Add(x, w) }")
    add = model.graph.nodes[0]
    patch = GraphPatch(model, add)
    patch.replace(add.inputs[1], patch.constant(np.zeros(2, np.float32)))  # type: ignore[arg-type]  # present
    rejection = patch.apply()
    assert rejection is not None
    assert "override" in rejection.reason


def test_node_that_is_still_read_stays(chain: Model) -> None:
    relu, neg, exp = chain.graph.nodes
    patch = GraphPatch(chain, exp)
    patch.replace(exp.output, patch.op("Tanh", [neg.output]))
    patch.remove(relu, neg, exp)
    assert patch.apply() is None
    verify(chain)
    assert [node.op_type for node in chain.graph] == ["Relu", "Neg", "Tanh"]


def test_patch_with_several_outputs_leaves_the_graph_in_order() -> None:
    model = model_of("g (float[2] x) => (float[2] p, float[2] q) { y = Neg(x)  p = Exp(y)  z = Tanh(x)  q = Exp(z) }")
    neg, _, tanh, _ = model.graph.nodes
    patch = GraphPatch(model, tanh)
    both = patch.node(
        "Split", [patch.op("Concat", [neg.inputs[0]] * 2, {"axis": 0})], {"axis": 0}, outputs=(None, None)
    )
    patch.replace(neg.output, both.outputs[0])  # type: ignore[arg-type]  # present
    patch.replace(tanh.output, both.outputs[1])  # type: ignore[arg-type]  # present
    patch.remove(neg, tanh)
    assert patch.apply() is None
    verify(model)
    assert [node.op_type for node in model.graph] == ["Concat", "Split", "Exp", "Exp"]


def test_domain_of_a_new_node_is_imported(chain: Model) -> None:
    _, _, exp = chain.graph.nodes
    patch = GraphPatch(chain, exp)
    patch.replace(exp.output, patch.op("Gelu", exp.inputs, domain="com.microsoft"))
    patch.remove(exp)
    assert patch.apply() is None
    assert chain.opset_imports["com.microsoft"] == 1


def test_fused_body_takes_the_inputs_of_the_fused_node_in_their_order() -> None:
    model = model_of("g (float[2] x, float[2] z) => (float[2] y) <float c = {2.0}> { a = Add(x, z)  y = Mul(a, c) }")
    x, z = model.graph.inputs
    body = build_fused_body(model.graph.nodes, [z, None, x], model.graph.outputs)
    assert [v.name for v in body.inputs] == ["z", "unread_1", "x"]
    assert [node.op_type for node in body] == ["Add", "Mul"]
    assert [v.name for v in body.initializers] == ["c"]
