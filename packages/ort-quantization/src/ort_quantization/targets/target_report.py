"""What ``quantize_to_target`` found: a scheme for each layer, what others would cost, and what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PairFacts:
    """A scheme of a layer.

    Attributes:
        scheme: of the layer.
        seconds: of the layer alone, nothing where it was not measured.
        gain_s: how much faster the model is for it, by the layer's time and those of whole models.
        decibels: signal to noise of the results with this layer's scheme alone.
        left_out: why it was not considered; nothing where it was.
    """

    scheme: str
    seconds: float | None
    gain_s: float
    decibels: float | None
    left_out: str


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """A layer and what it got.

    Attributes:
        name: of the node with the weight.
        op_type: of that node.
        scheme: what it got.
        float_s: its time in float32, alone.
        pairs: its schemes.
    """

    name: str
    op_type: str
    scheme: str
    float_s: float | None
    pairs: tuple[PairFacts, ...]


@dataclass(frozen=True, slots=True)
class CandidateFacts:
    """A whole model that was looked at.

    Attributes:
        name: which.
        counts: layers by scheme.
        value: the metric or the signal to noise in decibels, nothing where it was not judged.
        meets: whether it meets the target.
        seconds: of a run, nothing where it was not measured.
        note: why not, or what else there is to say.
    """

    name: str
    counts: dict[str, int]
    value: float | None
    meets: bool
    seconds: float | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class TargetReport:
    """What was found.

    Attributes:
        model: the float model's file.
        target: the file that was written.
        providers: that will run it.
        goal: the target in words.
        float_value: the float model's metric; infinite decibels for signal to noise.
        value: of the model that was written.
        float_s: seconds of a run of the float model.
        seconds: of the model that was written.
        layers: in the graph's order.
        candidates: whole models that were looked at, in their order.
        measurements: all times by key; given again as ``measurements`` they lead to the same model.
        elapsed_s: of all this.
        notes: what else was decided, in sentences.
    """

    model: Path
    target: Path
    providers: tuple[str, ...]
    goal: str
    float_value: float
    value: float
    float_s: float
    seconds: float
    layers: list[LayerFacts]
    candidates: list[CandidateFacts]
    measurements: dict[str, float | str]
    elapsed_s: float
    notes: list[str]

    def facts(self) -> list[tuple[str, str]]:
        """Return names and values for people."""
        counts: dict[str, int] = {}
        for layer in self.layers:
            counts[layer.scheme] = counts.get(layer.scheme, 0) + 1
        return [
            ("written", str(self.target)),
            ("target", self.goal),
            ("reached", f"{self.value:.4g} (float {self.float_value:.4g})"),
            ("a run takes", f"{self.seconds * 1e3:.3g} ms, {self.float_s * 1e3:.3g} ms in float32, on {self._where}"),
            ("layers", ", ".join(f"{count} in {scheme}" for scheme, count in counts.items())),
            ("found in", f"{self.elapsed_s:.0f} s"),
            *(("note", note) for note in self.notes),
        ]

    @property
    def _where(self) -> str:
        return ", ".join(self.providers)

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON has it."""
        layers = [
            {
                "name": each.name, "type": each.op_type, "scheme": each.scheme, "float_s": each.float_s,
                "schemes": [{name: getattr(pair, name) for name in PairFacts.__slots__} for pair in each.pairs],
            }
            for each in self.layers
        ]  # fmt: skip
        candidates = [{name: getattr(each, name) for name in CandidateFacts.__slots__} for each in self.candidates]
        return {
            "model": str(self.model), "target": str(self.target), "providers": list(self.providers), "goal": self.goal,
            "float_value": self.float_value, "value": self.value, "float_s": self.float_s, "seconds": self.seconds,
            "layers": layers, "candidates": candidates, "measurements": self.measurements,
            "elapsed_s": self.elapsed_s, "notes": self.notes,
        }  # fmt: skip
