"""Bias correction: what rounded weights do to the mean of each channel is taken back by the bias.

    E[y - y'] = E[(W - W') * x]      of a channel, over samples of the float model and places

A bias grows by it; a layer without one gets one (Conv, ConvTranspose, Gemm), or an Add behind it (MatMul). The errors
of all layers are found in one pass: each is computed twice, the second time by the difference of its weights.
(Nagel and others, 2019; the means are those of data.)
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from ort_core.model_graphs import graphs_of
from ort_quantization.calibration.activation_capture import Providers, Samples, captured, run_sample, session_of
from ort_quantization.calibration.calibration_data import CalibrationDataReader
from ort_quantization.calibration.tensor_ranges import TensorsData
from ort_quantization.comparison.dequantized_weights import dequantized_weights

log = logging.getLogger(__name__)

_LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)
_LOST = "_lost_by_rounding"


@dataclass(frozen=True, slots=True)
class _Site:
    """A layer whose bias is corrected: its node, its weight as it is and the error of the rounded one."""

    node: NodeProto
    error: np.ndarray


def bias_corrected(
    model: ModelProto, folder: str, small: ModelProto, small_folder: str, reader: CalibrationDataReader,
    providers: Providers | None = None,
) -> tuple[ModelProto, dict[str, np.ndarray]]:  # fmt: skip
    """Return a float model whose biases make up for the weights of its quantized form, and what was added to each.

    Quantized again the same way, the model's means are those of the float model.

    Args:
        model: the float model; it is not changed.
        folder: where its external data lies.
        small: its quantized form.
        small_folder: where that one's external data lies.
        reader: gives samples.
        providers: that run them; the default ones by default.

    Raises:
        InvalidCalibration: there are no samples.
    """
    found = ModelProto()
    found.CopyFrom(model)
    sites = _sites(found, folder, small, small_folder)
    if not sites:
        return found, {}
    results = [site.node.output[0] for site in sites]
    means = _means(found, folder, sites, reader, providers)
    for site, result in zip(sites, results, strict=True):
        _add_to_bias(found, site.node, means[result])
    log.info("the biases of %d layers were corrected", len(sites))
    return found, {site.node.name or result: means[result] for site, result in zip(sites, results, strict=True)}


def decibels_of_results(
    model: ModelProto, folder: str, others: Sequence[ModelProto], samples: Samples, providers: Providers | None = None
) -> list[float]:
    """Return the signal-to-noise ratio of other models' results, infinite where they are those of a float model.

    Args:
        model: the float model.
        folder: where its external data and that of the others lies.
        others: with the same inputs and results.
        samples: inputs of runs.
        providers: that run the models; the default ones by default.
    """
    names = [each.name for each in model.graph.output if each.type.tensor_type.elem_type in _FLOATS]
    if not names:
        return [np.inf] * len(others)
    sessions = [session_of(each, folder, providers) for each in (model, *others)]
    power, noise = np.zeros(len(names)), np.zeros((len(others), len(names)))
    for count, sample in enumerate(samples):
        exact, *found = ([np.asarray(each) for each in run_sample(one, names, sample, count)] for one in sessions)
        power += [_power(value) for value in exact]
        noise += [[_power(value - given) for value, given in zip(values, exact, strict=True)] for values in found]
    shares = np.divide(noise, power, out=np.zeros_like(noise), where=power > 0).mean(axis=1)
    return [float(-10 * np.log10(share)) if share > 0 else np.inf for share in shares]


def _power(values: np.ndarray) -> float:
    """Return the sum of the squares of finite numbers."""
    return float(np.square(values[np.isfinite(values)], dtype=np.float64).sum())


def added_products(before: ModelProto, corrected: ModelProto) -> frozenset[str]:
    """Return the products behind which a bias was added: values that the model did not have."""
    known, made = ({name for node in each.graph.node for name in node.output} for each in (before, corrected))
    return frozenset(made - known)


def ranges_of_products(ranges: TensorsData, before: ModelProto, corrected: ModelProto) -> TensorsData:
    """Return ranges that hold products behind which a bias was added, too: what is added to them is small.

    Args:
        ranges: of the values of a model.
        before: that model.
        corrected: what ``bias_corrected`` made of it.
    """
    found, products = dict(ranges.data), added_products(before, corrected)
    for node in corrected.graph.node:
        if node.op_type == "Add" and node.input[0] in products and node.output[0] in found:
            found[node.input[0]] = found[node.output[0]]
    return TensorsData(ranges.calibration_method, found)


def _sites(model: ModelProto, folder: str, small: ModelProto, small_folder: str) -> list[_Site]:
    readers: dict[str, list[NodeProto]] = {}
    for graph in graphs_of(model.graph):
        for node in graph.node:
            for name in node.input:
                readers.setdefault(name, []).append(node)
    found = []
    for name, exact, rounded in dequantized_weights(model, folder, small, small_folder):
        for node in model.graph.node:
            if node.op_type in _LAYERS and not node.domain and list(node.input)[1:2] == [name]:
                if node.op_type == "MatMul" and exact.ndim != 2:
                    continue
                if len(node.input) > 2 and node.input[2] and len(readers[node.input[2]]) > 1:
                    continue  # others read that bias, too
                found.append(_Site(node, exact.astype(np.float32) - rounded.astype(np.float32)))
    return found


def _means(
    model: ModelProto, folder: str, sites: list[_Site], reader: CalibrationDataReader, providers: Providers | None
) -> dict[str, np.ndarray]:
    """Return what each channel of each layer loses on the mean, by the layer's result."""
    wide = ModelProto()
    wide.CopyFrom(model)
    for site in sites:
        result = site.node.output[0] + _LOST
        twin = NodeProto()
        twin.CopyFrom(site.node)
        twin.name, twin.output[0], twin.input[1] = result, result, result + "_weight"
        del twin.input[2:]
        wide.graph.initializer.append(numpy_helper.from_array(site.error, result + "_weight"))
        wide.graph.node.append(twin)
    names = [site.node.output[0] + _LOST for site in sites]
    axes = {name: -1 if site.node.op_type in ("MatMul", "Gemm") else 1 for name, site in zip(names, sites, strict=True)}
    sums: dict[str, np.ndarray] = {}
    counts: dict[str, int] = dict.fromkeys(names, 0)
    with Samples(reader) as samples:
        for values in captured(wide, folder, names, iter(samples), providers):
            for name, value in values.items():
                rows = np.moveaxis(value, axes[name], -1).reshape(-1, value.shape[axes[name]])
                rows = rows[np.isfinite(rows).all(axis=1)]  # as calibration leaves out what is no number
                sums[name] = sums.get(name, 0) + rows.sum(axis=0, dtype=np.float64)
                counts[name] += len(rows)
    return {name.removesuffix(_LOST): (sums[name] / max(counts[name], 1)).astype(np.float32) for name in names}


