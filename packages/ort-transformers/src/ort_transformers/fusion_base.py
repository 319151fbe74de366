"""Fusion: the base of programs' own fusions, which look at a model's messages from one kind of node on."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

from ort_transformers.onnx_model import OnnxModel

log = logging.getLogger(__name__)


class Fusion:
    """A fusion: derive, write ``fuse``, call ``apply``.

    Args:
        model: changed by ``apply``.
        fused_op_type: what it makes.
        search_op_types: of the nodes that ``fuse`` is called with.
        description: for the log.

    ``fuse`` puts nodes into ``nodes_to_add`` and ``nodes_to_remove``, says in ``node_name_to_graph_name`` where a new
    one belongs (``this_graph_name`` is that of the node), and sets ``prune_graph`` where nodes fall away with others.
    """

    def __init__(
        self, model: OnnxModel, fused_op_type: str, search_op_types: str | list[str], description: str = ""
    ) -> None:
        self.search_op_types = [search_op_types] if isinstance(search_op_types, str) else search_op_types
        self.fused_op_type = fused_op_type
        self.description = f"{fused_op_type}({description})" if description else fused_op_type
        self.model = model
        self.nodes_to_remove: list[NodeProto] = []
        self.nodes_to_add: list[NodeProto] = []
        self.prune_graph = False
        self.node_name_to_graph_name: dict[str, str] = {}
        self.this_graph_name: str | None = None
        self.fused_count: defaultdict[str, int] = defaultdict(int)

    def increase_counter(self, fused_op_name: str) -> None:
        """Count a fused operator, where it is not the number of ``nodes_to_add``."""
        self.fused_count[fused_op_name] += 1

    def fuse(
        self,
        node: NodeProto,
        input_name_to_nodes: dict[str, list[NodeProto]],
        output_name_to_node: dict[str, NodeProto],
    ) -> None:
        """Fuse what begins, or ends, at a node.

        Raises:
            NotImplementedError: the class does not say how.
        """
        raise NotImplementedError(f"{type(self).__name__} has no fuse(node, input_name_to_nodes, output_name_to_node)")

    def apply(self) -> None:
        """Call ``fuse`` for each node of the kinds searched, then change the model."""
        readers, makers = self.model.input_name_to_nodes(), self.model.output_name_to_node()
        for op_type in self.search_op_types:
            for node in self.model.get_nodes_by_op_type(op_type):
                graph = self.model.get_graph_by_node(node)
                if graph is not None:
                    self.this_graph_name = graph.name
                    self.fuse(node, readers, makers)
        made = sum(node.op_type == self.fused_op_type for node in self.nodes_to_add)
        for name, count in (self.fused_count or {self.description: made}).items():
            if count:
                log.info("fused %s: %d", name, count)
        self.model.remove_nodes(self.nodes_to_remove)
        self.model.add_nodes(self.nodes_to_add, self.node_name_to_graph_name)
        if self.prune_graph:
            self.model.prune_graph()
        elif self.nodes_to_remove or self.nodes_to_add:
            self.model.update_graph()

    def add_initializer(
        self, name: str, data_type: int, dims: Sequence[int], vals: Any, raw: bool = True
    ) -> TensorProto:
        """Put a tensor beside the node that is looked at; ``vals`` is an array or numbers."""
        given = vals
        if raw:
            given = np.asarray(
                vals, None if isinstance(vals, np.ndarray) else helper.tensor_dtype_to_np_dtype(data_type)
            )
            given = given.tobytes()
        tensor = helper.make_tensor(name, data_type, dims, given, raw=raw)
        self.model.add_initializer(tensor, self.this_graph_name)
        return tensor

    def remove_initializer(self, tensor: TensorProto) -> None:
        """Remove a tensor."""
        self.model.remove_initializer(tensor)

    def add_nodes_to_remove(self, nodes: Iterable[NodeProto]) -> None:
        """Remove nodes at the end, each once."""
        self.add_nodes_to_remove_with_nodes_to_keep(nodes, ())

    def add_nodes_to_remove_with_nodes_to_keep(
        self, nodes: Iterable[NodeProto], nodes_to_keep: Sequence[NodeProto]
    ) -> None:
        """Remove nodes at the end, each once, but for those to keep."""
        for node in nodes:
            if node not in self.nodes_to_remove and node not in nodes_to_keep:
                self.nodes_to_remove.append(node)
