"""The steps of the QDQ format's quantizer that subclasses of onnxruntime's class call and replace, by its names.

The quantizer itself marks values and writes them by ``QDQNodes``; these methods do single steps of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from onnx import NodeProto, TensorProto

from ort_quantization.quantizers.qdq_records import QDQTensorQuantParams, QuantizationParams
from ort_quantization.quantizers.quantized_tensors import parameter_tensors
from ort_quantization.quantizers.scales import Parameters

if TYPE_CHECKING:
    from ort_quantization.qdq_quantizer import QDQQuantizer


@dataclass(frozen=True, slots=True)
class QDQScaleZpInitializers:
    """The initializers that hold a value's scale and zero point."""

    scale: TensorProto
    zero_point: TensorProto


QDQTensorScaleZpInitializers = QDQTensorQuantParams


class QDQCalls:
    """The part of ``QDQQuantizer`` that is there for subclasses of programs."""

    @property
    def _whole(self) -> QDQQuantizer:
        return cast("QDQQuantizer", self)

    @property
    def tensor_to_its_receiving_nodes(self) -> dict[str, list[NodeProto]]:
        """The quantized nodes that read a value, by its name."""
        return self._whole._written.receivers

    @property
    def tensor_to_producing_dq(self) -> dict[str, NodeProto]:
        """The DequantizeLinear of the float model that gives a value, by its name."""
        return self._whole._dequantized

    def _get_tensor_type(self, tensor_name: str) -> int | None:
        """Return the element type of a value, ``None`` where nothing tells it."""
        return self._whole.element_type(tensor_name)

    def _is_tensor_quantizable(self, tensor_name: str) -> bool:
        """Return whether a value holds floats that can be rounded, and the model does not quantize it already."""
        return self._whole.is_quantizable(tensor_name)

    def _dup_initializer(self, initializer: TensorProto) -> TensorProto:
        """Add a copy of an initializer under another name, and return it."""
        model = self._whole.model
        copied = TensorProto()
        copied.CopyFrom(initializer)
        copied.name = f"{initializer.name}{model.get_largest_initializer_name_suffix(initializer.name) + 1}"
        model.add_initializer(copied)
        return copied

    def _create_q_node(
        self, q_input: str, q_output: str, quant_node_name: str, scale_name: str, zp_name: str,
        axis: int | None = None, block_size: int = 0,
    ) -> None:  # fmt: skip
        """Add a QuantizeLinear."""
        names = scale_name, zp_name
        self._whole._written.add("QuantizeLinear", q_input, q_output, quant_node_name, names, axis, block_size)

    def _create_dq_node(
        self, dq_input: str, dq_output: str, dequant_node_name: str, scale_name: str, zp_name: str,
        axis: int | None = None, block_size: int = 0,
    ) -> None:  # fmt: skip
        """Add a DequantizeLinear."""
        names = scale_name, zp_name
        self._whole._written.add("DequantizeLinear", dq_input, dq_output, dequant_node_name, names, axis, block_size)

    def _create_qdq_nodes(
        self, q_input: str, q_output: str, quant_node_name: str, dq_input: str, dq_output: str,
        dequant_node_name: str, scale_name: str, zp_name: str, axis: int | None = None, block_size: int = 0,
    ) -> None:  # fmt: skip
        """Add a QuantizeLinear and a DequantizeLinear."""
        self._create_q_node(q_input, q_output, quant_node_name, scale_name, zp_name, axis, block_size)
        self._create_dq_node(dq_input, dq_output, dequant_node_name, scale_name, zp_name, axis, block_size)

    def _add_qdq_nodes_for_initializer(self, weight_proto: TensorProto) -> None:
        """Write a marked initializer, unless it is written already."""
        name = weight_proto.name
        if name not in self._whole.quantized_value_map:
            found = self._whole.initializer_quant_params[name]
            self._whole._written.write_weight(name, weight_proto, _written(found))

    def _add_qdq_pair_for_activation(
        self, tensor_name: str, scale_name: str, zp_name: str, data_type: int | None = None
    ) -> None:
        """Write a value with the scale and zero point of those names; ``data_type`` is of no effect."""
        self._whole._written.write_pair(tensor_name, (scale_name, zp_name))

    def _add_qdq_ops_for_converted_activation(
        self, tensor_name: str, first_scale_name: str, first_zp_name: str, scale_data_type: int | None,
        convert_scale_name: str, convert_zp_name: str, convert_recv_nodes: set[str] | frozenset[str] | None,
    ) -> None:  # fmt: skip
        """Write a value whose readers, all or some, get another type; ``scale_data_type`` is of no effect."""
        first, second = (first_scale_name, first_zp_name), (convert_scale_name, convert_zp_name)
        readers = None if convert_recv_nodes is None else frozenset(convert_recv_nodes)
        self._whole._written.write_conversion(tensor_name, first, second, readers)

    def _make_scale_zp_initializers(
        self, param_name: str, quant_params: Parameters | QuantizationParams, init_name_suffix: str = ""
    ) -> QDQScaleZpInitializers:
        """Add a value's scale and zero point to the model, and return them."""
        names = f"{param_name}_scale{init_name_suffix}", f"{param_name}_zero_point{init_name_suffix}"
        scale, zero_point = parameter_tensors(_written(quant_params), *names)
        for tensor in (zero_point, scale):
            self._whole.model.add_initializer(tensor)
        return QDQScaleZpInitializers(scale, zero_point)

    def _make_tensor_scale_zp_initializers(self, tensor_name: str) -> QDQTensorQuantParams | None:
        """Add all scales and zero points of a calibrated value; return them, ``None`` where it was not calibrated."""
        found = self._whole.quantization_params.get(tensor_name)
        if found is None:
            return None
        first = self._make_scale_zp_initializers(tensor_name, found.original)
        second = None
        if found.converted is not None:
            second = self._make_scale_zp_initializers(tensor_name, found.converted, "_convert")
        return QDQTensorQuantParams(first, second, found.converted_recv_nodes)


def _written(found: Parameters | QuantizationParams) -> Parameters:
    return found.parameters() if isinstance(found, QuantizationParams) else found
