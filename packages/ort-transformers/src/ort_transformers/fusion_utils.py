"""FusionUtils and NumpyHelper: small steps of programs' own fusions."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from ort_transformers.onnx_model import OnnxModel
from ort_transformers.shape_infer_helper import SymbolicShapeInferenceHelper

log = logging.getLogger(__name__)

_CASTS = {"int32": TensorProto.INT32, "float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}


class FusionUtils:
    """Changes of a model.

    Args:
        model: changed in place.
    """

    def __init__(self, model: OnnxModel) -> None:
        self.model = model

    # ------------------------------------------------------------------ casts
    def cast_graph_input_to_int32(self, input_name: str) -> tuple[bool, str]:
        """Return whether a Cast was put behind an input, and the value to read."""
        found = self.model.find_graph_input(input_name)
        if found is None or found.type.tensor_type.elem_type == TensorProto.INT32:
            return False, input_name
        return True, self.cast_input_to_int32(input_name)[0]

    def cast_input(self, input_name: str, target_type: str = "int32") -> tuple[str, NodeProto]:
        """Put a Cast behind a value; return the name of its output, and the node.

        Raises:
            ValueError: the type is none of int32, float32, float16.
        """
        if target_type not in _CASTS:
            raise ValueError(f"target_type is {target_type!r}; it is one of {', '.join(_CASTS)}")
        name = f"{input_name}_{target_type}"
        return name, self.add_cast_node(input_name, _CASTS[target_type], name)

    def add_cast_node(
        self,
        input_name: str,
        to_type: int,
        output_name: str | None = None,
        output_name_to_node: Mapping[str, NodeProto] | None = None,
        graph_name: str | None = None,
    ) -> NodeProto:
        """Put a Cast behind a value, or behind what is cast to it already; return the node."""
        makers = self.model.output_name_to_node() if output_name_to_node is None else output_name_to_node
        parent = makers.get(input_name)
        source = parent.input[0] if parent is not None and parent.op_type == "Cast" else input_name
        node = helper.make_node("Cast", [source], [output_name or f"{input_name}_cast_to_{to_type}"], to=to_type)
        self.model.add_node(node, graph_name)
        return node

    def cast_input_to_int32(self, input_name: str) -> tuple[str, NodeProto]:
        """Put a Cast to int32 behind a value; return the name of its output, and the node."""
        return self.cast_input(input_name, "int32")

    def remove_cast_int32(self, input_name: str) -> None:
        """Let all that reads a value cast to int32 read the value."""
        for node in list(self.model.input_name_to_nodes().get(input_name, [])):
            if node.op_type == "Cast" and self.check_node_attribute(node, "to", int(TensorProto.INT32)):
                self.model.remove_node(node)
                self.model.replace_input_of_all_nodes(node.output[0], input_name)

    # ------------------------------------------------------------------ edges
    @staticmethod
    def update_node_input(
        node: NodeProto, i: int, new_input_name: str, input_name_to_nodes: dict[str, list[NodeProto]]
    ) -> int:
        """Let a node read another value at a place; return how many other nodes read the old one."""
        readers = input_name_to_nodes.get(node.input[i], [])
        others = 0
        if node in readers:
            readers.remove(node)
            others = len(readers)
        node.input[i] = new_input_name
        input_name_to_nodes.setdefault(new_input_name, []).append(node)
        return others

    @staticmethod
    def skip_parent(
        model: OnnxModel,
        node: NodeProto,
        parent_node: NodeProto,
        input_name_to_nodes: dict[str, list[NodeProto]],
        node_input_index: int = 0,
        parent_input_index: int = 0,
    ) -> bool:
        """Let a node read what its parent reads; return whether nothing needs the parent any more."""
        name = node.input[node_input_index]
        source = parent_node.input[parent_input_index]
        others = FusionUtils.update_node_input(node, node_input_index, source, input_name_to_nodes)
        return others == 0 and model.find_graph_output(name) is None

    # ------------------------------------------------------------------ what a node says
    def get_squeeze_or_unsqueeze_axes(self, node: NodeProto) -> Any:
        """Return the axes of a Squeeze or Unsqueeze, an attribute before opset 13; ``None`` where they are not known.

        Raises:
            ValueError: the node is another operator.
        """
        if node.op_type not in ("Squeeze", "Unsqueeze"):
            raise ValueError(f"node {node.name!r} is a {node.op_type}, not a Squeeze or Unsqueeze")
        if len(node.input) > 1:
            return self.model.get_constant_value(node.input[1])
        return self.model.get_node_attribute(node, "axes")

    @staticmethod
    def check_node_attribute(
        node: NodeProto, attribute_name: str, expected_value: Any, default_value: Any = None
    ) -> bool:
        """Return whether an attribute has a value; a list is compared element by element."""
        found = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        return _is_same(found.get(attribute_name, default_value), expected_value)

    def check_node_input_value(self, node: NodeProto, input_index: int, expected_value: Any) -> bool:
        """Return whether an input is a constant with a value; a list is compared element by element."""
        return _is_same(self.model.get_constant_value(node.input[input_index]), expected_value)

    @staticmethod
    def transpose_2d_int8_tensor(tensor: TensorProto) -> TensorProto:
        """Transpose the bytes of a matrix of int8, whose ``dims`` stay as they were; return it.

        Raises:
            TypeError: it is no tensor.
            ValueError: it is no matrix of int8 with raw bytes.
        """
        if not isinstance(tensor, TensorProto):
            raise TypeError(f"expected a TensorProto, got {type(tensor).__name__}")
        if len(tensor.dims) != 2 or tensor.data_type != TensorProto.INT8 or not tensor.raw_data:
            raise ValueError(f"{tensor.name!r} is no matrix of int8 with raw bytes")
        tensor.raw_data = np.frombuffer(tensor.raw_data, np.int8).reshape(tensor.dims).T.tobytes()
        return tensor

    @staticmethod
    def check_qdq_node_for_fusion(
        node: NodeProto, model: OnnxModel, allow_per_tensor_quantization_only: bool = True
    ) -> bool:
        """Return whether a QuantizeLinear or DequantizeLinear has a constant scale and zero points of 0."""
        scale = model.get_constant_value(node.input[1])
        if scale is None or (allow_per_tensor_quantization_only and scale.size != 1):
            return False
        if len(node.input) == 2:
            return True
        zero_point = model.get_constant_value(node.input[2])
        return zero_point is not None and zero_point.ndim == scale.ndim and not np.any(zero_point)

    # ------------------------------------------------------------------ nodes that change nothing
    def remove_identity_nodes(self) -> None:
        """Remove each Identity that is not an output of the model."""
        outputs = set(self.model.get_graphs_output_names())
        gone = [node for node in self.model.get_nodes_by_op_type("Identity") if node.output[0] not in outputs]
        for node in gone:
            self.model.replace_input_of_all_nodes(node.output[0], node.input[0])
        self.model.remove_nodes(gone)

    def remove_cascaded_cast_nodes(self) -> None:
        """Let a Cast that reads a widening Cast read what that one reads."""
        self.model.remove_cascaded_cast_nodes()

    def remove_useless_cast_nodes(self) -> None:
        """Remove each Cast to the type that its input is known to have."""
        self.model.remove_useless_cast_nodes()

    def remove_useless_reshape_nodes(self) -> None:
        """Remove each Reshape to the shape that its input is known to have, unless it is an output of the model."""
        shapes = SymbolicShapeInferenceHelper(self.model.model)
        shapes.infer({})
        outputs = set(self.model.get_graphs_output_names())
        for node in self.model.get_nodes_by_op_type("Reshape"):
            before, after = shapes.get_edge_shape(node.input[0]), shapes.get_edge_shape(node.output[0])
            if before is None or None in before or before != after or node.output[0] in outputs:
                continue
            self.model.replace_input_of_all_nodes(node.output[0], node.input[0])
            self.model.remove_node(node)


def _is_same(found: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return isinstance(found, (np.ndarray, list)) and bool(np.array_equal(expected, found))
    return bool(np.all(found == expected)) if isinstance(found, np.ndarray) else found == expected


class NumpyHelper:
    """Tensors as arrays."""

    @staticmethod
    def to_array(tensor: TensorProto, fill_zeros: bool = False) -> np.ndarray:
        """Return the values; zeros of its shape where ``fill_zeros``, for weights that are not there."""
        if fill_zeros:
            return np.zeros(tuple(tensor.dims), helper.tensor_dtype_to_np_dtype(tensor.data_type))
        return numpy_helper.to_array(tensor)
