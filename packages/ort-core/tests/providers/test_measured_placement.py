"""Measured placement: the cheapest assignment for known costs, its explanation, and that it is remembered."""

from __future__ import annotations

import numpy as np
import pytest
from timed_providers import FakeClockState, timed_of

from ort_core.errors import InvalidArgument
from ort_core.options import SessionOptions
from ort_core.partitioning.policies.measured import (
    Crossing,
    Estimate,
    Region,
    cheapest,
    decide,
    finalists,
    find_regions,
)
from ort_core.session import InferenceSession
from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import FailsInCompile, plugin_of
from ort_core.testing.models import model_of

CHAIN = """g (float[N, 3] x) => (float[N, 3] y) {
    a = Relu (x)
    b = Sigmoid (a)
    c = Neg (b)
    y = Add (c, a)
}"""
FAST, SLOW = "FastExecutionProvider", "SlowExecutionProvider"
X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
ALL = ("Relu", "Sigmoid", "Neg", "Add")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path / "cache"))


def options(**samples: np.ndarray) -> SessionOptions:
    chosen = SessionOptions()
    chosen.add_session_config_entry("session.placement_policy", "measured")
    chosen.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    chosen.sample_inputs = dict(samples)
    return chosen


def placed(session: InferenceSession) -> dict[str, str]:
    return {node.op_type: node.provider for node in session.explain().nodes}


def check(session: InferenceSession) -> None:
    a = np.maximum(X, 0)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], a - 1 / (1 + np.exp(-a)), rtol=1e-6)


def place(clock: FakeClockState, first, second, chosen: SessionOptions | None = None) -> InferenceSession:
    with installed(plugin_of(first, second)) as environment:
        environment.clock = clock
        return InferenceSession(model_of(CHAIN), chosen or options(), providers=[first.name, second.name])


def test_the_faster_provider_wins_against_priority():
    clock = FakeClockState()
    slow = timed_of(SLOW, clock, dict.fromkeys(ALL, 5_000_000))
    fast = timed_of(FAST, clock, dict.fromkeys(ALL, 1_000_000))
    session = place(clock, slow, fast)
    assert set(placed(session).values()) == {FAST}
    check(session)
    (reason,) = {refusal.reason for node in session.explain().nodes for refusal in node.refusals}
    assert reason == "measured placement: the whole model takes 20.000 ms with it, 4.000 ms as chosen"
    assert any("whole model on FastExecutionProvider: 4.000 ms (chosen)" in x for x in session.explain().measurements)
    assert "4.000 ms (chosen)" in str(session.explain())


def test_priority_stays_where_it_is_cheapest():
    clock = FakeClockState()
    session = place(
        clock, timed_of(FAST, clock, dict.fromkeys(ALL, 1000)), timed_of(SLOW, clock, dict.fromkeys(ALL, 9000))
    )
    assert set(placed(session).values()) == {FAST}


def test_a_provider_that_is_fast_at_some_operators_gets_those():
    clock = FakeClockState()
    special = timed_of(FAST, clock, {"Sigmoid": 1_000_000, "Neg": 1_000_000})
    general = timed_of(SLOW, clock, {"Relu": 100, "Sigmoid": 8_000_000, "Neg": 8_000_000, "Add": 100})
    session = place(clock, special, general)
    assert placed(session) == {"Relu": SLOW, "Sigmoid": FAST, "Neg": FAST, "Add": SLOW}
    check(session)


def test_a_region_that_does_not_pay_for_its_border_is_given_up():
    """The special provider computes faster, but each of its partitions costs more than it saves."""
    clock = FakeClockState()
    special = timed_of(FAST, clock, {"Sigmoid": 1_000_000, "Neg": 1_000_000}, overhead_ns=20_000_000)
    general = timed_of(SLOW, clock, {"Relu": 100, "Sigmoid": 8_000_000, "Neg": 8_000_000, "Add": 100})
    assert set(placed(place(clock, special, general)).values()) == {SLOW}


