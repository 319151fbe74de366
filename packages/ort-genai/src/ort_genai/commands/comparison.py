"""Two models beside each other: greedy tokens, logits of the same tokens, and where they part."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
from rich.console import Console
from rich.table import Table

import ort_core
from ort_core.errors import InvalidArgument, NotImplemented
from ort_genai.configuration import Config
from ort_genai.element_types import FLOATS
from ort_genai.folder_paths import part_file
from ort_genai.model import Model

PROMPTS = ("The capital of France is", "Once upon a time", "1, 2, 3, 4,", "def add(a, b):")


@dataclass(frozen=True, slots=True)
class Comparison:
    """One prompt in two models.

    Attributes:
        prompt: its text.
        tokens: that the first model chose.
        parted: place of the first token at which the second one chose another, ``None``: nowhere.
        largest: difference of logits, behind the same tokens.
        divergence: mean Kullback-Leibler divergence of the second one's probabilities, in nats.
    """

    prompt: str
    tokens: list[int]
    parted: int | None
    largest: float
    divergence: float


def compare(first: Path, second: Path, prompts: tuple[str, ...], tokens: int, engine: str) -> list[Comparison]:
    """Return how two models answer prompts; the second one reads the tokens that the first one chose.

    Raises:
        InvalidArgument: their vocabularies differ in size, or the engine is none that is known.
    """
    one, other = Model(first), _Logits(second, engine)
    if one.decoder.vocab_size != other.vocab_size:
        raise InvalidArgument(f"{first} has {one.decoder.vocab_size} tokens, {second} {other.vocab_size}")
    return [_compared(one, other, prompt, tokens) for prompt in prompts]


def show_comparison(first: Path, second: Path, *, prompts: list[str] | None, tokens: int, engine: str) -> bool:
    """Write a table and return whether all tokens are equal."""
    found = compare(first, second, tuple(prompts or PROMPTS), tokens, engine)
    table = Table("prompt", "tokens", "first other token", "largest difference of logits", "divergence (nats)")
    for each in found:
        parted = "none" if each.parted is None else str(each.parted)
        table.add_row(each.prompt[:40], str(len(each.tokens)), parted, f"{each.largest:.3g}", f"{each.divergence:.3g}")
    Console().print(table)
    return all(each.parted is None for each in found)


def _compared(one: Model, other: _Logits, prompt: str, count: int) -> Comparison:
    given = one.text.encode(prompt)
    state = one.decoder.new_state()
    state.add_row()
    rows = [state.read(0, np.array(given, np.int64))]
    chosen: list[int] = []
    count = min(count, one.decoder.context_length - len(given))
    while len(chosen) < count:
        chosen.append(int(rows[-1].argmax()))
        if chosen[-1] in one.decoder.end_tokens or len(chosen) == count:
            break
        rows.append(state.step(np.array(chosen[-1:], np.int64))[0])
    mine = np.stack(rows)
    theirs = other.of(given + chosen[:-1])[len(given) - 1 :]
    differing = np.flatnonzero(theirs.argmax(-1) != np.array(chosen))
    shares, others = _log_shares(mine), _log_shares(theirs)
    divergence = float((np.exp(shares) * (shares - others)).sum(-1).mean())
    parted = int(differing[0]) if len(differing) else None
    return Comparison(prompt, chosen, parted, float(np.abs(mine - theirs).max()), divergence)


def _log_shares(logits: np.ndarray) -> np.ndarray:
    values = logits.astype(np.float64)
    values = values - values.max(-1, keepdims=True)
    return values - np.log(np.exp(values).sum(-1, keepdims=True))


class _Logits:
    """Logits of all tokens of a text, in one run of any engine with onnxruntime's API."""

    def __init__(self, folder: Path, engine: str) -> None:
        config = Config(folder)
        self.vocab_size = config.number("vocab_size")
        path = part_file(folder, config.decoder, "decoder", "model.onnx")[1]
        self._session = _engine(engine).InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def of(self, tokens: list[int]) -> np.ndarray:
        """Return float32 logits (tokens, vocabulary)."""
        count = len(tokens)
        feeds: dict[str, np.ndarray] = {}
        for each in self._session.get_inputs():
            if len(each.shape) == 4:
                feeds[each.name] = np.zeros((1, each.shape[1], 0, each.shape[3]), FLOATS[each.type])
            else:
                feeds[each.name] = np.ones((1, count), np.int64)
        feeds["input_ids"] = np.array([tokens], np.int64)
        if "position_ids" in feeds:
            feeds["position_ids"] = np.arange(count)[None]
        return np.asarray(self._session.run(["logits"], feeds)[0])[0].astype(np.float32)


def _engine(name: str) -> ModuleType:
    if name == "ort-core":
        return ort_core
    if name != "onnxruntime":
        raise InvalidArgument(f"the engine {name!r}; expected ort-core or onnxruntime")
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        raise NotImplemented("onnxruntime is not installed: pip install onnxruntime") from error
    return onnxruntime
