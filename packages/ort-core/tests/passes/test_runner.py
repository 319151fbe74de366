"""The runner and the pipelines: fixed points, checks, names, order, and users' passes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from pass_check import context_of, evaluate_with_onnxruntime, model_of, named, op_types, run_pass

import ort_core
from ort_core.errors import Fail, InvalidArgument, InvalidGraph
from ort_core.ir.attributes import Attribute
from ort_core.ir.graph import Graph
from ort_core.ir.model import Model
from ort_core.ir.nodes import Node
from ort_core.ir.types import DataType, TensorType
from ort_core.ir.values import Value
from ort_core.ir.verify import verify
from ort_core.onnx_io.save import model_to_bytes
from ort_core.passes.base import Level, Pass, PassContext, PassRecordState
from ort_core.passes.equivalence import EquivalenceCheck
from ort_core.passes.normalize import normalize
from ort_core.passes.pipelines import RULE_GROUPS, known_names, order_passes, pipeline_for
from ort_core.passes.runner import PipelineReport, run_pipeline

MAX_CALLS = 1000  # of functions for each node, for all basic passes; today 560, and 0.4 s for 2,500 nodes
CallsOf = Callable[..., tuple[int, PipelineReport]]

_BRANCHES = ("then_branch", "else_branch")
_RELU = "g (float[2] x) => (float[2] y) { a = Identity(x)  b = Identity(a)  y = Relu(b) }"


class RenameNodes(Pass):
    """Changes the operator and denies it."""

    name = "Liar"

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Turn every Relu into a Neg."""
        for node in context.model.graph:
            if node.op_type == "Relu":
                node.op_type = "Neg"


class Boaster(Pass):
    """Says that it changed something, and did not."""

    name = "Boaster"

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Do nothing."""
        record.changed("everything")


class ReluToNeg(RenameNodes):
    """Admits what it does."""

    name = "ReluToNeg"

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Turn every Relu into a Neg, and say so."""
        record.changed("relu", op_types(context.model).count("Relu"))
        super().apply(context, record)


class UsersPass(Pass):
    """A pass of a user, placed by constraints."""

    name = "UsersPass"
    after = ("ConstantFolding",)
    before = ("EliminateSlice",)

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Do nothing."""


def test_pipeline_runs_to_a_fixed_point_and_reports_what_was_done() -> None:
    model = model_of(_RELU)
    report = run_pipeline(pipeline_for(Level.BASIC), context_of(model), verify=True)
    assert report.is_fixed_point
    assert report.counts() == {"EliminateIdentity": 2}
    assert (report.nodes_before, report.nodes_after) == (3, 1)
    assert "EliminateIdentity 2" in str(report)


def test_pass_that_found_nothing_runs_again_only_behind_a_change() -> None:
    passes = [named("CastElimination"), named("EliminateIdentity"), named("DeadCodeElimination")]
    report = run_pipeline(passes, context_of(model_of(_RELU)), verify=True)
    assert report.is_fixed_point
    ran = [each.name for each in report.reports]
    assert ran == ["CastElimination", "EliminateIdentity", "DeadCodeElimination", "CastElimination"], (
        "EliminateIdentity has looked once more behind its own changes already"
    )


def test_rejections_say_which_rule_refused_where_and_why() -> None:
    report = run_pass("EliminateIdentity", model_of("g (float[2] x) => (float[2] y) { y = Identity(x) }"))
    (rejection,) = report.reports[0].rejections
    assert rejection.rule == "EliminateIdentity"
    assert "cannot take that name" in rejection.reason


@pytest.mark.parametrize(
    ("liar", "says"), [(RenameNodes(), "says that it changed nothing"), (Boaster(), "is as it was")]
)
def test_pass_that_lies_about_its_changes_is_caught_when_verifying(liar: Pass, says: str) -> None:
    with pytest.raises(Fail, match=says):
        run_pipeline([liar], context_of(model_of(_RELU)), verify=True)


class StaleReader(Pass):
    """Lets a node that it took out of the graph read on."""

    name = "StaleReader"

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Give a node without a graph an input."""
        for value in context.model.graph.inputs[:1]:
            Node("Neg", [value], [Value("nobody")])


