"""The bytes of one EPContext: who compiled what, the graph that it computes, and the provider's own bytes.

Layout: a line that names the format, the length of a JSON head (8 bytes, little-endian), the head, the graph as
``onnx_io.artefact`` writes it (absent where the provider restores without), and what ``CompiledPartition.serialize``
gave. The node names the SHA-256 of it all, so that the file of another model is never taken for this one's.
"""

from __future__ import annotations

import hashlib
import json
import struct

from ort_core.errors import InvalidGraph
from ort_core.frozen import frozen

_MAGIC = b"ort-core-context-1\n"
_LENGTH = struct.Struct("<Q")


@frozen
class ContextContent:
    """What an EPContext holds.

    Attributes:
        provider: the name of the provider that compiled it.
        key: the provider's ``cache_key`` then.
        version: the version of ort-core then; compiled programs are called as that version calls them.
        input_count: how many inputs the partition has; further inputs of the node are constants.
        graph: the graph with its types, large constants by number; empty where the provider needs none.
        blob: the provider's bytes.
    """

    provider: str
    key: str
    version: str
    input_count: int
    graph: bytes | memoryview
    blob: bytes | memoryview


def encode_context(content: ContextContent) -> bytes:
    """Return the bytes of a context."""
    head = json.dumps(
        {
            "provider": content.provider, "key": content.key, "version": content.version,
            "input_count": content.input_count,
            "graph_nbytes": len(content.graph), "blob_nbytes": len(content.blob),
        }
    ).encode()  # fmt: skip
    return b"".join((_MAGIC, _LENGTH.pack(len(head)), head, content.graph, content.blob))


def decode_context(stored: memoryview) -> ContextContent:
    """Return what ``encode_context`` was given.

    Raises:
        InvalidGraph: the bytes are something else.
    """
    start = len(_MAGIC) + _LENGTH.size
    if len(stored) < start or stored[: len(_MAGIC)] != _MAGIC:
        raise InvalidGraph("the bytes are not a compiled partition of ort-core; another program has written them")
    (head_nbytes,) = _LENGTH.unpack_from(stored, len(_MAGIC))
    try:
        head = json.loads(bytes(stored[start : start + head_nbytes]))
        graph_at = start + head_nbytes
        blob_at = graph_at + int(head["graph_nbytes"])
        end = blob_at + int(head["blob_nbytes"])
        provider, key, version = (str(head[name]) for name in ("provider", "key", "version"))
        count = int(head["input_count"])
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidGraph(f"the head of a compiled partition cannot be read: {error}") from error
    if count < 0 or not graph_at <= blob_at <= end == len(stored):
        raise InvalidGraph(f"a compiled partition of {end} bytes is {len(stored)} bytes long")
    return ContextContent(provider, key, version, count, stored[graph_at:blob_at], stored[blob_at:])


def context_digest(stored: bytes | memoryview) -> str:
    """Return what identifies the bytes of a context."""
    return hashlib.sha256(stored).hexdigest()
