"""Requests of gRPC: tensors as raw bytes, as typed contents, or in shared memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

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
    checked_shape,
    region_slice,
    requested_output,
    scheduling_parameters,
)
from ort_serve.protocol.shared_memory import SharedMemoryRegions

_CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip


def decode_infer(message: Any, regions: SharedMemoryRegions) -> InferRequest:
    """Return the request that a ``ModelInferRequest`` holds.

    Raises:
        InvalidRequest: it cannot be read; the message names the part.
        NotFound: it names a region that is not registered.
    """
    parameters = read_parameters(message.parameters) if message.parameters else {}
    priority, timeout = scheduling_parameters(parameters)
    raw = message.raw_input_contents
    inputs: dict[str, np.ndarray] = {}
    taken = 0
    for tensor in message.inputs:
        if tensor.name in inputs:
            raise InvalidRequest(f"input {tensor.name!r} is given twice")
        own = read_parameters(tensor.parameters) if tensor.parameters else {}
        datatype, shape = datatype_named(tensor.datatype), checked_shape(tensor.name, list(tensor.shape))
        where = region_slice(own, f"input {tensor.name!r}") if own else None
        if where is not None:
            found = array_from_bytes(tensor.name, datatype, shape, regions.read(where))
        elif raw:
            if taken == len(raw):
                raise InvalidRequest(f"raw_input_contents has {len(raw)} parts; input {tensor.name!r} has none left")
            found = array_from_bytes(tensor.name, datatype, shape, raw[taken])
            taken += 1
        else:
            found = _typed(tensor.name, datatype, shape, tensor.contents)
        inputs[tensor.name] = found
    if taken != len(raw):
        raise InvalidRequest(f"raw_input_contents has {len(raw)} parts for {taken} inputs")
    outputs = tuple([_output(tensor) for tensor in message.outputs])
    return InferRequest(
        message.model_name, message.model_version, inputs, message.id, outputs, True, priority, timeout, parameters
    )


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
