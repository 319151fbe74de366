"""Types of values around a value that is quantized to another type than the rest.

An operator of QNN reads and gives one type. Where a caller asks for 16 bits of one value, its producer and its readers
become 16 bits: what else they read is converted for them, what they give is converted back for those behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

from ort_quantization.errors import InvalidQuantization
from ort_quantization.models.model_files import with_shapes
from ort_quantization.quantized_types import QuantType
from ort_quantization.tensor_quant_overrides import QuantTypeInfo, TensorQuantOverridesHelper

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)


@dataclass
class TensorTypeRequest:
    """What one value is wanted as.

    Attributes:
        producer: the type that its node must give; ``None`` where that is free.
        consumers: the type that some nodes read, and their names; ``None`` where no node asks.
    """

    producer: QuantTypeInfo | None = None
    consumers: tuple[QuantTypeInfo, set[str]] | None = None

    def ask_producer(self, name: str, wanted: QuantTypeInfo) -> None:
        """Add what the producer must give.

        Raises:
            InvalidQuantization: it must give another type already.
        """
        if self.producer is not None and self.producer != wanted:
            raise InvalidQuantization(_several(name, self.producer, wanted))
        self.producer = wanted

    def ask_consumer(self, name: str, wanted: QuantTypeInfo, node: str) -> None:
        """Add what a node reads.

        Raises:
            InvalidQuantization: another node reads another type already.
        """
        if self.consumers is None:
            self.consumers = (wanted, set())
        if self.consumers[0] != wanted:
            raise InvalidQuantization(_several(name, self.consumers[0], wanted))
        self.consumers[1].add(node)


def _several(name: str, first: QuantTypeInfo, second: QuantTypeInfo) -> str:
    return f"value {name!r} would have several types, {first.quant_type} and {second.quant_type}: choose one for both"


@dataclass
class MixedPrecisionTensorQuantOverridesFixer:
    """Adds to a caller's choices what follows from them for the values around.

    Attributes:
        overrides: changed in place.
        producers: the node that gives each value.
        consumers: the nodes that read each value.
        value_infos: types of values.
        initializers: by name; they are no activations.
    """

    overrides: TensorQuantOverridesHelper
    producers: Mapping[str, NodeProto]
    consumers: Mapping[str, list[NodeProto]]
    value_infos: Mapping[str, ValueInfoProto]
    initializers: Mapping[str, TensorProto] = field(default_factory=dict)

    @classmethod
    def create_from_model(
        cls, overrides: TensorQuantOverridesHelper, model: ModelProto, default_activation_qtype: QuantType
    ) -> MixedPrecisionTensorQuantOverridesFixer:
        """Return what fixes choices for a model.

        Raises:
            InvalidQuantization: the choices cannot be followed.
        """
        copied = ModelProto()
        copied.CopyFrom(model)
        graph = with_shapes(copied).graph
        values = {each.name: each for each in (*graph.value_info, *graph.output, *graph.input)}
        initializers = {each.name: each for each in graph.initializer}
        is_valid, fault = overrides.is_valid(initializers, values, default_activation_qtype.tensor_type)
        if not is_valid:
            raise InvalidQuantization(fault or "")
        consumers: dict[str, list[NodeProto]] = {}
        for node in graph.node:
            for name in dict.fromkeys(node.input):
                consumers.setdefault(name, []).append(node)
        producers = {name: node for node in graph.node for name in node.output}
        return cls(overrides, producers, consumers, values, initializers)

    def apply(self, default_activation_qtype: QuantType, default_activation_symmetric: bool) -> None:
        """Complete the choices.

        Args:
            default_activation_qtype: the type of all other activations.
            default_activation_symmetric: whether these have zero in the middle.

        Raises:
            InvalidQuantization: a value would have several types.
        """
        requests = self.get_desired_tensor_types(default_activation_qtype, default_activation_symmetric)
        default = QuantTypeInfo(default_activation_qtype)
        for name, request in requests.items():
            self._complete(name, request, default)

    def get_desired_tensor_types(
        self, default_activation_qtype: QuantType, default_activation_symmetric: bool
    ) -> dict[str, TensorTypeRequest]:
        """Return what each value is wanted as; see ``apply``."""
        default = QuantTypeInfo(default_activation_qtype, default_activation_symmetric)
        requests: dict[str, TensorTypeRequest] = {}
        for name, listed in self.overrides.items():
            chosen = QuantTypeInfo.load_from_dict(listed[0]) if listed else default
            is_converted = bool(listed) and "convert" in listed[0]
            is_default = chosen.quant_type is None or chosen == default
            if not self._is_quantizable(name) or is_converted or is_default:
                continue
            around = [self.producers[name]] if name in self.producers else []
            for node in (*around, *self.consumers.get(name, [])):
                self._ask(requests, node, chosen)
        return requests

    def _ask(self, requests: dict[str, TensorTypeRequest], node: NodeProto, wanted: QuantTypeInfo) -> None:
        for name in filter(self._is_quantizable, node.output):
            requests.setdefault(name, TensorTypeRequest()).ask_producer(name, wanted)
        for name in filter(self._is_quantizable, node.input):
            requests.setdefault(name, TensorTypeRequest()).ask_consumer(name, wanted, node.name)

    def _is_quantizable(self, name: str) -> bool:
        value = self.value_infos.get(name)
        return name not in self.initializers and value is not None and value.type.tensor_type.elem_type in _FLOATS

    def _complete(self, name: str, request: TensorTypeRequest, default: QuantTypeInfo) -> None:
        """Write the choices for one value."""
        chosen = dict(self.overrides[name][0]) if self.overrides.get(name) else {}
        asked = QuantTypeInfo.load_from_dict(chosen, default.quant_type)
        if "convert" in chosen:
            self._join(name, chosen, asked, request)
            return
        given = request.producer or (asked if "quant_type" in chosen else default)
        if "quant_type" in chosen and given != asked:
            raise InvalidQuantization(_several(name, asked, given))
        readers = {node.name for node in self.consumers.get(name, [])}
        wanted, askers = request.consumers or (given, set())
        is_converted = wanted != given
        if request.producer is None and not is_converted:
            return  # it is what its readers want
        given.save_to_dict(chosen)
        if not is_converted and readers - askers:  # those that do not ask read what they read before
            wanted, askers, is_converted = default, readers - askers, True
        if askers and is_converted:
            chosen["convert"] = _converted(wanted, askers)
        self.overrides[name] = [chosen]

    def _join(self, name: str, chosen: dict[str, Any], asked: QuantTypeInfo, request: TensorTypeRequest) -> None:
        """Let more nodes read what a value is converted to already."""
        converted = dict(chosen["convert"])
        there = QuantTypeInfo.load_from_dict(converted)
        if request.producer is not None and request.producer != asked:
            raise InvalidQuantization(_several(name, asked, request.producer))
        if request.consumers is None:
            return
        wanted, askers = request.consumers
        if wanted != there:
            raise InvalidQuantization(_several(name, there, wanted))
        if "recv_nodes" in converted:
            converted["recv_nodes"] = set(converted["recv_nodes"]) | askers
        self.overrides[name] = [{**chosen, "convert": converted}]


def _converted(wanted: QuantTypeInfo, readers: Iterable[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    wanted.save_to_dict(found)
    return {**found, "recv_nodes": set(readers)}
