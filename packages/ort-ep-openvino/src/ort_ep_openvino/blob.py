"""Blobs: a compiled model as sealed bytes that say what it was compiled for."""

from __future__ import annotations

from ort_core.plugin import Rejection
from ort_core.plugin.cache import seal, unseal

_MARK = b"ort-ep-openvino\x01"


def sealed(content: bytes, key: str) -> bytes:
    """Return content with its key and digest."""
    return seal(_MARK, key, [content])


def opened(blob: bytes, key: str) -> bytes | Rejection:
    """Return the content, or why these bytes are not it."""
    stored = unseal(_MARK, blob)
    if isinstance(stored, Rejection):
        return stored
    if stored.head != key:
        return Rejection(f"the model was compiled for {stored.head!r}, here is {key!r}")
    return bytes(stored.content)
