"""Requests of HTTP: JSON, with tensors in it or as bytes behind it.

Source: the Open Inference Protocol, version 2, and its binary tensor data, shared memory and classification extensions.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from ort_serve.failures import InvalidRequest, TooLarge
from ort_serve.protocol.datatypes import Datatype, array_from_bytes, count_of, datatype_named
from ort_serve.protocol.json_data import array_from_json
from ort_serve.protocol.requests import (
    InferRequest,
    RequestedOutput,
    check_regions,
    checked_shape,
    region_slice,
    requested_output,
    scheduling_parameters,
)
from ort_serve.protocol.shared_memory import RegionSlice, SharedMemoryRegions

HEADER_LENGTH = b"inference-header-content-length"
_SHORT = 1024  # bytes of JSON that is kept with what it says


def decode_infer(
    model: str, version: str, body: bytes, header_length: bytes | None, regions: SharedMemoryRegions, json_limit: int
) -> InferRequest:
    """Return the request that a body holds.

    Args:
        model: of the address.
        version: of the address; may be empty.
        body: JSON, and tensors' bytes behind it.
        header_length: the header that says how long the JSON is; None: all of the body.
        regions: where inputs in shared memory are.
        json_limit: most bytes of JSON.

    Raises:
        TooLarge: there is more JSON.
        InvalidRequest: it cannot be read; the message names the part.
        NotFound: it names a region that is not registered.
    """
    length, form = _header_length(header_length, len(body)), None
    if length > json_limit:
        raise TooLarge(f"the JSON has {length} bytes; this server takes {json_limit}: send tensors as binary data")
    if length == len(body):
        header = _read_header(body)
    else:
        text = body[:length]
        header = form = _read_header_again(text) if length <= _SHORT else _read_header(text)
    check_regions(header.outputs, regions)
    behind = _Behind(memoryview(body)[length:])
    inputs = {tensor.name: _array(tensor, behind, regions) for tensor in header.inputs}
    behind.check_end()
    return InferRequest(
        model,
        version,
        inputs,
        header.identifier,
        header.outputs,
        header.are_outputs_binary,
        header.priority,
        header.timeout_s,
        header.parameters,
        form=form,
    )


@dataclass(frozen=True, slots=True)
class _Tensor:
    """What the JSON says of an input: its elements are in a region, behind the JSON, or ``data``."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    region: RegionSlice | None
    is_behind: bool
    nbytes: object
    data: object


@dataclass(frozen=True, slots=True, eq=False)
class _Header:
    """What the JSON of a request says."""

    inputs: tuple[_Tensor, ...]
    outputs: tuple[RequestedOutput, ...]
    identifier: str
    are_outputs_binary: bool
    priority: int
    timeout_s: float | None
    parameters: Mapping[str, Any]


def _read_header(text: bytes) -> _Header:
    found = read_json_object(text)
    parameters = _object(found, "parameters", "the request")
    priority, timeout = scheduling_parameters(parameters)
    inputs: dict[str, _Tensor] = {}
    for item in _list(found, "inputs", "the request"):
        tensor = _tensor(item)
        if tensor.name in inputs:
            raise InvalidRequest(f"input {tensor.name!r} is given twice")
        inputs[tensor.name] = tensor
    identifier = found.get("id", "")
    if not isinstance(identifier, str):
        raise InvalidRequest(f"id must be a string; found {type(identifier).__name__}")
    return _Header(
        tuple(inputs.values()),
        tuple(_output(item) for item in _list(found, "outputs", "the request")),
        identifier,
        _flag(parameters, "binary_data_output", "the request") or False,
        priority,
        timeout,
        parameters,
    )


# A client writes the same JSON before each request's bytes, and reading it takes a fifth of a short request's time.
_read_header_again = functools.lru_cache(256)(_read_header)


