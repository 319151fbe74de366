"""Programs that are no subcommand (``python -m ort_tools.…``): a signal ends them in order, and they say so."""

import os
import signal
import subprocess
import sys

import pytest

SIGNALS = [name for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]
WRITES_HALF = """
import signal, sys
from pathlib import Path
from ort_core.cli.interrupts import run_program
from ort_core.whole_files import written_whole

def main():
    with written_whole(Path(sys.argv[1])) as place:
        place.write_text("half of")
        signal.raise_signal(getattr(signal, sys.argv[2]))

run_program(main)
"""


def _heed_signals():
    """Undo what a shell does to jobs in the background: they ignore signals, and so do their children."""
    for name in SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_DFL)


HEEDS = {} if os.name == "nt" else {"preexec_fn": _heed_signals}  # Windows has no such function


def ended(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=250, **HEEDS)
    return (128 - found.returncode if found.returncode < 0 else found.returncode), found.stderr


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_ends_a_program_in_order_with_a_sentence(tmp_path, name):
    (tmp_path / "model").write_text("old")
    code, told = ended(WRITES_HALF, tmp_path / "model", name)
    assert code == 128 + getattr(signal, name), told
    assert told == f"ended by {name}: what was being written is not there, and what was there before stays\n"
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("model", "old")]


@pytest.mark.parametrize(("returned", "code"), [(None, 0), (3, 3), (True, 0), (["a.ort"], 0)])
def test_only_a_whole_number_is_a_programs_code(returned, code):
    text = f"from ort_core.cli.interrupts import run_program\nrun_program(lambda: {returned!r})"
    assert ended(text) == (code, "")
