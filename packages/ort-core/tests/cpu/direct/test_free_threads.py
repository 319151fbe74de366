"""Direct calls where threads have no lock of the interpreter: an item of a dict is given away, not lent.

Other builds of Python have no such calls. There this runs the same native code over the same function of a dict, which
Python before 3.13 gets from ``given_item``.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from onnx import parser

import ort_core as ort
from ort_core.cpu.direct import direct_calls, python_layout, records
from ort_core.cpu.direct.python_layout import PythonLayout, find_python_layout
from ort_core.errors import InvalidArgument, MissingInput

MODEL = """
    <ir_version: 8, opset_import: ["": 13]>
    small (float[N, 4] x, float[N, 4] z) => (float[N, 4] total, float[N, 4] product) {
        total = Add(x, z)
        product = Mul(x, z)
    }"""
X = np.arange(8, dtype=np.float32).reshape(2, 4)
FEEDS = {"x": X, "z": X[::-1].copy()}


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))
def given_item(items: dict[object, object], key: object, place: ctypes._Pointer[ctypes.c_void_p]) -> int:
    """Stand for ``PyDict_GetItemRef``."""
    if key not in items:
        return 0
    item = items[key]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(item))
    place[0] = id(item)
    return 1


@pytest.fixture(autouse=True)
def without_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let direct calls be those of a build without the lock."""
    if not hasattr(ctypes.pythonapi, "PyDict_GetItemRef"):
        monkeypatch.setattr(ctypes.pythonapi, "PyDict_GetItemRef", given_item, raising=False)
    monkeypatch.setattr(python_layout, "_is_free_threaded", lambda: True)
    layout = find_python_layout.__wrapped__()
    assert isinstance(layout, PythonLayout)
    assert not layout.is_locked
    monkeypatch.setattr(direct_calls, "find_python_layout", lambda: layout)
    monkeypatch.setattr(records, "_definitions", {})


@pytest.fixture
def session(without_lock: None) -> Iterator[ort.InferenceSession]:
    """A session that knows the signature of the feeds."""
    made = ort.InferenceSession(parser.parse_model(MODEL).SerializeToString())
    for _ in range(3):
        made.run(None, FEEDS)
    assert called(made, FEEDS) is not None
    return made


def called(session: ort.InferenceSession, feeds: object) -> object:
    return session._loaded.direct.call(feeds, None)


def test_results_are_right(session: ort.InferenceSession) -> None:
    total, product = session.run(None, FEEDS)
    np.testing.assert_array_equal(total, X + FEEDS["z"])
    np.testing.assert_array_equal(product, X * FEEDS["z"])


def test_every_item_that_was_given_away_is_dropped(session: ort.InferenceSession) -> None:
    fed = {"x": X.copy(), "z": X.copy()}
    unfit = {"x": X.copy(), "z": X.astype(np.float64)}  # is refused behind the first item
    short = {"x": X.copy(), "y": X.copy()}
    before = [sys.getrefcount(array) for feeds in (fed, unfit, short) for array in feeds.values()]
    for _ in range(100):
        assert called(session, fed) is not None
        assert called(session, unfit) is None
        assert called(session, short) is None
    gc.collect()
    after = [sys.getrefcount(array) for feeds in (fed, unfit, short) for array in feeds.values()]
    assert after == before


def test_what_does_not_fit_gets_the_error_of_the_ordinary_run(session: ort.InferenceSession) -> None:
    with pytest.raises(MissingInput, match="z"):
        session.run(None, {"x": X})
    with pytest.raises(InvalidArgument, match="double"):
        session.run(None, {"x": X, "z": X.astype(np.float64)})


def test_threads_that_replace_what_others_read_get_results_of_one_state_each(session: ort.InferenceSession) -> None:
    shared = {"x": X.copy(), "z": X.copy()}
    numbers = range(1, 40)

    def run(number: int) -> bool:
        for step in range(200):
            shared["x"] = np.full((2, 4), number, np.float32)
            shared["z"] = np.full((2, 4), step, np.float32)
            total, product = session.run(None, shared)
            if np.ptp(total) or np.ptp(product):
                return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(run, numbers))
