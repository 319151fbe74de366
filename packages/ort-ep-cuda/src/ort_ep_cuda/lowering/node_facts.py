"""LoweredNode: a node with what its lowering asks for: tensors, attributes, contents known on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ort_core.plugin import InvalidArgument
from ort_core.plugin.ir import Node, Value
from ort_ep_cuda.lowering.builder import ProgramBuilder
from ort_ep_cuda.lowering.values.growing import plain
from ort_ep_cuda.lowering.values.tensors import LazyTensor
from ort_ep_cuda.lowering.values.views import Shape


@dataclass(frozen=True, slots=True)
class LoweredNode:
    """A node that is being lowered; ``opset`` is the version of its domain."""

    node: Node
    opset: int
    builder: ProgramBuilder

    def value(self, index: int) -> Value:
        """Return an input that must be there."""
        value = self.node.input(index)
        if value is None:
            raise InvalidArgument(f"{self.node.describe()}: input {index} is absent")
        return value

    def tensor(self, index: int) -> LazyTensor:
        """Return an input, maybe not yet computed."""
        return self.builder.tensor(self.value(index))

    def has(self, index: int) -> bool:
        """Return whether an input is there."""
        return self.node.input(index) is not None

    def known(self, index: int) -> np.ndarray | None:
        """Return the content of an input that is known on the host, ``None`` where it is absent."""
        value = self.node.input(index)
        if value is None:
            return None
        if value in self.builder.known:
            return self.builder.known[value]
        if value.constant is None:
            raise InvalidArgument(f"{self.node.describe()}: input {index} ({value.name!r}) is not known on the host")
        return value.constant.array()

    def integers(self, index: int, attribute: str) -> tuple[int, ...] | None:
        """Return integers given by an input, or by an attribute in older opsets; ``None`` where by neither."""
        content = self.known(index)
        if content is not None:
            return tuple(plain(number) for number in content.reshape(-1))
        return self.node.ints_attribute(attribute)

    @property
    def attributes(self) -> Mapping[str, object]:
        """Attributes by name."""
        return {name: attribute.value for name, attribute in self.node.attributes.items()}

    @property
    def output(self) -> Value:
        """The first output."""
        return self.node.output


def axis_of(axis: int, rank: int) -> int:
    """Return an axis counted from the front."""
    return axis + rank if axis < 0 else axis


def broadcast(*shapes: Shape) -> Shape:
    """Return the shape to which all broadcast, of any rank: numpy's function ends at 32 axes.

    Raises:
        ValueError: two sizes differ and neither is 1.
    """
    rank = max((len(shape) for shape in shapes), default=0)
    lifted = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(_common(sizes) for sizes in zip(*lifted, strict=True))


def _common(sizes: Sequence[int]) -> int:
    found = 1
    for size in sizes:
        if size != 1 and found not in (1, size):
            raise ValueError(f"sizes {found} and {size} do not broadcast")
        found = found if size == 1 else size
    return found
