"""A model judged on its test data sets: each is run, and its outputs are compared with those that are expected."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ort_core.cli.comparing.differences import Difference, difference
from ort_core.cli.console import count_text, output_console, print_json, time_text, working
from ort_core.cli.inputs.data_sets import DataSet, read_data_set
from ort_core.cli.parameters import check_known
from ort_core.cli.sessions import SessionRequest, providers_used
from ort_core.cli.tables import new_table, show_table
from ort_core.errors import OrtError
from ort_core.ir.model import Model
from ort_core.onnx_io.load import load_model
from ort_core.tolerances import Allowance, ToleranceName

if TYPE_CHECKING:
    from ort_core.options import RunOptions
    from ort_core.session import InferenceSession


@dataclass(frozen=True, slots=True)
class DataSetResult:
    """What came of one data set: ``error`` where it could not be read or run."""

    name: str
    outputs: tuple[Difference, ...] = ()
    run_ms: float = 0.0
    error: str = ""
    unjudged: tuple[str, ...] = field(default=())

    @property
    def passes(self) -> bool:
        """Whether it ran and every expected output came."""
        return not self.error and all(each.is_equal for each in self.outputs)

    @property
    def first_difference(self) -> str:
        """What is wrong first, in the order of the model's outputs; empty where nothing is."""
        wrong = next((each for each in self.outputs if not each.is_equal), None)
        if self.error or wrong is None:
            return self.error
        are = "" if wrong.count else "found and expected are "
        return f"output {wrong.name!r}: {are}{wrong.text}{wrong.example}"

    def as_dict(self) -> dict[str, object]:
        """Return plain data for JSON."""
        return {
            "name": self.name, "passes": self.passes, "error": self.error or None, "run_ms": self.run_ms,
            "outputs": [each.as_dict() for each in self.outputs], "not_judged": list(self.unjudged),
            "first_difference": self.first_difference or None,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """What the user asks of a folder: the model in it, its data sets, and how far apart counts as equal."""

    model: Path
    sets: Sequence[Path]
    session: SessionRequest
    fetch: Sequence[str] | None
    tolerance: ToleranceName
    relative: float | None
    absolute: float | None
    options: RunOptions

    @property
    def allowance(self) -> Allowance:
        """How far apart counts as equal."""
        return Allowance(self.tolerance, self.relative, self.absolute)


def judge_folder(request: JudgeRequest, *, is_json: bool) -> None:
    """Judge the data sets of a folder, print what came of them, and exit with 1 when one does not pass.

    Raises:
        typer.BadParameter: an output to fetch is none of the model's.
        typer.Exit: a data set does not pass.
    """
    with working(f"Loading {request.model.name}"):
        loaded = load_model(request.model)
        names = [value.name for value in loaded.graph.outputs]
        check_known(request.fetch or (), names, "output", "--fetch")
        start = time.perf_counter_ns()
        session = request.session.open(request.model)
        load_ns = time.perf_counter_ns() - start
    with working(f"Running {count_text(len(request.sets), 'data set')}"):
        outcomes = judge_data_sets(
            session, loaded, request.sets, request.fetch or names, request.allowance, request.options
        )
    report = {
        "model": str(request.model), "providers": providers_used(session), "tolerance": str(request.allowance),
        "load_ms": load_ns / 1e6, "passes": all(each.passes for each in outcomes),
        "data_sets": [each.as_dict() for each in outcomes],
    }  # fmt: skip
    if is_json:
        print_json(report)
    else:
        show_outcomes(report)
    if not report["passes"]:
        raise typer.Exit(1)


def judge_data_sets(
    session: InferenceSession, model: Model, folders: Sequence[Path], fetched: Sequence[str], allowance: Allowance,
    options: RunOptions,
) -> list[DataSetResult]:  # fmt: skip
    """Run and judge every data set; one that cannot be read or fails is an outcome, too.

    Args:
        session: of the model.
        model: as loaded.
        folders: of the data sets.
        fetched: the outputs to judge.
        allowance: how far apart counts as equal.
        options: of every run.
    """
    return [_outcome(session, model, folder, fetched, allowance, options) for folder in folders]


def _outcome(
    session: InferenceSession, model: Model, folder: Path, fetched: Sequence[str], allowance: Allowance,
    options: RunOptions,
) -> DataSetResult:  # fmt: skip
    try:
        data = read_data_set(folder, model)
        start = time.perf_counter_ns()
        results = session.run(list(fetched), data.feeds, options)
        run_ms = (time.perf_counter_ns() - start) / 1e6
    except OrtError as error:
        return DataSetResult(folder.name, error=str(error))
    found = dict(zip(fetched, results, strict=True))
    return DataSetResult(folder.name, _differences(found, data, allowance), run_ms, unjudged=_unjudged(found, data))


def _differences(found: Mapping[str, object], data: DataSet, allowance: Allowance) -> tuple[Difference, ...]:
    judged = [name for name in found if name in data.expected]
    return tuple(difference(name, found[name], data.expected[name], allowance) for name in judged)


def _unjudged(found: Mapping[str, object], data: DataSet) -> tuple[str, ...]:
    return tuple(name for name in found if name not in data.expected)


def show_outcomes(report: Mapping[str, Any]) -> None:  # Any: plain data, as in the JSON document
    """Print a row for each output of each data set, the sum, and the first difference."""
    console = output_console()
    table = new_table(("data set", "output", "result", "largest difference"), numbers=("largest difference",))
    for each in report["data_sets"]:
        for row in _rows(each):
            table.add_row(*row)
    show_table(console, table)
    passed, total = sum(each["passes"] for each in report["data_sets"]), len(report["data_sets"])
    where = f"within the tolerance {report['tolerance']!r} on {', '.join(report['providers'])}"
    console.print(f"{passed} of {total} data sets pass {where}; loaded in {time_text(report['load_ms'] * 1e6)}")
    wrong = next((each for each in report["data_sets"] if not each["passes"]), None)
    if wrong is not None:
        console.print(f"first difference: {wrong['name']}: {wrong['first_difference']}")


def _rows(outcome: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:  # Any: as above
    if outcome["error"]:
        return [(outcome["name"], "", "FAILED", "")]
    rows = []
    for each in outcome["outputs"]:
        apart = "" if each["max_absolute"] is None else f"{each['max_absolute']:.3g}"
        rows.append((outcome["name"], each["name"], "pass" if each["is_equal"] else "DIFFERS", apart))
    rows += [(outcome["name"], name, "not judged: no expected value", "") for name in outcome["not_judged"]]
    return rows
