"""Programs shared by content: a model has thousands of equal If branches and Loop bodies, lowered once.

Two bodies are equal when they differ in names only: the same operators, attributes and types, wired alike, over equal
constants. So are two groups of one graph between nodes that are not native, when what is around them is alike, too.
What is lowered and compiled of one is the other's as well; the names that a program tells are its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ort_core.cpu.guarded.choose import new_program
from ort_core.cpu.inspection.kernel_recording import note_kernels
from ort_core.cpu.lowering.expression_core import SharedExpressions
from ort_core.cpu.lowering.rounded_operands import is_ranked_outside
from ort_core.cpu.lowering.steps import KernelText
from ort_core.cpu.program.program import NativeProgram
from ort_core.plugin import frozen
from ort_core.plugin.ir import Attribute, AttributeKind, Border, Constant, Graph, Node, SymbolicDim, Value

_PLAIN_KINDS = frozenset(
    {
        AttributeKind.FLOAT, AttributeKind.INT, AttributeKind.STRING,
        AttributeKind.FLOATS, AttributeKind.INTS, AttributeKind.STRINGS,
    }
)  # fmt: skip
MAX_SMALL = 16  # programs of few nodes per load, for bodies of loops: each takes some 50 ms to compile
MAX_GROUP = 64  # nodes of a group that is compared with others: where there are many groups, they are small
_TOLD_BY_READERS = frozenset({"Cast", "DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear"})  # look for them
_LOOKING_FAR = frozenset({"GRU", "LSTM", "RNN"})  # at what makes their weights, however far away it is made
MAX_CONTENT_NBYTES = 1024  # of a constant that is compared by its contents; a larger one by being the same object


class SharedPrograms:
    """What the partitions of one load share: expressions, and the programs of bodies by their content."""

    def __init__(self) -> None:
        self.expressions = SharedExpressions()
        self._known: dict[Hashable, _SharedProgram] = {}
        self._small = 0

    def may_be_small(self, content: GraphContent | None, group: Sequence[Node]) -> bool:
        """Return whether a body's group that pays only in a loop may be compiled: there may be thousands of bodies."""
        key = None if content is None else content.key_of(group)
        if key is not None and key in self._known:
            return True
        self._small += 1
        return self._small <= MAX_SMALL

    def find(self, content: Content, group: Sequence[Node]) -> NativeProgram | None:
        """Return the program of an equal group, with this one's names."""
        key = content.key_of(group)
        found = None if key is None else self._known.get(key)
        return None if found is None else found.for_graph(content)

    def keep(
        self, content: Content, group: Sequence[Node], program: NativeProgram, kernels: Mapping[str, KernelText]
    ) -> None:
        """Keep the program that a group was compiled to, for groups that equal it."""
        key = content.key_of(group)
        if key is not None:
            self._known[key] = _SharedProgram(content, program, kernels)


@frozen
class _SharedProgram:
    content: Content
    program: NativeProgram
    kernels: Mapping[str, KernelText]

    def for_graph(self, content: Content) -> NativeProgram:
        """Return the program with the values and nodes of an equal graph in the places of its own.

        An input that a group does not read but takes a size from is one of the whole graph: it stands for itself.
        """
        note_kernels(self.kernels)
        program = self.program
        values, nodes = content.values, content.nodes
        twin_of = {value: values[number] for value, number in self.content.number_of.items()}
        inputs = tuple([twin_of.get(value, value) for value in program.inputs])
        outputs = tuple([twin_of[value] for value in program.outputs])
        record = replace(
            program.record,
            inputs=tuple([value.name for value in inputs]),
            outputs=tuple([value.name for value in outputs]),
        )
        places = self.content.place_of
        twins: dict[Node | str, Node] = {node: nodes[place] for node, place in places.items()}
        steps = tuple(
            [
                replace(
                    step,
                    node=None if step.node is None else twins[step.node],
                    operators=tuple([twins.get(each, each) for each in step.operators]),
                )
                for step in program.steps
            ]
        )
        requirers = tuple([tuple([twins[node] for node in each if node in twins]) for each in program.requirers])
        return new_program(record, program.pool, program.modules, program.kernels, inputs, outputs, steps, requirers)


