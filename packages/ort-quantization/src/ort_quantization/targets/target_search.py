"""The search behind ``quantize_to_target``: what is measured and judged, in which order, and what is chosen by it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from onnx import ModelProto

import ort_core
from ort_core.errors import OrtError
from ort_quantization.calibration.activation_capture import Providers, captured
from ort_quantization.calibration.calibration_data import Sample
from ort_quantization.calibration.tensor_ranges import TensorsData
from ort_quantization.comparison.float_results import float_results
from ort_quantization.errors import InvalidQuantization
from ort_quantization.models.model_files import write_model
from ort_quantization.targets.target_choice import assignments, first_that_meets
from ort_quantization.targets.target_layers import Layer, layer_model, layers_of, signature
from ort_quantization.targets.target_noise import pair_noises, relative_noise, roundings, switched_model
from ort_quantization.targets.target_report import CandidateFacts, LayerFacts, PairFacts, TargetReport
from ort_quantization.targets.target_schemes import FLOAT, assigned, suits
from ort_quantization.targets.target_times import Stopwatch, shapes_of

log = logging.getLogger(__name__)

Metric = Callable[[ort_core.InferenceSession], float]
Progress = Callable[[str, float], None]
COMPARED = 8  # samples by which results are compared
_TOO_LATE = "not measured within the time"
_LEAST_GAIN = 0.01  # of the float layer's or model's time: less is no gain that a machine repeats


@dataclass(frozen=True, slots=True)
class Target:
    """What a model must reach: a signal to noise, or a metric that loses no more than allowed.

    Attributes:
        decibels: of the worst result over the samples that are compared.
        metric: takes a session and gives a number, more being better.
        allowed_loss: how much less than the float model's.
    """

    decibels: float | None = None
    metric: Metric | None = None
    allowed_loss: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a target that is none, or two."""
        if (self.decibels is None) == (self.metric is None):
            found = "neither" if self.decibels is None else "both"
            raise InvalidQuantization(f"a target is a signal to noise (min_decibels) or a metric; found {found}")

    @property
    def text(self) -> str:
        """The target in words."""
        if self.metric is None:
            return f"at least {self.decibels:g} dB signal to noise in each result"
        return f"a metric at most {self.allowed_loss:g} below the float model's"


@dataclass
class _PairState:
    """What is known of a layer's scheme so far."""

    seconds: float | None = None
    gain: float = 0.0
    noise: float | None = None
    left_out: str = ""