def test_reader_that_is_not_in_the_model_is_found_when_verifying() -> None:
    with pytest.raises(InvalidGraph, match=r"'x' records a use by .*Neg"):
        run_pipeline([StaleReader()], context_of(model_of(_RELU)), verify=True)


def test_setting_verifies_the_passes_of_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_to_bytes(model_of(_RELU))
    options = ort_core.SessionOptions()
    options.custom_passes = [StaleReader()]
    ort_core.InferenceSession(model, options)
    monkeypatch.setenv("ORT_VERIFY_PASSES", "1")
    with pytest.raises(InvalidGraph, match="records a use by"):
        ort_core.InferenceSession(model, options)


def test_pass_that_changes_the_result_is_caught_by_the_equivalence_check() -> None:
    check = EquivalenceCheck(evaluate_with_onnxruntime, 1e-6, 1e-6)
    with pytest.raises(Fail, match=r"pass ReluToNeg changed the result: output 'y'"):
        run_pipeline([ReluToNeg()], context_of(model_of(_RELU)), equivalence=check)


def test_disabled_pass_does_not_run_and_a_group_disables_its_members() -> None:
    assert "EliminateIdentity" not in {p.name for p in pipeline_for(Level.BASIC, disabled=["EliminateIdentity"])}
    left = {p.name for p in pipeline_for(Level.BASIC, disabled=["Level1_RuleBasedTransformer"])}
    assert left.isdisjoint(RULE_GROUPS["Level1_RuleBasedTransformer"])
    assert "ConstantFolding" in left


def test_unknown_name_is_an_error_with_a_suggestion_but_onnxruntimes_own_names_are_known() -> None:
    with pytest.raises(InvalidArgument, match="Did you mean 'ConstantFolding'"):
        pipeline_for(Level.BASIC, disabled=["ConstantFoldin"])
    pipeline_for(Level.BASIC, disabled=["NchwcTransformer", "MemcpyTransformer"])


def test_opt_in_pass_runs_only_when_enabled() -> None:
    assert "CastChainElimination" not in {p.name for p in pipeline_for(Level.BASIC)}
    assert "CastChainElimination" in {p.name for p in pipeline_for(Level.BASIC, enabled=["CastChainElimination"])}


def test_users_pass_is_placed_by_its_constraints() -> None:
    names = [p.name for p in pipeline_for(Level.BASIC, extra=[UsersPass()])]
    assert names.index("ConstantFolding") < names.index("UsersPass") < names.index("EliminateSlice")
    assert "UsersPass" in known_names([UsersPass()])


def test_contradicting_constraints_are_an_error() -> None:
    first, second = UsersPass(), Boaster()
    first.after, first.before, second.after = ("Boaster",), (), ("UsersPass",)
    with pytest.raises(InvalidArgument, match="cycle"):
        order_passes([first, second])


def test_names_of_passes_are_unique() -> None:
    names = known_names()
    assert len(names) == len(set(names))


def test_old_models_initializers_are_constants_although_they_are_inputs() -> None:
    model = model_of(
        "g (float[2] x, float[2] w = {0.0, 0.0}) => (float[2] y) { s = Add(x, w)  y = Neg(s) }", ir_version=3
    )
    run_pipeline([named("NoopElimination")], context_of(model), verify=True)
    assert op_types(model) == ["Neg"]
    assert [value.name for value in model.graph.inputs] == ["x"]


def test_normalize_makes_a_branch_return_a_value_of_its_own() -> None:
    x, condition, result = Value("x", TensorType(DataType.FLOAT, (2,))), Value("c"), Value("y")
    constant = Node("Constant", [], [Value("k")], {"value_floats": (1.0, 2.0)})
    branches = {name: Graph(name, outputs=[constant.output if name == "else_branch" else x]) for name in _BRANCHES}
    graph = Graph("g", [x, condition], nodes=[constant, Node("If", [condition], [result], branches)])
    graph.add_output(result)
    model = Model(graph, {"": 17})
    assert normalize(model) == 3
    verify(model)
    assert op_types(model) == ["If", "Identity", "Identity"]
    assert [value.name for value in graph.initializers] == ["k"]


