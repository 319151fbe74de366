"""Partitioning: graphs that a provider runs in pieces, with what it leaves in every awkward place.

Where a node is wanted that hardware does not run, a sequence of one tensor is made and read again; a provider that
runs sequences takes the whole graph, which is as right. The truth is onnx's own evaluator; passes run, as for a user.
"""

from __future__ import annotations

from collections.abc import Iterator

from ort_conformance.check import Check
from ort_conformance.judge import case_check
from ort_conformance.suites.model_text import evaluated
from ort_conformance.suites.sample_graphs import BRANCHES, CHAIN, DIAMOND, TWO_OUTPUTS, SampleGraph

X = {"x": (4, 8)}
ISLAND = "zero = Constant<value_int = 0>()  s = SequenceConstruct({0})  {1} = SequenceAt(s, zero)"

NUMBERS = ", ".join(str((index * 7 % 11 - 5) / 10) for index in range(64))


def _island(source: str, result: str, number: int = 0) -> str:
    text = ISLAND.format(source, result)
    return text.replace("zero", f"zero{number}").replace("s =", f"s{number} =").replace("(s,", f"(s{number},")


def _graph(name: str, body: str, *, outputs: str = "float[4, 8] y", weights: str = "") -> SampleGraph:
    return SampleGraph(name, f"g (float[4, 8] x) => ({outputs}) {weights} {{ {body} }}", X)


LOOP = SampleGraph(
    "loop_with_a_captured_value_and_an_unsupported_node",
    """g (float[3] x) => (float[3] y)
       { scale = Sigmoid(x)  count = Constant<value_int = 4>()  go = Constant<value = bool {1}>()
         y = Loop(count, go, x) <body = b (int64 i, bool more, float[3] state) => (bool again, float[3] next)
         { again = Identity(more)  zero = Constant<value_int = 0>()  s = SequenceConstruct(state)
           same = SequenceAt(s, zero)  scaled = Mul(same, scale)  next = Add(scaled, x) }> }""",
    {"x": (3,)},
)
SCAN = SampleGraph(
    "scan_over_rows",
    """g (float[5, 3] x) => (float[3] total, float[5, 3] sums)
       { start = Constant<value = float[3] {0.0, 0.0, 0.0}>()
         total, sums = Scan<num_scan_inputs = 1,
         body = b (float[3] before, float[3] row) => (float[3] after, float[3] shown)
         { after = Add(before, row)  shown = Tanh(after) }>(start, x) }""",
    {"x": (5, 3)},
)
IF_WITH_CAPTURES = SampleGraph(
    "if_whose_branches_read_outer_values",
    """g (float[4] x) => (float[4] y)
       { a = Relu(x)  limit = Constant<value_float = 0.0>()  total = ReduceSum<keepdims = 0>(x)
         flag = Greater(total, limit)
         y = If(flag) <then_branch = t () => (float[4] u) { b = Add(a, x)  u = Mul(b, a) },
                       else_branch = e () => (float[4] v)
                       { zero = Constant<value_int = 0>()  s = SequenceConstruct(a)  w = SequenceAt(s, zero)
                         v = Sub(w, x) }> }""",
    {"x": (4,)},
)
GRAPHS = (
    CHAIN, DIAMOND, TWO_OUTPUTS, BRANCHES, LOOP, SCAN, IF_WITH_CAPTURES,
    _graph("unsupported_in_the_middle", f"a = Relu(x) {_island('a', 'b')} c = Add(b, x)  y = Tanh(c)"),
    _graph("unsupported_at_the_start", f"{_island('x', 'a')} b = Relu(a)  y = Add(b, a)"),
    _graph("unsupported_at_the_end", f"a = Relu(x)  b = Add(a, x) {_island('b', 'y')}"),
    _graph(
        "unsupported_in_one_of_two_branches",
        f"a = Relu(x)  left = Exp(a) {_island('a', 'right')} r = Neg(right)  y = Add(left, r)",
    ),
    _graph(
        "two_unsupported_places_that_depend_on_each_other",
        f"a = Relu(x) {_island('a', 'b', 0)} c = Mul(b, a) {_island('c', 'd', 1)} e = Add(d, b)  y = Sub(e, a)",
    ),
    _graph(
        "initializer_shared_by_two_partitions",
        f"a = MatMul(x, w) {_island('a', 'b')} c = MatMul(b, w)  y = Add(c, w2)",
        weights=f"<float[8, 8] w = {{{NUMBERS}}}, float[8] w2 = {{1, 2, 3, 4, 5, 6, 7, 8}}>",
    ),
    _graph(
        "value_used_in_both_partitions_and_as_output",
        f"a = Sigmoid(x) {_island('a', 'b')} c = Mul(a, b)  y = Add(c, a)",
        outputs="float[4, 8] a, float[4, 8] y, float[4, 8] c",
    ),
    _graph("unused_output_of_a_node", "a, unused = Split<axis = 1, num_outputs = 2>(x)  y = Concat<axis = 1>(a, a)"),
    _graph("absent_optional_inputs", "low = Constant<value_float = -0.5>()  a = Clip(x, low)  y = Clip(a, , low)"),
    _graph("result_that_nobody_reads", "a = Relu(x)  lost = Exp(a)  y = Neg(a)"),
    _graph("input_that_is_an_output", "y = Relu(x)", outputs="float[4, 8] x, float[4, 8] y"),
    _graph(
        "shape_computed_from_a_partition",
        f"a = Relu(x)  n = Shape(a)  b = Reshape(x, n) {_island('b', 'c')} y = Add(c, a)",
    ),
)  # fmt: skip


def partitioning_checks() -> Iterator[Check]:
    """Yield a check for every graph; what the provider leaves goes to the CPU, as for a user."""
    for graph in GRAPHS:
        case = evaluated(graph.name, lambda g=graph: (g.model(), g.feeds()), "approximate", is_optimized=True)  # type: ignore[misc]  # a lambda's default binds the loop's variable
        yield case_check("partitioning", case, fallbacks=())
