"""What Linux says of an x86-64 processor: its maker, family, model and every feature that the kernel lets one use."""

from __future__ import annotations

import platform
from os import PathLike

from ort_core.plugin import Rejection

CPUINFO = "/proc/cpuinfo"
_FIRST_NBYTES = 1 << 14  # of a file with a paragraph of some 1.5 kB for each processor; only one is read
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
    return "|".join(facts[name] for name in _TELLING)
