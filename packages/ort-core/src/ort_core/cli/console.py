"""What commands print: results on stdout (tables, or one JSON document), everything else on stderr."""

from __future__ import annotations

import io
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_PIPED_WIDTH = 160  # of a table that goes to a file or another program, where COLUMNS does not say otherwise


def make_writable() -> None:
    """Let every text be printed: streams that were closed lead nowhere, characters that a stream lacks become "?"."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # `ort doctor >&-`
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 -- until the process ends
        elif isinstance(stream, io.TextIOWrapper) and (stream.errors == "strict" or _is_ascii_of_c(stream)):
            stream.reconfigure(errors="replace")


def _is_ascii_of_c(stream: io.TextIOWrapper) -> bool:
    """Return whether a stream is one of the C locale, which takes bytes of names, but no letters."""
    return stream.errors == "surrogateescape" and not stream.encoding.lower().startswith("utf")


def output_console() -> Console:
    """Return the console of results. Names from models are never read as markup."""
    return _console(sys.stdout.isatty(), stderr=False)


def message_console() -> Console:
    """Return the console of messages and progress, on stderr."""
    return _console(sys.stderr.isatty(), stderr=True)


def _console(is_terminal: bool, *, stderr: bool) -> Console:
    from ort_core.cli.plain_console import (
        PlainConsole,
    )  # 40 ms that `ort --version` and --json do not need

    is_open = not is_terminal and not os.environ.get("COLUMNS")  # a line of a file may be as long as its sentence
    width = _PIPED_WIDTH if is_open else None
    return PlainConsole(stderr=stderr, width=width, soft_wrap=is_open, markup=False, highlight=False, emoji=False)


def print_json(data: object) -> None:
    """Write one JSON document to stdout. Numbers that JSON lacks become "NaN", "Infinity" and "-Infinity"."""
    sys.stdout.write(json.dumps(plain(data), indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def plain(data: object) -> object:
    """Return data as JSON has it."""
    if isinstance(data, Mapping):
        return {str(key): plain(value) for key, value in data.items()}
    if isinstance(data, (list, tuple, set, frozenset)):
        return [plain(item) for item in data]
    if isinstance(data, float) and not math.isfinite(data):
        return "NaN" if math.isnan(data) else "Infinity" if data > 0 else "-Infinity"
    if data is None or isinstance(data, (bool, int, float)):
        return data
    if isinstance(data, str):
        return data.encode("utf-8", "replace").decode()
    return plain(data.item()) if hasattr(data, "item") else str(data)


def note(text: str) -> None:
    """Print one line on stderr."""
    message_console().print(text, soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning on stderr."""
    from rich.text import Text

    message_console().print(Text("warning: ", style="yellow").append(text, style="default"), soft_wrap=True)


def fail(text: str) -> None:
    """Print an error on stderr."""
    from rich.text import Text

    message_console().print(Text("error: ", style="bold red").append(text, style="not bold default"), soft_wrap=True)


def count_text(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 node``, ``2 nodes``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


@contextmanager
def working(text: str) -> Iterator[None]:
    """Show that something takes its time: a spinner on stderr, only on a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    with message_console().status(text):
        yield


@contextmanager
def counted(text: str, total: int) -> Iterator[Advance]:
    """Show a progress bar on stderr, only on a terminal; the block calls what it is given with the share done."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=message_console(), transient=True) as progress:
        task = progress.add_task(text, total=total)
        yield lambda done: progress.update(task, completed=done)


if TYPE_CHECKING:
    from collections.abc import Callable

    Advance = Callable[[float], None]


def bytes_text(nbytes: float) -> str:
    """Return a size in the unit that reads best."""
    if nbytes < 1024:
        return f"{int(nbytes)} B"
    for unit in ("KiB", "MiB", "GiB"):
        nbytes /= 1024
        if nbytes < 1024 or unit == "GiB":
            break
    return f"{nbytes:.1f} {unit}" if nbytes < 100 else f"{nbytes:.0f} {unit}"


def time_text(ns: float) -> str:
    """Return a duration in the unit that reads best."""
    for limit, unit in ((1e3, "ns"), (1e6, "us"), (1e9, "ms")):
        if ns < limit:
            value = ns / (limit / 1e3)
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    return f"{ns / 1e9:.2f} s"


def number_text(value: object) -> str:
    """Return a number with six digits at most; text as it is."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def rate_text(per_second: float) -> str:
    """Return how many there are in a second, without an exponent: ``0.0123``, ``12.3``, ``106,600``."""
    if per_second < 1000:
        return f"{per_second:.3g}"
    digits = len(str(int(per_second))) - 4
    return f"{round(per_second, -digits):,.0f}"
