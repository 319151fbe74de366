"""OnnxModel answers and changes models as onnxruntime's class does; DynamoOnnxHelper likewise."""

from __future__ import annotations

import copy

import numpy as np
import onnx
import pytest
from exported_graphs import encoder, encoder_feeds
from onnx import TensorProto, helper, numpy_helper, parser
from onnxruntime_optimizer import importable, theirs

import ort_core
from ort_transformers.dynamo_onnx_helper import DynamoOnnxHelper
from ort_transformers.onnx_model import OnnxModel
from ort_transformers.onnx_utils import extract_raw_data_from_model, has_external_data


def both(model: onnx.ModelProto | None = None) -> tuple[OnnxModel, object]:
    """Return a model as ours and as theirs."""
    model = encoder() if model is None else model
    for place, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{place}"
    return OnnxModel(copy.deepcopy(model)), theirs("onnx_model").OnnxModel(copy.deepcopy(model))


def named(found: object) -> object:
    """Return nodes by their names, in whatever they stand in."""
    if isinstance(found, onnx.NodeProto):
        return found.name
    if isinstance(found, (list, tuple)):
        return [named(each) for each in found]
    if isinstance(found, np.ndarray):
        return found.tolist()
    return found


def by_type(model: object, op_type: str, place: int = 0) -> onnx.NodeProto:
    return model.get_nodes_by_op_type(op_type)[place]


QUESTIONS = {
    "children": lambda m: m.get_children(by_type(m, "Add")),
    "children of an output": lambda m: m.get_children(by_type(m, "Add"), None, 0),
    "parents": lambda m: m.get_parents(by_type(m, "Softmax")),
    "parent": lambda m: m.get_parent(by_type(m, "Softmax"), 0),
    "no such parent": lambda m: m.get_parent(by_type(m, "Softmax"), 4),
    "first parent": lambda m: m.match_first_parent(by_type(m, "Softmax"), "Add", m.output_name_to_node()),
    "no first parent": lambda m: m.match_first_parent(by_type(m, "Softmax"), "Sub", m.output_name_to_node()),
    "parent of a type": lambda m: m.match_parent(by_type(m, "Softmax"), "Add"),
    "parent at an input": lambda m: m.match_parent(by_type(m, "Sub", 1), "ReduceMean", 1),
    "parent of another type": lambda m: m.match_parent(by_type(m, "Softmax"), "Mul", 0),
    "path": lambda m: m.match_parent_path(by_type(m, "Softmax"), ["Add", "Mul", "MatMul", "Transpose"], [0, 0, 0, 1]),
    "free path": lambda m: m.match_parent_path(by_type(m, "Softmax"), ["Add", "Mul", "MatMul"], [None, None, 0]),
    "no path": lambda m: m.match_parent_path(by_type(m, "Softmax"), ["Add", "Sub"], [0, 0]),
    "paths": lambda m: m.match_parent_paths(
        by_type(m, "Softmax"), [(["Add", "Sub"], [0, 0]), (["Add", "Mul"], [None, 0])], m.output_name_to_node()
    ),
    "no paths": lambda m: m.match_parent_paths(by_type(m, "Softmax"), [(["Sub"], [0])], m.output_name_to_node()),
    "child of a type": lambda m: m.find_first_child_by_type(by_type(m, "Softmax"), "Reshape"),
    "child of a type among readers": lambda m: m.find_first_child_by_type(
        by_type(m, "Softmax"), "Reshape", recursive=False
    ),
    "parent of a type anywhere": lambda m: m.find_first_parent_by_type(by_type(m, "Softmax"), "Cast"),
    "child path": lambda m: m.match_child_path(by_type(m, "Softmax"), ["MatMul", "Transpose", "Reshape"]),
    "child path by edges": lambda m: m.match_child_path(by_type(m, "Softmax"), ["MatMul"], [(0, 0)]),
    "no child path": lambda m: m.match_child_path(by_type(m, "Softmax"), ["MatMul"], [(0, 1)]),
    "constant": lambda m: m.get_constant_value("scale"),
    "no constant": lambda m: m.get_constant_value("scores"),
    "constant input": lambda m: m.get_constant_input(by_type(m, "Mul")),
    "place of a number": lambda m: m.find_constant_input(by_type(m, "Mul"), 0.5),
    "no place of a number": lambda m: m.find_constant_input(by_type(m, "Mul"), 0.25),
    "has a number": lambda m: m.has_constant_input(by_type(m, "Pow"), 2.0),
    "constant of an axis": lambda m: m.is_constant_with_specified_dimension("split", 1, "shape"),
    "axes": lambda m: m.get_node_attribute(by_type(m, "Transpose"), "perm"),
    "no attribute": lambda m: m.get_node_attribute(by_type(m, "Transpose"), "axis"),
    "subgraph behind": lambda m: sorted(
        named(each) for each in m.get_children_subgraph_nodes(by_type(m, "Softmax"), [by_type(m, "Erf")])
    ),
    "subgraph in front": lambda m: sorted(
        named(each) for each in m.get_parent_subgraph_nodes(by_type(m, "Softmax"), [])
    ),
    "statistics": lambda m: m.get_operator_statistics(),
    "new name": lambda m: m.create_node_name("Add"),
    "new name with prefix": lambda m: m.create_node_name("Add", "Fused"),
    "opset": lambda m: m.get_opset_version(),
    "inputs": lambda m: [each.name for each in m.get_graph_inputs_excluding_initializers()],
    "input": lambda m: m.find_graph_input("x").name,
    "no output": lambda m: m.find_graph_output("x"),
    "input index": lambda m: m.input_index("scale", by_type(m, "Mul")),
    "safe": lambda m: m.is_safe_to_fuse_nodes(
        [by_type(m, "Softmax")], by_type(m, "Softmax").output, m.input_name_to_nodes(), m.output_name_to_node()
    ),
    "not safe": lambda m: m.is_safe_to_fuse_nodes(
        [by_type(m, "Softmax")], [], m.input_name_to_nodes(), m.output_name_to_node()
    ),
    "place to insert": lambda m: m.get_topological_insert_id(m.graph(), ["share"]),
}


