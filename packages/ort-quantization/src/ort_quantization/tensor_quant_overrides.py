"""Choices for single tensors: their type, range, scale and zero point, per tensor or per channel.

    {"weight": [{"quant_type": QuantType.QInt16, "axis": 0}],
     "activation": [{"quant_type": QuantType.QUInt16, "convert": {"quant_type": QuantType.QUInt8}}]}

A list of one dictionary is for the tensor, or for all channels where it names an axis; a longer list has one for each
channel. ``convert`` gives readers of an activation (all, or those of ``recv_nodes``) another type than its maker's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto

from ort_quantization.quantized_types import RANGES, QuantType, tensor_type_of, type_name

Override = dict[str, Any]  # Any: types, numbers, arrays, and what to convert to
Overrides = dict[str, list[Override]]

_WITHOUT_SCALE = ("symmetric", "reduce_range", "rmax", "rmin")
_SAME_FOR_ALL = ("quant_type", "axis", "symmetric", "reduce_range")
_KNOWN = frozenset({*_SAME_FOR_ALL, "rmin", "rmax", "scale", "zero_point", "convert"})


@dataclass
class QuantTypeInfo:
    """The type that a node reads or gives; what is ``None`` is not said, and equals anything."""

    quant_type: QuantType | None
    symmetric: bool | None = None
    reduce_range: bool | None = None
    axis: int | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QuantTypeInfo):
            return NotImplemented
        said = ((self.symmetric, other.symmetric), (self.reduce_range, other.reduce_range))
        agree = all(here is None or there is None or here == there for here, there in said)
        return agree and (self.quant_type, self.axis) == (other.quant_type, other.axis)

    __hash__ = None  # type: ignore[assignment]  # equality is not transitive: what is not said equals anything

    @staticmethod
    def load_from_dict(
        raw_dict: Override, default_qtype: QuantType | None = None,
        default_symmetric: bool | None = None, default_reduce_range: bool | None = None,
    ) -> QuantTypeInfo:  # fmt: skip
        """Return what a dictionary says."""
        return QuantTypeInfo(
            raw_dict.get("quant_type", default_qtype), raw_dict.get("symmetric", default_symmetric),
            raw_dict.get("reduce_range", default_reduce_range), raw_dict.get("axis"),
        )  # fmt: skip

    def save_to_dict(self, raw_dict: Override) -> None:
        """Write into a dictionary what is said."""
        raw_dict["quant_type"] = self.quant_type
        for name in ("symmetric", "reduce_range", "axis"):
            if getattr(self, name) is not None:
                raw_dict[name] = getattr(self, name)


class TensorQuantOverridesHelper(MutableMapping[str, list[Override]]):
    """The choices of ``extra_options["TensorQuantOverrides"]``; what is written here is written there.

    Args:
        raw_overrides: lists of dictionaries by name of a tensor.
    """

    def __init__(self, raw_overrides: Overrides) -> None:
        self.overrides = raw_overrides
        self.quant_types: set[QuantType] | None = None

    def _first(self, tensor_name: str) -> Override | None:
        found = self.overrides.get(tensor_name)
        return found[0] if found else None

    def has_per_tensor_overrides(self, tensor_name: str) -> bool:
        """Return whether there are choices for a tensor as a whole."""
        first = self._first(tensor_name)
        return first is not None and "axis" not in first

    def has_per_channel_overrides(self, tensor_name: str) -> bool:
        """Return whether there are choices for the channels of a tensor."""
        first = self._first(tensor_name)
        return first is not None and "axis" in first

    def overrides_scale_zp(self, tensor_name: str) -> bool:
        """Return whether scale and zero point are chosen."""
        first = self._first(tensor_name)
        return first is not None and "scale" in first and "zero_point" in first

    def get_per_tensor_overrides(self, tensor_name: str, default_val: Override | None = None) -> Override | None:
        """Return the choices for a tensor as a whole.

        Raises:
            ValueError: there are choices for its channels.
        """
        found = self.overrides.get(tensor_name, [] if default_val is None else [default_val])
        if found and "axis" in found[0]:
            raise ValueError(
                f"tensor {tensor_name!r} is quantized as a whole, but its TensorQuantOverrides name an axis of channels"
            )
        return found[0] if found else None

    def get_per_channel_overrides(
        self, tensor_name: str, default_val: list[Override] | None = None
    ) -> list[Override] | None:
        """Return the choices for the channels of a tensor.

        Raises:
            ValueError: there are choices for the tensor as a whole.
        """
        found = self.overrides.get(tensor_name, default_val)
        if not found:
            return None
        if "axis" not in found[0]:
            raise ValueError(
                f"tensor {tensor_name!r} is quantized per channel, but its TensorQuantOverrides name no axis"
            )
        return found

    def get_quant_types(self) -> set[QuantType]:
        """Return all types that are chosen."""
        if self.quant_types is None:
            chosen = [each for listed in self.overrides.values() for each in listed]
            chosen += [each["convert"] for each in chosen if "convert" in each]
            self.quant_types = {each["quant_type"] for each in chosen if "quant_type" in each}
        return self.quant_types

    def is_valid(
        self,
        initializers: Mapping[str, TensorProto],
        activation_names: object,
        default_activation_qtype: QuantType | int | None,
    ) -> tuple[bool, str | None]:
        """Return whether all choices can be followed, and what is wrong with the first that cannot.

        Args:
            initializers: the tensors of the model by name.
            activation_names: a container of the names of all other values.
            default_activation_qtype: what activations are quantized to where nothing is chosen.
        """
        self.quant_types = None
        for name, listed in self.overrides.items():
            fault = _fault(name, listed, initializers, activation_names, default_activation_qtype)
            if fault is not None:
                return False, f"TensorQuantOverrides of tensor '{name}': {fault}"
        return True, None

    def update_tensor_overrides(
        self,
        tensor_name: str,
        new_vals: Override,
        channels: Sequence[int] | None = None,
        overwrite: bool = True,
    ) -> bool:
        """Choose for a tensor, or for some of its channels; without ``overwrite`` only what is not chosen yet.

        Returns:
            Whether anything was written: nothing is where something would have been overwritten.
        """
        if not new_vals:
            return False
        listed = self.overrides.get(tensor_name) or [{}]
        touched = [each for place, each in enumerate(listed) if channels is None or place in set(channels)]
        if not overwrite and any(new_vals.keys() & each.keys() for each in touched):
            return False
        for each in touched:
            each.update(new_vals)
        self.overrides[tensor_name] = listed
        self.quant_types = None
        return True

    def get_node_output_qtype_info(
        self, output_name: str, default_qtype: QuantType | None, default_symmetric: bool | None = None
    ) -> QuantTypeInfo:
        """Return the type that a node gives."""
        first = self._first(output_name) or {}
        return QuantTypeInfo(first.get("quant_type", default_qtype), first.get("symmetric", default_symmetric))

    def get_node_input_qtype_info(
        self, input_name: str, node_name: str, default_qtype: QuantType | None,
        default_symmetric: bool | None = None, default_reduce_range: bool | None = None,
    ) -> QuantTypeInfo:  # fmt: skip
        """Return the type that a node reads: the one that its input is converted to for it, if any."""
        first = self._first(input_name)
        if first is None:
            return QuantTypeInfo(default_qtype, default_symmetric, default_reduce_range)
        if "convert" not in first:
            return QuantTypeInfo.load_from_dict(first, default_qtype, default_symmetric, default_reduce_range)
        converted = first["convert"]
        is_reader = "recv_nodes" not in converted or node_name in converted["recv_nodes"]
        made = first.get("quant_type", default_qtype)
        return QuantTypeInfo(
            converted["quant_type"] if is_reader else made, converted.get("symmetric", default_symmetric)
        )

    def pprint_str(self, indent: int | None = None) -> str:
        """Return all choices as JSON, for people."""
        return json.dumps(self.overrides, default=str, indent=indent)

    def empty(self) -> bool:
        """Return whether nothing is chosen."""
        return not self.overrides

    def get_dict(self) -> Overrides:
        """Return all choices."""
        return self.overrides

    def __getitem__(self, key: str) -> list[Override]:
        return self.overrides[key]

    def __setitem__(self, key: str, value: list[Override]) -> None:
        self.overrides[key] = value

    def __delitem__(self, key: str) -> None:
        del self.overrides[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.overrides)

    def __len__(self) -> int:
        return len(self.overrides)

    def __str__(self) -> str:
        return str(self.overrides)


def _fault(
    name: str, listed: object, initializers: Mapping[str, TensorProto], activations: object,
    default: QuantType | int | None,
) -> str | None:  # fmt: skip
    """Return what is wrong with the choices for one tensor, ``None`` where nothing is."""
    if name not in initializers and name not in activations:  # type: ignore[operator]  # any container
        return "the model has no such tensor"
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        return "a list of dictionaries is expected"
    unknown = {key for each in listed for key in each} - _KNOWN
    if unknown:
        return f"unknown key {sorted(unknown)[0]!r}; known: {', '.join(sorted(_KNOWN))}"
    if not listed or not listed[0]:
        return None
    if len(listed) > 1 or listed[0].get("axis") is not None:
        return _fault_of_channels(listed, initializers.get(name))
    return _fault_of_tensor(listed[0], name in initializers, default)


def _fault_of_numbers(chosen: Override, default: QuantType | int | None) -> str | None:
    """Return what is wrong with the scale, the zero point or the ends of a range as numbers."""
    for key in ("scale", "zero_point", "rmin", "rmax"):
        number = np.asarray(chosen.get(key, 0))
        if number.size != 1 or number.dtype.kind not in "iuf" or not np.isfinite(number).all():
            return f"{key!r} is {chosen[key]!r}; one finite number is expected"
    if "scale" in chosen and not np.asarray(chosen["scale"]).item() > 0:
        return f"'scale' is {chosen['scale']!r}; a number above 0 is expected"
    if "rmin" in chosen and "rmax" in chosen and chosen["rmin"] > chosen["rmax"]:
        return f"'rmin' is {chosen['rmin']!r}, which is more than 'rmax', {chosen['rmax']!r}"
    kind = chosen.get("quant_type", default)
    if kind is None or "zero_point" not in chosen:
        return None
    ends, point = RANGES.get(tensor_type_of(kind)), np.asarray(chosen["zero_point"]).item()
    if ends is not None and not ends[0] <= point <= ends[1]:
        return f"'zero_point' is {point}; {type_name(tensor_type_of(kind))} has {ends[0]} to {ends[1]}"
    return None


def _fault_of_scale(chosen: Override) -> str | None:
    fault = _fault_of_numbers(chosen, None)
    if fault is not None:
        return fault
    if ("scale" in chosen) != ("zero_point" in chosen):
        return "Must provide both 'scale' and 'zero_point' if one of the overrides is provided"
    excess = [key for key in _WITHOUT_SCALE if key in chosen] if "scale" in chosen else []
    return f"{', '.join(excess)} cannot be chosen together with 'scale' and 'zero_point'" if excess else None


def _fault_of_tensor(chosen: Override, is_initializer: bool, default: QuantType | int | None) -> str | None:
    fault = _fault_of_scale(chosen) or (None if is_initializer else _fault_of_numbers(chosen, default))
    if fault is not None:
        return fault
    if "reduce_range" in chosen and not is_initializer:
        return "'reduce_range' is for initializers only"
    if "convert" not in chosen:
        return None
    converted = chosen["convert"]
    if is_initializer:
        return "Cannot use 'convert' override for initializers"
    if "quant_type" not in converted:
        return "'convert' must name a 'quant_type'"
    if "reduce_range" in converted:
        return "'reduce_range' is for initializers only"
    made = chosen.get("quant_type", default)
    if made is not None and tensor_type_of(converted["quant_type"]) == tensor_type_of(made):
        return "'convert' must name another 'quant_type' than the tensor's own"
    return _fault_of_scale(converted)


def _fault_of_channels(listed: list[Override], tensor: TensorProto | None) -> str | None:
    first = listed[0]
    axis = first.get("axis")
    if tensor is None:
        return "only initializers have channels of their own"
    if axis is None:
        return "the first channel must name an 'axis'"
    rank = len(tensor.dims)
    if not -rank <= axis < rank:
        return f"axis {axis} does not exist: the tensor has {rank} axes"
    if len(listed) not in (1, tensor.dims[axis]):
        return (
            f"axis {axis} has {tensor.dims[axis]} channels; found {len(listed)} dictionaries, neither one nor as many"
        )
    for place, each in enumerate(listed):
        fault = _fault_of_scale(each) or _fault_beside(first, each, rank)
        if fault is not None:
            return f"channel {place}: {fault}"
    return None


def _fault_beside(first: Override, each: Override, rank: int) -> str | None:
    """Return what is wrong with a channel beside the first one."""
    if "convert" in each:
        return "Cannot use 'convert' override for initializers"
    for key in _SAME_FOR_ALL:
        here, there = each.get(key, first.get(key)), first.get(key)
        if key == "axis" and here is not None and there is not None:
            here, there = here % rank, there % rank
        if here != there:
            return f"{key!r} must be the same for all channels"
    for key in ("scale", "rmin"):
        if (key in each) != (key in first):
            return f"all channels must choose {key!r}, or none"
    return "Must provide both 'rmin' and 'rmax' if one is provided" if ("rmin" in each) != ("rmax" in each) else None
