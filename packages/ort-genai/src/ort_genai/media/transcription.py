"""From sound to text with Whisper: the tokens that a text begins with, those that may not come, and times.

Tokens above ``<|notimestamps|>`` are times, a fiftieth of a second apart. They come in pairs, the end of one piece and
the start of the next, and never go back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ort_core.errors import did_you_mean
from ort_genai.errors import InvalidGeneration
from ort_genai.generator import Generator, GeneratorParams
from ort_genai.json_files import read_json
from ort_genai.media.audios import Audios, Sound
from ort_genai.media.processor import MultiModalProcessor
from ort_genai.sampling import log_probabilities
from ort_genai.tensors import NamedTensors

if TYPE_CHECKING:
    from ort_genai.model import Model

Array = np.ndarray
_STEP = 0.02  # seconds between two tokens of time


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a text.

    Attributes:
        start: seconds from the beginning of the sound.
        end: seconds; ``None`` where the text ended before.
        text: what was said.
    """

    start: float
    end: float | None
    text: str


@dataclass(frozen=True, slots=True)
class Transcript:
    """What was heard.

    Attributes:
        text: without times.
        tokens: of all of it, those that it was begun with left out.
        language: as Whisper names it, ``en``; empty: the model has one alone.
        segments: with times; empty without.
    """

    text: str
    tokens: tuple[int, ...]
    language: str
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Which tokens may come.

    Attributes:
        ends: tokens that end a text.
        suppressed: that never come.
        suppressed_first: that do not come first.
        first_time: the token of 0 seconds; ``None``: times are not asked for.
        no_times: the token that says so.
        latest_start: places of the first time; ``None``: any.
    """

    ends: tuple[int, ...]
    suppressed: tuple[int, ...] = ()
    suppressed_first: tuple[int, ...] = ()
    first_time: int | None = None
    no_times: int | None = None
    latest_start: int | None = None

    def allowed(self, logits: Array, said: Sequence[int]) -> Array:
        """Return logits (vocabulary,) of the token behind those that were said."""
        found = logits.astype(np.float32)
        found[list(self.suppressed)] = -np.inf
        if not said:
            found[list(self.suppressed_first)] = -np.inf
        return found if self.first_time is None else self._with_times(found, said, self.first_time)

    def _with_times(self, found: Array, said: Sequence[int], first: int) -> Array:
        if self.no_times is not None:
            found[self.no_times] = -np.inf
        is_time = [token >= first for token in said]
        last, before = bool(said) and is_time[-1], len(said) < 2 or is_time[-2]
        if last and before:
            found[first:] = -np.inf  # a pair is whole: text follows
        elif last:
            found[: min(self.ends, default=first)] = -np.inf  # the end of a piece: a start follows, or the end
        times = [token for token in said if token >= first]
        if times:
            found[first : times[-1] + (0 if last and not before else 1)] = -np.inf
        if not said:
            found[:first] = -np.inf
            if self.latest_start is not None:
                found[first + self.latest_start + 1 :] = -np.inf
        chances = log_probabilities(found)
        times_together = np.logaddexp.reduce(chances[first:])
        if times_together > chances[:first].max():
            found[:first] = -np.inf
        return found


class Transcriber:
    """Writes down what a Whisper hears.

    Args:
        model: a Whisper.

    Raises:
        InvalidGeneration: it does not hear.
    """

    def __init__(self, model: Model) -> None:
        if model.encoder is None:
            raise InvalidGeneration(f"a model of type {model.type} does not hear")
        self._model, self._processor = model, MultiModalProcessor(model)
        file = model.config.folder / "generation_config.json"
        self._stated: dict[str, object] = read_json(file) if file.is_file() else {}

    def transcribe(
        self, audios: Audios, *, language: str = "", task: str = "transcribe", has_times: bool = False
    ) -> list[Transcript]:
        """Return what is said in each sound, as much at a time as the model hears: 30 seconds as a rule.

        Args:
            audios: to hear.
            language: of what is said, ``en``; empty: as it is heard.
            task: ``transcribe``, or ``translate`` into English.
            has_times: whether the text comes in pieces with times.

        Raises:
            InvalidGeneration: the model has no such language or task.
        """
        return [self._transcript(each, language, task, has_times) for each in audios.sounds]

    def _transcript(self, sound: Sound, language: str, task: str, has_times: bool) -> Transcript:
        samples, rate = sound.at_rate(16000), 16000
        span_s = self._processor.span_s
        size = round(span_s * rate)
        parts = [samples[start : start + size] for start in range(0, max(len(samples), 1), size)]
        tokens: list[int] = []
        segments: list[Segment] = []
        for place, part in enumerate(parts):
            inputs = self._processor("", audios=Audios([Sound(part, rate)]))
            language = language or self._heard_language(inputs)
            said = self._said(inputs, self._start(language, task, has_times), self._rules(has_times))
            tokens += said
            segments += self._segments(said, span_s * place) if has_times else []
        first = self._first_time
        text = self._processor.decode([token for token in tokens if first is None or token < first])
        return Transcript(text, tuple(tokens), language, tuple(segments))

    def _said(self, inputs: NamedTensors, start: list[int], rules: TokenRules) -> list[int]:
        params = GeneratorParams(self._model)
        generator = Generator(self._model, params)
        inputs["input_ids"] = np.array([start], np.int32)
        generator.set_inputs(inputs)
        said: list[int] = []
        while not generator.is_done():
            generator.set_logits(rules.allowed(generator.get_logits().reshape(-1), said))
            generator.generate_next_token()
            token = int(generator.get_next_tokens()[0])
            if token not in rules.ends:
                said.append(token)
        return said

    def _heard_language(self, inputs: NamedTensors) -> str:
        """Return the language that the model finds likeliest."""
        languages = self._languages
        if not languages:
            return ""
        generator = Generator(self._model, GeneratorParams(self._model))
        inputs["input_ids"] = np.array([[self._number("decoder_start_token_id")]], np.int32)
        generator.set_inputs(inputs)
        logits = generator.get_logits().reshape(-1)
        best = max(languages, key=lambda name: float(logits[languages[name]]))
        return best.strip("<|>")

    def _start(self, language: str, task: str, has_times: bool) -> list[int]:
        """Return the tokens that a text begins with."""
        found = [self._number("decoder_start_token_id")]
        if self._languages:
            found += [_named(f"<|{language}|>", self._languages), _named(task, self._tasks)]
        elif language or task != "transcribe":
            raise InvalidGeneration("the model has one language and one task")
        return found if has_times or self._no_times is None else [*found, self._no_times]

    def _rules(self, has_times: bool) -> TokenRules:
        stated = self._stated.get("max_initial_timestamp_index")
        latest = stated if isinstance(stated, int) and stated >= 0 else None
        ends = self._model.decoder.end_tokens
        if has_times and self._first_time is None:
            raise InvalidGeneration("the model has no times: generation_config.json names no no_timestamps_token_id")
        return TokenRules(
            ends, self._tokens("suppress_tokens"), self._tokens("begin_suppress_tokens"),
            self._first_time if has_times else None, self._no_times, latest,
        )  # fmt: skip

    def _segments(self, said: list[int], start: float) -> list[Segment]:
        first, found, words = self._first_time, [], list[int]()
        if first is None:
            return []
        begin: float | None = None
        for token in said:
            if token < first:
                words.append(token)
                continue
            time = start + (token - first) * _STEP
            if words:
                found.append(Segment(start if begin is None else begin, time, self._processor.decode(words)))
                words, begin = [], None
            else:
                begin = time
        if words:
            found.append(Segment(start if begin is None else begin, None, self._processor.decode(words)))
        return found

    @property
    def _no_times(self) -> int | None:
        return self._token("no_timestamps_token_id")

    @property
    def _first_time(self) -> int | None:
        return None if self._no_times is None else self._no_times + 1

    @property
    def _languages(self) -> dict[str, int]:
        return self._table("lang_to_id") if self._stated.get("is_multilingual", True) else {}

    @property
    def _tasks(self) -> dict[str, int]:
        return self._table("task_to_id")

    def _table(self, name: str) -> dict[str, int]:
        found = self._stated.get(name)
        if not isinstance(found, dict):
            return {}
        return {key: value for key, value in found.items() if isinstance(value, int) and self._is_token(value)}

    def _tokens(self, name: str) -> tuple[int, ...]:
        found = self._stated.get(name)
        listed = found if isinstance(found, list) else []
        return tuple(each for each in listed if isinstance(each, int) and self._is_token(each))

    def _is_token(self, token: int) -> bool:
        return 0 <= token < self._model.decoder.vocab_size

    def _token(self, name: str) -> int | None:
        """Return a token by its name; ``None`` where none is stated.

        Raises:
            InvalidGeneration: the model does not have it.
        """
        found = self._stated.get(name)
        if not isinstance(found, int):
            return None
        if not self._is_token(found):
            raise InvalidGeneration(f"generation_config.json has {name} = {found}, which is no token of the model")
        return found

    def _number(self, name: str) -> int:
        found = self._token(name)
        if found is not None:
            return found
        token = self._model.text.library.token_to_id("<|startoftranscript|>")
        if token is None:
            raise InvalidGeneration(f"generation_config.json has no {name}, and there is no <|startoftranscript|>")
        return token


def _named(name: str, known: dict[str, int]) -> int:
    if name not in known:
        raise InvalidGeneration(
            f"the model has no {name!r}.{did_you_mean(name, list(known))} It has {', '.join(known)}"
        )
    return known[name]
