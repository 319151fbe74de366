"""The bytes of a ``ModelInferRequest``, parted into what requests have in common and what is each one's own.

All fields of the message are bytes behind their length. Clients write them in the order of their numbers, so that the
raw contents, number 7, end it. What stands before them, without the id, says what is asked: a client writes the same
with each request. Protobuf reads that part; here fields are only told apart.
"""

from __future__ import annotations

from dataclasses import dataclass

_ID, _RAW = 0x1A, 0x3A  # fields 3 and 7, and that they are bytes behind their length
_TAGS = frozenset({0x0A, 0x12, _ID, 0x22, 0x2A, 0x32, _RAW})
_MOST_HEAD_NBYTES = 1024  # what is longer is not kept to be known again
_MOST_NBYTES = 1 << 18  # lengths of no more than three bytes


@dataclass(frozen=True, slots=True)
class PartedMessage:
    """The parts of a message: the bytes before the raw contents without the id, the id, and the raw contents."""

    head: bytes
    identifier: str
    raws: list[bytes]


def split_message(wire: bytes) -> PartedMessage | None:
    """Return the parts of a message; None where it is long, ends too early, or has other fields or another order."""
    end = len(wire)
    if not end or end > _MOST_NBYTES:
        return None
    at, kept, identifier = 0, 0, b""
    heads: list[bytes] = []
    raws: list[bytes] = []
    while at < end:
        start, tag = at, wire[at]
        at += 1
        length, shift = 0, 0
        while True:
            if at == end or shift > 14:
                return None
            byte = wire[at]
            at += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        at += length
        if at > end or tag not in _TAGS or (raws and tag != _RAW):
            return None
        if tag == _RAW:
            if not raws:
                heads.append(wire[kept:start])
            raws.append(wire[at - length : at])
        elif tag == _ID:
            identifier = wire[at - length : at]
            heads.append(wire[kept:start])
            kept = at
    head = b"".join(heads)
    if not raws or len(head) > _MOST_HEAD_NBYTES:
        return None
    try:
        return PartedMessage(head, identifier.decode(), raws)
    except UnicodeDecodeError:
        return None  # protobuf says so in its words
