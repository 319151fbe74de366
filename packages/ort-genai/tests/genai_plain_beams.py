"""Beam search in plain Python, by its definition: all continuations of all beams, sorted, with powers of lengths."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np


def shaped(
    given: np.ndarray, text: list[int], ends: Sequence[int], size: int, least: int, penalty: float
) -> list[float]:
    """Return logits with what a text forbids, or makes less likely: repeats, and ends before its least length."""
    logits = [float(each) for each in given]
    if penalty != 1:
        for token in set(text):
            value, factor = np.float32(logits[token]), np.float32(penalty)
            logits[token] = float(value * factor if value < 0 else value / factor)
    for start in range(len(text) - size + 1 if size else 0):
        if text[start : start + size - 1] == text[len(text) - size + 1 :]:
            logits[text[start + size - 1]] = -math.inf
    if len(text) < least:
        for token in ends:
            logits[token] = -math.inf
    return logits


def plain_beams(
    logits_of: Callable[[list[int]], np.ndarray], prompt: Sequence[int], ends: Sequence[int], *, num_beams: int,
    num_return_sequences: int, max_length: int, length_penalty: float, early_stopping: bool, no_repeat_ngram_size: int,
    min_length: int, repetition_penalty: float,
) -> list[list[int]]:  # fmt: skip
    """Return the best texts, the best first.

    Args:
        logits_of: what gives float32 logits (vocabulary,) behind a text.
        prompt: that all texts begin with.
        ends: tokens that end a text.
        num_beams: and the rest as onnxruntime-genai's search options.
    """

    def score(total: float, length: int) -> float:
        return total / length**length_penalty

    beams, finished, is_done = [(0.0, list(prompt))], [], False
    while not is_done and len(beams[0][1]) < max_length:
        options = []
        for place, (total, text) in enumerate(beams):
            logits = shaped(logits_of(text), text, ends, no_repeat_ngram_size, min_length, repetition_penalty)
            greatest = max(logits)
            whole = greatest + math.log(math.fsum(math.exp(each - greatest) for each in logits))
            options += [(total + each - whole, place, token) for token, each in enumerate(logits) if each > -math.inf]
        options.sort(key=lambda each: (-each[0], each[1], each[2]))
        followed = []
        for rank, (total, place, token) in enumerate(options):
            text = beams[place][1]
            if token not in ends:
                followed.append((total, [*text, token]))
                if len(followed) == num_beams:
                    break
            elif rank < num_beams:
                finished.append((score(total, len(text)), text))
        finished = sorted(finished, key=lambda each: -each[0])[:num_beams]
        if len(finished) == num_beams:
            best = score(options[0][0], len(beams[0][1]))
            is_done = early_stopping or finished[-1][0] >= best
        beams = followed
    if not is_done:
        finished += [(score(total, len(text)), text) for total, text in beams]
    return [text for _, text in sorted(finished, key=lambda each: -each[0])[:num_return_sequences]]
