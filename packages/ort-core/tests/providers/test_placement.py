"""Claims are checked, failures explained, and results equal whoever runs a node."""

from __future__ import annotations

import numpy as np
import pytest

from ort_core.errors import EPFail, KernelNotFoundError, ProviderUnavailable
from ort_core.providers.capability import Claim, GraphView
from ort_core.providers.provider import ExecutionProvider
from ort_core.stages import PlacementWarning, PreparedModel, PrepareSettings, plan_model, select_providers
from ort_core.testing.fake_providers import (
    FailsInClaim,
    FailsInCompile,
    FailsInRun,
    RefusingProvider,
    echo_of,
    environment_of,
    lying,
    plugin_of,
)
from ort_core.testing.models import model_of

CHAIN = """g (float[N, 3] x) => (float[N, 3] y) {
    a = Relu (x)
    b = Sigmoid (a)
    c = Neg (b)
    y = Add (c, a)
}"""


def prepare(body: str, *providers: type[ExecutionProvider], strict: bool = False) -> PreparedModel:
    environment = environment_of(plugin_of(*providers))
    settings = PrepareSettings(strict=strict)
    selection = select_providers([(cls.name, {}) for cls in providers], environment, settings)
    return plan_model(model_of(body).freeze(), selection, environment, settings)


def chain_expected(x: np.ndarray) -> np.ndarray:
    a = np.maximum(x, 0)
    return a - 1 / (1 + np.exp(-a))


X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


def test_every_split_of_a_chain_gives_the_same_result() -> None:
    for operators in (["Relu"], ["Sigmoid"], ["Relu", "Neg"], ["Relu", "Sigmoid", "Neg", "Add"], ["Add", "Relu"]):
        prepared = prepare(CHAIN, echo_of(*operators))
        (y,) = prepared.plan.run({"x": X})
        np.testing.assert_allclose(y, chain_expected(X), rtol=1e-6)
        assert prepared.report.counts().get("EchoExecutionProvider") == len(operators)


def test_nodes_around_an_unsupported_one_are_two_partitions() -> None:
    echo = echo_of("Relu", "Neg", "Add")
    prepared = prepare(CHAIN, echo)
    assert echo.compiled == [("Relu",), ("Neg", "Add")]
    assert [len(nodes) for nodes in prepared.report.partitions().values()] == [1, 1, 2]


CROSSED = """g (float[N, 3] x) => (float[N, 3] y) {
    p = Relu (x)
    q = Tanh (p)
    r = Relu (q)
    s = Neg (p)
    t = Relu (s)
    u = Tanh (t)
    y = Add (r, u)
}"""


def test_a_claim_that_crosses_an_earlier_providers_is_cut_in_pieces() -> None:
    first, second = echo_of("Relu", name="FirstExecutionProvider"), echo_of("Tanh", name="SecondExecutionProvider")
    prepared = prepare(CROSSED, first, second)
    assert ("Relu", "Relu") in first.compiled, "the first provider's claim stands: r and t in one partition"
    assert second.compiled == [("Tanh",), ("Tanh",)], "q comes before that partition, u behind it"
    (y,) = prepared.plan.run({"x": X})
    expected = np.maximum(np.tanh(np.maximum(X, 0)), 0) + np.tanh(np.maximum(-np.maximum(X, 0), 0))
    np.testing.assert_allclose(y, expected, rtol=1e-6)


def test_report_gives_each_refusal_with_its_reason() -> None:
    prepared = prepare(CHAIN, RefusingProvider)
    placement = prepared.report.nodes[0]
    assert placement.provider == "CPUExecutionProvider"
    assert [(r.provider, r.reason) for r in placement.refusals] == [
        ("RefusingExecutionProvider", "refuses on principle")
    ]
    assert "refuses on principle" in str(prepared.report)


def test_provider_that_raises_in_claim_leaves_everything_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_STRICT_COMPILATION", "0")
    with pytest.warns(PlacementWarning, match="Relu node.*KeyError"):
        prepared = prepare(CHAIN, FailsInClaim)
    assert "KeyError" in prepared.report.nodes[0].refusals[0].reason
    assert prepared.plan.run({"x": X})[0].shape == (2, 3)


def test_failed_compile_goes_to_the_next_provider_with_a_warning() -> None:
    with pytest.warns(PlacementWarning, match="the vendor's compiler gave up"):
        prepared = prepare(CHAIN, FailsInCompile)
    assert prepared.report.counts() == {"CPUExecutionProvider": 4}
    assert "gave up" in prepared.report.fallbacks[0]
    np.testing.assert_allclose(prepared.plan.run({"x": X})[0], chain_expected(X), rtol=1e-6)


def test_failed_compile_is_an_error_when_strict() -> None:
    with pytest.raises(EPFail, match="the vendor's compiler gave up"):
        prepare(CHAIN, FailsInCompile, strict=True)


