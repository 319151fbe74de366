"""JournalState: results kept in a file as they come, so that a long run that was interrupted goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path

from ort_conformance.outcome import CheckResult
from ort_conformance.reports.report import result_as_dict, result_from_dict


class JournalState:
    """One file of JSON lines: what was run, then a result each. Results of anything else are not taken over.

    Args:
        path: the file; written anew unless it records the same run.
        run: what decides the results: versions, code, options, the provider's state. Any text.
        resumes: whether results that lie there are taken over.
    """

    def __init__(self, path: Path, run: str, *, resumes: bool) -> None:
        self._path = path
        self.results: list[CheckResult] = _read(path, run) if resumes else []
        lines = [{"run": run}, *map(result_as_dict, self.results)]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")

    def add(self, result: CheckResult) -> None:
        """Append a result to the file."""
        self.results.append(result)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(result_as_dict(result))}\n")


def _read(path: Path, run: str) -> list[CheckResult]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    whole = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
    if not whole or whole[0] != {"run": run}:
        return []
    return [result_from_dict(entry) for entry in whole[1:]]
