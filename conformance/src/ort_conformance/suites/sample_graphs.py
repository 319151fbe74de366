"""Small graphs that the contract and the partitioning suites ask about, as ONNX text, each with feeds.

A sequence of one element stands where a node is wanted that hardware does not run: ``SequenceConstruct`` and
``SequenceAt`` give back the same tensor, and a provider that runs them too takes the whole graph, which is as right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.parser

from ort_conformance.suites.model_text import seeded

HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'


@dataclass(frozen=True, slots=True)
class SampleGraph:
    """A graph as text. ``shapes`` are those of its float32 inputs, by name."""

    name: str
    text: str
    shapes: Mapping[str, tuple[int, ...]]

    def model(self) -> onnx.ModelProto:
        """Return the model."""
        return onnx.parser.parse_model(HEADER + self.text)

    def feeds(self) -> dict[str, np.ndarray]:
        """Return seeded feeds."""
        return {
            name: seeded(self.name, name).uniform(-2.0, 2.0, shape).astype(np.float32)
            for name, shape in self.shapes.items()
        }


CHAIN = SampleGraph(
    "chain",
    "g (float[4, 8] x) => (float[4, 8] y) { a = Relu(x)  b = Add(a, x)  c = Mul(b, b)  y = Tanh(c) }",
    {"x": (4, 8)},
)
CHAIN_BEHIND_A_PIECE = SampleGraph(
    "chain_behind_a_piece",
    """g (float[4, 16] x) => (float[4, 8] y) <int64 size = {8}, int64 first = {0}>
       { pieces = SplitToSequence<axis = 1>(x, size)  p = SequenceAt(pieces, first)
         a = Relu(p)  b = Add(a, p)  c = Mul(b, b)  y = Tanh(c) }""",
    {"x": (4, 16)},
)
PRODUCT = SampleGraph(
    "product",
    """g (float[4, 8] x, float[8, 3] w) => (float[4, 3] y)
       { m = MatMul(x, w)  r = Relu(m)  y = Softmax<axis = -1>(r) }""",
    {"x": (4, 8), "w": (8, 3)},
)
DIAMOND = SampleGraph(
    "diamond_around_a_sequence",
    """g (float[4, 8] x) => (float[4, 8] y)
       { a = Relu(x)  s = SequenceConstruct(a)  zero = Constant<value_int = 0>()  b = SequenceAt(s, zero)
         c = Add(a, a)  d = Mul(c, b)  y = Sub(d, a) }""",
    {"x": (4, 8)},
)
TWO_OUTPUTS = SampleGraph(
    "value_used_inside_and_outside",
    "g (float[3, 5] x) => (float[3, 5] a, float[3, 5] y) { a = Sigmoid(x)  b = Add(a, x)  y = Mul(b, a) }",
    {"x": (3, 5)},
)
DYNAMIC = SampleGraph(
    "dynamic_rows",
    "g (float[N, 8] x) => (float[N, 8] y) { a = Relu(x)  b = Add(a, x)  y = Mul(b, a) }",
    {"x": (5, 8)},
)
BRANCHES = SampleGraph(
    "if_with_two_branches",
    """g (float[4] x) => (float[4] y)
       { limit = Constant<value_float = 0.0>()  total = ReduceSum<keepdims = 0>(x)  flag = Greater(total, limit)
         y = If(flag) <then_branch = t () => (float[4] u) { u = Relu(x) },
                       else_branch = e () => (float[4] v) { v = Neg(x) }> }""",
    {"x": (4,)},
)
FIXED_PRODUCT = SampleGraph(
    "product_of_constants",
    """g (float[3, 3] x) => (float[3, 3] y)
       <int8[3, 3] c = {1, -2, 3, 4, 5, -6, 7, 0, 9}, float scale = {0.5}>
       { q = DequantizeLinear(c, scale)  m = MatMul(q, q)  r = Relu(m)  y = Add(r, x) }""",
    {"x": (3, 3)},
)
EMPTY = SampleGraph(
    "no_rows",
    "g (float[0, 4] x) => (float[0, 4] y) { a = Relu(x)  y = Add(a, x) }",
    {"x": (0, 4)},
)
SAMPLES = (CHAIN, PRODUCT, DIAMOND, TWO_OUTPUTS, DYNAMIC, BRANCHES, EMPTY)
