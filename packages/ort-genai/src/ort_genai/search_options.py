"""How the next token is chosen: onnxruntime-genai's search options, typed and checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace

from ort_core.errors import did_you_mean
from ort_genai.errors import InvalidGeneration


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Options of a search.

    Attributes:
        batch_size: rows that are read at once.
        blank_penalty: taken, to no effect: it is for models that hear by chunks.
        chunk_size: tokens of a prompt at once; 0: the engine's own.
        diversity_penalty: taken, to no effect: there are no groups of beams.
        do_sample: whether tokens are drawn; else the most likely one is taken.
        early_stopping: whether beams end as soon as there are enough texts.
        length_penalty: power of the length by which beams' scores are divided.
        max_length: tokens of a row, its prompt among them.
        min_length: tokens before a text may end, its prompt among them.
        min_p: least share of the most likely token's probability that a token has to be drawn; 0: none.
        no_repeat_ngram_size: length of the shortest run that may not come twice; 0: none.
        num_beams: texts that are followed at once; 1: one.
        num_return_sequences: texts that come back of each row of beams.
        past_present_share_buffer: as in the configuration; the model's graph decides.
        random_seed: of draws; negative: another one each time.
        repetition_penalty: factor that makes tokens of the row less likely, from 0 on; 1: none.
        temperature: divides logits before a draw.
        top_k: tokens among which one is drawn; 0: all.
        top_p: share of probability among whose tokens one is drawn; 1: all.
    """

    batch_size: int = 1
    blank_penalty: float = 0.0
    chunk_size: int = 0
    diversity_penalty: float = 0.0
    do_sample: bool = False
    early_stopping: bool = True
    length_penalty: float = 1.0
    max_length: int = 0
    min_length: int = 0
    min_p: float = 0.0
    no_repeat_ngram_size: int = 0
    num_beams: int = 1
    num_return_sequences: int = 1
    past_present_share_buffer: bool = True
    random_seed: int = -1
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 1.0

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is taken."""
        return not self.do_sample or self.top_k == 1 or self.temperature == 0

    def changed(self, options: Mapping[str, object]) -> SearchOptions:
        """Return options with some changed.

        Raises:
            InvalidGeneration: there is no such option, or its value is of another kind or out of range.
        """
        known = {each.name: each.type for each in fields(self)}
        values: dict[str, object] = {}
        for name, value in options.items():
            if name not in known:
                raise InvalidGeneration(f'Unknown value "{name}".{did_you_mean(name, list(known))}')
            values[name] = _typed(name, value, str(known[name]))
        made = replace(self, **values)  # type: ignore[arg-type]  # each value was brought to its field's type
        made._check()
        return made

    def as_dict(self) -> dict[str, object]:
        """Return the options by name."""
        return asdict(self)

    def _check(self) -> None:
        for name, least, most in _RANGES:
            value = getattr(self, name)
            if not least <= value <= most:
                raise InvalidGeneration(f"search option {name} = {value}; expected a number from {least} to {most}")
        if self.repetition_penalty <= 0:
            raise InvalidGeneration(
                f"search option repetition_penalty = {self.repetition_penalty}; expected more than 0"
            )
        if self.num_return_sequences > self.num_beams:
            raise InvalidGeneration(
                f"num_return_sequences ({self.num_return_sequences}) must be in [1, {self.num_beams}], the number "
                "of beams"
            )
        if self.num_beams > 1 and self.do_sample:
            raise InvalidGeneration("beams take the most likely texts: set do_sample to False, or num_beams to 1")


SEARCH_NAMES = [each.name for each in fields(SearchOptions)]


def search_options(stated: Mapping[str, object], context_length: int) -> SearchOptions:
    """Return what a configuration states; names that are not known, as of newer versions, are left out."""
    chosen = {name: value for name, value in stated.items() if name in SEARCH_NAMES and value is not None}
    return SearchOptions(max_length=context_length).changed(chosen)


def _typed(name: str, value: object, kind: str) -> object:
    if kind == "bool":
        if not isinstance(value, bool):
            raise InvalidGeneration(f"{name} - Expected a bool but saw {type(value).__name__} {value!r}")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidGeneration(f"{name} - Expected a number but saw {type(value).__name__} {value!r}")
    if kind == "float":
        return float(value)
    if value != int(value):
        raise InvalidGeneration(f"{name} - Expected a whole number but saw {value!r}")
    return int(value)


_MOST = 1 << 31
_RANGES = (
    ("batch_size", 1, 1 << 16), ("max_length", 1, _MOST), ("min_length", 0, _MOST), ("num_beams", 1, 1024),
    ("num_return_sequences", 1, 1024), ("top_k", 0, _MOST), ("top_p", 0.0, 1.0), ("min_p", 0.0, 1.0),
    ("temperature", 0.0, 1e6), ("no_repeat_ngram_size", 0, _MOST), ("repetition_penalty", 0.0, 1e6),
    ("length_penalty", -1e6, 1e6), ("chunk_size", 0, _MOST),
)  # fmt: skip
