"""Blobs: a compiled model as bytes that say what they depend on, and are refused when altered or foreign.

Layout: a mark, the SHA-256 of all that follows, the length of the key, the key, OpenVINO's own export.
"""

from __future__ import annotations

import hashlib

from ort_core.plugin import Rejection

_MARK = b"ort-ep-openvino\x01"
_DIGEST_NBYTES = hashlib.sha256().digest_size
_LENGTH_NBYTES = 4


def sealed(content: bytes, key: str) -> bytes:
    """Return content with its key and digest."""
    text = key.encode()
    body = len(text).to_bytes(_LENGTH_NBYTES, "little") + text + content
    return _MARK + hashlib.sha256(body).digest() + body


def opened(blob: bytes, key: str) -> bytes | Rejection:
    """Return the content, or why these bytes are not it."""
    start = len(_MARK) + _DIGEST_NBYTES
    if not blob.startswith(_MARK) or len(blob) < start + _LENGTH_NBYTES:
        return Rejection("the bytes are no compiled model of this provider")
    digest, body = blob[len(_MARK) : start], memoryview(blob)[start:]
    if hashlib.sha256(body).digest() != digest:
        return Rejection("the bytes are damaged: their digest does not fit")
    end = _LENGTH_NBYTES + int.from_bytes(body[:_LENGTH_NBYTES], "little")
    found = bytes(body[_LENGTH_NBYTES:end]).decode()
    if found != key:
        return Rejection(f"the model was compiled for {found!r}, here is {key!r}")
    return bytes(body[end:])