@pytest.fixture(scope="module")
def pair() -> tuple[OnnxModel, object]:
    return both()


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_have_onnxruntimes_answers(pair, question):
    ours, other = pair
    with importable():
        assert named(QUESTIONS[question](ours)) == named(QUESTIONS[question](other))


CHANGES = {
    "reader of another value": lambda m: m.replace_input_of_all_nodes("x", "z"),
    "maker of another value": lambda m: m.replace_output_of_all_nodes("scores", "z"),
    "input of one node": lambda m: m.replace_node_input(by_type(m, "Softmax"), "masked", "z"),
    "fewer nodes": lambda m: m.remove_nodes(m.get_nodes_by_op_type("Erf")),
    "another node": lambda m: m.add_node(helper.make_node("Relu", ["y"], ["z"], "new")),
    "another tensor": lambda m: m.add_initializer(numpy_helper.from_array(np.zeros(3, np.float32), "z")),
    "pruned": lambda m: (m.remove_nodes(m.get_nodes_by_op_type("Cast")), m.prune_graph()),
    "pruned to an output": lambda m: m.prune_graph(["y"]),
    "unused constants": lambda m: (m.remove_nodes(m.get_nodes_by_op_type("Pow")), m.remove_unused_constant()),
    "renamed output": lambda m: m.rename_graph_output("y", "z"),
    "equal tensors once": lambda m: m.remove_duplicated_initializer({}),
    "sorted": lambda m: (m.model.graph.node.insert(0, m.model.graph.node.pop()), m.topological_sort()),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_changes_leave_onnxruntimes_model(change):
    model = encoder()
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1]), "again"))
    model.graph.node[-1].doc_string = "the last"
    for node in [each for each in model.graph.node if each.op_type == "ReduceMean"][1:]:
        node.input[1] = "again"
    ours, other = both(model)
    with importable():
        CHANGES[change](ours)
        CHANGES[change](other)
    assert facts(ours.model) == facts(other.model)


def facts(model: onnx.ModelProto) -> object:
    """Return what a model consists of; the order of nodes counts by edges only, names of new values do not."""
    old = {name for node in encoder().graph.node for name in (*node.input, *node.output)} | {"z", "again", "s"}
    old |= {name for node in parser.parse_model(DYNAMO).graph.node for name in (*node.input, *node.output)}
    names = lambda values: tuple(name if name in old else "new" for name in values)  # noqa: E731 - of one line
    return (
        sorted((node.op_type, names(node.input), names(node.output)) for node in model.graph.node),
        sorted(tensor.name for tensor in model.graph.initializer),
        [(each.name, each.type.tensor_type.elem_type) for each in (*model.graph.input, *model.graph.output)],
    )


