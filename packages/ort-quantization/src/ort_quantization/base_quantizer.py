"""What both writers of quantized models share: the choices, what is known of values, and parameters of tensors."""

from __future__ import annotations

import contextlib
import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from ort_core.lazy_names import lazy_names
from ort_core.model_graphs import reads_of
from ort_quantization.accuracy.fragile_values import NORMALIZER, Constants, fragile_values
from ort_quantization.arguments.advice import told
from ort_quantization.calibration.tensor_ranges import TensorData, TensorsData
from ort_quantization.errors import InvalidQuantization
from ort_quantization.models.model_files import INFERRED, is_marked, opset_of, read_tensor, with_shapes
from ort_quantization.onnx_model import ONNXModel
from ort_quantization.quantized_types import NUMPY_TYPES, RANGES, QuantizedValueType, QuantType, tensor_type_of
from ort_quantization.quantizers.chosen_tensors import check_overrides
from ort_quantization.quantizers.quantized_tensors import float_array, is_float, parameter_tensors, quantized_tensor
from ort_quantization.quantizers.quantized_values import QuantizedValue
from ort_quantization.quantizers.scales import (
    Parameters,
    covering_float8_scale,
    float8_scale,
    integer_range,
    parameters_of,
    scale_and_zero_point,
    snapped_scale_and_zero_point,
)
from ort_quantization.tensor_quant_overrides import Override, TensorQuantOverridesHelper

log = logging.getLogger(__name__)

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)
_SYMMETRIC = (TensorProto.INT4, TensorProto.INT8, TensorProto.INT16, TensorProto.FLOAT8E4M3FN)
_INT32 = np.iinfo(np.int32)
_TOLD = 5  # reasons why values stay in float


