"""Patterns that QNN has one operator for: Gelu, LpNormalization, LayerNormalization and SpaceToDepth.

Each function puts one node in the place of the first pattern that it finds, and says whether it found one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import GraphProto, NodeProto, helper

from ort_quantization.execution_providers.qnn.graph_index import GraphIndex, attribute, replace_nodes

_LAYER_NORMALIZATION_SINCE = 17


def fuse_gelu(graph: GraphProto, index: GraphIndex) -> bool:
    """Fuse ``x * 0.5 * (1 + Erf(x / sqrt(2)))``, its products in any order, into com.microsoft's Gelu."""
    for erf in graph.node:
        if erf.op_type != "Erf":
            continue
        found = _gelu_around(index, erf)
        if found is not None:
            nodes, value = found
            made = helper.make_node("Gelu", [value], [nodes[-1].output[0]], nodes[-1].name, domain="com.microsoft")
            replace_nodes(graph, nodes, made)
            return True
    return False


def _gelu_around(index: GraphIndex, erf: NodeProto) -> tuple[list[NodeProto], str] | None:
    """Return the nodes of a Gelu, the last one last, and what it reads."""
    scaled = _scaled_by(index, erf.input[0], "Div", math.sqrt(2)) or _scaled_by(
        index, erf.input[0], "Mul", math.sqrt(0.5)
    )
    added = index.only_reader(erf.output[0], "Add")
    if scaled is None or added is None or not index.is_number(index.other(added, erf.output[0]), 1.0):
        return None
    divided, value = scaled
    nodes, wanted = [divided, erf, added], {"half", "value"}
    if index.only_reader(divided.output[0], "Erf") is None:
        return None
    while wanted:
        last = nodes[-1].output[0]
        product = index.only_reader(last, "Mul")
        if product is None:
            return None
        other = index.other(product, last)
        halved = index.maker(other, "Mul")
        if "half" in wanted and index.is_number(other, 0.5):
            wanted.remove("half")
        elif "value" in wanted and other == value:
            wanted.remove("value")
        elif wanted == {"half", "value"} and halved is not None and _is_half_of(index, halved, value):
            nodes.insert(0, halved)
            wanted.clear()
        else:
            return None
        nodes.append(product)
    return nodes, value


def _scaled_by(index: GraphIndex, name: str, op_type: str, number: float) -> tuple[NodeProto, str] | None:
    """Return the node that divides or multiplies by a number, and what it reads."""
    node = index.maker(name, op_type)
    if node is None:
        return None
    if index.is_number(node.input[1], number):
        return node, node.input[0]
    return (node, node.input[1]) if op_type == "Mul" and index.is_number(node.input[0], number) else None


def _is_half_of(index: GraphIndex, node: NodeProto, value: str) -> bool:
    is_half = value in node.input and index.is_number(index.other(node, value), 0.5)
    return is_half and index.only_reader(node.output[0], "Mul") is not None


def fuse_lp_normalization(graph: GraphProto, index: GraphIndex, epsilon: float = 1e-12) -> bool:
    """Fuse ``x / Expand(Clip(ReduceL2(x, axis), epsilon))`` into LpNormalization; Expand and Clip may be missing.

    Args:
        graph: changed.
        index: of the graph.
        epsilon: the largest limit of the Clip that still says no more than "not zero".
    """
    for norm in graph.node:
        axes = index.axes(norm) if norm.op_type == "ReduceL2" else None
        if axes is None or len(axes) != 1 or not attribute(norm, "keepdims", 1):
            continue
        nodes = [norm]
        clip = index.only_reader(norm.output[0], "Clip")
        if clip is not None:
            if not _is_tiny_floor(index, clip, epsilon):
                continue
            nodes.append(clip)
        expand = index.only_reader(nodes[-1].output[0], "Expand")
        if expand is not None:
            nodes.append(expand)
        last = nodes[-1].output[0]
        divided = index.only_reader(last, "Div")
        if divided is None or list(divided.input) != [norm.input[0], last]:
            continue
        nodes.append(divided)
        result = [divided.output[0]]
        made = helper.make_node("LpNormalization", [norm.input[0]], result, norm.name, axis=axes[0], p=2)
        replace_nodes(graph, nodes, made)
        return True
    return False


def _is_tiny_floor(index: GraphIndex, clip: NodeProto, epsilon: float) -> bool:
    given = {each.name: each.f for each in clip.attribute}
    low = index.constant(clip.input[1]) if len(clip.input) > 1 and clip.input[1] else None
    least = float(low.item()) if low is not None and low.size == 1 else given.get("min")
    has_top = "max" in given or (len(clip.input) > 2 and bool(clip.input[2]))
    return least is not None and 0 <= least <= epsilon * (1 + 1e-3) and not has_top


