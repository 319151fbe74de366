"""Gather and scatter: elements found by indices that come from data, each checked against its axis."""

from __future__ import annotations

import math

from ort_core.plugin.ir import Node
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.node_facts import LoweredNode, axis_of
from ort_ep_cuda.lowering.preamble import STORAGE
from ort_ep_cuda.lowering.program import Argument
from ort_ep_cuda.lowering.templates import filled, launch_elements, numbers, pointers
from ort_ep_cuda.lowering.views import TensorView

_GATHER = """
const long long inner = i % inner_size, rest = i / inner_size;
const long long at = ort_index((long long)indices[rest % index_count], axis_size, status, node);
out[i] = data[(rest / index_count * axis_size + at) * inner_size + inner];
"""
_GATHER_ELEMENTS = """
const long long inner = i % inner_size, rest = i / inner_size;
const long long at = ort_index((long long)indices[i], axis_size, status, node);
out[i] = data[(rest / index_count * axis_size + at) * inner_size + inner];
"""
_SCATTER_ELEMENTS = """
const long long inner = i % inner_size, rest = i / inner_size;
const long long at = ort_index((long long)indices[i], axis_size, status, node);
out[(rest / index_count * axis_size + at) * inner_size + inner] = updates[i];
"""
_ND_ADDRESS = """
const long long place = i / inner_size, inner = i % inner_size;
long long at = place / places_per_batch;
for (int k = 0; k < depth; ++k) {
  const long long size = @SIZES@;
  at = at * size + ort_index((long long)indices[place * depth + k], size, status, node);
}
"""
_GATHER_ND = _ND_ADDRESS + "out[i] = data[at * inner_size + inner];\n"
_SCATTER_ND = _ND_ADDRESS + "out[at * inner_size + inner] = updates[i];\n"


def lower_gather(facts: LoweredNode) -> None:
    """Take slices of an axis by indices."""
    data, indices = facts.builder.dense(facts.value(0)), facts.builder.dense(facts.value(1))
    axis = axis_of(facts.node.int_attribute("axis", 0), len(data.shape))
    inner = math.prod(data.shape[axis + 1 :])
    out = facts.builder.result(facts.output, (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]))
    sizes = numbers(inner, indices.size, data.shape[axis])
    _add(facts, "gather", _GATHER, [data, indices], out, out.size, sizes)


def refuse_elements(node: Node) -> str | None:
    """Return why elements by index are not generated: reductions, or axes beside the indexed one that differ."""
    if node.string_attribute("reduction", "none") != "none":
        return f"{node.op_type} with a reduction is not generated"
    shapes = [getattr(value.type, "shape", None) if value is not None else None for value in node.inputs[:2]]
    if any(shape is None or not all(isinstance(size, int) for size in shape) for shape in shapes):
        return f"{node.op_type} of sizes that are only known in the run is not generated"
    data, indices = shapes
    assert data is not None
    assert indices is not None
    axis = axis_of(node.int_attribute("axis", 0), len(data))
    if any(a != axis and data[a] != indices[a] for a in range(len(data))):
        return f"{node.op_type} with indices smaller than the data beside the axis is not generated"
    return None


def lower_gather_elements(facts: LoweredNode) -> None:
    """Take elements of an axis by indices of the result's shape."""
    data, indices = facts.builder.dense(facts.value(0)), facts.builder.dense(facts.value(1))
    axis = axis_of(facts.node.int_attribute("axis", 0), len(data.shape))
    out = facts.builder.result(facts.output, indices.shape)
    sizes = numbers(math.prod(data.shape[axis + 1 :]), indices.shape[axis], data.shape[axis])
    _add(facts, "gather_elements", _GATHER_ELEMENTS, [data, indices], out, out.size, sizes)


def lower_scatter_elements(facts: LoweredNode) -> None:
    """Copy the data, then store updates at places of an axis given by indices."""
    data, indices = facts.tensor(0), facts.builder.dense(facts.value(1))
    updates = facts.builder.dense(facts.value(2))
    axis = axis_of(facts.node.int_attribute("axis", 0), len(data.shape))
    out = facts.builder.stored(data, facts.builder.result(facts.output, data.shape))
    sizes = numbers(math.prod(data.shape[axis + 1 :]), indices.shape[axis], data.shape[axis])
    _add(facts, "scatter_elements", _SCATTER_ELEMENTS, [updates, indices], out, indices.size, sizes)


