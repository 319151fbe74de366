"""Plan: the operators that a claim becomes, as plain data: printed, kept as text in tests, described to DirectML.

A tensor here is a view of a buffer: sizes, and strides in elements where they are not those of packed rows. What a
node reads comes from an input of the graph, a constant, or an output of a node before it, whose buffer may be seen
with other sizes, strides, or another element type of the same width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ort_ep_directml.schema.element_types import ElementType
from ort_ep_directml.schema.operators import OPERATORS

Sizes = tuple[int, ...]


def packed_strides(sizes: Sizes) -> Sizes:
    """Return the strides of rows that lie behind each other."""
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


@dataclass(frozen=True, slots=True)
class Tensor:
    """What ``DML_BUFFER_TENSOR_DESC`` says of a buffer.

    Attributes:
        dtype: of its elements.
        sizes: one to eight, each at least 1.
        strides: in elements; ``None``: packed.
    """

    dtype: ElementType
    sizes: Sizes
    strides: Sizes | None = None

    @property
    def nbytes(self) -> int:
        """Bytes up to the last element, rounded up to four as DirectML wants it."""
        strides = self.strides or packed_strides(self.sizes)
        last = sum((size - 1) * stride for size, stride in zip(self.sizes, strides, strict=True))
        return ((last + 1) * self.dtype.bits + 31) // 32 * 4

    def text(self) -> str:
        """Return it as in plans: ``float32[1,3,4]``, with strides behind a colon."""
        strides = "" if self.strides is None else ":" + ",".join(map(str, self.strides))
        return f"{self.dtype.text}[{','.join(map(str, self.sizes))}{strides}]"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a tensor comes from.

    Attributes:
        kind: ``input``, ``constant`` or ``node``.
        index: which one.
        output: of a node, which of its outputs that are present.
    """

    kind: str
    index: int
    output: int = 0

    def text(self) -> str:
        """Return it as in plans: ``input 0``, ``constant 1``, ``%2``, ``%2.1``."""
        if self.kind != "node":
            return f"{self.kind} {self.index}"
        return f"%{self.index}" + (f".{self.output}" if self.output else "")


@dataclass(frozen=True, slots=True)
class Scalar:
    """Eight bytes that hold one element.

    Attributes:
        dtype: of the element.
        value: the number.
    """

    dtype: ElementType
    value: int | float

    @property
    def bits(self) -> int:
        """The bytes as a number, the rest of them zero."""
        data = np.array(self.value).astype(self.dtype.numpy).tobytes()
        return int.from_bytes(data, "little")


@dataclass(frozen=True, slots=True)
class Fused:
    """An activation inside another operator; its tensors are absent.

    Attributes:
        kind: the operator's name.
        fields: its numbers.
    """

    kind: str
    fields: Mapping[str, object]

    def text(self) -> str:
        """Return it as in plans."""
        return f"{self.kind}({', '.join(f'{name}={_text(value)}' for name, value in self.fields.items())})"


@dataclass(frozen=True, slots=True)
class PlanNode:
    """One operator.

    Attributes:
        kind: its name in the table.
        fields: values by name; tensors, arrays of tensors, numbers. Absent ones are left out, counts too.
        sources: where each tensor that it reads comes from, in the order of the table; ``None`` for one that is absent.
        origin: the ONNX node that it is part of, for messages.
    """

    kind: str
    fields: Mapping[str, object]
    sources: tuple[Source | None, ...]
    origin: str = ""

    def output_tensors(self) -> Iterator[Tensor]:
        """Return the tensors that it writes, in order."""
        for field in OPERATORS[self.kind].outputs:
            value = self.fields.get(field.name)
            if isinstance(value, Tensor):
                yield value
            elif isinstance(value, tuple):
                yield from value

    def text(self) -> str:
        """Return its line in plans."""
        sources = iter(self.sources)
        words: list[str] = []
        for field in OPERATORS[self.kind].fields:
            value = self.fields.get(field.name)
            if field.kind == "in":
                source = next(sources)
                if isinstance(value, Tensor) and source is not None:
                    words.append(f"{field.name}={source.text()} as {value.text()}")
            elif field.kind == "ins" and isinstance(value, tuple):
                parts = [f"{s.text()} as {t.text()}" for t in value if (s := next(sources)) is not None]
                words.append(f"{field.name}=[{', '.join(parts)}]")
            elif value is not None and not field.is_output:
                words.append(f"{field.name}={_text(value)}")
        made = " ".join(tensor.text() for tensor in self.output_tensors())
        return f"{made} = {self.kind}({', '.join(words)})"


@dataclass(frozen=True, slots=True)
class PlanInput:
    """An input of the graph: its place among those of the claim, and how its buffer is laid out (packed)."""

    index: int
    name: str
    tensor: Tensor


@dataclass(frozen=True, slots=True)
class PlanConstant:
    """A constant: its elements, packed."""

    tensor: Tensor
    array: np.ndarray


@dataclass(frozen=True, slots=True)
class PlanOutput:
    """An output of the graph: its place among those of the claim, its shape in ONNX, and which buffer it is."""

    index: int
    name: str
    dtype: np.dtype
    shape: Sizes
    tensor: Tensor
    source: Source


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """A claim at one signature of shapes.

    Attributes:
        inputs: those that something reads.
        constants: packed, each once.
        nodes: in an order in which each can run.
        outputs: each is written by a node of its own.
        level: the feature level that it was made for.
    """

    inputs: tuple[PlanInput, ...]
    constants: tuple[PlanConstant, ...]
    nodes: tuple[PlanNode, ...]
    outputs: tuple[PlanOutput, ...]
    level: int

    def text(self) -> str:
        """Return the plan as lines, for tests and for people."""
        lines = [f"input {place} {port.name}: {port.tensor.text()}" for place, port in enumerate(self.inputs)]
        for place, constant in enumerate(self.constants):
            lines.append(f"constant {place}: {constant.tensor.text()}{_values(constant.array)}")
        lines += [f"%{place}: {node.text()}" for place, node in enumerate(self.nodes)]
        lines += [f"output {port.name}: {port.source.text()} as {port.tensor.text()}" for port in self.outputs]
        return "\n".join(lines) + "\n"


def _values(array: np.ndarray) -> str:
    return f" = {array.ravel().tolist()}" if array.size <= 8 else ""


def _text(value: object) -> str:
    if isinstance(value, Fused):
        return value.text()
    if isinstance(value, Scalar):
        return f"{value.value} ({value.dtype.text})"
    if isinstance(value, tuple):
        return "[" + ", ".join(_text(each) for each in value) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)
