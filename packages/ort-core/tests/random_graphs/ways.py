"""The ways to run a case in a session of ours: by names, bound to buffers, from several threads, saved and loaded, with
feeds that lie in memory otherwise.

Each way yields the number of an assignment of sizes and its outputs, as often as it has run that assignment. Sizes
change from run to run on purpose: what one shape has taught a session must not be taken for another.
"""

from __future__ import annotations

import pickle
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import ort_core as ort
from ort_core.cpu.direct import direct_calls
from random_graphs.cases import Case

Runs = Iterator[tuple[int, Sequence[Any]]]
MakeSession = Callable[[bytes], Any]
THREADS, TURNS = 4, 3


def by_names(session: Any, case: Case) -> Runs:
    """Ask for the outputs backwards, then for one alone."""
    names = [each.name for each in case.model.graph.output]
    if len(set(names)) < len(names):
        yield from _plain(session, case)
        return
    for number, feeds in enumerate(case.feeds):
        found = session.run(names[::-1], dict(feeds))[::-1]
        yield number, found
        yield number, [*session.run(names[:1], dict(feeds)), *found[1:]]


def bound(session: Any, case: Case) -> Runs:
    """Bind inputs and outputs: outputs to new memory first, then to buffers that the caller has filled with ones."""
    if not all(isinstance(each, np.ndarray) and _is_plain(each) for feeds in case.feeds for each in feeds.values()):
        yield from _plain(session, case)
        return
    binding = session.io_binding()
    names = [each.name for each in case.model.graph.output]
    for number, feeds in enumerate(case.feeds):
        binding.clear_binding_inputs()
        for name, array in feeds.items():
            binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array.copy()))
        for name in names:
            binding.bind_output(name)
        session.run_with_iobinding(binding)
        first = [each.copy() for each in binding.copy_outputs_to_cpu()]
        yield number, first
        if not all(_is_plain(each) for each in first) or len(set(names)) < len(names):
            continue
        buffers = [ort.OrtValue.ortvalue_from_numpy(np.ones_like(each)) for each in first]
        for name, buffer in zip(names, buffers, strict=True):
            binding.bind_ortvalue_output(name, buffer)
        for _ in range(TURNS):
            session.run_with_iobinding(binding)
            yield number, [each.numpy().copy() for each in buffers]
        binding.clear_binding_outputs()


def shared(session: Any, case: Case) -> Runs:
    """Run one session in several threads at once, each with the assignments in an order of its own."""
    found: list[tuple[int, Sequence[Any]]] = []
    failures: list[BaseException] = []
    begin = threading.Barrier(THREADS)

    def turns(first: int) -> None:
        begin.wait()
        try:
            with np.errstate(all="ignore"):
                for turn in range(TURNS * len(case.feeds)):
                    number = (first + turn) % len(case.feeds)
                    found.append((number, session.run(None, dict(case.feeds[number]))))
        except BaseException as error:  # noqa: BLE001 - handed to the thread that judges
            failures.append(error)

    threads = [threading.Thread(target=turns, args=(first,)) for first in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    yield from found


def to_and_fro(session: Any, case: Case) -> Runs:
    """Change the sizes at every run."""
    for _ in range(TURNS):
        yield from _plain(session, case)


def any_sizes(session: Any, case: Case) -> Runs:
    """Change the sizes at every run, and have native code plan all but the first of them."""
    with patch.object(direct_calls, "OPEN_AFTER", 0):
        yield from to_and_fro(session, case)


def laid_out(session: Any, case: Case) -> Runs:
    """Feed arrays that lie in memory otherwise, each in another way at each run."""
    for turn in range(TURNS):
        for number, feeds in enumerate(case.feeds):
            given = {}
            for place, (name, array) in enumerate(feeds.items()):
                layout = LAYOUTS[(case.seed + turn + number + place) % len(LAYOUTS)]
                given[name] = layout(array) if _is_plain(array) and array.ndim else array
            yield number, session.run(None, given)


def _strided(array: np.ndarray) -> np.ndarray:
    return np.repeat(array, 2, axis=-1)[..., ::2]


def _backwards(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array[::-1])[::-1]


def _read_only(array: np.ndarray) -> np.ndarray:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def _unaligned(array: np.ndarray) -> np.ndarray:
    return np.frombuffer(bytearray(b"-" + array.tobytes()), np.uint8)[1:].view(array.dtype).reshape(array.shape)


def _swapped(array: np.ndarray) -> np.ndarray:
    return array.astype(array.dtype.newbyteorder())


def _within_records(array: np.ndarray) -> np.ndarray:
    records = np.zeros(array.shape, [("before", np.int8), ("number", array.dtype)])
    records["number"] = array
    return records["number"]


LAYOUTS: Sequence[Callable[[np.ndarray], np.ndarray]] = (
    np.asfortranarray, _strided, _backwards, _read_only, _unaligned, _swapped, _within_records,
)  # fmt: skip


def saved(make: MakeSession, make_saving: Callable[[Path], Any], case: Case) -> Runs:
    """Run a session, and then the model that it has saved optimized."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimized.onnx"
        yield from _plain(make_saving(path), case)
        yield from _plain(make(path.read_bytes()), case)


def pickled(session: Any, case: Case) -> Runs:
    """Run what a pickle of the session gives, as processes of a pool do."""
    yield from _plain(pickle.loads(pickle.dumps(session)), case)


def _plain(session: Any, case: Case) -> Runs:
    for number, feeds in enumerate(case.feeds):
        yield number, session.run(None, dict(feeds))


def _is_plain(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind in "biuf"


OF_SESSIONS: Mapping[str, Callable[[Any, Case], Runs]] = {
    "by names": by_names, "bound": bound, "shared": shared, "to and fro": to_and_fro,
    "any sizes": any_sizes, "laid out": laid_out, "pickled": pickled,
}  # fmt: skip
