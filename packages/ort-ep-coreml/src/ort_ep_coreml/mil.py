"""MilProgram: a Core ML program as plain data, before coremltools builds it. Tests read it without any SDK."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ort_core.plugin.ir import DataType

Size = int | str  # a number, or the name of a size that is only known at run time
MAX_RANK = 5  # Core ML has no tensors of more dimensions
INT32_LIMITS = (-(2**31), 2**31 - 1)

MIL_TYPES: Mapping[DataType, str] = {
    DataType.FLOAT: "fp32",
    DataType.FLOAT16: "fp16",
    DataType.INT32: "int32",
    DataType.INT64: "int32",  # MIL has no int64: claims hold what is proven, or looked at, to fit
    DataType.INT8: "int8",
    DataType.UINT8: "uint8",
    DataType.BOOL: "bool",
}
"""The element types of MIL by those of ONNX."""

STORED_WIDE = frozenset({DataType.BOOL, DataType.INT8, DataType.UINT8})
"""Element types that a Core ML model has inside only: at its border they are int32."""

BORDER_TYPES: Mapping[DataType, str] = {**MIL_TYPES, **dict.fromkeys(STORED_WIDE, "int32")}
"""The element types of inputs and outputs."""


@dataclass(frozen=True, slots=True)
class Ref:
    """The result of an operation, or an input, by its name in the program."""

    name: str


Scalar = int | float | bool | str
Operand = Ref | np.ndarray | Scalar | tuple["Ref | np.ndarray | Scalar", ...]
"""What an operation reads: results, constants, and lists of them."""


@dataclass(frozen=True, slots=True)
class MilOperation:
    """One operation.

    Attributes:
        kind: the name of the operation in MIL.
        inputs: operands by parameter.
        outputs: names of the results; the first is the operation's own.
    """

    kind: str
    inputs: Mapping[str, Operand]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MilPort:
    """An input or output of a program.

    Attributes:
        index: which input or output of the claim it is.
        feature: its name in the Core ML model: letters, digits and underscores.
        dtype: element type in ONNX.
        shape: sizes in ONNX; a scalar has one element at the border of a Core ML model.
        limits: between which bounds (inclusive) elements must lie for the program to be right; ``None``: anywhere.
    """

    index: int
    feature: str
    dtype: DataType
    shape: tuple[Size, ...]
    limits: tuple[int, int] | None = None

    @property
    def mil_type(self) -> str:
        """The element type at the border."""
        return BORDER_TYPES[self.dtype]

    @property
    def mil_shape(self) -> tuple[Size, ...]:
        """The shape at the border."""
        return self.shape or (1,)


@dataclass(frozen=True, slots=True)
class MilState:
    """A value that the model keeps between runs, in half precision.

    Attributes:
        feature: its name in the Core ML model.
        dtype: element type in ONNX of the input and the output that it stands for.
        shape: its sizes.
        input: which input of the claim it stands for.
        output: which output of the claim it stands for.
    """

    feature: str
    dtype: DataType
    shape: tuple[int, ...]
    input: int
    output: int


@dataclass(frozen=True, slots=True)
class MilProgram:
    """A program: what it reads, what it does in order, what it gives, what it keeps, and what else it counts on.

    ``watched`` are inputs of the claim that the program does not read, and whose elements must lie within limits.
    """

    inputs: tuple[MilPort, ...]
    operations: tuple[MilOperation, ...]
    outputs: tuple[MilPort, ...]
    states: tuple[MilState, ...] = ()
    watched: tuple[MilPort, ...] = ()

    def text(self) -> str:
        """Return the program for people, with the contents of small constants."""
        return "\n".join(
            [
                *(f"state %{each.feature}: fp16[{','.join(map(str, each.shape))}]" for each in self.states),
                *_port_lines("input", self.inputs),
                *_port_lines("watched", self.watched),
                *self._operation_lines(),
                *_port_lines("output", self.outputs),
                "",
            ]
        )

    def _operation_lines(self) -> Iterator[str]:
        for each in self.operations:
            operands = ", ".join(f"{name}={_operand_text(value)}" for name, value in each.inputs.items())
            yield f"{', '.join('%' + name for name in each.outputs)} = {each.kind}({operands})"


def _port_lines(role: str, ports: tuple[MilPort, ...]) -> Iterator[str]:
    for port in ports:
        limits = "" if port.limits is None else f" within {list(port.limits)}"
        yield f"{role} %{port.feature}: {port.mil_type}[{','.join(map(str, port.mil_shape))}]{limits}"


def _operand_text(value: Operand) -> str:
    if isinstance(value, Ref):
        return f"%{value.name}"
    if isinstance(value, tuple):
        return f"({', '.join(_operand_text(each) for each in value)})"
    if isinstance(value, np.ndarray):
        few = 8  # elements; more is a weight, which says nothing in a text
        content = value.tolist() if value.size <= few else "..."
        return f"{value.dtype.name}{list(value.shape)}{{{content}}}"
    return repr(value)
