"""What tests of rounds share, by whichever call they run."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import numpy as np

import ort_core as ort
from ort_core.cpu.direct.finished_calls import FinishedCalls
from ort_core.cpu.guarded.arrays import GuardedArrays
from ort_core.cpu.guarded.mode import GuardedMode
from ort_core.tolerances import compare


def assert_right_in_many_threads(
    ran: ort.InferenceSession, truth: ort.InferenceSession, feeds: Sequence[Mapping[str, np.ndarray]], turns: int
) -> None:
    """Assert that six threads, each of which runs so many of the feeds in turn, get what another session gives."""
    expected = [truth.run(None, dict(each)) for each in feeds]
    wrong: list[int] = []

    def work(start: int) -> None:
        for turn in range(turns):
            n = (start + turn) % len(feeds)
            results = ran.run(None, dict(feeds[n]))
            if not all(compare(a, b, "approximate").passes for a, b in zip(results, expected[n], strict=True)):
                wrong.append(n)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def carried_text(kind: str) -> str:
    """Return a Loop that carries a vector of an element type, and piles up what it makes on the way."""
    steps = "t = Not(h)\nout = And(t, x)" if kind == "bool" else "t = Mul(h, x)\nout = Add(t, x)"
    return f"""
    g (int64 m, {kind}[N] x) => ({kind}[N] y, {kind}[K,N] all) {{
        y, all = Loop (m, , x) <body = b (int64 i, bool c, {kind}[N] h) => (bool c2, {kind}[N] out, {kind}[N] seen) {{
            c2 = Identity(c)
            {steps}
            seen = Identity(t)
        }}>
    }}"""


def assert_nothing_beside_is_touched(
    ran: ort.InferenceSession, feeds: dict[str, np.ndarray], mode: GuardedMode
) -> None:
    """Assert that a direct call gives what a run does, with feeds and results beside pages that cannot be touched.

    Where Python makes outputs of the results, the results are compared with those of another call.
    """
    direct = ran._loaded.direct
    finished = direct._offered if isinstance(direct._offered, FinishedCalls) else None
    call = direct.call if finished is None else finished._calls.call
    expected = ran.run(None, feeds) if finished is None else call(dict(feeds), None)
    assert expected is not None
    guarded = GuardedArrays(list(feeds.values()), expected, mode)
    own = dict(zip(feeds, guarded.arrays, strict=False))
    found = call(own, tuple(guarded.arrays[len(feeds) :]))
    assert found is not None
    guarded.check("a direct call of rounds")
    for result, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(result, other)
