"""Scatter: the data copied, then updates stored at places given by indices, each checked against its axis.

With a reduction several updates may meet in one element. They are combined in the order of the updates by one thread,
so that equal inputs give equal bits: a thread takes a line along the axis (ScatterElements) or one element of all
slices (ScatterND). Atomic additions would be faster where there are many updates of few elements each, and of another
result each time.
"""

from __future__ import annotations

import math

from ort_core.plugin import InvalidArgument
from ort_core.plugin.ir import DataType, Node
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.movement.indexing import (
    TUPLE_ADDRESS,
    add_by_tuples,
    add_indexed,
    element_address,
    element_sizes,
    require_elements,
)
from ort_ep_cuda.lowering.node_facts import LoweredNode, axis_of
from ort_ep_cuda.lowering.values.views import Shape

_COMBINE = {"add": "{0} + {1}", "mul": "{0} * {1}", "max": "ort_max({0}, {1})", "min": "ort_min({0}, {1})"}
_SCATTER = "out[at] = updates[i];\n"
_ALONG_THE_LINE = """
const long long line = i;
for (long long k = 0; k < line_length; ++k) {
  const long long i = (line / line_inner * line_length + k) * line_inner + line % line_inner;
@ADDRESS@
  @COMBINED@
}
"""
_SCATTER_ND = TUPLE_ADDRESS + "out[at * inner_size + inner] = updates[i];\n"
_SCATTER_ND_ALONG = """
const long long column = i;
for (long long k = 0; k < places; ++k) {
  const long long i = k * inner_size + column;
@ADDRESS@
  const long long target = at * inner_size + inner;
  @COMBINED@
}
"""


def refuse_scatter(node: Node) -> str | None:
    """Return why a scatter is not generated: a reduction that is not known, or of bools."""
    reduction = node.string_attribute("reduction", "none")
    if reduction not in (*_COMBINE, "none"):
        return f"{node.op_type} with reduction {reduction!r} is not generated"
    if reduction != "none" and element_type(node.output) is DataType.BOOL:
        return f"{node.op_type} with a reduction of bool is not generated"
    return None


def lower_scatter_elements(facts: LoweredNode) -> None:
    """Copy the data, then store or combine an update for each index at its place along one axis."""
    data, indices = facts.tensor(0), facts.builder.dense(facts.value(1))
    updates = facts.builder.dense(facts.value(2))
    axis = axis_of(facts.node.int_attribute("axis", 0), len(data.shape))
    require_elements(facts.node, data.shape, indices.shape, axis)
    _require_updates(facts.node, indices.shape, updates.shape)
    out = facts.builder.stored(data, facts.builder.result(facts.output, data.shape))
    names, sizes = element_sizes(out, indices, axis)
    address = element_address(len(data.shape), axis)
    reduction = facts.node.string_attribute("reduction", "none")
    if reduction == "none":
        body = address + _SCATTER
        add_indexed(facts, "scatter_elements", body, [updates, indices], out, indices.size, sizes, names)
        return
    if not indices.size:
        return
    length, inner = indices.shape[axis], math.prod(indices.shape[axis + 1 :])
    body = _ALONG_THE_LINE.replace("@ADDRESS@", address).replace("@COMBINED@", _combined(reduction, "at"))
    body = body.replace("line_length", f"count{axis}").replace("line_inner", _inner(axis, len(data.shape)))
    assert inner
    add_indexed(facts, "scatter_reduce", body, [updates, indices], out, indices.size // length, sizes, names)


def _require_updates(node: Node, wanted: Shape, found: Shape) -> None:
    """Check that there is an update for each index: kernels would read beyond them."""
    if found != wanted:
        raise InvalidArgument(
            f"{node.describe()}: updates have shape {found}, expected {wanted}, as the indices have it"
        )


def _inner(axis: int, rank: int) -> str:
    return f"({' * '.join(f'count{a}' for a in range(axis + 1, rank)) or '1'})"


def _combined(reduction: str, place: str) -> str:
    """Return the statement that combines the element with update ``i``."""
    text = _COMBINE[reduction].format(f"ort_load(out[{place}])", "ort_load(updates[i])")
    if reduction in ("max", "min"):  # of the values, not of references into memory
        text = _COMBINE[reduction].format("before", "update")
        return f"const auto before = ort_load(out[{place}]); const auto update = ort_load(updates[i]); " + _stored(
            place, text
        )
    return _stored(place, text)


def _stored(place: str, text: str) -> str:
    return f"out[{place}] = ort_store<@T@>::of({text});"


def lower_scatter_nd(facts: LoweredNode) -> None:
    """Copy the data, then store or combine slices at tuples of indices."""
    data, indices = facts.tensor(0), facts.builder.dense(facts.value(1))
    updates = facts.builder.dense(facts.value(2))
    _require_updates(facts.node, (*indices.shape[:-1], *data.shape[indices.shape[-1] :]), updates.shape)
    out = facts.builder.stored(data, facts.builder.result(facts.output, data.shape))
    reduction = facts.node.string_attribute("reduction", "none")
    if reduction == "none":
        add_by_tuples(facts, "scatter_nd", _SCATTER_ND, [updates, indices], out, updates.size, out, 0)
        return
    inner = math.prod(data.shape[indices.shape[-1] :])
    body = _SCATTER_ND_ALONG.replace("@ADDRESS@", TUPLE_ADDRESS).replace("@COMBINED@", _combined(reduction, "target"))
    body = body.replace("k < places", "k < places_per_batch")
    if updates.size:
        add_by_tuples(facts, "scatter_nd_reduce", body, [updates, indices], out, inner, out, 0)
