"""What this process and the one that compiles for it say to each other: frames through a socket.

A frame is its kind, a number that an answer repeats, the length of its content, and the content.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable

ASK_HOST, SET_TARGET, COMPILE, COMPILE_VECTORIZED = range(4)
ANSWER, REFUSAL = range(4, 6)
_HEAD = struct.Struct("<BIQ")
_MOST_NBYTES = 1 << 30  # of a content: a process that says more is out of step


class OutOfStep(OSError):
    """The other process ended, or what it says is no frame."""


def write_frame(write: Callable[[memoryview], int], kind: int, number: int, content: bytes) -> None:
    """Write a frame; ``write`` returns how many bytes it took.

    Raises:
        OSError: nobody reads it any more.
    """
    for part in (_HEAD.pack(kind, number, len(content)), content):
        rest = memoryview(part)
        while rest:
            rest = rest[write(rest) :]


def read_frame(file: int) -> tuple[int, int, bytes]:
    """Read a frame: its kind, its number and its content.

    Raises:
        OSError: the other process has ended, or what it says is no frame (``OutOfStep``).
    """
    kind, number, nbytes = _HEAD.unpack(_read(file, _HEAD.size))
    if kind > REFUSAL or nbytes > _MOST_NBYTES:
        raise OutOfStep(f"a frame of kind {kind} with {nbytes} bytes is none")
    return kind, number, _read(file, nbytes)


def _read(file: int, nbytes: int) -> bytes:
    parts = []
    while nbytes:
        part = os.read(file, min(nbytes, 1 << 20))
        if not part:
            raise OutOfStep("the other process has ended")
        parts.append(part)
        nbytes -= len(part)
    return b"".join(parts)
