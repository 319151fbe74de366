"""Plugins that break the contract at its edges: what is told, and that the others go on."""

from __future__ import annotations

import numpy as np
import pytest

import ort_core as ort
from ort_core.errors import InvalidArgument, NotFound
from ort_core.onnx_io.save import model_to_bytes
from ort_core.plugin import Claim, EagerPartition, ExecutionProvider, Rejection
from ort_core.stages.selection import PlacementWarning
from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import environment_of, plugin_of
from ort_core.testing.models import model_of

NAME = "FaultyExecutionProvider"
CONTENT = model_to_bytes(model_of("g (float[N] x) => (float[N] y) { a = Relu(x) b = Neg(a) y = Relu(b) }"))
X = np.array([-1, 0, 2], np.float32)


class Relus(EagerPartition):
    """One Relu."""

    def compute(self, inputs, run_state):
        return [np.maximum(inputs[0], 0)]


class Faulty(ExecutionProvider):
    """Takes each Relu by itself."""

    name = NAME

    def get_capability(self, view):
        return [Claim((node,)) for node in view.nodes if node.op_type == "Relu"]

    def compile(self, request):
        return Relus(1)


def kind(**members):
    return type("Kind", (Faulty,), members)


def refused(self, options=None):
    raise ValueError("no driver")


def explained(provider, providers=(NAME, "CPUExecutionProvider")):
    with installed(plugin_of(provider)):
        session = ort.InferenceSession(CONTENT, providers=list(providers))
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], np.zeros(3))
        return str(session.explain())


@pytest.mark.parametrize("answer", [None, True, False, "yes", 0])
def test_a_check_that_answers_otherwise_is_a_bug_of_the_provider(answer):
    provider = kind(check=classmethod(lambda cls: answer))
    with pytest.warns(PlacementWarning, match=f"check returned {answer!r}, expected Available or Unavailable"):
        explained(provider)


def test_a_provider_that_cannot_be_made_is_not_available():
    with pytest.warns(PlacementWarning, match=f"{NAME} could not be made: ValueError: no driver"):
        explained(kind(__init__=refused))


def test_options_that_do_not_parse_stay_the_users_error():
    with installed(plugin_of(Faulty)), pytest.raises(InvalidArgument, match="has no option 'level'"):
        ort.InferenceSession(CONTENT, providers=[(NAME, {"level": "1"})])


@pytest.mark.parametrize(
    ("members", "reason"),
    [({"name": None}, "has no name"), ({"name": " "}, "has no name"), ({"options_type": dict}, "a frozen dataclass")],
)
def test_who_asks_for_a_provider_of_a_plugin_that_cannot_be_used_hears_why(members, reason):
    with pytest.raises(NotFound, match=rf"Plugins that cannot be used: .*{reason}"):
        environment_of(plugin_of(kind(**members))).get_provider(NAME)


def test_reasons_of_a_refused_claim_are_told_of_its_own_nodes():
    def capability(self, view):
        relus = [node for node in view.nodes if node.op_type == "Relu"]
        return [Claim((relus[0],)), Claim(tuple(relus))] if len(relus) == 2 else []

    text = explained(kind(get_capability=capability))
    assert f"{NAME} left Relu x1: its claim was refused: it overlaps an earlier claim" in text
    assert f"{NAME} left Neg x1: left without a reason; another of its answers was refused: it overlaps" in text


def test_an_empty_reason_is_none():
    text = explained(kind(get_capability=lambda self, view: [Rejection("", node) for node in view.nodes]))
    assert f"{NAME} left Neg x1: left without a reason" in text


def test_a_partition_that_cannot_tell_how_it_runs_does_not_hide_the_report(caplog):
    partition = type("Partition", (Relus,), {"executions": refused})
    text = explained(kind(compile=lambda self, request: partition(1)))
    assert f"1 node on {NAME}: Relu" in text
    assert f"{NAME} failed to tell how partition" in caplog.text


def test_a_partition_that_fails_to_close_leaves_no_other_open(caplog):
    closed = []

    def close(self):
        closed.append(self)
        raise ValueError("busy")

    partition = type("Partition", (Relus,), {"close": close})
    with installed(plugin_of(kind(compile=lambda self, request: partition(1)))):
        session = ort.InferenceSession(CONTENT, providers=[NAME, "CPUExecutionProvider"])
        session.run(None, {"x": X})
        session.close()
    assert len(closed) == 2
    assert caplog.text.count("failed to close partition") == 2
