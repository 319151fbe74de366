"""Random programs over a ``Generator``: pieces, rewinds, failing runs, guesses, options of any size.

The truth is onnxruntime's: logits of the whole text at once, without caches, and a choice by the definition in float64.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from genai_random_requests import logits_of

import ort_core
import ort_genai as og
from ort_genai.errors import GenerationFailed, InvalidGeneration

VOCABULARY, END, PAD = 288, 285, 286
CLOSE = 2e-3  # of logits: two engines sum in different orders
_CHOICES = {
    "top_k": (0, 1, 3, 50, 1000), "top_p": (1.0, 0.9, 0.1, 1e-9, 0.0), "min_p": (0.0, 0.0, 0.1, 1.0),
    "temperature": (1.0, 0.5, 2.0, 1e-3, 1e-40, 1e-308, 5e-324, 50.0, 0.0, 1e6),
    "repetition_penalty": (1.0, 1.0, 1.2, 0.5, 100.0, 0.01, 1e6), "no_repeat_ngram_size": (0, 0, 1, 2, 3, 50),
    "min_length": (0, 0, 10, 1000),
}  # fmt: skip


def truth_of(folder: Path) -> Callable[[list[int]], np.ndarray]:
    """Return what computes the logits (vocabulary,) behind a text."""
    logits = logits_of(folder)
    return lambda tokens: logits(tokens)[-1]


class Program:
    """One random program, beside what its rows are by the definition.

    Args:
        model: to run.
        truth: of its logits.
        seed: of the program.
    """

    def __init__(self, model: og.Model, truth: Callable[[list[int]], np.ndarray], seed: int) -> None:
        self.random, self.truth, self.model = random.Random(seed), truth, model
        pick = self.random.choice
        self.rows = pick((1, 1, 1, 2, 3))
        self.options = {name: pick(values) for name, values in _CHOICES.items()}
        self.options |= {
            "max_length": self.random.randint(8, 60), "do_sample": self.random.random() < 0.4, "random_seed": seed,
            "batch_size": self.rows,
        }  # fmt: skip
        params = og.GeneratorParams(model)
        params.set_search_options(**self.options)
        if pick((True, False)):
            params.set_speculative_options(ngram_size=pick((1, 2, 3)), max_draft_tokens=pick((1, 4, 9)))
        self.generator = og.Generator(model, params)
        self.shown: list[list[int]] = [[] for _ in range(self.rows)]
        self.read: list[list[int]] = [[] for _ in range(self.rows)]
        self.ended, self.given = [False] * self.rows, None

    def run(self) -> None:
        """Take steps, each of which is checked."""
        steps = (self.append, self.generate, self.generate, self.generate, self.rewind, self.look, self.give)
        for _ in range(self.random.randint(5, 30)):
            self.random.choice(steps)()
            assert self.generator.token_count() == len(self.shown[0])
            assert [self.generator.get_sequence(row).tolist() for row in range(self.rows)] == self.shown
            is_long = bool(self.shown[0]) and len(self.shown[0]) >= self.options["max_length"]
            assert self.generator.is_done() == (all(self.ended) or is_long)

    def append(self) -> None:
        count = self.random.choice((1, 1, 2, 3, 5, 17, 18, 40))
        counts = [count] + [self.random.randint(1, count) for _ in range(self.rows - 1)]
        told = [[self.random.randrange(PAD) for _ in range(each)] for each in counts]
        padded = [row + [PAD] * (count - len(row)) for row in told]
        if len(self.shown[0]) + count > self.options["max_length"]:
            assert self.fails(lambda: self.generator.append_tokens(padded), InvalidGeneration)
            return
        if self.random.random() < 0.3:  # a run that is ended changes nothing
            self.generator.set_runtime_option("terminate_session", "1")
            assert self.fails(lambda: self.generator.append_tokens(padded), ort_core.OrtError)
            self.generator.set_runtime_option("terminate_session", "0")
            if self.random.random() < 0.5:
                return
        self.generator.append_tokens(padded)
        for row in range(self.rows):
            self.shown[row] += padded[row]
            self.read[row] += told[row]
        self.ended, self.given = [False] * self.rows, None

    def generate(self) -> None:
        if not self.shown[0] or len(self.shown[0]) >= self.options["max_length"]:
            assert self.fails(self.generator.generate_next_token, InvalidGeneration)
            return
        if self.rows == 1 and self.ended[0]:
            self.generator.generate_next_token()
            assert self.generator.get_next_tokens().tolist() == [PAD]
            return
        logits = [self.shaped(row) for row in range(self.rows)]
        if any(not np.isfinite(each).any() for each, is_over in zip(logits, self.ended, strict=True) if not is_over):
            assert self.fails(self.generator.generate_next_token, GenerationFailed)
            return
        self.generator.generate_next_token()
        found, before = self.generator.get_next_tokens().tolist(), list(self.ended)
        for row, token in enumerate(found):
            assert token == PAD if before[row] else self.may_come(logits[row], token)
            self.ended[row] = before[row] or token == END
        if not (all(self.ended) and all(found[row] == END for row in range(self.rows) if not before[row])):
            for row, token in enumerate(found):
                self.shown[row].append(token)
                self.read[row].append(token)
            self.given = None

    def rewind(self) -> None:
        length = self.random.randint(0, len(self.shown[0]) + 1)
        is_whole = all(not length or self.read[row] == self.shown[row] for row in range(self.rows))
        if length > len(self.shown[0]) or not is_whole:
            assert self.fails(lambda: self.generator.rewind_to(length), InvalidGeneration)
            return
        self.generator.rewind_to(length)
        for row in range(self.rows):
            del self.shown[row][length:], self.read[row][length:]
        self.ended, self.given = [False] * self.rows, None

    def look(self) -> None:
        if self.shown[0]:
            found = self.generator.get_logits()[:, 0]
            np.testing.assert_allclose(found, [self.logits(row) for row in range(self.rows)], rtol=CLOSE, atol=CLOSE)

    def give(self) -> None:
        if self.shown[0] and not (self.rows == 1 and self.ended[0]):
            self.generator.get_logits()
            shape = (self.rows, VOCABULARY)
            self.given = np.array([self.random.gauss(0, 3) for _ in range(shape[0] * shape[1])], np.float32)
            self.given = self.given.reshape(shape)
            if self.random.random() < 0.3:
                self.given[:, self.random.randrange(VOCABULARY)] = np.inf
            elif self.random.random() < 0.1:  # no token can be chosen
                self.given[self.random.randrange(self.rows)] = -np.inf
            self.generator.set_logits(self.given)

    def logits(self, row: int) -> np.ndarray:
        return self.truth(self.read[row]) if self.given is None else self.given[row]

    def shaped(self, row: int) -> np.ndarray:
        """Return logits with what the options forbid or make less likely."""
        return shaped(self.logits(row), self.shown[row], self.options)

    def may_come(self, logits: np.ndarray, token: int) -> bool:
        """Return whether the options let a token come, within what two engines may differ by."""
        return may_come(logits, token, self.options)

    def fails(self, action: Callable[[], None], kind: type[Exception]) -> bool:
        try:
            action()
        except kind:
            return True
        return False


def shaped(logits: np.ndarray, text: list[int], options: Mapping[str, float]) -> np.ndarray:
    """Return logits behind a text with what search options forbid or make less likely."""
    found = logits.astype(np.float64)
    if options["repetition_penalty"] != 1:
        for token in set(text):
            sign = -1 if found[token] < 0 else 1
            found[token] *= options["repetition_penalty"] ** -sign
    size = int(options["no_repeat_ngram_size"])
    if size:
        end = text[len(text) - size + 1 :]
        for place in range(len(text) - size + 1):
            if text[place : place + size - 1] == end:
                found[text[place + size - 1]] = -np.inf
    if len(text) < options["min_length"]:
        found[END] = -np.inf
    return found


def may_come(logits: np.ndarray, token: int, options: Mapping[str, float]) -> bool:
    """Return whether search options let a token come, within what two engines may differ by."""
    if np.isposinf(logits).any():
        return bool(np.isposinf(logits[token]))
    near = CLOSE * max(1.0, abs(logits[token]))
    above = logits > logits[token] + near
    if not options["do_sample"] or options["top_k"] == 1 or options["temperature"] == 0:
        return not above.any() and logits[token] > -np.inf
    if options["top_k"] and above.sum() >= options["top_k"]:
        return False
    with np.errstate(over="ignore"):
        behind = (logits - logits.max()) / options["temperature"]
        share = np.exp((min(0.0, logits[token] + 2 * near - logits.max())) / options["temperature"])
    if share == 0 or share < options["min_p"]:
        return False
    shares = np.exp(behind)
    is_cut = 0 < options["top_p"] < 1 and not options["top_k"]
    return not is_cut or shares[above].sum() / shares.sum() < options["top_p"] + 0.02
