"""convert_opset(): a model written in another version of ai.onnx, newer or older, from 7 to 28.

One operator set at a time: each node whose operator changed between the two is handed to its adapter, or keeps its form
where the other set has it. An operator that an older set does not have becomes its function body, which is converted
in turn. What has no form is a refusal that names the node, the attribute or input, and the operator set.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper

from ort_core.errors import InvalidArgument, OrtError
from ort_core.model_graphs import drop_idle_nodes, without_functions
from ort_core.model_types import infer_proto
from ort_tools.opsets import inputs_and_attributes, older_parts, other_meanings
from ort_tools.opsets.common_form import carry_over, check_form
from ort_tools.opsets.function_bodies import find_body, put_constants
from ort_tools.opsets.node_view import GraphState, Names, NodeView, constants_of
from ort_tools.opsets.refusal import OpsetRefusal
from ort_tools.opsets.schema_facts import NEWEST, OLDEST, changed_in

Adapter = Callable[[NodeView], list[NodeProto]]
RAISE: Mapping[tuple[str, int], Adapter] = {
    **inputs_and_attributes.RAISE, **other_meanings.RAISE, **older_parts.RAISE,
}  # fmt: skip
LOWER: Mapping[tuple[str, int], Adapter] = {
    **inputs_and_attributes.LOWER, **other_meanings.LOWER, **older_parts.LOWER,
}  # fmt: skip
_ONNX = ("", "ai.onnx")
_INPUTS_ARE_FREE = 4  # the IR version from which initializers need not be inputs
_LOCAL_FUNCTIONS = 8  # … and from which a model has functions


def convert_opset(model: ModelProto, target: int) -> ModelProto:
    """Return a model in another version of ai.onnx; other domains stay as they are.

    Args:
        model: not changed. External data that adapters read, such as axes, must be loaded.
        target: from 7 to 28.

    Raises:
        OpsetRefusal: a node has no form in that version; the text names it, and what of it has none.
        InvalidArgument: the version, or that of the model, lies outside.
    """
    source = opset_of(model.opset_import)
    for what, version in (("the model's opset", source), ("the opset asked for", target)):
        if version is not None and not OLDEST <= version <= NEWEST:
            raise InvalidArgument(f"{what} is {version}; conversion goes from {OLDEST} to {NEWEST}")
    copy = ModelProto()
    copy.CopyFrom(model)
    drop_idle_nodes(copy.graph)
    if source is None or (source == target and not copy.functions):
        return copy
    try:
        _Conversion(copy).convert(target)
    except OpsetRefusal:
        if not model.functions:
            raise
        copy = without_functions(model)  # types inside of functions are known where they are called
        _Conversion(copy).convert(target)
    _drop_unread_constants(copy, _read_names(model))
    _set_ir_version(copy, source, target)
    return copy


def opset_of(imports: Iterable[onnx.OperatorSetIdProto]) -> int | None:
    """Return the version of ai.onnx among imports."""
    return next((int(each.version) for each in imports if each.domain in _ONNX), None)


def _set_ir_version(model: ModelProto, source: int, target: int) -> None:
    needed = helper.find_min_ir_version_for([helper.make_opsetid("", target)], ignore_unknown=True)
    if target > source:
        model.ir_version = max(model.ir_version, needed)
        return
    floor = _LOCAL_FUNCTIONS if model.functions else _INPUTS_ARE_FREE
    model.ir_version = min(model.ir_version, max(needed, floor))


def _read_names(model: ModelProto) -> set[str]:
    found = {each.name for graph in _graphs(model.graph) for each in graph.output}
    return found | {name for node in _nodes(model.graph) for name in node.input}


def _drop_unread_constants(model: ModelProto, read_before: set[str]) -> None:
    """Drop constants that became attributes: what nobody read before is not touched."""
    read = _read_names(model)
    for graph in _graphs(model.graph):
        inputs = {each.name for each in graph.input}
        gone = [
            each
            for each in graph.initializer
            if each.name in read_before and each.name not in read and each.name not in inputs
        ]
        for tensor in gone:
            graph.initializer.remove(tensor)
        for node in [each for each in graph.node if each.op_type == "Constant" and each.domain in _ONNX]:
            if node.output[0] not in read and node.output[0] in read_before:
                graph.node.remove(node)


class _Conversion:
    """One model on its way; ``names`` are shared with the models of function bodies."""

    def __init__(self, model: ModelProto, names: Names | None = None) -> None:
        self.model = model
        self.names = names or Names(set(_all_names(model)))
        self._types: dict[str, TypeProto] | None = None

    def convert(self, target: int) -> None:
        """Convert the model in place. Raises ``OpsetRefusal``."""
        for function in self.model.functions:
            self._convert_function(function, target)
        source = opset_of(self.model.opset_import)
        while source is not None and source != target:
            step = source + (1 if target > source else -1)
            if self._has_any(changed_in(max(source, step))):
                keeps = self.model.ir_version >= _INPUTS_ARE_FREE
                self._convert_graph(self.model.graph, ChainMap(), source, step, self._known_types(), keeps)
            source = step
            _set_opset(self.model.opset_import, source)

    def _convert_function(self, function: onnx.FunctionProto, target: int) -> None:
        source = opset_of(function.opset_import)
        while source is not None and source != target:
            step = source + (1 if target > source else -1)
            graph = GraphProto(node=function.node)
            self._convert_graph(graph, ChainMap(), source, step, {}, False)
            del function.node[:]
            function.node.extend(graph.node)
            source = step
            _set_opset(function.opset_import, source)

    def _has_any(self, operators: frozenset[str]) -> bool:
        return any(node.op_type in operators and node.domain in _ONNX for node in _nodes(self.model.graph))

    def _known_types(self) -> dict[str, TypeProto]:
        if self._types is None:
            try:
                typed = infer_proto(self.model).model
            except OrtError:
                typed = self.model  # what it states is all that is known
            self._types = dict(_stated_types(typed))
        return self._types

    def _convert_graph(
        self,
        graph: GraphProto,
        outer: ChainMap[str, TensorProto],
        source: int,
        target: int,
        types: dict[str, TypeProto],
        keeps_initializers: bool,
    ) -> None:
        constants = outer.new_child(constants_of(graph))
        state = GraphState(types, constants, self.names, keeps_initializers)
        nodes: list[NodeProto] = []
        for node in graph.node:
            for attribute in node.attribute:
                for inner in bodies_of(attribute):
                    self._convert_graph(inner, constants, source, target, types, keeps_initializers)
            is_changed = node.domain in _ONNX and node.op_type in changed_in(max(source, target))
            nodes += self._convert_node(node, state, source, target) if is_changed else [node]
        copies = [_copied(node) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)
        graph.initializer.extend(state.new_initializers)
        if state.is_grown:
            self._types = None

    def _convert_node(self, node: NodeProto, state: GraphState, source: int, target: int) -> list[NodeProto]:
        added = len(state.new_initializers)
        try:
            return _adapted(_copied(node), state, source, target)
        except OpsetRefusal as refusal:
            del state.new_initializers[added:]
            if target > source:
                raise
            return self._expanded(node, state, source, target, refusal)

    def _expanded(
        self, node: NodeProto, state: GraphState, source: int, target: int, refusal: OpsetRefusal
    ) -> list[NodeProto]:
        """Return an operator's function body in an older operator set. Raises the refusal: there is none."""
        view = NodeView(node, state, source, target)
        found = find_body(view)
        if found is None:
            raise refusal
        body, opset = found
        inputs = {name for name in node.input if name}
        put_constants(body, {name: state.constants[name] for name in inputs if name in state.constants})
        model = helper.make_model(body, opset_imports=[helper.make_opsetid("", opset)])
        inner = _Conversion(model, self.names)
        try:
            inner.convert(target)
        except OpsetRefusal as error:
            raise OpsetRefusal(node, target, f"of its parts, {error}") from error
        state.is_grown = True
        new = [each for each in model.graph.initializer if each.name not in inputs]
        state.constants.update({each.name: each for each in new})
        if state.keeps_initializers:
            state.new_initializers.extend(new)
            return list(model.graph.node)
        return [*(helper.make_node("Constant", [], [each.name], value=each) for each in new), *model.graph.node]


