"""Composites that a provider does not know: it is asked about the operators that they are made of."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import onnx
import pytest

from ort_core.onnx_io.load import load_model
from ort_core.options import GraphOptimizationLevel
from ort_core.plugin import Capability, Claim, GraphView, Rejection
from ort_core.stages import PreparedModel, PrepareSettings, optimize, plan_model, select_providers
from ort_core.testing.fake_providers import EchoProvider, RefusingProvider, echo_of, environment_of, plugin_of

HEADER = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> '
SIGNATURE = "g (float[2,3,4] x, float[2,3,4] s, float[4] g) => (float[2,3,4] y) "
NORMAL = "com.microsoft.SkipLayerNormalization"
FEEDS = {
    "x": np.linspace(-1, 2, 24, dtype=np.float32).reshape(2, 3, 4) ** 3,
    "s": np.linspace(1, 0, 24, dtype=np.float32).reshape(2, 3, 4),
    "g": np.array([1, 2, 3, 4], np.float32),
}
ECHO = "EchoExecutionProvider"
_STATISTICS = ("ReduceMean", "Sqrt", "Reciprocal")
_SIZES = (
    "Shape", "Size", "Flatten", "Reshape", "Slice", "Concat", "Range", "Expand", "ConstantOfShape", "Gather", "Squeeze",
)  # fmt: skip


def prepare(text: str, provider: type) -> PreparedModel:
    environment = environment_of(plugin_of(provider))
    settings = PrepareSettings(level=GraphOptimizationLevel.ORT_DISABLE_ALL)
    selection = select_providers([(provider.name, {})], environment, settings)
    model = load_model(onnx.parser.parse_model(HEADER + text))
    optimize(model, environment, settings)
    return plan_model(model.freeze(), selection, environment, settings)


def places(prepared: PreparedModel) -> dict[str, str]:
    return {node.op_type: node.provider for node in prepared.report.nodes}


def results_of(prepared: PreparedModel) -> np.ndarray:
    return prepared.plan.run({value.name: FEEDS[value.name] for value in prepared.model.graph.inputs})[0]


def test_a_composite_is_claimed_by_who_takes_all_of_its_parts() -> None:
    text = SIGNATURE + f"{{ a = Relu(x) n = {NORMAL}(a, s, g) y = Neg(n) }}"
    echo = echo_of("Relu", "Neg", "Add", "LayerNormalization", "Identity")
    prepared = prepare(text, echo)
    assert set(places(prepared).values()) == {ECHO}
    assert echo.compiled == [("Relu", "Add", "LayerNormalization", "Identity", "Neg")], "one partition of parts"
    expected = results_of(prepare(text, RefusingProvider))
    np.testing.assert_allclose(results_of(prepared), expected, rtol=1e-5, atol=1e-6)


def test_a_composite_whose_parts_are_not_all_taken_stays_whole_and_the_reason_names_the_part() -> None:
    text = SIGNATURE + f"{{ a = Relu(x) n = {NORMAL}(a, s, g) y = Neg(n) }}"
    prepared = prepare(text, echo_of("Relu", "Neg", "Add", "Identity"))
    assert places(prepared)["SkipLayerNormalization"] != ECHO
    (node,) = (each for each in prepared.report.nodes if each.op_type == "SkipLayerNormalization")
    assert "does not run SkipLayerNormalization; in its parts: its part" in node.refusals[0].reason
    np.testing.assert_allclose(results_of(prepared), results_of(prepare(text, RefusingProvider)), rtol=1e-5, atol=1e-6)


def test_parts_that_are_composites_are_taken_apart_too() -> None:
    text = "g (float[2,3,4] x, float[2,3,4] s, float[4] g) => (float[2,3,4] y) " + f"{{ y = {NORMAL}(x, s, g) }}"
    below = [*_STATISTICS, *_SIZES, "Add", "Identity", "Mul", "Sub", "Div", "Cast", "Neg"]
    echo = echo_of(*below)
    prepared = prepare(text, echo)
    assert places(prepared) == {"SkipLayerNormalization": ECHO}, prepared.report.nodes[0].refusals
    assert "LayerNormalization" not in echo.compiled[0]
    expected = results_of(prepare(text, RefusingProvider))
    # ONNX's body takes the variance as the mean of squares less the square of the mean: that cancels.
    np.testing.assert_allclose(results_of(prepared), expected, rtol=1e-3, atol=1e-3)


def test_a_composite_alone_among_others_nodes_is_left_where_it_is() -> None:
    text = SIGNATURE + f"{{ a = Relu(x) n = {NORMAL}(a, s, g) y = Neg(n) }}"
    prepared = prepare(text, echo_of("Add", "LayerNormalization", "Identity"))
    assert ECHO not in places(prepared).values(), "three partitions would be worse than one"


def test_parts_of_constants_wait_for_nobody() -> None:
    """MatMulNBits' weights are computed of constants: they lie in the partition of the product, wherever that is."""
    packed = ",".join(map(str, range(1, 33)))
    text = (
        f"g (float[3,32] x) => (float[3,2] y) <uint8[2,2,8] b = {{{packed}}}, float[2,2] c = {{1,2,3,4}}> "
        "{ a = Relu(x) d = Tanh(a) "
        "n = com.microsoft.MatMulNBits<K=32, N=2, block_size=16, bits=4>(d, b, c) y = Neg(n) }"
    )
    operators = ("Relu", "Neg", "Cast", "Sub", "Mul", "Reshape", "Transpose", "MatMul", "Identity", "Slice")
    prepared = prepare(text, echo_of(*operators))
    found = places(prepared)
    assert found.pop("Tanh") != ECHO
    assert set(found.values()) == {ECHO}
    feeds = {"x": np.linspace(-1, 1, 96, dtype=np.float32).reshape(3, 32)}
    expected = prepare(text, RefusingProvider).plan.run(feeds)[0]
    np.testing.assert_allclose(prepared.plan.run(feeds)[0], expected, rtol=1e-5, atol=1e-5)


