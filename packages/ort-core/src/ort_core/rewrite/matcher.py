"""The matcher: finds a pattern at a node by backtracking, and says what each name stands for.

Each step is a generator that yields once per way to succeed with the bindings made so far and takes its own binding
back when it is resumed, so alternatives (operand orders, ``one_of``) need no copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.constants import Constant
from ort_core.ir.graph import Graph
from ort_core.ir.model import Model
from ort_core.ir.nodes import Node
from ort_core.ir.values import Value
from ort_core.rewrite.pattern import (
    ConstantPattern,
    OneOf,
    OpPattern,
    Optional,
    OutputPattern,
    Pattern,
    ValuePattern,
    Variable,
    roots_of,
)
from ort_core.rewrite.screens import screen_of


def opset_of(model: Model, node: Node) -> int:
    """Return the opset by which a node is to be understood (1 for a domain without an import)."""
    return node.opset if node.opset is not None else model.opset_imports.get(node.domain, 1)


def constant_of(value: Value | None) -> Constant | None:
    """Return the constant of a value that no caller can override, or ``None``."""
    if value is None or value.constant is None or value.is_graph_input:
        return None
    return value.constant


@frozen
class Match:
    """A place where a pattern fits: the values and nodes by name, the matched nodes, and the outputs."""

    model: Model
    root: Node
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]
    _values: dict[str, Value]
    _named_nodes: dict[str, Node]

    @property
    def graph(self) -> Graph:
        """The graph that the matched nodes stand in."""
        assert self.root.graph is not None
        return self.root.graph

    @property
    def output(self) -> Value:
        """The (first) output, which a rewrite replaces."""
        return self.outputs[0]

    def __getitem__(self, name: str) -> Value:
        """Return the value bound to a name; for a named operator, its matched output."""
        return self._values[name]

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str) -> Value | None:
        """Return the value bound to a name, or ``None`` when that optional part was absent."""
        return self._values.get(name)

    def node(self, name: str) -> Node:
        """Return the node that the operator pattern of that name matched."""
        return self._named_nodes[name]

    def has_node(self, name: str) -> bool:
        """Return whether an operator pattern of that name took part in the match."""
        return name in self._named_nodes

    def constant(self, name: str) -> Constant:
        """Return the constant bound to a name."""
        found = constant_of(self._values[name])
        assert found is not None, f"{name!r} is bound to a value without a constant"
        return found

    def array(self, name: str) -> np.ndarray:
        """Return the read-only array of the constant bound to a name."""
        return self.constant(name).array()

    def opset(self, node: Node | None = None) -> int:
        """Return the opset of a node (by default of the root)."""
        return opset_of(self.model, node or self.root)


def find_match(model: Model, pattern: Pattern, node: Node) -> Match | None:
    """Return the first match whose leading output is made by ``node``, or ``None``."""
    roots = roots_of(pattern)
    screen = screen_of(roots[0])
    return Search(model, node).run(roots) if screen is None or screen(node) else None


def _leading_outputs(root: ValuePattern, node: Node) -> Sequence[int]:
    if isinstance(root, OutputPattern):
        return (root.index,) if root.index < len(node.outputs) else ()
    return (0,) if node.outputs else ()


class Search:
    """The bindings of one search; every method is a generator of ways to succeed."""

    def __init__(self, model: Model, root: Node) -> None:
        self._model = model
        self._root = root
        self._values: dict[str, Value] = {}
        self.nodes: dict[OpPattern, Node] = {}
        self._roots: dict[ValuePattern, Value] = {}

    def run(self, roots: tuple[ValuePattern, ...]) -> Match | None:
        """Return the first match whose leading output the node makes, or ``None``."""
        for index in _leading_outputs(roots[0], self._root):
            output = self._root.outputs[index]
            if output is None:
                continue
            for _ in self.value(roots[0], output):
                for _ in self.further_roots(roots[1:]):
                    match = self.result(roots, output)
                    if match is not None:
                        return match
        return None

    def value(self, pattern: ValuePattern, value: Value | None) -> Iterator[None]:
        """Match one value."""
        return _STEPS[type(pattern)](self, pattern, value)

    def further_roots(self, roots: tuple[ValuePattern, ...]) -> Iterator[None]:
        """Match the outputs beside the leading one; each must read something that is bound already."""
        if not roots:
            yield
            return
        for candidate in self._candidates(roots[0]):
            self._roots[roots[0]] = candidate
            for _ in self.value(roots[0], candidate):
                yield from self.further_roots(roots[1:])

    def result(self, roots: tuple[ValuePattern, ...], output: Value) -> Match | None:
        """Return the match if no interior value is read from outside."""
        outputs = (output, *(self._roots[root] for root in roots[1:]))
        members = set(self.nodes.values())
        for pattern, node in self.nodes.items():
            if not pattern.is_shared and not _is_private(node, members, outputs):
                return None
        named = {p.name: node for p, node in self.nodes.items() if p.name is not None}
        ordered = tuple(dict.fromkeys(self.nodes.values()))
        return Match(self._model, self._root, ordered, outputs, dict(self._values), named)

    def _candidates(self, root: ValuePattern) -> Iterator[Value]:
        producer, index = (root.producer, root.index) if isinstance(root, OutputPattern) else (root, 0)
        assert isinstance(producer, OpPattern), "an output of a pattern must be an operator's"
        if producer in self.nodes:
            nodes: tuple[Node, ...] = (self.nodes[producer],)
        else:
            bound = [v for v in map(self._bound, producer.inputs) if v is not None]
            nodes = bound[0].consumers() if bound else ()
        for node in nodes:
            if node.graph is self._root.graph and index < len(node.outputs):
                output = node.outputs[index]
                if output is not None:
                    yield output

    def _bound(self, pattern: ValuePattern) -> Value | None:
        if isinstance(pattern, OpPattern):
            node = self.nodes.get(pattern)
            return None if node is None else node.outputs[0]
        if isinstance(pattern, OutputPattern):
            node = self.nodes.get(pattern.producer)
            return None if node is None else node.outputs[pattern.index]
        return None if pattern.name is None else self._values.get(pattern.name)

    def _bind(self, name: str | None, value: Value) -> Iterator[None]:
        if name is None:
            yield
        elif name in self._values:
            if self._values[name] is value:
                yield
        else:
            self._values[name] = value
            yield
            del self._values[name]

    def _variable(self, pattern: Variable, value: Value | None) -> Iterator[None]:
        if value is not None and (pattern.where is None or pattern.where(value)):
            yield from self._bind(pattern.name, value)

    def _constant(self, pattern: ConstantPattern, value: Value | None) -> Iterator[None]:
        found = constant_of(value)
        if value is not None and found is not None and (pattern.where is None or pattern.where(found)):
            yield from self._bind(pattern.name, value)

    def _optional(self, pattern: Optional, value: Value | None) -> Iterator[None]:
        if value is None:
            yield
        else:
            yield from self.value(pattern.inner, value)

    def _one_of(self, pattern: OneOf, value: Value | None) -> Iterator[None]:
        op_type = None if value is None or value.producer is None else value.producer.op_type
        for alternative in pattern.alternatives:
            if type(alternative) is OpPattern and op_type not in alternative.op_types:
                continue  # the most common case, told without a search
            for _ in self.value(alternative, value):
                if value is None:
                    yield
                else:
                    yield from self._bind(pattern.name, value)

    def _op(self, pattern: OpPattern, value: Value | None) -> Iterator[None]:
        if value is not None and value.producer is not None and value.output_index == 0:
            yield from self._node(pattern, value.producer, value)

    def _output(self, pattern: OutputPattern, value: Value | None) -> Iterator[None]:
        if value is None or value.producer is None or value.output_index != pattern.index:
            return
        for _ in self._node(pattern.producer, value.producer, value):
            yield from self._bind(pattern.name, value)

    def _node(self, pattern: OpPattern, node: Node, value: Value) -> Iterator[None]:
        known = self.nodes.get(pattern)
        if known is not None:
            if known is node:
                yield
            return
        if not self._fits(pattern, node) or node in self.nodes.values():
            return
        self.nodes[pattern] = node
        for _ in self._bind(pattern.name, value):
            for order in _input_orders(pattern, node):
                yield from self._inputs(pattern.inputs, order)
        del self.nodes[pattern]

    def _fits(self, pattern: OpPattern, node: Node) -> bool:
        if node.op_type not in pattern.op_types or node.domain != pattern.domain:
            return False
        if node.graph is not self._root.graph:
            return False
        if pattern.since > 1 or pattern.until is not None:
            opset = opset_of(self._model, node)
            if opset < pattern.since or (pattern.until is not None and opset > pattern.until):
                return False
        if any(not _holds(required, node.attribute(name)) for name, required in pattern.attributes.items()):
            return False
        return pattern.where is None or pattern.where(node)

    def _inputs(self, patterns: tuple[ValuePattern, ...], values: tuple[Value | None, ...]) -> Iterator[None]:
        if not patterns:
            yield
            return
        first = values[0] if values else None
        for _ in self.value(patterns[0], first):
            yield from self._inputs(patterns[1:], values[1:])


_Step = Callable[["Search", ValuePattern, "Value | None"], Iterator[None]]
_STEPS: dict[type[ValuePattern], _Step] = {
    Variable: Search._variable,  # type: ignore[dict-item]  # each step takes exactly the class of its key
    ConstantPattern: Search._constant,  # type: ignore[dict-item]  # as above
    Optional: Search._optional,  # type: ignore[dict-item]  # as above
    OneOf: Search._one_of,  # type: ignore[dict-item]  # as above
    OpPattern: Search._op,  # type: ignore[dict-item]  # as above
    OutputPattern: Search._output,  # type: ignore[dict-item]  # as above
}


def _input_orders(pattern: OpPattern, node: Node) -> Iterator[tuple[Value | None, ...]]:
    inputs = node.inputs
    if not pattern.has_more_inputs and any(v is not None for v in inputs[len(pattern.inputs) :]):
        return
    yield inputs
    if pattern.is_commutative and len(inputs) == 2:
        yield (inputs[1], inputs[0])


def _holds(required: object, found: object) -> bool:
    if callable(required):
        return bool(required(found))
    if isinstance(required, float) and isinstance(found, (int, float)):
        return bool(np.float32(required) == np.float32(found))
    if isinstance(required, list):
        return found == tuple(required)
    return found == required


def _is_private(node: Node, members: set[Node], outputs: tuple[Value, ...]) -> bool:
    for value in node.present_outputs():
        if any(value is output for output in outputs):
            continue
        if node is outputs[0].producer and not value.use_count and not value.is_graph_output:
            continue
        if value.is_graph_output or any(reader not in members for reader, _ in value.uses):
            return False
    return True
