"""Gather: elements found by indices that come from data, each checked against its axis."""

from __future__ import annotations

import math

from ort_core.plugin import InvalidArgument
from ort_core.plugin.ir import Node
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.node_facts import LoweredNode, axis_of
from ort_ep_cuda.lowering.program import Argument
from ort_ep_cuda.lowering.values.views import Shape, TensorView, dense_strides
from ort_ep_cuda.lowering.writing.preamble import STORAGE
from ort_ep_cuda.lowering.writing.writer import filled, launch_elements, numbers, pointers

_GATHER = """
const long long inner = i % inner_size, rest = i / inner_size;
const long long at = ort_index((long long)indices[rest % index_count], axis_size, status, node);
out[i] = data[(rest / index_count * axis_size + at) * inner_size + inner];
"""
TUPLE_ADDRESS = """
const long long place = i / inner_size, inner = i % inner_size;
long long at = place / places_per_batch;
for (int k = 0; k < depth; ++k) {
  const long long size = @SIZES@;
  at = at * size + ort_index((long long)indices[place * depth + k], size, status, node);
}
"""
_GATHER_ND = TUPLE_ADDRESS + "out[i] = data[at * inner_size + inner];\n"


def lower_gather(facts: LoweredNode) -> None:
    """Take slices of an axis by indices."""
    data, indices = facts.builder.dense(facts.value(0)), facts.builder.dense(facts.value(1))
    axis = axis_of(facts.node.int_attribute("axis", 0), len(data.shape))
    inner = math.prod(data.shape[axis + 1 :])
    out = facts.builder.result(facts.output, (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]))
    sizes = numbers(inner, indices.size, data.shape[axis])
    add_indexed(facts, "gather", _GATHER, [data, indices], out, out.size, sizes)


def lower_gather_nd(facts: LoweredNode) -> None:
    """Take slices by tuples of indices, within batches."""
    data, indices = facts.builder.dense(facts.value(0)), facts.builder.dense(facts.value(1))
    batch = facts.node.int_attribute("batch_dims", 0)
    depth = indices.shape[-1]
    if batch + depth > len(data.shape) or indices.shape[:batch] != data.shape[:batch]:
        shapes = f"data of shape {data.shape} and indices {indices.shape}"
        raise InvalidArgument(f"{facts.node.describe()}: {shapes} do not fit with batch_dims {batch}")
    out = facts.builder.result(facts.output, (*indices.shape[:-1], *data.shape[batch + depth :]))
    add_by_tuples(facts, "gather_nd", _GATHER_ND, [data, indices], out, out.size, data, batch)


def add_by_tuples(
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
    add_indexed(facts, prefix, body.replace("@SIZES@", text), reads, out, count, values, names)


_AXIS_SIZES = "long long inner_size, long long index_count, long long axis_size"


def add_indexed(
    facts: LoweredNode,
    prefix: str,
    body: str,
    reads: list[TensorView],
    out: TensorView,
    count: int,
    sizes: tuple[Argument, ...],
    names: str = _AXIS_SIZES,
) -> None:
    """Add a launch of ``count`` threads that read an array and indices; it has the arguments of a check."""
    if not count:
        return
    first = "data" if prefix.startswith("gather") else "updates"
    texts = {"T": STORAGE[out.dtype], "I": STORAGE[element_type(facts.value(1))]}
    parameters = f"const @T@* {first}, const @I@* indices, @T@* out, {names}, int* status, int node, long long count"
    kernel = filled(prefix, parameters, body, texts)
    status, number = facts.builder.check(facts.node)
    arguments = (*pointers(*reads, out), *sizes, status, number)
    facts.builder.add(launch_elements(kernel, count, arguments, reads, [out]))


def require_elements(node: Node, data: Shape, indices: Shape, axis: int) -> None:
    """Check that indices beside their axis lie in the data: kernels take their places there as they are.

    Raises:
        InvalidArgument: there are more axes, or places, than the data have.
    """
    if len(indices) != len(data):
        raise InvalidArgument(f"{node.describe()}: data of shape {data} and indices {indices} must have the same rank")
    for other, (found, held) in enumerate(zip(indices, data, strict=True)):
        if other != axis and found > held:
            raise InvalidArgument(
                f"{node.describe()}: Indices dim={found} at pos={other} is greater than input dim={held}"
            )


_GATHER_ELEMENTS = "out[i] = data[at];\n"


def lower_gather_elements(facts: LoweredNode) -> None:
    """Take an element for each index, from its place along one axis."""
    data, indices = facts.builder.dense(facts.value(0)), facts.builder.dense(facts.value(1))
    axis = axis_of(facts.node.int_attribute("axis", 0), len(data.shape))
    require_elements(facts.node, data.shape, indices.shape, axis)
    out = facts.builder.result(facts.output, indices.shape)
    body = element_address(len(data.shape), axis) + _GATHER_ELEMENTS
    names, sizes = element_sizes(data, indices, axis)
    add_indexed(facts, "gather_elements", body, [data, indices], out, out.size, sizes, names)


def element_address(rank: int, axis: int) -> str:
    """Return the statements that give ``at``, the place in the data of index ``i``, of any sizes beside the axis."""
    lines = ["long long rest = i, at = 0;"]
    for a in reversed(range(rank)):
        coordinate = "ort_index((long long)indices[i], axis_size, status, node)" if a == axis else f"rest % count{a}"
        lines.append(f"at += {coordinate} * stride{a}; rest /= count{a};")
    return "\n".join(lines) + "\n"


def element_sizes(data: TensorView, indices: TensorView, axis: int) -> tuple[str, tuple[Argument, ...]]:
    """Return names and values of what ``element_address`` reads."""
    rank = range(len(data.shape))
    names = ["long long axis_size", *(f"long long {name}{a}" for name in ("count", "stride") for a in rank)]
    strides = dense_strides(data.shape)
    return ", ".join(names), numbers(data.shape[axis], *indices.shape, *strides)


def refuse_one_hot(node: Node) -> str | None:
    """Return why OneHot is not generated: indices that are not integers."""
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
