"""Conditions: what a precondition sees of a node, and how it says what must hold.

A precondition is a plain function of them. Kernels check it on the arrays of a run; a compiler states it on symbolic
sizes when it lowers a node, so that compiled code that runs has nothing left to check (``require_*`` is then a refusal
to lower, or an equation that each new signature of sizes is checked for).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.ir.dims import KnownDim
from ort_core.ir.nodes import Node

Sizes = tuple[KnownDim, ...]


class Conditions:
    """One node with the shapes of its inputs (``None``: absent, or no tensor). Subclasses say what a breach does.

    Args:
        node: for its attributes.
        opset: the version of its domain.
        shapes: of the inputs that are given, in order.
    """

    __slots__ = ("node", "opset", "shapes")

    def __init__(self, node: Node, opset: int, shapes: Sequence[Sizes | None]) -> None:
        self.node = node
        self.opset = opset
        self.shapes = shapes

    def shape(self, index: int) -> Sizes | None:
        """Return the shape of an input, ``None`` when it is absent or no tensor."""
        return self.shapes[index] if index < len(self.shapes) else None

    def has(self, index: int) -> bool:
        """Return whether the node names an input."""
        return self.node.input(index) is not None

    def refuse(self, text: str) -> NoReturn:
        """Say that the node cannot run as it is."""
        raise NotImplementedError

    def equal(self, left: KnownDim, right: KnownDim, text: str) -> None:
        """Require two sizes to be equal; sizes that are no numbers are equal where they are the same polynomial."""
        if left != right:
            self.refuse(text)

    def positive(self, size: KnownDim, text: str) -> None:
        """Require a size to be at least 1; one that is no number is refused."""
        if not isinstance(size, int) or size < 1:
            self.refuse(text)

    def holds_bytes(self, index: int) -> bool:
        """Return whether an input is of type uint8, as what is packed is."""
        raise NotImplementedError

    # in terms of these ------------------------------------------------------------------------------------------------

    def require(self, holds: bool, text: str) -> None:
        """Require what is known without sizes."""
        if not holds:
            self.refuse(text)

    def rank(self, index: int, name: str, *ranks: int) -> Sizes | None:
        """Require an input, if it is there, to have one of some ranks; return its shape."""
        shape = self.shape(index)
        if shape is not None and len(shape) not in ranks:
            wanted = " or ".join(map(str, ranks))
            self.refuse(f"input '{name}' is expected to have {wanted} dimensions, got {len(shape)}: {_text(shape)}")
        return shape

    def shape_of_rank(self, index: int, *ranks: int) -> Sizes | None:
        """Return the shape of an input if it is there and has one of some ranks."""
        shape = self.shape(index)
        return shape if shape is not None and len(shape) in ranks else None

    def at_least(self, index: int, name: str, rank: int) -> Sizes | None:
        """Require an input, if it is there, to have a rank or more; return its shape."""
        shape = self.shape(index)
        if shape is not None and len(shape) < rank:
            self.refuse(f"input '{name}' must have at least {rank} dimensions, got {len(shape)}: {_text(shape)}")
        return shape

    def sized(self, index: int, name: str, *sizes: KnownDim | None) -> Sizes | None:
        """Require an input, if it is there, to have a shape; ``None`` stands for any size. Return its shape."""
        shape = self.shape(index)
        if shape is None:
            return None
        wanted = "{" + ",".join("?" if size is None else str(size) for size in sizes) + "}"
        text = f"Input {name} must have shape {wanted}. Actual:{_text(shape)}"
        self.require(len(shape) == len(sizes), text)
        for found, size in zip(shape, sizes, strict=True):
            if size is not None:
                self.equal(found, size, text)
        return shape

    def same_shape(self, left: int, right: int, names: str) -> None:
        """Require two inputs, if both are there, to have the same shape."""
        one, other = self.shape(left), self.shape(right)
        if one is None or other is None:
            return
        text = f"inputs {names} are expected to have the same shape, got {_text(one)} and {_text(other)}"
        self.require(len(one) == len(other), text)
        for a, b in zip(one, other, strict=True):
            self.equal(a, b, text)

    def scalar(self, index: int, name: str) -> None:
        """Require an input, if it is there, to be a scalar or a vector of one element."""
        shape = self.rank(index, name, 0, 1)
        for size in shape or ():
            self.equal(size, 1, f"input '{name}' must be a scalar or a vector of one element, got shape {_text(shape)}")

    def single(self, index: int, name: str) -> None:
        """Require an input, if it is there, to hold one number, of whatever rank."""
        shape = self.shape(index)
        for size in shape or ():
            self.equal(size, 1, f"input '{name}' must hold one number, got shape {_text(shape)}")


Precondition = Callable[[Conditions], None]


class ArrayConditions(Conditions):
    """The conditions of a run: a breach is an ``InvalidArgument``."""

    __slots__ = ("_inputs",)

    def __init__(self, node: Node, opset: int, inputs: Sequence[object]) -> None:
        super().__init__(node, opset, [each.shape if isinstance(each, np.ndarray) else None for each in inputs])
        self._inputs = inputs

    def holds_bytes(self, index: int) -> bool:
        """Return whether an input is an array of uint8."""
        found = self._inputs[index] if index < len(self._inputs) else None
        return isinstance(found, np.ndarray) and found.dtype == np.uint8

    def refuse(self, text: str) -> NoReturn:
        """Raise.

        Raises:
            InvalidArgument: always.
        """
        raise InvalidArgument(f"{self.node.op_type}: {text}")


def _text(shape: Sizes | None) -> str:
    return "{" + ",".join(map(str, shape or ())) + "}"
