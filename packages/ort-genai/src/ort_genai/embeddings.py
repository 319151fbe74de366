"""Texts as vectors: what a decoder gives before its last product, of the last token or of all on average."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import numpy as np

from ort_genai.errors import ContextExceeded, InvalidGeneration
from ort_genai.model import Model

Array = np.ndarray
_HIDDEN = "hidden_states"  # as `ort genai build --hidden-states` and onnxruntime-genai's builder call the output


class Pooling(enum.StrEnum):
    """Which token's vector stands for a text."""

    LAST = "last"
    MEAN = "mean"


class Embedder:
    """Gives texts their vectors; any thread may ask.

    Args:
        model: whose graph has the output ``hidden_states``.
        pooling: what stands for a text; the checkpoint was trained for one of them.

    Raises:
        InvalidGeneration: the graph lacks the output.
    """

    def __init__(self, model: Model, pooling: Pooling = Pooling.LAST) -> None:
        if not has_vectors(model):
            raise InvalidGeneration(
                f"the model's graph has no output {_HIDDEN!r}; `ort genai build --hidden-states` writes one that has"
            )
        self._model, self._pooling = model, Pooling(pooling)

    def embed(self, texts: Sequence[str | Sequence[int]]) -> Array:
        """Return float32 vectors of length 1, (texts, hidden).

        Raises:
            InvalidGeneration: a text has no tokens, tokens that are not the model's, or more than its context has.
        """
        vectors = [self._vector(self.tokens_of(text)) for text in texts]
        return np.stack(vectors) if vectors else np.zeros((0, 0), np.float32)

    def ranked(self, query: str, texts: Sequence[str]) -> list[tuple[int, float]]:
        """Return places of texts and cosines of their angles to a query, the nearest first."""
        vectors = self.embed([query, *texts])
        scores = vectors[1:] @ vectors[0]
        return [(int(place), float(scores[place])) for place in np.argsort(-scores, kind="stable")]

    def tokens_of(self, text: str | Sequence[int]) -> list[int]:
        """Return the tokens of a text, checked."""
        decoder = self._model.decoder
        tokens = self._model.text.encode(text) if isinstance(text, str) else [int(each) for each in text]
        if not 0 < len(tokens) <= decoder.context_length:
            kind = ContextExceeded if tokens else InvalidGeneration
            raise kind(f"a text has {len(tokens)} tokens; expected 1 to {decoder.context_length}")
        wrong = [token for token in tokens if not 0 <= token < decoder.vocab_size]
        if wrong:
            raise InvalidGeneration(f"token {wrong[0]} is none of the model's, which are 0 to {decoder.vocab_size - 1}")
        return tokens

    def _vector(self, tokens: list[int]) -> Array:
        hidden = self._model.decoder.run_alone(np.array(tokens, np.int64), _HIDDEN)[0].astype(np.float32)
        vector = hidden[-1] if self._pooling is Pooling.LAST else hidden.mean(axis=0)
        return vector / np.float32(float(np.linalg.norm(vector)) or 1.0)


def has_vectors(model: Model) -> bool:
    """Return whether a model's graph gives vectors."""
    return _HIDDEN in model.decoder.outputs
