"""Random requests to an engine, in random company: each gets what its definition says, whoever else asks.

The truth is onnxruntime's: logits of a whole text at once, without caches, then the choice by the definition in
float64, with the request's own random numbers. Texts are those of all tokens, cut at the first stop string. Caches of
half floats, which onnxruntime does not read, are read by the numpy kernels.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import onnxruntime
from genai_tiny_models import VOCABULARY

import ort_core
import ort_genai as og
from ort_genai.errors import GenerationFailed
from ort_genai.guidance import Grammar, GrammarKind

END = 285
CLOSE = 2e-3  # of logits: two engines sum in different orders
_CACHES = {
    "tensor(float)": np.float32, "tensor(int8)": np.int8, "tensor(float16)": np.float16,
    "tensor(bfloat16)": ml_dtypes.bfloat16,
}  # fmt: skip
LENGTHS = (1, 2, 7, 8, 9, 15, 16, 17, 18, 31, 33, 63, 64, 65, 66, 90, 110, 126, 127)
LONG_LENGTHS = (1, 16, 17, 64, 65, 128, 240, 255, 256, 257, 272, 273, 274, 300, 511, 512, 513, 529, 530)
_PATTERNS = ("[a-z]{3,9}", "(the|in|an) [0-9]+", "[0-9]{2}(,[0-9]{2})*", "a|bb|ccc", "[A-Z][a-z ]{0,20}[.]")
_CHOICES = {
    "temperature": (0.0, 0.0, 0.0, 1.0, 0.7, 3.0, 1e-3, 50.0), "top_k": (0, 0, 1, 3, 40, 1000),
    "top_p": (1.0, 1.0, 0.9, 0.3, 1e-9, 0.0), "min_p": (0.0, 0.0, 0.1, 1.0),
    "repetition_penalty": (1.0, 1.0, 1.0, 1.3, 0.5), "presence_penalty": (0.0, 0.0, 0.0, 1.5, -2.0),
    "frequency_penalty": (0.0, 0.0, 0.0, 0.8, -0.7), "min_tokens": (0, 0, 0, 3, 40),
    "max_tokens": (1, 2, 5, 9, 17, 30, 64, None),
}  # fmt: skip
Array = np.ndarray
Logits = Callable[[list[int]], Array]


def logits_of(folder: Path) -> Logits:
    """Return what computes the logits (tokens, vocabulary) behind each token of a text."""
    file = folder / "model.onnx"
    inputs = {each.name: each for each in ort_core.InferenceSession(file).get_inputs()}
    dtypes = {name: _CACHES[each.type] for name, each in inputs.items() if name.startswith("past")}
    session = (
        ort_core.InferenceSession(file, providers=["ReferenceExecutionProvider"])
        if not {np.float16, ml_dtypes.bfloat16}.isdisjoint(dtypes.values())
        else onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    )

    def logits(tokens: list[int]) -> Array:
        count = len(tokens)
        given = {"attention_mask": np.ones((1, count), np.int64), "position_ids": np.arange(count)[None]}
        feeds = {name: value for name, value in given.items() if name in inputs}
        for name, dtype in dtypes.items():
            feeds[name] = np.zeros((1, inputs[name].shape[1], 0, inputs[name].shape[3]), dtype)
        return session.run(["logits"], {"input_ids": np.array([tokens], np.int64), **feeds})[0][0]

    return logits


class RandomDrafter:
    """Guesses what the model takes, something else, or too much; sometimes it fails.

    Args:
        seed: of what it does.
        truth: of the logits.
        context: of the model.
    """

    def __init__(self, seed: int, truth: Logits, context: int) -> None:
        self._random, self._truth, self._context = random.Random(seed), truth, context

    def guess(self, tokens: list[int], count: int) -> list[int]:
        """Return guesses."""
        kind = self._random.random()
        if kind < 0.05:
            raise RuntimeError("no guess")
        if kind < 0.3:
            return [self._random.randrange(VOCABULARY + 9) for _ in range(self._random.randrange(count + 3))]
        found: list[int] = []
        while len(found) < count and len(tokens) + len(found) < self._context:
            found.append(int(self._truth([*tokens, *found])[-1].argmax()))
        return found[: self._random.randint(0, count)]


def options_of(draws: random.Random) -> og.GenerationOptions:
    """Return random options without stop strings."""
    found = {name: draws.choice(values) for name, values in _CHOICES.items()}
    if draws.random() < 0.2:
        found["logit_bias"] = {
            draws.randrange(VOCABULARY): draws.choice((-100.0, 5.0, 100.0, 1e38)) for _ in range(draws.randint(1, 4))
        }
    if draws.random() < 0.15:
        found["grammar"] = Grammar(GrammarKind.REGEX, draws.choice(_PATTERNS))
    return og.GenerationOptions(
        seed=draws.randrange(1 << 40), tells_log_probabilities=True, log_probabilities=draws.choice((0, 3)), **found
    )


def engine_options_of(draws: random.Random, row_nbytes: int) -> og.EngineOptions:
    """Return random limits; ``row_nbytes`` are the caches of the longest text."""
    return og.EngineOptions(
        max_batch=draws.choice((1, 2, 3, 5, 8, 17, 20)),
        cache_bytes=draws.choice((row_nbytes, int(1.6 * row_nbytes), 3 * row_nbytes, 1 << 30)),
        prefix_bytes=draws.choice((0, row_nbytes // 2, 2 * row_nbytes, 1 << 30)),
        draft_tokens=draws.choice((0, 1, 3, 6, 20)), uses_blocks=draws.random() < 0.8,
    )  # fmt: skip


class Party:
    """Requests of one engine.

    Args:
        model: to run.
        truth: of its logits.
        seed: of all.
        lengths: of prompts.
        close: what logits may differ by.
    """

    def __init__(
        self, model: og.Model, truth: Logits, seed: int, lengths: Sequence[int] = LENGTHS, close: float = CLOSE
    ) -> None:
        self.random, self.model, self.truth, self._close = random.Random(seed), model, truth, close
        self._context, self._lengths = model.decoder.context_length, lengths
        longest = min(self._context, max(lengths) + 200)
        row = max(model.decoder.new_state().nbytes_for(1, longest), model.decoder.cache_bytes(longest))
        self.limits = engine_options_of(self.random, row)
        drafter = RandomDrafter(seed, truth, self._context) if self.random.random() < 0.5 else None
        self.engine = og.AsyncEngine(model, self.limits, drafter=drafter)
        self._beginnings = [self._tokens(length) for length in (20, 64, 70, max(lengths) - 20)]

    def _tokens(self, count: int) -> list[int]:
        return [self.random.randrange(284) for _ in range(count)]

    def _prompt(self) -> list[int]:
        length = self.random.choice(self._lengths)
        if self.random.random() < 0.5:
            beginning = self.random.choice(self._beginnings)
            return [*beginning[: self.random.randint(1, len(beginning))], *self._tokens(length)][:length]
        return self._tokens(length)

    def _options(self) -> og.GenerationOptions:
        found = options_of(self.random)
        is_long = self._context > 1000 and found.max_tokens is None
        return replace(found, max_tokens=40) if is_long else found

    def run(self, count: int = 10) -> None:
        """Ask for so many texts, twice: the second time with stop strings out of the first texts."""
        with self.engine:
            asked = [(self._prompt(), self._options()) for _ in range(count)]
            asked += self._choices(*asked[0])
            pieces = self._together(asked)
            again = [self._with_stops(*each, own) for each, own in zip(asked, pieces, strict=True)]
            self._together(self.random.sample(again, len(again)))
            self._check_rest()

    def _choices(
        self, prompt: list[int], options: og.GenerationOptions
    ) -> list[tuple[list[int], og.GenerationOptions]]:
        """Return more texts of a prompt, as a server asks for several choices: alike but for their seeds."""
        return [(prompt, replace(options, seed=options.seed + place)) for place in range(self.random.choice((0, 1, 4)))]

    def _with_stops(
        self, prompt: list[int], options: og.GenerationOptions, pieces: list[og.Piece]
    ) -> tuple[list[int], og.GenerationOptions]:
        text, stops = "".join(each.text for each in pieces), []
        for _ in range(self.random.randint(0, 3) if text else 0):
            start = self.random.randrange(len(text))
            stops.append(text[start : start + self.random.choice((1, 2, 3, 5, 9))])
        if self.random.random() < 0.3:
            stops.append(self.random.choice(("\0never\0", "the the the", "zz", "\ufffd\ufffd")))
        return prompt, replace(options, stop=tuple(stops))

    def _together(self, asked: list[tuple[list[int], og.GenerationOptions]]) -> list[list[og.Piece]]:
        """Ask for texts, some of them later than others, beside others that are cancelled; check and return them."""
        requests: list[og.AsyncRequest] = []
        found: list[list[og.Piece]] = [[] for _ in asked]
        others = []
        for prompt, options in asked:
            requests.append(self.engine.submit(prompt, options))
            if self.random.random() < 0.3:
                others.append(self.engine.submit(self._prompt(), self._options()))
            if self.random.random() < 0.4:
                time.sleep(self.random.random() * 0.01)  # so that some are asked for while others run
            if others and self.random.random() < 0.5:
                others.pop(self.random.randrange(len(others))).cancel()
        for each in others:
            each.cancel()
        for place, request in enumerate(requests):
            try:
                found[place] = list(request)
            except GenerationFailed as error:
                raise AssertionError(f"{request.prompt} {request.options}: {error}") from error
            self._check(request, found[place])
        return found

    def _check_rest(self) -> None:
        deadline = time.monotonic() + 60
        while not self.engine.is_idle and time.monotonic() < deadline:
            time.sleep(0.001)
        assert self.engine.is_idle
        room = self.engine._room
        assert room is None or room.pool.held_by_rows == 0, "nobody runs, and blocks are held"

    def _check(self, request: og.AsyncRequest, pieces: list[og.Piece]) -> None:
        tokens = [each.token for each in pieces if each.token is not None]
        self._check_tokens(request, pieces, tokens)
        told = "".join(each.text for each in pieces)
        whole = self.model.text.decode(tokens)
        stops = request.options.stop
        places = [place for place in (whole.find(stop) for stop in stops) if place >= 0]
        assert told == (whole[: min(places)] if places else whole), (told, whole, stops)
        earlier = self.model.text.decode(tokens[:-1]).rstrip("\ufffd")
        assert not any(stop in earlier for stop in stops), "a stop string ends the text at once"
        self._check_end(request, tokens, whole, bool(places))

    def _check_end(self, request: og.AsyncRequest, tokens: list[int], whole: str, is_stopped: bool) -> None:
        end, options = request.finished, request.options
        assert (end.prompt_tokens, end.tokens) == (len(request.prompt), len(tokens))
        assert end.cached_tokens <= max(0, len(request.prompt) - 17)
        most = self._context - len(request.prompt)
        most = most if options.max_tokens is None else min(most, options.max_tokens)
        grammar = options.grammar
        is_whole = grammar is not None and re.fullmatch(grammar.source, whole) is not None
        assert END not in tokens[:-1]
        if tokens[-1] == END or is_stopped:
            assert end.reason is og.EndReason.STOP
            assert is_stopped or grammar is None or is_whole
        elif end.reason is og.EndReason.STOP:
            assert is_whole, "a grammar ends a text where nothing can follow"
        else:
            assert end.reason is og.EndReason.LENGTH
            assert len(tokens) == most
        assert 1 <= len(tokens) <= most

    def _check_tokens(self, request: og.AsyncRequest, pieces: list[og.Piece], tokens: list[int]) -> None:
        prompt, options = request.prompt, request.options
        rows = self.truth([*prompt, *tokens[:-1]])[len(prompt) - 1 :].astype(np.float64)
        draws = np.random.Generator(np.random.PCG64(options.seed))
        numbered = [each for each in pieces if each.token is not None]
        for place, (row, piece) in enumerate(zip(rows, numbered, strict=True)):
            shares = row - row.max() - np.log(np.exp(row - row.max()).sum())
            assert abs(shares[piece.token] - piece.chance) < self._close
            best = [each.token for each in piece.likeliest]
            assert len(best) == options.log_probabilities
            np.testing.assert_allclose(
                [each.log_probability for each in piece.likeliest], shares[best], atol=self._close
            )
            np.testing.assert_allclose(shares[best], np.sort(shares)[::-1][: len(best)], atol=self._close)
            shaped = self.shaped(row, [*prompt, *tokens[:place]], tokens[:place], options)
            assert self.may_come(shaped, piece.token, options, draws), (prompt, options, tokens, place)

    def shaped(self, row: Array, text: list[int], said: list[int], options: og.GenerationOptions) -> Array:
        """Return logits with what the options forbid or make less likely, but for a grammar."""
        found = row.copy()
        for token in set(text) if options.repetition_penalty != 1 else ():
            found[token] *= options.repetition_penalty ** (1 if found[token] < 0 else -1)
        if len(said) < options.min_tokens:
            found[END] = -np.inf
        for token, count in Counter(said).items():
            found[token] -= options.presence_penalty + options.frequency_penalty * count
        for token, bias in options.logit_bias.items():
            found[token] += bias
        return found

    def may_come(self, logits: Array, token: int, options: og.GenerationOptions, draws: np.random.Generator) -> bool:
        """Return whether a token is the one that the definition gives, within what two engines may differ by."""
        is_greedy = options.temperature == 0 or options.top_p == 0 or options.top_k == 1
        near = self._close * max(1.0, abs(logits[token]))
        if options.grammar is not None:  # which tokens it allows is seen in the whole text
            return logits[token] > -np.inf
        above = logits > logits[token] + near
        if is_greedy:
            return not above.any() and logits[token] > -np.inf
        number = draws.random()
        if options.top_k and above.sum() >= options.top_k:
            return False
        shares = np.exp((logits - logits.max()) / options.temperature)
        most = np.exp(min(0.0, logits[token] + 2 * near - logits.max()) / options.temperature)
        if most == 0 or most < options.min_p:
            return False
        if 0 < options.top_p < 1 and not options.top_k and shares[above].sum() / shares.sum() >= options.top_p + 0.02:
            return False
        is_plain = not options.min_p and options.top_p == 1 and not 0 < options.top_k < VOCABULARY
        if not is_plain or options.temperature < 0.5:  # an order of nearly equal tokens may be another one
            return True
        ends = np.cumsum(shares) / shares.sum()
        return ends[token] - shares[token] / shares.sum() - 0.01 <= number <= ends[token] + 0.01
