"""The structure of a model: a digest of everything but the contents of its weights, and those weights in order.

Two models with equal digests have the same nodes, names, types and attributes, and their n-th constants have the same
element type and shape. Small constants (axes, shapes, scalars) decide what a graph means: their contents count, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from ort_core.ir.attributes import Attribute, AttributeKind, SparseConstant
from ort_core.ir.constants import Constant
from ort_core.ir.graph import Graph
from ort_core.ir.model import Model
from ort_core.ir.nodes import Node
from ort_core.ir.type_data import type_to_data
from ort_core.ir.types import ValueType
from ort_core.ir.values import Value

_PLAIN_KINDS = frozenset(
    {
        AttributeKind.FLOAT, AttributeKind.INT, AttributeKind.STRING,
        AttributeKind.FLOATS, AttributeKind.INTS, AttributeKind.STRINGS,
    }
)  # fmt: skip
MAX_CONTENT_NBYTES = 1024  # of a constant that counts by its contents; weights are far above, index lists far below

_FACTS = 512  # that are written as text at once, which takes half as long as one by one


class ModelStructure:
    """The digest of a model's structure and its constants, each object once, in the order of the model.

    Raises:
        OrtError: a small constant cannot be read.
    """

    def __init__(self, model: Model) -> None:
        self.constants: list[Constant] = []
        self._numbers: dict[int, int] = {}
        self._type_texts: dict[ValueType | None, str] = {}
        self._hasher = hashlib.sha256()
        self._facts: list[tuple[Any, ...]] = []  # that the hasher has not seen yet; Any: as in _add
        self._model(model)
        self._write()
        self.digest = self._hasher.digest()

    def number_of(self, constant: Constant) -> int | None:
        """Return the position of a constant in ``constants``, or ``None`` when it is none of them."""
        return self._numbers.get(id(constant))

    def _model(self, model: Model) -> None:
        self._add(model.ir_version, sorted(model.opset_imports.items()), len(model.functions))
        self._graph(model.graph)
        for function in model.functions.values():
            self._add(function.key, function.attribute_names, sorted(function.opset_imports.items()))
            self._attributes(function.attribute_defaults)
            self._graph(function.graph)

    def _graph(self, graph: Graph) -> None:
        self._add("graph", graph.name, [(value.name, self._type_text(value)) for value in graph.inputs])
        self._add([(v.name, self._constant(v.constant)) for v in graph.initializers if v.constant is not None])
        for node in graph.nodes:
            self._node(node)
        self._add("returns", [value.name for value in graph.outputs])

    def _node(self, node: Node) -> None:
        self._add(
            node.op_type, node.domain, node.name, node.overload, node.opset,
            [None if value is None else value.name for value in node.inputs],
            [None if value is None else (value.name, self._type_text(value)) for value in node.outputs],
        )  # fmt: skip
        if node.attributes:
            self._attributes(node.attributes)
        if node.body is not None:
            self._graph(node.body)

    def _attributes(self, attributes: dict[str, Attribute]) -> None:
        plain = [
            (each.name, int(each.kind), each.reference, each.value)
            for each in attributes.values()
            if each.kind in _PLAIN_KINDS
        ]
        self._add(plain, len(attributes))  # at once: forests have half a million numbers, and a dozen lists of them
        if len(plain) == len(attributes):
            return
        for attribute in attributes.values():
            if attribute.kind in _PLAIN_KINDS:
                continue
            value = attribute.value
            items = value if isinstance(value, tuple) else (value,)
            self._add(attribute.name, int(attribute.kind), attribute.reference, len(items))
            for item in items:
                self._item(item)

    def _item(self, item: object) -> None:
        if isinstance(item, Graph):
            self._graph(item)
        elif isinstance(item, Constant):
            self._add(self._constant(item))
        elif isinstance(item, SparseConstant):
            self._add(self._constant(item.values), self._constant(item.indices), item.shape)
        elif isinstance(item, ValueType):
            self._add(type_to_data(item))
        else:
            self._add(item)

    def _constant(self, constant: Constant) -> tuple[object, ...]:
        number = self._numbers.setdefault(id(constant), len(self.constants))
        if number < len(self.constants):
            return (number,)
        self.constants.append(constant)
        content = constant.digest() if constant.nbytes <= MAX_CONTENT_NBYTES else None
        return (number, int(constant.dtype), constant.shape, content)

    def _type_text(self, value: Value) -> str:
        found = self._type_texts.get(value.type)
        if found is None:
            found = self._type_texts[value.type] = repr(type_to_data(value.type))
        return found

    def _add(self, *facts: Any) -> None:  # Any: whatever repr() shows in full: numbers, text, tuples and lists of them
        self._facts.append(facts)
        if len(self._facts) >= _FACTS:
            self._write()

    def _write(self) -> None:
        self._hasher.update(repr(self._facts).encode())
        self._facts.clear()


def all_graphs(model: Model) -> Iterator[Graph]:
    """Yield every graph of a model: the main one, functions', nested ones, and bodies of fused nodes."""
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        yield from graphs_and_bodies(graph)


def graphs_and_bodies(graph: Graph) -> Iterator[Graph]:
    """Yield a graph, then for each node the graphs nested in it and the body that it stands for, and theirs."""
    yield graph
    for node in graph:
        if node.has_graphs or node.body is not None:
            for inner in node.subgraphs() if node.body is None else (*node.subgraphs(), node.body):
                yield from graphs_and_bodies(inner)


def locations_of(model: Model) -> set[str]:
    """Return where a model's constants say that they lie outside of its file; none is read."""
    found: set[str | None] = set()
    for graph in all_graphs(model):
        found.update(value.constant.location for value in graph.initializers if value.constant is not None)
        for node in graph:
            if node.attributes:
                found.update(_locations(node.attributes))
    for function in model.functions.values():
        found.update(_locations(function.attribute_defaults))
    return {each for each in found if each is not None}


def _locations(attributes: dict[str, Attribute]) -> Iterator[str | None]:
    for attribute in attributes.values():
        if attribute.kind in _PLAIN_KINDS:
            continue
        for item in attribute.value if isinstance(attribute.value, tuple) else (attribute.value,):
            if isinstance(item, SparseConstant):
                yield from (item.values.location, item.indices.location)
            elif isinstance(item, Constant):
                yield item.location


def replace_constants(model: Model, replacements: dict[int, Constant]) -> None:
    """Replace constants, wherever an editable model has them, by others of the same contents; keyed by ``id``."""
    for graph in all_graphs(model):
        for value in graph.initializers:
            value.constant = replacements.get(id(value.constant), value.constant)
        for node in graph:
            for attribute in tuple(node.attributes.values()):
                other = replacements.get(id(attribute.value))
                if other is not None:
                    node.set_attributes([Attribute(attribute.name, attribute.kind, other)])
