"""The body of a fused attention: the standard operators that MultiHeadAttention stands for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.graph import Graph
from ort_core.ir.types import DataType
from ort_core.ir.values import Value


@frozen
class AttentionFacts:
    """The sizes and the scale of an attention.

    Attributes:
        num_heads: of the queries.
        num_groups: heads of keys and values; each serves as many heads of queries.
        head_size: of queries and keys.
        value_size: of values.
        scale: the factor of the scores.
        dtype: of everything.
        softcap: the bound of the scores, 0 without one.
    """

    num_heads: int
    num_groups: int
    head_size: int
    value_size: int
    scale: float
    dtype: DataType
    softcap: float = 0.0


def build_attention_body(inputs: Sequence[Value | None], facts: AttentionFacts, num_outputs: int) -> Graph:
    """Return the graph of a MultiHeadAttention.

    ``inputs`` are the node's: query, key, value, -, -, attention bias, past key, past value. Query has three axes;
    key and value three, or four (batch, heads, length, size). Outputs are the result, and present key and value when
    ``num_outputs`` is 3.
    """
    graph = Graph("attention")
    for index, actual in enumerate(inputs):
        graph.add_input(Value(f"input_{index}", None if actual is None else actual.type))
    given = [formal if actual is not None else None for formal, actual in zip(graph.inputs, inputs, strict=True)]
    query, key, value = given[:3]
    bias, past_key, past_value = (given[index] if index < len(given) else None for index in (5, 6, 7))
    assert query is not None
    assert key is not None
    assert value is not None
    q = _split_heads(graph, query, facts.num_heads, facts.head_size)
    k = _present(graph, past_key, _split_heads(graph, key, facts.num_heads, facts.head_size))
    v = _present(graph, past_value, _split_heads(graph, value, facts.num_heads, facts.value_size))
    turned = graph.new_node("Transpose", [k], {"perm": (0, 1, 3, 2)}).output
    scale = graph.new_constant(np.array(facts.scale, facts.dtype.numpy), "scale")
    scores = graph.new_node("MatMul", [graph.new_node("Mul", [q, scale]).output, turned]).output
    if bias is not None:
        scores = graph.new_node("Add", [scores, bias]).output
    weights = graph.new_node("Softmax", [scores], {"axis": 3}).output
    merged = graph.new_node("Transpose", [graph.new_node("MatMul", [weights, v]).output], {"perm": (0, 2, 1, 3)}).output
    width = graph.new_constant(np.array([0, 0, facts.num_heads * facts.value_size], np.int64), "merged")
    result = graph.new_node("Reshape", [merged, width]).output
    graph.set_outputs([result, k, v][:num_outputs])
    return graph


def _split_heads(graph: Graph, value: Value, num_heads: int, size: int) -> Value:
    if value.rank == 4:
        return value
    shape = graph.new_constant(np.array([0, 0, num_heads, size], np.int64), "split")
    split = graph.new_node("Reshape", [value, shape]).output
    return graph.new_node("Transpose", [split], {"perm": (0, 2, 1, 3)}).output


def _present(graph: Graph, past: Value | None, new: Value) -> Value:
    return new if past is None else graph.new_node("Concat", [past, new], {"axis": 2}).output
