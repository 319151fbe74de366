"""ModelValues: what is known of values: constants, element types and shapes; and which tensors are equal."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, TypeProto, ValueInfoProto, helper, numpy_helper

from ort_transformers.graphs.model_paths import ModelPaths

FACTOR_DELTA = 1e-6  # constants of exporters are rounded to float32


class ModelValues(ModelPaths):
    """A model that is asked about its values."""

    def get_constant_value(self, output_name: str) -> np.ndarray | None:
        """Return what a Constant or an initializer gives, ``None`` where a name is neither's."""
        for node in self.get_nodes_by_op_type("Constant"):
            if output_name in node.output:
                return _constant_of(node)
        tensor = self.get_initializer(output_name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def get_constant_input(self, node: NodeProto) -> tuple[int | None, np.ndarray | None]:
        """Return the place and the contents of the first constant that a node reads."""
        for place, name in enumerate(node.input):
            found = self.get_constant_value(name)
            if found is not None:
                return place, found
        return None, None

    def find_constant_input(self, node: NodeProto, expected_value: float, delta: float = FACTOR_DELTA) -> int:
        """Return the place of the constant that a node reads where it is one number near ``expected_value``, or -1."""
        place, found = self.get_constant_input(node)
        if place is None or found is None or found.size != 1:
            return -1
        return place if abs(float(found.reshape(-1)[0]) - expected_value) < delta else -1

    def has_constant_input(self, node: NodeProto, expected_value: float, delta: float = FACTOR_DELTA) -> bool:
        """Return whether a node reads a constant of one number near ``expected_value``."""
        return self.find_constant_input(node, expected_value, delta) >= 0

    def is_constant_with_specified_dimension(self, output_name: str, dimensions: int, description: str) -> bool:
        """Return whether a value is a constant with that many axes; ``description`` is onnxruntime's, for its log."""
        found = self.get_constant_value(output_name)
        return found is not None and found.ndim == dimensions

    def tensor_shape_to_list(self, tensor_type: TypeProto.Tensor) -> list[int | str]:
        """Return the sizes of a type: a number, a name, or ``"?"``."""
        return [
            size.dim_value if size.HasField("dim_value") else size.dim_param if size.HasField("dim_param") else "?"
            for size in tensor_type.shape.dim
        ]

    def _type_of(self, name: str) -> TypeProto.Tensor | None:
        graph = self.model.graph
        for values in (graph.value_info, graph.input, graph.output):
            for each in values:
                if each.name == name and each.type.HasField("tensor_type"):
                    return each.type.tensor_type
        return None

    def get_dtype(self, name: str, symbolic_shape_helper: Any = None) -> int | None:  # Any: a helper of onnxruntime
        """Return the element type of a value as ONNX's number, ``None`` where it is not known."""
        tensor = self.get_initializer(name)
        if tensor is not None:
            return tensor.data_type
        found = self._type_of(name)
        return None if found is None else found.elem_type

    def get_shape(self, name: str, symbolic_shape_helper: Any = None) -> list[int | str] | None:  # Any: as above
        """Return the sizes of a value, ``None`` where they are not known."""
        tensor = self.get_initializer(name)
        if tensor is not None:
            return list(tensor.dims)
        found = self._type_of(name)
        return None if found is None or not found.HasField("shape") else self.tensor_shape_to_list(found)

    @staticmethod
    def get_node_attribute(node: NodeProto, attribute_name: str) -> Any:  # Any: whatever the attribute holds
        """Return an attribute of a node, ``None`` where it has none of that name."""
        found = next((each for each in node.attribute if each.name == attribute_name), None)
        return None if found is None else helper.get_attribute_value(found)

    # ------------------------------------------------------------------ equal tensors
    @staticmethod
    def to_data_hash(tensor: TensorProto, base_dir: str = "") -> int:
        """Return a number that equal contents share; ``base_dir`` is where external data lies."""
        array = numpy_helper.to_array(tensor, base_dir)
        facts = f"{array.dtype}{array.shape}".encode()
        return int.from_bytes(hashlib.sha256(facts + array.tobytes()).digest()[:8], "big")

    @staticmethod
    def has_same_value(
        tensor1: TensorProto,
        tensor2: TensorProto,
        signature_cache1: dict[str, int] | None = None,
        signature_cache2: dict[str, int] | None = None,
        rtol: float = 1e-5,
        atol: float = 1e-8,
    ) -> bool:
        """Return whether two tensors have one type, one shape and the same numbers; caches keep hashes by name."""
        if tensor1.data_type != tensor2.data_type or list(tensor1.dims) != list(tensor2.dims):
            return False
        if _hash(tensor1, signature_cache1) == _hash(tensor2, signature_cache2):
            return True
        first, second = numpy_helper.to_array(tensor1), numpy_helper.to_array(tensor2)
        if first.dtype.kind in "OSU":
            return bool(np.array_equal(first, second))
        return bool(np.allclose(first, second, rtol=rtol, atol=atol))

    def remove_duplicated_initializer(self, cache: dict[str, int] | None = None) -> None:
        """Let readers of equal tensors of the main graph read the first of them; ``cache`` keeps hashes by name."""
        kept: dict[tuple[int, tuple[int, ...], int], str] = {}
        renamed: dict[str, str] = {}
        public = {each.name for each in (*self.model.graph.input, *self.model.graph.output)}
        for tensor in self.model.graph.initializer:
            if tensor.name in public:
                continue
            key = (tensor.data_type, tuple(tensor.dims), _hash(tensor, cache))
            first = kept.setdefault(key, tensor.name)
            if first != tensor.name:
                renamed[tensor.name] = first
        for node in self.nodes():
            node.input[:] = [renamed.get(name, name) for name in node.input]
        for place in reversed(range(len(self.model.graph.initializer))):
            if self.model.graph.initializer[place].name in renamed:
                del self.model.graph.initializer[place]

    # ------------------------------------------------------------------ types of inputs and outputs
    def change_graph_input_type(self, graph_input: ValueInfoProto, new_type: int) -> tuple[NodeProto | None, list[str]]:
        """Give an input another element type, with a Cast behind it.

        Returns:
            The Cast, ``None`` where the type was that already, and the names that readers had read.
        """
        old_type = graph_input.type.tensor_type.elem_type
        if old_type == new_type:
            return None, []
        name = graph_input.name
        cast_name = self.create_node_name("Cast")
        self.replace_input_of_all_nodes(name, cast_name)
        cast = helper.make_node("Cast", [name], [cast_name], cast_name, to=old_type)
        self.model.graph.node.insert(0, cast)
        graph_input.type.tensor_type.elem_type = new_type
        return self.model.graph.node[0], [name]

    def change_graph_output_type(self, graph_output: ValueInfoProto, new_type: int) -> NodeProto | None:
        """Give an output another element type, with a Cast in front of it, and return that."""
        old_type = graph_output.type.tensor_type.elem_type
        if old_type == new_type:
            return None
        name = graph_output.name
        cast_name = self.create_node_name("Cast")
        self.replace_input_of_all_nodes(name, cast_name)
        self.replace_output_of_all_nodes(name, cast_name)
        self.add_node(helper.make_node("Cast", [cast_name], [name], cast_name, to=new_type))
        graph_output.type.tensor_type.elem_type = new_type
        return self.model.graph.node[-1]


def _constant_of(node: NodeProto) -> np.ndarray | None:
    for each in node.attribute:
        if each.name == "value":
            return numpy_helper.to_array(each.t)
        if each.name in ("value_float", "value_int", "value_floats", "value_ints"):
            dtype = np.float32 if "float" in each.name else np.int64
            return np.array(helper.get_attribute_value(each), dtype)
    return None


def _hash(tensor: TensorProto, cache: dict[str, int] | None) -> int:
    if cache is None:
        return ModelValues.to_data_hash(tensor)
    if tensor.name not in cache:
        cache[tensor.name] = ModelValues.to_data_hash(tensor)
    return cache[tensor.name]
