"""restore_plain_layout(): models that onnxruntime saved at level ALL, in ONNX's own operators again.

    y = nchwc.ReorderOutput<channels>(nchwc.Conv<activation>(nchwc.ReorderInput(x), W, B, Sum))
        ->  y = Activation(Add(Conv(x, W', B'), Sum))

Such files hold images and filters in blocks of channels (``blocked_filters``). Here every image is plain and has as
many channels as anybody reads: those that only fill up a block are cut off filters and biases. Images that must have
equally many channels (of a pooling and its input, of the operands of an addition) form one group.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

import numpy as np

from ort_core.errors import InvalidGraph, NotImplemented
from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.traversal import graphs_of
from ort_core.ir.values import Value
from ort_core.onnx_io.blocked_filters import BlockedFilter, find_block_size
from ort_core.onnx_io.plain_operators import PlainWriter, constant_input, image_of

log = logging.getLogger(__name__)

DOMAIN = "com.microsoft.nchwc"
_POOLS = ("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool")
_PASSING = frozenset({
    "Add", "Clip", "Elu", "FastGelu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mul", "QuickGelu", "Relu",
    "Sigmoid", "Silu", "Sum", "Tanh",
})  # fmt: skip  # operators of other domains that onnxruntime leaves between blocked images, element by element


def restore_plain_layout(graph: Graph, imports: Mapping[str, int]) -> str:
    """Replace the operators of com.microsoft.nchwc in a graph and those nested in it; return what was done, in words.

    Raises:
        InvalidGraph: the filters fit no size of blocks, or are not constants.
        NotImplemented: a blocked image is read by an operator that onnxruntime never puts there.
    """
    parts = [_BlockedGraph(each, imports.get("", 1)) for each in graphs_of(graph)]
    filters = [found for part in parts for found in part.filters()]
    written = {size for part in parts for size in part.written_sizes}
    size, told_by = find_block_size(filters, [pair for part in parts for pair in part.known_channels()], written)
    count = sum(part.rewrite(size) for part in parts)
    text = (
        f"{count} operators of com.microsoft.nchwc, in blocks of {size} channels, became ONNX's own when the model was "
        f"loaded; the size of the blocks was told by {told_by}"
    )
    if told_by == "this machine":
        log.warning(
            "onnxruntime saved this model at level ALL for one kind of processor, and the file does not say which. "
            "Blocks of %d channels are assumed, as onnxruntime would do on this machine. "
            "If results are wrong, save the model again at level EXTENDED or below.", size,
        )  # fmt: skip
    return text


class _Group:
    """Blocked images of equally many channels: how many are known, how many filters read, how many fill up blocks."""

    def __init__(self) -> None:
        self._parent: _Group | None = None
        self.exact = 0  # what a ReorderOutput or an input of the graph says
        self.read = 0  # as many as the filters of readers have that are not zero
        self.filled = 0
        self.is_whole = False  # all are read, the last block is full

    def root(self) -> _Group:
        """Return the group that this one became part of."""
        group = self
        while group._parent is not None:
            group = group._parent
        return group

    def join(self, other: _Group) -> None:
        """Make two groups one."""
        kept, gone = self.root(), other.root()
        if kept is gone:
            return
        gone._parent = kept
        kept.exact, kept.read = max(kept.exact, gone.exact), max(kept.read, gone.read)
        kept.filled, kept.is_whole = max(kept.filled, gone.filled), kept.is_whole or gone.is_whole

    @property
    def channels(self) -> int | None:
        """How many channels the plain images have; ``None`` for all, however many there are."""
        return self.exact or (None if self.is_whole else self.read or None)


class _BlockedGraph:
    """One graph, and the groups of its blocked images."""

    def __init__(self, graph: Graph, opset: int) -> None:
        self._graph, self._opset = graph, opset
        self._groups: dict[Value, _Group] = {}
        self._reshapes: list[Node] = []
        self.written_sizes: set[int] = set()  # of blocks, where a Reshape says it
        for node in graph:
            if node.domain == DOMAIN:
                self._enter(node)
            elif any(value in self._groups for value in node.present_inputs()):
                self._enter_plain(node)
        for value in self._groups:
            self._of(value).is_whole |= value.is_graph_output

    def _of(self, value: Value) -> _Group:
        """Return the group of a blocked image, a new one for a new image."""
        return self._groups.setdefault(value, _Group()).root()

    def _enter(self, node: Node) -> None:
        image = image_of(node)
        if node.op_type == "ReorderOutput":
            group = self._of(image)
            group.exact = max(group.exact, node.int_attribute("channels", 0))
        elif node.op_type == "ReorderInput":
            axis = -1 if node.int_attribute("channels_last", 0) else 1
            size = image.shape[axis] if image.is_graph_input and image.shape is not None else None
            self._of(node.output).exact = size if isinstance(size, int) else 0
        elif node.op_type == "Conv":
            self._enter_convolution(node)
        else:
            self._of(node.output).join(self._of(image))

    def _enter_convolution(self, node: Node) -> None:
        stored, image, addend = self._filter(node), image_of(node), node.input(3)
        made = self._of(node.output)
        made.filled = stored.array.shape[0]
        if addend is not None:
            made.join(self._of(addend))
        if image not in self._groups:
            return
        reader = self._of(image)
        if not stored.is_input_blocked:
            made.join(reader)  # depthwise
            return
        reader.filled = stored.array.shape[1] * stored.group
        if stored.group > 1:  # whole blocks in each group
            reader.exact, made.root().exact = reader.filled, stored.array.shape[0]

    def _enter_plain(self, node: Node) -> None:
        blocked = [self._of(value) for value in node.present_inputs() if value in self._groups]
        made = self._of(node.output)
        if node.op_type == "Concat" and node.int_attribute("axis", 1) == 1 and len(blocked) == len(node.inputs):
            for group in (made, *blocked):  # whole blocks lie one behind the other
                group.is_whole = True
        elif node.op_type == "Reshape":  # to [N, C/b, H, W, b], where operands broadcast, and back to [N, C, H, W]
            target = constant_input(node, 1, np.int64)
            if target is None or target.size not in (4, 5):
                raise InvalidGraph(f"{node.describe()} gives a blocked image an unknown shape")
            self.written_sizes.update({int(target[4])} if target.size == 5 else ())
            self._reshapes.append(node)
            made.join(blocked[0])
        elif node.op_type in _PASSING:
            for group in blocked:
                made.join(group)
        else:
            raise NotImplemented(
                f"{node.describe()} reads an image in onnxruntime's blocked layout, which onnxruntime itself gives "
                f"only to operators of {DOMAIN}, Concat over channels, Reshape, and {', '.join(sorted(_PASSING))}; "
                "save the model anew, at a graph optimization level below ALL"
            )

    def _filter(self, node: Node) -> BlockedFilter:
        array = constant_input(node, 1)
        if array is None or array.ndim != 4:
            raise InvalidGraph(f"{node.describe()}: the filter must be a constant of four dimensions, [M, C, H, W]")
        group = node.int_attribute("group", 1)
        is_depthwise = group > 1 and array.shape[:2] == (group, 1)
        return BlockedFilter(array, image_of(node) in self._groups and not is_depthwise, group)

    def filters(self) -> Iterator[BlockedFilter]:
        """Yield the filters of all convolutions."""
        return (self._filter(node) for node in self._graph if node.domain == DOMAIN and node.op_type == "Conv")

    def known_channels(self) -> Iterator[tuple[int, int]]:
        """Yield (channels filled up, channels) where both are known."""
        groups = {group.root() for group in self._groups.values()}
        return ((each.filled, each.exact) for each in groups if each.filled and each.exact)

    def rewrite(self, size: int) -> int:
        """Replace all operators of the blocked layout; return how many there were."""
        nodes = [node for node in self._graph if node.domain == DOMAIN]
        filters = {node: self._filter(node).plain(size) for node in nodes if node.op_type == "Conv"}
        for node, weights in filters.items():
            if image_of(node) in self._groups and weights.shape[1] > 1:
                group = self._of(image_of(node))
                group.read = max(group.read, _last_used(weights, size))
        for value in self._groups:
            value.type = None  # files of ORT format say the blocked image's
        for node in nodes:
            channels = {value: self._of(value).channels for value in node.present_inputs() if value in self._groups}
            writer = PlainWriter(self._graph, node, self._opset)
            if node.op_type == "ReorderInput":
                group = self._of(node.output)
                writer.reorder_input(None if group.exact else group.channels)
            elif node.op_type == "ReorderOutput":
                writer.reorder_output()
            elif node.op_type == "Conv":
                writer.convolution(filters[node], channels.get(image_of(node)), self._of(node.output).channels)
            elif node.op_type == "Upsample":
                writer.upsample()
            elif node.op_type in _POOLS:
                writer.pool()
            else:
                raise NotImplemented(f"{node.describe()}: {DOMAIN} is not known to have this operator")
            self._graph.remove(node)
        for node in self._reshapes:
            PlainWriter(self._graph, node, self._opset).keep()
            self._graph.remove(node)
        return len(nodes)


def _last_used(weights: np.ndarray, size: int) -> int:
    """Return the number of input channels without those of zeros at the end of the last block."""
    used = np.flatnonzero(weights[:, -size:].any(axis=(0, 2, 3)))
    return weights.shape[1] - size + (int(used[-1]) + 1 if used.size else size)
