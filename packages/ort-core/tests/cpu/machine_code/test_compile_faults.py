"""A fault of the compiler never costs the model: nodes run by numpy kernels, and the report says why."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.partition import partition
from ort_core.errors import EPFail
from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.kernels import EvaluationContext
from ort_core.stages.selection import PlacementWarning

X = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
W = np.eye(8, dtype=np.float32)


def _model() -> bytes:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "product"), helper.make_node("Softmax", ["a"], ["b"], "rows"),
        helper.make_node("Exp", ["b"], ["y"], "last"),
    ]  # fmt: skip
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [info("x", TensorProto.FLOAT, ["N", 8])], [info("y", TensorProto.FLOAT, ["N", 8])],
        [numpy_helper.from_array(W, "w")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def _expected() -> np.ndarray:
    powers = np.exp(X.astype(np.float64))
    return np.exp(powers / powers.sum(axis=1, keepdims=True))


class Fault(Exception):
    """What no code here expects."""


def _fails(*arguments: object, **named: object) -> None:
    raise Fault("on purpose")


_FIND = partition.find_rule


def _find(node: Node, context: EvaluationContext) -> object:
    return _fails if node.op_type == "Softmax" else _FIND(node, context)


FAULTY = {
    "a rule": (partition, "find_rule", _find),
    "code generation": (partition, "build_program", _fails),
    "the whole partition": (partition, "known_contents", _fails),
}


@pytest.mark.parametrize("where", FAULTY)
def test_what_fails_to_compile_runs_by_kernels_with_a_warning_and_the_reason(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORT_STRICT_COMPILATION", "0")
    with mock.patch.object(*FAULTY[where]), pytest.warns(PlacementWarning, match="Fault: on purpose"):
        session = ort.InferenceSession(_model(), providers=["CPUExecutionProvider"])
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, {"x": X})[0], _expected(), rtol=1e-5)
    (told,) = session.explain().fallbacks
    assert "by numpy kernels (Fault: on purpose)" in told
    assert told in str(session.explain())


def test_a_rules_fault_leaves_other_nodes_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_STRICT_COMPILATION", "0")
    made: list[partition.CpuPartition] = []
    build = partition.CpuPartition.__init__

    def noted(self: partition.CpuPartition, *arguments: object, **named: object) -> None:
        build(self, *arguments, **named)  # type: ignore[arg-type]  # passed on as they came
        made.append(self)

    with (
        mock.patch.object(*FAULTY["a rule"]),
        mock.patch.object(partition.CpuPartition, "__init__", noted),
        pytest.warns(PlacementWarning),
    ):
        ort.InferenceSession(_model(), providers=["CPUExecutionProvider"])
    (one,) = made
    assert {node.op_type: reason for node, reason in one.refusals.items()} == {
        "Softmax": "the compiler failed: Fault: on purpose"
    }
    assert [node for program in one.native_programs for step in program.steps for node in step.operators]


@pytest.mark.parametrize("where", FAULTY)
def test_tests_are_strict(where: str) -> None:
    with mock.patch.object(*FAULTY[where]), pytest.raises(EPFail, match="on purpose") as caught:
        ort.InferenceSession(_model(), providers=["CPUExecutionProvider"])
    cause: BaseException | None = caught.value
    while cause is not None and not isinstance(cause, Fault):
        cause = cause.__cause__
    assert cause is not None, "the error does not lead to the fault"


def test_a_fault_of_direct_calls_costs_no_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ORT_STRICT_COMPILATION", "0")
    with mock.patch.object(partition.CpuPartition, "direct_calls", _fails):
        session = ort.InferenceSession(_model(), providers=["CPUExecutionProvider"])
        for _ in range(3):
            np.testing.assert_allclose(session.run(None, {"x": X})[0], _expected(), rtol=1e-5)
    assert [text for text in caplog.messages if "every run goes the ordinary way (Fault: on purpose)" in text]


def test_a_constant_read_as_elements_of_another_width_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def rule(lowering: Lowering, node: Node) -> None:
        lowering.set(node.output, lowering.constant_view(np.zeros((3, 8), np.float16), DataType.FLOAT))

    monkeypatch.setattr(
        partition, "find_rule", lambda node, context: rule if node.op_type == "Softmax" else _FIND(node, context)
    )
    monkeypatch.setenv("ORT_STRICT_COMPILATION", "0")
    with pytest.warns(Warning, match="a constant of float16 is read as float"):
        session = ort.InferenceSession(_model(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": X})[0], _expected(), rtol=1e-5)


def test_a_rule_whose_result_has_elements_of_another_type_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run reserves memory for the type that is declared: larger elements would be written past its end."""

    def rule(lowering: Lowering, node: Node) -> None:
        lowering.set(node.output, lowering.new_view(DataType.DOUBLE, lowering.view(node.input(0)).shape))

    monkeypatch.setattr(
        partition, "find_rule", lambda node, context: rule if node.op_type == "Softmax" else _FIND(node, context)
    )
    monkeypatch.setenv("ORT_STRICT_COMPILATION", "0")
    with pytest.warns(Warning, match="is lowered as double, and is of type float"):
        session = ort.InferenceSession(_model(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": X})[0], _expected(), rtol=1e-5)
