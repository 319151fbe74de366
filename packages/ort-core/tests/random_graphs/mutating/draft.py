"""A model that is being changed: its graph, the numbers of its values, and what a mutation needs to write."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from random_graphs.element_types import of_array
from random_graphs.truth import array_of
from random_graphs.writer import reads


class NotHere(Exception):
    """A mutation finds no place in this graph; another is drawn."""


@dataclass
class Draft:
    """A graph that mutations change in place.

    ``values`` are those of the graph before all changes, under its feeds; ``opset`` is that of ONNX's own domain.
    """

    graph: GraphProto
    opset: int
    feeds: dict[str, Any]
    values: Mapping[str, Any]
    random: random.Random
    count: int = field(default=0)

    def chance(self, share: float) -> bool:
        """Return whether something that happens with this share does."""
        return self.random.random() < share

    def some(self, things: Sequence[Any]) -> Any:
        """Return one of some things.

        Raises:
            NotHere: there are none.
        """
        if not things:
            raise NotHere
        return self.random.choice(things)

    def name(self) -> str:
        """Return a name that no value has."""
        self.count += 1
        return f"mutated{self.count}"

    def constant(self, array: Any) -> str:
        """Add an initializer and return its name."""
        name = self.name()
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def tensors(self) -> dict[str, TensorProto]:
        """Return the initializers that are no inputs as well."""
        fed = {each.name for each in self.graph.input}
        return {each.name: each for each in self.graph.initializer if each.name not in fed}

    def array(self, name: str) -> np.ndarray | None:
        """Return a tensor of numbers by its name, ``None`` for what is none or not known."""
        found = self.values.get(name)
        if found is None:
            tensor = next((each for each in self.graph.initializer if each.name == name), None)
            found = None if tensor is None else array_of(tensor)
        return found if isinstance(found, np.ndarray) and found.dtype.kind != "O" else None

    def is_float(self, name: str) -> bool:
        """Return whether a value is a tensor of floats."""
        array = self.array(name)
        dtype = None if array is None else of_array(array)
        return dtype is not None and dtype.is_float

    def made(self) -> list[str]:
        """Return the names of tensors that nodes of the graph itself make."""
        return [name for node in self.graph.node for name in node.output if name and self.array(name) is not None]

    def inner(self) -> list[str]:
        """Return the names of tensors that nodes make, and others read."""
        read = {name for node in self.graph.node for name in reads(node)}
        return [name for name in self.made() if name in read]

    def outputs(self) -> list[str]:
        """Return the names of the graph's outputs."""
        return [each.name for each in self.graph.output]

    def place_behind(self, name: str) -> int:
        """Return where a node that reads a value may stand."""
        return next((i + 1 for i, node in enumerate(self.graph.node) if name in node.output), 0)

    def insert(self, place: int, node: NodeProto) -> None:
        """Insert a node."""
        nodes = list(self.graph.node)
        nodes.insert(place, node)
        copies = [_copied(each) for each in nodes]
        del self.graph.node[:]
        self.graph.node.extend(copies)

    def add_output(self, name: str, like: np.ndarray) -> None:
        """Make a value an output; its shape is left open."""
        number = helper.np_dtype_to_tensor_dtype(like.dtype)
        self.graph.output.append(helper.make_tensor_value_info(name, number, None))


def _copied(node: NodeProto) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy
