"""What each layer's scheme alone does to a model's results, by one model whose layers are switched while it runs.

    x   becomes   x' = Where(mode == 1, DQ(Q(x)), Where(mode == 2, DQ(DynamicQ(x)), ..., x))
    w   becomes an input, whose value is the rounded weight for the layer that is looked at

One session runs all pairs of layers and schemes: nothing is compiled for each of them. Half floats round all that a
layer's nodes read and give; 8 bits what the model quantized as a whole rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import ort_core
from ort_quantization.calibration.activation_capture import Providers
from ort_quantization.calibration.calibration_data import Sample
from ort_quantization.calibration.tensor_ranges import TensorsData
from ort_quantization.comparison.dequantized_weights import dequantized_weights
from ort_quantization.comparison.float_results import float_results
from ort_quantization.comparison.layer_ranges import ranges_in
from ort_quantization.targets.target_layers import Layer
from ort_quantization.targets.target_schemes import SCHEMES, assigned, suits

_MODES = {scheme: place + 1 for place, scheme in enumerate(SCHEMES)}  # int4 rounds weights alone: it needs no mode
_CASTS = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}


@dataclass(frozen=True, slots=True)
class Rounding:
    """How the weights of a uniform model are rounded.

    Attributes:
        weights: by scheme and name of the weight.
        scales: the tensors of the 8 bit model: scales and zero points of values, by name.
    """

    weights: dict[str, dict[str, np.ndarray]]
    scales: dict[str, TensorProto]


def roundings(model: ModelProto, layers: Sequence[Layer], schemes: Sequence[str], ranges: TensorsData) -> Rounding:
    """Return how each scheme rounds the weights and values of all layers that it suits."""
    weights: dict[str, dict[str, np.ndarray]] = {}
    scales: dict[str, TensorProto] = {}
    for scheme in schemes:
        chosen = {layer.name: scheme for layer in layers if not suits(layer, scheme)}
        small = assigned(model, layers, chosen, ranges)
        weights[scheme] = {name: found for name, _, found in dequantized_weights(model, "", small, "")}
        if scheme == "int8":
            tensors = {each.name: each for each in small.graph.initializer}
            for name in ranges_in(small, ""):
                if name not in weights[scheme]:
                    scales.update({end: tensors[end] for end in (f"{name}_scale", f"{name}_zero_point")})
    return Rounding(weights, scales)


def switched_model(model: ModelProto, layers: Sequence[Layer], rounding: Rounding) -> ModelProto:
    """Return a model with a mode (int64, one number) for each layer, and with weights that a run may replace.

    Args:
        model: float32, in opset 13 or later.
        layers: of the model, in the graph's order; the mode of the n-th is ``mode_n``.
        rounding: of ``roundings``.
    """
    found = ModelProto()
    found.CopyFrom(model)
    graph = found.graph
    types = {each.name: each.type.tensor_type.elem_type for each in (*graph.value_info, *graph.input, *graph.output)}
    weights = {name for each in rounding.weights.values() for name in each}
    floats = {name for name, kind in types.items() if kind == TensorProto.FLOAT} - weights
    switches = _Switches(rounding, floats, {each.name for each in graph.output})
    places = {name: place for place, layer in enumerate(layers) for name in layer.nodes}
    followers = {name for layer in layers for name in layer.followers}
    for node in graph.node:
        switches.take(node, places.get(node.name), node.name in followers)
    del graph.node[:]
    graph.node.extend(switches.nodes)
    graph.initializer.extend([*rounding.scales.values(), *switches.constants()])
    given = {each.name for each in graph.input}
    for tensor in graph.initializer:
        if tensor.name in weights and tensor.name not in given:
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    graph.input.extend(helper.make_tensor_value_info(f"mode_{p}", TensorProto.INT64, []) for p in range(len(layers)))
    del graph.value_info[:]
    return found


class _Switches:
    """Copies nodes, and writes the choice among the roundings of what they read and give."""

    def __init__(self, rounding: Rounding, floats: set[str], results: set[str]) -> None:
        self._scales, self._floats, self._results = rounding.scales, floats, results
        self._schemes = list(rounding.weights)
        self._made: dict[tuple[str, int, bool], str] = {}
        self._current: dict[str, str] = {}  # values as their layers give them
        self.nodes: list[NodeProto] = []

    def take(self, node: NodeProto, place: int | None, is_follower: bool) -> None:
        """Copy a node of a layer, or of none."""
        for number, name in enumerate(node.input):
            node.input[number] = self._current.get(name, name)
            if place is not None and name in self._floats:
                key = name, place, is_follower
                if key not in self._made:
                    self._made[key] = self._rounded(
                        name, node.input[number], place, f"{place}{is_follower}", is_follower
                    )
                node.input[number] = self._made[key]
        self.nodes.append(node)
        for number, name in enumerate(node.output):
            if place is None or name not in self._floats:
                continue
            if name in self._results:
                node.output[number] = f"{name}_exact"
            last = self._rounded(name, node.output[number], place, "given", is_follower, is_given=True)
            self._current[name] = last
            if name in self._results:
                self.nodes.append(helper.make_node("Identity", [last], [name]))

    def _rounded(self, name: str, current: str, place: int, end: str, is_follower: bool, is_given: bool = False) -> str:
        """Return the name of a value as a layer reads or gives it."""
        exact = current
        for scheme in self._schemes:
            start = f"{name}_{end}_{scheme}"
            made = self._one(name, exact, scheme, start, is_follower, is_given)
            if made is None:
                continue
            self.nodes.append(helper.make_node("Equal", [f"mode_{place}", f"is_{scheme}"], [f"{start}_is"]))
            self.nodes.append(helper.make_node("Where", [f"{start}_is", made, current], [start]))
            current = start
        return current

    def _one(self, name: str, exact: str, scheme: str, start: str, is_follower: bool, is_given: bool) -> str | None:
        """Write one rounding of a value; nothing where the scheme does not round it."""
        if scheme in _CASTS:
            self.nodes.append(helper.make_node("Cast", [exact], [f"{start}_q"], to=_CASTS[scheme]))
            self.nodes.append(helper.make_node("Cast", [f"{start}_q"], [f"{start}_dq"], to=TensorProto.FLOAT))
            return f"{start}_dq"
        parts = [f"{name}_scale", f"{name}_zero_point"]
        if scheme == "int8" and is_follower and parts[0] in self._scales:
            self.nodes.append(helper.make_node("QuantizeLinear", [exact, *parts], [f"{start}_q"]))
        elif scheme == "dynamic" and is_follower and not is_given:
            parts = [f"{start}_scale", f"{start}_point"]
            self.nodes.append(helper.make_node("DynamicQuantizeLinear", [exact], [f"{start}_q", *parts]))
        else:
            return None
        self.nodes.append(helper.make_node("DequantizeLinear", [f"{start}_q", *parts], [f"{start}_dq"]))
        return f"{start}_dq"

    def constants(self) -> list[TensorProto]:
        """Return the numbers of the modes."""
        return [numpy_helper.from_array(np.array(_MODES[each], np.int64), f"is_{each}") for each in self._schemes]


@dataclass(frozen=True, slots=True)
class PairNoise:
    """What a scheme of one layer alone does.

    Attributes:
        layer: its name.
        scheme: of it.
        noise: the noise's power by the signal's, summed over the results of floats.
    """

    layer: str
    scheme: str
    noise: float


def pair_noises(
    switched: ModelProto, layers: Sequence[Layer], rounding: Rounding, samples: Sequence[Sample],
    providers: Providers | None,
) -> Iterator[PairNoise]:  # fmt: skip
    """Yield the noise of each pair that makes sense, layer by layer.

    Args:
        switched: of ``switched_model``.
        layers: the same.
        rounding: the same.
        samples: by which results are compared; they are held, with the float results.
        providers: that run it.
    """
    options = ort_core.SessionOptions()
    session = ort_core.InferenceSession(switched.SerializeToString(), options, providers=providers)
    names = float_results(session)
    modes = {f"mode_{place}": np.array(0, np.int64) for place in range(len(layers))}
    exact = [arrays_of(session, names, {**sample, **modes}) for sample in samples]
    for place, layer in enumerate(layers):
        for scheme, weights in rounding.weights.items():
            if suits(layer, scheme):
                continue
            own = {name: weights[name] for name in layer.weights if name in weights}
            feeds = {**modes, f"mode_{place}": np.array(_MODES[scheme], np.int64), **own}
            found = (arrays_of(session, names, {**sample, **feeds}) for sample in samples)
            yield PairNoise(layer.name, scheme, relative_noise(exact, found))


def arrays_of(session: ort_core.InferenceSession, names: Sequence[str], feeds: Sample) -> list[np.ndarray]:
    """Return results of a run; without names nothing, where a run gives all results."""
    return [np.asarray(each) for each in session.run(names, dict(feeds))] if names else []


def relative_noise(exact: Sequence[Sequence[np.ndarray]], found: Iterator[Sequence[np.ndarray]]) -> float:
    """Return the power of differences by that of the exact results, the sum over results."""
    signal: dict[int, float] = {}
    noise: dict[int, float] = {}
    for left, right in zip(exact, found, strict=True):
        for place, (one, other) in enumerate(zip(left, right, strict=True)):
            wide, last = (np.asarray(each).astype(np.float64).reshape(-1) for each in (one, other))
            kept = np.isfinite(wide) & np.isfinite(last)
            lost = wide[kept] - last[kept]
            signal[place] = signal.get(place, 0.0) + float(wide[kept] @ wide[kept])
            noise[place] = noise.get(place, 0.0) + float(lost @ lost)
    tiny = float(np.finfo(np.float64).tiny)
    return sum(noise[place] / max(signal[place], tiny) for place in noise)
