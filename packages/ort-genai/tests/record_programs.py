"""Writes what the programs print under onnxruntime-genai: `python record_programs.py`, with its wheel installed."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from genai_program_runs import PROGRAMS, ProgramRuns


def main() -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as work:
        runs = ProgramRuns(Path(work))
        found = {program: runs.output(program).splitlines() for program in PROGRAMS}
    file = Path(__file__).with_name("expected_programs.json")
    file.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
