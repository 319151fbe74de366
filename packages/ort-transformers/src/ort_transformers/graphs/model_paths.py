"""ModelPaths: walks from a node to what it reads and to what reads it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from onnx import NodeProto

from ort_transformers.graphs.model_nodes import ModelNodes

Readers = dict[str, list[NodeProto]]
Makers = dict[str, NodeProto]
Path = tuple[Sequence[str], Sequence[int | None]]


class ModelPaths(ModelNodes):
    """A model whose nodes are found along its edges.

    Where a walk takes ``output_name_to_node`` or ``input_name_to_nodes`` it looks edges up there; without it they are
    collected at each call.
    """

    def get_children(
        self, node: NodeProto, input_name_to_nodes: Readers | None = None, output_index: int | None = None
    ) -> list[NodeProto]:
        """Return the nodes that read what a node gives, or one of its results."""
        readers = self.input_name_to_nodes() if input_name_to_nodes is None else input_name_to_nodes
        if output_index is not None:
            names: Iterable[str] = node.output[output_index : output_index + 1]
        else:
            names = node.output
        return [child for name in names for child in readers.get(name, [])]

    def get_parents(self, node: NodeProto, output_name_to_node: Makers | None = None) -> list[NodeProto]:
        """Return the nodes that give what a node reads."""
        makers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        return [makers[name] for name in node.input if name in makers]

    def get_parent(self, node: NodeProto, i: int, output_name_to_node: Makers | None = None) -> NodeProto | None:
        """Return the node that gives input ``i``, ``None`` where no node does."""
        makers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        return makers.get(node.input[i]) if i < len(node.input) else None

    def match_first_parent(
        self, node: NodeProto, parent_op_type: str, output_name_to_node: Makers, exclude: Sequence[NodeProto] = ()
    ) -> tuple[NodeProto | None, int | None]:
        """Return the first parent of a type and the input that it gives."""
        for place, name in enumerate(node.input):
            parent = output_name_to_node.get(name)
            if parent is not None and parent.op_type == parent_op_type and parent not in exclude:
                return parent, place
        return None, None

    def match_parent(
        self,
        node: NodeProto,
        parent_op_type: str,
        input_index: int | None = None,
        output_name_to_node: Makers | None = None,
        exclude: Sequence[NodeProto] = (),
        return_indice: list[int] | None = None,
    ) -> NodeProto | None:
        """Return the parent of a type at an input, or at any where ``input_index`` is ``None``.

        ``return_indice`` is given the inputs that were found where none was asked for.
        """
        makers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        if input_index is None:
            parent, place = self.match_first_parent(node, parent_op_type, makers, exclude)
            if place is not None and return_indice is not None:
                return_indice.append(place)
            return parent
        parent = self.get_parent(node, input_index, makers)
        fits = parent is not None and parent.op_type == parent_op_type and parent not in exclude
        return parent if fits else None

    def match_parent_path(
        self,
        node: NodeProto,
        parent_op_types: Sequence[str],
        parent_input_index: Sequence[int | None] | None = None,
        output_name_to_node: Makers | None = None,
        return_indice: list[int] | None = None,
    ) -> list[NodeProto] | None:
        """Return the parents along a path, nearest first, or ``None``.

        Args:
            node: where it starts.
            parent_op_types: the types on the path.
            parent_input_index: for each step the input to follow, ``None`` for the first that fits.
            output_name_to_node: the edges.
            return_indice: is given the inputs found where none was asked for.

        Raises:
            ValueError: there are not as many inputs as types.
        """
        steps = parent_input_index if parent_input_index is not None else [None] * len(parent_op_types)
        if len(steps) != len(parent_op_types):
            raise ValueError(
                f"{len(steps)} input indices for {len(parent_op_types)} operator types: one each is needed"
            )
        makers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        found: list[NodeProto] = []
        for op_type, place in zip(parent_op_types, steps, strict=True):
            parent = self.match_parent(found[-1] if found else node, op_type, place, makers, (), return_indice)
            if parent is None:
                return None
            found.append(parent)
        return found

    def match_parent_paths(
        self, node: NodeProto, paths: Iterable[Path], output_name_to_node: Makers
    ) -> tuple[int, list[NodeProto] | None, list[int] | None]:
        """Return the number of the first path that fits, its nodes, and the inputs that were free; -1 for none."""
        for number, (types, places) in enumerate(paths):
            indices: list[int] = []
            found = self.match_parent_path(node, types, places, output_name_to_node, indices)
            if found:
                return number, found, indices
        return -1, None, None

    def match_parent_paths_all(
        self, node: NodeProto, paths: Iterable[Path], output_name_to_node: Makers
    ) -> tuple[int, list[list[NodeProto]] | None, list[list[int]] | None]:
        """Return the number of the last path that fits, the nodes of all that do, and the inputs that were free."""
        last, all_found, all_indices = -1, [], []
        for number, (types, places) in enumerate(paths):
            indices: list[int] = []
            found = self.match_parent_path(node, types, places, output_name_to_node, indices)
            if found:
                last = number
                all_found.append(found)
                all_indices.append(indices)
        return (last, all_found, all_indices) if all_found else (-1, None, None)

    def find_first_child_by_type(
        self, node: NodeProto, child_type: str, input_name_to_nodes: Readers | None = None, recursive: bool = True
    ) -> NodeProto | None:
        """Return the nearest node of a type behind a node, or only among its readers."""
        readers = self.input_name_to_nodes() if input_name_to_nodes is None else input_name_to_nodes
        return self._nearest(node, child_type, recursive, lambda each: self.get_children(each, readers))

    def find_first_parent_by_type(
        self, node: NodeProto, parent_type: str, output_name_to_node: Makers | None = None, recursive: bool = True
    ) -> NodeProto | None:
        """Return the nearest node of a type in front of a node, or only among what it reads."""
        makers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        return self._nearest(node, parent_type, recursive, lambda each: self.get_parents(each, makers))

    @staticmethod
    def _nearest(node: NodeProto, op_type: str, recursive: bool, next_to: object) -> NodeProto | None:
        assert callable(next_to)
        waiting, seen = deque(next_to(node)), set[int]()
        while waiting:
            current = waiting.popleft()
            if current.op_type == op_type:
                return current
            if recursive and id(current) not in seen:
                seen.add(id(current))
                waiting.extend(next_to(current))
        return None

    def match_child_path(
        self,
        node: NodeProto,
        child_op_types: Sequence[str],
        edges: Sequence[tuple[int, int]] | None = None,
        input_name_to_nodes: Readers | None = None,
        exclude: Sequence[NodeProto] = (),
    ) -> list[NodeProto] | None:
        """Return the readers along a path, nearest first, or ``None``; ``edges`` has (output, input) of each step.

        Raises:
            ValueError: there are not as many edges as types.
        """
        if edges is not None and len(edges) != len(child_op_types):
            raise ValueError(f"{len(edges)} edges for {len(child_op_types)} operator types: one each is needed")
        readers = self.input_name_to_nodes() if input_name_to_nodes is None else input_name_to_nodes
        found: list[NodeProto] = []
        for step, op_type in enumerate(child_op_types):
            current = found[-1] if found else node
            edge = None if edges is None else edges[step]
            child = self._child_at(current, op_type, edge, readers, exclude)
            if child is None:
                return None
            found.append(child)
        return found

    def _child_at(
        self,
        node: NodeProto,
        op_type: str,
        edge: tuple[int, int] | None,
        readers: Readers,
        exclude: Sequence[NodeProto],
    ) -> NodeProto | None:
        for child in self.get_children(node, readers, None if edge is None else edge[0]):
            if child.op_type != op_type or child in exclude:
                continue
            if edge is None or self.input_index(node.output[edge[0]], child) == edge[1]:
                return child
        return None

    def get_children_subgraph_nodes(
        self, root_node: NodeProto, stop_nodes: Sequence[NodeProto], input_name_to_nodes: Readers | None = None
    ) -> list[NodeProto]:
        """Return the nodes behind a node, up to those where it stops."""
        readers = self.input_name_to_nodes() if input_name_to_nodes is None else input_name_to_nodes
        return self._beyond(root_node, stop_nodes, lambda each: self.get_children(each, readers))

    def get_parent_subgraph_nodes(
        self, node: NodeProto, stop_nodes: Sequence[NodeProto], output_name_to_node: Makers | None = None
    ) -> list[NodeProto]:
        """Return the nodes in front of a node, up to those where it stops."""
        makers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        return self._beyond(node, stop_nodes, lambda each: self.get_parents(each, makers))

    @staticmethod
    def _beyond(node: NodeProto, stop_nodes: Sequence[NodeProto], next_to: object) -> list[NodeProto]:
        assert callable(next_to)
        stops = {id(each) for each in stop_nodes}
        waiting, found = deque(next_to(node)), dict[int, NodeProto]()
        while waiting:
            current = waiting.popleft()
            if id(current) in stops or current in stop_nodes or id(current) in found:
                continue
            found[id(current)] = current
            waiting.extend(next_to(current))
        return list(found.values())

    def get_graph_inputs(self, current_node: NodeProto, recursive: bool = False) -> list[str]:
        """Return the inputs of the graph that a node reads, or that it depends on."""
        inputs = set(self.get_graphs_input_names())
        nodes = [current_node, *(self.get_parent_subgraph_nodes(current_node, []) if recursive else [])]
        return list(dict.fromkeys(name for node in nodes for name in node.input if name in inputs))

    @staticmethod
    def input_index(node_output: str, child_node: NodeProto) -> int:
        """Return which input of a node a value is, -1 where it is none."""
        return next((place for place, name in enumerate(child_node.input) if name == node_output), -1)

    def is_safe_to_fuse_nodes(
        self,
        nodes_to_remove: Sequence[NodeProto],
        keep_outputs: Iterable[str],
        input_name_to_nodes: Readers,
        output_name_to_node: Makers,
    ) -> bool:
        """Return whether nothing but the nodes themselves reads what they give, kept results aside."""
        kept = set(keep_outputs)
        results = (name for node in nodes_to_remove for name in node.output if name not in kept)
        return all(
            name in output_name_to_node
            and all(reader in nodes_to_remove for reader in input_name_to_nodes.get(name, []))
            for name in results
        )
