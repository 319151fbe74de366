"""Writes models with quantized operators: parameters found while the model runs, or by calibration before.

Each node of a graph is handed, in order, to the writer of its operator. A writer asks for quantized inputs, adds its
own nodes and says which quantized value stands for each result. Whoever reads a result in float gets a
DequantizeLinear before it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from ort_core.lazy_names import lazy_names
from ort_core.model_graphs import graphs_of, reads_in_order, reads_of
from ort_quantization.base_quantizer import BaseQuantizer, widened_weight_scale
from ort_quantization.calibration.tensor_ranges import TensorData, TensorsData
from ort_quantization.errors import InvalidQuantization
from ort_quantization.models.model_files import FIRST_OPSET_OF_CHANNELS, INFERRED, mark, read_tensor, with_shapes
from ort_quantization.models.node_order import name_apart
from ort_quantization.onnx_model import ONNXModel
from ort_quantization.quantized_types import MICROSOFT, QuantizationMode, QuantizedValueType, QuantType
from ort_quantization.quantizers.chosen_tensors import overrides_within
from ort_quantization.quantizers.operator_calls import OperatorCalls
from ort_quantization.quantizers.quantized_tensors import parameter_tensors, quantized_tensor
from ort_quantization.quantizers.quantized_values import QuantizedValue
from ort_quantization.quantizers.scales import Parameters
from ort_quantization.tensor_quant_overrides import Override, TensorQuantOverridesHelper

log = logging.getLogger(__name__)

PRODUCER = "ort-quantization"


class ONNXQuantizer(OperatorCalls, BaseQuantizer):
    """Writes a model with quantized operators; see ``BaseQuantizer`` for what it is given.

    Args:
        mode: integer products with parameters found while the model runs, or operators with given parameters.
        static: whether parameters of activations come from calibration.
    """

    def __init__(
        self, model: ModelProto | ONNXModel, per_channel: bool, reduce_range: bool,
        mode: QuantizationMode, static: bool,
        weight_qType: QuantType | int, activation_qType: QuantType | int,  # noqa: N803 - onnxruntime's names
        tensors_range: TensorsData | Mapping[str, TensorData] | None,
        nodes_to_quantize: Iterable[str] | None, nodes_to_exclude: Iterable[str] | None,
        op_types_to_quantize: Iterable[str], extra_options: dict[str, Any] | None = None,  # Any: see BaseQuantizer
    ) -> None:  # fmt: skip
        super().__init__(
            model, per_channel, reduce_range, weight_qType, activation_qType, tensors_range, nodes_to_quantize,
            nodes_to_exclude, op_types_to_quantize, extra_options,
        )  # fmt: skip
        self.mode, self.static = mode, static
        if not static:
            self._take_gemms()
        self.fuse_dynamic_quant = self.opset_version > 10
        self.q_matmul_const_b_only = bool(self.extra_options.get("MatMulConstBOnly", False))
        self.new_nodes: list[NodeProto] = []
        self.quantized_value_map: dict[str, QuantizedValue] = {}
        self._biases: dict[tuple[str, str, str, tuple[float, float]], str] = {}
        self._copies: dict[tuple[str, int | None], QuantizedValue] = {}
        self.generated_value_names = self.model.get_non_initializer_inputs()
        self._given = {name for node in self.model.nodes() for name in node.output}
        self._given |= {each.name for each in (*self.model.graph().input, *self.model.graph().output)}
        self.quantization_params = self.calculate_quantization_params()

    def should_quantize_node(self, node: NodeProto) -> bool:
        """Return whether a node was chosen, and, with given parameters, reads and gives what these operators take."""
        if not super().should_quantize_node(node):
            return False
        return not self.static or all(self.element_type(name) != TensorProto.FLOAT16 for name in _around(node))

    def _take_gemms(self) -> None:
        """Write Gemms as MatMul and Add; choices for a weight hold for its transposed form."""
        overrides = TensorQuantOverridesHelper(dict(self.tensor_quant_overrides.get_dict()))
        for name, source in self.model.replace_gemm_with_matmul().items():
            if source in overrides:
                overrides[name] = [_turned(each) for each in overrides[source]]
        self.tensor_quant_overrides = overrides
        self.model = ONNXModel(with_shapes(self.model.model, self.model.folder), self.model.folder)
        self.read_value_infos()

    def calculate_quantization_params(self) -> dict[str, Parameters] | None:
        """Return what each calibrated value is quantized by, ``None`` without calibration."""
        if self.tensors_range is None:
            return None
        self.adjust_tensor_ranges()
        ranges = {name: data for name, data in self.tensors_range.items() if name not in self.values_in_reals}
        return {name: self.activation_parameters(name, data) for name, data in ranges.items()}

    # ------------------------------------------------------------------ the whole model
    def has_QDQ_nodes(self) -> bool:  # noqa: N802 - onnxruntime's name
        """Return whether nodes of the model quantize or dequantize already."""
        return any(node.op_type in ("QuantizeLinear", "DequantizeLinear") for node in self.model.nodes())

    def quantize_model(self) -> ModelProto:
        """Quantize the model in place and return it.

        Raises:
            InvalidQuantization: a node cannot be quantized as asked, or reads what nothing gives.
        """
        from ort_quantization.registry import CreateOpQuantizer

        for node in list(self.model.nodes()):
            whole = self.quantize_node_with_sub_graph(node) if self.enable_subgraph_quantization else _copied(node)
            CreateOpQuantizer(self, whole).quantize()
        self._dequantize_outputs()
        graph = self.model.graph()
        del graph.node[:]
        graph.node.extend(_read_nodes(self.new_nodes, graph) if self.parent is None else self.new_nodes)
        if self.parent is None:
            self._finish()
        return self.model.model

    def _finish(self) -> None:
        _, missing = self.model.clean_initializers()
        if missing:
            raise InvalidQuantization(f"the model reads what nothing gives: {', '.join(sorted(missing))}")
        model = self.model.model
        name_apart(model.graph)  # a model that was quantized before has nodes called as those that are added
        model.producer_name, model.producer_version = PRODUCER, "0.1.0"
        imported = {each.domain for each in model.opset_import}
        if MICROSOFT not in imported and MICROSOFT in _domains(model.graph):
            model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))

    def with_quantized_graphs(self, node: NodeProto) -> NodeProto:
        """Return a copy of a node whose graphs are quantized."""
        whole = _copied(node)
        for attribute in whole.attribute:
            graphs = [attribute.g] if attribute.type == AttributeProto.GRAPH else list(attribute.graphs)
            for graph in graphs:
                graph.CopyFrom(self.quantize_subgraph(graph, f"{node.name}:{attribute.name}"))
        return whole

    def quantized_graph(self, graph: GraphProto) -> GraphProto:
        """Return a node's graph, quantized."""
        imports = self.model.model.opset_import
        wrapped = helper.make_model(graph, opset_imports=imports)
        mark(wrapped, INFERRED)
        chosen = overrides_within(self.tensor_quant_overrides, graph)
        options = {**self.extra_options, "TensorQuantOverrides": chosen}
        inner = ONNXQuantizer(
            ONNXModel(wrapped, self.model.folder), self.per_channel, self.reduce_range, self.mode, self.static,
            self.weight_qType, self.activation_qType, self.tensors_range, self.nodes_to_quantize,
            self.nodes_to_exclude, self.op_types_to_quantize, options,
        )  # fmt: skip
        inner.parent = self
        return inner.quantize_model().graph

    # ------------------------------------------------------------------ what writers ask for
    def find_initializer_in_path(self, initializer_name: str) -> bool:
        """Return whether a value is an initializer of this graph or of one around it."""
        if self.is_input_a_initializer(initializer_name):
            return True
        return isinstance(self.parent, ONNXQuantizer) and self.parent.find_initializer_in_path(initializer_name)

    def find_quantized_value(self, input_name: str) -> QuantizedValue | None:
        """Return the quantized form that a value has, here or in a graph around this."""
        if input_name in self.quantized_value_map:
            return self.quantized_value_map[input_name]
        return self.parent.find_quantized_value(input_name) if isinstance(self.parent, ONNXQuantizer) else None

    def add(self, *nodes: NodeProto) -> None:
        """Add nodes to the quantized graph."""
        self.new_nodes += nodes
        self.generated_value_names.update(name for node in nodes for name in node.output)

    def keep(self, node: NodeProto) -> None:
        """Add a node as it is; what it reads, its graphs' captured values too, is given in float before it."""
        for name in reads_in_order(node):
            self.dequantize(name)
        self.add(node)

    def dequantize(self, name: str) -> None:
        """Give a value in float, if nothing has given it yet and it has a quantized form in this graph.

        A weight with a scale for each channel stays beside its integers where DequantizeLinear has no axis yet.
        """
        value = self.quantized_value_map.get(name)
        if value is None or name in self.generated_value_names:
            return
        if value.axis is not None and self.opset_version < FIRST_OPSET_OF_CHANNELS:
            return
        node = helper.make_node("DequantizeLinear", value.inputs, [name], f"{name}_DequantizeLinear")
        if value.axis is not None:
            node.attribute.append(helper.make_attribute("axis", value.axis))
        self.add(node)

    def state(self, name: str, value: QuantizedValue) -> QuantizedValue:
        """Say which quantized value stands for a result."""
        self.quantized_value_map[name] = value
        return value

    def output_parameters(
        self, name: str, scale: float | None = None, zero_point: int | None = None
    ) -> tuple[str, str] | None:
        """Return the names of a calibrated value's scale and zero point, ``None`` where it was not calibrated.

        Args:
            name: of the value.
            scale: instead of the calibrated one.
            zero_point: instead of the calibrated one.
        """
        found = (self.quantization_params or {}).get(name)
        if found is None:
            return None
        if scale is not None and zero_point is not None:
            point = np.asarray(zero_point).astype(found.zero_point.dtype)
            found = Parameters(np.asarray(scale, found.scale.dtype), point, found.tensor_type)
        names = f"{name}_scale", f"{name}_zero_point"
        for tensor in reversed(parameter_tensors(found, *names)):
            self.model.add_initializer(tensor)
        return names

    def quantized_input(self, name: str) -> QuantizedValue | None:
        """Return the quantized form of an input that is no weight; it gets one if it has none.

        Returns:
            ``None`` where the value was not calibrated.

        Raises:
            InvalidQuantization: nothing in the model gives the value.
        """
        return self._quantized(name, is_weight=False, is_reduced=False, axis=None)

    def quantized_inputs(self, names: Iterable[str]) -> list[QuantizedValue] | None:
        """Return the quantized forms of inputs, ``None`` where one was not calibrated; empty names stay empty."""
        found = [self.quantized_input(name) if name else QuantizedValue("", "", "", "") for name in names]
        return None if any(each is None for each in found) else [each for each in found if each is not None]

    def quantized_weight(self, name: str, is_reduced: bool, axis: int | None = None) -> QuantizedValue | None:
        """Return the quantized form of an input that takes part as a weight, whether it is an initializer or not.

        Args:
            name: of the value.
            is_reduced: the operator wants one bit less where the caller has allowed it.
            axis: of channels, for operators that take a scale for each.
        """
        return self._quantized(name, is_weight=True, is_reduced=is_reduced, axis=axis)

    def _quantized(self, name: str, is_weight: bool, is_reduced: bool, axis: int | None) -> QuantizedValue | None:
        tensor = self.model.get_initializer(name)
        if tensor is None and name in self.quantized_value_map:
            return self.quantized_value_map[name]
        if tensor is not None:
            kind = self.weight_qType if is_weight else self.activation_qType
            if self.per_channel and axis is not None:
                return self.quantize_channels(name, kind, axis, is_reduced)
            return self.stored_initializer(tensor, kind, is_reduced)
        if name in self._given or name in self.value_infos or name in self.generated_value_names:
            return self._quantized_activation(name)
        if isinstance(self.parent, ONNXQuantizer):
            return self.parent._quantized(name, is_weight, is_reduced, axis)
        raise InvalidQuantization(f"the model reads {name!r}, which nothing gives")

    def _quantized_activation(self, name: str) -> QuantizedValue | None:
        quantized, node_name = f"{name}_quantized", f"{name}_QuantizeLinear"
        calibrated = self.output_parameters(name)
        if calibrated is None and self.static:
            return None
        if calibrated is None and self.fuse_dynamic_quant and self.activation_qType == TensorProto.UINT8:
            value = QuantizedValue(name, quantized, f"{name}_scale", f"{name}_zero_point")
            self.add(helper.make_node("DynamicQuantizeLinear", [name], value.inputs, node_name))
        else:
            if calibrated is None:
                nodes: list[NodeProto] = []
                kind = self.element_type(name) or TensorProto.FLOAT
                scale, point, *_ = self._get_dynamic_input_quantization_params(name, nodes, self.activation_qType, kind)
                self.add(*nodes)
                calibrated = scale, point
            value = QuantizedValue(name, quantized, *calibrated)
            self.add(helper.make_node("QuantizeLinear", [name, *calibrated], [quantized], node_name))
        return self.state(name, value)

    # ------------------------------------------------------------------ weights
    def stored_initializer(
        self, tensor: TensorProto, kind: int, is_reduced: bool = False, has_values: bool = True
    ) -> QuantizedValue:
        """Return the quantized form of an initializer, with one scale; without values only the scale is written."""
        known = self._known(tensor.name, None)
        if known is not None:
            return known
        is_symmetric = self.is_weight_symmetric(kind) if kind == self.weight_qType else self.is_activation_symmetric
        found = self.weight_parameters(tensor.name, kind, self.reduce_range and is_reduced, is_symmetric)
        return self.store(tensor.name, found, has_values)

    def quantize_channels(
        self, name: str, kind: int, axis: int, is_reduced: bool = True, has_values: bool = True
    ) -> QuantizedValue:
        """Return the quantized form of an initializer, with a scale for each channel."""
        rank = self.rank_of(name)
        known = self._known(name, axis % rank if rank else axis)
        if known is not None:
            return known
        found = self.channel_parameters(name, kind, axis, self.reduce_range and is_reduced)
        return self.store(name, found, has_values)

    def _known(self, name: str, axis: int | None) -> QuantizedValue | None:
        """Return the quantized form that an initializer has for readers with their channels along an axis.

        One scale suits all readers, scales along an axis only those that expect them there: weights that are shared by
        operators of different layouts have a form for each.
        """
        first = self.quantized_value_map.get(name)
        return first if first is None or first.axis in (None, axis) else self._copies.get((name, axis))

    def store(self, name: str, found: Parameters, has_values: bool = True) -> QuantizedValue:
        """Add an initializer's quantized form to the model; a second one under another name."""
        is_first = name not in self.quantized_value_map
        stem = name if is_first else f"{name}_axis_{'none' if found.axis is None else found.axis}"
        value = QuantizedValue(
            name, f"{stem}_quantized", f"{stem}_scale", f"{stem}_zero_point", QuantizedValueType.Initializer, found.axis
        )
        tensor = self.model.get_initializer(name)
        if tensor is None:
            raise InvalidQuantization(f"{name!r} is no initializer of the graph")
        self.model.initializer_extend(parameter_tensors(found, value.scale_name, value.zp_name))
        if has_values:
            kept = quantized_tensor(read_tensor(tensor, self.model.folder), found, value.q_name)
            self.model.initializer_extend([kept])
        self._copies[name, found.axis] = value
        return self.state(name, value) if is_first else value

    def stored_bias(
        self, bias_name: str, value: QuantizedValue, weight: QuantizedValue, factors: tuple[float, float] = (1.0, 1.0)
    ) -> str:
        """Return the name of a bias in 32 bits, at the product of the scales of input and weights.

        Args:
            bias_name: of the bias, which other nodes may read with other scales.
            value: what is multiplied.
            weight: by which weights.
            factors: of the products (alpha) and of the bias (beta).
        """
        key = (bias_name, value.scale_name, weight.scale_name, factors)
        if key in self._biases:
            return self._biases[key]
        input_scale, weight_scale = self.array_of(value.scale_name), self.array_of(weight.scale_name)
        if self.weight_qType == TensorProto.INT8 and not self._integers(weight.zp_name).any():
            needed = self.array_of(bias_name) * (factors[1] / (factors[0] or 1.0))
            weight_scale, has_grown = widened_weight_scale(needed, input_scale, weight_scale, bias_name)
            if has_grown:
                self.quantize_again(weight.original_name, weight, weight_scale)
        found, tensor = self.bias_tensors(bias_name, input_scale, weight_scale, factors)
        if self.is_input_a_initializer(tensor.name):  # another node reads it with other scales
            tensor.name += f"_{len(self._biases)}"
        stored = Parameters(found.scale.reshape(-1), found.zero_point, found.tensor_type, 0)
        names = f"{tensor.name}_scale", f"{tensor.name}_zero_point"
        self.model.initializer_extend([tensor, *parameter_tensors(stored, *names)])
        self.quantized_value_map.setdefault(
            bias_name, QuantizedValue(bias_name, tensor.name, *names, QuantizedValueType.Initializer, found.axis)
        )
        self._biases[key] = tensor.name
        return tensor.name

    def _integers(self, name: str) -> np.ndarray:
        tensor = self.model.get_initializer(name)
        return np.ones(1) if tensor is None else numpy_helper.to_array(tensor)

    def quantize_again(self, name: str, value: QuantizedValue, scale: np.ndarray) -> None:
        """Replace a weight's quantized form by one with another scale."""
        gone = [self.model.get_initializer(each) for each in (value.scale_name, value.q_name)]
        self.model.remove_initializers([each for each in gone if each is not None])
        weight = self.model.get_initializer(name)
        if weight is None:
            return
        weight = read_tensor(weight, self.model.folder)
        parameters = Parameters(scale, self._integers(value.zp_name), self.weight_qType, value.axis)
        self.model.add_initializer(numpy_helper.from_array(scale, value.scale_name))
        self.model.add_initializer(quantized_tensor(weight, parameters, value.q_name))


