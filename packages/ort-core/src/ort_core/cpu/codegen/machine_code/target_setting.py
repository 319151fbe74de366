"""``ORT_CPU_TARGET``: what code is compiled for instead of this machine, to try code for lesser ones on it.

    x86-64-v3                      that level and nothing else
    x86-64-v4,+avx512vnni          that level and a feature that this machine has
    -avx512bf16,-amx-tile          this machine without some features

Features have LLVM's names; levels are those of the x86-64 psABI.
"""

from __future__ import annotations

from ort_core.plugin import InvalidArgument, environment_value, frozen

_BASE = {"64bit", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2"}
_V2 = _BASE | {"cx16", "crc32", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"}
_V3 = _V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
_V4 = _V3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}
LEVELS = {"x86-64": _BASE, "x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}


@frozen
class TargetSetting:
    """A level, ``""`` for this machine's own features, and features added to it or taken away."""

    level: str
    added: tuple[str, ...]
    removed: tuple[str, ...]

    def features(self, host: dict[str, bool]) -> dict[str, bool]:
        """Return the features of the target, given all that LLVM knows and whether this machine has each.

        Raises:
            InvalidArgument: this machine lacks one that was asked for, or LLVM does not know it.
        """
        wanted = (LEVELS[self.level] if self.level else set()) | set(self.added)
        missing = sorted(name for name in wanted if not host.get(name)) + sorted(set(self.removed) - set(host))
        if missing:
            raise InvalidArgument(
                f"ORT_CPU_TARGET asks for {', '.join(missing)}, which this machine or LLVM does not know. It has: "
                f"{' '.join(name for name, on in host.items() if on)}"
            )
        kept = wanted if self.level else {name for name, on in host.items() if on}
        return {name: name in kept and name not in self.removed for name in host}


def target_setting() -> TargetSetting | None:
    """Return what the environment asks for, ``None`` for this machine as it is.

    Raises:
        InvalidArgument: the text is not of that form.
    """
    text = str(environment_value("ORT_CPU_TARGET")).replace(" ", "")
    if not text:
        return None
    first, *rest = text.split(",")
    level, changes = (first, rest) if first[:1] not in ("+", "-") else ("", [first, *rest])
    if (level and level not in LEVELS) or any(each[:1] not in ("+", "-") for each in changes):
        raise InvalidArgument(
            f"ORT_CPU_TARGET is {text!r}, expected one of {', '.join(LEVELS)}, or nothing, and then +FEATURE or "
            f"-FEATURE, with commas between, as in x86-64-v4,+avx512vnni"
        )
    added, removed = (tuple(e[1:] for e in changes if e[0] == sign) for sign in "+-")
    return TargetSetting(level, added, removed)


def setting_key() -> str:
    """Return what code in a cache depends on besides the machine: its restriction, and whether runs are guarded."""
    names = ("ORT_CPU_TARGET", "ORT_GUARDED_MEMORY")
    return "|".join(f"{name}={value}" for name in names if (value := environment_value(name)) not in ("", "off"))
