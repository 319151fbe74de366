"""The fields of a message of protobuf, read and written as they stand in its bytes.

A field is a tag, its number and a wire type, and behind it a number, or so many bytes as a length says
(https://protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

from collections.abc import Iterator

Content = bytes | memoryview
_NUMBER, _BYTES = 0, 2  # wire types
_FIXED = {1: 8, 5: 4}  # bytes of wire types of one size


def fields(content: Content) -> Iterator[tuple[int, Content | None, Content]]:
    """Yield the number of each field, its bytes where it has a length, and the whole of it with its tag.

    Raises:
        ValueError: the bytes are no message.
    """
    place, end = 0, len(content)
    while place < end:
        start, tag = place, content[place]
        if tag < 128:  # nearly all are
            place += 1
        else:
            tag, place = number_of(content, place)
        kind, value = tag & 7, None
        if kind == _BYTES:
            length, place = number_of(content, place)
            value = content[place : place + length]
            place += length
        elif kind == _NUMBER:
            _, place = number_of(content, place)
        elif kind in _FIXED:
            place += _FIXED[kind]
        else:
            raise ValueError(f"wire type {kind} is none of protobuf's that ONNX has")
        if place > end:
            raise ValueError("a field is longer than what it stands in")
        yield tag >> 3, value, content[start:place]


def messages(content: Content) -> Iterator[tuple[int, Content]]:
    """Yield numbers and bytes of the fields that have a length; numbers are passed over.

    Raises:
        ValueError: the bytes are no message.
    """
    for number, value, _ in fields(content):
        if value is not None:
            yield number, value


def number_of(content: Content, place: int) -> tuple[int, int]:
    """Return a number of 7 bits a byte, and where it ends.

    Raises:
        ValueError: it does not end.
    """
    found = shift = 0
    while place < len(content) and shift < 70:
        byte = content[place]
        found |= (byte & 127) << shift
        place += 1
        if byte < 128:
            return found, place
        shift += 7
    raise ValueError("a number does not end")


def written(number: int) -> bytes:
    """Return a number from 0 on as 7 bits a byte."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


def field_of(number: int, content: Content | str) -> bytes:
    """Return a field of bytes, or of a text."""
    value = content.encode() if isinstance(content, str) else bytes(content)
    return written(number << 3 | _BYTES) + written(len(value)) + value


def field_of_number(number: int, value: int) -> bytes:
    """Return a field of a number from 0 on."""
    return written(number << 3 | _NUMBER) + written(value)
