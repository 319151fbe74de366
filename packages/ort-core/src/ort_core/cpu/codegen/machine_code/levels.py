"""Levels of processors: the few targets of code that every machine needs, so that it can come with the package."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from ort_core.cpu.codegen.machine_code.target import Target, target_of
from ort_core.cpu.codegen.machine_code.target_setting import LEVELS

_TRIPLES = {
    ("x86_64", "linux"): "x86_64-unknown-linux-gnu",
    ("x86_64", "macos"): "x86_64-apple-darwin",
    ("x86_64", "windows"): "x86_64-pc-windows-msvc",
    ("aarch64", "linux"): "aarch64-unknown-linux-gnu",
    ("aarch64", "macos"): "arm64-apple-darwin",
}
_ARM = ("fp-armv8", "neon")
_X86 = ("x86-64-v4", "x86-64-v3", "x86-64-v2")  # the highest first
_ANY_COMPILER = ""  # what is compiled for a level is known by its text alone


@functools.lru_cache(16)  # asked for every kernel, of the machine's own target or a few others
def level_of(target: Target) -> Target | None:
    """Return the highest level that a target has all of, if its vectors are as wide; ``None`` where there is none.

    Code written for the level is then the code written for the target. A processor with AVX2 but not all of
    x86-64-v3 has none: what a lower level gives it would be slow.
    """
    triple = _TRIPLES.get((_processor(target.triple), _system(target.triple)))
    if triple is None:
        return None
    if _processor(triple) == "aarch64":
        return _arm(triple)
    for name in _X86:
        level = _x86(triple, name)
        if all(target.has(feature) for feature in LEVELS[name]):
            return level if _vectors(level) == _vectors(target) else None
    return None


def levels() -> Iterator[Target]:
    """Give every level, for every system that code can come compiled for."""
    for (processor, _), triple in _TRIPLES.items():
        if processor == "aarch64":
            yield _arm(triple)
        else:
            yield from (_x86(triple, name) for name in _X86)


def _x86(triple: str, name: str) -> Target:
    features = ",".join(f"+{feature}" for feature in sorted(LEVELS[name]))
    return target_of(triple, name, f"{features},-prefer-256-bit", _ANY_COMPILER)


def _arm(triple: str) -> Target:
    return target_of(triple, "generic", ",".join(f"+{feature}" for feature in _ARM), _ANY_COMPILER)


def _vectors(target: Target) -> tuple[int, int]:
    return target.vector_nbytes, target.vector_registers


def _processor(triple: str) -> str:
    first = triple.partition("-")[0]
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(first, first)


def _system(triple: str) -> str:
    for name, words in (("linux", ("linux",)), ("macos", ("darwin", "macos")), ("windows", ("windows",))):
        if any(word in triple for word in words):
            return name
    return ""