def read_json_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a body; an empty body is an empty object.

    Raises:
        InvalidRequest: it is no JSON, or no object.
    """
    if not body:
        return {}
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        found = _lenient(body, error)
    if not isinstance(found, dict):
        raise InvalidRequest(f"the body must be a JSON object; found {type(found).__name__}")
    return found


def _lenient(body: bytes, strict: orjson.JSONDecodeError) -> object:
    """Read what Python's own clients write beyond JSON: NaN and Infinity."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the body is not JSON: {strict}") from error


class _Behind:
    """The bytes behind the JSON, taken in the order of the inputs."""

    def __init__(self, raw: memoryview) -> None:
        self._raw = raw
        self._at = 0

    def take(self, name: str, count: object) -> memoryview:
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise InvalidRequest(f"input {name!r}: binary_data_size must be a count of bytes; found {count!r}")
        if count > len(self._raw) - self._at:
            raise InvalidRequest(
                f"input {name!r}: binary_data_size is {count}; the body has {len(self._raw) - self._at} bytes left"
            )
        self._at += count
        return self._raw[self._at - count : self._at]

    def check_end(self) -> None:
        if self._at != len(self._raw):
            raise InvalidRequest(f"{len(self._raw) - self._at} bytes at the end of the body belong to no input")


def _header_length(text: bytes | None, total: int) -> int:
    if text is None:
        return total
    if not text.isdigit() or len(text) > 18 or int(text) > total:
        raise InvalidRequest(
            f"Inference-Header-Content-Length is {text[:40].decode('latin-1')!r}; the body has {total} bytes"
        )
    return int(text)


def _tensor(item: object) -> _Tensor:
    if not isinstance(item, dict):
        raise InvalidRequest(f"each input must be an object; found {type(item).__name__}")
    name = item.get("name")
    if not isinstance(name, str):
        raise InvalidRequest(f"an input's name must be a string; found {name!r}")
    parameters = _object(item, "parameters", f"input {name!r}")
    datatype, shape = datatype_named(item.get("datatype")), checked_shape(name, item.get("shape"))
    region, is_behind = region_slice(parameters, f"input {name!r}"), "binary_data_size" in parameters
    if region is None and not is_behind and "data" not in item and count_of(shape):
        raise InvalidRequest(
            f"input {name!r} has neither data nor parameter binary_data_size nor a shared memory region"
        )
    return _Tensor(name, datatype, shape, region, is_behind, parameters.get("binary_data_size"), item.get("data", []))


def _array(tensor: _Tensor, behind: _Behind, regions: SharedMemoryRegions) -> np.ndarray:
    if tensor.region is not None:
        return array_from_bytes(tensor.name, tensor.datatype, tensor.shape, regions.read(tensor.region))
    if tensor.is_behind:
        raw = behind.take(tensor.name, tensor.nbytes)
        return array_from_bytes(tensor.name, tensor.datatype, tensor.shape, raw)
    return array_from_json(tensor.name, tensor.datatype, tensor.shape, tensor.data)


def _output(item: object) -> RequestedOutput:
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        raise InvalidRequest(f"each output must be an object with a name; found {str(item)[:100]}")
    parameters = _object(item, "parameters", f"output {item['name']!r}")
    binary = _flag(parameters, "binary_data", f"output {item['name']!r}")
    return requested_output(item["name"], parameters, binary)


def _flag(parameters: Mapping[str, Any], name: str, where: str) -> bool | None:
    found = parameters.get(name)
    if found is not None and not isinstance(found, bool):
        raise InvalidRequest(f"parameter {name} of {where} must be true or false; found {str(found)[:40]!r}")
    return found


def _object(owner: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    found = owner.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InvalidRequest(f"{name} of {where} must be an object; found {type(found).__name__}")
    return found


def _list(owner: Mapping[str, Any], name: str, where: str) -> list[Any]:
    found = owner.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        raise InvalidRequest(f"{name} of {where} must be a list; found {type(found).__name__}")
    return found
