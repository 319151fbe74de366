"""Runs that a partition hands on are computed by numpy kernels, and each reason is said once."""

from __future__ import annotations

import threading

import numpy as np

from ort_core.plugin import Claim, KernelFallbackState
from ort_core.providers.kernel_fallback import MAX_REASONS
from ort_core.testing.claims import new_run_state, request_for, typed_model, view_of
from ort_core.testing.models import model_of


def fallback() -> KernelFallbackState:
    view = view_of(typed_model(model_of("g (float[n] x) => (float[n] y) { a = Relu(x)  y = Neg(a) }")))
    return KernelFallbackState(request_for(view, Claim(tuple(view.nodes))))


def test_a_run_is_computed_by_kernels_into_what_was_handed_in():
    given = np.zeros(3, np.float32)
    for outputs in ([None], [given]):
        fallback().run("too large", [np.array([-1, 0, 2], np.float32)], outputs, new_run_state())
        assert outputs[0].tolist() == [0, 0, -2]
    assert given.tolist() == [0, 0, -2]


def test_each_reason_is_said_once_and_not_without_end(caplog):
    state, x = fallback(), np.ones(2, np.float32)
    for reason in ("too large", "too large", "an index"):
        state.run(reason, [x], [None], new_run_state())
    assert [text.rpartition(": ")[2] for text in caplog.messages] == ["too large", "an index"]
    for number in range(3 * MAX_REASONS):
        state.say(f"size {number}")
    assert len(caplog.messages) == MAX_REASONS


def test_threads_share_the_kernels():
    state, found = fallback(), [None] * 8

    def run(place: int) -> None:
        outputs: list = [None]
        state.run("too large", [np.full(2, place, np.float32)], outputs, new_run_state())
        found[place] = outputs[0].tolist()

    threads = [threading.Thread(target=run, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[-place, -place] for place in range(8)]
