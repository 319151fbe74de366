"""DynamoOnnxHelper: what programs do to models of torch's dynamo exporter: functions, constants and names in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from ort_transformers.onnx_model import OnnxModel


class DynamoOnnxHelper:
    """A model of the dynamo exporter.

    Args:
        model: changed in place; ``self.model`` is it as an OnnxModel.
    """

    def __init__(self, model: ModelProto) -> None:
        self.model = OnnxModel(model)

    def update_edges(self, edge_mapping: Mapping[str, str]) -> None:
        """Rename values of the main graph."""
        graph = self.model.model.graph
        for node in graph.node:
            for names in (node.input, node.output):
                names[:] = [edge_mapping.get(name, name) for name in names]
        for values in (graph.input, graph.output, graph.value_info, graph.initializer):
            for each in values:
                each.name = edge_mapping.get(each.name, each.name)

    def unroll_function(self, func_name: str) -> None:
        """Put the nodes of a function in the place of its calls; a function of that name must exist.

        Raises:
            ValueError: the model has no such function, or its calls have attributes.
        """
        functions = [each for each in self.model.model.functions if each.name == func_name]
        if not functions:
            raise ValueError(f"the model has no function {func_name!r}")
        function, graph = functions[0], self.model.model.graph
        calls = [node for node in graph.node if node.op_type == func_name and node.domain == function.domain]
        for number, call in enumerate(calls):
            if call.attribute or function.attribute:
                raise ValueError(f"the call {call.name!r} of {func_name!r} has attributes, which cannot be unrolled")
            names = dict(zip(function.input, call.input, strict=False))
            names |= dict(zip(function.output, call.output, strict=False))
            for inner in function.node:
                graph.node.append(_renamed(inner, names, f"{func_name}_{number}_"))
            graph.node.remove(call)
        self.model.model.functions.remove(function)
        self.model.topological_sort()

    def remove_function(self, func_name: str, input_id: int, output_id: int) -> None:
        """Let readers of one output of each call read one of its inputs, and remove the calls."""
        for node in [each for each in self.model.model.graph.node if each.op_type == func_name]:
            self.model.replace_input_of_all_nodes(node.output[output_id], node.input[input_id])
            self.model.model.graph.node.remove(node)
        for function in [each for each in self.model.model.functions if each.name == func_name]:
            self.model.model.functions.remove(function)

    def remove_dropout_layer(self) -> None:
        """Remove calls of the exporter's dropout functions."""
        names = {node.op_type for node in self.model.model.graph.node if "dropout" in node.op_type.lower()}
        for name in sorted(names):
            self.remove_function(name, 0, 0)

    def remove_lm_head_layer(self) -> None:
        """Let the input of the exporter's last linear layer be the output of the graph."""
        graph = self.model.model.graph
        for node in [each for each in graph.node if "Linear_lm_head" in each.op_type]:
            result, hidden = node.output[0], node.input[2] if len(node.input) > 2 else node.input[0]
            graph.node.remove(node)
            for each in graph.output:
                if each.name == result:
                    each.name = hidden

    def add_initializer(self, name: str, data_type: int, dims: Sequence[int], vals: Any, raw: bool = True) -> None:
        """Add a tensor; ``vals`` are its bytes, an array, or with ``raw`` false numbers."""
        if raw:
            dtype = helper.tensor_dtype_to_np_dtype(data_type)
            content = vals if isinstance(vals, bytes) else np.asarray(vals, dtype).tobytes()
            tensor = helper.make_tensor(name, data_type, dims, content, raw=True)
        else:
            tensor = helper.make_tensor(name, data_type, dims, vals)
        self.model.add_initializer(tensor)

    def convert_constants_to_initializers(self, min_size: int = 1) -> None:
        """Make initializers of Constant nodes of the main graph with at least ``min_size`` elements."""
        graph = self.model.model.graph
        for place in reversed(range(len(graph.node))):
            node = graph.node[place]
            array = self.model.get_constant_value(node.output[0]) if node.op_type == "Constant" else None
            if array is None or array.size < min_size:
                continue
            graph.initializer.append(numpy_helper.from_array(array, node.output[0]))
            del graph.node[place]

    def clear_metadata(self) -> None:
        """Remove the notes that the exporter left at nodes."""
        for graph in self.model.graphs():
            for node in graph.node:
                del node.metadata_props[:]

    @staticmethod
    def fold_transpose_initializers(model: ModelProto) -> None:
        """Turn tensors of float32 that only a Transpose reads, in place of it."""
        wrapped = OnnxModel(model)
        for node in [each for each in model.graph.node if each.op_type == "Transpose"]:
            tensor = next((each for each in model.graph.initializer if each.name == node.input[0]), None)
            if tensor is None or tensor.data_type != TensorProto.FLOAT:
                continue
            perm = wrapped.get_node_attribute(node, "perm")
            turned = np.ascontiguousarray(np.transpose(numpy_helper.to_array(tensor), perm))
            name = f"{tensor.name}_transposed_{node.output[0]}"
            model.graph.initializer.append(numpy_helper.from_array(turned, name))
            wrapped.replace_input_of_all_nodes(node.output[0], name)
            model.graph.node.remove(node)
        wrapped.update_graph()


def _renamed(node: NodeProto, names: Mapping[str, str], prefix: str) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.name = prefix + node.name
    for values in (copy.input, copy.output):
        values[:] = [names.get(name, prefix + name) if name else name for name in values]
    if any(each.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for each in node.attribute):
        raise ValueError(
            f"node {node.name!r} ({node.op_type}) of the function has graphs inside: it cannot be unrolled"
        )
    return copy
