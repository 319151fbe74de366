"""Memory of large outputs: given again only when the caller has let go of all of it."""

from __future__ import annotations

import ml_dtypes  # noqa: F401 - makes its types known to numpy by name
import numpy as np
import pytest
from onnx import parser

import ort_core as ort
from ort_core.cpu.program.output_memory import ALIGNMENT, LEAST, OutputMemory
from ort_core.errors import EPFail

FLOATS = LEAST // 4
F32 = np.dtype(np.float32)


def test_memory_of_a_dropped_array_serves_the_next_one() -> None:
    memory = OutputMemory()
    memory.keep([((4 * FLOATS,), F32)])
    first = memory.empty((FLOATS + 8,), F32)
    address = first.ctypes.data
    assert address % ALIGNMENT == 0
    del first
    assert memory.empty((2, FLOATS // 2 + 4), F32).ctypes.data == address
    assert memory.empty((FLOATS + 9,), F32).ctypes.data == address, "a slightly larger one fits, too"


def test_a_view_that_lives_keeps_the_memory() -> None:
    memory = OutputMemory()
    memory.keep([((4 * FLOATS,), F32)])
    first = memory.empty((FLOATS,), F32)
    first[:] = 1
    view = first[5:9]
    del first
    second = memory.empty((FLOATS,), F32)
    second[:] = 2
    assert not np.may_share_memory(view, second)
    assert view.tolist() == [1] * 4


def test_no_more_memory_lies_idle_than_is_to_be_kept() -> None:
    memory = OutputMemory()
    memory.keep([((FLOATS,), F32)] * 3 + [((FLOATS - 1,), F32)])
    arrays = [memory.empty((FLOATS,), F32) for _ in range(10)]
    arrays.clear()
    assert [block.nbytes for block in memory._idle] == [LEAST + ALIGNMENT] * 3, "what three large outputs take"


def test_small_arrays_and_all_types_have_their_shape_and_type() -> None:
    memory = OutputMemory()
    for dtype in ("bool", "int64", "int32", "float32", "uint8", "bfloat16", "float8_e5m2", "int4"):
        for shape in ((), (3, 0), (LEAST, 3)):
            array = memory.empty(shape, np.dtype(dtype))
            assert (array.shape, array.dtype, array.flags.c_contiguous, array.flags.writeable) == (
                shape, np.dtype(dtype), True, True,
            )  # fmt: skip


def test_an_array_that_goes_while_its_thread_holds_the_lock_comes_back_later() -> None:
    memory = OutputMemory()
    memory.keep([((4 * FLOATS,), F32)])
    first = memory.empty((FLOATS,), F32)
    address = first.ctypes.data
    with memory._lock:  # as when the garbage collector runs in the middle of it
        del first
    assert memory.empty((FLOATS,), F32).ctypes.data == address


MODEL = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N] x) => (float[N] y, float[N] z) { y = Tanh(x) z = Exp(x) }"""
X = {"x": np.linspace(-1, 1, FLOATS, dtype=np.float32)}
DIRECT = 3  # runs of one signature, after which they are single native calls


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> ort.InferenceSession:
    """A session whose runs are direct calls: Python's own way through a program is gone."""
    session = ort.InferenceSession(parser.parse_model(MODEL).SerializeToString(), providers=["CPUExecutionProvider"])
    for _ in range(DIRECT):
        session.run(None, X)

    def run(*_: object) -> None:
        raise AssertionError("an ordinary run")

    monkeypatch.setattr("ort_core.cpu.program.program.ProgramPlan.run", run)
    return session


@pytest.mark.unguarded
def test_direct_calls_give_the_memory_of_dropped_outputs_again(
    session: ort.InferenceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, block_of = [], OutputMemory._block
    monkeypatch.setattr(OutputMemory, "_block", lambda self, size: taken.append(block_of(self, size)) or taken[-1])
    kept = session.run(None, X)
    for _ in range(5):
        found = session.run(None, X)
        for array, expected in zip(found, (np.tanh(X["x"]), np.exp(X["x"])), strict=True):
            np.testing.assert_allclose(array, expected, rtol=1e-6)
            assert not any(np.may_share_memory(array, other) for other in kept)
    assert len(taken) == 2 * 6, "not every output came from here"
    assert len(set(map(id, taken))) <= 2 * 3, "what is kept, what the loop still holds, and what the next run fills"
    np.testing.assert_allclose(kept[0], np.tanh(X["x"]), rtol=1e-6)


@pytest.mark.unguarded
def test_an_interrupt_while_a_direct_call_takes_memory_is_raised(
    session: ort.InferenceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    before = session.run(None, X)
    with monkeypatch.context() as patched:
        patched.setattr(OutputMemory, "empty", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.run(None, X)
    for array, expected in zip(session.run(None, X), before, strict=True):
        np.testing.assert_array_equal(array, expected)


@pytest.mark.unguarded
def test_a_direct_call_without_room_leaves_the_error_to_the_ordinary_run(
    session: ort.InferenceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(OutputMemory, "empty", no_room)
    with pytest.raises(EPFail, match="an ordinary run"):
        session.run(None, X)
