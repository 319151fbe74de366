"""Rows of all texts in one matrix, and those of wanted tokens among them, as nodes in a model's bytes.

    rows [batch * tokens, n] -> Reshape(batch, tokens, -1) -> Gather(wanted) -> Flatten -> [batch * wanted, n]

A product of that is made three axes again by a Reshape to (batch, wanted, -1).
"""

from __future__ import annotations

from collections.abc import Sequence

from ort_genai import onnx_numbers as of
from ort_genai.protobuf_fields import field_of, field_of_number, written

_REST = (1 << 64) - 1  # -1 in 64 bits


def node_of(op_type: str, inputs: Sequence[str], output: str, **numbers: int) -> bytes:
    """Return a node of a graph, named for what it gives; ``numbers`` are its attributes."""
    node = b"".join(field_of(of.NODE_INPUT, name) for name in inputs) + field_of(of.NODE_OUTPUT, output)
    node += field_of(of.NODE_NAME, f"{output}/{op_type}") + field_of(of.OP_TYPE, op_type)
    for name, number in numbers.items():
        attribute = field_of(of.ATTRIBUTE_NAME, name) + field_of_number(of.ATTRIBUTE_NUMBER, number)
        attribute += field_of_number(of.ATTRIBUTE_TYPE, of.ATTRIBUTE_IS_NUMBER)
        node += field_of(of.ATTRIBUTE, attribute)
    return field_of(of.NODE, node)


def _integers(name: str, *values: int) -> bytes:
    """Return an initializer that is a row of integers."""
    tensor = field_of_number(of.TENSOR_DIM, len(values)) + field_of_number(of.TENSOR_ELEMENT_TYPE, of.INT64)
    tensor += field_of(of.TENSOR_INTEGERS, b"".join(map(written, values))) + field_of(of.TENSOR_NAME, name)
    return field_of(of.INITIALIZER, tensor)


def wanted_of_flat(source: str, tokens: str, wanted: str, rows: str) -> tuple[bytes, str]:
    """Return fields of a graph that make wanted rows of all, and the name of the sizes of what a product makes of them.

    Args:
        source: the rows of all tokens, those of one text behind those of another.
        tokens: the input of tokens, [batch, tokens] or more.
        wanted: numbers of tokens.
        rows: the name of the rows that are made, the beginning of the names of everything else.
    """
    sizes, batch, length, rest, count, whole, three, picked = (
        f"{rows}/{part}" for part in ("sizes", "batch", "length", "rest", "count", "whole", "three", "picked")
    )
    first, second, target = f"{rows}/first", f"{rows}/second", f"{rows}/target"
    content = _integers(first, 0) + _integers(second, 1) + _integers(rest, _REST)
    content += node_of("Shape", [tokens], sizes)
    content += node_of("Gather", [sizes, first], batch) + node_of("Gather", [sizes, second], length)
    content += node_of("Concat", [batch, length, rest], whole, axis=0)
    content += node_of("Shape", [wanted], count) + node_of("Concat", [batch, count, rest], target, axis=0)
    content += node_of("Reshape", [source, whole], three) + node_of("Gather", [three, wanted], picked, axis=1)
    return content + node_of("Flatten", [picked], rows, axis=2), target