def test_whole_runs_overrule_estimates_where_a_cut_costs():
    """Alone the region is faster on the first provider; whole, the second pays its overhead once instead of twice."""
    clock = FakeClockState()
    special = timed_of(FAST, clock, {"Sigmoid": 9_000_000})
    general = timed_of(SLOW, clock, {"Relu": 0, "Sigmoid": 1_000_000, "Neg": 0, "Add": 0}, overhead_ns=10_000_000)
    session = place(clock, special, general)
    assert set(placed(session).values()) == {SLOW}
    check(session)


def test_a_placement_is_remembered_until_something_changes():
    clock = FakeClockState()
    first = timed_of(SLOW, clock, dict.fromkeys(ALL, 5000))
    second = timed_of(FAST, clock, dict.fromkeys(ALL, 1000))
    before = place(clock, first, second)
    reads = clock.reads
    assert reads > 0
    again = place(clock, first, second)
    assert clock.reads == reads, "a known placement was measured again"
    assert placed(again) == placed(before)
    assert again.explain().measurements == before.explain().measurements
    place(clock, first, second, options(x=X))
    assert clock.reads > reads, "other sizes are another measurement"
    reads = clock.reads
    newer = timed_of(FAST, clock, dict.fromkeys(ALL, 1000), cache_key=lambda self: "FastExecutionProvider|SDK 2")
    place(clock, first, newer)
    assert clock.reads > reads, "another version is another measurement"


def test_a_provider_that_cannot_compile_its_claim_is_not_chosen():
    clock = FakeClockState()

    class Broken(FailsInCompile):
        name = "BrokenExecutionProvider"

    session = place(clock, Broken, timed_of(SLOW, clock, dict.fromkeys(ALL, 1000)))
    assert set(placed(session).values()) == {SLOW}
    check(session)


def test_by_default_and_with_one_provider_nothing_is_measured():
    clock = FakeClockState()
    fast, slow = (timed_of(name, clock, dict.fromkeys(ALL, 1000)) for name in (FAST, SLOW))
    assert set(placed(place(clock, slow, fast, SessionOptions())).values()) == {SLOW}
    assert clock.reads == 0
    only = timed_of(SLOW, clock, {"Relu": 1})
    with installed(plugin_of(only)) as environment:
        environment.clock = clock
        chosen = SessionOptions()
        chosen.add_session_config_entry("session.placement_policy", "measured")
        model = model_of("g (float[N] x) => (float[N] y) { y = Sin (x) }")
        session = InferenceSession(model, chosen, providers=[SLOW])
    assert clock.reads == 0
    assert session.explain().measurements == ("measured placement: no node is claimed by two providers",)


BRANCHES = """g (float[N] x, bool c) => (float[N] y) {
    y = If (c) <then_branch = yes () => (float[N] a) { b = Neg (x) a = Relu (b) },
                else_branch = no () => (float[N] d) { d = Neg (x) }>
}"""


@pytest.mark.parametrize("order", [(FAST, "CPUExecutionProvider"), ("CPUExecutionProvider", FAST)])
def test_bodies_of_control_flow_are_placed_too(order):
    """Nothing outside the bodies is claimed twice; only whole runs show what a provider costs inside."""
    clock = FakeClockState()
    slow = timed_of(FAST, clock, {"Neg": 5_000_000, "Relu": 5_000_000})
    with installed(plugin_of(slow)) as environment:
        environment.clock = clock
        chosen = options(x=X[0], c=np.array(True))
        chosen.add_session_config_entry("session.disable_cpu_ep_fallback", "0")
        session = InferenceSession(model_of(BRANCHES), chosen, providers=list(order))
        again = InferenceSession(model_of(BRANCHES), chosen, providers=list(order))
    for each in (session, again):
        assert {node.provider for node in each.explain().nodes} == {"CPUExecutionProvider"}
    np.testing.assert_array_equal(session.run(None, {"x": X[0], "c": np.array(True)})[0], np.maximum(-X[0], 0))


