"""What a command's failure looks like: one message on stderr and an exit code; a traceback only with --debug."""

from __future__ import annotations

import logging
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from ort_core.cli.console import fail, note, warn
from ort_core.cli.control_characters import shown
from ort_core.errors import OrtError, UnknownOption

FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130


@contextmanager
def reported(*, is_debugging: bool) -> Iterator[None]:
    """Turn errors into messages and exit codes, and warnings into lines on stderr."""
    with warnings.catch_warnings(), _handled_failures_shown(is_debugging):
        warnings.showwarning = _show_warning
        warnings.simplefilter("default", UserWarning)  # whatever Python was told: a placement elsewhere is always said
        try:
            yield
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            raise
        except (OrtError, OSError, MemoryError) as error:
            if is_debugging:
                note(traceback.format_exc())
            fail(failure_text(error))
            raise typer.Exit(WRONG_USAGE if isinstance(error, UnknownOption) else FAILED) from error
        except RuntimeError as error:
            if type(error).__module__.startswith(("typer", "click")):  # how they end a command: Exit, Abort
                raise
            _report_bug(error, is_debugging)
        except Exception as error:
            if type(error).__module__.startswith(("typer", "click")):  # wrong usage: they print it
                if isinstance(message := getattr(error, "message", None), str):
                    error.message = shown(message)  # type: ignore[attr-defined]  # it names what a model has
                raise
            _report_bug(error, is_debugging)


class _Tracebacks(logging.Handler):
    """Shows the tracebacks of failures that were handled: of plugins, whose nodes go elsewhere."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the failure of a record that has one."""
        if record.exc_info and record.exc_info[1] is not None:
            note("".join(traceback.format_exception(record.exc_info[1])) + f"({record.getMessage()})")


@contextmanager
def _handled_failures_shown(is_debugging: bool) -> Iterator[None]:
    if not is_debugging:
        yield
        return
    log, handler = logging.getLogger("ort_core"), _Tracebacks()
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        log.setLevel(before)
        log.removeHandler(handler)


def failure_text(error: Exception) -> str:
    """Return an error in words: of the system's errors the file and what happened, without the number."""
    if isinstance(error, OSError) and not isinstance(error, OrtError) and error.strerror:
        return f"{str(error.filename)!r}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def _report_bug(error: Exception, is_debugging: bool) -> None:
    if is_debugging:
        note(traceback.format_exc())
    fail(f"unexpected {type(error).__name__}: {error}")
    if not is_debugging:
        note("This is a bug in ort-core or a plugin; `ort --debug …` shows where it happened.")
    raise typer.Exit(FAILED) from error


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: object = None,
    line: str | None = None,
) -> None:
    warn(str(message))