def test_function_is_inlined_with_its_attributes_and_absent_inputs() -> None:
    import onnx.parser

    from ort_core.onnx_io.load import model_from_proto

    text = """
    <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
    g (float[3] x) => (float[3] y) { a = local.Outer<alpha = 0.5>(x)  y = Neg(a) }
    <domain: "local", opset_import: ["" : 17, "local" : 1]>
    Outer <alpha> (p) => (q) { e = Elu<alpha: float = @alpha>(p)  q = local.Bound(e) }
    <domain: "local", opset_import: ["" : 17]>
    Bound (v, low) => (w) { w = Clip(v, low) }
    """
    model = model_from_proto(onnx.parser.parse_model(text))
    check = EquivalenceCheck(evaluate_with_onnxruntime, 1e-6, 1e-6)
    report = run_pipeline(
        [named("InlineFunctions"), named("EliminateIdentity")], context_of(model), verify=True, equivalence=check
    )
    assert report.counts()["InlineFunctions"] > 0
    assert op_types(model) == ["Elu", "Clip", "Neg"]
    assert not model.functions
    assert all(node.output.type is not None for node in model.graph)


def test_function_of_another_opset_keeps_it_where_the_operator_changed() -> None:
    import onnx.parser

    from ort_core.onnx_io.load import model_from_proto

    text = """
    <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
    g (float[3,1] x) => (float[3] y) { y = local.F(x) }
    <domain: "local", opset_import: ["" : 11]>
    F (p) => (q) { r = Relu(p)  q = Squeeze<axes = [1]>(r) }
    """
    model = model_from_proto(onnx.parser.parse_model(text))
    run_pipeline([named("InlineFunctions"), named("EliminateIdentity")], context_of(model), verify=True)
    # Relu changed with opset 13 and 14, Squeeze with 13; Neg only with 13.
    assert {node.op_type: node.opset for node in model.graph} == {"Relu": 11, "Squeeze": 11}


def test_basic_pipeline_makes_few_calls_for_each_node_however_large_the_model(calls_of: CallsOf) -> None:
    for count in (100, 500):
        model = _chain_of_blocks(count)
        calls, report = calls_of(run_pipeline, pipeline_for(Level.BASIC), context_of(model))
        assert report.nodes_before == 5 * count
        assert sum(each.duration_ns for each in report.reports) > 0
        assert calls < MAX_CALLS * 5 * count, f"{calls / (5 * count):.0f} calls for each node\n{report}"
        verify(model)


def _chain_of_blocks(count: int) -> Model:
    """Return a model of many blocks of five nodes, with work for several passes in each."""
    value_type = TensorType(DataType.FLOAT, (4, 8))
    value = Value("x", value_type)
    graph = Graph("g", inputs=[value])
    weight = graph.new_constant(np.eye(8, dtype=np.float32), "w")
    for _ in range(count):
        zero = graph.new_constant(np.zeros(1, np.float32), "zero")
        added = graph.new_node("Add", [value, zero], types=[value_type]).output
        same = graph.new_node("Cast", [added], [Attribute.of("to", 1)], types=[value_type]).output
        product = graph.new_node("MatMul", [same, weight], types=[value_type]).output
        biased = graph.new_node(
            "Add", [product, weight.graph.new_constant(np.ones(8, np.float32), "b")], types=[value_type]
        ).output
        value = graph.new_node("Relu", [biased], types=[value_type]).output
    graph.add_output(value)
    return Model(graph, {"": 17}, ir_version=8)


def test_initializer_that_nobody_reads_any_more_sends_no_pass_over_the_graph_again() -> None:
    model = model_of("g (float[2] x) => (float[2] y) <float c = {0.0}> { a = Add(x, c)  y = Relu(a) }")
    report = run_pipeline(pipeline_for(Level.BASIC), context_of(model), verify=True)
    assert report.counts() == {"NoopElimination": 1, "DeadCodeElimination": 1}
    assert report.is_fixed_point
    runs = [each.name for each in report.reports]
    assert runs.count("ConstantFolding") == 2, "a pass in front of the change looks at what it left"
    assert runs.count("MatMulAddFusion") == 1, "a pass behind the change has seen all"
    assert not model.graph.initializers