def fuse_space_to_depth(graph: GraphProto, index: GraphIndex, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Fuse the longest chain of Reshape and Transpose that moves numbers as SpaceToDepth does.

    Args:
        graph: changed.
        index: of the graph.
        shapes: of the values whose sizes are all known.
    """
    for first in graph.node:
        if (
            first.op_type != "Reshape"
            or first.domain not in ("", "ai.onnx")
            or len(shapes.get(first.input[0], ())) != 4
        ):
            continue
        nodes = _moves_behind(index, first, shapes)
        while len(nodes) > 1:
            block = _space_to_depth_block(nodes, shapes)
            if block:
                inputs, result = [first.input[0]], [nodes[-1].output[0]]
                made = helper.make_node("SpaceToDepth", inputs, result, first.name, blocksize=block)
                replace_nodes(graph, nodes, made)
                return True
            nodes.pop()
    return False


def _moves_behind(index: GraphIndex, first: NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> list[NodeProto]:
    """Return a Reshape and the chain of Reshape and Transpose behind it, as far as sizes are known."""
    nodes: list[NodeProto] = []
    found: NodeProto | None = first
    while found is not None and found.output[0] in shapes and (not nodes or found.input[0] == nodes[-1].output[0]):
        nodes.append(found)
        found = index.only_reader(found.output[0], "Reshape", "Transpose")
    return nodes


def _space_to_depth_block(nodes: Sequence[NodeProto], shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Return the size of the blocks that a chain moves into channels as SpaceToDepth does, 0 where it does not."""
    before, after = shapes[nodes[0].input[0]], shapes[nodes[-1].output[0]]
    if len(after) != 4 or not after[2] or before[2] % after[2]:
        return 0
    size = before[2] // after[2]
    batch, channels, height, width = before
    if size < 2 or after != (batch, channels * size**2, height // size, width // size) or width % size:
        return 0
    places = np.arange(channels * height * width).reshape(1, *before[1:])  # samples move alike
    blocks = places.reshape(1, channels, after[2], size, after[3], size)
    wanted = blocks.transpose(0, 3, 5, 1, 2, 4).reshape(1, *after[1:])
    found = places
    for node in nodes:
        shape = shapes[node.output[0]]
        if node.op_type == "Transpose":
            order = next((list(each.ints) for each in node.attribute if each.name == "perm"), None)
            found = found.transpose(order)
        elif shape[0] != batch:
            return 0
        else:
            found = found.reshape(1, *shape[1:])
        if found.shape[0] != 1:
            return 0
    return size if np.array_equal(found, wanted) else 0


def fuse_layer_normalization(graph: GraphProto, index: GraphIndex, opset: int) -> bool:
    """Fuse ``(x - mean) / Sqrt(mean of squares + epsilon) * gain + shift`` over the last axis."""
    if opset < _LAYER_NORMALIZATION_SINCE:
        return False
    for mean in graph.node:
        found = _normalization_behind(index, mean) if mean.op_type == "ReduceMean" else None
        if found is not None:
            nodes, gain, shift, epsilon = found
            inputs, result = [mean.input[0], gain, shift], [nodes[-1].output[0]]
            made = helper.make_node("LayerNormalization", inputs, result, mean.name, axis=-1, epsilon=epsilon)
            replace_nodes(graph, nodes, made)
            return True
    return False


def _normalization_behind(index: GraphIndex, mean: NodeProto) -> tuple[list[NodeProto], str, str, float] | None:
    if index.axes(mean) != [-1] or not attribute(mean, "keepdims", 1):
        return None
    centered = index.only_reader(mean.output[0], "Sub")
    if centered is None or list(centered.input) != [mean.input[0], mean.output[0]]:
        return None
    readers = index.readers(centered.output[0])
    square = next((each for each in readers if each.op_type == "Pow" and index.is_number(each.input[1], 2)), None)
    divided = next((each for each in readers if each.op_type == "Div"), None)
    if square is None or divided is None or len(readers) != 2:
        return None
    variance = index.only_reader(square.output[0], "ReduceMean")
    if variance is None or index.axes(variance) != [-1] or not attribute(variance, "keepdims", 1):
        return None
    added = index.only_reader(variance.output[0], "Add")
    epsilon = None if added is None else index.constant(index.other(added, variance.output[0]))
    root = None if added is None else index.only_reader(added.output[0], "Sqrt")
    if added is None or epsilon is None or epsilon.size != 1 or root is None:
        return None
    if list(divided.input) != [centered.output[0], root.output[0]] or index.only_reader(root.output[0], "Div") is None:
        return None
    scaled = index.only_reader(divided.output[0], "Mul")
    shifted = None if scaled is None else index.only_reader(scaled.output[0], "Add")
    if scaled is None or shifted is None:
        return None
    gain, shift = index.other(scaled, divided.output[0]), index.other(shifted, scaled.output[0])
    vectors = [index.constant(each) for each in (gain, shift)]
    if any(each is None or each.ndim != 1 for each in vectors):
        return None
    nodes = [mean, centered, square, variance, added, root, divided, scaled, shifted]
    return nodes, gain, shift, float(epsilon.item())
