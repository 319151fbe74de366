"""Reports say of every node on the CPU provider how it runs: in which native step, or by numpy, and why."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np
import onnx
import pytest

import ort_core as ort
from ort_core import stages
from ort_core.partitioning.report import NodePlacement, PlacementReport
from ort_core.plugin import CompiledPartition, KernelPartition
from ort_core.settings import environment_value
from ort_core.testing.fake_providers import echo_of, environment_of, plugin_of
from ort_core.testing.models import model_of

COMPRESS = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 8] x, float[8, 8] w, bool[N] keep)
    => (float[M, 8] y, float[N, 8] z) {
    [product] a = MatMul (x, w)
    [floor] b = Relu (a)
    [kept] c = Compress <axis = 0> (b, keep)
    [last] y = Exp (c)
    [rows] z = Softmax (b)
}"""
BRANCHES = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 8] x, float[8, 8] w, bool c) => (float[N, 8] y) {
    [scaled] s = Mul (x, x)
    [choice] y = If (c) <
        then_branch = t () => (float[N, 8] a) { [then1] b = Exp (s) [then2] a = Softmax (b) },
        else_branch = e () => (float[N, 8] a) { [else1] b = Neg (s) [else2] a = MatMul (b, w) }
    >
}"""


def _report(text: str) -> PlacementReport:
    model = onnx.parser.parse_model(text).SerializeToString()
    return ort.InferenceSession(model, providers=["CPUExecutionProvider"]).explain()


def _told(report: PlacementReport) -> dict[str, str]:
    return {node.name: str(node.execution) for node in (*report.nodes, *report.inner)}


def test_a_report_names_the_step_of_native_nodes_and_the_reason_of_the_others() -> None:
    report = _report(COMPRESS)
    assert _told(report) == {
        "product": "native: 0.0 MatMul+Relu", "floor": "native: 0.0 MatMul+Relu", "rows": "native: 0.1 Softmax",
        "kept": "numpy: Compress of float and bool is not generated", "last": "native: 2.0 Exp",
    }  # fmt: skip
    assert "numpy: Compress x1: Compress of float and bool is not generated" in str(report)
    assert report.executions() == {"CPUExecutionProvider": {"native": 4, "numpy": 1}}


def test_a_size_that_only_a_run_knows_is_told_of_the_node_that_needs_it_and_of_no_other() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N] x, int64[2] shape, float[M, 8] v, float[8, 8] w)
        => (float[A, B] e, float[M, 8] y) {
        [grown] e = Expand (x, shape)
        [product] p = MatMul (v, w)
        [last] y = Softmax (p)
    }"""
    told = _told(_report(text))
    assert (
        told.pop("grown") == "numpy: Expand of float and int64: the size ?e_0 cannot be told from the sizes of inputs"
    )
    assert all(how.startswith("native") for how in told.values()), told


def test_control_flow_of_which_nothing_is_compiled_is_told_as_that() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x, bool c) => (float[2] z) {
        [kept] k = Compress (x, m)
        [choice] y = If (c) <
            then_branch = t () => (float[2] a) { [then1] a = Neg (x) },
            else_branch = e () => (float[2] a) { [else1] a = Relu (x) }
        >
        [last] z = Add (y, k)
    }"""
    text = text.replace("bool c)", "bool c, bool[2] m)")
    told = _told(_report(text))
    assert (
        told["choice"] == "numpy: If of bool: control flow is followed step by step; nothing in its bodies is compiled"
    )
    assert (
        told["then1"] == "numpy: Neg of float: alone, or with the few nodes beside it, it is not worth a native program"
    )


ALONE = {
    **dict.fromkeys(("Asin", "Celu", "Elu", "LeakyRelu", "Mish", "Selu", "Shrink", "Softplus", "ThresholdedRelu"), ""),
    "Pow": ", three",
    "PRelu": ", half",
    "Clip": ", half, three",
    "TopK": ", count",
}


@pytest.mark.parametrize("operator", ALONE)
def test_an_operator_that_numpy_takes_long_for_is_native_also_alone(operator: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 22]> g (float[N] x) => (float[M] y)
        <float three = {{3.0}}, float half = {{0.5}}, int64[1] count = {{5}}> {{
        [only] {"y, places" if operator == "TopK" else "y"} = {operator} (x{ALONE[operator]})
    }}"""
    told = _told(_report(text))
    assert told["only"].startswith("native"), told
    content = onnx.parser.parse_model(text).SerializeToString()
    x = np.random.default_rng(0).uniform(-1, 1, 5000).astype(np.float32)
    found, wanted = (
        ort.InferenceSession(content, providers=[name]).run(None, {"x": x})[0]
        for name in ("CPUExecutionProvider", "ReferenceExecutionProvider")
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_a_type_that_is_not_compiled_is_told_with_its_operator() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20, "ai.onnx.ml" : 4]> g (string[N] x) => (int64[N] y) {
        [coded] y = ai.onnx.ml.LabelEncoder <keys_strings = ["a"], values_int64s = [1]> (x)
    }"""
    assert "LabelEncoder of string is not generated" in _told(_report(text))["coded"]


def test_a_node_that_was_fused_is_told_by_the_node_that_carries_it() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 8] x, float[8, 8] w) => (float[N, 8] y) {
        [half] h = Sigmoid (x)
        [whole] q = Mul (x, h)
        [product] y = MatMul (q, w)
    }"""
    report = _report(text)
    assert [str(node.execution) for node in report.nodes[:2]] == ["native: 0.0 QuickGelu"] * 2
    assert [row["execution"].get("part_of") for row in report.as_dict()["nodes"]] == ["QuickGelu", "QuickGelu", None]  # type: ignore[index,attr-defined]  # plain data


