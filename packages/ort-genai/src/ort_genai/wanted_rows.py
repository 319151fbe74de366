"""Logits of the tokens alone that are asked for: the rows of the others are left out before the product of the head.

    hidden [batch, tokens, n] -> head -> logits [batch, tokens, vocabulary]
    hidden -> Gather(wanted) -> head -> logits [batch, wanted, vocabulary]

That is right where the head is a product with fixed weights, and what stands behind it treats each number by itself:
scaling, a cap, a bias, another type. The head of a small model takes a fifth of the time of a prompt, of which the
last token's logits are used. The file's bytes are changed where they need to be, as ``graph_wiring`` reads them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from ort_genai import onnx_numbers as of
from ort_genai.graph_wiring import WiredNode, Wiring, text_of
from ort_genai.paging.paged_inputs import WANTED
from ort_genai.protobuf_fields import Content, field_of, field_of_number, fields

_LARGEST = 16 << 20  # bytes of a graph: one with its weights inside would lie in memory once more
_HEADS = frozenset({"MatMul", "MatMulNBits"})
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
    """

    place: int
    made: tuple[str, ...]


def find_head(nodes: Sequence[WiredNode], initializers: Iterable[str], logits: str) -> Head | None:
    """Return the product that gives logits, which nothing but what treats each number by itself stands behind."""
    fixed = _fixed(nodes, initializers)
    makers = {name: place for place, node in enumerate(nodes) for name in node.outputs if name}
    made, name = list[str](), logits
    while name in makers:
        place = makers[name]
        node = nodes[place]
        made.append(name)
        varying = [each for each in node.inputs if each and each not in fixed]
        if len(varying) != 1:
            return None
        if node.op_type in _HEADS:
            return Head(place, tuple(reversed(made))) if node.inputs[0] == varying[0] else None
        if node.op_type not in _HEAD_TAIL:
            return None
        name = varying[0]
    return None


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
    head = _checked_head(wiring, tokens, logits)
    parts = list[Content]()
    for number, graph, whole in fields(memoryview(model)):
        is_graph = number == of.GRAPH and graph is not None
        parts.append(field_of(of.GRAPH, _gathered(graph, wiring, head, logits)) if is_graph and graph else whole)
    return b"".join(parts)


def _checked_head(wiring: Wiring, tokens: Collection[str], logits: str) -> Head:
    """Return the head of a graph whose rows may be left out.

    Raises:
        NotGathered: they may not.
    """
    if any(node.has_bodies for node in wiring.nodes):
        raise NotGathered("a node has a body, which may read anything")
    head = find_head(wiring.nodes, wiring.initializers, logits)
    if head is None:
        raise NotGathered("its logits are not those of a product with what treats each number by itself behind it")
    read = [name for node in wiring.nodes for name in node.inputs]
    if any(read.count(name) != 1 or name in wiring.outputs for name in head.made[:-1]) or logits in read:
        raise NotGathered("something else reads what its head gives")
    sizes = wiring.outputs.get(logits, ())
    given = next((wiring.inputs[name] for name in tokens if name in wiring.inputs), ())
    if len(sizes) != 3 or len(given) < 2 or not isinstance(sizes[1], str) or not sizes[1] or sizes[1] != given[1]:
        raise NotGathered(f"it states logits of {list(sizes)} for tokens of {list(given)}, not as many as there are")
    if WANTED in {*read, *wiring.inputs} or _rows(logits) in read:
        raise NotGathered(f"it has a value {WANTED} or {_rows(logits)} of its own")
    return head


def _rows(logits: str) -> str:
    return f"{logits}/wanted"


def _gathered(graph: Content, wiring: Wiring, head: Head, logits: str) -> bytes:
    """Return the bytes of a graph with the rows gathered before its head."""
    parts, place = list[Content](), 0
    source = wiring.nodes[head.place].inputs[0]
    for number, content, whole in fields(graph):
        if content is None:
            parts.append(whole)
        elif number == of.NODE:
            is_head, place = place == head.place, place + 1
            parts += (
                [_gather(source, logits), field_of(of.NODE, _reading(content, _rows(logits)))] if is_head else [whole]
            )
        elif number == of.OUTPUT and text_of(content, of.VALUE_NAME) == logits:
            parts.append(field_of(of.OUTPUT, _of_wanted(content)))
        elif number != of.VALUE or text_of(content, of.VALUE_NAME) not in head.made:
            parts.append(whole)  # what is stated of the values between would say how many tokens there are
    return b"".join([*parts, _wanted_input()])


def _gather(source: str, logits: str) -> bytes:
    axis = field_of(of.ATTRIBUTE_NAME, "axis") + field_of_number(of.ATTRIBUTE_NUMBER, 1)
    axis += field_of_number(of.ATTRIBUTE_TYPE, of.ATTRIBUTE_IS_NUMBER)
    node = field_of(of.NODE_INPUT, source) + field_of(of.NODE_INPUT, WANTED) + field_of(of.NODE_OUTPUT, _rows(logits))
    node += field_of(of.NODE_NAME, f"{logits}/Gather") + field_of(of.OP_TYPE, "Gather") + field_of(of.ATTRIBUTE, axis)
    return field_of(of.NODE, node)


def _reading(node: Content, name: str) -> bytes:
    """Return the bytes of a node whose first input is another one."""
    parts, is_first = list[Content](), True
    for number, _, whole in fields(node):
        is_changed = number == of.NODE_INPUT and is_first
        parts.append(field_of(of.NODE_INPUT, name) if is_changed else whole)
        is_first = is_first and number != of.NODE_INPUT
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
