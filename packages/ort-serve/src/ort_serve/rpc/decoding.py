"""Requests of gRPC: tensors as raw bytes, as typed contents, or in shared memory."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from ort_serve.failures import InvalidRequest
from ort_serve.protocol.datatypes import (
    Datatype,
    array_from_bytes,
    count_of,
    datatype_named,
    decoded_text,
)
from ort_serve.protocol.json_data import array_from_json
from ort_serve.protocol.requests import (
    InferRequest,
    Parameter,
    RequestedOutput,
    check_regions,
    checked_shape,
    region_slice,
    requested_output,
    scheduling_parameters,
)
from ort_serve.protocol.shared_memory import RegionSlice, SharedMemoryRegions
from ort_serve.rpc.messages import MESSAGE_CLASSES
from ort_serve.rpc.wire import split_message

_Message = MESSAGE_CLASSES.get("ModelInferRequest")

_CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Tensor:
    """What a message says of an input, but for its elements; a region is where they are, if they are there."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    region: RegionSlice | None


@dataclass(frozen=True, slots=True, eq=False)
class _Head:
    """What a message says, but for its id and the elements of its inputs."""

    model: str
    version: str
    inputs: tuple[_Tensor, ...]
    outputs: tuple[RequestedOutput, ...]
    priority: int
    timeout_s: float | None
    parameters: Mapping[str, Parameter]


def read_request(wire: bytes, regions: SharedMemoryRegions) -> InferRequest:
    """Return the request that the bytes of a ``ModelInferRequest`` hold.

    Raises:
        InvalidRequest: they cannot be read; the message names the part.
        NotFound: they name a region that is not registered.
    """
    parted = split_message(wire)
    head = None if parted is None else _plain_head(parted.head)
    if parted is None or head is None or len(parted.raws) != len(head.inputs):
        return decode_infer(parsed_message(wire), regions)
    check_regions(head.outputs, regions)
    inputs = {
        tensor.name: array_from_bytes(tensor.name, tensor.datatype, tensor.shape, raw)
        for tensor, raw in zip(head.inputs, parted.raws)
    }
    return _request(head, inputs, parted.identifier, head)


def parsed_message(wire: bytes) -> Any:
    """Return the ``ModelInferRequest`` of its bytes.

    Raises:
        InvalidRequest: they are none.
    """
    try:
        return _Message.FromString(wire)
    except DecodeError as error:
        raise InvalidRequest(f"the message cannot be read: {error}") from error


@functools.lru_cache(256)
def _plain_head(raw: bytes) -> _Head | None:
    """Return what the bytes before the elements say; None where an input has its elements elsewhere.

    A client writes the same bytes with each request, and reading them takes half of the time of a short one.

    Raises:
        InvalidRequest: they cannot be read.
    """
    message = parsed_message(raw)
    head = _read_head(message)
    has_others = any(tensor.HasField("contents") for tensor in message.inputs)
    return None if has_others or any(tensor.region is not None for tensor in head.inputs) else head


def decode_infer(message: Any, regions: SharedMemoryRegions) -> InferRequest:
    """Return the request that a ``ModelInferRequest`` holds.

    Raises:
        InvalidRequest: it cannot be read; the message names the part.
        NotFound: it names a region that is not registered.
    """
    head = _read_head(message)
    check_regions(head.outputs, regions)
    raw = message.raw_input_contents
    inputs: dict[str, np.ndarray] = {}
    taken = 0
    for tensor, told in zip(head.inputs, message.inputs):
        name, datatype, shape = tensor.name, tensor.datatype, tensor.shape
        if tensor.region is not None:
            found = array_from_bytes(name, datatype, shape, regions.read(tensor.region))
        elif raw:
            if taken == len(raw):
                raise InvalidRequest(f"raw_input_contents has {len(raw)} parts; input {name!r} has none left")
            found = array_from_bytes(name, datatype, shape, raw[taken])
            taken += 1
        else:
            found = _typed(name, datatype, shape, told.contents)
        inputs[name] = found
    if taken != len(raw):
        raise InvalidRequest(f"raw_input_contents has {len(raw)} parts for {taken} inputs")
    return _request(head, inputs, message.id, None)


def _read_head(message: Any) -> _Head:
    parameters = read_parameters(message.parameters) if message.parameters else {}
    priority, timeout = scheduling_parameters(parameters)
    inputs: dict[str, _Tensor] = {}
    for tensor in message.inputs:
        if tensor.name in inputs:
            raise InvalidRequest(f"input {tensor.name!r} is given twice")
        own = read_parameters(tensor.parameters) if tensor.parameters else {}
        datatype, shape = datatype_named(tensor.datatype), checked_shape(tensor.name, list(tensor.shape))
        region = region_slice(own, f"input {tensor.name!r}") if own else None
        inputs[tensor.name] = _Tensor(tensor.name, datatype, shape, region)
    outputs = tuple([_output(tensor) for tensor in message.outputs])
    return _Head(
        message.model_name, message.model_version, tuple(inputs.values()), outputs, priority, timeout, parameters
    )


def _request(head: _Head, inputs: dict[str, np.ndarray], identifier: str, form: object) -> InferRequest:
    return InferRequest(
        head.model, head.version, inputs, identifier, head.outputs, True, head.priority, head.timeout_s,
        head.parameters, form=form,
    )  # fmt: skip


def read_parameters(found: Mapping[str, Any]) -> dict[str, Parameter]:
    """Return parameters as plain values."""
    plain: dict[str, Parameter] = {}
    for name, value in found.items():
        kind = value.WhichOneof("parameter_choice")
        if kind is not None:
            plain[name] = getattr(value, kind)
    return plain


def _typed(name: str, datatype: Datatype, shape: tuple[int, ...], contents: Any) -> np.ndarray:
    field = _CONTENTS.get(datatype.name)
    if field is None:
        raise InvalidRequest(
            f"input {name!r}: {datatype.name} goes in raw_input_contents; typed contents have no field for it"
        )
    values: Sequence[Any] = getattr(contents, field)
    if len(values) != count_of(shape):
        raise InvalidRequest(
            f"input {name!r}: {field} has {len(values)} elements, shape {list(shape)} has {count_of(shape)}"
        )
    if datatype.is_text:
        array = np.empty(len(values), object)
        array[:] = [decoded_text(name, value) for value in values]
        return array.reshape(shape)
    if datatype.name in ("INT8", "INT16", "UINT8", "UINT16"):  # the field is wider than the type
        return array_from_json(name, datatype, shape, list(values))
    return np.array(values, datatype.dtype).reshape(shape)


def _output(tensor: Any) -> RequestedOutput:
    own = read_parameters(tensor.parameters) if tensor.parameters else {}
    return requested_output(tensor.name, own, True)
