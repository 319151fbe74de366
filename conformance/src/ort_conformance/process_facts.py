"""What a process has one of, and a provider that runs in it leaves alone: settings, streams, and rounding."""

from __future__ import annotations

import io
import locale
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout

import numpy as np

_SMALLEST = np.float32(2.0**-149)  # a denormal number: 0 where a thread flushes these


def changes_by(work: Callable[[], object]) -> list[str]:
    """Do some work in this thread, and return what it changed of the process, or wrote to its streams, in words."""
    before = _facts()
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        work()
    after = _facts()
    found = [f"{name} was {before[name]}, and is {after[name]}" for name in before if before[name] != after[name]]
    written = {"standard output": out.getvalue(), "the stream of errors": errors.getvalue()}
    return found + [f"{name} has {text[:60]!r}" for name, text in written.items() if text]


def _facts() -> dict[str, object]:
    halves = np.full(1, _SMALLEST) * np.ones(1, np.float32)  # arrays, so that nothing is folded
    return {
        "numpy's handling of errors": np.geterr(),
        "the locale": locale.setlocale(locale.LC_ALL),
        "the folder": os.getcwd(),
        "the environment": dict(os.environ),
        "sys.path": tuple(sys.path),
        "the state of numpy's random numbers": repr(np.random.get_state(legacy=False)),  # noqa: NPY002 - of others' programs
        "the handler of interrupts": signal.getsignal(signal.SIGINT),
        "the hook of exceptions": (sys.excepthook, threading.excepthook),
        "a product of denormal numbers": float(halves[0]),
    }
