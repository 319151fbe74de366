"""What Linux says of an x86-64 processor: its maker, family, model and every feature that the kernel lets one use.

Registers of tiles (AMX) take 8 kB of each thread's state. Linux gives them to a process that asks for them, once,
before its threads use them (``arch_prctl``, Linux's Documentation/arch/x86/xstate.rst).
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
from os import PathLike

from ort_core.plugin import Rejection

CPUINFO = "/proc/cpuinfo"
_FIRST_NBYTES = 1 << 14  # of a file with a paragraph of some 1.5 kB for each processor; only one is read
_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA = 158, 0x1023, 18  # numbers of x86-64 Linux
_TELLING = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")


def processor_text(path: str | PathLike[str] = CPUINFO) -> str | Rejection:
    """Return the text that two processors share exactly when they run the same code as well, or why there is none."""
    if platform.machine() != "x86_64":
        return Rejection("paragraphs of other processors than x86-64 do not tell all features")
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            paragraph = file.read(_FIRST_NBYTES).partition("\n\n")[0]
    except OSError as error:
        return Rejection(f"{path} cannot be read: {error}")
    lines = (line.partition(":") for line in paragraph.splitlines())
    facts = {name.strip(): text.strip() for name, _, text in lines}
    if not all(facts.get(name) for name in _TELLING):
        return Rejection(f"{path} lacks one of {', '.join(_TELLING)}")
    text = "|".join(facts[name] for name in _TELLING)
    if "amx_tile" in facts["flags"].split() and isinstance(permitted_tiles(), Rejection):
        return f"{text}|without tiles"
    return text


@functools.cache
def permitted_tiles() -> Rejection | None:
    """Ask that this process may use registers of tiles; returns why it may not."""
    try:
        request = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError) as error:
        return Rejection(f"the C library has no syscall(): {error}")
    request.argtypes = [ctypes.c_long] * 3
    request.restype = ctypes.c_long
    if request(_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA) != 0:
        return Rejection(f"Linux does not permit registers of tiles: {os.strerror(ctypes.get_errno())}")
    return None