def _add_to_bias(model: ModelProto, node: NodeProto, added: np.ndarray) -> None:
    tensors = {each.name: each for each in model.graph.initializer}
    bias = node.input[2] if len(node.input) > 2 else ""
    beta = next((each.f for each in node.attribute if each.name == "beta"), 1.0)
    if bias and bias in tensors and beta:
        old = numpy_helper.to_array(tensors[bias])
        tensors[bias].CopyFrom(numpy_helper.from_array((old + added / beta).astype(old.dtype), bias))
    elif not bias and node.op_type != "MatMul":
        name = _new_name(model, f"{node.output[0]}_bias")
        model.graph.initializer.append(numpy_helper.from_array(added, name))
        node.input.extend([""] * (2 - len(node.input)))
        del node.input[2:]
        node.input.append(name)
    elif node.op_type == "MatMul":
        _add_behind(model, node, tensors, added)


def _add_behind(model: ModelProto, node: NodeProto, tensors: Mapping[str, TensorProto], added: np.ndarray) -> None:
    """Correct the bias that an Add behind a product adds, or add one."""
    result = node.output[0]
    following = [each for each in model.graph.node if result in each.input]
    results = {each.name for each in model.graph.output}
    if len(following) == 1 and following[0].op_type == "Add" and result not in results:
        bias = next((name for name in following[0].input if name != result), "")
        others = [each for each in model.graph.node if bias in each.input]
        if bias in tensors and list(tensors[bias].dims) == [len(added)] and len(others) == 1:
            old = numpy_helper.to_array(tensors[bias])
            tensors[bias].CopyFrom(numpy_helper.from_array((old + added).astype(old.dtype), bias))
            return
    inner, name = _new_name(model, f"{result}_product"), _new_name(model, f"{result}_bias")
    model.graph.initializer.append(numpy_helper.from_array(added, name))
    for known in [each for each in (*model.graph.value_info, *model.graph.output) if each.name == result][:1]:
        model.graph.value_info.add().CopyFrom(known)
        model.graph.value_info[-1].name = inner
    node.output[0] = inner
    place = next(at for at, each in enumerate(model.graph.node) if each is node or each == node)
    model.graph.node.insert(place + 1, helper.make_node("Add", [inner, name], [result], name))


def _new_name(model: ModelProto, wanted: str) -> str:
    taken = {name for node in model.graph.node for name in (*node.input, *node.output)}
    taken |= {each.name for each in model.graph.initializer}
    while wanted in taken:
        wanted += "_"
    return wanted
