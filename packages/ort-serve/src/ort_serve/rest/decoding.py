"""Requests of HTTP: JSON, with tensors in it or as bytes behind it.

Source: the Open Inference Protocol, version 2, and its binary tensor data, shared memory and classification extensions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from ort_serve.failures import InvalidRequest, TooLarge
from ort_serve.protocol.datatypes import array_from_bytes, count_of, datatype_named
from ort_serve.protocol.json_data import array_from_json
from ort_serve.protocol.requests import (
    InferRequest,
    RequestedOutput,
    checked_shape,
    region_slice,
    requested_output,
    scheduling_parameters,
)
from ort_serve.protocol.shared_memory import SharedMemoryRegions

HEADER_LENGTH = b"inference-header-content-length"


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
    length = _header_length(header_length, len(body))
    if length > json_limit:
        raise TooLarge(f"the JSON has {length} bytes; this server takes {json_limit}: send tensors as binary data")
    header = read_json_object(body[:length] if length < len(body) else body)
    behind = _Behind(memoryview(body)[length:])
    parameters = _object(header, "parameters", "the request")
    priority, timeout = scheduling_parameters(parameters)
    inputs: dict[str, np.ndarray] = {}
    for item in _list(header, "inputs", "the request"):
        name, array = _input(item, behind, regions)
        if name in inputs:
            raise InvalidRequest(f"input {name!r} is given twice")
        inputs[name] = array
    behind.check_end()
    identifier = header.get("id", "")
    if not isinstance(identifier, str):
        raise InvalidRequest(f"id must be a string; found {type(identifier).__name__}")
    return InferRequest(
        model,
        version,
        inputs,
        identifier,
        tuple(_output(item) for item in _list(header, "outputs", "the request")),
        _flag(parameters, "binary_data_output", "the request") or False,
        priority,
        timeout,
        parameters,
    )


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


def _input(item: object, behind: _Behind, regions: SharedMemoryRegions) -> tuple[str, np.ndarray]:
    if not isinstance(item, dict):
        raise InvalidRequest(f"each input must be an object; found {type(item).__name__}")
    name = item.get("name")
    if not isinstance(name, str):
        raise InvalidRequest(f"an input's name must be a string; found {name!r}")
    datatype = datatype_named(item.get("datatype"))
    shape = checked_shape(name, item.get("shape"))
    parameters = _object(item, "parameters", f"input {name!r}")
    where = region_slice(parameters, f"input {name!r}")
    if where is not None:
        return name, array_from_bytes(name, datatype, shape, regions.read(where))
    if "binary_data_size" in parameters:
        return name, array_from_bytes(name, datatype, shape, behind.take(name, parameters["binary_data_size"]))
    if "data" not in item:
        if count_of(shape) == 0:
            return name, np.empty(shape, datatype.dtype)
        raise InvalidRequest(
            f"input {name!r} has neither data nor parameter binary_data_size nor a shared memory region"
        )
    return name, array_from_json(name, datatype, shape, item["data"])


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