def test_inputs_and_outputs_of_another_type_are_cast():
    model = OnnxModel(encoder())
    cast, names = model.change_graph_input_type(model.find_graph_input("attention_mask"), TensorProto.INT32)
    assert names == ["attention_mask"]
    assert list(cast.input) == ["attention_mask"]
    assert model.get_node_attribute(cast, "to") == TensorProto.INT64
    last = model.change_graph_output_type(model.find_graph_output("y"), TensorProto.DOUBLE)
    assert list(last.output) == ["y"]
    assert model.change_graph_output_type(model.find_graph_output("y"), TensorProto.DOUBLE) is None
    feeds = encoder_feeds()
    (wanted,) = ort_core.InferenceSession(encoder().SerializeToString()).run(None, feeds)
    narrow = {**feeds, "attention_mask": feeds["attention_mask"].astype(np.int32)}
    (found,) = ort_core.InferenceSession(model.model.SerializeToString()).run(None, narrow)
    np.testing.assert_array_equal(found, wanted.astype(np.float64))


def test_sorting_refuses_nodes_that_read_their_own_results():
    model = parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g (float x) => (float y) { y = Add(x, y) }')
    with pytest.raises(RuntimeError, match="its own result"):
        OnnxModel(model).topological_sort()


BRANCHES = """
<ir_version: 8, opset_import: ["": 17]> outer (bool c, float[2] x) => (float[2] y) <float[2] w = {1.0, 2.0}> {
  unused = Neg(x)
  used = Exp(x)
  y = If(c) <then_branch = inner_then () => (float[2] a) { a = Add(used, w) }, else_branch = inner_else () =>
    (float[2] b) { b = Neg(x) }>
}
"""


def test_pruning_keeps_what_inner_graphs_read():
    model = OnnxModel(parser.parse_model(BRANCHES))
    model.prune_graph()
    assert [node.op_type for node in model.model.graph.node] == ["Exp", "If"]
    assert [tensor.name for tensor in model.model.graph.initializer] == ["w"]
    assert {graph.name for graph in model.graphs()} == {"outer", "inner_then", "inner_else"}
    assert model.get_graph_by_node(model.get_nodes_by_op_type("Add")[0]).name == "inner_then"


def test_casts_without_effect_go_away():
    text = """
    <ir_version: 8, opset_import: ["": 17]> g (float16[2] x) => (float16[2] y, float[2] z) {
      same = Cast<to = 10>(x)
      wide = Cast<to = 1>(same)
      y = Cast<to = 10>(wide)
      z = Exp(wide)
    }
    """
    model = OnnxModel(parser.parse_model(text))
    model.remove_useless_cast_nodes()
    assert model.get_operator_statistics()["Cast"] == 2
    model.remove_cascaded_cast_nodes()
    assert list(model.output_name_to_node()["y"].input) == ["x"]
    narrowing = OnnxModel(
        parser.parse_model(
            text.replace("float16[2] x", "double[2] x").replace("same = Cast<to = 10>", "same = Cast<to = 1>")
        )
    )
    narrowing.remove_cascaded_cast_nodes()
    assert list(narrowing.output_name_to_node()["wide"].input) == ["same"], "rounding to float32 was lost"


def test_raw_data_is_taken_out_as_onnxruntime_takes_it():
    model, other = encoder(), encoder()
    assert not has_external_data(model)
    names, arrays = extract_raw_data_from_model(model)
    with importable():
        their_names, their_arrays = theirs("onnx_utils").extract_raw_data_from_model(other)
    assert names == tuple(their_names)
    assert [each.tolist() for each in arrays] == [each.numpy().tolist() for each in their_arrays]
    assert model == other
    assert has_external_data(model)


DYNAMO_CHANGES = {
    "edges": lambda h: h.update_edges({"x": "z", "scores": "s"}),
    "constants": lambda h: h.convert_constants_to_initializers(),
    "large constants": lambda h: h.convert_constants_to_initializers(min_size=2),
    "metadata": lambda h: h.clear_metadata(),
    "tensor": lambda h: h.add_initializer("z", TensorProto.FLOAT, [2], np.array([1.0, 2.0], np.float32)),
    "numbers": lambda h: h.add_initializer("z", TensorProto.INT64, [2], [1, 2], raw=False),
}
DYNAMO = """
<ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x) => (float[2, 2] y)
<float[2, 3] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}> {
  t = Transpose<perm = [1, 0]>(w)
  scores = MatMul(x, t)
  one = Constant<value = float {1.0}>()
  two = Constant<value = float[2] {1.0, 2.0}>()
  more = Add(scores, one)
  y = Add(more, two)
}
"""