@dataclass
class Search:
    """One search; see ``quantize_to_target`` for its steps.

    Attributes:
        model: in float32, its nodes named.
        ranges: of all values.
        samples: by which results are compared.
        target: what the model must reach.
        providers: that will run it.
        schemes: that may be chosen.
        watch: takes the times.
        deadline: of the monotonic clock: nothing new is measured behind it.
        progress: called with what is being done and its share.
        folder: for files.
        notes: for the report.
        candidates: whole models that were judged.
        float_times: seconds of layers in float32, by name.
    """

    model: ModelProto
    ranges: TensorsData
    samples: list[Sample]
    target: Target
    providers: Providers | None
    schemes: tuple[str, ...]
    watch: Stopwatch
    deadline: float
    progress: Progress
    folder: Path
    notes: list[str] = field(default_factory=list)
    candidates: list[CandidateFacts] = field(default_factory=list)
    float_times: dict[str, float] = field(default_factory=dict)

    def run(self) -> tuple[ModelProto, TargetReport]:
        """Return the model that was found, and the report."""
        self.layers = layers_of(self.model)
        self.pairs = {
            layer.name: {scheme: _PairState(left_out=suits(layer, scheme)) for scheme in self.schemes}
            for layer in self.layers
        }
        self.key = signature(self.model, shapes_of(self.samples[0]))
        self.exact = self._results(self.model)
        self.float_value = math.inf if self.target.metric is None else self._metric(self.model)
        whole = self._whole_times()
        self._layer_times()
        self._share_out(whole)
        self._noises()
        chosen = self._candidates(whole)
        return self._fastest(chosen, whole)

    @property
    def _is_late(self) -> bool:
        return time.monotonic() > self.deadline

    def _build(self, assignment: Mapping[str, str]) -> ModelProto:
        return assigned(self.model, self.layers, assignment, self.ranges)

    def _uniform(self, scheme: str) -> dict[str, str]:
        return {layer.name: scheme for layer in self.layers if not suits(layer, scheme)}

    # ---------------------------------------------------------------- times

    def _whole_times(self) -> dict[str, float]:
        """Measure the whole model in each scheme beside float32."""
        self.progress("Measuring whole models", 0.1)
        models = {FLOAT: self.model}
        for scheme in self.schemes:
            uniform = self._uniform(scheme)
            if uniform:
                models[scheme] = self._build(uniform)
        found = self.watch.times(models, self.samples[0], f"whole {self.key}")
        for scheme, each in found.items():
            if isinstance(each, str):
                self.notes.append(f"{scheme} is left out: it {each}")
                for pairs in self.pairs.values():
                    if scheme in pairs:
                        pairs[scheme].left_out = pairs[scheme].left_out or each
        if isinstance(found[FLOAT], str):
            raise InvalidQuantization(f"the float model {found[FLOAT]}")
        return {name: each for name, each in found.items() if not isinstance(each, str)}

    def _layer_times(self) -> None:
        """Measure each form of a layer alone, in each scheme beside float32."""
        inner = self._inner_values()
        for place, layer in enumerate(self.layers):
            self.progress("Measuring layers", 0.15 + 0.3 * place / len(self.layers))
            part = layer_model(self.model, layer)
            feeds = {each.name: inner[each.name] for each in part.graph.input if each.name in inner}
            if len(feeds) < len(part.graph.input) or not part.graph.output:
                self._leave_out(layer, "its inputs or results are no values that a run shows")
                continue
            key = f"layer {signature(part, shapes_of(feeds))}"
            pairs = {name: pair for name, pair in self.pairs[layer.name].items() if not pair.left_out}
            if self._is_late and any(f"{key}/{name}" not in self.watch.measurements for name in (FLOAT, *pairs)):
                self._leave_out(layer, _TOO_LATE)
                continue
            models = {FLOAT: part}
            for scheme in pairs:
                models[scheme] = assigned(part, [layer], {layer.name: scheme}, self.ranges)
            self._note_times(layer, self.watch.times(models, feeds, key))

    def _leave_out(self, layer: Layer, reason: str) -> None:
        for pair in self.pairs[layer.name].values():
            pair.left_out = pair.left_out or reason

    def _note_times(self, layer: Layer, found: Mapping[str, float | str]) -> None:
        plain = found[FLOAT]
        if isinstance(plain, str):
            self._leave_out(layer, plain)
            return
        self.float_times[layer.name] = plain
        for scheme, each in found.items():
            if scheme == FLOAT:
                continue
            pair = self.pairs[layer.name][scheme]
            if isinstance(each, str):
                pair.left_out = each
            else:
                pair.seconds, pair.gain = each, plain - each

    def _inner_values(self) -> dict[str, np.ndarray]:
        """Return the values between layers of one run."""
        produced = {name for node in self.model.graph.node for name in node.output if name}
        needed = dict.fromkeys(
            each.name for layer in self.layers for each in layer_model(self.model, layer).graph.input
        )
        names = [name for name in needed if name in produced]
        one = next(captured(self.model, "", names, iter(self.samples[:1]), ["ReferenceExecutionProvider"]))
        return {**{name: np.asarray(each) for name, each in self.samples[0].items()}, **one}

    def _share_out(self, whole: Mapping[str, float]) -> None:
        """Let the gains of layers add up to that of the whole model, and leave out what does not pay.

        A layer alone pays for conversions at its borders that neighbors of the same type save.
        """
        for scheme in self.schemes:
            if scheme not in whole:
                continue
            timed = [name for name in self.float_times if self.pairs[name][scheme].seconds is not None]
            total = sum(self.float_times[name] for name in timed)
            missing = whole[FLOAT] - whole[scheme] - sum(self.pairs[name][scheme].gain for name in timed)
            for name in timed:
                pair = self.pairs[name][scheme]
                pair.gain += missing * self.float_times[name] / total
                if pair.gain <= _LEAST_GAIN * self.float_times[name]:
                    alone = f"{_micros(pair.seconds)} alone, {_micros(self.float_times[name])} in float32"
                    pair.left_out = (
                        f"slower than float here: {alone}; the whole model {_micros(whole[scheme])} beside "
                        f"{_micros(whole[FLOAT])}"
                    )

    # ---------------------------------------------------------------- noise

    def _noises(self) -> None:
        """Find what each pair that pays does to the results."""
        self.progress("Looking at layers' noise", 0.45)
        schemes = [s for s in self.schemes if any(not pairs[s].left_out for pairs in self.pairs.values())]
        paying = [layer for layer in self.layers if any(not each.left_out for each in self.pairs[layer.name].values())]
        if not schemes:
            return
        rounding = roundings(self.model, self.layers, schemes, self.ranges)
        switched = switched_model(self.model, paying, rounding)
        noises = pair_noises(switched, paying, rounding, self.samples[: COMPARED // 2], None)
        count = len(paying) * len(schemes)
        for done, found in enumerate(noises):
            self.progress("Looking at layers' noise", 0.45 + 0.25 * done / count)
            self.pairs[found.layer][found.scheme].noise = found.noise
            if self._is_late:
                self.notes.append(
                    "the time was up before the noise of all layers was known: the others stay in float32"
                )
                break
        for pairs in self.pairs.values():
            for pair in pairs.values():
                if pair.noise is None:
                    pair.left_out = pair.left_out or _TOO_LATE

    def _results(self, model: ModelProto) -> list[list[np.ndarray]]:
        session = self._session(model)
        names = float_results(session)
        if not names and self.target.metric is None:
            kinds = ", ".join(f"{each.name} is {each.type}" for each in session.get_outputs())
            raise InvalidQuantization(
                f"no result of the model is a tensor of floats ({kinds}), so that no signal to noise can be judged; "
                "give a metric, or a model without the nodes behind its scores"
            )
        if not names:  # a run without names gives all results
            return []
        return [[np.asarray(each) for each in session.run(names, dict(sample))] for sample in self.samples]

    def _session(self, model: ModelProto) -> ort_core.InferenceSession:
        path = self.folder / "judged.onnx"
        copied = ModelProto()
        copied.CopyFrom(model)
        write_model(copied, "", path, False)
        return ort_core.InferenceSession(str(path), providers=self.providers)

    def _metric(self, model: ModelProto) -> float:
        assert self.target.metric is not None  # callers look
        value = self.target.metric(self._session(model))
        if not isinstance(value, int | float | np.number | np.ndarray) or np.size(value) != 1:
            raise InvalidQuantization(f"a metric gives a number; found {type(value).__name__}")
        return float(np.asarray(value).item())

    def _judge(self, model: ModelProto) -> tuple[float, bool]:
        """Return a model's metric or signal to noise, and whether that meets the target."""
        if self.target.metric is not None:
            value = self._metric(model)
            return value, value >= self.float_value - self.target.allowed_loss
        found = self._results(model)
        worst = math.inf
        for place in range(len(self.exact[0])):
            left, right = ([[each[place]] for each in runs] for runs in (self.exact, found))
            noise = relative_noise(left, iter(right))
            worst = min(worst, -10 * math.log10(noise) if noise else math.inf)
        return worst, worst >= (self.target.decibels or 0.0)

    # ---------------------------------------------------------------- whole models

    def _candidates(self, whole: Mapping[str, float]) -> dict[str, dict[str, str]]:
        """Return assignments that meet the target: of all schemes, of each alone, and all layers in one of them.

        The last are judged if they were faster as a whole, whether the time sufficed for their layers or not.
        """
        found: dict[str, dict[str, str]] = {}
        groups = {"mixed": self.schemes, **{scheme: (scheme,) for scheme in self.schemes}}
        for place, (name, schemes) in enumerate(groups.items()):
            self.progress("Judging whole models", 0.7 + 0.25 * place / len(groups))
            pairs = {
                layer: {s: (p.gain, p.noise) for s in schemes if (p := own[s]).noise is not None and not p.left_out}
                for layer, own in self.pairs.items()
            }
            line = assignments({layer: each for layer, each in pairs.items() if each})
            if not line[0] or (place and self._is_late):
                continue
            first = first_that_meets(len(line) - 1, self._asked(name, line))
            if first is not None and line[first] not in found.values():
                found[name] = line[first]
        for scheme in self.schemes:
            if whole.get(scheme, math.inf) > (1 - _LEAST_GAIN) * whole[FLOAT]:
                continue
            uniform = self._uniform(scheme)
            if uniform not in found.values() and self._asked(f"all in {scheme}", [uniform])(0):
                found[f"all in {scheme}"] = uniform
        return found

    def _asked(self, name: str, line: list[dict[str, str]]) -> Callable[[int], bool]:
        def meets(place: int) -> bool:
            try:
                value, is_met = self._judge(self._build(line[place]))
                note = ""
            except OrtError as error:
                value, is_met, note = None, False, str(error).splitlines()[0]
            counts = _counts(line[place])
            shown = f"{name} {place}" if len(line) > 1 else name
            self.candidates.append(CandidateFacts(shown, counts, value, is_met, None, note))
            return is_met

        return meets

    def _fastest(
        self, chosen: Mapping[str, Mapping[str, str]], whole: Mapping[str, float]
    ) -> tuple[ModelProto, TargetReport]:
        """Measure what meets the target beside float32, and return the fastest with the report."""
        self.progress("Measuring what meets the target", 0.95)
        models = {FLOAT: self.model, **{name: self._build(each) for name, each in chosen.items()}}
        keys = "; ".join(f"{name} {sorted(each.items())}" for name, each in chosen.items())
        times = self.watch.times(models, self.samples[0], f"chosen {self.key} {signature_of(keys)}")
        seconds = {name: each for name, each in times.items() if not isinstance(each, str)}
        best = min(seconds, key=lambda name: seconds[name])
        if best != FLOAT and seconds[best] > (1 - _LEAST_GAIN) * seconds[FLOAT]:
            best = FLOAT
        if best == FLOAT:
            reason = "nothing that meets the target is faster than float32 here" if chosen else self._why_nothing()
            self.notes.append(f"the model stays in float32: {reason}")
        value, _ = self._judge(models[best])
        for name, assignment in {FLOAT: {}, **chosen}.items():
            each, is_met = self._judge(models[name])
            self.candidates.append(CandidateFacts(name, _counts(assignment), each, is_met, seconds.get(name)))
        report = TargetReport(
            Path(), Path(), tuple(self._session(self.model).get_providers()), self.target.text, self.float_value,
            value, seconds[FLOAT], seconds[best], self._facts(chosen.get(best, {})), self.candidates,
            self.watch.measurements, 0.0, self.notes,
        )  # fmt: skip
        return models[best], report

    def _why_nothing(self) -> str:
        if not self.layers:
            return "it has no layer with a constant weight"
        if any(not pair.left_out for pairs in self.pairs.values() for pair in pairs.values()):
            return "no assignment meets the target"
        if any(pair.left_out == _TOO_LATE for pairs in self.pairs.values() for pair in pairs.values()):
            return "no layer was measured to be faster within the time; raise budget_s (--budget)"
        return "no scheme of any layer is faster than float32 here"

    def _facts(self, assignment: Mapping[str, str]) -> list[LayerFacts]:
        return [
            LayerFacts(
                layer.name, layer.op_type, assignment.get(layer.name, FLOAT), self.float_times.get(layer.name),
                tuple(
                    _facts(scheme, pair, assignment.get(layer.name)) for scheme, pair in self.pairs[layer.name].items()
                ),
            )
            for layer in self.layers
        ]  # fmt: skip


def _facts(scheme: str, pair: _PairState, chosen: str | None) -> PairFacts:
    decibels = None
    if pair.noise is not None:
        decibels = -10 * math.log10(pair.noise) if pair.noise else math.inf
    return PairFacts(scheme, pair.seconds, pair.gain, decibels, "" if scheme == chosen else pair.left_out)


def _counts(assignment: Mapping[str, str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for scheme in assignment.values():
        counts[scheme] = counts.get(scheme, 0) + 1
    return counts


def _micros(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds * 1e6:.0f} us"


def signature_of(text: str) -> str:
    """Return a short digest of a text."""
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:16]
