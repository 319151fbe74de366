"""What operator classes of programs call of a quantizer, with onnxruntime's names, arguments and results.

The package's own writers call ``ONNXQuantizer`` itself, whose methods give a ``QuantizedValue``. There, nodes are
added where they are made: the lists of new nodes that these methods return are empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper

from ort_quantization.base_quantizer import widened_weight_scale
from ort_quantization.errors import InvalidQuantization
from ort_quantization.quantized_types import QuantType, tensor_type_of
from ort_quantization.quantizers.quantized_values import QuantizedValue
from ort_quantization.quantizers.run_time_parameters import parameter_nodes

if TYPE_CHECKING:
    from ort_quantization.onnx_quantizer import ONNXQuantizer

Names = tuple[str, str, str]
Quantized = tuple[list[str], list[str], list[str], list[NodeProto]] | tuple[None, None, None, None]


class OperatorCalls:
    """The part of ``ONNXQuantizer`` that is there for operator classes of programs."""

    @property
    def _whole(self) -> ONNXQuantizer:
        return cast("ONNXQuantizer", self)

    def quantize_activation(self, node: NodeProto, indices: Iterable[int], from_subgraph: bool = False) -> Quantized:
        """Quantize inputs of a node.

        Args:
            node: that reads them.
            indices: of the inputs.
            from_subgraph: of no effect, as nodes are added at once.

        Returns:
            Names of the quantized values, of their zero points and of their scales, and no nodes; four times ``None``
            if a value was not calibrated.
        """
        return _as_lists(self._whole.quantized_inputs(node.input[place] for place in indices))

    def quantize_weight(
        self, node: NodeProto, indices: Iterable[int], reduce_range: bool = False,
        op_level_per_channel: bool = False, axis: int = -1, from_subgraph: bool = False,
    ) -> Quantized:  # fmt: skip
        """Quantize inputs of a node that take part as weights, whether they are initializers or not.

        Args:
            node: that reads them.
            indices: of the inputs.
            reduce_range: one bit less, if the quantizer's caller allows it.
            op_level_per_channel: the operator takes a scale for each channel.
            axis: of the channels.
            from_subgraph: of no effect, as nodes are added at once.

        Returns:
            See ``quantize_activation``.
        """
        channels = axis if op_level_per_channel else None
        names = [node.input[place] for place in indices]
        found = [self._whole.quantized_weight(name, reduce_range, channels) if name else _absent() for name in names]
        return _as_lists(None if any(each is None for each in found) else [each for each in found if each is not None])

    def quantize_initializer(
        self, weight: TensorProto, qType: QuantType | int,  # noqa: N803 - onnxruntime's name
        reduce_range: bool = False, keep_float_weight: bool = False,
    ) -> Names:  # fmt: skip
        """Quantize an initializer with one scale.

        Args:
            weight: the initializer.
            qType: what to.
            reduce_range: one bit less, if the quantizer's caller allows it.
            keep_float_weight: write the scale and the zero point only.

        Returns:
            The names of the quantized weight, its zero point and its scale.
        """
        return _names(
            self._whole.stored_initializer(
                weight, tensor_type_of(qType), reduce_range, has_values=not keep_float_weight
            )
        )

    def quantize_weight_per_channel(
        self, weight_name: str, weight_qType: QuantType | int,  # noqa: N803 - onnxruntime's name
        channel_axis: int, reduce_range: bool = True, keep_float_weight: bool = False,
    ) -> Names:  # fmt: skip
        """Quantize an initializer with a scale for each channel; see ``quantize_initializer``."""
        return _names(
            self._whole.quantize_channels(
                weight_name, tensor_type_of(weight_qType), channel_axis, reduce_range, has_values=not keep_float_weight
            )
        )

    def quantize_bias_static(self, bias_name: str, input_name: str, weight_name: str, beta: float = 1.0) -> str:
        """Return the name of a bias in 32 bits, at the product of the scales of input and weights.

        Args:
            bias_name: an initializer.
            input_name: what is multiplied.
            weight_name: by which weights, quantized already.
            beta: the bias's factor.

        Raises:
            InvalidQuantization: the input was not calibrated, or the weights are not quantized yet.
        """
        weight = self._whole.quantized_value_map.get(weight_name)
        if weight is None:
            raise InvalidQuantization(f"the weight {weight_name!r} is not quantized yet; call quantize_weight first")
        value = self._whole.quantized_value_map.get(input_name)
        if value is None:
            parameters = self._whole.output_parameters(input_name)
            if parameters is None:
                raise InvalidQuantization(f"the value {input_name!r} was not calibrated: no scale of it is known")
            value = QuantizedValue(input_name, "", *parameters)
        return self._whole.stored_bias(bias_name, value, weight, (1.0, beta))

    def contains_tensor(self, tensor_name: str) -> bool:
        """Return whether a value, and no initializer, has a name."""
        return tensor_name in self._whole.value_infos or tensor_name in self._whole.generated_value_names

    def get_tensor_type(self, tensor_name: str, mandatory: bool = False) -> int | None:
        """Return the element type of a value, ``None`` if nothing tells it.

        Args:
            tensor_name: of the value.
            mandatory: take ``DefaultTensorType`` if nothing tells it.

        Raises:
            InvalidQuantization: that option is needed and is not given.
        """
        found = self._whole.element_type(tensor_name)
        if found is not None or not mandatory:
            return found
        return self._get_default_tensor_type(tensor_name)

    def add_new_nodes(self, nodes: Iterable[NodeProto]) -> None:
        """Add nodes to the quantized graph."""
        self._whole.add(*nodes)

    def _get_quantization_params(
        self, param_name: str, use_scale: float | None = None, use_zeropoint: int | None = None
    ) -> tuple[bool, str, str, list[int] | str, list[int] | str]:
        """Write a calibrated value's scale and zero point.

        Returns:
            Whether it was calibrated, and the names and shapes of the scale and the zero point.
        """
        names = self._whole.output_parameters(param_name, use_scale, use_zeropoint)
        return (False, "", "", "", "") if names is None else (True, *names, [], [])

    def _get_dynamic_input_quantization_params(
        self, input_name: str, nodes_list: list[NodeProto],
        qType: int,  # noqa: N803 - onnxruntime's name
        initial_type: int,
    ) -> tuple[str, str, list[int], list[int]]:  # fmt: skip
        """Make nodes that find the scale and the zero point of a value while the model runs.

        Args:
            input_name: of the value.
            nodes_list: the nodes are appended to it.
            qType: INT8 or UINT8.
            initial_type: of the value.

        Returns:
            The names and shapes of the scale and the zero point.

        Raises:
            InvalidQuantization: it is another type.
        """
        if qType == TensorProto.INT8:
            return self._get_dynamic_input_quantization_params_int8(input_name, nodes_list, initial_type)
        if qType == TensorProto.UINT8:
            return self._get_dynamic_input_quantization_params_uint8(input_name, nodes_list, initial_type)
        raise InvalidQuantization(
            f"Unexpected value for qType={qType}: values are quantized to INT8 or UINT8 while the model runs"
        )

    def _get_dynamic_input_quantization_params_int8(
        self, input_name: str, nodes_list: list[NodeProto], initial_type: int
    ) -> tuple[str, str, list[int], list[int]]:
        """Do so for INT8, with zero in the middle."""
        return self._parameters_at_run_time(input_name, nodes_list, TensorProto.INT8, initial_type)

    def _get_dynamic_input_quantization_params_uint8(
        self, input_name: str, nodes_list: list[NodeProto], initial_type: int
    ) -> tuple[str, str, list[int], list[int]]:
        """Do so for UINT8."""
        return self._parameters_at_run_time(input_name, nodes_list, TensorProto.UINT8, initial_type)

    def _parameters_at_run_time(
        self, name: str, nodes_list: list[NodeProto], tensor_type: int, float_type: int
    ) -> tuple[str, str, list[int], list[int]]:
        nodes, constants, names = parameter_nodes(name, tensor_type, float_type)
        for tensor in constants:
            self._whole.model.add_initializer(tensor)
        nodes_list.extend(nodes)
        return (*names, [], [])

    def quantize_node_with_sub_graph(self, node: NodeProto) -> NodeProto:
        """Return a copy of a node whose graphs are quantized."""
        return self._whole.with_quantized_graphs(node)

    def quantize_subgraph(self, subgraph: GraphProto, graph_key: str) -> GraphProto:
        """Return a node's graph, quantized; ``graph_key`` is of no effect."""
        return self._whole.quantized_graph(subgraph)

    def adjust_single_weight_scale_if_needed(
        self, bias_val: np.ndarray, input_scale: np.ndarray, weight_scale: np.ndarray, weight_scale_dtype: type,
        weight_name: str, bias_name: str, qrange: float, multiplicative_epsilon: float, idx: int | None = None,
    ) -> tuple[bool, np.ndarray]:  # fmt: skip
        """Return whether a weight's scale must grow for a bias to fit 32 bits, and the scale.

        The range of integers and what is added for roundings are always those of the quantizer.
        """
        scale: np.ndarray = np.asarray(weight_scale, weight_scale_dtype)
        found, has_grown = widened_weight_scale(np.asarray(bias_val), np.asarray(input_scale), scale, bias_name)
        return has_grown, found

    def _requantize_weight(self, weight_name: str, new_scale: np.ndarray) -> None:
        """Replace a weight's quantized form by one with another scale, if it has one."""
        value = self._whole.quantized_value_map.get(weight_name)
        if value is not None:
            self._whole.quantize_again(weight_name, value, new_scale)

    def _get_default_tensor_type(self, tensor_name: str) -> int:
        """Return ``DefaultTensorType``; see ``get_tensor_type``."""
        default = self._whole.extra_options.get("DefaultTensorType")
        if default is None:
            raise InvalidQuantization(
                f"the type of {tensor_name!r} is not known; prepare the model with quant_pre_process, or set "
                "extra_options['DefaultTensorType']"
            )
        return int(default)

    def _get_quantize_input_nodes(
        self, node: NodeProto, input_index: int, qType: int,  # noqa: N803 - onnxruntime's name
        given_scale_name: str | None = None, given_zp_name: str | None = None, initial_type: int | None = None,
    ) -> list[NodeProto] | None:  # fmt: skip
        """Quantize an input of a node that is no initializer.

        Returns:
            No nodes, as they are added at once; ``None`` if the value was not calibrated.
        """
        name = node.input[input_index]
        if given_scale_name is None or given_zp_name is None:
            return None if self._whole.quantized_input(name) is None else []
        value = QuantizedValue(name, f"{name}_quantized", given_scale_name, given_zp_name)
        inputs = [name, given_scale_name, given_zp_name]
        self._whole.add(helper.make_node("QuantizeLinear", inputs, [value.q_name], f"{name}_QuantizeLinear"))
        self._whole.state(name, value)
        return []

    def _dequantize_outputs(self) -> None:
        """Give the results of the graph in float."""
        for each in self._whole.model.graph().output:
            self._dequantize_value(each.name)

    def _dequantize_value(self, value_name: str) -> None:
        """Give a value in float; the node is added at once, and ``None`` says so."""
        self._whole.dequantize(value_name)


def _absent() -> QuantizedValue:
    return QuantizedValue("", "", "", "")


def _names(value: QuantizedValue) -> Names:
    return value.q_name, value.zp_name, value.scale_name


def _as_lists(values: list[QuantizedValue] | None) -> Quantized:
    if values is None:
        return None, None, None, None
    return [each.q_name for each in values], [each.zp_name for each in values], [each.scale_name for each in values], []
