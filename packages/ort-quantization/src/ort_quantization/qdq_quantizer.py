"""Writes models in the QDQ format: operators in float, with QuantizeLinear and DequantizeLinear between them.

Before:  Y = Conv(X, W, B)
After:   X_q = QuantizeLinear(X);  Y = Conv(DequantizeLinear(X_q), DequantizeLinear(W_quantized), ...)

Operators first mark what is quantized around them, and how: by parameters of its own, by those of another value, as a
weight, or as a bias, whose scale follows from two others. Then the nodes are written, in that order.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from ort_core.lazy_names import lazy_names
from ort_quantization.arguments.advice import advise_on_channels
from ort_quantization.base_quantizer import BaseQuantizer, naming, widened_weight_scale
from ort_quantization.calibration.tensor_ranges import TensorData, TensorsData
from ort_quantization.errors import InvalidQuantization
from ort_quantization.models.model_files import read_tensor
from ort_quantization.models.node_order import name_apart
from ort_quantization.onnx_model import ONNXModel
from ort_quantization.onnx_quantizer import PRODUCER
from ort_quantization.quantized_types import MICROSOFT, QuantType, tensor_type_of
from ort_quantization.quantizers.qdq_calls import QDQCalls
from ort_quantization.quantizers.qdq_nodes import QDQNodes
from ort_quantization.quantizers.qdq_records import (
    QDQBiasQuantInfo,
    QDQQuantParamProvider,
    QDQQuantTensorType,
    QDQTensorQuantInfo,
    QDQTensorQuantizedValue,
    QDQTensorQuantParams,
    QuantizationParams,
    written_form,
)
from ort_quantization.quantizers.qdq_subgraphs import quantize_bodies
from ort_quantization.quantizers.quantized_tensors import float_array
from ort_quantization.quantizers.scales import Parameters, block_parameters_of
from ort_quantization.tensor_quant_overrides import Override, TensorQuantOverridesHelper

log = logging.getLogger(__name__)

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)
_SINCE_21 = (TensorProto.UINT16, TensorProto.INT16, TensorProto.UINT4, TensorProto.INT4)


class QDQQuantizer(QDQCalls, BaseQuantizer):
    """Writes a model in the QDQ format; see ``BaseQuantizer`` for what it is given.

    Attributes:
        products_in_reals: values that are not rounded, though the nodes around them are quantized.
    """

    products_in_reals: frozenset[str] = frozenset()

    def __init__(
        self, model: ModelProto | ONNXModel, per_channel: bool, reduce_range: bool,
        weight_qType: QuantType | int, activation_qType: QuantType | int,  # noqa: N803 - onnxruntime's names
        tensors_range: TensorsData | Mapping[str, TensorData] | None,
        nodes_to_quantize: Iterable[str] | None, nodes_to_exclude: Iterable[str] | None,
        op_types_to_quantize: Iterable[str], extra_options: dict[str, Any] | None = None,  # Any: see BaseQuantizer
    ) -> None:  # fmt: skip
        super().__init__(
            model, per_channel, reduce_range, weight_qType, activation_qType, tensors_range, nodes_to_quantize,
            nodes_to_exclude, op_types_to_quantize, extra_options,
        )  # fmt: skip
        options = self.extra_options
        self.op_types_to_exclude_output_quantization = options.get("OpTypesToExcludeOutputQuantization") or []
        self.add_qdq_pair_to_weight = bool(options.get("AddQDQPairToWeight", False))
        self.quantize_bias = bool(options.get("QuantizeBias", True))
        self.dedicated_qdq_pair = bool(options.get("DedicatedQDQPair", False))
        self.qdq_op_type_per_channel_support_to_axis = options.get("QDQOpTypePerChannelSupportToAxis") or {}
        self.qdq_keep_removable_activations = bool(options.get("QDQKeepRemovableActivations", False))
        self.qdq_disable_weight_adjust_for_int32_bias = bool(options.get("QDQDisableWeightAdjustForInt32Bias", False))
        self.block_size = int(options.get("BlockSize", 0))
        self.qdq_op_domain = self._boundary_domain(bool(options.get("UseQDQContribOps", False)))
        self.tensors_to_quantize: dict[str, QDQTensorQuantInfo] = {}
        self.bias_to_quantize: dict[str, QDQBiasQuantInfo] = {}
        self._written = QDQNodes(
            self.model, self.qdq_op_domain,
            has_dedicated_pairs=self.dedicated_qdq_pair, has_weight_pairs=self.add_qdq_pair_to_weight,
        )  # fmt: skip
        self.quantized_value_map = self._written.quantized_values
        self.quantization_params: dict[str, QDQTensorQuantParams] = self._written_parameters()
        self.initializer_quant_params: dict[str, Parameters] = {}
        self._without_axis: set[str] = set()  # weights whose readers have their channels along different axes
        self._one_scale: dict[str, str] = {}  # weights without an axis of channels, as they are told of
        self._nodes = list(self.model.nodes())
        self.nodes_to_remove: list[NodeProto] = []
        self._bodies = 0
        self._dequantized: dict[str, NodeProto] = {}
        self._quantized_before = {node.input[0] for node in self._nodes if node.op_type == "QuantizeLinear"}

    def _boundary_domain(self, is_contributed: bool) -> str:
        chosen = {tensor_type_of(each) for each in self.tensor_quant_override_qtypes}
        newer = (chosen | {self.activation_qType, self.weight_qType}) & set(_SINCE_21)
        if self.opset_version < 21 and newer and not is_contributed:
            log.warning(
                "ONNX quantizes to 4 and 16 bits from opset 21 on: in opset %d QuantizeLinear is com.microsoft's",
                self.opset_version,
            )
            return MICROSOFT
        return MICROSOFT if is_contributed else ""

    def calc_graph_quant_params(self) -> dict[str, QDQTensorQuantParams]:
        """Return what each calibrated value is quantized by, and what it is converted to for some readers."""
        if self.tensors_range is None:
            return {}
        self.adjust_tensor_ranges()
        found = {}
        for name, data in self.tensors_range.items():
            if name in self.values_in_reals:
                continue
            chosen = self.tensor_quant_overrides.get_per_tensor_overrides(name) or {}
            converted, readers = None, None
            with naming(name):
                if "convert" in chosen:
                    converted = self.calc_quant_params(data, chosen["convert"])
                    readers = chosen["convert"].get("recv_nodes")
                original = self.calc_quant_params(data, chosen)
            found[name] = QDQTensorQuantParams(original, converted, None if readers is None else frozenset(readers))
        return found

    def calc_quant_params(self, tensor_data: TensorData, quant_overrides: Override) -> QuantizationParams:
        """Return what a value of a range is quantized by, with the choices for it.

        Raises:
            InvalidQuantization: the range holds no finite numbers.
        """
        return QuantizationParams.of(_scalar(self.range_parameters(tensor_data, quant_overrides)))

    def _written_parameters(self) -> dict[str, QDQTensorQuantParams]:
        return {name: written_form(each) for name, each in self.calc_graph_quant_params().items()}

    # ------------------------------------------------------------------ what operators mark
    def quantize_activation_tensor(self, tensor_name: str) -> None:
        """Quantize a value by its own parameters, unless it is marked already."""
        if self.is_quantizable(tensor_name):
            self.tensors_to_quantize.setdefault(tensor_name, QDQTensorQuantInfo())

    def quantize_output_same_as_input(self, output_name: str, input_name: str, node_name: str) -> None:
        """Quantize a result by the parameters that its node's input has."""
        if self.is_quantizable(output_name):
            provider = QDQQuantParamProvider(input_name, node_name)
            self.tensors_to_quantize[output_name] = QDQTensorQuantInfo(quant_para_provider=provider)

    def quantize_weight_tensor(self, tensor_name: str) -> None:
        """Quantize a weight with one scale, unless it is marked already."""
        if self.is_quantizable(tensor_name):
            self.tensors_to_quantize.setdefault(tensor_name, QDQTensorQuantInfo(QDQQuantTensorType.WEIGHT))

    def quantize_weight_tensor_per_channel(self, tensor_name: str, axis: int | None) -> None:
        """Quantize a weight with a scale for each channel."""
        if self.is_input_a_initializer(tensor_name):
            before = self.tensors_to_quantize.get(tensor_name)
            if before is not None and before.is_weight and before.axis not in (None, axis):
                self._without_axis.add(
                    tensor_name
                )  # operators of different layouts share it: an axis suits one of them
            axis = None if tensor_name in self._without_axis else axis
            if self.is_quantizable(tensor_name):
                self.tensors_to_quantize[tensor_name] = QDQTensorQuantInfo(QDQQuantTensorType.WEIGHT, axis=axis)
        else:
            log.warning("%r is no initializer: it is not quantized per channel", tensor_name)

    def mark_weight(self, name: str, axis: int, op_type: str | None = None) -> None:
        """Quantize a weight, with a scale for each channel along an axis where that is chosen and possible."""
        is_per_channel, chosen = self.is_tensor_per_channel(name, axis, op_type)
        if is_per_channel:
            self.quantize_weight_tensor_per_channel(name, chosen)
        else:
            self.quantize_weight_tensor(name)

    def quantize_bias_tensor(
        self, node_name: str, bias_name: str, input_name: str, weight_name: str, beta: float = 1.0, alpha: float = 1.0
    ) -> bool:
        """Quantize a bias by the product of two scales; one that several nodes read is copied for each.

        Args:
            node_name: of the node.
            bias_name: of its bias.
            input_name: of what it multiplies.
            weight_name: of its weights.
            beta: a factor of the bias, which goes into its numbers.
            alpha: a factor of the products, which goes into its scale.

        Returns:
            Whether it is quantized as a bias.
        """
        if self.tensor_quant_overrides.get(bias_name):
            self.mark_weight(bias_name, 0)
            return False
        tensor = self.model.get_initializer(bias_name)
        if tensor is None or tensor.data_type not in _FLOATS:
            log.warning("the bias %r of node %r is no initializer of floats: it is not quantized", bias_name, node_name)
            return False
        name = bias_name
        if bias_name in self.bias_to_quantize:
            name = self._dup_initializer(tensor).name
            for node in self._written.readers.get(bias_name, []):
                if node.name == node_name and input_name in node.input and weight_name in node.input:
                    ONNXModel.replace_node_input(node, bias_name, name)
        self.bias_to_quantize[name] = QDQBiasQuantInfo(node_name, input_name, weight_name, beta, alpha)
        return self.quantize_bias

    def is_tensor_quantized(self, tensor_name: str) -> bool:
        """Return whether a value is marked."""
        return tensor_name in self.tensors_to_quantize or tensor_name in self.bias_to_quantize

    def is_tensor_per_channel(
        self, tensor_name: str, default_axis: int, op_type: str | None = None
    ) -> tuple[bool, int | None]:
        """Return whether a weight gets a scale for each channel, and along which axis.

        Args:
            tensor_name: of the weight.
            default_axis: of the channels in its operator.
            op_type: of the operator, where an option may name another axis for it.
        """
        tensor = self.model.get_initializer(tensor_name)
        overrides = self.tensor_quant_overrides
        if tensor is None or overrides.has_per_tensor_overrides(tensor_name):
            return False, None
        axis = self.qdq_op_type_per_channel_support_to_axis.get(op_type, default_axis)
        if overrides.has_per_channel_overrides(tensor_name):
            axis = overrides[tensor_name][0]["axis"]
        elif not self.per_channel:
            return False, None
        rank = len(tensor.dims)
        if not -rank <= axis < rank:
            self._one_scale[tensor_name] = f"{tensor_name!r} ({rank} axes, channels along axis {axis})"
            return False, None
        return True, axis % rank

    def try_replacing_upstream_output(self, upstream_output_name: str, output_name: str) -> bool:
        """Let the producer of a value that one node reads give that node's result; return whether that is possible."""
        here, there = (self.quantization_params.get(name) for name in (output_name, upstream_output_name))
        ends = (*self.model.graph().input, *self.model.graph().output)
        is_inner = all(each.name != upstream_output_name for each in ends)
        producer = self._written.producers.get(upstream_output_name)
        is_plain = here is not None and here.converted is None and (there is None or there.converted is None)
        if producer is None or not is_plain or not is_inner or self._reads[upstream_output_name] != 1:
            return False
        ONNXModel.replace_node_output(producer, upstream_output_name, output_name)
        self._written.producers[output_name] = producer
        self.tensors_to_quantize.pop(upstream_output_name, None)
        return True

    def remove_node(self, node: NodeProto) -> None:
        """Leave a node out, once all is written."""
        self.nodes_to_remove.append(node)

    def remove_nodes(self) -> None:
        """Leave out the nodes that operators have listed."""
        gone = {id(node) for node in self.nodes_to_remove}
        self._nodes = [node for node in self._nodes if id(node) not in gone]

    def is_quantizable(self, name: str) -> bool:
        """Return whether a value holds floats that can be rounded, and the model does not quantize it already."""
        in_reals = name in self.values_in_reals or name in self.products_in_reals
        return bool(name) and name not in self._quantized_before and not in_reals and self.is_float_tensor(name)

    # ------------------------------------------------------------------ the whole model
    def quantize_model(self) -> ModelProto:
        """Quantize the model in place and return it.

        Raises:
            InvalidQuantization: a value that must be quantized was not calibrated, or a choice cannot be followed.
        """
        from ort_quantization.registry import find_marker

        for node in self._nodes:
            if self.enable_subgraph_quantization:
                quantize_bodies(self, node)
            marker = find_marker(node) if self.should_quantize_node(node) and self._has_ranges(node) else None
            if marker is not None:
                marker(self, node).quantize()
                for name in node.input:
                    self._written.receivers.setdefault(name, []).append(node)
            if node.op_type == "DequantizeLinear":
                self._dequantized.update(dict.fromkeys(node.output, node))
        advise_on_channels(list(self._one_scale.values()))
        self.initializer_quant_params = self._calc_initializer_quant_params()
        self._adjust_weight_quant_params_for_bias_tensors()
        self._quantize_normal_tensors()
        self._quantize_sharing_param_tensors()
        if self.quantize_bias:
            self._quantize_bias_tensors()
        self.remove_nodes()
        self._finish()
        return self.model.model

    # ------------------------------------------------------------------ bodies of nodes
    def for_body(self, model: ONNXModel, copied: Mapping[str, str]) -> QDQQuantizer:
        """Return a quantizer with the same choices for the body of a node.

        Args:
            model: whose graph is the body.
            copied: weights that were copied into it: their names there by their names here.
        """
        options = {key: value for key, value in self.extra_options.items() if key != "TensorQuantOverrides"}
        inner = QDQQuantizer(
            model, self.per_channel, self.reduce_range, self.weight_qType, self.activation_qType, None,
            self.nodes_to_quantize, self.nodes_to_exclude, self.op_types_to_quantize, options,
        )  # fmt: skip
        overrides = dict(self.tensor_quant_overrides.get_dict())
        overrides.update((new, overrides[old]) for old, new in copied.items() if old in overrides)
        inner.tensor_quant_overrides = TensorQuantOverridesHelper(overrides)
        inner.parent, inner.tensors_range = self, self.tensors_range
        inner.values_in_reals = {**self.values_in_reals, **inner._fragile_values()}
        inner.quantization_params = inner._written_parameters()
        return inner

    def next_body(self) -> int:
        """Return a number that no other body of the model has."""
        if isinstance(self.parent, QDQQuantizer):
            return self.parent.next_body()
        self._bodies += 1
        return self._bodies

    def weight_around(self, name: str) -> TensorProto | None:
        """Return an initializer of floats of this graph or of one around it."""
        tensor = self.model.get_initializer(name)
        if tensor is not None:
            return tensor if tensor.data_type in _FLOATS else None
        is_own = name in self._written.producers or any(each.name == name for each in self.model.graph().input)
        return self.parent.weight_around(name) if isinstance(self.parent, QDQQuantizer) and not is_own else None

    def _has_ranges(self, node: NodeProto) -> bool:
        """Return whether calibration saw what a node of a body reads and gives: a branch may never have run."""
        if self.parent is None:
            return True
        values = [name for name in (*node.input, *node.output) if name and not self.is_input_a_initializer(name)]
        missing = [name for name in values if name not in self.quantization_params and self.is_float_tensor(name)]
        if missing:
            log.warning("node %r (%s) of a body stays in float: no sample reached it", node.name, node.op_type)
        return not missing

    def _finish(self) -> None:
        graph = self.model.graph()
        whole = [NodeProto.FromString(node.SerializeToString()) for node in (*self._nodes, *self._written.new)]
        del graph.node[:]
        graph.node.extend(whole)
        if not self.add_qdq_pair_to_weight:
            self.model.clean_initializers()
        model = self.model.model
        name_apart(model.graph)  # a model that was quantized before has nodes called as those that are added
        model.producer_name, model.producer_version = PRODUCER, "0.1.0"
        if self.qdq_op_domain == MICROSOFT:
            self.model.set_opset_import(MICROSOFT, 1)

    # ------------------------------------------------------------------ parameters of weights
    def _calc_initializer_quant_params(self) -> dict[str, Parameters]:
        """Return what each marked initializer is quantized by."""
        found = {}
        for name, marked in self.tensors_to_quantize.items():
            tensor = self.model.get_initializer(name)
            if tensor is not None:
                found[name] = self._parameters_of_weight(name, tensor, marked)
        return found

    def _parameters_of_weight(self, name: str, tensor: TensorProto, marked: QDQTensorQuantInfo) -> Parameters:
        first = (self.tensor_quant_overrides.get(name) or [{}])[0]
        kind = self.weight_qType if marked.is_weight else self.activation_qType
        if "quant_type" in first:
            kind = tensor_type_of(first["quant_type"])
        axis = first.get("axis", marked.axis)
        is_symmetric = self.is_weight_symmetric(kind) if marked.is_weight else self.is_activation_symmetric
        if marked.is_weight and self.block_size > 0 and "scale" not in first:
            values = float_array(read_tensor(tensor, self.model.folder))
            chosen = first.get("symmetric", axis is not None or is_symmetric)
            return block_parameters_of(values, kind, 0 if axis is None else axis, self.block_size, chosen)
        if axis is None:
            return self.weight_parameters(name, kind, self.reduce_range, is_symmetric)
        # Channels are symmetric unless it is said otherwise: QLinearConv wants one zero point for all.
        return self.channel_parameters(name, kind, axis, self.reduce_range, is_symmetric=True)

    def _adjust_weight_quant_params_for_bias_tensors(self) -> None:
        """Make weights' scales so large that biases fit 32 bits at the product of the scales."""
        if self.qdq_disable_weight_adjust_for_int32_bias:
            return
        for name, bias in self.bias_to_quantize.items():
            given = self.quantization_params.get(bias.input_name)
            weight = self.initializer_quant_params.get(bias.weight_name)
            if given is None or weight is None or bias.input_name not in self.tensors_to_quantize:
                continue
            if weight.tensor_type not in (TensorProto.INT8, TensorProto.INT16) or weight.zero_point.any():
                continue
            if weight.block_size or not weight.scale.size:
                continue
            needed = self.array_of(name) * (bias.beta / (bias.alpha or 1.0))
            input_scale = given.get_for_consumer(bias.node_name).scale
            scale, has_grown = widened_weight_scale(needed, input_scale, weight.scale, name)
            if has_grown:
                self.initializer_quant_params[bias.weight_name] = replace(weight, scale=scale)

    # ------------------------------------------------------------------ nodes
    def _quantize_normal_tensors(self) -> None:
        """Write weights, and values that have parameters of their own."""
        for name, marked in list(self.tensors_to_quantize.items()):
            if marked.is_shared or name in self.quantized_value_map:
                continue
            del self.tensors_to_quantize[name]
            tensor = self.model.get_initializer(name)
            if tensor is not None:
                self._add_qdq_nodes_for_initializer(tensor)
            elif name not in self._dequantized:
                self._write_calibrated(name)

    def _write_calibrated(self, name: str) -> None:
        found = self.quantization_params.get(name)
        if found is None:
            raise InvalidQuantization(
                f"value {name!r} must be quantized, and calibration has no range for it. Calibrate the same model with "
                "the same operators, or give its scale and zero point in TensorQuantOverrides"
            )
        self._write_activation(name, self._written.store(name, found.original))

    def _quantize_sharing_param_tensors(self) -> None:
        """Write values that have another's parameters, each behind that other."""
        while self.tensors_to_quantize:
            ready = {
                name: marked.quant_para_provider
                for name, marked in self.tensors_to_quantize.items()
                if marked.quant_para_provider is not None
                and marked.quant_para_provider.input_name in self.quantized_value_map
            }
            if not ready:  # what they would share with is not quantized: they stay in float
                log.warning("left in float, with what they are moved from: %s", ", ".join(self.tensors_to_quantize))
                self.tensors_to_quantize.clear()
            for name, provider in ready.items():
                del self.tensors_to_quantize[name]
                value = self.quantized_value_map[provider.input_name].get_for_consumer(provider.node_name)
                self._write_activation(name, (value.scale_name, value.zp_name))

    def _write_activation(self, name: str, names: tuple[str, str]) -> None:
        """Write a value with the scale and zero point of those names, and its conversion where readers want one."""
        found = self.quantization_params.get(name)
        if found is None or found.converted is None:
            self._add_qdq_pair_for_activation(name, *names)
        else:
            converted = self._written.store(name, found.converted, "_convert")
            self._add_qdq_ops_for_converted_activation(name, *names, None, *converted, found.converted_recv_nodes)

    # ------------------------------------------------------------------ biases
    def _get_tensor_quantization_scale(self, tensor_name: str, consumer_node_name: str) -> np.ndarray | None:
        """Return the scale of what a node reads, ``None`` for what stays in float or finds its scale at run time."""
        if tensor_name in self.quantized_value_map:
            value = self.quantized_value_map[tensor_name].get_for_consumer(consumer_node_name)
            return self.array_of(value.scale_name)
        scale = self._dequantized[tensor_name].input[1] if tensor_name in self._dequantized else ""
        return self.array_of(scale) if self.is_input_a_initializer(scale) else None

    def quantize_bias_static(self, bias_name: str, bias_info: QDQBiasQuantInfo) -> str | None:
        """Store a bias in 32 bits, at the product of the scales of input and weights.

        Args:
            bias_name: of the bias.
            bias_info: what its scale follows from.

        Returns:
            The name of what is stored; ``None`` where the bias stays in float.
        """
        node_name = bias_info.node_name
        weight_scale = self._get_tensor_quantization_scale(bias_info.weight_name, node_name)
        input_scale = self._get_tensor_quantization_scale(bias_info.input_name, node_name)
        if input_scale is not None and input_scale.size != 1:
            input_scale = None  # values that a caller quantized by channel: no scale suits a bias beside them
        if weight_scale is None or input_scale is None:
            other = bias_info.weight_name if weight_scale is None else bias_info.input_name
            log.warning("the bias %r of node %r stays in float: %r has no one scale", bias_name, node_name, other)
            return None
        values, factors = self.array_of(bias_name), (bias_info.alpha, bias_info.beta)
        wide = None
        if values.dtype == np.float16 and self._needs_float32(values, input_scale, weight_scale, factors):
            wide = np.float32
            input_scale, weight_scale = input_scale.astype(wide), weight_scale.astype(wide)
        found, tensor = self.bias_tensors(bias_name, input_scale, weight_scale, factors, wide)
        self.quantized_value_map[bias_name] = QDQTensorQuantizedValue(self._store_bias(bias_name, found, tensor))
        return tensor.name

    def _quantize_bias_tensors(self) -> None:
        """Write the biases."""
        for name, bias in self.bias_to_quantize.items():
            original = self.model.get_initializer(name)
            if original is None or name in self.quantized_value_map or self.quantize_bias_static(name, bias) is None:
                continue
            self.model.remove_initializer(original)
            value = self.quantized_value_map[name].original
            if value.node_type == "Cast":
                self._written.write_cast_bias(name, value.q_name, original.data_type)
                continue
            cast_to = None if value.scale_type == original.data_type else original.data_type
            self._written.write_bias(name, value.q_name, (value.scale_name, value.zp_name), value.axis, cast_to)

    def _needs_float32(
        self, values: np.ndarray, input_scale: np.ndarray, weight_scale: np.ndarray, factors: tuple[float, float]
    ) -> bool:
        """Return whether the product of scales, rounded to float16, would erase or cut a bias."""
        if self.weight_qType == TensorProto.FLOAT8E4M3FN:
            return False
        with np.errstate(under="ignore", over="ignore"):
            scale = np.abs(np.asarray(input_scale * weight_scale * (factors[0] or 1.0), np.float16))
        limit = scale.astype(np.float64) * np.iinfo(np.int32).max
        return bool((scale == 0).any() or (np.abs(values.astype(np.float64) * factors[1]) > limit).any())


def _scalar(found: Parameters) -> Parameters:
    """Return parameters of one scale without axes."""
    return replace(found, scale=found.scale.reshape(()), zero_point=found.zero_point.reshape(()))


__getattr__, _ = lazy_names(  # what programs import from here, as onnxruntime's module imports it
    __name__,
    {
        "ort_quantization.quantizers.qdq_calls": ("QDQScaleZpInitializers", "QDQTensorScaleZpInitializers"),
        "ort_quantization.quant_utils": (
            "DEQUANT_OP_NAME", "ONNX_TYPE_TO_NP_TYPE", "QUANT_OP_NAME", "QuantizedValue", "QuantizedValueType",
            "add_dequant_output_suffix", "add_dequant_suffix", "add_quant_input_suffix", "add_quant_output_suffix",
            "add_quant_suffix", "compute_data_quant_params", "compute_scale_zp", "compute_scale_zp_blocked",
            "compute_scale_zp_float8", "find_by_name", "get_qmin_qmax_for_qType", "ms_domain", "normalize_axis",
            "quantize_onnx_initializer", "snap_zero_point_to_uint8", "tensor_proto_to_array",
        ),
        "ort_quantization.registry": (
            "CreateQDQQuantizer",
        ),
    },
)  # fmt: skip
