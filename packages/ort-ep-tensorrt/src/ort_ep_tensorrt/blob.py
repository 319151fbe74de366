"""Blobs: an engine as sealed bytes; the text before it is JSON, with what it depends on and was built for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from ort_core.plugin import Rejection
from ort_core.plugin.cache import seal, unseal
from ort_ep_tensorrt.ranges import Bounds, Ranges, ShapeRange

_MARK = b"ort-ep-tensorrt\x01"


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
    return seal(_MARK, json.dumps(facts, sort_keys=True), [stored.content])


def opened(blob: bytes) -> StoredEngine | Rejection:
    """Return the engine, or why these bytes are not one."""
    stored = unseal(_MARK, blob)
    if isinstance(stored, Rejection):
        return stored
    try:
        facts = json.loads(stored.head)
        bounds = Bounds(_ranges(facts["shapes"]), _ranges(facts["values"]))
        return StoredEngine(str(facts["key"]), bounds, bytes(stored.content))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Rejection(f"the bytes do not say what the engine was built for: {error}")


def _plain(ranges: Ranges) -> dict[str, list[list[int]]]:
    return {name: [list(r.minimum), list(r.optimum), list(r.maximum)] for name, r in ranges.items()}


def _ranges(plain: Mapping[str, list[list[int]]]) -> dict[str, ShapeRange]:
    return {name: ShapeRange(tuple(low), tuple(best), tuple(high)) for name, (low, best, high) in plain.items()}
