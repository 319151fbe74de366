"""Blocks of space and depth exchanged, sequences reversed, ranges, unit matrices: elements at computed places."""

from __future__ import annotations

import math

import numpy as np

from ort_core.plugin import InvalidArgument
from ort_core.plugin.ir import Constant, DataType, Node, Value
from ort_core.plugin.loops import lift
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.node_facts import LoweredNode
from ort_ep_cuda.lowering.values.growing import grows, plain
from ort_ep_cuda.lowering.values.growing_values import growing_array, has_growing
from ort_ep_cuda.lowering.values.tensors import LazyTensor
from ort_ep_cuda.lowering.values.views import TensorView
from ort_ep_cuda.lowering.writing.preamble import STORAGE, compute_type
from ort_ep_cuda.lowering.writing.writer import filled, launch_elements, numbers, pointers


def refuse_blocks(node: Node) -> str | None:
    """Return why an exchange of depth and space is not generated."""
    mode = node.string_attribute("mode", "DCR")
    return None if mode in ("DCR", "CRD") else f"{node.op_type} by mode {mode!r} is not generated"


def lower_depth_to_space(facts: LoweredNode) -> None:
    """Move blocks of channels into space: a transpose of six axes."""
    x = facts.builder.dense(facts.value(0))
    block = facts.node.int_attribute("blocksize", 1)
    n, c, h, w = x.shape
    is_depth_first = facts.node.string_attribute("mode", "DCR") == "DCR"
    inside = (block, block, c // block**2) if is_depth_first else (c // block**2, block, block)
    order = (0, 3, 4, 1, 5, 2) if is_depth_first else (0, 1, 4, 2, 5, 3)
    source = x.regrouped((n, *inside, h, w)).permuted(order)
    out = facts.builder.result(facts.output, (n, c // block**2, h * block, w * block))
    facts.builder.stored(LazyTensor.of(source), TensorView.dense(out.buffer, out.dtype, source.shape))


def lower_space_to_depth(facts: LoweredNode) -> None:
    """Move blocks of space into channels: a transpose of six axes."""
    x = facts.builder.dense(facts.value(0))
    block = facts.node.int_attribute("blocksize", 1)
    n, c, h, w = x.shape
    is_depth_first = facts.node.string_attribute("mode", "DCR") == "DCR"
    order = (0, 3, 5, 1, 2, 4) if is_depth_first else (0, 1, 3, 5, 2, 4)
    source = x.regrouped((n, c, h // block, block, w // block, block)).permuted(order)
    out = facts.builder.result(facts.output, (n, c * block**2, h // block, w // block))
    facts.builder.stored(LazyTensor.of(source), TensorView.dense(out.buffer, out.dtype, source.shape))


_CONSTANT_TYPES = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}


def refuse_constant(node: Node) -> str | None:
    """Return why a constant is not taken: one that is sparse."""
    known = ("value", *_CONSTANT_TYPES)
    return None if any(name in node.attributes for name in known) else "a constant that is sparse is not taken"


def lower_constant(facts: LoweredNode) -> None:
    """Give what the node's attribute holds."""
    (name, value) = next(iter(facts.attributes.items()))
    content = value.array() if isinstance(value, Constant) else np.array(value, _CONSTANT_TYPES[name])
    facts.builder.define_constant(facts.output, content)


def refuse_dropout(node: Node) -> str | None:
    """Return why a Dropout is not generated: one that drops, or may."""
    mode, ratio = (node.input(index) for index in (2, 1))
    if mode is None or _is_zero(mode) or (ratio is not None and _is_zero(ratio)):
        return None
    return "Dropout in training is not generated"


def _is_zero(value: Value) -> bool:
    return value.constant is not None and value.constant.size == 1 and not value.constant.array().any()


def lower_dropout(facts: LoweredNode) -> None:
    """Give the input; the mask says that all of it was kept, in versions before 12 that nothing is said."""
    x = facts.tensor(0)
    facts.builder.define(facts.output, x)
    mask = facts.node.outputs[1] if len(facts.node.outputs) > 1 else None
    if mask is not None:
        dtype = element_type(mask)
        kept = lift(facts.opset >= 12, DataType.BOOL) if dtype is DataType.BOOL else lift(0.0, compute_type(dtype))
        facts.builder.define(mask, LazyTensor(kept, (), x.shape, dtype))


def lower_range(facts: LoweredNode) -> None:
    """Give the numbers from ``start`` on: computed on the host, where the three numbers are known."""
    start, limit, delta = (facts.known(k) for k in (0, 1, 2))
    assert start is not None
    assert limit is not None
    assert delta is not None
    dtype = element_type(facts.output)
    if any(has_growing(number) for number in (start, limit, delta)):
        _count_on_device(facts, *(plain(number.item()) for number in (start, limit, delta)))
        return
    if not delta.item():
        raise InvalidArgument(f"{facts.node.describe()}: delta is 0")
    count = max(math.ceil((limit.item() - start.item()) / delta.item()), 0)
    content = (start.item() + np.arange(count) * delta.item()).astype(dtype.numpy)
    facts.builder.define(facts.output, LazyTensor.of(facts.builder.table("range", content)))


_COUNT = "out[i] = ort_store<@T@>::of((@C@)(start + i * delta));\n"


def _count_on_device(facts: LoweredNode, start: int, limit: int, delta: int) -> None:
    """Give the integers of a range whose bounds grow: known on the host where their number does not grow."""
    if not delta:
        raise InvalidArgument(f"{facts.node.describe()}: delta is 0")
    count = max(-((start - limit) // delta), 0)
    if not grows(count):
        facts.builder.known[facts.output] = growing_array([start + k * delta for k in range(count)])
        return
    out = facts.builder.result(facts.output, (count,))
    texts = {"T": STORAGE[out.dtype], "C": STORAGE[compute_type(out.dtype)]}
    kernel = filled("count", "@T@* out, long long start, long long delta, long long count", _COUNT, texts)
    facts.builder.add(launch_elements(kernel, count, (*pointers(out), *numbers(start, delta)), [], [out]))


_EYE = "out[i] = ort_store<@T@>::of((@C@)(i % columns - i / columns == k ? 1 : 0));\n"


def lower_eye(facts: LoweredNode) -> None:
    """Store ones on a diagonal of a matrix, zeros elsewhere."""
    shape = facts.tensor(0).shape
    out = facts.builder.result(facts.output, shape)
    if not out.size:
        return
    texts = {"T": STORAGE[out.dtype], "C": STORAGE[compute_type(out.dtype)]}
    kernel = filled("eye", "@T@* out, long long columns, long long k, long long count", _EYE, texts)
    sizes = numbers(shape[1], facts.node.int_attribute("k", 0))
    facts.builder.add(launch_elements(kernel, out.size, (*pointers(out), *sizes), [], [out]))


_REVERSE = """
const long long inner = i % inner_size, rest = i / inner_size;
const long long b = batch_first ? rest / time % batch : rest % batch;
const long long t = batch_first ? rest % time : rest / batch % time;
const long long length = (long long)lengths[b];
if (length < 0 || length > time) *status = node;
const long long from = t < length && length <= time ? length - 1 - t : t;
out[i] = x[(batch_first ? b * time + from : from * batch + b) * inner_size + inner];
"""


def refuse_reverse_sequence(node: Node) -> str | None:
    """Return why sequences are not reversed: axes other than the first two."""
    axes = {node.int_attribute("batch_axis", 1), node.int_attribute("time_axis", 0)}
    return None if axes == {0, 1} else "ReverseSequence of axes other than 0 and 1 is not generated"


def lower_reverse_sequence(facts: LoweredNode) -> None:
    """Reverse the first places of each sequence, as many as its length says."""
    x, lengths = facts.builder.dense(facts.value(0)), facts.builder.dense(facts.value(1))
    is_batch_first = facts.node.int_attribute("batch_axis", 1) == 0
    batch, time = x.shape[:2] if is_batch_first else x.shape[1::-1]
    out = facts.builder.result(facts.output, x.shape)
    if not out.size:
        return
    parameters = (
        "const @T@* x, const @I@* lengths, @T@* out, long long inner_size, long long batch, long long time, "
        "long long batch_first, int* status, int node, long long count"
    )
    kernel = filled("reverse", parameters, _REVERSE, {"T": STORAGE[x.dtype], "I": STORAGE[lengths.dtype]})
    sizes = (*numbers(math.prod(x.shape[2:]), batch, time, int(is_batch_first)), *facts.builder.check(facts.node))
    facts.builder.add(launch_elements(kernel, out.size, (*pointers(x, lengths, out), *sizes), [x, lengths], [out]))


def lower_filled(facts: LoweredNode) -> None:
    """Repeat one number in a shape that is known on the host."""
    shape = facts.integers(0, "") or ()
    dtype = element_type(facts.output)
    constant = facts.node.attribute("value")
    content = constant.array().reshape(()).astype(compute_type(dtype).numpy).item() if constant is not None else 0  # type: ignore[attr-defined]  # the attribute is a Constant
    facts.builder.define(facts.output, LazyTensor(lift(content, compute_type(dtype)), (), shape, dtype))


RANGE_TYPES = frozenset({DataType.FLOAT, DataType.DOUBLE, DataType.INT32, DataType.INT64})
"""Element types of Range; int16 is not an element type of this provider."""
