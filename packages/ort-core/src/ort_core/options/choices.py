"""What options choose between, by onnxruntime's names and numbers."""

from __future__ import annotations

import enum

from ort_core.errors import InvalidChoice


class Choice(enum.IntEnum):
    """An enumeration that shows its members' names, as onnxruntime's do."""

    @classmethod
    def _missing_(cls, value: object) -> Choice:
        names = ", ".join(f"{cls.__name__}.{member.name}" for member in cls)
        raise InvalidChoice(f"{value!r} ({type(value).__name__}) is none of {names}")

    __str__ = enum.Enum.__str__
    __format__ = enum.Enum.__format__


class Flags(enum.IntFlag):
    """Choices that are joined with ``|``, shown by their names, too."""

    __str__ = enum.Flag.__str__
    __format__ = enum.Enum.__format__


class GraphOptimizationLevel(Choice):
    """How far the graph is optimized."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(Choice):
    """Whether independent operators may run at the same time."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(Choice):
    """In which topological order operators run."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2
