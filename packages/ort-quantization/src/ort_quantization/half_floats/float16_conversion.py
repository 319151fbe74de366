"""Models of float32 turned into models of half floats: types, tensors, attributes, and casts where both kinds meet.

Operators stay float32 where the caller blocks them, or where ONNX's schema has them in no half type; casts stand around
them, in the graph that they stand in. A graph inside an operator that stays float32 does so as a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from ort_core.model_graphs import inner_graphs
from ort_quantization.half_floats.float16_sequences import nodes_of_float_sequences
from ort_quantization.half_floats.float16_tensors import limits, make_half
from ort_quantization.half_floats.float16_types import needs_of, output_type
from ort_quantization.half_floats.float16_values import (
    Scope,
    ValueState,
    element_type,
    is_float_type,
    set_element_type,
)
from ort_quantization.models.model_files import is_external, read_tensor
from ort_quantization.models.tensor_folder import set_aside

_NAMES: dict[int, str] = {TensorProto.FLOAT: "fp32", TensorProto.FLOAT16: "fp16", TensorProto.BFLOAT16: "bfloat16"}
_CAST_OPSET = 9  # for models without an operator of ONNX: casts of float16, which every engine reads
_TYPE_ATTRIBUTES = {  # attributes that name the type of the result, and whether float32 is meant where they are absent
    "Cast": ("to", False), "EyeLike": ("dtype", False), "Multinomial": ("dtype", False),
    "RandomNormal": ("dtype", True), "RandomNormalLike": ("dtype", False), "RandomUniform": ("dtype", True),
    "RandomUniformLike": ("dtype", False), "SequenceEmpty": ("dtype", True), "Bernoulli": ("dtype", False),
    "HannWindow": ("output_datatype", True), "HammingWindow": ("output_datatype", True),
    "BlackmanWindow": ("output_datatype", True), "MelWeightMatrix": ("output_datatype", True),
    "DequantizeLinear": ("output_dtype", False), "DequantizeWithOrder": ("to", False), "GemmFloat8": ("dtype", True),
    "GatherPacked": ("output_dtype", False),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class HalfRules:
    """What is converted, and how.

    Attributes:
        half: FLOAT16 or BFLOAT16.
        blocked_type: in which blocked operators compute: FLOAT, or BFLOAT16.
        least: magnitude that smaller ones are raised to.
        most: magnitude that larger finite ones are cut to.
        kept: names of inputs and outputs that stay float32.
        operators: that are blocked.
        nodes: names of nodes that are.
        has_forced_tensors: whether initializers that only blocked operators read are converted, too.
        forced_inputs: places of inputs by operator that are half floats although they are float32 by default.
    """

    half: int
    blocked_type: int
    least: float
    most: float
    kept: Collection[str]
    operators: Collection[str]
    nodes: Collection[str]
    has_forced_tensors: bool
    forced_inputs: Mapping[str, Collection[int]] = field(default_factory=dict)


_FIRST_RESULTS = {"If": 0, "Loop": 1, "Scan": 0}
"""Places of the first output of a body that its node gives on: a loop's body begins with its condition."""
_OF_FLOAT_BODIES = frozenset({"FlexAttention"})
"""Operators that hand their bodies float32 whatever they read: scores, unless ``softmax_precision`` says otherwise."""


