"""Cross-layer equalization: channels between two layers get ranges alike, so that one scale for all of them loses less.

    Before:  y = W2 * f(W1 * x + b1)
    After:   y = (W2 * S) * f((W1 / S) * x + b1 / S)        S = 2^round(log2(sqrt(r1 / r2))), by channel

r1 and r2 are the greatest magnitudes of a channel in both weights. For f that keep positive factors, as Relu does, both
are the same function; factors are powers of two, so that its results are the same numbers but for what lies below the
least normal one. (Nagel and others, Data-Free Quantization Through Weight Equalization and Bias Correction, 2019.)
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from ort_core.model_graphs import graphs_of
from ort_quantization.models.model_files import is_external, read_model, read_tensor, write_model

log = logging.getLogger(__name__)

_KEEPING = frozenset({
    "AveragePool", "Dropout", "GlobalAveragePool", "GlobalMaxPool", "Identity", "LeakyRelu", "MaxPool", "Relu",
})  # fmt: skip
"""Operators that multiply their result by what each channel is multiplied by, if that is positive."""

_LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_ROUNDS = 20  # over all pairs; chains of layers settle in a few
_LIMIT = 2.0**24  # of a factor: dead channels are not blown up


def equalize_layers(model_input: str | Path | ModelProto, model_output: str | Path) -> list[tuple[str, str]]:
    """Write a model whose weights are equalized across layers; it computes the same function.

    Args:
        model_input: a float model, or its file; it is not changed.
        model_output: the file to write.

    Returns:
        The names of the pairs of nodes that were equalized.

    Raises:
        NoSuchFile: there is no such model.
        InvalidQuantization: the file is no model.
    """
    model, folder = read_model(model_input)
    has_files = any(is_external(each) for each in model.graph.initializer)
    pairs = equalized(model, folder)
    write_model(model, folder, model_output, has_files)
    return pairs


def equalized(model: ModelProto, folder: str = "") -> list[tuple[str, str]]:
    """Equalize a model in place, and return the names of the pairs of nodes."""
    pairs = _pairs(model)
    tensors = {each.name: each for each in model.graph.initializer}
    names = dict.fromkeys(name for pair in pairs for name in pair.tensors if name)
    arrays = {name: numpy_helper.to_array(read_tensor(tensors[name], folder)).copy() for name in names}
    for _ in range(_ROUNDS):
        if not sum(_equalize(pair, arrays) for pair in pairs):
            break
    for name, array in arrays.items():
        tensors[name].CopyFrom(numpy_helper.from_array(array, name))
    log.info("%d pairs of layers were equalized", len(pairs))
    return [(pair.first.name or pair.first.output[0], pair.second.name or pair.second.output[0]) for pair in pairs]


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two layers, the channels of the first being read by the second only.

    Attributes:
        first: gives the channels.
        second: reads them.
        weight: name of the first's.
        bias: name of the first's, empty where it has none.
        other: name of the second's weight.
        given: axis of channels in the first's weight, and groups that split it.
        read: likewise in the second's.
        channels: how many there are.
    """

    first: NodeProto
    second: NodeProto
    weight: str
    bias: str
    other: str
    given: tuple[int, int]
    read: tuple[int, int]
    channels: int

    @property
    def tensors(self) -> tuple[str, str, str]:
        """Names of all that changes."""
        return self.weight, self.bias, self.other


def _pairs(model: ModelProto) -> list[_Pair]:
    graph = model.graph
    readers: dict[str, list[NodeProto]] = {}
    for inner in graphs_of(graph):
        for node in inner.node:
            for name in node.input:
                readers.setdefault(name, []).append(node)
    results = {each.name for inner in graphs_of(graph) for each in inner.output}
    given = {each.name for each in graph.input}
    tensors = {
        each.name: each for each in graph.initializer if each.data_type == TensorProto.FLOAT and each.name not in given
    }
    found = []
    for node in graph.node:
        if node.op_type not in _LAYERS or node.domain:
            continue
        second = _next_layer(node, readers, results)
        pair = None if second is None else _pair(node, second, tensors)
        if pair is not None and all(len(readers[name]) == 1 for name in pair.tensors if name):
            found.append(pair)
    return found


