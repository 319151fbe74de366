"""The user's own part of a traceback, as text: frames of the engine above the user's function are left out."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any


def user_traceback(error: BaseException, function: Callable[..., Any]) -> str:
    """Return ``Type: message`` and the frames of ``error`` from ``function`` on, deepest last, as Python shows them.

    Where the function does not occur (it is compiled, or was called with wrong arguments) only its place is named.
    """
    summary = "".join(traceback.format_exception_only(type(error), error)).strip()
    code = _code_of(function)
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code is not code:
        frame = frame.tb_next
    if frame is None:
        return f"{summary} ({place_of(function)})"
    return f"{summary}\n{''.join(traceback.format_tb(frame)).rstrip()}"


def place_of(function: Callable[..., Any]) -> str:
    """Return where a function is defined, ``name at file:line``, as far as that is known."""
    name = getattr(function, "__qualname__", type(function).__name__)
    code = _code_of(function)
    return f"{name} at {code.co_filename}:{code.co_firstlineno}" if code is not None else name


def _code_of(function: Callable[..., Any]) -> CodeType | None:
    unwrapped = inspect.unwrap(function)
    code = getattr(unwrapped, "__code__", None)
    return code if isinstance(code, CodeType) else None


def frames_of_file(error: BaseException, path: Path) -> str:
    """Return ``Type: message`` and the frames of ``error`` from the first in the file on, deepest last."""
    summary = "".join(traceback.format_exception_only(type(error), error)).strip()
    frame = error.__traceback__
    while frame is not None and Path(frame.tb_frame.f_code.co_filename) != path:
        frame = frame.tb_next
    return summary if frame is None else f"{summary}\n{''.join(traceback.format_tb(frame)).rstrip()}"