def test_inputs_that_cannot_be_made_up_leave_priority_with_the_reason():
    clock = FakeClockState()
    first, second = (timed_of(name, clock, {"SequenceLength": 1000}) for name in (SLOW, FAST))
    with installed(plugin_of(first, second)) as environment:
        environment.clock = clock
        model = model_of("g (seq(float[N]) s) => (int64 n) { n = SequenceLength (s) }")
        session = InferenceSession(model, options(), providers=[SLOW, FAST])
    assert set(placed(session).values()) == {SLOW}
    assert "placed by priority" in session.explain().measurements[0]
    assert "sample_inputs" in session.explain().measurements[0]


def test_an_unknown_policy_is_refused():
    with pytest.raises(InvalidArgument, match="priority"):
        SessionOptions().add_session_config_entry("session.placement_policy", "cheapest")


# The pure policy.


def copies(nbytes: int, provider: str) -> float:
    return 10.0 * nbytes if provider == "gpu" else 0.0


def test_copies_between_neighbors_on_one_device_are_not_counted():
    alone = ({"gpu": 60.0, "cpu": 70.0}, {"gpu": 60.0, "cpu": 70.0})  # 40 of each 60 are copies
    crossings = (Crossing(2, None, (0,)), Crossing(2, 0, (1,)), Crossing(2, 1, (None,)))
    estimate = Estimate(alone, crossings, copies)
    assert estimate.cost_of(("gpu", "gpu")) == 20 + 20 + 20 + 20
    assert estimate.cost_of(("cpu", "cpu")) == 140
    assert estimate.cost_of(("gpu", "cpu")) == 20 + 20 + 20 + 70
    regions = [Region((), ("cpu", "gpu")), Region((), ("cpu", "gpu"))]
    assert cheapest(regions, estimate) == ("gpu", "gpu")


def test_many_regions_are_assigned_without_trying_every_combination():
    count = 40
    names = ("cpu", "gpu")
    alone = tuple({"cpu": float(10 + i % 3), "gpu": float(11 if i % 2 else 5)} for i in range(count))
    crossings = tuple(Crossing(0, i, (i + 1,)) for i in range(count - 1))
    choice = cheapest([Region((), names)] * count, Estimate(alone, crossings, copies))
    assert choice == tuple(min(names, key=each.__getitem__) for each in alone)


def test_an_assignment_that_cannot_run_is_no_finalist():
    estimate = Estimate(({"cpu": 5.0, "gpu": float("inf")},), failures={(0, "gpu"): "out of memory"})
    assert finalists([Region((), ("gpu", "cpu"))], estimate) == (("cpu",),)


def test_each_finalist_challenges_the_fastest_before_it():
    times = {("a",): 5.0, ("b",): 3.0, ("c",): 4.0}
    seen: list[tuple[tuple[str, ...], tuple[str, ...]]] = []

    def compare(champion: tuple[str, ...], challenger: tuple[str, ...]) -> tuple[float, float]:
        seen.append((champion, challenger))
        return times[champion], times[challenger]

    outcome = decide(list(times), compare)
    assert outcome.choice == ("b",)
    assert outcome.totals == times
    assert seen == [(("a",), ("b",)), (("b",), ("c",))]


def test_bodies_are_given_to_each_provider_beside_the_cheapest_assignment_outside():
    regions = [Region((), ("gpu", "cpu")), Region((), ("gpu", "cpu")), Region((), ("gpu", "cpu"), is_inside=True)]
    estimate = Estimate(({"gpu": 1.0, "cpu": 9.0}, {"gpu": 9.0, "cpu": 1.0}))
    assert set(finalists(regions, estimate)) == {
        ("gpu", "gpu", "gpu"), ("cpu", "cpu", "cpu"), ("gpu", "cpu", "gpu"), ("gpu", "cpu", "cpu"),
    }  # fmt: skip


def test_regions_are_what_the_same_claims_cover():
    graph = model_of(CHAIN).graph
    relu, sigmoid, neg, add = graph.nodes
    regions = find_regions(graph, {"a": [[sigmoid, neg]], "b": [[relu, sigmoid], [neg, add]]})
    assert [(tuple(n.op_type for n in r.nodes), r.providers) for r in regions] == [
        (("Relu",), ("b",)), (("Sigmoid",), ("a", "b")), (("Neg",), ("a", "b")), (("Add",), ("b",)),
    ]  # fmt: skip
