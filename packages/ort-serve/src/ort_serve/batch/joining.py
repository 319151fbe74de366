"""Whether the rows of a job may be run together: found out before the first that are, on random rows and on their own.

Sizes alone do not tell: a model may declare a batch axis and still mix its rows, as one does that scales by the
largest of all. Its results would depend on the number of rows of a run.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from ort_core import InferenceSession, OrtError
from ort_serve.repository.signature import ModelSignature
from ort_serve.scheduling.batch_curve import random_rows, rows_beside_matter

log = logging.getLogger(__name__)
_TRIED, _MOST_TRIED = 3, 16  # rows that are joined on trial; rows that are looked at for them, since some may fail
Inputs = dict[str, np.ndarray]


class JoiningState:
    """How many rows a job runs at once.

    Args:
        session: the model.
        signature: its inputs and outputs.
        at_once: rows that are wanted.
    """

    def __init__(self, session: InferenceSession, signature: ModelSignature, at_once: int) -> None:
        self._session = session
        self._names = [tensor.name for tensor in signature.outputs]
        self._at_once = at_once if signature.has_batch else 1
        self._is_known = self._at_once == 1

    def rows_at_once(self, rows: Sequence[Inputs]) -> int:
        """Return how many of these rows may be run at once; they run alone as long as nothing is known."""
        if self._is_known or not rows:
            return self._at_once
        reason = self._reason(rows)
        if reason is None:
            return 1
        if reason:
            log.warning("each row is run alone: %s", reason.removeprefix("not joined: "))
            self._at_once = 1
        self._is_known = True
        return self._at_once

    def _reason(self, rows: Sequence[Inputs]) -> str | None:
        """Return why rows may not be joined, empty where they may; None where too few give results on trial."""
        shapes = {name: array.shape for name, array in rows[0].items()}
        alike = [row for row in rows[:_MOST_TRIED] if {name: array.shape for name, array in row.items()} == shapes]
        trials = [[row for row in alike if self._gives_result(row)][:_TRIED], random_rows(rows[0])]
        reasons = []
        for trial in trials:
            try:
                reasons += [rows_beside_matter(self._run, trial)] if len(trial) > 1 else []
            except OrtError as error:  # random rows need not be such as the model takes
                log.debug("rows cannot be joined on trial: %s", error)
        return max(reasons) if reasons else None

    def _run(self, feeds: Inputs) -> Inputs:
        return {name: np.asarray(found) for name, found in zip(self._names, self._session.run(self._names, feeds))}

    def _gives_result(self, row: Inputs) -> bool:
        try:
            self._run(row)
        except OrtError:
            return False
        return True
