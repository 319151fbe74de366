"""Writes the nodes of the QDQ format: QuantizeLinear and DequantizeLinear, and what reads their results.

A value gets one pair of nodes, or one for each reader. A value whose readers want another type gets a conversion behind
the pair. A weight is stored quantized, with a DequantizeLinear behind it.
"""

from __future__ import annotations

from collections.abc import Iterable

from onnx import NodeProto, TensorProto, helper

from ort_quantization.errors import InvalidQuantization
from ort_quantization.models.model_files import read_tensor
from ort_quantization.onnx_model import ONNXModel
from ort_quantization.quantized_types import QuantizedValueType
from ort_quantization.quantizers.qdq_records import QDQTensorQuantizedValue
from ort_quantization.quantizers.quantized_tensors import parameter_tensors, quantized_tensor
from ort_quantization.quantizers.quantized_values import QuantizedValue
from ort_quantization.quantizers.scales import Parameters


class QDQNodes:
    """The nodes around quantized values, in the order in which they are added to a graph.

    Attributes:
        new: the nodes so far.
        quantized_values: of each value that was written, the names of its quantized form, scale and zero point.
        readers: the nodes of the graph that read a value.
        receivers: those of them that were marked to read it quantized.
        producers: the node that makes a value.
        domain: of QuantizeLinear and DequantizeLinear.
        has_dedicated_pairs: whether each reader of a value gets a pair of its own.
        has_weight_pairs: whether a weight stays in float, with a whole pair behind it.
    """

    def __init__(self, model: ONNXModel, domain: str, *, has_dedicated_pairs: bool, has_weight_pairs: bool) -> None:
        self.model = model
        self.domain = domain
        self.has_dedicated_pairs = has_dedicated_pairs
        self.has_weight_pairs = has_weight_pairs
        self.new: list[NodeProto] = []
        self.quantized_values: dict[str, QDQTensorQuantizedValue] = {}
        self.receivers: dict[str, list[NodeProto]] = {}
        self.readers: dict[str, list[NodeProto]] = {}
        nodes = list(model.nodes())
        for node in nodes:
            for name in dict.fromkeys(node.input):
                self.readers.setdefault(name, []).append(node)
        self.producers = {name: node for node in nodes for name in node.output if name}

    def store(self, name: str, parameters: Parameters, suffix: str = "") -> tuple[str, str]:
        """Add a value's scale and zero point to the model, and return their names."""
        names = f"{name}_scale{suffix}", f"{name}_zero_point{suffix}"
        for tensor in reversed(parameter_tensors(parameters, *names)):
            self.model.add_initializer(tensor)
        return names

    def add(
        self, op_type: str, source: str, result: str, name: str, parameters: tuple[str, str],
        axis: int | None = None, block_size: int = 0,
    ) -> None:  # fmt: skip
        """Add a QuantizeLinear or a DequantizeLinear.

        Args:
            op_type: which.
            source: what it reads.
            result: what it gives.
            name: of the node.
            parameters: the names of scale and zero point.
            axis: of the channels.
            block_size: how many numbers along the axis share a scale.
        """
        node = helper.make_node(op_type, [source, *parameters], [result], name, domain=self.domain or None)
        if axis is not None:
            node.attribute.append(helper.make_attribute("axis", axis))
        if block_size:
            node.attribute.append(helper.make_attribute("block_size", block_size))
        self.new.append(node)

    def _let_read(self, name: str, other: str, readers: Iterable[str] | None = None) -> None:
        """Let nodes, all or those of some names, read another value."""
        names = None if readers is None else set(readers)
        for node in self.readers.get(name, []):
            if names is None or node.name in names:
                ONNXModel.replace_node_input(node, name, other)

    def write_weight(self, name: str, tensor: TensorProto, found: Parameters) -> None:
        """Write a weight in quantized form, or with a whole pair where that is chosen."""
        names = self.store(name, found)
        result, node_name = f"{name}_DequantizeLinear_Output", f"{name}_DequantizeLinear"
        self._let_read(name, result)
        along = (found.axis, found.block_size)
        source = f"{name}_quantized"
        if self.has_weight_pairs:
            source = f"{name}_QuantizeLinear_Output"
            self.add("QuantizeLinear", name, source, f"{name}_QuantizeLinear", names, *along)
        else:
            self.model.add_initializer(quantized_tensor(read_tensor(tensor, self.model.folder), found, source))
        self.add("DequantizeLinear", source, result, node_name, names, *along)
        value = QuantizedValue(name, source, *names, QuantizedValueType.Initializer, found.axis)
        self.quantized_values[name] = QDQTensorQuantizedValue(value)

    def write_pair(self, name: str, names: tuple[str, str]) -> None:
        """Write a QuantizeLinear and a DequantizeLinear: one pair, or one for each reader."""
        self.quantized_values[name] = QDQTensorQuantizedValue(_dequantized(name, names))
        receivers = self.receivers.get(name, [])
        if self.has_dedicated_pairs and len(receivers) > 1:
            for place, node in enumerate(receivers, 1):
                result = f"{name}_DequantizeLinear_Output_{place}"
                self._add_pair(name, result, names, name, f"_{place}")
                ONNXModel.replace_node_input(node, name, result)
            return
        source, result = name, f"{name}_DequantizeLinear_Output"
        if self.model.is_graph_output(name):
            source, result = f"{name}_QuantizeLinear_Input", name
            self._rename_result(name, source)
        else:
            self._let_read(name, result)
        self._add_pair(source, result, names, name)

    def _add_pair(self, source: str, result: str, names: tuple[str, str], name: str, suffix: str = "") -> None:
        middle = f"{name}_QuantizeLinear_Output{suffix}"
        self.add("QuantizeLinear", source, middle, f"{name}_QuantizeLinear{suffix}", names)
        self.add("DequantizeLinear", middle, result, f"{name}_DequantizeLinear{suffix}", names)

    def _rename_result(self, name: str, other: str) -> None:
        if name in self.producers:
            ONNXModel.replace_node_output(self.producers[name], name, other)

    def write_conversion(
        self, name: str, first: tuple[str, str], second: tuple[str, str], readers: frozenset[str] | None
    ) -> None:
        """Write a value whose readers, all or some, get another type than its producer gives.

        producer -> Q -> DQ -> readers of the original type
                      -> DQ -> Q -> DQ -> readers of the converted type

        Raises:
            InvalidQuantization: several nodes read the value, and each would get a pair of its own.
        """
        receivers = {node.name for node in self.receivers.get(name, [])}
        if self.has_dedicated_pairs and len(self.receivers.get(name, [])) > 1:
            raise InvalidQuantization(f"{name!r} is read by many: with DedicatedQDQPair its type is not converted")
        converting = receivers if readers is None else set(readers)
        original = receivers - converting
        is_for_all = len(converting) == len(receivers)
        is_result = self.model.is_graph_output(name)
        source = name
        if is_result:
            source = f"{name}_QuantizeLinear_Input"
            self._rename_result(name, source)
        middle = f"{name}_QuantizeLinear_Output"
        self.add("QuantizeLinear", source, middle, f"{name}_QuantizeLinear", first)
        real = name if is_result and not is_for_all else f"{name}_DequantizeLinear_Output"
        self._let_read(name, real, original)
        self.add("DequantizeLinear", middle, real, f"{name}_DequantizeLinear", first)
        again = f"{name}_convert"
        if not is_for_all:
            real = f"{again}_QuantizeLinear_Input"
            self.add("DequantizeLinear", middle, real, f"{again}_clone_DequantizeLinear", first)
        self.add("QuantizeLinear", real, f"{again}_QuantizeLinear_Output", f"{again}_QuantizeLinear", second)
        last = name if is_result and is_for_all else f"{again}_DequantizeLinear_Output"
        self._let_read(name, last, converting)
        self.add("DequantizeLinear", f"{again}_QuantizeLinear_Output", last, f"{again}_DequantizeLinear", second)
        both = _dequantized(name, first), _dequantized(again, second)
        self.quantized_values[name] = QDQTensorQuantizedValue(*both, frozenset(converting))

    def write_bias(
        self, name: str, quantized: str, names: tuple[str, str], axis: int | None, cast_to: int | None
    ) -> None:
        """Write a bias that was stored quantized; ``cast_to`` is the model's type where the scale has another one."""
        result = name if cast_to is None else f"{name}_DequantizeLinear_Output"
        if cast_to is not None:
            self.new.append(helper.make_node("Cast", [result], [name], f"{name}_Cast", to=cast_to))
        self.add("DequantizeLinear", quantized, result, f"{name}_DequantizeLinear", names, axis)

    def write_cast_bias(self, name: str, stored: str, cast_to: int) -> None:
        """Write a bias that was stored as floats of another type, as the weights of 8-bit floats want it."""
        self.new.append(helper.make_node("Cast", [stored], [name], f"{name}_DequantizeLinear", to=cast_to))


def _dequantized(name: str, names: tuple[str, str]) -> QuantizedValue:
    return QuantizedValue(name, f"{name}_DequantizeLinear_Output", *names)
