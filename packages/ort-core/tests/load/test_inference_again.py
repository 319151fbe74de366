"""What a second inference takes over of the first is what it would have found, and it infers only what changed."""

from __future__ import annotations

import numpy as np
import pytest
from exported_kinds import EXPORTED
from growing_kinds import MORE
from growing_models import GROWING

import ort_core
from ort_core.cpu.partition import partition
from ort_core.ir.constants import Constant
from ort_core.ir.model import Model
from ort_core.ir.traversal import graphs_of
from ort_core.ir.types import ValueType
from ort_core.ir.values import Value
from ort_core.onnx_io.schemas import find_onnx_schema
from ort_core.ops import known_contents
from ort_core.ops.infer.all_rules import build_rules
from ort_core.ops.inference_report import InferenceReport
from ort_core.ops.registry import SchemaRegistry
from ort_core.ops.shape_inference import Inference, infer_types
from ort_core.stages import optimizing
from ort_core.testing.models import model_of

KINDS = {**GROWING, **MORE, **EXPORTED}
UNCHANGED = ("many inputs", "independent", "trees", "split", "heads", "unknown sizes", "recurrent")  # by any pass


@pytest.fixture
def compared(monkeypatch, tmp_path):
    """The numbers of values of models that were inferred again in both ways, with equal results."""
    counts: list[int] = []

    def both(model: Model, *arguments: object, after: InferenceReport | None = None, **named: object) -> object:
        if after is None:
            return infer_types(model, *arguments, **named)
        before = {value: value.type for value in _values(model)}
        expected = _found(model, infer_types(model, *arguments, **named))
        for value, known in before.items():
            value.type = known
        report = infer_types(model, *arguments, after=after, **named)
        assert _found(model, report) == expected
        counts.append(len(before))
        return report

    monkeypatch.setattr(optimizing, "infer_types", both)
    monkeypatch.setattr(known_contents, "infer_types", both)
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path))
    return counts


@pytest.mark.parametrize("name", KINDS)
def test_types_behind_the_passes_are_those_of_a_whole_inference(name, compared):
    ort_core.InferenceSession(KINDS[name](70).proto(), providers=["CPUExecutionProvider"])
    assert compared or name in UNCHANGED, "nothing was inferred again"


CHAIN = """g (float[n, 2, 3] x) => (float[a, b, c] y)
    <int64[3] sizes = {0, 3, 2}> {
    r = Reshape(x, sizes)
    t = Transpose <perm = [2, 0, 1]> (r)
    s = Shape(t)
    c = Cast <to = 1> (s)
    i = Relu(t)
    j = Add(i, t)
    y = Neg(j)
}"""


def _other_attribute(model: Model) -> None:
    model.graph.nodes[1].set_attributes({"perm": (0, 2, 1)})


def _other_constant(model: Model) -> None:
    (sizes,) = model.graph.initializers
    sizes.constant = Constant.of(np.int64([0, 6, 1]))


def _other_input(model: Model) -> None:
    nodes = model.graph.nodes
    nodes[1].set_input(0, model.graph.inputs[0])


def _fewer_nodes(model: Model) -> None:
    relu = next(node for node in model.graph if node.op_type == "Relu")
    relu.output.replace_uses(relu.inputs[0])
    model.graph.remove(relu)


def _other_type(model: Model) -> None:
    model.graph.nodes[0].output.type = None


@pytest.mark.parametrize("change", [_other_attribute, _other_constant, _other_input, _fewer_nodes, _other_type])
def test_what_depends_on_a_change_is_found_anew(change, monkeypatch):
    schemas, rules = SchemaRegistry(find_onnx_schema), build_rules()
    model = model_of(CHAIN)
    report = infer_types(model, schemas, rules, trusts_sizes=False)
    change(model)
    before = {value: value.type for value in _values(model)}
    expected = _found(model, infer_types(model, schemas, rules))
    for value, known in before.items():
        value.type = known
    assert _found(model, infer_types(model, schemas, rules, after=report)) == expected


def test_nodes_that_have_not_changed_are_not_inferred_again(monkeypatch):
    schemas, rules = SchemaRegistry(find_onnx_schema), build_rules()
    model = model_of(CHAIN)
    report = infer_types(model, schemas, rules, trusts_sizes=False)
    _fewer_nodes(model)
    inferred: list[str] = []
    keep = Inference._keep
    monkeypatch.setattr(
        Inference,
        "_keep",
        lambda engine, context, scope: inferred.append(context.node.op_type) or keep(engine, context, scope),
    )
    infer_types(model, schemas, rules, after=report)
    assert inferred == ["Add"]


@pytest.mark.parametrize("name", ["shapes", "size arithmetic", "assigned slices"])
def test_nodes_of_a_partition_are_not_inferred_again(name, monkeypatch, tmp_path):
    kind, evaluated = KINDS[name], [0]
    keep = Inference._keep

    def counted(engine: Inference, context: object, scope: object) -> None:
        evaluated[0] += 1
        keep(engine, context, scope)

    monkeypatch.setattr(Inference, "_keep", counted)
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path))
    asked: list[int] = []

    def known(*arguments: object) -> object:
        before = evaluated[0]
        found = known_contents.known_contents(*arguments)
        asked.append(evaluated[0] - before)
        return found

    monkeypatch.setattr(partition, "known_contents", known)
    ort_core.InferenceSession(kind(400).proto(), providers=["CPUExecutionProvider"])
    assert asked, "nobody asked for the contents of a partition"
    assert sum(asked) < 4, f"{sum(asked)} nodes were inferred again"


def _values(model: Model) -> list[Value]:
    graphs = [*graphs_of(model.graph)]
    outputs = (value for graph in graphs for node in graph for value in node.present_outputs())
    return [*outputs, *(value for graph in graphs for value in (*graph.inputs, *graph.initializers))]


def _found(model: Model, report: InferenceReport) -> tuple[dict[Value, ValueType | None], dict[Value, str], list[str]]:
    values = _values(model)
    contents = {value: repr(report.values[value]) for value in values if value in report.values}
    return {value: value.type for value in values}, contents, [str(note) for note in report.notes]
