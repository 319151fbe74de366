"""set_default_logger_callback(): a function of the program hears what the logger ``ort_core`` says."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import ClassVar

from ort_core.arguments import takes, whole
from ort_core.errors import InvalidValue
from ort_core.interruptions import raise_interruption
from ort_core.session_api.process import SEVERITIES, log, set_default_logger_severity

LoggerCallback = Callable[[int, str, str, str, str], object]  # severity, category, logid, code_location, message


class _OpenLock:
    """What logging asks of a handler's lock; ``None`` serves no longer from Python 3.13 on."""

    def acquire(self) -> None:
        """Go on at once."""

    def release(self) -> None:
        """Do nothing."""

    __enter__ = acquire

    def __exit__(self, *error: object) -> None:
        """Do nothing."""


class CallbackHandler(logging.Handler):
    """Hands records to a function; what it raises, and what is logged while it runs, goes to standard error."""

    current: ClassVar[CallbackHandler | None] = None

    def __init__(self, callback: LoggerCallback) -> None:
        super().__init__()
        self._callback = callback
        self._inside = threading.local()

    def createLock(self) -> None:  # noqa: N802 - logging's own name
        """Have a lock that keeps nobody out: the function may log, and wait for threads that log."""
        self.lock = _OpenLock()  # type: ignore[assignment]  # logging asks no more of a lock

    def emit(self, record: logging.LogRecord) -> None:
        """Call the function with onnxruntime's five arguments."""
        if getattr(self._inside, "is_calling", False):
            _to_standard_error(record)
            return
        self._inside.is_calling = True
        try:
            severity = max((i for i, level in enumerate(SEVERITIES) if level <= record.levelno), default=0)
            place = f"{record.filename}:{record.lineno} {record.funcName}"
            self._callback(severity, record.name, "", place, record.getMessage())
        except Exception as error:  # noqa: BLE001 - a program's function; reported as what nobody can catch
            raise_interruption(error)
            _to_standard_error(record)
            facts = SimpleNamespace(
                exc_type=type(error), exc_value=error, exc_traceback=error.__traceback__, object=self._callback,
                err_msg="Exception ignored in the logging callback",
            )  # fmt: skip
            sys.unraisablehook(facts)
        finally:
            self._inside.is_calling = False


@takes(severity=whole)
def set_default_logger_callback(callback: LoggerCallback | None, severity: int = 2) -> None:
    """Call a function for every message of the logger ``ort_core``; ``None`` ends that.

    Args:
        callback: takes severity (0 verbose to 4 fatal), category (the logger's name), an empty logid, the place in
            the code, and the message. It runs on the thread that logs.
        severity: what the logger lets through from now on; not looked at beyond its range for ``None``.

    Raises:
        InvalidValue: the severity is not 0 to 4, or the callback cannot be called.
        InvalidType: the severity is not an integer.
    """
    if not 0 <= severity < len(SEVERITIES):
        raise InvalidValue(f"Invalid logging severity {severity}. 0:Verbose, 1:Info, 2:Warning, 3:Error, 4:Fatal")
    if callback is not None and not callable(callback):
        raise InvalidValue(f"callback must be a callable, found {callback!r}")
    if CallbackHandler.current is not None:
        log.removeHandler(CallbackHandler.current)
        CallbackHandler.current = None
    if callback is not None:
        set_default_logger_severity(severity)
        CallbackHandler.current = CallbackHandler(callback)
        log.addHandler(CallbackHandler.current)


def _to_standard_error(record: logging.LogRecord) -> None:
    if logging.lastResort is not None and record.levelno >= logging.lastResort.level:
        logging.lastResort.handle(record)