def _adapted(node: NodeProto, state: GraphState, source: int, target: int) -> list[NodeProto]:
    """Return a node as its adapter, or the common rule, writes it. Raises ``OpsetRefusal``."""
    view = NodeView(node, state, source, target)
    table = RAISE if target > source else LOWER
    adapter = table.get((node.op_type, max(source, target)))
    found = [node] if adapter is None else adapter(view)
    if any(each is node for each in found):
        carry_over(view)
    nodes = [*view.take(), *found]
    for each in nodes:
        check_form(NodeView(each, state, source, target))
    return nodes


def _copied(node: NodeProto) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy


def bodies_of(attribute: AttributeProto) -> list[GraphProto]:
    """Return the graphs that an attribute holds."""
    return [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def _set_opset(imports: Iterable[onnx.OperatorSetIdProto], version: int) -> None:
    for each in imports:
        if each.domain in _ONNX:
            each.version = version


def _nodes(graph: GraphProto) -> Iterator[NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in bodies_of(attribute):
                yield from _nodes(inner)


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in bodies_of(attribute):
                yield from _graphs(inner)


def _all_names(model: ModelProto) -> Iterator[str]:
    for graph in _graphs(model.graph):
        for node in graph.node:
            yield node.name
            yield from (*node.input, *node.output)
        yield from (each.name for each in (*graph.input, *graph.output, *graph.initializer))
    for function in model.functions:
        for node in function.node:
            yield node.name
            yield from (*node.input, *node.output)


def _stated_types(model: ModelProto) -> Iterator[tuple[str, TypeProto]]:
    """Yield the types that a model states; names that two graphs give to values of several types are left out."""
    found: dict[str, TypeProto] = {}
    doubtful: set[str] = set()
    for graph in _graphs(model.graph):
        for tensor in graph.initializer:
            made = helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
            doubtful |= {tensor.name} if found.setdefault(tensor.name, made) != made else set()
        for each in (*graph.input, *graph.value_info, *graph.output):
            if each.type.WhichOneof("value") and found.setdefault(each.name, each.type) != each.type:
                doubtful.add(each.name)
    return ((name, each) for name, each in found.items() if name not in doubtful)