def _next_layer(node: NodeProto, readers: Mapping[str, list[NodeProto]], results: set[str]) -> NodeProto | None:
    """Return the layer that alone reads what a layer gives, behind operators that keep factors."""
    name = node.output[0]
    while True:
        following = readers.get(name, [])
        if name in results or len(following) != 1 or following[0].domain or following[0].input[0] != name:
            return None
        if following[0].op_type in _LAYERS:
            return following[0] if list(following[0].input).count(name) == 1 else None
        if following[0].op_type not in _KEEPING or any(following[0].output[1:]):
            return None
        name = following[0].output[0]


def _pair(first: NodeProto, second: NodeProto, tensors: Mapping[str, TensorProto]) -> _Pair | None:
    given, read = _channels(first, tensors, is_given=True), _channels(second, tensors, is_given=False)
    if given is None or read is None or given[2] != read[2]:
        return None
    bias = first.input[2] if len(first.input) > 2 else ""
    if bias and (bias not in tensors or list(tensors[bias].dims) != [given[2]]):
        return None
    return _Pair(first, second, first.input[1], bias, second.input[1], given[:2], read[:2], given[2])


def _channels(node: NodeProto, tensors: Mapping[str, TensorProto], is_given: bool) -> tuple[int, int, int] | None:
    """Return the axis of a weight's channels that a layer gives or reads, groups that split it, and their count."""
    weight = tensors.get(node.input[1]) if len(node.input) > 1 else None
    if weight is None:
        return None
    attributes = {each.name: each for each in node.attribute}
    groups = attributes["group"].i if "group" in attributes else 1
    dims = list(weight.dims)
    if node.op_type in ("Conv", "ConvTranspose"):
        is_whole = is_given == (node.op_type == "Conv")  # the axis with all channels; the other has those of a group
        axis = 0 if is_whole else 1
        return axis, 1 if is_whole else groups, dims[axis] * (1 if is_whole else groups)
    if len(dims) != 2 or (node.op_type == "Gemm" and "transA" in attributes and attributes["transA"].i):
        return None
    is_turned = node.op_type == "Gemm" and "transB" in attributes and attributes["transB"].i != 0
    axis = int(is_given != is_turned)
    return axis, 1, dims[axis]


def _equalize(pair: _Pair, arrays: dict[str, np.ndarray]) -> bool:
    """Multiply the channels of a pair, and return whether any factor is not one."""
    first, second = arrays[pair.weight], arrays[pair.other]
    left = _reach(first, *pair.given, channels=pair.channels)
    right = _reach(second, *pair.read, channels=pair.channels)
    is_alive = (left > 0) & (right > 0) & np.isfinite(left) & np.isfinite(right)
    exponents = np.zeros(pair.channels)
    exponents[is_alive] = np.round(np.log2(np.sqrt(left[is_alive] / right[is_alive])))
    factors = np.clip(np.exp2(exponents), 1 / _LIMIT, _LIMIT).astype(first.dtype)
    if (factors == 1).all():
        return False
    arrays[pair.weight] = _times(first, 1 / factors, *pair.given)
    arrays[pair.other] = _times(second, factors, *pair.read)
    if pair.bias:
        arrays[pair.bias] = arrays[pair.bias] / factors
    return True


def _split(weight: np.ndarray, axis: int, groups: int) -> np.ndarray:
    """Return a view (groups, of a group, rest) whose first two axes are all channels."""
    if groups == 1:
        return np.moveaxis(weight, axis, 0)[None]
    parts = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    return np.moveaxis(parts, axis + 1, 1)


def _reach(weight: np.ndarray, axis: int, groups: int, channels: int) -> np.ndarray:
    return np.abs(_split(weight, axis, groups)).reshape(channels, -1).max(axis=1).astype(np.float64)


def _times(weight: np.ndarray, factors: np.ndarray, axis: int, groups: int) -> np.ndarray:
    found = weight.copy()
    view = _split(found, axis, groups)
    view *= factors.reshape(view.shape[:2] + (1,) * (view.ndim - 2))
    return found
