"""ModelNodes: the graphs, nodes and tensors of a model, found by name, added, removed and renamed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from ort_core.model_graphs import graphs_of


class ModelNodes:
    """A model and its parts. What is changed from outside in ``model`` is seen at the next call.

    Args:
        model: changed in place.
    """

    def __init__(self, model: ModelProto) -> None:
        self.model = model

    # ------------------------------------------------------------------ graphs
    def graph(self) -> GraphProto:
        """Return the main graph."""
        return self.model.graph

    def graphs(self) -> list[GraphProto]:
        """Return the main graph and those inside."""
        return list(graphs_of(self.model.graph))

    def functions(self) -> Sequence[Any]:  # Any: onnx.FunctionProto, which older releases of onnx do not name
        """Return the model's own functions."""
        return self.model.functions

    def get_graphs_input_names(self) -> list[str]:
        """Return the names of the inputs of all graphs."""
        return [each.name for graph in self.graphs() for each in graph.input]

    def get_graphs_output_names(self) -> list[str]:
        """Return the names of the outputs of all graphs."""
        return [each.name for graph in self.graphs() for each in graph.output]

    def get_graph_by_node(self, node: NodeProto) -> GraphProto | None:
        """Return the graph that a node is in."""
        return next((graph for graph in self.graphs() if node in graph.node), None)

    def get_graph_by_name(self, graph_name: str) -> GraphProto | None:
        """Return the first graph of a name."""
        return next((graph for graph in self.graphs() if graph.name == graph_name), None)

    def get_topological_insert_id(self, graph: GraphProto, outputs: Iterable[str]) -> int:
        """Return the place of the first node that reads one of the outputs, or the end."""
        wanted = set(outputs)
        places = (place for place, node in enumerate(graph.node) if wanted & set(node.input))
        return next(places, len(graph.node))

    # ------------------------------------------------------------------ nodes
    def nodes(self) -> list[NodeProto]:
        """Return the nodes of all graphs."""
        return [node for graph in self.graphs() for node in graph.node]

    def get_nodes_by_op_type(self, op_type: str) -> list[NodeProto]:
        """Return the nodes of a type, of all graphs."""
        return [node for node in self.nodes() if node.op_type == op_type]

    def input_name_to_nodes(self, exclude_subgraphs: bool = False) -> dict[str, list[NodeProto]]:
        """Return the nodes that read each value."""
        found: dict[str, list[NodeProto]] = {}
        for node in self._nodes(exclude_subgraphs):
            for name in node.input:
                if name:
                    found.setdefault(name, []).append(node)
        return found

    def output_name_to_node(self, exclude_subgraphs: bool = False) -> dict[str, NodeProto]:
        """Return the node that gives each value."""
        return {name: node for node in self._nodes(exclude_subgraphs) for name in node.output if name}

    def _nodes(self, exclude_subgraphs: bool) -> Sequence[NodeProto]:
        return self.model.graph.node if exclude_subgraphs else self.nodes()

    def add_node(self, node: NodeProto, graph_name: str | None = None) -> None:
        """Add a node at the end of a graph, by default the main one. Raises ``KeyError``: no graph has the name."""
        self._graph_named(graph_name).node.append(node)

    def add_nodes(
        self, nodes_to_add: Iterable[NodeProto], node_name_to_graph_name: Mapping[str, str] | None = None
    ) -> None:
        """Add nodes, each to the graph that its name is assigned to, by default the main one."""
        homes = node_name_to_graph_name or {}
        for node in nodes_to_add:
            self.add_node(node, homes.get(node.name))

    def remove_node(self, node: NodeProto) -> None:
        """Remove a node from whichever graph has it."""
        for graph in self.graphs():
            if node in graph.node:
                graph.node.remove(node)
                return

    def remove_nodes(self, nodes_to_remove: Iterable[NodeProto]) -> None:
        """Remove nodes."""
        for node in list(nodes_to_remove):
            self.remove_node(node)

    def _graph_named(self, name: str | None) -> GraphProto:
        if name is None or name == self.model.graph.name:
            return self.model.graph
        found = self.get_graph_by_name(name)
        if found is None:
            known = ", ".join(sorted(graph.name for graph in self.graphs()))
            raise KeyError(f"no graph is called {name!r}; the model has {known}")
        return found

    def create_node_name(self, op_type: str, name_prefix: str | None = None) -> str:
        """Return a name that no node has: the type or the prefix, and a number behind."""
        prefix = name_prefix or op_type
        prefix = prefix if prefix.endswith("_") else f"{prefix}_"
        rests = (node.name[len(prefix) :] for node in self.nodes() if node.name.startswith(prefix))
        return f"{prefix}{1 + max((int(rest) for rest in rests if rest.isdecimal()), default=-1)}"

    # ------------------------------------------------------------------ inputs, outputs and tensors
    def find_graph_input(self, input_name: str) -> ValueInfoProto | None:
        """Return an input of the main graph by name."""
        return next((each for each in self.model.graph.input if each.name == input_name), None)

    def find_graph_output(self, output_name: str) -> ValueInfoProto | None:
        """Return an output of the main graph by name."""
        return next((each for each in self.model.graph.output if each.name == output_name), None)

    def get_graph_inputs_excluding_initializers(self) -> list[ValueInfoProto]:
        """Return the inputs of the main graph that have no default."""
        defaults = {tensor.name for tensor in self.model.graph.initializer}
        return [each for each in self.model.graph.input if each.name not in defaults]

    def add_input(self, input: ValueInfoProto, graph_name: str | None = None) -> None:
        """Add an input to a graph, by default the main one."""
        self._graph_named(graph_name).input.append(input)

    def add_initializer(self, tensor: TensorProto, graph_name: str | None = None) -> None:
        """Add a tensor to a graph, by default the main one."""
        self._graph_named(graph_name).initializer.append(tensor)

    def get_initializer(self, name: str) -> TensorProto | None:
        """Return a tensor by name, from any graph."""
        return next((each for graph in self.graphs() for each in graph.initializer if each.name == name), None)

    def remove_initializer(self, tensor: TensorProto) -> None:
        """Remove a tensor from whichever graph has it."""
        for graph in self.graphs():
            if tensor in graph.initializer:
                graph.initializer.remove(tensor)
                return

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
        """Let the nodes of all graphs read another value."""
        for node in self.nodes():
            self.replace_node_input(node, old_input_name, new_input_name)

    def replace_output_of_all_nodes(self, old_output_name: str, new_output_name: str) -> None:
        """Give a result another name, whichever node gives it."""
        for node in self.nodes():
            self.replace_node_output(node, old_output_name, new_output_name)

    def rename_graph_output(self, old_name: str, new_name: str) -> None:
        """Rename an output of the main graph, and the value wherever it stands. Nothing else may have the new name."""
        found = self.find_graph_output(old_name)
        if found is None:
            return
        self.replace_input_of_all_nodes(old_name, new_name)
        self.replace_output_of_all_nodes(old_name, new_name)
        found.name = new_name

    def add_prefix_to_names(self, prefix: str) -> None:
        """Put a prefix in front of the names of nodes, values and tensors; those of the model's interface stay."""
        main = self.model.graph
        kept = {"", *(each.name for each in (*main.input, *main.output))}
        for graph in self.graphs():
            for node in graph.node:
                if node.name:
                    node.name = prefix + node.name
                for names in (node.input, node.output):
                    names[:] = [name if name in kept else prefix + name for name in names]
            for values in (graph.input, graph.output, graph.value_info, graph.initializer):
                for each in values:
                    each.name = each.name if each.name in kept else prefix + each.name

    # ------------------------------------------------------------------ the model
    def get_opset_version(self) -> int:
        """Return the version of ONNX's operators. Raises ``RuntimeError``: the model imports none."""
        for each in self.model.opset_import:
            if each.domain in ("", "ai.onnx"):
                return each.version
        raise RuntimeError("the model imports no version of ONNX's operators (domain '')")

    def import_domain(self, domain: str, version: int = 1) -> None:
        """Import an operator set that the model does not import yet."""
        if all(each.domain != domain for each in self.model.opset_import):
            self.model.opset_import.append(helper.make_opsetid(domain, version))

    def get_operator_statistics(self, include_domain: bool = False) -> dict[str, int]:
        """Return how many nodes of each type there are in all graphs; with domains as ``domain:type``."""
        counts: dict[str, int] = {}
        for node in self.nodes():
            domain = f"{node.domain}:" if include_domain and node.domain else ""
            counts[domain + node.op_type] = counts.get(domain + node.op_type, 0) + 1
        return counts
