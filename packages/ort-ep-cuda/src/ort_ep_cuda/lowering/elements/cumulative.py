"""Running sums and products, and triangles of matrices."""

from __future__ import annotations

import math

from ort_ep_cuda.lowering.node_facts import LoweredNode, axis_of
from ort_ep_cuda.lowering.writing.preamble import STORAGE, compute_type
from ort_ep_cuda.lowering.writing.writer import filled, launch_elements, numbers, pointers

_CUMULATE = """
const long long first = i / inner_size * size * inner_size + i % inner_size;
@C@ total = @START@;
for (long long k = 0; k < size; ++k) {
  const long long at = first + (reverse ? size - 1 - k : k) * inner_size;
  const @C@ v = ort_load(x[at]);
  if (exclusive) { out[at] = ort_store<@T@>::of(total); total = total @SIGN@ v; }
  else { total = total @SIGN@ v; out[at] = ort_store<@T@>::of(total); }
}
"""


def lower_cumulative(facts: LoweredNode) -> None:
    """Add up or multiply along an axis: a thread takes a line."""
    x = facts.builder.dense(facts.value(0))
    (axis,) = facts.integers(1, "") or (0,)
    axis = axis_of(axis, len(x.shape))
    out = facts.builder.result(facts.output, x.shape)
    if not out.size:
        return
    inner = math.prod(x.shape[axis + 1 :])
    is_sum = facts.node.op_type == "CumSum"
    texts = {
        "T": STORAGE[x.dtype], "C": STORAGE[compute_type(x.dtype)], "START": "0" if is_sum else "1",
        "SIGN": "+" if is_sum else "*",
    }  # fmt: skip
    parameters = (
        "const @T@* x, @T@* out, long long size, long long inner_size, long long exclusive, long long reverse, "
        "long long count"
    )
    kernel = filled("cumulate", parameters, _CUMULATE, texts)
    modes = (facts.node.int_attribute("exclusive", 0), facts.node.int_attribute("reverse", 0))
    arguments = (*pointers(x, out), *numbers(x.shape[axis], inner, *modes))
    facts.builder.add(launch_elements(kernel, out.size // x.shape[axis], arguments, [x], [out]))


_TRIANGLE = """
const long long column = i % columns, row = i / columns % rows;
const bool is_kept = upper ? column - row >= k : column - row <= k;
out[i] = is_kept ? x[i] : ort_store<@T@>::of((@C@)0);
"""


def lower_triangle(facts: LoweredNode) -> None:
    """Keep one side of a diagonal of each matrix."""
    x = facts.builder.dense(facts.value(0))
    (k,) = (facts.integers(1, "") if facts.has(1) else None) or (0,)
    out = facts.builder.result(facts.output, x.shape)
    if not out.size:
        return
    texts = {"T": STORAGE[x.dtype], "C": STORAGE[compute_type(x.dtype)]}
    parameters = (
        "const @T@* x, @T@* out, long long rows, long long columns, long long k, long long upper, long long count"
    )
    kernel = filled("triangle", parameters, _TRIANGLE, texts)
    sizes = numbers(x.shape[-2], x.shape[-1], k, facts.node.int_attribute("upper", 1))
    facts.builder.add(launch_elements(kernel, out.size, (*pointers(x, out), *sizes), [x], [out]))
