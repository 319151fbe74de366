"""What the program raises in the middle of other code: a border that catches a plugin's faults lets it pass.

A handler of a signal is called between two steps of whatever runs. What it raises, a program's limit on time say,
is no fault of that code: the program waits for it, and nothing may be learnt from it about the code.

``KeyboardInterrupt`` is one kind. All others are known by their traceback: the frame of a handler was handed the frame
that it interrupted, its caller's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


def raise_interruption(error: BaseException) -> None:
    """Raise a caught error again if a handler of a signal raised it; the first step of a border that catches all."""
    if is_interruption(error):
        raise error


def is_interruption(error: BaseException) -> bool:
    """Return whether a handler of a signal raised an error, in the middle of other code."""
    if isinstance(error, KeyboardInterrupt):
        return True
    step = error.__traceback__
    while step is not None:
        if _was_handed_its_caller(step.tb_frame):
            return True
        step = step.tb_next
    return False


def _was_handed_its_caller(frame: FrameType) -> bool:
    from inspect import CO_VARARGS  # only for an error: no program pays for it that has none

    caller, code = frame.f_back, frame.f_code
    if caller is None:
        return False
    values = frame.f_locals
    if any(values.get(name) is caller for name in code.co_varnames[: code.co_argcount]):
        return True
    if not code.co_flags & CO_VARARGS:
        return False
    rest = values.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount], ())
    return isinstance(rest, tuple) and any(value is caller for value in rest)