class BaseQuantizer:
    """The choices for a model, and what follows from them for single tensors.

    Args:
        model: changed in place; without marks of inferred shapes, they are inferred first.
        per_channel: weights get a scale for each channel, where their operator allows it.
        reduce_range: weights get one bit less.
        weight_qType: the type of weights.
        activation_qType: the type of everything else.
        tensors_range: what calibration found, ``None`` without calibration.
        nodes_to_quantize: names of the only nodes to quantize; all where it is empty.
        nodes_to_exclude: names of nodes that stay as they are.
        op_types_to_quantize: operators to quantize.
        extra_options: onnxruntime's further options by name.

    Raises:
        InvalidQuantization: an option cannot be followed.
    """

    def __init__(
        self, model: ModelProto | ONNXModel, per_channel: bool, reduce_range: bool,
        weight_qType: QuantType | int, activation_qType: QuantType | int,  # noqa: N803 - onnxruntime's names
        tensors_range: TensorsData | Mapping[str, TensorData] | None,
        nodes_to_quantize: Iterable[str] | None, nodes_to_exclude: Iterable[str] | None,
        op_types_to_quantize: Iterable[str], extra_options: dict[str, Any] | None = None,  # Any: as many types as keys
    ) -> None:  # fmt: skip
        self.model = model if isinstance(model, ONNXModel) else ONNXModel(model)
        if not is_marked(self.model.model, INFERRED):
            self.model = ONNXModel(with_shapes(self.model.model, self.model.folder), self.model.folder)
        self.read_value_infos()
        self.opset_version = opset_of(self.model.model)
        self.per_channel, self.reduce_range = per_channel, reduce_range
        self.weight_qType = tensor_type_of(weight_qType)
        self.activation_qType = tensor_type_of(activation_qType)
        self.nodes_to_quantize = frozenset(nodes_to_quantize or ())
        self.nodes_to_exclude = frozenset(nodes_to_exclude or ())
        self.op_types_to_quantize = frozenset(op_types_to_quantize)
        self.parent: BaseQuantizer | None = None
        self._take_options(extra_options or {})
        if tensors_range is not None and not all(isinstance(each, TensorData) for each in tensors_range.values()):
            raise TypeError("tensors_range must map names to TensorData")
        self.tensors_range = tensors_range
        self.values_in_reals = {**self._fragile_values(), **self._empty_values()}

    def _empty_values(self) -> dict[str, str]:
        """Return the values that held no number in any sample, with the reason why they stay in float; say which."""
        ranges = {} if self.tensors_range is None else dict(self.tensors_range.items())
        found = [name for name, data in ranges.items() if data.is_empty_range]
        if found:
            log.warning("values that held no number in any sample stay in float: %s", told(found))
        return dict.fromkeys(found, "no sample has a number of it")

    def _fragile_values(self) -> dict[str, str]:
        """Return the values that stay in float since a few bits would ruin them, with reasons; say which."""
        if self.tensors_range is None or not self.extra_options.get("KeepFragileValues", True):
            return {}
        graph = self.model.graph()
        names = {tensor.name for tensor in graph.initializer}
        names |= {node.output[0] for node in graph.node if node.op_type == "Constant"}
        constants = Constants(frozenset(names), self.model.get_constant_value)
        found = fragile_values(graph, dict(self.tensors_range.items()), self._levels_of, constants)
        reasons: dict[str, list[str]] = {}
        for name, reason in found.items():
            reasons.setdefault(reason, []).append(repr(name))
        if NORMALIZER in reasons:
            log.info("%d values of normalizations stay in float", len(reasons.pop(NORMALIZER)))
        for reason, values in [*reasons.items()][:_TOLD]:
            what = f"value {values[0]} stays" if len(values) == 1 else f"{len(values)} values ({told(values)}) stay"
            log.warning("%s in float: %s (extra_options: KeepFragileValues)", what, reason)
        left = [name for values in [*reasons.values()][_TOLD:] for name in values]
        if left:
            log.warning("%d more values stay in float for reasons of the same kind: %s", len(left), told(left))
        return found

    def _levels_of(self, name: str) -> int:
        """Return how many numbers a value could be rounded to, 0 where its choice is the caller's."""
        if self.tensor_quant_overrides.get(name) or self.activation_qType == TensorProto.FLOAT8E4M3FN:
            return 0
        low, high = integer_range(self.activation_qType, False, self.is_activation_symmetric)
        return int(high) - int(low) + 1

    def _take_options(self, options: dict[str, Any]) -> None:
        self.extra_options = options
        self.enable_subgraph_quantization = bool(options.get("EnableSubgraph", False))
        self.force_quantize_no_input_check = bool(options.get("ForceQuantizeNoInputCheck", False))
        self.weight_symmetric: bool | None = options.get("WeightSymmetric")
        self.is_activation_symmetric = bool(options.get("ActivationSymmetric", False))
        self.is_activation_restricted_asymmetric = bool(options.get("ActivationRestrictedAsymmetric", False))
        self.min_real_range: float | None = options.get("MinimumRealRange")
        self.tensor_quant_overrides = TensorQuantOverridesHelper(options.get("TensorQuantOverrides", {}))
        check_overrides(
            self.tensor_quant_overrides, self.model.graph(), self.value_infos, self.enable_subgraph_quantization,
            self.activation_qType,
        )  # fmt: skip
        self.tensor_quant_override_qtypes = self.tensor_quant_overrides.get_quant_types()

    # ------------------------------------------------------------------ what is known
    def read_value_infos(self) -> None:
        """Take the types, shapes and readers of values from the model, again after its nodes have changed."""
        graph = self.model.graph()
        self._reads = Counter(name for node in graph.node for name in reads_of(node))
        values = (*graph.value_info, *graph.output, *graph.input)
        self.value_infos: dict[str, ValueInfoProto] = {each.name: each for each in values}

    def quantize_model(self) -> ModelProto:
        """Quantize the model and return it."""
        raise NotImplementedError

    def is_weight_symmetric(self, weight_quant_type: int) -> bool:
        """Return whether weights of a type have zero in the middle: signed ones have, unless it is said otherwise."""
        return weight_quant_type in _SYMMETRIC if self.weight_symmetric is None else self.weight_symmetric

    def is_input_a_initializer(self, input_name: str) -> bool:
        """Return whether a value is an initializer of this graph."""
        return self.model.get_initializer(input_name) is not None

    def is_per_channel(self) -> bool:
        """Return whether weights get a scale for each channel."""
        return self.per_channel

    def is_valid_quantize_weight(self, weight_name: str) -> bool:
        """Return whether a value is an initializer of floats, here or, where that counts, in a graph around this."""
        tensor = self.model.get_initializer(weight_name)
        if tensor is not None:
            return is_float(tensor)
        if self.parent is None or not self.enable_subgraph_quantization:
            return False
        return self.parent.is_valid_quantize_weight(weight_name)

    def element_type(self, name: str) -> int | None:
        """Return the element type of a value, ``None`` where nothing tells it."""
        tensor = self.model.get_initializer(name)
        if tensor is not None:
            return tensor.data_type
        if name in self.value_infos:
            value = self.value_infos[name].type
            return value.tensor_type.elem_type or None if value.HasField("tensor_type") else None
        return self.parent.element_type(name) if self.parent is not None else None

    def is_float_tensor(self, tensor_name: str) -> bool:
        """Return whether a value is known to have floats that can be quantized."""
        found = self.element_type(tensor_name)
        if found is None and tensor_name:
            log.warning("the type of %r is not known: it is not quantized; prepare the model first", tensor_name)
        return found in _FLOATS

    def rank_of(self, name: str) -> int | None:
        """Return the number of axes of a value, ``None`` where nothing tells it."""
        tensor = self.model.get_initializer(name)
        if tensor is not None:
            return len(tensor.dims)
        if name in self.value_infos:
            value = self.value_infos[name].type.tensor_type
            return len(value.shape.dim) if value.HasField("shape") else None
        return self.parent.rank_of(name) if self.parent is not None else None

    def should_quantize_node(self, node: NodeProto) -> bool:
        """Return whether a node was chosen."""
        if self.nodes_to_quantize and node.name not in self.nodes_to_quantize:
            return False
        if not self.values_in_reals.keys().isdisjoint((*node.input, *node.output)):
            return False
        is_boundary = node.op_type in ("QuantizeLinear", "DequantizeLinear")
        is_chosen = node.op_type in self.op_types_to_quantize and node.name not in self.nodes_to_exclude
        return is_chosen and not is_boundary

    def array_of(self, name: str) -> np.ndarray:
        """Return the numbers of an initializer of floats.

        Raises:
            InvalidQuantization: there is none of that name, or it has no floats.
        """
        tensor = self.model.get_initializer(name)
        if tensor is None:
            raise InvalidQuantization(f"{name!r} is no initializer of the graph")
        return float_array(read_tensor(tensor, self.model.folder))

    # ------------------------------------------------------------------ parameters
    def weight_parameters(self, name: str, tensor_type: int, is_reduced: bool, is_symmetric: bool) -> Parameters:
        """Return what an initializer is quantized by as a whole, with the choices for it."""
        chosen = self.tensor_quant_overrides.get_per_tensor_overrides(name) or {}
        return self._weight_parameters(name, self.array_of(name), tensor_type, is_reduced, is_symmetric, chosen, None)

    def _weight_parameters(
        self, name: str, values: np.ndarray, tensor_type: int, is_reduced: bool, is_symmetric: bool,
        chosen: Override, axis: int | None,
    ) -> Parameters:  # fmt: skip
        if "quant_type" in chosen:
            tensor_type = tensor_type_of(chosen["quant_type"])
        if "scale" in chosen:
            scale = np.asarray(chosen["scale"], values.dtype)
            return Parameters(scale, np.asarray(chosen["zero_point"], NUMPY_TYPES[tensor_type]), tensor_type, axis)
        try:
            return parameters_of(
                values, tensor_type, chosen.get("symmetric", is_symmetric), chosen.get("reduce_range", is_reduced),
                self.min_real_range, chosen.get("rmin"), chosen.get("rmax"), axis,
            )  # fmt: skip
        except InvalidQuantization as error:
            raise type(error)(f"weight {name!r}: {error}") from error

    def channel_parameters(
        self, name: str, tensor_type: int, axis: int, is_reduced: bool, is_symmetric: bool | None = None
    ) -> Parameters:
        """Return what the channels of an initializer are quantized by, with the choices for them.

        Raises:
            InvalidQuantization: the tensor has no such axis, or choices were made for another.
        """
        return self.channel_parameters_of(name, self.array_of(name), tensor_type, axis, is_reduced, is_symmetric)

    def channel_parameters_of(
        self, name: str, values: np.ndarray, tensor_type: int, axis: int, is_reduced: bool,
        is_symmetric: bool | None = None,
    ) -> Parameters:  # fmt: skip
        """Return what the channels of numbers are quantized by; see ``channel_parameters``."""
        if not -values.ndim <= axis < values.ndim:
            raise InvalidQuantization(f"weight {name!r} of shape {values.shape} has no axis {axis} of channels")
        axis %= values.ndim
        listed = self.tensor_quant_overrides.get_per_channel_overrides(name) or [{"axis": axis}]
        first = listed[0]
        if first["axis"] % values.ndim != axis:
            raise InvalidQuantization(
                f"weight {name!r} has its channels along axis {axis}, TensorQuantOverrides name axis {first['axis']}"
            )
        kind = tensor_type_of(first["quant_type"]) if "quant_type" in first else tensor_type
        default = self.is_weight_symmetric(kind) if is_symmetric is None else is_symmetric
        each = self._for_all_channels(listed, values.shape[axis])
        return self._weight_parameters(name, values, kind, is_reduced, default, {**first, **each}, axis)

    @staticmethod
    def _for_all_channels(listed: list[Override], count: int) -> Override:
        """Return what differs by channel as arrays (channels,)."""
        found: Override = {}
        for key in ("scale", "zero_point", "rmin", "rmax"):
            if key in listed[0]:
                numbers = [np.asarray(each[key]).item() for each in listed]
                found[key] = np.asarray(numbers * count if len(numbers) == 1 else numbers)
        return found

    def activation_parameters(self, name: str, data: TensorData, chosen: Override | None = None) -> Parameters:
        """Return what a calibrated value is quantized by, with the choices for it.

        Raises:
            InvalidQuantization: its range holds no finite numbers.
        """
        if chosen is None:
            chosen = self.tensor_quant_overrides.get_per_tensor_overrides(name) or {}
        with naming(name):
            return self.range_parameters(data, chosen)

    def range_parameters(self, data: TensorData, chosen: Override) -> Parameters:
        """Return what a value of a range is quantized by, with the choices for it; see ``activation_parameters``."""
        kind = tensor_type_of(chosen["quant_type"]) if "quant_type" in chosen else self.activation_qType
        dtype = NUMPY_TYPES[kind]
        if "scale" in chosen:
            scale = np.asarray(chosen["scale"])
            scale = scale if scale.dtype in (np.float32, np.float16) else scale.astype(np.float32)
            return Parameters(scale, np.asarray(chosen["zero_point"], dtype), kind)
        if kind == TensorProto.FLOAT8E4M3FN:
            if not hasattr(data, "std") or not hasattr(data, "hist"):
                raise InvalidQuantization(
                    "8-bit floats have a scale that follows from a standard deviation, and only a range was found; "
                    "choose CalibrationMethod.Distribution"
                )
            scale = float8_scale(np.asarray(data.std))
            if self.extra_options.get("KeepFragileValues", True) and hasattr(data, "lowest"):
                largest = np.abs(np.asarray(data.range_value, np.float32)).max()
                scale = covering_float8_scale(np.asarray(data.std), np.asarray(largest))
            return Parameters(scale, np.zeros((), dtype), kind)
        ends = [np.asarray(chosen.get(key, end)) for key, end in zip(("rmin", "rmax"), data.range_value, strict=True)]
        ends = [end.astype(np.float32) if end.dtype not in (np.float32, np.float16) else end for end in ends]
        is_symmetric = chosen.get("symmetric", self.is_activation_symmetric)
        integers = integer_range(kind, chosen.get("reduce_range", False), is_symmetric)
        try:
            scale, zero_point = scale_and_zero_point(ends[0], ends[1], integers, is_symmetric, self.min_real_range)
        except InvalidQuantization as error:
            raise InvalidQuantization(
                f"{error}. Exclude the nodes that read and give it, or let extra_options['KeepFragileValues'] keep "
                "them in float"
            ) from error
        if self.is_activation_restricted_asymmetric and kind == TensorProto.UINT8 and not is_symmetric:
            reals = ends[0].item(), ends[1].item()
            scale, zero_point = snapped_scale_and_zero_point(*reals, integers, self.min_real_range)
        return Parameters(scale, zero_point.astype(dtype), kind)

    def adjust_tensor_ranges(self) -> None:
        """Give what only a Relu or Clip reads the range of its result, and what a Softmax gives the range 0 to 1.

        So do Sigmoids that give results of the model: the scores of other samples are higher than those of these.
        """
        if self.tensors_range is None:
            return
        ranges: Any = self.tensors_range  # a dictionary, or TensorsData, which takes existing names only
        if self.extra_options.get("KeepFragileValues", True):
            for node in self.model.nodes():
                if (
                    node.op_type == "Sigmoid"
                    and self.model.is_graph_output(node.output[0])
                    and node.output[0] in ranges
                ):
                    ranges[node.output[0]] = _shares(ranges[node.output[0]])
        for node in self.model.nodes():
            if node.op_type not in ("Clip", "Relu", "Softmax") or not self.should_quantize_node(node):
                continue
            given = node.output[0]
            if node.op_type == "Softmax":
                if given in ranges:
                    ranges[given] = _shares(ranges[given])
            elif self.is_only_reader(node) and node.input[0] in ranges and given in ranges:
                ranges[node.input[0]] = ranges[given]

    def is_only_reader(self, node: NodeProto) -> bool:
        """Return whether nothing but a node reads its first input: no other node, no graph inside one, no caller."""
        name = node.input[0]
        return self._reads[name] == 1 and not self.model.is_graph_output(name)

    def is_clipped_by_range(self, node: NodeProto) -> bool:
        """Return whether a Relu or Clip is needless where its input is quantized by the range of its result.

        Nothing else may read that input, its limits must hold zero, as every quantized range does, and a range that
        somebody chose for the result must begin at zero as the Relu does.
        """
        if not self.is_only_reader(node) or self._lets_more_through(node):
            return False
        limits = (0.0, np.inf) if node.op_type == "Relu" else self._limits_of(node)
        return limits is not None and limits[0] <= 0 <= limits[1]

    def _lets_more_through(self, node: NodeProto) -> bool:
        """Return whether the range that was chosen for a result is not known to end where a Relu or Clip does."""
        chosen = self.tensor_quant_overrides.get_per_tensor_overrides(node.output[0]) or {}
        if {"scale", "zero_point", "rmin", "rmax", "symmetric"}.isdisjoint(chosen):
            return False
        if node.op_type != "Relu" or "zero_point" not in chosen:
            return True
        kind = tensor_type_of(chosen["quant_type"]) if "quant_type" in chosen else self.activation_qType
        return kind not in RANGES or int(np.asarray(chosen["zero_point"]).item()) != RANGES[kind][0]

    def _limits_of(self, node: NodeProto) -> tuple[float, float] | None:
        """Return the limits of a Clip, ``None`` where they are computed."""
        given = {each.name: each.f for each in node.attribute}
        limits = [given.get("min", -np.inf), given.get("max", np.inf)]
        for place, name in enumerate(node.input[1:3]):
            if name:
                constant = self.model.get_constant_value(name)
                if constant is None or constant.size != 1:
                    return None
                limits[place] = float(constant.item())
        return limits[0], limits[1]

    # ------------------------------------------------------------------ what subclasses call
    @property
    def initializers(self) -> dict[str, TensorProto]:
        """The initializers of the graph by name."""
        return {tensor.name: tensor for tensor in self.model.initializer()}

    def quantize_initializer_impl(
        self, weight: TensorProto, qType: QuantType | int,  # noqa: N803 - onnxruntime's name
        reduce_range: bool = False, keep_float_weight: bool = False,
    ) -> tuple[str, str, str]:  # fmt: skip
        """Add an initializer's quantized form, with one scale, to the model.

        Args:
            weight: the initializer.
            qType: what to.
            reduce_range: one bit less, if the quantizer's caller allows it.
            keep_float_weight: write the scale and the zero point only.

        Returns:
            The names of the quantized weight, its zero point and its scale.
        """
        kind = tensor_type_of(qType)
        is_symmetric = self.is_weight_symmetric(kind) if kind == self.weight_qType else self.is_activation_symmetric
        found = self.weight_parameters(weight.name, kind, self.reduce_range and reduce_range, is_symmetric)
        return self._store_quantized(weight, found, keep_float_weight)

    def quantize_weight_per_channel_impl(
        self, weight_name: str, weight_qType: QuantType | int,  # noqa: N803 - onnxruntime's name
        channel_axis: int, reduce_range: bool = True, keep_float_weight: bool = False,
    ) -> tuple[str, str, str]:  # fmt: skip
        """Add an initializer's quantized form, with a scale for each channel; see ``quantize_initializer_impl``."""
        kind, is_reduced = tensor_type_of(weight_qType), self.reduce_range and reduce_range
        found = self.channel_parameters(weight_name, kind, channel_axis, is_reduced)
        return self._store_quantized(self.initializers[weight_name], found, keep_float_weight)

    def _store_quantized(self, weight: TensorProto, found: Parameters, is_kept: bool) -> tuple[str, str, str]:
        stored, scale, zero_point = (f"{weight.name}_{each}" for each in ("quantized", "scale", "zero_point"))
        self.model.initializer_extend(parameter_tensors(found, scale, zero_point))
        if not is_kept:
            whole = read_tensor(weight, self.model.folder)
            self.model.initializer_extend([quantized_tensor(whole, found, stored)])
        return stored, zero_point, scale

    def quantize_bias_static_impl(
        self, bias_name: str, input_scale: np.ndarray, weight_scale: np.ndarray, beta: float = 1.0,
        bias_scale_dtype: type | None = None,
    ) -> tuple[str, str, str, np.ndarray, str, int]:  # fmt: skip
        """Add a bias in 32 bits to the model; see ``bias_tensors``.

        Returns:
            The names of the bias, its scale and its zero point, the scale, and the operator that gives the reals
            again, with the number of the weights' type.
        """
        found, tensor = self.bias_tensors(bias_name, input_scale, weight_scale, (1.0, beta), bias_scale_dtype)
        value = self._store_bias(bias_name, found, tensor)
        kind = self.array_of(bias_name).dtype if value.node_type == "Cast" else None
        number = self.weight_qType if kind is None else helper.np_dtype_to_tensor_dtype(kind)
        return value.q_name, value.scale_name, value.zp_name, found.scale, str(value.node_type), number

    def _store_bias(self, name: str, found: Parameters, tensor: TensorProto) -> QuantizedValue:
        """Add what ``bias_tensors`` gives to the model."""
        names = f"{tensor.name}_scale", f"{tensor.name}_zero_point"
        stored = replace(found, scale=found.scale.reshape(-1), axis=0)
        self.model.initializer_extend([tensor, *parameter_tensors(stored, *names)])
        is_cast = self.weight_qType == TensorProto.FLOAT8E4M3FN
        return QuantizedValue(
            name, tensor.name, *names, QuantizedValueType.Initializer, found.axis,
            "Cast" if is_cast else "DequantizeLinear", self.weight_qType,
            helper.np_dtype_to_tensor_dtype(found.scale.dtype),
        )  # fmt: skip

    # ------------------------------------------------------------------ biases
    def _adjust_weight_scale_for_int32_bias(
        self, input_scale: np.ndarray, weight_scale: np.ndarray, weight_name: str, bias_tp: TensorProto,
        is_per_channel: bool,
    ) -> tuple[bool, np.ndarray | None]:  # fmt: skip
        """Return whether a weight's scales must grow for a bias to fit 32 bits, and the scales."""
        if not weight_scale.size:
            return False, None
        bias = numpy_helper.to_array(bias_tp)
        found, has_grown = widened_weight_scale(bias, input_scale, weight_scale, bias_tp.name)
        return has_grown, found

    def bias_tensors(
        self, name: str, input_scale: np.ndarray, weight_scale: np.ndarray, factors: tuple[float, float] = (1.0, 1.0),
        scale_dtype: type | None = None,
    ) -> tuple[Parameters, TensorProto]:  # fmt: skip
        """Return what a bias is quantized by, and its tensor, named as its quantized value.

        A bias is added to sums of products of integers: its scale is the product of theirs, its type int32. A factor
        of the products goes into the scale, one of the bias into its numbers. With 8 bit floats it stays in float32.

        Args:
            name: of the bias.
            input_scale: of what is multiplied.
            weight_scale: of the weights, per tensor or per channel.
            factors: of the products (alpha) and of the bias (beta).
            scale_dtype: of the scale where it is not that of the bias; it is then made large enough for the bias.
        """
        alpha, beta = factors
        values = self.array_of(name)
        values = (values * values.dtype.type(beta)).astype(values.dtype)
        if self.weight_qType == TensorProto.FLOAT8E4M3FN:
            zero = np.zeros(1, NUMPY_TYPES[TensorProto.FLOAT8E4M3FN])
            kept = numpy_helper.from_array(values.astype(np.float32), name + "_quantized")
            return Parameters(np.ones(1, np.float32), zero, TensorProto.FLOAT, 0), kept
        scale = np.asarray(input_scale * weight_scale)
        scale = scale if alpha in (0, 1) else (scale * scale.dtype.type(alpha)).astype(scale.dtype)
        scale = _for_all_groups(scale, values.shape)
        _check_channels(name, values.shape, scale)
        if scale_dtype is not None:
            scale = _sufficient(scale, values, scale_dtype)
        whole = (values.astype(np.float64) / scale.astype(np.float64)).round()
        if (whole < _INT32.min).any() or (whole > _INT32.max).any():
            log.warning("bias %r does not fit 32 bits at its scale: it is cut", name)
        whole = np.clip(whole, _INT32.min, _INT32.max).astype(np.int32)
        stored = scale.astype(values.dtype if scale_dtype is None else scale_dtype).reshape(-1)
        zero_point = np.zeros(stored.shape if stored.size > 1 else (), np.int32)
        shape = values.shape if whole.size == values.size else whole.shape  # one number for all channels is spread
        axis = len(shape) - 1 if stored.size > 1 else None  # channels are the last axis: a bias may be (1, N)
        found = Parameters(stored, zero_point, TensorProto.INT32, axis)
        return found, numpy_helper.from_array(whole.reshape(shape), name + "_quantized")


