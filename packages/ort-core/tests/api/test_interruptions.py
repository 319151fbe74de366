"""What a handler of a signal raises reaches the program as it is, whatever was being done, and teaches nothing."""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import parser

import ort_core as ort
from ort_core import forks
from ort_core.cpu.codegen.machine_code.compiled_module import compiling
from ort_core.cpu.lowering.products.weight_packing import WeightPacking
from ort_core.cpu.partition import partition as cpu_partition
from ort_core.errors import RuntimeException
from ort_core.interruptions import is_interruption
from ort_core.ir.rejection import Rejection
from ort_core.providers import discovery
from ort_core.runtime.plan import ExecutionPlan
from ort_core.tensors.weight_store import WeightStore

MODEL = parser.parse_model(
    '<ir_version: 8, opset_import: ["": 17, "acme": 1]> g (float[N] x) => (float[N] y) { a = acme.Own (x) y = Exp (a) }'
).SerializeToString()
PLAIN = parser.parse_model(
    '<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (float[N] y) { a = Sin (x) y = Exp (a) }'
).SerializeToString()
X = np.arange(5, dtype=np.float32)


class OutOfTime(Exception):
    """What a program raises when its time is over."""


def _handler(number: int, frame: object) -> None:
    raise OutOfTime


def _any(*arguments: object) -> None:
    raise OutOfTime


def _deep(number: int, frame: object) -> None:
    _handler(number, None)


def _with_more(text: str, number: int, frame: object) -> None:
    raise OutOfTime(text)


class _Limit:
    def stop(self, number: int, frame: object) -> None:
        raise OutOfTime

    def __call__(self, number: int, frame: object) -> None:
        raise OutOfTime


HANDLERS = {
    "function": _handler,
    "all arguments": _any,
    "raised below": _deep,
    "partial": functools.partial(_with_more, "late"),
    "method": _Limit().stop,
    "object": _Limit(),
}


@pytest.fixture
def interrupt() -> Iterator[Callable[..., None]]:
    """Return a function that lets a signal arrive now; its handler raises ``OutOfTime``."""
    before = signal.signal(signal.SIGINT, _handler)

    def arrive(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)

    yield arrive
    signal.signal(signal.SIGINT, before)


def _session_of(work: Callable[[], object]) -> ort.InferenceSession:
    @ort.custom_op("acme", "Own")
    def own(x: NDArray[np.float32]) -> NDArray[np.float32]:
        work()
        return x

    options = ort.SessionOptions()
    options.register_custom_ops_library(own)
    return ort.InferenceSession(MODEL, options)


@pytest.mark.parametrize("kind", HANDLERS)
def test_an_error_of_a_handler_is_known_by_its_frame(kind: str, interrupt: Callable[..., None]) -> None:
    signal.signal(signal.SIGINT, HANDLERS[kind])
    with pytest.raises(OutOfTime) as caught:
        interrupt()
    assert is_interruption(caught.value)


def test_other_errors_are_no_interruptions() -> None:
    with pytest.raises(OutOfTime) as caught:
        _handler(2, None)
    assert not is_interruption(caught.value)


def test_an_error_of_a_handler_leaves_a_kernel_as_it_is(interrupt: Callable[..., None]) -> None:
    session = _session_of(interrupt)
    with pytest.raises(OutOfTime):
        session.run(None, {"x": X})


def test_an_error_of_a_kernel_is_told_with_its_node_as_before() -> None:
    def fail() -> None:
        raise OutOfTime

    with pytest.raises(RuntimeException, match="OutOfTime"):
        _session_of(fail).run(None, {"x": X})


def test_an_interrupted_run_leaves_later_runs_their_short_cuts(
    interrupt: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = ort.InferenceSession(PLAIN)
    with monkeypatch.context() as patched:
        patched.setattr(ExecutionPlan, "direct_calls", interrupt)
        with pytest.raises(OutOfTime):
            session.run(None, {"x": X})
    for _ in range(3):
        (y,) = session.run(None, {"x": X})
    np.testing.assert_allclose(y, np.exp(np.sin(X)), rtol=1e-6)
    assert not isinstance(session._loaded.direct.refusal, Rejection)


def test_an_interrupted_load_leaves_nothing_to_kernels(
    interrupt: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(cpu_partition, "build_program", interrupt)
        with pytest.raises(OutOfTime):
            ort.InferenceSession(PLAIN)
    (y,) = ort.InferenceSession(PLAIN).run(None, {"x": X})
    np.testing.assert_allclose(y, np.exp(np.sin(X)), rtol=1e-6)


def test_an_interrupted_discovery_makes_no_plugin_unavailable(
    interrupt: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "_check_api", interrupt)
    with pytest.raises(OutOfTime):
        discovery.discover(discovery.entry_point_sources())


def test_who_is_interrupted_while_others_compile_keeps_no_fork_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    class Busy:
        def acquire(self) -> None:
            raise OutOfTime

    monkeypatch.setattr(compiling, "_lock", Busy())
    with pytest.raises(OutOfTime), compiling:
        pass
    assert threading.get_ident() not in forks._gate.inside


def test_a_packing_that_is_interrupted_before_it_began_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "weights").write_bytes(bytes(64))
    source = np.memmap(tmp_path / "weights", np.float32, "r")
    store = WeightStore()

    def pack() -> np.ndarray:
        packing = WeightPacking(store=store)
        return packing.packed(source, "as it is", lambda: np.empty_like(source), lambda to: np.copyto(to, source))

    with monkeypatch.context() as patched:
        patched.setattr(WeightPacking, "_is_packed_at_once", _handler)
        with pytest.raises(OutOfTime) as caught:
            pack()
    assert caught.tb is not None  # which holds what was begun, as sys.last_traceback does in a notebook
    with WeightPacking(store=store) as packing:
        packing.packed(source, "as it is", lambda: np.empty_like(source), lambda to: np.copyto(to, source))
        assert next(iter(packing._used.values())).packed.done()