class _WantsNoParts(EchoProvider):
    operators: ClassVar = frozenset({"Relu", "Neg", "Add", "LayerNormalization", "Identity"})
    takes_parts: ClassVar[bool] = False


class _ClaimsPartsTwice(_WantsNoParts):
    takes_parts: ClassVar[bool] = True

    def get_capability(self, view: GraphView) -> Capability:
        answers = super().get_capability(view)
        has_parts = any(node.op_type == "LayerNormalization" for node in view.graph)
        return [*answers, *(each for each in answers if isinstance(each, Claim))] if has_parts else answers


@pytest.mark.parametrize("provider", [_WantsNoParts, _ClaimsPartsTwice])
def test_what_a_provider_says_of_the_model_counts_where_it_says_nothing_sound_of_parts(provider) -> None:
    text = SIGNATURE + f"{{ a = Relu(x) n = {NORMAL}(a, s, g) y = Neg(n) }}"
    found = places(prepare(text, provider))
    assert found.pop("SkipLayerNormalization") != ECHO
    assert set(found.values()) == {ECHO}


def test_parts_on_both_sides_of_a_node_that_is_left_are_still_one_partition() -> None:
    """The sum comes before what is left, the normalization behind it; the composite as a whole comes behind it."""
    text = (
        "g (float[2,3,4] x, float[2,3,4] s, float[4] g) => (float[2,3,4] y) "
        f"{{ a = Relu(x) k = Exp(g) n = {NORMAL}(a, s, k) y = Neg(n) }}"
    )
    echo = echo_of("Relu", "Neg", "Add", "LayerNormalization", "Identity")
    prepared = prepare(text, echo)
    assert places(prepared) == {
        "Relu": ECHO,
        "Exp": "CPUExecutionProvider",
        "SkipLayerNormalization": ECHO,
        "Neg": ECHO,
    }
    assert ("Add", "LayerNormalization", "Identity", "Neg") in [each[-4:] for each in echo.compiled]
    np.testing.assert_allclose(results_of(prepared), results_of(prepare(text, RefusingProvider)), rtol=1e-5, atol=1e-6)


class _KeepsGraphs(EchoProvider):
    operators: ClassVar = frozenset(("Cast", "Sub", "Mul", "Reshape", "Transpose", "MatMul", "Identity", "Relu"))
    graphs: ClassVar[list] = []

    def compile(self, request):
        self.graphs.append(request.graph)
        return super().compile(request)


def test_weights_that_a_body_takes_in_another_form_are_not_handed_over_as_they_were() -> None:
    packed = ",".join(map(str, range(1, 33)))
    text = (
        f"g (float[3,32] x) => (float[3,2] y) <uint8[2,2,8] b = {{{packed}}}, float[2,2] c = {{1,2,3,4}}> "
        "{ a = Relu(x) y = com.microsoft.MatMulNBits<K=32, N=2, block_size=16, bits=4>(a, b, c) }"
    )
    prepare(text, _KeepsGraphs)
    (graph,) = _KeepsGraphs.graphs
    read = {value for node in graph for value in node.present_inputs()}
    assert read.issuperset(graph.initializers), "an engine that drops what nobody reads does not find it again"


