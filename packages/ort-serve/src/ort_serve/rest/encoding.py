"""Responses of HTTP: JSON, with tensors in it or as bytes behind it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import orjson

from ort_serve.failures import plain_text
from ort_serve.protocol.datatypes import array_to_bytes, datatype_of, text_of
from ort_serve.protocol.requests import InferResponse
from ort_serve.protocol.shared_memory import SharedMemoryRegions

_PIECE = 1 << 13  # elements that are written at once: one to three milliseconds


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
            data = _data(array)
            item["data"] = _in_pieces(data) if len(data) > _PIECE or _is_odd(data) else data
    header = {"model_name": response.model, "model_version": response.version, "outputs": outputs}
    if response.identifier:
        header["id"] = plain_text(response.identifier)
    text = orjson.dumps(header, option=orjson.OPT_SERIALIZE_NUMPY)
    return (b"".join((text, *behind)), len(text)) if behind else (text, None)


def _in_pieces(data: np.ndarray | list[object]) -> orjson.Fragment:
    """Return the text of a long tensor's elements, written piece by piece.

    No other thread runs while a piece is written, not even that of the event loop: all of a large one takes a second.
    """
    pieces = [_text(data[at : at + _PIECE])[1:-1] for at in range(0, len(data), _PIECE)]
    return orjson.Fragment(b"".join((b"[", b",".join(pieces), b"]")))


def _text(data: np.ndarray | list[object]) -> bytes:
    if isinstance(data, np.ndarray) and _is_odd(data):
        return json.dumps(data.tolist()).encode()  # as Python writes it: NaN, Infinity
    return orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY)


def _is_odd(data: np.ndarray | list[object]) -> bool:
    """Whether there is a number that JSON itself has no form for."""
    return isinstance(data, np.ndarray) and data.dtype.kind == "f" and not np.isfinite(data).all()


def _data(array: np.ndarray) -> np.ndarray | list[object]:
    """Return what stands for a tensor's elements: numbers as they are, each written as short as its type allows."""
    flat = array.reshape(-1)
    if flat.dtype.kind in "OSU":
        return [text_of(item) for item in flat]
    flat = flat.astype(np.float32) if flat.dtype.kind == "V" else flat
    return np.ascontiguousarray(flat)
