"""A model whose nodes and tensors are found by name, added and removed: onnxruntime's class of this name.

What changes it from outside may write into ``model.graph`` directly: the index of tensors is made again when their
number has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from ort_core.lazy_names import lazy_names
from ort_core.model_graphs import free_names, graphs_of, inner_graphs, reads_of
from ort_quantization.models.model_files import read_tensor, write_model
from ort_quantization.models.node_order import put_in_order, put_in_waves
from ort_quantization.models.tensor_folder import set_aside


class ONNXModel:
    """A model and what quantizers ask of it.

    Args:
        model: changed in place.
        folder: where its external tensors lie.
    """

    def __init__(self, model: ModelProto, folder: str = "") -> None:
        self.model = model
        self.folder = folder
        self._index: dict[str, int] = {}
        self._indexed = -1

    # ------------------------------------------------------------------ nodes and values
    def nodes(self) -> Sequence[NodeProto]:
        """Return the nodes of the main graph."""
        return self.model.graph.node

    def graph(self) -> GraphProto:
        """Return the main graph."""
        return self.model.graph

    def ir_version(self) -> int:
        """Return the version of the file format."""
        return self.model.ir_version

    def opset_import(self) -> Sequence[object]:
        """Return the imported operator sets."""
        return self.model.opset_import

    def set_opset_import(self, domain: str, version: int) -> None:
        """Import an operator set in a version."""
        for each in self.model.opset_import:
            if each.domain == domain:
                each.version = version
                return
        self.model.opset_import.append(helper.make_opsetid(domain, version))

    def add_node(self, node: NodeProto) -> None:
        """Add a node at the end."""
        self.model.graph.node.append(node)

    def add_nodes(self, nodes_to_add: Iterable[NodeProto]) -> None:
        """Add nodes at the end."""
        self.model.graph.node.extend(nodes_to_add)

    def remove_node(self, node: NodeProto) -> None:
        """Remove a node, if it is there."""
        self.remove_nodes([node])

    def remove_nodes(self, nodes_to_remove: Iterable[NodeProto]) -> None:
        """Remove nodes that are there: those with the same outputs, or equal ones where they have none."""
        gone = list(nodes_to_remove)
        for place in reversed(range(len(self.model.graph.node))):
            if any(self.model.graph.node[place] == node for node in gone):
                del self.model.graph.node[place]

    def find_graph_input(self, input_name: str) -> ValueInfoProto | None:
        """Return an input of the graph by name."""
        return next((each for each in self.model.graph.input if each.name == input_name), None)

    def find_graph_output(self, output_name: str) -> ValueInfoProto | None:
        """Return an output of the graph by name."""
        return next((each for each in self.model.graph.output if each.name == output_name), None)

    def is_graph_output(self, output_name: str) -> bool:
        """Return whether the graph has an output of that name."""
        return self.find_graph_output(output_name) is not None

    def is_graph_input(self, tensor_name: str) -> bool:
        """Return whether the graph has an input of that name."""
        return self.find_graph_input(tensor_name) is not None

    def get_tensor_type(self, tensor_name: str) -> TypeProto.Tensor | None:
        """Return element type and shape of a value, ``None`` where they are not known."""
        graph = self.model.graph
        for values in (graph.value_info, graph.input, graph.output):
            for each in values:
                if each.name == tensor_name:
                    return each.type.tensor_type
        return None

    def get_constant_value(self, output_name: str) -> np.ndarray | None:
        """Return what a Constant or an initializer gives, ``None`` where a name is neither's."""
        for node in self.model.graph.node:
            if node.op_type == "Constant" and node.output[0] == output_name:
                return next((numpy_helper.to_array(each.t) for each in node.attribute if each.name == "value"), None)
        tensor = self.get_initializer(output_name)
        return None if tensor is None else numpy_helper.to_array(read_tensor(tensor, self.folder))

    def input_name_to_nodes(self) -> dict[str, list[NodeProto]]:
        """Return the nodes that read each value."""
        found: dict[str, list[NodeProto]] = {}
        for node in self.model.graph.node:
            for name in node.input:
                if name:
                    found.setdefault(name, []).append(node)
        return found

    def output_name_to_node(self) -> dict[str, NodeProto]:
        """Return the node that gives each value."""
        return {name: node for node in self.model.graph.node for name in node.output if name}

    def get_children(
        self, node: NodeProto, input_name_to_nodes: dict[str, list[NodeProto]] | None = None
    ) -> list[NodeProto]:
        """Return the nodes that read what a node gives."""
        readers = self.input_name_to_nodes() if input_name_to_nodes is None else input_name_to_nodes
        return [child for name in node.output for child in readers.get(name, [])]

    def get_parents(self, node: NodeProto, output_name_to_node: dict[str, NodeProto] | None = None) -> list[NodeProto]:
        """Return the nodes that give what a node reads."""
        makers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        return [makers[name] for name in node.input if name in makers]

    def get_parent(
        self, node: NodeProto, idx: int, output_name_to_node: dict[str, NodeProto] | None = None
    ) -> NodeProto | None:
        """Return the node that gives one input of a node, ``None`` where no node does."""
        makers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        return makers.get(node.input[idx]) if idx < len(node.input) else None

    def find_node_by_name(
        self, node_name: str, new_nodes_list: Iterable[NodeProto], graph: GraphProto
    ) -> NodeProto | None:
        """Return the first node of a name, of a graph or among new ones."""
        for nodes in (graph.node, new_nodes_list):
            for node in nodes:
                if node.name == node_name:
                    return node
        return None

    def get_largest_node_name_suffix(self, node_name_prefix: str) -> int:
        """Return the greatest number behind a prefix among the names of nodes, -1 where there is none."""
        return _largest_suffix(node_name_prefix, (node.name for node in self.model.graph.node))

    def get_largest_initializer_name_suffix(self, initializer_name_prefix: str) -> int:
        """Return the greatest number behind a prefix among the names of initializers, -1 where there is none."""
        return _largest_suffix(initializer_name_prefix, (tensor.name for tensor in self.model.graph.initializer))

    def find_nodes_by_initializer(self, graph: GraphProto, initializer: TensorProto) -> list[NodeProto]:
        """Return the nodes of a graph that read an initializer."""
        return [node for node in graph.node if initializer.name in node.input]

    # ------------------------------------------------------------------ tensors
    def initializer(self) -> Sequence[TensorProto]:
        """Return the initializers of the main graph."""
        return self.model.graph.initializer

    def _place(self, name: str) -> int | None:
        tensors = self.model.graph.initializer
        if self._indexed != len(tensors):
            self._index = {tensor.name: place for place, tensor in reversed(list(enumerate(tensors)))}
            self._indexed = len(tensors)
        place = self._index.get(name)
        if place is not None and tensors[place].name != name:  # renamed or moved by somebody else
            self._indexed = -1
            return self._place(name)
        return place

    def get_initializer(self, name: str) -> TensorProto | None:
        """Return an initializer by name."""
        place = self._place(name)
        return None if place is None else self.model.graph.initializer[place]

    def get_initializer_name_set(self) -> set[str]:
        """Return the names of all initializers."""
        return {tensor.name for tensor in self.model.graph.initializer}

    def get_non_initializer_inputs(self) -> set[str]:
        """Return the inputs that have no default."""
        return {each.name for each in self.model.graph.input if self._place(each.name) is None}

    def add_initializer(self, tensor: TensorProto) -> None:
        """Add an initializer, unless there is one of its name."""
        if self._place(tensor.name) is None:
            self.initializer_extend([tensor])

    def initializer_extend(self, inits: Iterable[TensorProto]) -> None:
        """Add initializers."""
        for tensor in inits:
            self._place(tensor.name)
            self.model.graph.initializer.append(set_aside(tensor, self.folder))
            self._index.setdefault(tensor.name, self._indexed)
            self._indexed += 1

    def remove_initializer(self, tensor: TensorProto) -> None:
        """Remove an initializer by its name, and the input that it was a default of."""
        self.remove_initializers([tensor])

    def remove_initializers(self, init_to_remove: Iterable[TensorProto]) -> None:
        """Remove initializers by their names, and the inputs that they were defaults of."""
        gone = {tensor.name for tensor in init_to_remove}
        _remove_named(self.model.graph, gone & self.get_initializer_name_set())
        self._indexed = -1

    def clean_initializers(self) -> tuple[GraphProto, set[str]]:
        """Remove initializers that nothing reads, from all graphs.

        Returns:
            The main graph, and the names that are read and that nothing gives.
        """
        missing = _clean(self.model.graph)
        self._indexed = -1
        return self.model.graph, missing

    def remove_unused_constant(self) -> None:
        """Remove Constants and initializers that nothing reads."""
        read = {name for node in self.model.graph.node for name in node.input}
        read |= {each.name for each in self.model.graph.output} | _captured(self.model.graph)
        for place in reversed(range(len(self.model.graph.node))):
            node = self.model.graph.node[place]
            if node.op_type == "Constant" and node.output[0] not in read:
                del self.model.graph.node[place]
        _remove_named(self.model.graph, self.get_initializer_name_set() - read)
        self._indexed = -1

    # ------------------------------------------------------------------ renaming
    @staticmethod
    def replace_node_input(node: NodeProto, old_input_name: str, new_input_name: str) -> None:
        """Let a node read another value."""
        for place, name in enumerate(node.input):
            if name == old_input_name:
                node.input[place] = new_input_name

    @staticmethod
    def replace_node_output(node: NodeProto, old_output_name: str, new_output_name: str) -> None:
        """Let a node give its result another name."""
        for place, name in enumerate(node.output):
            if name == old_output_name:
                node.output[place] = new_output_name

    def replace_input_of_all_nodes(self, old_input_name: str, new_input_name: str) -> None:
        """Let all nodes of the main graph read another value."""
        for node in self.model.graph.node:
            self.replace_node_input(node, old_input_name, new_input_name)

    def replace_input_of_nodes(self, old_input_name: str, new_input_name: str, node_names_set: Iterable[str]) -> None:
        """Let nodes of some names read another value."""
        for node in self.model.graph.node:
            if node.name in node_names_set:
                self.replace_node_input(node, old_input_name, new_input_name)

    def replace_output_of_all_nodes(self, old_output_name: str, new_output_name: str) -> None:
        """Give a result another name, whichever node gives it."""
        for node in self.model.graph.node:
            self.replace_node_output(node, old_output_name, new_output_name)

    def replace_output_of_nodes(
        self, old_output_name: str, new_output_name: str, node_names_set: Iterable[str]
    ) -> None:
        """Give a result of nodes of some names another name."""
        for node in self.model.graph.node:
            if node.name in node_names_set:
                self.replace_node_output(node, old_output_name, new_output_name)

    # ------------------------------------------------------------------ the whole
    def replace_gemm_with_matmul(self) -> dict[str, str]:
        """Write each plain Gemm as MatMul and Add, in all graphs.

        Returns:
            The names of weights that were transposed for it, with the names of those they were made of.
        """
        from ort_quantization.models.gemm_as_matmul import replace_gemms

        transposed = replace_gemms(self.model.graph, self.folder)
        self._indexed = -1
        return transposed

    def topological_sort(self) -> None:
        """Put nodes behind those whose results they read, in the order of onnxruntime's tool.

        Raises:
            InvalidQuantization: nodes read their own results.
        """
        put_in_waves(self.model.graph)

    def save_model_to_file(self, output_path: str | Path, use_external_data_format: bool = False) -> None:
        """Write the model, its nodes in order; large tensors into ``NAME.data`` beside it where that is asked for."""
        put_in_order(self.model.graph, is_deep=False)
        write_model(self.model, self.folder, output_path, use_external_data_format)


