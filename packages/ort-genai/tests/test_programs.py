"""Programs written by onnxruntime-genai's documents print under the drop-in what they print under it (0.18)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from genai_program_runs import PROGRAMS, ProgramRuns

EXPECTED = json.loads(Path(__file__).with_name("expected_programs.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return ProgramRuns(tmp_path_factory.mktemp("programs"))


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_prints_what_it_prints_under_onnxruntime_genai(runs, program):
    assert runs.output(program, ("-m", "ort_core.dropin")).splitlines() == EXPECTED[program]
