"""OnnxModel: a model as onnxruntime's optimizer hands it on: asked, changed, cleaned, converted and written."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto, TensorProto

import ort_core
from ort_core.model_graphs import reads_of, sort_graph, write_proto
from ort_transformers.graphs.model_values import ModelValues

log = logging.getLogger(__name__)


class OnnxModel(ModelValues):
    """A model and everything that programs do with it behind the optimizer.

    Args:
        model: changed in place.
    """

    def __init__(self, model: ModelProto) -> None:
        super().__init__(model)
        self.enable_shape_infer = True

    def initialize(self, model: ModelProto) -> None:
        """Take another model."""
        self.model = model

    def disable_shape_inference(self) -> None:
        """Let ``infer_runtime_shape`` give nothing."""
        self.enable_shape_infer = False

    def infer_runtime_shape(self, dynamic_axis_mapping: Mapping[str, int] | None = None, update: bool = False) -> None:
        """Return nothing: fusions infer shapes themselves, and ``get_shape`` gives those that the model states."""

    # ------------------------------------------------------------------ cleaning
    def remove_cascaded_cast_nodes(self) -> None:
        """Let a Cast of floats that reads a Cast of floats read what that one reads, where the first one widens."""
        makers = self.output_name_to_node()
        for node in self.get_nodes_by_op_type("Cast"):
            parent = makers.get(node.input[0])
            if parent is not None and parent.op_type == "Cast" and self._widens(parent):
                node.input[0] = parent.input[0]
        self.prune_graph()

    def _widens(self, cast: NodeProto) -> bool:
        source = self.get_dtype(cast.input[0])
        target = self.get_node_attribute(cast, "to")
        wider: dict[int, tuple[int, ...]] = {
            TensorProto.FLOAT16: (TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE),
            TensorProto.BFLOAT16: (TensorProto.BFLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE),
            TensorProto.FLOAT: (TensorProto.FLOAT, TensorProto.DOUBLE),
            TensorProto.BOOL: (TensorProto.INT32, TensorProto.INT64, TensorProto.FLOAT, TensorProto.FLOAT16),
            TensorProto.INT32: (TensorProto.INT32, TensorProto.INT64, TensorProto.DOUBLE),
        }
        return source in wider and target in wider[source]

    def remove_useless_cast_nodes(self) -> None:
        """Remove each Cast to the type that its input is known to have."""
        outputs = set(self.get_graphs_output_names())
        for node in self.get_nodes_by_op_type("Cast"):
            source = self.get_dtype(node.input[0])
            if source is None or source != self.get_node_attribute(node, "to") or node.output[0] in outputs:
                continue
            self.replace_input_of_all_nodes(node.output[0], node.input[0])
            self.remove_node(node)

    def remove_unused_constant(self) -> None:
        """Remove Constant nodes that nothing reads; ``update_graph`` removes tensors, too."""
        read = {name for node in self.nodes() for name in node.input} | set(self.get_graphs_output_names())
        for graph in self.graphs():
            _keep(graph.node, lambda node: node.op_type != "Constant" or bool(read & set(node.output)))

    def prune_graph(self, outputs: Sequence[str] | None = None, allow_remove_graph_inputs: bool = True) -> None:
        """Remove nodes, tensors and, where that is allowed, inputs that no output of the graph needs.

        Args:
            outputs: the outputs to keep, by default all.
            allow_remove_graph_inputs: remove inputs that nothing reads.
        """
        graph = self.model.graph
        if outputs is not None:
            _keep(graph.output, lambda each: each.name in outputs)
        makers = self.output_name_to_node(exclude_subgraphs=True)
        needed: set[str] = set()
        waiting = [each.name for each in graph.output]
        while waiting:
            name = waiting.pop()
            if name not in needed:
                needed.add(name)
                waiting += reads_of(makers[name]) if name in makers else ()
        _keep(graph.node, lambda node: bool(needed & set(node.output)))
        self.update_graph(allow_remove_graph_inputs=allow_remove_graph_inputs)

    def update_graph(self, verbose: bool = False, allow_remove_graph_inputs: bool = False) -> None:
        """Remove tensors that nothing reads and, where that is allowed, such inputs; and Constants without a reader."""
        graph = self.model.graph
        read = {name for node in graph.node for name in reads_of(node)} | {each.name for each in graph.output}
        _keep(graph.node, lambda node: node.op_type != "Constant" or bool(read & set(node.output)))
        if allow_remove_graph_inputs:
            _keep(graph.input, lambda each: each.name in read)
        _keep(graph.initializer, lambda tensor: tensor.name in read)

    def clean_shape_infer(self) -> None:
        """Forget the types of values inside the graph."""
        del self.model.graph.value_info[:]

    @staticmethod
    def graph_topological_sort(graph: GraphProto, is_deterministic: bool = False) -> None:
        """Put nodes behind those whose results they read; others keep their order.

        Raises:
            RuntimeError: nodes read their own results.
        """
        refused = sort_graph(graph)
        if refused is not None:
            raise RuntimeError(refused.reason)

    def topological_sort(self, is_deterministic: bool = False, dump_model_on_failure: bool = False) -> None:
        """Sort the nodes of all graphs. Raises as ``graph_topological_sort``."""
        for graph in reversed(self.graphs()):  # inner ones first: outer nodes are copied
            self.graph_topological_sort(graph, is_deterministic)

    # ------------------------------------------------------------------ converting
    def convert_model_float32_to_float16(self, cast_input_output: bool = True) -> None:
        """Convert to float16, with inputs and outputs as they were unless ``cast_input_output`` is false."""
        self.convert_float_to_float16(use_symbolic_shape_infer=True, keep_io_types=cast_input_output)

    def convert_float_to_float16(self, use_symbolic_shape_infer: bool = True, **kwargs: Any) -> None:
        """Convert to float16, and remove the Casts that convert nothing then.

        Other arguments are those of ``float16.convert_float_to_float16``.
        """
        float16 = importlib.import_module("ort_core.quantization.float16")
        kwargs.setdefault("keep_io_types", True)
        self.initialize(float16.convert_float_to_float16(self.model, **kwargs))
        self.remove_cascaded_cast_nodes()
        self.remove_useless_cast_nodes()

    def use_float16(self) -> bool:
        """Return whether a tensor of the model, or an input or an output, is float16."""
        graph = self.model.graph
        types = [tensor.data_type for tensor in graph.initializer]
        types += [each.type.tensor_type.elem_type for each in (*graph.input, *graph.output)]
        return TensorProto.FLOAT16 in types

    # ------------------------------------------------------------------ writing
    @staticmethod
    def save(
        model: ModelProto,
        output_path: str,
        save_as_external_data: bool = False,
        all_tensors_to_one_file: bool = True,
        size_threshold: int = 1024,
        convert_attribute: bool = False,
    ) -> None:
        """Write a model; large tensors into files beside it where that is asked for.

        Args:
            model: not changed.
            output_path: a file that exists is replaced, its external data, too.
            save_as_external_data: keep tensors in a file ``NAME.data``, or one file each.
            all_tensors_to_one_file: whether that is one file.
            size_threshold: of tensors that go there, in bytes.
            convert_attribute: move tensors of attributes, too.
        """
        Path(output_path).parent.mkdir(parents=True, exist_ok=True)
        write_proto(
            model, output_path, has_external_data=save_as_external_data, is_one_file=all_tensors_to_one_file,
            size_threshold=size_threshold, convert_attribute=convert_attribute,
        )  # fmt: skip

    def save_model_to_file(
        self,
        output_path: str,
        use_external_data_format: bool = False,
        all_tensors_to_one_file: bool = True,
        size_threshold: int = 1024,
        convert_attribute: bool = False,
    ) -> None:
        """Sort the nodes, remember who wrote the model, and write it; arguments are those of ``save``."""
        self.topological_sort()
        self.model.producer_name, self.model.producer_version = "ort-core.transformers", ort_core.__version__
        self.save(
            self.model, str(output_path), use_external_data_format, all_tensors_to_one_file, size_threshold,
            convert_attribute,
        )  # fmt: skip
        log.info("the model was written to %s", output_path)


def _keep(values: Any, wanted: Any) -> None:  # Any: a repeated field of any message, and a predicate on one of them
    for place in reversed(range(len(values))):
        if not wanted(values[place]):
            del values[place]