def test_failed_run_names_provider_and_partition() -> None:
    prepared = prepare(CHAIN, FailsInRun)
    with pytest.raises(EPFail, match=r"FailsInRunExecutionProvider failed.*fell off the bus"):
        prepared.plan.run({"x": X})


def test_strict_placement_raises_with_the_reason_of_the_first_provider() -> None:
    with pytest.raises(ProviderUnavailable, match="refuses on principle"):
        prepare(CHAIN, RefusingProvider, strict=True)


def _not_convex(view: GraphView) -> list[object]:
    by_type = {node.op_type: node for node in view.nodes}
    return [Claim((by_type["Relu"], by_type["Neg"]))] if {"Relu", "Neg"} <= by_type.keys() else []


def _overlapping(view: GraphView) -> list[object]:
    return [Claim(view.nodes[:2]), Claim(view.nodes[1:])]


def _twice(view: GraphView) -> list[object]:
    return [Claim((view.nodes[0], view.nodes[0]))]


def _foreign(view: GraphView) -> list[object]:
    stranger = model_of("g (float[N] x) => (float[N] y) { y = Relu (x) }").graph.nodes[0]
    return [Claim((stranger,))]


def _nonsense(view: GraphView) -> list[object]:
    return ["Relu, please"]


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (_not_convex, "not convex"),
        (_overlapping, "overlaps an earlier claim"),
        (_twice, "holds a node twice"),
        (lambda view: [], "left without a reason"),
        (lambda view: [Claim(())], "it holds no nodes"),
        (_foreign, "not on offer"),
        (_nonsense, "neither a Claim nor a Rejection"),
    ],
)
def test_lie_about_claims_is_refused_and_the_model_runs_elsewhere(lie: object, words: str) -> None:
    prepared = prepare(CHAIN, lying(lie))  # type: ignore[arg-type]  # some lies have no right type
    reasons = [r.reason for node in prepared.report.nodes for r in node.refusals]
    assert any(words in reason for reason in reasons), reasons
    np.testing.assert_allclose(prepared.plan.run({"x": X})[0], chain_expected(X), rtol=1e-6)


def test_two_convex_claims_that_wait_for_each_other_are_not_both_accepted() -> None:
    body = """g (float[2] x, float[2] z) => (float[2] p, float[2] q) {
        a = Relu (x)
        p = Neg (a)
        b = Sigmoid (z)
        q = Tanh (b)
    }"""

    def crossed(view: GraphView) -> list[object]:
        a, p, b, q = view.nodes
        return [Claim((a, q)), Claim((p, b))]

    prepared = prepare(body, lying(crossed))
    reasons = [r.reason for node in prepared.report.nodes for r in node.refusals]
    assert any("cycle" in reason for reason in reasons)
    x, z = np.float32([-1, 2]), np.float32([0, 1])
    p, q = prepared.plan.run({"x": x, "z": z})
    np.testing.assert_allclose(p, -np.maximum(x, 0))
    np.testing.assert_allclose(q, np.tanh(1 / (1 + np.exp(-z))), rtol=1e-6)


def test_unknown_operator_names_node_and_every_provider_asked() -> None:
    model = "g (float[2] x) => (float[2] y) { y = my.domain.Mystery (x) }"
    from ort_core.ir.model import Model

    loaded: Model = model_of(model, opsets='"" : 21, "my.domain" : 1')
    environment = environment_of()
    selection = select_providers(None, environment, PrepareSettings())
    with pytest.raises(KernelNotFoundError, match=r"my\.domain::Mystery.*CPUExecutionProvider"):
        plan_model(loaded.freeze(), selection, environment, PrepareSettings())


LOOP = """g (int64 n, bool go, float[2] x, float[2] w) => (float[2] y, float[K, 2] trace) {
    base = Neg (w)
    y, trace = Loop (n, go, x) <body = b (int64 i, bool c, float[2] s) => (bool c2, float[2] s2, float[2] t) {
        c2 = Identity (c)
        u = Relu (s)
        s2 = Add (u, base)
        t = Sigmoid (s2)
    }>
}"""


@pytest.mark.parametrize("operators", [(), ("Relu",), ("Relu", "Sigmoid"), ("Add",), ("Neg", "Add")])
def test_loop_body_is_partitioned_when_another_provider_wants_nodes_inside(operators: tuple[str, ...]) -> None:
    echo = echo_of(*operators, "Nothing")
    prepared = prepare(LOOP, echo)
    assert {op for ops in echo.compiled for op in ops} == set(operators)
    x, w = np.float32([1, -1]), np.float32([0.25, -0.5])
    y, trace = prepared.plan.run({"n": np.int64(3), "go": np.bool_(True), "x": x, "w": w})
    s, rows = x, []
    for _ in range(3):
        s = np.maximum(s, 0) - w
        rows.append(1 / (1 + np.exp(-s)))
    np.testing.assert_allclose(y, s, rtol=1e-6)
    np.testing.assert_allclose(trace, np.stack(rows), rtol=1e-6)