class HalfConversion:
    """Converts one model in place.

    Args:
        model: with types inferred, as far as they can be.
        folder: where its external data lies.
        rules: what is converted.
    """

    def __init__(self, model: ModelProto, folder: str, rules: HalfRules) -> None:
        self._model, self._folder, self._rules = model, folder, rules
        self._opsets = {each.domain if each.domain != "ai.onnx" else "": each.version for each in model.opset_import}
        self._all: list[ValueState] = []
        self._of_sequences: Collection[tuple[str, ...]] = ()

    def convert(self) -> None:
        """Convert the model."""
        if "" not in self._opsets:  # casts are ONNX's own
            self._model.opset_import.append(helper.make_opsetid("", _CAST_OPSET))
        graph, kept = self._model.graph, self._rules.kept
        self._of_sequences, floats = nodes_of_float_sequences(graph, self._is_blocked, kept)
        ends = {each.name for each in (*graph.input, *graph.output)}
        self._rules = replace(self._rules, kept={*kept, *(floats & ends)})
        main = self._scope(self._model.graph, None, False)
        self._note_kept(main)
        self._note_readers(main)
        for value in self._all:
            value.settle(self._rules.has_forced_tensors)
        self._rewrite(main)

    # ------------------------------------------------------------------ what there is
    def _scope(self, graph: GraphProto, outer: Scope | None, is_float: bool) -> Scope:
        """Find the float values of a graph and of those inside."""
        scope = Scope(graph, outer, is_float)
        for value in [*graph.value_info, *graph.output, *graph.input]:
            scope.types[value.name] = element_type(value)
        made = {name for node in graph.node for name in node.output}
        given = made | {each.name for each in graph.input} | {each.name for each in graph.initializer}
        for name in set(scope.types) - given:  # outputs of a graph that are values of the one around it
            del scope.types[name]
        for tensor in graph.initializer:
            scope.types[tensor.name] = tensor.data_type
            self._define(scope, tensor.name, is_float, is_tensor=True)
        for value in graph.input:
            if value.name not in scope.values:
                self._define(scope, value.name, is_float)
        for node in scope.nodes:
            self._define_outputs(scope, node)
        return scope

    def _define_outputs(self, scope: Scope, node: NodeProto) -> None:
        opset = self._opsets.get(node.domain if node.domain != "ai.onnx" else "", 1)
        is_blocked = scope.is_float or self._is_blocked(node)
        has_floats = is_blocked or node.op_type in _OF_FLOAT_BODIES
        scope.inner[id(node)] = [self._scope(graph, scope, has_floats) for graph in inner_graphs(node)]
        fixed = needs_of(node.op_type, node.domain, opset, self._rules.half).float_outputs
        for place, name in enumerate(node.output):
            if not name:
                continue
            if not scope.types.get(name):
                scope.types[name] = self._open_type(scope, node, place, opset)
            self._define(scope, name, is_blocked or place in fixed)

    @staticmethod
    def _open_type(scope: Scope, node: NodeProto, place: int, opset: int) -> int:
        """Return the element type of an output that inference left open; control flow gives what its bodies give."""
        bodies = scope.inner[id(node)]
        if bodies and node.op_type in _FIRST_RESULTS and node.domain in ("", "ai.onnx"):
            results = bodies[0].graph.output[_FIRST_RESULTS[node.op_type] :]
            return bodies[0].type_of(results[place].name) if place < len(results) else 0
        inputs = {at: scope.type_of(each) for at, each in enumerate(node.input) if each}
        return output_type(node, place, opset, inputs)

    def _define(self, scope: Scope, name: str, is_made_float: bool, is_tensor: bool = False) -> None:
        if is_float_type(scope.types.get(name, 0)):
            scope.values[name] = ValueState(name, is_made_float, is_tensor, is_fixed=scope.is_float)
            self._all.append(scope.values[name])

    def _is_blocked(self, node: NodeProto) -> bool:
        if node.op_type in self._rules.operators or node.name in self._rules.nodes:
            return True
        if tuple(node.output) in self._of_sequences:
            return True
        opset = self._opsets.get(node.domain if node.domain != "ai.onnx" else "", 1)
        return needs_of(node.op_type, node.domain, opset, self._rules.half).is_float

    def _reads_float(self, scope: Scope, node: NodeProto, place: int) -> bool:
        """Return whether a node reads one of its inputs as float32."""
        if scope.is_float or self._is_blocked(node):
            return True
        if place in self._rules.forced_inputs.get(node.op_type, ()):
            return False
        opset = self._opsets.get(node.domain if node.domain != "ai.onnx" else "", 1)
        return place in needs_of(node.op_type, node.domain, opset, self._rules.half).float_inputs

    def _note_kept(self, main: Scope) -> None:
        inputs = {each.name for each in main.graph.input}
        for name in self._rules.kept:
            value = main.values.get(name)
            if value is not None:
                is_made_so = value.is_made_float and self._rules.blocked_type == TensorProto.FLOAT
                value.is_fixed = name in inputs or value.is_tensor or is_made_so

    def _note_readers(self, scope: Scope) -> None:
        for node in scope.nodes:
            for place, name in enumerate(node.input):
                value = scope.find(name)
                if value is not None and self._reads_float(scope, node, place):
                    value.wants_float = True
                elif value is not None:
                    value.wants_half = True
            for inner in scope.inner[id(node)]:
                self._note_readers(inner)
        for output in scope.graph.output:
            value = scope.find(output.name)
            if value is not None and scope.is_float:
                value.wants_float = True
            elif value is not None and not (scope.outer is None and output.name in self._rules.kept):
                value.wants_half = True

    # ------------------------------------------------------------------ what becomes of it
    def _rewrite(self, scope: Scope) -> None:
        graph = scope.graph
        casts = _Casts(self._rules, {each.name: place for place, each in enumerate(graph.input)})
        self._name_outputs(scope)
        nodes: list[NodeProto] = []
        for name in dict.fromkeys([*(each.name for each in graph.input), *(each.name for each in graph.initializer)]):
            if name in scope.values:
                casts.follow(scope.values[name], nodes)
        for node in scope.nodes:
            self._rewrite_node(scope, node, casts, nodes)
        for place, name in self._kept_places(scope):
            if name in scope.values and scope.values[name].inside != name:
                nodes.append(_end_cast(scope.values[name].inside, name, place))
        for output in graph.output:  # of an inner graph, that come from around it
            value = scope.find(output.name)
            if value is not None and output.name not in scope.values:
                output.name = value.read(scope.is_float)
        copies = [_copied(node) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)
        self._set_types(scope, casts)

    def _rewrite_node(self, scope: Scope, node: NodeProto, casts: _Casts, nodes: list[NodeProto]) -> None:
        """Let a node read and write its floats in the types that it takes, with casts behind it."""
        if not (scope.is_float or self._is_blocked(node)):
            self._set_attributes(node)
        for inner in scope.inner[id(node)]:
            self._rewrite(inner)
        for place, name in enumerate(node.input):
            value = scope.find(name)
            if value is not None:
                node.input[place] = value.read(self._reads_float(scope, node, place))
        nodes.append(node)
        for place, name in enumerate(node.output):
            if name in scope.values:
                node.output[place] = casts.write(scope.values[name], nodes)
                casts.follow(scope.values[name], nodes)

    def _kept_places(self, scope: Scope) -> list[tuple[int, str]]:
        if scope.outer is not None:
            return []
        return [(at, each.name) for at, each in enumerate(scope.graph.output) if each.name in self._rules.kept]

    def _name_outputs(self, scope: Scope) -> None:
        """Give kept outputs that are made as half floats another name inside the graph."""
        for place, name in self._kept_places(scope):
            value = scope.values.get(name)
            if value is not None and not value.is_fixed:
                value.inside = f"graph_output_cast_{place}"

    def _set_attributes(self, node: NodeProto) -> None:
        """Turn float32 in a node's attributes into half floats."""
        half, (least, most) = self._rules.half, limits(self._rules.half, self._rules.least, self._rules.most)
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                make_half(attribute.t, least, most, half)
            for tensor in attribute.tensors:
                make_half(tensor, least, most, half)
        if node.domain not in ("", "ai.onnx", "com.microsoft"):
            return
        if node.op_type == "Constant":
            _tensor_constant(node)
            for attribute in node.attribute:
                make_half(attribute.t, least, most, half)
        elif node.op_type == "ConstantOfShape" and not node.attribute:
            node.attribute.append(helper.make_attribute("value", helper.make_tensor("value", half, [1], [0])))
        name, is_default = _TYPE_ATTRIBUTES.get(node.op_type, ("", False))
        found = [each for each in node.attribute if each.name == name]
        for attribute in found:
            attribute.i = half if attribute.i == TensorProto.FLOAT else attribute.i
        if is_default and not found:
            node.attribute.append(helper.make_attribute(name, half))

    def _set_types(self, scope: Scope, casts: _Casts) -> None:
        """Give tensors and stated types of a graph what its values are kept in."""
        graph, half = scope.graph, self._rules.half
        least, most = limits(half, self._rules.least, self._rules.most)
        for tensor in graph.initializer:
            value = scope.values.get(tensor.name)
            if value is not None and not value.is_float:
                if is_external(tensor):  # read outside the message, which keeps what it held
                    read = read_tensor(tensor, self._folder)
                    make_half(read, least, most, half)
                    tensor.CopyFrom(set_aside(read, self._folder))
                else:
                    make_half(tensor, least, most, half)
        stated = [*graph.value_info, *graph.output, *graph.input]
        originals = {each.name: _copied_value(each) for each in stated}
        kept = {name for _, name in self._kept_places(scope)}
        for each in stated:
            if is_float_type(element_type(each)) and each.name not in kept:
                set_element_type(each, self._type_of(scope, each.name))
        for name, made, element in casts.made:
            if name in originals:
                graph.value_info.append(_like(originals[name], made, element))

    def _type_of(self, scope: Scope, name: str) -> int:
        """Return the type that a float value is kept in."""
        value = scope.find(name)
        if value is None:  # an output that a cast makes
            return TensorProto.FLOAT if scope.is_float else self._rules.half
        if not value.is_float:
            return self._rules.half
        return TensorProto.FLOAT if value.is_fixed or value.is_tensor else self._rules.blocked_type


