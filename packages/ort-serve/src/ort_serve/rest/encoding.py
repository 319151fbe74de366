"""Responses of HTTP: JSON, with tensors in it or as bytes behind it."""

from __future__ import annotations

import json
import math
from typing import Any

import orjson

from ort_serve.protocol.datatypes import array_to_bytes, datatype_of
from ort_serve.protocol.json_data import array_to_json
from ort_serve.protocol.requests import InferResponse
from ort_serve.protocol.shared_memory import SharedMemoryRegions


def encode_infer(response: InferResponse, is_binary: bool, regions: SharedMemoryRegions) -> tuple[bytes, int | None]:
    """Return a response's body, and the length of its JSON where bytes follow.

    Args:
        response: the results.
        is_binary: outputs that do not say go as bytes.
        regions: where outputs may go instead.

    Raises:
        InvalidRequest: an output does not fit its region, or has an element type that the protocol lacks.
    """
    outputs: list[dict[str, Any]] = []
    behind: list[bytes] = []
    for wanted, array in response.outputs:
        item: dict[str, Any] = {"name": wanted.name, "datatype": datatype_of(array).name, "shape": list(array.shape)}
        outputs.append(item)
        if wanted.region is not None:
            raw = array_to_bytes(array)
            regions.write(wanted.region, raw)
            item["parameters"] = {
                "shared_memory_region": wanted.region.region,
                "shared_memory_offset": wanted.region.offset,
                "shared_memory_byte_size": len(raw),
            }
        elif is_binary if wanted.is_binary is None else wanted.is_binary:
            behind.append(array_to_bytes(array))
            item["parameters"] = {"binary_data_size": len(behind[-1])}
        else:
            item["data"] = array_to_json(array)
    header = {"model_name": response.model, "model_version": response.version, "outputs": outputs}
    if response.identifier:
        header["id"] = response.identifier
    text = to_json(header)
    return (b"".join((text, *behind)), len(text)) if behind else (text, None)


def to_json(found: dict[str, Any]) -> bytes:
    """Return JSON's text. NaN and infinities stand as Python and JavaScript's readers of numbers write them."""
    if any(_is_odd(item.get("data")) for item in found.get("outputs", ())):
        return json.dumps(found).encode()
    return orjson.dumps(found)


def _is_odd(data: object) -> bool:
    """Whether a list has a number that JSON itself has no form for."""
    return isinstance(data, list) and any(isinstance(item, float) and not math.isfinite(item) for item in data)
