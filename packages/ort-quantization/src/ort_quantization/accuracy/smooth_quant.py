"""SmoothQuant: outliers of activations are moved into weights, which are quantized with ease.

``x @ W`` is ``(x / s) @ (diag(s) @ W)``. With ``s_j = max|x_j| ** alpha / max|W_j| ** (1 - alpha)`` for each channel j,
both sides share the spread (Xiao and others, 2023). The division goes into the gain of the normalization or Mul that
makes x, or becomes a Mul of its own, which stays in float.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from ort_core.model_graphs import graphs_of
from ort_quantization.calibration.activation_capture import Providers, Samples, captured
from ort_quantization.calibration.calibration_data import CalibrationDataReader, Sample
from ort_quantization.errors import InvalidQuantization
from ort_quantization.models.model_files import read_tensor
from ort_quantization.models.node_order import put_in_order
from ort_quantization.weight_only.matmul_nbits_nodes import TakenNames
from ort_quantization.weight_only.matmul_nbits_smoothing import Smoothing

log = logging.getLogger(__name__)

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)
_LEAST = 1e-5  # of a factor: channels that are nearly zero are not blown up without bound


class KeptReader(CalibrationDataReader):
    """Reads samples that are kept: again from the first one, or those of a range."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples
        self._left: Iterator[Sample] = iter(samples)

    def get_next(self) -> Sample | None:
        """Return the next sample, ``None`` behind the last."""
        return next(self._left, None)

    def __len__(self) -> int:
        return sum(1 for _ in self._samples)

    def set_range(self, start_index: int, end_index: int) -> None:
        """Give the samples of a range from now on."""
        numbered = enumerate(self._samples)
        self._left = (sample for place, sample in numbered if start_index <= place < end_index)


@dataclass(frozen=True, slots=True)
class _Product:
    """A MatMul or Gemm whose operand is smoothed.

    Attributes:
        node: in the model.
        weight: its constant (K, N), or (N, K) where it is transposed.
        axis: of the K channels in the weight.
    """

    node: NodeProto
    weight: TensorProto
    axis: int

    @property
    def channels(self) -> int:
        """K."""
        return self.weight.dims[self.axis]


def smooth(
    model: ModelProto, folder: str, samples: Samples, chosen: Iterable[str], excluded: Iterable[str],
    alpha: float = 0.5, is_folded: bool = True, providers: Providers | None = None,
) -> list[str]:  # fmt: skip
    """Move outliers of activations into weights, in place.

    Args:
        model: with inferred shapes; its products compute the same behind it.
        folder: where its external data lies.
        samples: by which activations are judged; read once.
        chosen: operators to quantize: only these are smoothed.
        excluded: names of nodes that stay as they are.
        alpha: 0 to 1: how much of the spread of activations goes into weights.
        is_folded: divisions become part of what makes an operand, where that has a gain.
        providers: that run the samples.

    Returns:
        The names of the nodes that divide: they are not to be quantized.

    Raises:
        InvalidQuantization: alpha is out of its bounds.
        InvalidCalibration: the samples are none, or do not fit.
    """
    if not 0 <= alpha <= 1:
        raise InvalidQuantization(f"SmoothQuantAlpha lies between 0 and 1; found {alpha}")
    groups: dict[str, list[_Product]] = {}
    for product in _products(model, set(chosen), set(excluded)):
        groups.setdefault(product.node.input[0], []).append(product)
    if not groups:
        log.warning("SmoothQuant finds no MatMul or Gemm with a constant weight among the chosen nodes")
        return []
    peaks = _peaks(model, folder, {name: each[0].channels for name, each in groups.items()}, samples, providers)
    names = TakenNames(model)
    smoothing = Smoothing(model, folder, names)
    added = []
    for operand, products in groups.items():
        factors = _factors(peaks[operand], [_rows(each, folder) for each in products], alpha)
        kind = products[0].weight.data_type
        name, node = smoothing.divide(operand, len(products) if is_folded else -1, factors, kind)
        for product in products:
            _scale_weight(model, product, folder, factors, names)
            product.node.input[0] = name
        if node is not None:
            node.name = names.new(f"{operand}_smooth")
            model.graph.node.append(node)
            added.append(node.name)
    put_in_order(model.graph, is_deep=False)
    return added


def _products(model: ModelProto, chosen: set[str], excluded: set[str]) -> Iterator[_Product]:
    inputs = {each.name for each in model.graph.input}  # defaults that a caller may replace are no constants
    tensors = {each.name: each for each in model.graph.initializer if each.name not in inputs}
    for node in model.graph.node:
        is_other = node.domain not in ("", "ai.onnx") or node.op_type not in chosen.intersection(("MatMul", "Gemm"))
        if is_other or node.name in excluded:
            continue
        weight = tensors.get(node.input[1])
        given = {each.name: each.i for each in node.attribute}
        if weight is None or len(weight.dims) != 2 or weight.data_type not in _FLOATS or given.get("transA"):
            continue
        if node.input[0] not in tensors:
            yield _Product(node, weight, 1 if given.get("transB") else 0)


def _peaks(
    model: ModelProto, folder: str, channels: dict[str, int], samples: Samples, providers: Providers | None
) -> dict[str, np.ndarray]:
    """Return the greatest absolute value of each channel (K,) of operands; what is not finite does not count."""
    peaks = {name: np.zeros(count) for name, count in channels.items()}
    for values in captured(model, folder, list(channels), iter(samples), providers):
        for name, value in values.items():
            sizes = np.abs(value.reshape(-1, channels[name]).astype(np.float64))
            peaks[name] = np.maximum(peaks[name], np.where(np.isfinite(sizes), sizes, 0).max(axis=0, initial=0))
    return peaks


def _rows(product: _Product, folder: str) -> np.ndarray:
    """Return the greatest absolute weight of each channel (K,)."""
    values = np.abs(numpy_helper.to_array(read_tensor(product.weight, folder)).astype(np.float64))
    return values.max(axis=1 - product.axis, initial=0)


def _factors(peaks: np.ndarray, rows: list[np.ndarray], alpha: float) -> np.ndarray:
    weights = np.max(rows, axis=0)
    is_known = (peaks > 0) & (weights > 0)
    found = np.where(is_known, peaks, 1.0) ** alpha / np.where(is_known, weights, 1.0) ** (1 - alpha)
    return np.maximum(found, _LEAST)


def _scale_weight(model: ModelProto, product: _Product, folder: str, factors: np.ndarray, names: TakenNames) -> None:
    values = numpy_helper.to_array(read_tensor(product.weight, folder))
    shaped = factors if product.axis == 1 else factors[:, None]
    scaled = (values.astype(np.float64) * shaped).astype(values.dtype)
    name = product.weight.name
    readers = sum(name in node.input for graph in graphs_of(model.graph) for node in graph.node)
    is_shared = readers > 1 or any(each.name == name for each in model.graph.output)
    tensor = numpy_helper.from_array(scaled, names.new(f"{name}_smoothed") if is_shared else name)
    if is_shared:
        model.graph.initializer.append(tensor)
        product.node.input[1] = tensor.name
    else:
        product.weight.CopyFrom(tensor)