@contextlib.contextmanager
def naming(value: str) -> Iterator[None]:
    """Say in a refusal which calibrated value it is about."""
    try:
        yield
    except InvalidQuantization as error:
        raise InvalidQuantization(f"calibrated range of {value!r}: {error}") from error


def _shares(found: TensorData) -> TensorData:
    """Return the range from 0 to 1 in the type of another one, that of the value: its scale has that type, too.

    Moments stay: scales of 8-bit floats follow from them.
    """
    dtype = np.asarray(found.range_value[0]).dtype.type
    return TensorData(**{**vars(found), "lowest": dtype(0), "highest": dtype(1)})


def _for_all_groups(scale: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return a scale for each number of a bias: a ConvTranspose of groups has one for each channel of a group."""
    has_groups = len(shape) == 1 and 1 < scale.size < shape[0] and shape[0] % scale.size == 0
    return np.tile(scale.reshape(-1), shape[0] // scale.size) if has_groups else scale


def _check_channels(name: str, shape: tuple[int, ...], scale: np.ndarray) -> None:
    if scale.size > 1 and math.prod(shape) > 1 and shape[-1] != scale.size:
        raise InvalidQuantization(
            f"bias {name!r} has the shape {shape}, and the weights that it is added to {scale.size} scales: quantize "
            "them along the axis of their results (axis in TensorQuantOverrides), or by one scale"
        )


def _sufficient(scale: np.ndarray, values: np.ndarray, dtype: type) -> np.ndarray:
    """Return scales by which no number of a bias leaves 32 bits."""
    scale = np.abs(scale)
    least = np.abs(values.astype(np.float64)) / _INT32.max
    if scale.size == 1:
        least = np.asarray(least.max(initial=0.0))
    found = np.maximum(scale, least * 1.0001).astype(dtype)
    return np.where(found == 0, np.ones((), dtype), found)


def widened_weight_scale(
    bias: np.ndarray, input_scale: np.ndarray, weight_scale: np.ndarray, name: str
) -> tuple[np.ndarray, bool]:
    """Return weights' scales that are large enough for the bias to fit 32 bits, and whether any had to grow.

    Args:
        bias: (channels,), those of all groups one after the other, or of any shape for one scale.
        input_scale: one number.
        weight_scale: one number or (channels,).
        name: of the bias.
    """
    _check_channels(name, bias.shape, _for_all_groups(weight_scale, bias.shape))
    peaks = np.abs(bias.astype(np.float64))
    if 1 < weight_scale.size < peaks.size:
        peaks = peaks.reshape(-1, weight_scale.size).max(axis=0)  # of groups with the same scales
    peaks = np.resize(peaks, weight_scale.shape) if weight_scale.ndim else peaks.max(initial=0.0)  # one is for all
    span = float(_INT32.max) - float(_INT32.min + 1)
    needed = 1.0001 * (2.0 * peaks) / span
    product = float(input_scale.item()) * weight_scale.astype(np.float64)
    is_short = (product < needed) & (product > 0)
    grown = weight_scale.astype(np.float64) * np.where(is_short, needed / np.where(is_short, product, 1.0), 1.0)
    stored = grown.astype(weight_scale.dtype)
    above = np.nextafter(stored, np.array(np.inf, stored.dtype))  # rounding down must not undo it
    stored = np.where((stored.dtype == np.float16) & (stored < grown), above, stored)
    return np.where(is_short, stored, weight_scale), bool(np.any(is_short))


__getattr__, _ = lazy_names(  # what programs import from here, as onnxruntime's module imports it
    __name__,
    {
        "ort_quantization.quantizers.qdq_records": ("QuantizationParams",),
        "ort_quantization.quant_utils": (
            "DEQUANT_OP_NAME", "ONNX_TYPE_TO_NP_TYPE", "QUANT_OP_NAME", "TENSOR_NAME_QUANT_SUFFIX", "find_by_name",
            "get_opset_version", "model_has_infer_metadata", "normalize_axis", "pack_bytes_to_4bit", "quantize_data",
            "quantize_nparray", "save_and_reload_model_with_shape_infer", "tensor_proto_to_array",
        ),
    },
)  # fmt: skip