class _Casts:
    """The casts of one graph: each value is cast to a type once, where it is made."""

    def __init__(self, rules: HalfRules, inputs: Mapping[str, int]) -> None:
        self._rules, self._inputs = rules, inputs
        self.made: list[tuple[str, str, int]] = []

    def follow(self, value: ValueState, nodes: list[NodeProto]) -> None:
        """Cast a value behind what makes it to the types that it is read in and not kept in."""
        blocked = self._rules.blocked_type
        is_stored_float = value.is_fixed or value.is_tensor
        if value.is_float and value.wants_half:
            value.half_name = self._cast(value, self._rules.half, nodes)
        differs = not value.is_float or (is_stored_float and blocked != TensorProto.FLOAT)
        if differs and value.wants_float and not value.float_name:
            value.float_name = self._cast(value, blocked, nodes)

    def _cast(self, value: ValueState, target: int, nodes: list[NodeProto]) -> str:
        name = value.inside
        made, node_name = f"{name}_cast_to_{_NAMES[target]}", f"{name}_cast_to_{_NAMES[target]}_node"
        if value.is_fixed and name in self._inputs and target == self._rules.half:
            made, node_name = f"graph_input_cast_{self._inputs[name]}", f"graph_input_cast{self._inputs[name]}"
        nodes.append(helper.make_node("Cast", [name], [made], name=node_name, to=target))
        self.made.append((value.name, made, target))
        return made

    def write(self, value: ValueState, nodes: list[NodeProto]) -> str:
        """Return the name that a node writes; where it gives float32, a cast behind it makes the value."""
        if value.is_float or not value.is_made_float:
            if value.inside != value.name:
                self.made.append((value.name, value.inside, self._rules.half))
            return value.inside
        target = self._rules.half
        value.float_name = f"{value.inside}_cast_to_{_NAMES[target]}"
        cast = helper.make_node("Cast", [value.float_name], [value.inside], name=f"{value.float_name}_node", to=target)
        nodes.append(cast)
        self.made.append((value.name, value.float_name, self._rules.blocked_type))
        return value.float_name


def _end_cast(source: str, name: str, place: int) -> NodeProto:
    return helper.make_node("Cast", [source], [name], name=f"graph_output_cast{place}", to=TensorProto.FLOAT)


def _tensor_constant(node: NodeProto) -> None:
    """Give a Constant of plain floats a tensor instead: its floats have one type only."""
    for attribute in list(node.attribute):
        if attribute.name in ("value_float", "value_floats"):
            is_one = attribute.name == "value_float"
            values = [attribute.f] if is_one else list(attribute.floats)
            tensor = helper.make_tensor("value", TensorProto.FLOAT, [] if is_one else [len(values)], values)
            node.attribute.remove(attribute)
            node.attribute.append(helper.make_attribute("value", tensor))


def _like(value: ValueInfoProto, name: str, element: int) -> ValueInfoProto:
    found = _copied_value(value)
    found.name = name
    set_element_type(found, element)
    return found


def _copied_value(value: ValueInfoProto) -> ValueInfoProto:
    found = ValueInfoProto()
    found.CopyFrom(value)
    return found


def _copied(node: NodeProto) -> NodeProto:
    found = NodeProto()
    found.CopyFrom(node)
    return found
