"""Which nodes of a model's file read what: names and operators, read from the file's bytes.

The library ``onnx`` reads them, too; to import it takes a fifth of the time from start to first token, which a session
that is recalled does not need it for. What is read here are the tags of a message of protobuf: fields of names
and of messages within messages (https://protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ort_genai import onnx_numbers as of
from ort_genai.protobuf_fields import Content, fields, messages, number_of

WITH_NUMBERS = frozenset({"FusedMatMul", "Gemm"})  # operators whose attributes that are integers are read
LARGEST = 64 << 20  # bytes of a graph: one with its weights inside takes longer to read than the answer is worth


@dataclass(frozen=True, slots=True)
class WiredNode:
    """A node by the names of what it reads and writes; ``numbers`` are attributes, of ``WITH_NUMBERS`` alone."""

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    has_bodies: bool
    numbers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wiring:
    """The nodes of a graph, in its order.

    Attributes:
        nodes: all of them.
        initializers: their sizes by their names.
        inputs: their names, and their sizes as far as they are stated.
        outputs: the same of outputs.
    """

    nodes: tuple[WiredNode, ...]
    initializers: Mapping[str, tuple[int, ...]]
    inputs: Mapping[str, tuple[int | str, ...]]
    outputs: Mapping[str, tuple[int | str, ...]]


def find_wiring(model: Path | bytes) -> Wiring | None:
    """Return how the graph of a model is wired; ``None`` where that is not found out: it is large, or in ORT's format.

    Args:
        model: a file, or its bytes.
    """
    if (len(model) if isinstance(model, bytes) else model.stat().st_size) > LARGEST:
        return None
    try:
        return wiring_of(model if isinstance(model, bytes) else model.read_bytes())
    except ValueError:  # the ORT format
        return None


def wiring_of(model: bytes) -> Wiring:
    """Return how the graph of a model is wired.

    Raises:
        ValueError: the bytes are no model.
    """
    nodes: list[WiredNode] = []
    initializers: dict[str, tuple[int, ...]] = {}
    borders: dict[int, dict[str, tuple[int | str, ...]]] = {of.INPUT: {}, of.OUTPUT: {}}
    for number, graph in messages(memoryview(model)):
        if number != of.GRAPH:
            continue
        for part, content in messages(graph):
            if part == of.NODE:
                nodes.append(_node(content))
            elif part == of.INITIALIZER:
                initializers[text_of(content, of.TENSOR_NAME)] = tuple(_numbers(content, of.TENSOR_DIM))
            elif part in borders:
                borders[part][text_of(content, of.VALUE_NAME)] = _sizes(content)
    return Wiring(tuple(nodes), initializers, borders[of.INPUT], borders[of.OUTPUT])


def text_of(content: Content, wanted: int) -> str:
    """Return a text of a message, empty where it has none.

    Raises:
        ValueError: the bytes are no message.
    """
    return next((str(value, "utf-8") for number, value in messages(content) if number == wanted), "")


def _node(content: Content) -> WiredNode:
    names: dict[int, list[str]] = {of.NODE_INPUT: [], of.NODE_OUTPUT: [], of.OP_TYPE: [""]}
    has_bodies = False
    for number, value in messages(content):
        if number in names:
            names[number].append(str(value, "utf-8"))
        elif number == of.ATTRIBUTE:
            has_bodies = has_bodies or any(field in of.ATTRIBUTE_BODIES for field, _ in messages(value))
    op_type = names[of.OP_TYPE][-1]
    numbers = dict(_numbers_of(content)) if op_type in WITH_NUMBERS else {}
    return WiredNode(op_type, tuple(names[of.NODE_INPUT]), tuple(names[of.NODE_OUTPUT]), has_bodies, numbers)


def _numbers_of(node: Content) -> Iterator[tuple[str, int]]:
    """Yield the attributes of a node that are integers."""
    for number, value in messages(node):
        if number == of.ATTRIBUTE:
            yield from ((text_of(value, of.ATTRIBUTE_NAME), each) for each in _numbers(value, of.ATTRIBUTE_NUMBER))


def _numbers(content: Content, wanted: int) -> Iterator[int]:
    """Yield the integers of a field, be they apart or packed."""
    for number, value, whole in fields(content):
        if number != wanted:
            continue
        if value is None:
            yield number_of(whole, number_of(whole, 0)[1])[0]
        else:
            place = 0
            while place < len(value):
                each, place = number_of(value, place)
                yield each


def _sizes(content: Content) -> tuple[int | str, ...]:
    """Return the sizes of an input or an output: numbers or names, an empty name where none is stated."""
    return tuple(_size(dim) for dim in dims_of(content))


def dims_of(content: Content) -> Iterator[Content]:
    """Yield the messages of the dimensions of an input or an output."""
    for kind in _inside(content, of.VALUE_TYPE, of.TENSOR_TYPE, of.SHAPE):
        for number, dim in messages(kind):
            if number == of.DIM:
                yield dim


def _inside(content: Content, *path: int) -> Iterator[Content]:
    """Yield the messages that stand in messages of given numbers."""
    if not path:
        yield content
        return
    for number, inner in messages(content):
        if number == path[0]:
            yield from _inside(inner, *path[1:])


def _size(dim: Content) -> int | str:
    for number, value, whole in fields(dim):
        if number == of.DIM_NAME and value is not None:
            return str(value, "utf-8")
        if number == of.DIM_SIZE:
            return number_of(whole, 1)[0]
    return ""