def _largest_suffix(prefix: str, names: Iterable[str]) -> int:
    rests = (name[len(prefix) :] for name in names if name.startswith(prefix))
    return max((int(rest) for rest in rests if rest.isdecimal()), default=-1)


def _remove_named(graph: GraphProto, names: set[str]) -> None:
    for values in (graph.initializer, graph.input):
        for place in reversed(range(len(values))):
            if values[place].name in names:
                del values[place]


def _captured(graph: GraphProto) -> set[str]:
    return {name for node in graph.node for inner in inner_graphs(node) for name in free_names(inner)}


def _clean(graph: GraphProto) -> set[str]:
    """Remove unread initializers of a graph and those inside, and return the names that nothing in it gives."""
    for inner in (each for each in graphs_of(graph) if each is not graph):
        _clean_one(inner)
    _clean_one(graph)
    return free_names(graph)


def _clean_one(graph: GraphProto) -> None:
    read = {each.name for each in graph.output} | {name for node in graph.node for name in reads_of(node)}
    read -= {name for node in graph.node for name in node.output}
    _remove_named(graph, {tensor.name for tensor in graph.initializer} - read)


__getattr__, _ = lazy_names(  # what programs import from here, as onnxruntime's module imports it
    __name__,
    {
        "ort_quantization.quant_utils": (
            "attribute_to_kwarg", "find_by_name",
        ),
    },
)  # fmt: skip