def test_nodes_of_bodies_are_told_apart_by_their_body() -> None:
    report = _report(BRANCHES)
    told = _told(report)
    assert told["choice"].startswith("interpreted: ")
    taken_in = "no step of its own: taken in by what reads it"
    assert {name: told[name] for name in ("then1", "then2", "else1", "else2")} == {
        "then1": f"native: 0.0 Softmax: {taken_in}", "then2": "native: 0.0 Softmax",
        "else1": "native: 0.0 Neg", "else2": "native: 0.1 MatMul",
    }  # fmt: skip


def test_a_node_without_a_step_names_those_that_take_it_in() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2, 8] x) => (float[4, 4] y)
    <int64[2] shape = {4, 4}> {
        [e] a = Exp (x)
        [view] b = Reshape (a, shape)
        [s] y = Softmax (b)
    }"""
    told = {node.name: node.execution for node in _report(text).nodes}
    view = told["view"]
    assert view is not None
    assert (view.how, view.is_plain) == ("native", False)
    assert view.step.endswith("Softmax"), view
    assert view.reason.startswith("no step of its own")


def test_a_recalled_session_gives_the_report_of_the_first_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "model.onnx"
    text = COMPRESS.replace("Compress <axis = 0> (b, keep)", "Exp (b)").replace("bool[N] keep", "float[N] keep")
    onnx.save(onnx.parser.parse_model(text.replace("float[M, 8] y", "float[N, 8] y")), path)
    with mock.patch("ort_core.session_api.session_cache.are_settled", return_value=True):
        reports = [ort.InferenceSession(str(path)).explain() for _ in range(2)]
    assert _told(reports[0]) == _told(reports[1])
    assert all(node.execution is not None for node in reports[1].nodes)


def test_a_fault_of_the_compiler_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from ort_core.cpu.partition import partition

    monkeypatch.setattr(partition, "known_contents", mock.Mock(side_effect=LookupError("on purpose")))
    monkeypatch.setenv("ORT_STRICT_COMPILATION", "0")
    assert not environment_value("ORT_STRICT_COMPILATION")
    with pytest.warns(UserWarning, match="on purpose"):
        report = _report(COMPRESS)
    assert {str(n.execution) for n in report.nodes} == {"numpy: the compiler failed: LookupError: on purpose"}


def test_providers_that_tell_nothing_leave_their_nodes_without_execution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(KernelPartition, "executions", CompiledPartition.executions)
    echo = echo_of("Exp")
    environment = environment_of(plugin_of(echo))
    settings = stages.PrepareSettings()
    selection = stages.select_providers([(echo.name, {})], environment, settings)
    text = "g (float[N, 3] x, bool[3] k) => (float[N, 3] y) { a = Exp (x) y = Compress <axis = 1> (a, k) }"
    prepared = stages.plan_model(model_of(text).freeze(), selection, environment, settings)
    placed: dict[str, NodePlacement] = {node.op_type: node for node in stages.explain_executions(prepared).nodes}
    assert placed["Exp"].provider == echo.name
    assert placed["Exp"].execution is None
    assert placed["Compress"].execution is not None, "the CPU provider's"


def test_a_session_whose_runs_needed_the_general_plan_is_explained() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 4] p, float[N, 4] q) => (float[K, 4] y) {
        [both] y = Concat <axis = 0> (p, q)
    }"""
    session = ort.InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    feeds = {"p": np.ones((2, 4), np.float32), "q": np.ones((3, 4), np.float32)}
    assert session.run(None, feeds)[0].shape == (5, 4)
    assert [node.execution is not None for node in session.explain().nodes] == [True]
