"""A model over all rows of a file: part by part, batch by batch, with rows that fail set aside."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ort_core import InferenceSession, OrtError
from ort_serve.batch.columns import inputs_of_row, stacked
from ort_serve.batch.joining import Inputs, JoiningState
from ort_serve.batch.parts import Parts
from ort_serve.batch.rows import Row, read_rows
from ort_serve.failures import InvalidRequest
from ort_serve.protocol.json_data import array_to_json
from ort_serve.repository.signature import ModelSignature, read_signature

Progress = Callable[[int], None]


@dataclass(frozen=True)
class BatchReport:
    """What a job did.

    Attributes:
        rows: rows of the output.
        failures: rows set aside.
        skipped: rows that an earlier run of the job had done.
    """

    rows: int
    failures: int
    skipped: int


def run_batch_job(
    session: InferenceSession, source: Path, parts: Parts, rows_at_once: int, part_rows: int, progress: Progress
) -> BatchReport:
    """Run a model over the rows of ``source`` that are not done yet, and join the parts.

    Args:
        session: the model.
        source: the rows.
        parts: where results go.
        rows_at_once: rows of one run, where the model has a batch axis.
        part_rows: rows of one part.
        progress: told how many rows are done, each time some are.

    Raises:
        InvalidRequest: the source cannot be read, or the model takes more than tensors.
    """
    signature = read_signature(session.get_inputs(), session.get_outputs())
    joining = JoiningState(session, signature, rows_at_once)
    done = parts.done()
    skipped = done * part_rows
    progress(skipped)
    rows = read_rows(source, skipped)
    for number in itertools.count(done):
        part = list(itertools.islice(rows, part_rows))
        if not part and number > 0:
            break
        if parts.has(number):  # written by a machine that was ahead of another
            skipped += len(part)
            progress(len(part))
        else:
            found, failures = run_part(session, signature, part, number * part_rows, joining, progress)
            parts.write(number, found, failures)
        if len(part) < part_rows:
            break
    written, failed = parts.join()
    return BatchReport(written, failed, skipped)


def run_part(
    session: InferenceSession,
    signature: ModelSignature,
    part: Sequence[Row],
    first: int,
    joining: JoiningState,
    progress: Progress,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the results of a part's rows, and those that failed with the reason, both by row.

    Args:
        session: the model.
        signature: its inputs and outputs.
        part: the rows.
        first: the number of the first.
        joining: how many rows of a run.
        progress: told how many rows are done, each time some are.
    """
    readable: list[tuple[int, Inputs]] = []
    failures: list[dict[str, Any]] = []
    for number, row in enumerate(part, first):
        try:
            inputs = inputs_of_row(row, signature)
            signature.check(inputs, ())
            readable.append((number, inputs))
        except InvalidRequest as error:
            failures.append({"row": number, "reason": str(error)})
    found: list[dict[str, Any]] = []
    for batch in _batches(readable, joining.rows_at_once([inputs for _, inputs in readable])):
        results, failed = _run(session, signature, batch)
        found += results
        failures += failed
        progress(len(batch))
    progress(len(part) - len(readable))
    return sorted(found, key=lambda row: row["row"]), sorted(failures, key=lambda row: row["row"])


def _batches(rows: Sequence[tuple[int, Inputs]], at_once: int) -> Iterator[list[tuple[int, Inputs]]]:
    """Yield rows of equal shapes together, so many at once."""
    waiting: dict[object, list[tuple[int, Inputs]]] = {}
    for row in rows:
        key = tuple((name, array.shape) for name, array in row[1].items())
        group = waiting.setdefault(key, [])
        group.append(row)
        if len(group) == at_once:
            yield waiting.pop(key)
    yield from waiting.values()


def _run(
    session: InferenceSession, signature: ModelSignature, batch: Sequence[tuple[int, Inputs]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    names = [tensor.name for tensor in signature.outputs]
    feeds = batch[0][1] if len(batch) == 1 else stacked([inputs for _, inputs in batch])
    try:
        outputs = [np.asarray(found) for found in session.run(names, feeds)]
        if signature.has_batch:
            _check_rows(names, outputs, len(batch))
    except (OrtError, InvalidRequest) as error:
        if len(batch) == 1:
            return [], [{"row": batch[0][0], "reason": str(error)}]
        found, failures = [], []
        for row in batch:  # one of them is to blame
            results, failed = _run(session, signature, [row])
            found += results
            failures += failed
        return found, failures
    if not signature.has_batch:
        return [{"row": batch[0][0], **{name: _plain(array) for name, array in zip(names, outputs)}}], []
    return [
        {"row": number, **{name: _plain(array[place]) for name, array in zip(names, outputs)}}
        for place, (number, _) in enumerate(batch)
    ], []


def _check_rows(names: Sequence[str], outputs: Sequence[np.ndarray], rows: int) -> None:
    for name, array in zip(names, outputs):
        if array.shape[:1] != (rows,):
            raise InvalidRequest(f"output {name!r} has shape {list(array.shape)} for a batch of {rows} rows")


def _plain(found: Any) -> Any:
    """Return one row's result as a number, or as lists."""
    array = np.asarray(found)
    if array.ndim == 0:
        return array_to_json(array)[0]
    return array.astype(np.float32).tolist() if array.dtype.kind == "V" else array.tolist()
