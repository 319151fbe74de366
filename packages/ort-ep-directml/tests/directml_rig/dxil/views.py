"""Views of buffers: where an element lies in memory, and how its bytes become a shader's value and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from directml_rig.dxil.module import ResourceKind
from directml_rig.errors import UnsupportedShaderError


@dataclass(frozen=True, slots=True)
class Format:
    """A DXGI format.

    Attributes:
        components: values of an element.
        kind: ``float``, ``uint`` or ``sint``.
        bits: of one component.
    """

    components: int
    kind: str
    bits: int

    @property
    def nbytes(self) -> int:
        """Bytes of an element."""
        return self.components * self.bits // 8

    @property
    def stored(self) -> str:
        """The type of a component in memory, as LLVM writes it."""
        return FLOATS[self.bits] if self.kind == "float" else f"i{self.bits}"


FLOATS = {16: "half", 32: "float", 64: "double"}
FORMATS = {
    2: Format(4, "float", 32), 3: Format(4, "uint", 32), 4: Format(4, "sint", 32),
    10: Format(4, "float", 16), 12: Format(4, "uint", 16), 14: Format(4, "sint", 16),
    16: Format(2, "float", 32), 17: Format(2, "uint", 32), 18: Format(2, "sint", 32),
    30: Format(4, "uint", 8), 32: Format(4, "sint", 8),
    34: Format(2, "float", 16), 36: Format(2, "uint", 16), 38: Format(2, "sint", 16),
    41: Format(1, "float", 32), 42: Format(1, "uint", 32), 43: Format(1, "sint", 32),
    50: Format(2, "uint", 8), 52: Format(2, "sint", 8),
    54: Format(1, "float", 16), 57: Format(1, "uint", 16), 59: Format(1, "sint", 16),
    62: Format(1, "uint", 8), 64: Format(1, "sint", 8),
}  # fmt: skip
"""The formats of typed buffers, by DXGI's number."""


@dataclass(frozen=True, slots=True)
class View:
    """How a shader sees a buffer.

    Attributes:
        kind: as typed elements, structures, bytes, or constants.
        format: DXGI's number when typed.
        stride: bytes of a structure when structured.
    """

    kind: ResourceKind
    format: int = 0
    stride: int = 0

    @property
    def name(self) -> str:
        """A name that no other view has."""
        return f"{self.kind.name.lower()}{self.format or self.stride or ''}"

    @property
    def element(self) -> Format:
        """The format of a typed view.

        Raises:
            UnsupportedShaderError: it is not in the table.
        """
        found = FORMATS.get(self.format)
        if found is None:
            raise UnsupportedShaderError(f"DXGI format {self.format} of a typed buffer is not in the rig's table")
        return found


PREAMBLE = """
%rig.view = type { ptr, i64 }
@rig.zeros = internal constant [64 x i8] zeroinitializer, align 16
@rig.sink = internal global [64 x i8] zeroinitializer, align 16
"""
"""A view at run time: its memory, and how many elements (of bytes: raw and constants) it has.

Reads outside a view give zeros and writes outside go nowhere, as Direct3D promises.
"""


def size_of(kind: str) -> int:
    """Return the bytes of a value of an LLVM type."""
    return {"half": 2, "float": 4, "double": 8}.get(kind) or int(kind.removeprefix("i")) // 8


def place(view: View, nbytes: int) -> tuple[str, str]:
    """Return the name and the text of the function that finds ``nbytes`` in a view.

    Its arguments: the views, the slot, two coordinates (index and offset as DXIL has them), and the memory to take
    where the coordinates are outside.
    """
    name = f"@rig.place.{view.name}.{nbytes}"
    if view.kind in (ResourceKind.RAW, ResourceKind.CONSTANTS):
        steps = [f"%far = add i64 %i, {nbytes}", "%ok = icmp ule i64 %far, %count", "%at = add i64 %i, 0"]
    elif view.kind is ResourceKind.STRUCTURED:
        steps = ["%ok = icmp ult i64 %i, %count", f"%base = mul i64 %i, {view.stride}", "%at = add i64 %base, %j"]
    else:
        steps = ["%ok = icmp ult i64 %i, %count", f"%at = mul i64 %i, {view.element.nbytes}"]
    body = "\n  ".join(steps)
    text = f"""
define internal ptr {name}(ptr %views, i32 %slot, i32 %first, i32 %second, ptr %outside) alwaysinline {{
  %view = getelementptr %rig.view, ptr %views, i32 %slot
  %memory = load ptr, ptr %view, align 8, !invariant.load !0
  %behind = getelementptr %rig.view, ptr %view, i32 0, i32 1
  %count = load i64, ptr %behind, align 8, !invariant.load !0
  %i = zext i32 %first to i64
  %j = zext i32 %second to i64
  {body}
  %inside = getelementptr i8, ptr %memory, i64 %at
  %found = select i1 %ok, ptr %inside, ptr %outside
  ret ptr %found
}}"""
    return name, text


def read(stored: str, kind: str, wanted: str, value: str, result: str) -> Sequence[str]:
    """Return the lines that make a shader's value from one in memory.

    Args:
        stored: type in memory.
        kind: ``float``, ``uint`` or ``sint``: what the bits mean.
        wanted: the shader's type.
        value: name of the value in memory.
        result: name to give.

    Raises:
        UnsupportedShaderError: the types do not go together.
    """
    if stored == wanted:
        return [f"{result} = bitcast {stored} {value} to {wanted}"]
    if (kind == "float") != (wanted in FLOATS.values()):
        raise UnsupportedShaderError(f"a buffer of {kind} in {stored} is read as {wanted}")
    wider = size_of(wanted) > size_of(stored)
    if (wanted, stored) == ("half", "double"):
        return [f"{result} = call half @rig.half(double {value})"]
    words = {"float": ("fpext", "fptrunc"), "uint": ("zext", "trunc"), "sint": ("sext", "trunc")}[kind]
    return [f"{result} = {words[not wider]} {stored} {value} to {wanted}"]


def written(stored: str, kind: str, given: str, value: str, result: str) -> Sequence[str]:
    """Return the lines that make a value for memory from a shader's; integers that do not fit are clamped.

    Raises:
        UnsupportedShaderError: the types do not go together.
    """
    if stored == given:
        return [f"{result} = bitcast {given} {value} to {stored}"]
    if (kind == "float") != (given in FLOATS.values()):
        raise UnsupportedShaderError(f"a buffer of {kind} in {stored} is written as {given}")
    wider = size_of(stored) > size_of(given)
    if (stored, given) == ("half", "double"):
        return [f"{result} = call half @rig.half(double {value})"]
    if kind == "float":
        return [f"{result} = {'fpext' if wider else 'fptrunc'} {given} {value} to {stored}"]
    if wider:
        return [f"{result} = {'zext' if kind == 'uint' else 'sext'} {given} {value} to {stored}"]
    bits = size_of(stored) * 8
    low, high = (0, 2**bits - 1) if kind == "uint" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    letter = "u" if kind == "uint" else "s"
    return [
        f"{result}.low = call {given} @llvm.{letter}max.{given}({given} {value}, {given} {low})",
        f"{result}.in = call {given} @llvm.{letter}min.{given}({given} {result}.low, {given} {high})",
        f"{result} = trunc {given} {result}.in to {stored}",
    ]