def _copied(node: NodeProto) -> NodeProto:
    copied = NodeProto()
    copied.CopyFrom(node)
    return copied


def _turned(chosen: Override) -> Override:
    """Return choices for a matrix as they hold for its transposed form."""
    return {**chosen, "axis": 1 - chosen["axis"] % 2} if "axis" in chosen else chosen


def _read_nodes(nodes: list[NodeProto], graph: GraphProto) -> list[NodeProto]:
    """Return nodes without those that only quantize or dequantize what nothing reads."""
    kept: list[NodeProto] = []
    read = {each.name for each in graph.output}
    for node in reversed(nodes):
        is_boundary = node.op_type in ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
        if is_boundary and not read.intersection(node.output):
            continue
        read |= reads_of(node)
        kept.append(node)
    return kept[::-1]


def _domains(graph: GraphProto) -> set[str]:
    return {node.domain for each in graphs_of(graph) for node in each.node}


def _around(node: NodeProto) -> list[str]:
    return [name for name in (*node.input, *node.output) if name]


__getattr__, _ = lazy_names(  # what programs import from here, as onnxruntime's module imports it
    __name__,
    {
        "ort_quantization.quantizers.qdq_records": ("QuantizationParams",),
        "ort_quantization.quant_utils": (
            "TENSOR_NAME_QUANT_SUFFIX", "add_infer_metadata", "attribute_to_kwarg", "compute_scale_zp",
            "compute_scale_zp_float8", "find_by_name", "get_qmin_qmax_for_qType", "get_qrange_for_qType", "ms_domain",
            "quantize_onnx_initializer", "save_and_reload_model_with_shape_infer", "snap_zero_point_to_uint8",
            "tensor_proto_to_array",
        ),
        "ort_quantization.registry": (
            "CreateOpQuantizer",
        ),
    },
)  # fmt: skip
