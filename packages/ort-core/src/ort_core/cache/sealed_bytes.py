"""What is compiled, as bytes that say what they depend on: cut, changed or foreign ones are refused, not opened.

Layout: the mark of who wrote it, the SHA-256 of all that follows, the length of a text (4 bytes, little-endian), the
text, the content. A digest finds damage; it is no signature: whoever may write the bytes may write the digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from ort_core.frozen import frozen
from ort_core.ir.rejection import Rejection

_DIGEST_NBYTES = hashlib.sha256().digest_size
_LENGTH_NBYTES = 4


@frozen
class Unsealed:
    """What sealed bytes hold.

    Attributes:
        head: the text that says what the content depends on.
        content: the rest, as a view of the bytes.
    """

    head: str
    content: memoryview


def seal(mark: bytes, head: str, content: Iterable[bytes]) -> bytes:
    """Return the parts of a content with a mark and a text before them, and the digest of all.

    Args:
        mark: names who writes and the version of the form; bytes that begin otherwise are refused.
        head: what the content depends on, such as versions and options.
        content: the parts, in order.
    """
    text = head.encode()
    body = b"".join((len(text).to_bytes(_LENGTH_NBYTES, "little"), text, *content))
    return mark + hashlib.sha256(body).digest() + body


def unseal(mark: bytes, blob: bytes) -> Unsealed | Rejection:
    """Return what was sealed, or why these bytes are not it."""
    start = len(mark) + _DIGEST_NBYTES
    if not blob.startswith(mark) or len(blob) < start + _LENGTH_NBYTES:
        return Rejection("the bytes are not of this provider, or of another version of it")
    body = memoryview(blob)[start:]
    if hashlib.sha256(body).digest() != blob[len(mark) : start]:
        return Rejection("the bytes are damaged: their digest does not fit")
    end = _LENGTH_NBYTES + int.from_bytes(body[:_LENGTH_NBYTES], "little")
    try:
        return Unsealed(bytes(body[_LENGTH_NBYTES:end]).decode(), body[end:])
    except UnicodeDecodeError as error:
        return Rejection(f"the bytes do not say what they depend on: {error}")