def refuse_scatter_nd(node: Node) -> str | None:
    """Return why a scatter is not generated: reductions are not."""
    reduction = node.string_attribute("reduction", "none")
    return None if reduction == "none" else f"{node.op_type} with reduction {reduction!r} is not generated"


def lower_gather_nd(facts: LoweredNode) -> None:
    """Take slices by tuples of indices, within batches."""
    data, indices = facts.builder.dense(facts.value(0)), facts.builder.dense(facts.value(1))
    batch = facts.node.int_attribute("batch_dims", 0)
    depth = indices.shape[-1]
    out = facts.builder.result(facts.output, (*indices.shape[:-1], *data.shape[batch + depth :]))
    _add_nd(facts, "gather_nd", _GATHER_ND, [data, indices], out, out.size, data, batch)


def lower_scatter_nd(facts: LoweredNode) -> None:
    """Copy the data, then store slices at tuples of indices."""
    data, indices = facts.tensor(0), facts.builder.dense(facts.value(1))
    updates = facts.builder.dense(facts.value(2))
    out = facts.builder.stored(data, facts.builder.result(facts.output, data.shape))
    _add_nd(facts, "scatter_nd", _SCATTER_ND, [updates, indices], out, updates.size, out, 0)


def _add_nd(
    facts: LoweredNode,
    prefix: str,
    body: str,
    reads: list[TensorView],
    out: TensorView,
    count: int,
    addressed: TensorView,
    batch: int,
) -> None:
    """Add the launch; the sizes of the axes that indices address are written out as one argument each."""
    depth = reads[1].shape[-1]
    sizes = addressed.shape[batch : batch + depth]
    text = "0"
    for k in range(depth - 1, -1, -1):
        text = f"size{k}" if k == depth - 1 else f"(k == {k} ? size{k} : {text})"
    inner = math.prod(addressed.shape[batch + depth :])
    per_batch = math.prod(reads[1].shape[batch:-1])
    declared = "".join(f", long long size{k}" for k in range(depth))
    names = f"long long inner_size, long long places_per_batch, long long depth{declared}"
    values = numbers(inner, max(per_batch, 1), depth, *sizes)
    _add(facts, prefix, body.replace("@SIZES@", text), reads, out, count, values, names)


_AXIS_SIZES = "long long inner_size, long long index_count, long long axis_size"


def _add(
    facts: LoweredNode,
    prefix: str,
    body: str,
    reads: list[TensorView],
    out: TensorView,
    count: int,
    sizes: tuple[Argument, ...],
    names: str = _AXIS_SIZES,
) -> None:
    if not count:
        return
    first = "data" if prefix.startswith("gather") else "updates"
    texts = {"T": STORAGE[out.dtype], "I": STORAGE[element_type(facts.value(1))]}
    parameters = f"const @T@* {first}, const @I@* indices, @T@* out, {names}, int* status, int node, long long count"
    kernel = filled(prefix, parameters, body, texts)
    status, number = facts.builder.check(facts.node)
    arguments = (*pointers(*reads, out), *sizes, status, number)
    facts.builder.add(launch_elements(kernel, count, arguments, reads, [out]))


def refuse_one_hot(node: Node) -> str | None:
    """Return why OneHot is not generated: indices that are no integers."""
    value = node.input(0)
    assert value is not None
    return None if element_type(value).is_integer else "OneHot of floats is not generated"


_ONE_HOT = """
const long long inner = i % inner_size, rest = i / inner_size;
const long long at = (long long)indices[rest / depth * inner_size + inner];
out[i] = values[(at < 0 ? at + depth : at) == rest % depth ? 1 : 0];
"""


def lower_one_hot(facts: LoweredNode) -> None:
    """Store the second of ``values`` where the place along the new axis is the index, else the first."""
    indices, values = facts.builder.dense(facts.value(0)), facts.builder.dense(facts.value(2))
    (depth,) = facts.integers(1, "") or (0,)
    axis = axis_of(facts.node.int_attribute("axis", -1), len(indices.shape) + 1)
    out = facts.builder.result(facts.output, (*indices.shape[:axis], depth, *indices.shape[axis:]))
    if not out.size:
        return
    texts = {"T": STORAGE[out.dtype], "I": STORAGE[indices.dtype]}
    parameters = (
        "const @I@* indices, const @T@* values, @T@* out, long long inner_size, long long depth, long long count"
    )
    kernel = filled("one_hot", parameters, _ONE_HOT, texts)
    arguments = (*pointers(indices, values, out), *numbers(math.prod(indices.shape[axis:]), depth))
    facts.builder.add(launch_elements(kernel, out.size, arguments, [indices, values], [out]))