@pytest.mark.parametrize("change", DYNAMO_CHANGES)
def test_models_of_dynamo_are_changed_as_onnxruntime_changes_them(change):
    ours = DynamoOnnxHelper(parser.parse_model(DYNAMO))
    with importable():
        other = theirs("dynamo_onnx_helper").DynamoOnnxHelper(parser.parse_model(DYNAMO))
        DYNAMO_CHANGES[change](ours)
        DYNAMO_CHANGES[change](other)
    found, wanted = ours.model.model, other.model.model
    assert facts(found) == facts(wanted)


def test_tensors_are_transposed_in_place_of_the_node():
    model = parser.parse_model(DYNAMO)
    DynamoOnnxHelper.fold_transpose_initializers(model)
    assert [node.op_type for node in model.graph.node] == ["MatMul", "Constant", "Constant", "Add", "Add"]
    (tensor,) = model.graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(tensor), np.arange(1.0, 7.0).reshape(2, 3).T)


FUNCTIONS = """
<ir_version: 8, opset_import: ["": 17, "own": 1]> g (float[2] x) => (float[2] y) {
  a = own.twice(x)
  d = own.dropout_7(a)
  y = own.twice(d)
}
<domain: "own", opset_import: ["": 17]> twice (u) => (v) { w = Neg(u) v = Sub(u, w) }
<domain: "own", opset_import: ["": 17]> dropout_7 (u) => (v) { v = Identity(u) }
"""


def test_functions_of_dynamo_are_unrolled_and_removed_with_the_same_results():
    helper_ = DynamoOnnxHelper(parser.parse_model(FUNCTIONS))
    helper_.remove_dropout_layer()
    helper_.unroll_function("twice")
    model = helper_.model.model
    assert [node.op_type for node in model.graph.node] == ["Neg", "Sub", "Neg", "Sub"]
    assert not model.functions
    x = np.array([1.0, -3.0], np.float32)
    (found,) = ort_core.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(found, 4 * x)
    with pytest.raises(ValueError, match="no function 'twice'"):
        helper_.unroll_function("twice")


def test_graphs_within_nodes_that_are_moved_are_sorted_too():
    text = """<ir_version: 8, opset_import: ["": 17]> g (bool c, float[2] x) => (float[2] y) {
      y = Neg(z)
      z = If(c) <then_branch = t () => (float[2] a) { a = Exp(m) m = Abs(x) },
        else_branch = e () => (float[2] b) { b = Neg(x) }>
    }"""
    model = OnnxModel(parser.parse_model(text))
    model.topological_sort()
    assert [node.op_type for node in model.model.graph.node] == ["If", "Neg"]
    inner = model.model.graph.node[0].attribute[0].g
    assert [node.op_type for node in inner.node] == ["Abs", "Exp"]
    onnx.checker.check_model(model.model)


def test_a_prefix_leaves_the_names_of_inputs_and_outputs_as_onnxruntime_does():
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> {
      a = Add(x, w)
      y = Clip(a, , w)
    }"""
    ours = OnnxModel(parser.parse_model(text))
    with importable():
        other = theirs("onnx_model").OnnxModel(parser.parse_model(text))
        other.add_prefix_to_names("d_")
    ours.add_prefix_to_names("d_")
    assert ours.model == other.model
    assert [list(node.input) for node in ours.model.graph.node] == [["x", "d_w"], ["d_a", "", "d_w"]]


@pytest.mark.parametrize("is_external", [False, True])
def test_a_model_that_cannot_be_written_leaves_the_former_one(tmp_path, monkeypatch, is_external):
    path = tmp_path / "m.onnx"
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu (x) }'
    model = OnnxModel(parser.parse_model(text))
    model.save_model_to_file(str(path), use_external_data_format=is_external)
    before = path.read_bytes()

    def fail(*_, **__):
        raise OSError("no space left on device")

    monkeypatch.setattr(onnx, "save_model", fail)
    with pytest.raises(OSError, match="no space"):
        model.save_model_to_file(str(path), use_external_data_format=is_external)
    assert path.read_bytes() == before
