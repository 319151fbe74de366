"""Digests of what names an entry, and check sums of what is in one, without ``hashlib``.

``hashlib`` loads OpenSSL's library, which takes 5 ms: as long as everything else that finding an entry takes. BLAKE2 is
Python's own, and is the same function there.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable

try:
    from _blake2 import blake2b
except ImportError:  # another Python, or another version
    from hashlib import blake2b

_NBYTES = 32


def digest_of(parts: Iterable[bytes]) -> bytes:
    """Return 32 bytes that no other sequence of parts has: as good as an identity."""
    hasher = blake2b(digest_size=_NBYTES)
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return hasher.digest()


def check_sum(content: bytes | memoryview, start: int = 0) -> int:
    """Return the CRC-32 of bytes, behind those whose check sum is ``start``: tells damage, at 2 GB/s a thread."""
    return binascii.crc32(content, start)
