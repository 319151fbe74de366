"""Judges what engines make of a case against its truth; a difference names engine, run, output and values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import onnxruntime

import ort_core as ort
from random_graphs.cases import Case
from random_graphs.element_types import F32
from random_graphs.engines import READ, Engine, NotAsked, engines, has_products
from random_graphs.rounded_truth import rounded_truths
from random_graphs.triples import Triple, allowed

REFUSED = re.compile(r"NOT_IMPLEMENTED|Could not find an implementation|is not supported|not support|Unsupported", re.I)


@dataclass(frozen=True)
class Difference:
    """What an engine did wrong. ``kind``: values, shape, type, error, bare error, again."""

    engine: str
    kind: str
    run: int
    output: str
    text: str

    def as_json(self) -> Mapping[str, Any]:
        """Return the facts for a line of JSON."""
        return asdict(self)


@dataclass(frozen=True)
class MeasuredChoice:
    """The differences of a case, and for each engine whether it ran, was refused by itself, or not asked."""

    differences: Sequence[Difference]
    endings: Mapping[str, str]


def judge(case: Case, chosen: Sequence[Engine] | None = None) -> MeasuredChoice:
    """Run a case by all engines and compare every output of every run."""
    truths = case.truths()
    found: list[Difference] = []
    endings: dict[str, str] = {}
    for engine in chosen if chosen is not None else engines(case.seed):
        ending, differences = _judge_engine(case, engine, truths)
        if differences and engine.way in READ and _judge_engine(case, Engine("onnxruntime"), truths)[0] != "right":
            ending, differences = "not asked", []  # it does the same to the case itself
        endings[engine.name] = ending
        found += differences
    return MeasuredChoice(tuple(found), endings)


def _judge_engine(
    case: Case, engine: Engine, truths: Sequence[Sequence[Triple | None]]
) -> tuple[str, list[Difference]]:
    first: dict[int, Sequence[Any]] = {}
    run = -1
    try:
        if engine.precision:
            truths = _rounded_truths(engine, case)
        for run, (number, outputs) in enumerate(engine.runs(case)):
            difference = _compare(case, engine, run, outputs, truths[number])
            if difference is not None:
                return "different", [difference]
            if engine.way == "saved":  # a saved graph is optimized once more: another program, within the same window
                continue
            if not engine.is_repeatable:
                continue
            again = _same(case, engine, run, outputs, first.setdefault(number, outputs))
            if again is not None:
                return "different", [again]
    except NotAsked:
        return "not asked", []
    except ort.OrtError as error:
        if "hold no values of the kind" in str(error):  # files in ORT format, onnxruntime's own as well
            return "refused", []
        return "error", [Difference(engine.name, "error", run + 1, "", _short(error))]
    except Exception as error:  # noqa: BLE001 - the border to what is under test: any other exception is a finding
        if engine.name == "onnxruntime" or engine.way in READ:
            return _refusal(error, engine)
        return "bare error", [Difference(engine.name, "bare error", run + 1, "", _short(error))]
    return "right", []


def _rounded_truths(engine: Engine, case: Case) -> Sequence[Sequence[Triple | None]]:
    """Return the truths that a session which rounds is judged by.

    Raises:
        NotAsked: it rounds nothing of this case, or there are none.
    """
    if not has_products(case.served):
        raise NotAsked("nothing in it is rounded")
    truths = rounded_truths(case)
    if not any(truth for each in truths for truth in each):
        raise NotAsked(f"the window of {engine.precision} leaves all outputs open")
    return truths


def _refusal(error: Exception, engine: Engine) -> tuple[str, list[Difference]]:
    """What onnxruntime has no kernel for is its refusal; what it finds wrong in a model is a difference.

    A file that we save needs no more kernels than the case itself. But of ORT format it neither casts nor takes apart
    what it has no kernel for.
    """
    kind = onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented
    is_refused = isinstance(error, kind) or REFUSED.search(str(error)) is not None
    if is_refused and (engine.way not in READ or "ORT format" in engine.way):
        return "refused", []
    return "error", [Difference(engine.name, "error", 0, "", _short(error))]


def _short(error: Exception) -> str:
    text = str(error)
    middle = " … " if len(text) > 600 else text[400:450]  # names may be long, and the reason stands behind them
    return f"{type(error).__name__}: {text[:400]}{middle}{text[450:][-150:]}"


def _compare(
    case: Case, engine: Engine, run: int, outputs: Sequence[Any], truths: Sequence[Triple | None]
) -> Difference | None:
    for declared, found, truth in zip(case.model.graph.output, outputs, truths, strict=True):
        text = None if truth is None else difference(found, truth)
        if text is not None:
            return Difference(engine.name, text[0], run, declared.name, text[1])
    return None


def _same(case: Case, engine: Engine, run: int, outputs: Sequence[Any], first: Sequence[Any]) -> Difference | None:
    for declared, found, before in zip(case.model.graph.output, outputs, first, strict=True):
        if isinstance(found, np.ndarray) and found.dtype.kind != "O" and found.tobytes() != before.tobytes():
            count = int(np.sum(found != before))
            return Difference(
                engine.name, "again", run, declared.name, f"{count} elements are not those of the first run"
            )
    return None


def difference(found: Any, truth: Triple) -> tuple[str, str] | None:
    """Return the kind of a difference and its text, ``None`` where a result lies within the window of its truth."""
    expected = truth.truth
    if isinstance(expected, list) and expected and isinstance(expected[0], dict):
        return _difference_of_maps(found, truth)
    if not isinstance(expected, np.ndarray) or truth.dtype is None:
        return None
    found = np.asarray(found)
    if found.dtype != truth.dtype.numpy:
        return "type", f"{found.dtype}, expected {truth.dtype.numpy}"
    if found.shape != expected.shape:
        return "shape", f"{list(found.shape)}, expected {list(expected.shape)}"
    if not truth.dtype.is_float:
        wrong = np.asarray(found != expected)
        if truth.dtype.numpy.kind == "V":  # floats of 8 bits, some of which have no number
            wrong &= ~(np.isnan(found.astype(np.float32)) & np.isnan(expected.astype(np.float32)))
        if not truth.is_exact:  # a twin is off by one where a last bit decides
            wrong &= (found != truth.above) & (found != truth.below)
        limits = None
    else:
        wide = found.astype(np.float64)
        limits = allowed(truth)
        with np.errstate(all="ignore"):
            wrong = ~(np.abs(wide - expected) <= limits) & ~(wide == expected) & ~(np.isnan(wide) & np.isnan(expected))
    if not wrong.any():
        return None
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    limit = "" if limits is None else f", within {limits[place]:.3g}"
    return "values", (
        f"{int(wrong.sum())} of {wrong.size} {found.dtype}, at {list(place)}: {found[place]!r}, expected "
        f"{expected[place]!r}{limit}"
    )


def _difference_of_maps(found: Any, truth: Triple) -> tuple[str, str] | None:
    """Compare a list of maps from names to numbers, as ``difference``."""
    names = [list(each) for each in truth.truth]
    if not isinstance(found, list) or [list(each) for each in found] != names:
        return "shape", f"maps of {[list(each) for each in found][:2]}, expected {names[:2]}"
    numbers = [np.array([list(m.values()) for m in maps]) for maps in (truth.truth, truth.above, truth.below)]
    rows = np.array([list(each.values()) for each in found], np.float32)
    return difference(rows, Triple(*numbers, F32))