class _FoldsParts(EchoProvider):
    operators: ClassVar = frozenset(("Cast", "Reshape", "MatMul", "Identity", "Relu"))
    folds_parts: ClassVar[bool] = True
    compiled: ClassVar[list] = []


@pytest.mark.parametrize("zeros", ["", ", z"])
def test_parts_of_constants_are_constants_to_an_engine_that_folds_them(zeros: str) -> None:
    """It claims neither Sub, Mul nor Transpose, by which the body makes the weights of what they are packed in."""
    packed = ",".join(map(str, range(1, 33)))
    text = (
        f"g (float[3,32] x) => (float[3,2] y) <uint8[2,2,8] b = {{{packed}}}, float[2,2] c = {{1,2,3,4}}, "
        "uint8[2,1] z = {120, 35}> "
        f"{{ a = Relu(x) y = com.microsoft.MatMulNBits<K=32, N=2, block_size=16, bits=4>(a, b, c{zeros}) }}"
    )
    _FoldsParts.compiled.clear()
    prepared = prepare(text, _FoldsParts)
    assert set(places(prepared).values()) == {ECHO}
    assert _FoldsParts.compiled == [("Relu", "MatMul", "Identity")]
    feeds = {"x": np.linspace(-1, 1, 96, dtype=np.float32).reshape(3, 32)}
    expected = prepare(text, RefusingProvider).plan.run(feeds)[0]
    np.testing.assert_allclose(prepared.plan.run(feeds)[0], expected, rtol=1e-5, atol=1e-5)


class _CountsQuestions(EchoProvider):
    operators: ClassVar = frozenset({"Relu", "Add", "LayerNormalization", "Identity"})
    asked: ClassVar[list[int]] = []

    def get_capability(self, view: GraphView) -> Capability:
        self.asked.append(len(view.nodes))
        return super().get_capability(view)


def _layers(count: int, left_operator: str) -> str:
    """Return layers of one composite each, of which the first is followed by an operator of somebody else."""
    nodes = ["r = Relu(x)", f"n0 = {NORMAL}(r, s, g)", f"a0 = {left_operator}(n0)"]
    nodes += [f"n{place} = {NORMAL}(a{place - 1}, s, g) a{place} = Relu(n{place})" for place in range(1, count)]
    return f"{SIGNATURE}{{ {' '.join(nodes)} y = Relu(a{count - 1}) }}"


def _left_nodes(prepared: PreparedModel) -> list[str]:
    return [node.op_type for node in prepared.report.nodes if node.provider != ECHO]


def test_a_provider_is_asked_about_one_composite_of_a_kind_and_each_group_once_not_about_the_whole_graph() -> None:
    _CountsQuestions.asked.clear()
    prepared = prepare(_layers(20, "Exp"), _CountsQuestions)
    assert _left_nodes(prepared) == ["Exp"]
    whole, *others = _CountsQuestions.asked
    assert whole == 42
    assert others == [3, 4, 19 * 4 + 1], "one composite of three parts, the group before Exp, and the one behind"
    np.testing.assert_allclose(
        results_of(prepared), results_of(prepare(_layers(20, "Exp"), RefusingProvider)), rtol=1e-5, atol=1e-6
    )


def test_questions_do_not_grow_in_number_with_the_composites_that_stay() -> None:
    _CountsQuestions.asked.clear()
    text = _layers(20, "Exp").replace("y = Relu", "e = com.microsoft.QuickGelu(a0) b = Add(e, a19) y = Relu")
    prepared = prepare(text.replace("Relu(a19) }", "Relu(b) }"), _CountsQuestions)
    assert _left_nodes(prepared) == ["Exp", "QuickGelu"]
    assert len(_CountsQuestions.asked) <= 8, _CountsQuestions.asked


class _WantsMuch(_CountsQuestions):
    def get_capability(self, view: GraphView) -> Capability:
        answers = super().get_capability(view)
        return answers if len(view.nodes) > 4 else [Rejection("too few", node) for node in view.nodes]


def test_the_whole_graph_is_asked_about_where_a_provider_does_not_take_a_composite_alone() -> None:
    _WantsMuch.asked.clear()
    prepared = prepare(_layers(8, "Exp"), _WantsMuch)
    assert max(_WantsMuch.asked[1:]) > 7 * 4 + 3, "the group before Exp, and the one behind, at once"
    assert _left_nodes(prepared) == ["Exp"]
