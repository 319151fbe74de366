"""A signal in the middle of a build: the code that shells show, a sentence, and nothing under the folder's name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from genai_built import built
from genai_tiny_models import write_checkpoint

SIGNALS = [name for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]
SIGNALS_ITSELF = """
import signal, sys
import ort_genai.builder.{module} as module
from ort_core.cli.app import main

write, name = module.{function}, sys.argv.pop()

def interrupted(folder, *rest):
    assert list(folder.iterdir()), "nothing is half written"
    signal.raise_signal(getattr(signal, name))
    return write(folder, *rest)

module.{function} = interrupted
main()
"""


def _heed_signals() -> None:
    """Undo what a shell does to jobs in the background: they ignore signals, and so do their children."""
    for name in SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_DFL)


HEEDS = {} if os.name == "nt" else {"preexec_fn": _heed_signals}  # Windows has no such function


def interrupted(module, function, words, name):
    code = SIGNALS_ITSELF.format(module=module, function=function)
    command = [sys.executable, "-c", code, "genai", *map(str, words), name]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=250, **HEEDS)
    return (128 - ended.returncode if ended.returncode < 0 else ended.returncode), ended.stderr


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_ends_a_build_in_order(tmp_path, name):
    source, out = write_checkpoint(tmp_path / "source", "llama"), tmp_path / "built" / "model"
    code, told = interrupted("build", "_write_config", ["build", source, out], name)
    assert code == 128 + getattr(signal, name), told
    assert f"interrupted: {out} was not written" in told
    assert "Traceback" not in told
    assert not list(out.parent.iterdir()), "a half is left behind"


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_ends_a_copy_with_other_caches_in_order(tmp_path, name):
    out = tmp_path / "copied" / "model"
    code, told = interrupted("cache_types", "store_caches", ["caches", built(), out], name)
    assert code == 128 + getattr(signal, name), told
    assert f"interrupted: {out} was not written" in told
    assert not list(out.parent.iterdir()), "a half is left behind"
