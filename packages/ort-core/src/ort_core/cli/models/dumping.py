"""The graph behind each pass as text, and where passes stop: for ``ort optimize --dump`` and ``--stop-after``."""

from __future__ import annotations

import re
from pathlib import Path

from ort_core.ir.model import Model
from ort_core.ir.printer import format_model
from ort_core.passes.base import PassReport
from ort_core.whole_files import replace_text

INDEX = "passes.txt"


class DumpState:
    """Writes a file behind each pass that changed the model, and an index of all; says when to stop.

    Args:
        model: what the passes change.
        folder: where files go; ``None``: nothing is written.
        stop_after: how many passes run, each round counted; ``None``: all.

    Raises:
        OSError: the folder cannot be written.
    """

    def __init__(self, model: Model, folder: Path | None, stop_after: int | None) -> None:
        self._model, self._folder, self._stop_after = model, folder, stop_after
        self.count, self.files = 0, list[str]()
        self._write("000_as_loaded.txt", "as loaded")

    def goes_on(self, report: PassReport) -> bool:
        """Take note of a pass that has run; returns whether the next one may run."""
        self.count += 1
        if report.has_changed:
            name = re.sub(r"[^\w.-]", "_", report.name)
            self._write(f"{self.count:03}_{name}.txt", str(report))
        elif self._folder is not None:
            self._note(f"{self.count:03} {report.name}: nothing")
        return not self.has_reached_limit

    @property
    def has_reached_limit(self) -> bool:
        """Whether no further pass may run."""
        return self._stop_after is not None and self.count >= self._stop_after

    def _write(self, name: str, told: str) -> None:
        if self._folder is None:
            return
        replace_text(self._folder / name, f"{format_model(self._model)}\n")
        self.files.append(name)
        self._note(f"{self.count:03} {told}  -> {name}")

    def _note(self, line: str) -> None:
        assert self._folder is not None
        with (self._folder / INDEX).open("a" if self.count else "w", encoding="utf-8") as index:
            index.write(f"{line}\n")
