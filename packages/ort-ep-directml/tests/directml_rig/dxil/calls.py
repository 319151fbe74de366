"""A call of one of DXIL's intrinsics, read from a line of LLVM text."""

from __future__ import annotations

import re
from dataclasses import dataclass

_CALL = re.compile(
    r"^\s*(?:(?P<name>%[\w.\"]+) = )?(?:tail |notail )?call (?P<result>[^@(]+) @dx\.op\.(?P<intrinsic>[\w.]+)"
    r"\((?P<arguments>.*)\)"
)


@dataclass(frozen=True, slots=True)
class Call:
    """A call.

    Attributes:
        name: what its result is called; empty without one.
        result: type of its result.
        intrinsic: its name after ``dx.op.``.
        types, values: of its arguments, the opcode first.
    """

    name: str
    result: str
    intrinsic: str
    types: tuple[str, ...]
    values: tuple[str, ...]

    @property
    def opcode(self) -> int:
        """The number of what it does."""
        return int(self.values[0])

    @property
    def overload(self) -> str:
        """The type that the intrinsic's name ends with, as LLVM writes it."""
        last = self.intrinsic.rpartition(".")[2]
        return {"f16": "half", "f32": "float", "f64": "double"}.get(last, last)

    def coordinate(self, index: int) -> str:
        """Return an integer argument; zero where the shader leaves it open."""
        return "0" if self.values[index] in ("undef", "poison") else self.values[index]

    def describe(self) -> str:
        """Say what is called."""
        return f"dx.op.{self.intrinsic} (opcode {self.opcode})"


def call_of(line: str) -> Call | None:
    """Return the call of a DXIL intrinsic on a line; ``None`` where there is none."""
    match = _CALL.match(line)
    if match is None:
        return None
    pairs = [argument.rsplit(" ", 1) for argument in match["arguments"].split(", ")]
    return Call(
        name=match["name"] or "",
        result=match["result"].strip(),
        intrinsic=match["intrinsic"],
        types=tuple(kind for kind, _ in pairs),
        values=tuple(value for _, value in pairs),
    )
