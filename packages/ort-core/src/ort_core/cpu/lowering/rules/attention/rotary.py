"""RotaryEmbedding of ai.onnx and of com.microsoft, and the rotation of heads that attention operators ask for."""

from __future__ import annotations

from ort_core.cpu.codegen.attention.rotary import ARGUMENTS, Positions, rotary_text
from ort_core.cpu.lowering.images.layout_steps import text_kernel
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.sequences.attention_steps import dense_rows, split_heads
from ort_core.cpu.lowering.steps import Argument, NotLowered, Pointer, pointer
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, count_of
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType, KnownDim, Node, Value


@frozen
class Rotation:
    """By what heads are turned: the tables, and where each token's row in them comes from."""

    cos: View
    sin: View
    kind: Positions
    positions: View | None = None
    is_interleaved: bool = False


def rotary_embedding(lowering: Lowering, node: Node) -> None:
    """RotaryEmbedding: heads of four axes, or packed in the last of three."""
    is_standard = not node.domain
    cos, sin = (lowering.contiguous(node.input(index)) for index in ((1, 2) if is_standard else (2, 3)))
    position_ids = node.input(3 if is_standard else 1)
    value = node.input(0)
    view = lowering.view(value)
    heads = view if len(view.shape) == 4 else split_heads(view, _number_of_heads(node, view, cos))
    rotary_size = node.int_attribute("rotary_embedding_dim", 0) or heads.shape[3]
    lowering.require_equal(cos.shape[-1] * 2, rotary_size)
    rotation = _rotation(lowering, cos, sin, position_ids, heads)
    if node.int_attribute("interleaved", 0):
        rotation = Rotation(rotation.cos, rotation.sin, rotation.kind, rotation.positions, True)
    target = lowering.result_view(node.output)
    out = target if len(view.shape) == 4 else split_heads(target, _number_of_heads(node, view, cos))
    rotate(lowering, heads, out, rotation, node)
    lowering.set(node.output, target)


def rotate(lowering: Lowering, heads: View, out: View, rotation: Rotation, node: Node) -> None:
    """Write the step that turns heads (batch, heads, length, size) into ``out``."""
    batch, number, length, size = heads.shape
    cos, sin = rotation.cos, rotation.sin
    if any(view.dtype is not DataType.FLOAT for view in (heads, cos, sin)):
        raise NotLowered("only float32 is rotated natively")
    for left, right in zip(cos.shape, sin.shape, strict=True):
        lowering.require_equal(left, right)
    pairs = cos.shape[-1]
    if not isinstance(size, int) or not isinstance(pairs, int) or pairs * 2 > size:
        raise NotLowered(f"{pairs} pairs do not fit into heads of {size}")
    heads = dense_rows(lowering, heads)
    table: tuple[KnownDim, ...] = (0, cos.strides[0])
    if rotation.kind is Positions.TOKENS:
        lowering.require_equal(cos.shape[0], batch)
        lowering.require_equal(cos.shape[1], length)
        table = cos.strides[:2]
    ids = rotation.positions
    bits = 64 if ids is None else ids.dtype.bits
    kind, machine, interleaved = rotation.kind, lowering.target, rotation.is_interleaved
    text = lowering.kernel(
        ("rotary", kind, bits, interleaved),
        lambda: text_kernel("rotary", lambda name: rotary_text(name, machine, kind, bits, interleaved=interleaved)),
    )
    error = Pointer(lowering.error_buffer())
    words: list[Argument] = [
        pointer(heads), pointer(out), pointer(cos), pointer(sin), error if ids is None else pointer(ids), error,
        batch, number, length, pairs, size, cos.shape[0],
        *heads.strides[:3], *out.strides[:3], *table, *_position_strides(rotation.kind, ids),
    ]  # fmt: skip
    assert len(words) == ARGUMENTS.count
    reads = [view.buffer for view in (heads, cos, sin, ids) if view is not None]
    elements = count_of(heads.shape)
    lowering.emit(text, words, reads, [out.buffer], elements * 2, (node,), elements * 3)


def _position_strides(kind: Positions, ids: View | None) -> tuple[KnownDim, KnownDim]:
    if ids is None or kind is Positions.START:
        return 0, 0
    return ids.strides[0], ids.strides[1] if kind is Positions.IDS else 0


def _rotation(lowering: Lowering, cos: View, sin: View, position_ids: Value | None, heads: View) -> Rotation:
    if position_ids is None:
        if len(cos.shape) != 3:
            raise NotLowered("tables without positions have three axes")
        return Rotation(cos, sin, Positions.TOKENS)
    if len(cos.shape) != 2:
        raise NotLowered("tables with positions have two axes")
    ids = lowering.contiguous(position_ids)
    if ids.dtype not in (DataType.INT64, DataType.INT32):
        raise NotLowered(f"positions of type {ids.dtype.text} are not generated")
    if len(ids.shape) == 2:
        lowering.require_equal(ids.shape[0], heads.shape[0])
        lowering.require_equal(ids.shape[1], heads.shape[2])
        return Rotation(cos, sin, Positions.IDS, ids)
    lowering.require_equal(count_of(ids.shape), 1)
    return Rotation(cos, sin, Positions.START, ids)


def _number_of_heads(node: Node, view: View, cos: View) -> int:
    """Return the number of heads in a packed last axis: as given, else by the width of the tables."""
    number = node.int_attribute("num_heads", 0)
    hidden, pairs = view.shape[-1], cos.shape[-1]
    if number:
        return number
    if not isinstance(hidden, int) or not isinstance(pairs, int) or node.int_attribute("rotary_embedding_dim", 0):
        raise NotLowered("the number of heads is not known")
    if not pairs or hidden % (2 * pairs) or len(tensor_type(node.output)[1]) != 3:
        raise NotLowered(f"heads of {2 * pairs} do not divide {hidden}")
    return hidden // (2 * pairs)