class Content:
    """Nodes without their names: they and their values by number, and a key that equal ones have in common.

    Args:
        nodes: in order.
        contents: elements of integer tensors, as far as they are known without a run.
    """

    def __init__(self, nodes: Sequence[Node], contents: Mapping[Value, np.ndarray]) -> None:
        self.nodes = nodes
        self.values: list[Value] = []
        self.number_of: dict[Value, int] = {}
        self.place_of = {node: place for place, node in enumerate(nodes)}
        self._contents = contents
        self._key: Hashable | None = None

    def key_of(self, group: Sequence[Node]) -> Hashable | None:
        """Return what equal groups of equal nodes have in common; ``None`` where that is not told."""
        return None if self._key is None else (self._key, tuple([self.place_of[node] for node in group]))

    def _node(self, node: Node) -> Hashable:
        if node.body is not None or node.has_graphs:
            raise _NotCompared
        reads = tuple([None if value is None else self.number_of[value] for value in node.inputs])
        attributes = tuple([_attribute(each) for each in node.attributes.values()])
        writes = tuple([None if value is None else self._value(value) for value in node.outputs])
        return node.op_type, node.domain, node.overload, node.opset, reads, attributes, writes

    def _value(self, value: Value) -> Hashable:
        self.number_of[value] = len(self.values)
        self.values.append(value)
        constant = None if value.constant is None else _constant(value.constant)
        known = self._contents.get(value)
        elements = None if known is None else (known.shape, tuple([_element(each) for each in known.reshape(-1)]))
        return value.type, constant, elements


class GraphContent(Content):
    """A whole graph without its names.

    Args:
        graph: a partition's own graph.
        opsets: the versions by which its operators are understood.
        contents: as of ``Content``.
    """

    def __init__(self, graph: Graph, opsets: Mapping[str, int], contents: Mapping[Value, np.ndarray]) -> None:
        super().__init__(graph.nodes, contents)
        try:
            self._key = (tuple(sorted(opsets.items())), self._graph(graph))
        except _NotCompared:
            return

    def _graph(self, graph: Graph) -> Hashable:
        inputs = tuple([self._value(value) for value in graph.inputs])
        fixed = tuple([self._value(value) for value in graph.initializers if value not in self.number_of])
        nodes = tuple([self._node(node) for node in self.nodes])
        readers = tuple([tuple([(self.place_of[node], index) for node, index in value.uses]) for value in self.values])
        return inputs, fixed, nodes, readers, tuple([self.number_of[value] for value in graph.outputs])


class GroupContent(Content):
    """A small group of a graph's nodes without their names, and what a rule may see of the nodes around it.

    Args:
        group: the nodes.
        border: what crosses the group's border.
        contents: as of ``Content``.
    """

    def __init__(self, group: Sequence[Node], border: Border, contents: Mapping[Value, np.ndarray]) -> None:
        super().__init__(group, contents)
        try:
            self._key = self._group(border)
        except _NotCompared:
            return

    def _group(self, border: Border) -> Hashable:
        if len(self.nodes) > MAX_GROUP or any(node.op_type in _LOOKING_FAR for node in self.nodes):
            raise _NotCompared
        inputs = tuple([(self._value(value), _origin(value)) for value in border.inputs])
        fixed = tuple([self._value(value) for value in border.constants])
        given = len(self.values)
        nodes = tuple([self._node(node) for node in self.nodes])
        reads = Counter([value for node in self.nodes for value in node.present_inputs()])
        alone = tuple([reads[value] == value.use_count for value in self.values[:given]])
        readers = tuple([tuple([self._reader(*use) for use in value.uses]) for value in self.values[given:]])
        returned = tuple([value.is_graph_output for value in self.values])
        casts = [node.output for node in self.nodes if node.op_type == "Cast"]
        ranked = tuple([is_ranked_outside(value, self.place_of.__contains__) for value in casts])
        return (
            "group",
            inputs,
            fixed,
            nodes,
            alone,
            readers,
            returned,
            ranked,
            tuple([self.number_of[each] for each in border.outputs]),
        )

    def _reader(self, node: Node, index: int) -> Hashable:
        place = self.place_of.get(node)
        return (node.op_type, node.domain, index) if place is None else (place, index)


def _origin(value: Value) -> Hashable:
    """Return what makes a value that a group is given; rules that look behind some operators need more than that."""
    maker = value.producer
    if maker is None:
        return value.is_graph_input
    if maker.domain or maker.op_type in _TOLD_BY_READERS:
        raise _NotCompared
    return maker.op_type


class _NotCompared(Exception):
    """A graph has something that is not compared."""


def _attribute(attribute: Attribute) -> Hashable:
    """Return what an attribute says; the text of numbers, which tells 0.0 from -0.0 and 1 from 1.0."""
    if attribute.kind in _PLAIN_KINDS and attribute.reference is None:
        return attribute.name, attribute.kind, repr(attribute.value)
    if attribute.kind is AttributeKind.TENSOR and isinstance(attribute.value, Constant):
        return attribute.name, attribute.kind, _constant(attribute.value)
    raise _NotCompared


def _element(element: object) -> Hashable:
    """Return a size as it is: a name and the arithmetic that it reads like have one text; of numbers their text."""
    return element if isinstance(element, SymbolicDim) else repr(element)


def _constant(constant: Constant) -> Hashable:
    large = constant.nbytes > MAX_CONTENT_NBYTES
    return constant.dtype, constant.shape, constant if large else constant.digest()
