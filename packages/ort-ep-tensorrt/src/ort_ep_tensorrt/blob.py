"""Blobs: an engine as bytes that say what they depend on, and are refused when altered or foreign.

Layout: a mark, the SHA-256 of all that follows, the length of a JSON text, the text, the engine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from ort_core.plugin import Rejection
from ort_ep_tensorrt.ranges import Bounds, Ranges, ShapeRange

_MARK = b"ort-ep-tensorrt\x01"
_DIGEST_NBYTES = hashlib.sha256().digest_size
_LENGTH_NBYTES = 4


@dataclass(frozen=True, slots=True)
class StoredEngine:
    """An engine from elsewhere.

    Attributes:
        key: what it depends on.
        bounds: what it was built for.
        content: TensorRT's own bytes.
    """

    key: str
    bounds: Bounds
    content: bytes


def sealed(stored: StoredEngine) -> bytes:
    """Return an engine as bytes."""
    facts = {"key": stored.key, "shapes": _plain(stored.bounds.shapes), "values": _plain(stored.bounds.values)}
    text = json.dumps(facts, sort_keys=True).encode()
    body = len(text).to_bytes(_LENGTH_NBYTES, "little") + text + stored.content
    return _MARK + hashlib.sha256(body).digest() + body


def opened(blob: bytes) -> StoredEngine | Rejection:
    """Return the engine, or why these bytes are not one."""
    start = len(_MARK) + _DIGEST_NBYTES
    if not blob.startswith(_MARK) or len(blob) < start + _LENGTH_NBYTES:
        return Rejection("the bytes are no engine of this provider")
    digest, body = blob[len(_MARK) : start], memoryview(blob)[start:]
    if hashlib.sha256(body).digest() != digest:
        return Rejection("the bytes are damaged: their digest does not fit")
    end = _LENGTH_NBYTES + int.from_bytes(body[:_LENGTH_NBYTES], "little")
    try:
        facts = json.loads(bytes(body[_LENGTH_NBYTES:end]))
        bounds = Bounds(_ranges(facts["shapes"]), _ranges(facts["values"]))
        return StoredEngine(str(facts["key"]), bounds, bytes(body[end:]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Rejection(f"the bytes do not say what the engine was built for: {error}")


def _plain(ranges: Ranges) -> dict[str, list[list[int]]]:
    return {name: [list(r.minimum), list(r.optimum), list(r.maximum)] for name, r in ranges.items()}


def _ranges(plain: Mapping[str, list[list[int]]]) -> dict[str, ShapeRange]:
    return {name: ShapeRange(tuple(low), tuple(best), tuple(high)) for name, (low, best, high) in plain.items()}
