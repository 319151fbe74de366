"""What providers raise when they are asked for claims: told with the node and the exception, an error in tests."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import onnx
import pytest

from ort_core.errors import EPFail
from ort_core.onnx_io.load import load_model
from ort_core.options import GraphOptimizationLevel, SessionOptions
from ort_core.plugin import Capability, GraphView
from ort_core.stages import PreparedModel, PrepareSettings, foresee, optimize, plan_model, select_providers
from ort_core.stages.selection import PlacementWarning
from ort_core.testing.fake_providers import EchoProvider, environment_of, plugin_of

HEADER = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> '
NORMAL = HEADER + (
    "g (float[2,3,4] x, float[2,3,4] s, float[4] g) => (float[2,3,4] y) "
    "{ a = Relu(x) [normal] n = com.microsoft.SkipLayerNormalization(a, s, g) y = Neg(n) }"
)
PLAIN = HEADER + "g (float[4] x) => (float[4] y) { a = Relu(x) [sine] b = Sin(a) [minus] c = Neg(b) y = Abs(c) }"
BODY = HEADER + (
    "g (bool c, float[4] x) => (float[4] y) { y = If(c) <then_branch = t () => (float[4] p) { p = Sin(x) }, "
    "else_branch = e () => (float[4] q) { q = Relu(x) }> }"
)


class _Stumbles(EchoProvider):
    operators: ClassVar = frozenset({"Relu", "Neg", "Add", "Identity"})
    at: ClassVar[str] = ""

    def get_capability(self, view: GraphView) -> Capability:
        for node in view.nodes:
            if node.op_type == self.at:
                raise TypeError(f"rank of {None!r}")
        return super().get_capability(view)


class _StumblesOverParts(_Stumbles):
    at: ClassVar[str] = "LayerNormalization"


class _StumblesOverNodes(_Stumbles):
    at: ClassVar[str] = "Sin"


class _StumblesOnce(_Stumbles):
    questions: ClassVar[list[int]] = []

    def get_capability(self, view: GraphView) -> Capability:
        self.questions.append(len(view.nodes))
        if len(self.questions) == 1:
            raise OSError("the driver was away")
        return super().get_capability(view)


def prepare(text: str, provider: type) -> PreparedModel:
    environment = environment_of(plugin_of(provider))
    settings = PrepareSettings(level=GraphOptimizationLevel.ORT_DISABLE_ALL)
    selection = select_providers([(provider.name, {})], environment, settings)
    model = load_model(onnx.parser.parse_model(text))
    optimize(model, environment, settings)
    return plan_model(model.freeze(), selection, environment, settings)


@pytest.fixture
def forgiving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_STRICT_COMPILATION", "0")


@pytest.mark.usefixtures("forgiving")
def test_a_fault_at_a_part_is_told_with_provider_node_and_exception():
    with pytest.warns(PlacementWarning, match="EchoExecutionProvider.*LayerNormalization node 'normal/.*TypeError"):
        prepared = prepare(NORMAL, _StumblesOverParts)
    assert "TypeError: rank of None" in " ".join(prepared.report.fallbacks)
    (left,) = [node for node in prepared.report.nodes if node.op_type == "SkipLayerNormalization"]
    assert "TypeError: rank of None" in left.refusals[0].reason
    assert {node.provider for node in prepared.report.nodes if node is not left} == {_Stumbles.name}
    assert left.provider != _Stumbles.name


@pytest.mark.usefixtures("forgiving")
def test_a_fault_at_a_node_is_told_with_provider_node_and_exception_and_the_model_runs():
    with pytest.warns(
        PlacementWarning, match="EchoExecutionProvider.*Sin node 'sine'.*TypeError: rank of None"
    ) as seen:
        prepared = prepare(PLAIN, _StumblesOverNodes)
    assert len(seen) == 1
    assert not prepared.report.on(_Stumbles.name)
    x = np.linspace(-1, 1, 4, dtype=np.float32)
    np.testing.assert_allclose(prepared.plan.run({"x": x})[0], np.abs(np.sin(np.maximum(x, 0))), rtol=1e-6)


@pytest.mark.usefixtures("forgiving")
def test_a_fault_inside_a_body_is_told():
    with pytest.warns(PlacementWarning, match="Sin node.*TypeError"):
        prepare(BODY, _StumblesOverNodes)


@pytest.mark.usefixtures("forgiving")
def test_a_fault_that_no_node_repeats_names_none():
    _StumblesOnce.questions.clear()
    with pytest.warns(PlacementWarning, match=r"get_capability failed \(OSError: the driver was away\)"):
        prepare(PLAIN, _StumblesOnce)


@pytest.mark.usefixtures("forgiving")
def test_a_foreseen_placement_shows_faults_too():
    environment = environment_of(plugin_of(_StumblesOverNodes))
    model = load_model(onnx.parser.parse_model(PLAIN))
    report = foresee(model, SessionOptions(), environment, [(_Stumbles.name, {})]).report
    assert "Sin node 'sine'" in " ".join(report.fallbacks)


@pytest.mark.parametrize(("text", "provider"), [(NORMAL, _StumblesOverParts), (PLAIN, _StumblesOverNodes)])
def test_a_fault_is_an_error_where_compilation_is_strict(monkeypatch, text, provider):
    monkeypatch.setenv("ORT_STRICT_COMPILATION", "1")
    with pytest.raises(EPFail, match=r"EchoExecutionProvider.* node '.*TypeError"):
        prepare(text, provider)
