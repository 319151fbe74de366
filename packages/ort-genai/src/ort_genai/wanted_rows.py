"""Logits of the tokens alone that are asked for: the rows of the others are left out before the product of the head.

    hidden [batch, tokens, n] -> head -> logits [batch, tokens, vocabulary]
    hidden -> Gather(wanted) -> head -> logits [batch, wanted, vocabulary]

    rows [batch * tokens, n] -> head -> Reshape -> logits                         (a Gemm has no other operands)
    rows -> Reshape(batch, tokens, -1) -> Gather(wanted) -> Flatten -> head -> Reshape(batch, wanted, -1) -> logits

That is right where the head is a product with fixed weights, and what stands behind it treats each number by itself:
scaling, a cap, a bias, another type. The head of a small model takes a fifth of the time of a prompt, of which the
last token's logits are used. The file's bytes are changed where they need to be, as ``graph_wiring`` reads them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ort_genai import onnx_numbers as of
from ort_genai.flat_rows import node_of, wanted_of_flat
from ort_genai.graph_wiring import WiredNode, Wiring, text_of
from ort_genai.paging.paged_inputs import WANTED
from ort_genai.protobuf_fields import Content, field_of, field_of_number, fields

_LARGEST = 16 << 20  # bytes of a graph: one with its weights inside would lie in memory once more
_HEADS = frozenset({"FusedMatMul", "Gemm", "MatMul", "MatMulNBits"})
_TURNS = ("transA", "transBatchA")  # attributes by which rows are columns
_HEAD_TAIL = frozenset({"Add", "Cast", "Clip", "Div", "Identity", "Mul", "Sub", "Tanh"})  # behind the product
_RANDOM = frozenset({
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
})  # fmt: skip


class NotGathered(ValueError):
    """A graph whose head stays as it is; its text says why."""


@dataclass(frozen=True, slots=True)
class Head:
    """The product that gives logits.

    Attributes:
        place: its place among the nodes.
        made: what it and the nodes behind it make, the logits last.
        columns: how many numbers it makes of a row, as far as its weights say so.
        raised: the place of the Reshape behind it that makes three axes of two; ``None`` where there is none.
    """

    place: int
    made: tuple[str, ...]
    columns: int | None = None
    raised: int | None = None


def find_head(
    nodes: Sequence[WiredNode], initializers: Mapping[str, Sequence[int]], logits: str, *, allows_flat: bool = False
) -> Head | None:
    """Return the product that gives logits, which nothing but what treats each number by itself stands behind.

    Args:
        nodes: of a graph.
        initializers: sizes of its weights by their names.
        logits: what the product gives.
        allows_flat: whether the product may be one of a matrix, with a Reshape behind it.
    """
    fixed = _fixed(nodes, initializers)
    makers = {name: place for place, node in enumerate(nodes) for name in node.outputs if name}
    made, name, raised_by = list[str](), logits, None
    while name in makers:
        place = makers[name]
        node = nodes[place]
        made.append(name)
        varying = [each for each in node.inputs if each and each not in fixed]
        if node.op_type == "Reshape" and allows_flat and raised_by is None and node.inputs[0] not in fixed:
            raised_by, name = place, node.inputs[0]
            continue
        if len(varying) != 1:
            return None
        if node.op_type in _HEADS:
            is_head = node.inputs[0] == varying[0] and not any(node.numbers.get(each) for each in _TURNS)
            if node.op_type == "Gemm":  # of a matrix; what it adds may be one row, for all
                added = initializers.get(node.inputs[2], ()) if len(node.inputs) > 2 else ()
                is_head = is_head and raised_by is not None and (len(added) < 2 or added[0] == 1)
            columns = _columns(node, initializers)
            return Head(place, tuple(reversed(made)), columns, raised_by) if is_head else None
        if node.op_type not in _HEAD_TAIL:
            return None
        name = varying[0]
    return None


def _columns(node: WiredNode, initializers: Mapping[str, Sequence[int]]) -> int | None:
    sizes = initializers.get(node.inputs[1], ())
    if node.op_type == "MatMulNBits" or len(sizes) != 2:
        return None
    return sizes[0] if node.numbers.get("transB") else sizes[1]


def _fixed(nodes: Sequence[WiredNode], initializers: Iterable[str]) -> set[str]:
    """Return the values that are the same in all runs: initializers, constants, and what is made of them alone."""
    found = set(initializers)
    for node in nodes:
        if not node.has_bodies and node.op_type not in _RANDOM and all(name in found for name in node.inputs if name):
            found.update(name for name in node.outputs if name)
    return found


def with_wanted_rows(model: bytes, wiring: Wiring, tokens: Collection[str], logits: str) -> bytes:
    """Return a model with an input ``WANTED``, numbers of tokens whose logits it gives, made of one that gives all.

    Args:
        model: the bytes of its file.
        wiring: of it.
        tokens: the name of the input of tokens, or of their vectors; of several the first that the graph has.
        logits: the name of the output.

    Raises:
        NotGathered: the graph does not fit.
    """
    if len(model) > _LARGEST:
        raise NotGathered(f"its graph is of {len(model) >> 20} MB, with weights within")
    given = next((name for name in tokens if name in wiring.inputs), "")
    head = _checked_head(wiring, given, logits)
    parts = list[Content]()
    for number, graph, whole in fields(memoryview(model)):
        is_graph = number == of.GRAPH and graph is not None
        parts.append(field_of(of.GRAPH, _gathered(graph, wiring, head, given, logits)) if is_graph and graph else whole)
    return b"".join(parts)


def _checked_head(wiring: Wiring, tokens: str, logits: str) -> Head:
    """Return the head of a graph whose rows may be left out.

    Raises:
        NotGathered: they may not.
    """
    if any(node.has_bodies for node in wiring.nodes):
        raise NotGathered("a node has a body, which may read anything")
    head = find_head(wiring.nodes, wiring.initializers, logits, allows_flat=True)
    if head is None:
        raise NotGathered("its logits are not those of a product with what treats each number by itself behind it")
    read = [name for node in wiring.nodes for name in node.inputs]
    if any(read.count(name) != 1 or name in wiring.outputs for name in head.made[:-1]) or logits in read:
        raise NotGathered("something else reads what its head gives")
    sizes, given = wiring.outputs.get(logits, ()), wiring.inputs.get(tokens, ())
    if len(sizes) != 3 or len(given) < 2 or not isinstance(sizes[1], str) or not sizes[1] or sizes[1] != given[1]:
        raise NotGathered(f"it states logits of {list(sizes)} for tokens of {list(given)}, not as many as there are")
    if head.raised is not None and (sizes[0] != given[0] or head.columns is None or head.columns != sizes[2]):
        raise NotGathered(f"its head gives {head.columns} columns, and it states logits of {list(sizes)}")
    if WANTED in {*read, *wiring.inputs} or any(name.startswith(_rows(logits)) for name in read):
        raise NotGathered(f"it has a value {WANTED} or {_rows(logits)} of its own")
    return head


def _rows(logits: str) -> str:
    return f"{logits}/wanted"


def _gathered(graph: Content, wiring: Wiring, head: Head, tokens: str, logits: str) -> bytes:
    """Return the bytes of a graph with the rows gathered before its head."""
    parts, place, rows = list[Content](), 0, _rows(logits)
    source = wiring.nodes[head.place].inputs[0]
    if head.raised is None:
        made, changed = node_of("Gather", [source, WANTED], rows, axis=1), {head.place: {0: rows}}
    else:
        made, target = wanted_of_flat(source, tokens, WANTED, rows)
        changed = {head.place: {0: rows}, head.raised: {1: target}}
    for number, content, whole in fields(graph):
        if content is None:
            parts.append(whole)
        elif number == of.NODE:
            if place == head.place:
                parts.append(made)
            parts.append(field_of(of.NODE, _reading(content, changed[place])) if place in changed else whole)
            place += 1
        elif number == of.OUTPUT and text_of(content, of.VALUE_NAME) == logits:
            parts.append(field_of(of.OUTPUT, _of_wanted(content)))
        elif number != of.VALUE or text_of(content, of.VALUE_NAME) not in head.made:
            parts.append(whole)  # what is stated of the values between would say how many tokens there are
    return b"".join([*parts, _wanted_input()])


def _reading(node: Content, names: Mapping[int, str]) -> bytes:
    """Return the bytes of a node of whose inputs some are others, by their numbers."""
    parts, place = list[Content](), 0
    for number, _, whole in fields(node):
        is_input = number == of.NODE_INPUT
        parts.append(field_of(of.NODE_INPUT, names[place]) if is_input and place in names else whole)
        place += is_input
    return b"".join(parts)


def _of_wanted(value: Content, path: Sequence[int] = (of.VALUE_TYPE, of.TENSOR_TYPE, of.SHAPE, of.DIM)) -> bytes:
    """Return the bytes of an output of three sizes, the second of which is the number of wanted rows."""
    parts, seen = list[Content](), 0
    for number, content, whole in fields(value):
        if number != path[0] or content is None:
            parts.append(whole)
        elif len(path) > 1:
            parts.append(field_of(number, _of_wanted(content, path[1:])))
        else:
            seen += 1
            parts.append(field_of(of.DIM, field_of(of.DIM_NAME, "wanted")) if seen == 2 else whole)
    return b"".join(parts)


def _wanted_input() -> bytes:
    shape = field_of(of.SHAPE, field_of(of.DIM, field_of(of.DIM_NAME, "wanted")))
    kind = field_of(of.TENSOR_TYPE, field_of_number(of.ELEMENT_TYPE, of.INT64) + shape)
    return field_of(of.INPUT, field_of(of.VALUE_NAME, WANTED) + field_of(of.VALUE_TYPE, kind))
