"""Which nodes of a model's file read what: names and operators, read from the file's bytes.

The library ``onnx`` reads them, too; to import it takes a fifth of the time from start to first token, which a session
that is recalled does not need it for. What is read here are the tags of a message of protobuf: fields of names
and of messages within messages (https://protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_BYTES = 2  # a wire type: a length, then so many bytes
_FIXED = {1: 8, 5: 4}  # bytes of wire types of one size
_GRAPH = 7  # of a model
_NODE, _OUTPUT = 1, 12  # of a graph
_INPUT_NAME, _OUTPUT_NAME, _OP_TYPE, _ATTRIBUTE = 1, 2, 4, 5  # of a node
_BODIES = (6, 11)  # of an attribute: a graph, graphs
_NAME = 1  # of a graph's output


@dataclass(frozen=True, slots=True)
class WiredNode:
    """A node by the names of what it reads and writes."""

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    has_bodies: bool


@dataclass(frozen=True, slots=True)
class Wiring:
    """The nodes of a graph, in its order, and the names of its outputs."""

    nodes: tuple[WiredNode, ...]
    outputs: tuple[str, ...]


def wiring_of(model: bytes) -> Wiring:
    """Return how the graph of a model is wired.

    Raises:
        ValueError: the bytes are no model.
    """
    nodes: list[WiredNode] = []
    outputs: list[str] = []
    whole = memoryview(model)
    for number, graph in _messages(whole):
        if number != _GRAPH:
            continue
        for part, content in _messages(graph):
            if part == _NODE:
                nodes.append(_node(content))
            elif part == _OUTPUT:
                outputs += [_text(name) for field, name in _messages(content) if field == _NAME]
    return Wiring(tuple(nodes), tuple(outputs))


def _node(content: memoryview) -> WiredNode:
    names: dict[int, list[str]] = {_INPUT_NAME: [], _OUTPUT_NAME: [], _OP_TYPE: [""]}
    has_bodies = False
    for number, value in _messages(content):
        if number in names:
            names[number].append(_text(value))
        elif number == _ATTRIBUTE:
            has_bodies = has_bodies or any(field in _BODIES for field, _ in _messages(value))
    return WiredNode(names[_OP_TYPE][-1], tuple(names[_INPUT_NAME]), tuple(names[_OUTPUT_NAME]), has_bodies)


def _text(value: memoryview) -> str:
    return str(value, "utf-8")


def _messages(content: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield numbers and bytes of the fields that have a length; numbers are passed over."""
    place, end = 0, len(content)
    while place < end:
        tag, place = _number(content, place)
        kind = tag & 7
        if kind == _BYTES:
            length, place = _number(content, place)
            if place + length > end:
                raise ValueError("a field is longer than what it stands in")
            yield tag >> 3, content[place : place + length]
            place += length
        elif kind == 0:
            _, place = _number(content, place)
        elif kind in _FIXED:
            place += _FIXED[kind]
        else:
            raise ValueError(f"wire type {kind} is none of protobuf's that ONNX has")


def _number(content: memoryview, place: int) -> tuple[int, int]:
    """Return a number of 7 bits a byte, and where it ends."""
    found = shift = 0
    while place < len(content) and shift < 70:
        byte = content[place]
        found |= (byte & 127) << shift
        place += 1
        if byte < 128:
            return found, place
        shift += 7
    raise ValueError("a number does not end")
