"""Beams: the texts with the best sums of log-probabilities, several of each row followed at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ort_genai.errors import GenerationFailed
from ort_genai.sampling import log_probabilities
from ort_genai.search_options import SearchOptions

Array = np.ndarray


@dataclass(slots=True)
class BeamsState:
    """The beams of one row.

    Attributes:
        tokens: of each beam, the prompt among them.
        scores: sums of log-probabilities.
        finished: texts that ended: rank by score and length, tokens.
        is_done: whether no beam is followed any more.
    """

    tokens: list[list[int]]
    scores: Array
    finished: list[tuple[float, list[int]]] = field(default_factory=list)
    is_done: bool = False

    @classmethod
    def begun(cls, prompt: list[int], beams: int) -> BeamsState:
        """Return the beams of a prompt: one of them counts, or the first step would take one token several times."""
        scores = np.full(beams, -1e9)
        scores[0] = 0.0
        return cls([list(prompt) for _ in range(beams)], scores)

    def copied(self) -> BeamsState:
        """Return beams that go on by themselves."""
        return BeamsState(list(self.tokens), self.scores, list(self.finished), self.is_done)

    def step(
        self, logits: Array, options: SearchOptions, ends: tuple[int, ...], pad: int
    ) -> tuple[list[int], list[int]]:
        """Take the best continuations of penalized logits (beams, vocabulary).

        Returns:
            For each beam the token that it goes on with, and the beam that it goes on from.

        Raises:
            GenerationFailed: the model gave no numbers, or fewer tokens are allowed than there are beams.
        """
        beams, vocabulary = logits.shape
        if self.is_done:
            return [pad] * beams, list(range(beams))
        best, totals = self._likeliest(logits, max(2, 1 + len(ends)) * beams)
        chosen: list[tuple[int, int, float]] = []
        for rank, place in enumerate(best):
            beam, token = divmod(int(place), vocabulary)
            if token in ends:
                if rank < beams:
                    self._finish(self.tokens[beam], float(totals[place]), beams, options)
            elif len(chosen) < beams:
                chosen.append((token, beam, float(totals[place])))
        if len(chosen) < beams:
            raise GenerationFailed(
                f"{len(chosen)} tokens are allowed, and {beams} beams are followed: ask for fewer (num_beams)"
            )
        self.is_done = self._has_ended(float(totals[best[0]]), options)
        self.tokens = [[*self.tokens[beam], token] for token, beam, _ in chosen]
        self.scores = np.array([score for *_, score in chosen])
        return [token for token, *_ in chosen], [beam for _, beam, _ in chosen]

    def _likeliest(self, logits: Array, count: int) -> tuple[Array, Array]:
        """Return the places of the likeliest tokens of all beams that are allowed, and the totals (n,) of all."""
        if np.isnan(logits).any():
            raise GenerationFailed("no token can be chosen: the model gave NaN")
        with np.errstate(invalid="ignore"):  # of a beam that no token is allowed to
            shares = log_probabilities(logits)
        totals = (np.where(np.isnan(shares), -np.inf, shares) + self.scores[:, None]).reshape(-1)
        count = min(count, totals.size)
        best = np.argpartition(-totals, count - 1)[:count]
        best = best[np.lexsort((best, -totals[best]))]
        return best[totals[best] > -np.inf], totals

    def best(self, options: SearchOptions) -> list[list[int]]:
        """Return the best texts, those that are still followed among them where too few ended."""
        followed = [] if self.is_done else zip(self.tokens, self.scores, strict=True)
        texts = [*self.finished, *((_by_length(tokens, float(score), options), tokens) for tokens, score in followed)]
        ordered = sorted(texts, key=lambda each: -each[0])
        return [tokens for _, tokens in ordered[: options.num_return_sequences]]

    def _finish(self, tokens: list[int], score: float, most: int, options: SearchOptions) -> None:
        self.finished.append((_by_length(tokens, score, options), list(tokens)))
        self.finished.sort(key=lambda each: -each[0])
        del self.finished[most:]

    def _has_ended(self, likeliest: float, options: SearchOptions) -> bool:
        """Return whether enough texts ended, and none that is followed can come before the last of them.

        Args:
            likeliest: the largest sum that a text has with one token more, which counts as long as those that end now.
            options: of the search.
        """
        if len(self.finished) < len(self.tokens):
            return False
        return options.early_stopping or self.finished[-1][0] >= _by_length(self.tokens[0], likeliest, options)


def _by_length(tokens: list[int], score: float, options: SearchOptions) -> float:
    """Return what ranks as ``score / length ** length_penalty`` does: by logarithms, as powers overflow."""
    if score >= 0:
        return math.inf
    return options.length_penalty * math.log(len(tokens)) - (math.log(-score) if score > -math.inf else math.inf)
