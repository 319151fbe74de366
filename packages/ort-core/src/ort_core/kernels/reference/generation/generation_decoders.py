"""The models inside of the generation operators: decoder-only (GPT) and encoder-decoder (T5) bodies, step by step."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ort_core import errors
from ort_core.ir.types import TensorType
from ort_core.kernels.kernel import SubgraphRunner


class Decoder(Protocol):
    """A model that is asked for the next token's logits; rows are batch entries times beams."""

    start: np.ndarray
    """The tokens (rows, length) that the sequences begin with."""

    def first(self) -> np.ndarray:
        """Return the logits (rows, vocabulary) after the start tokens."""

    def next(self, tokens: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the logits after ``tokens`` (rows,) were added to the sequences that now stand in ``rows``."""


def _past_shape(body: SubgraphRunner, output: int, name: str) -> tuple[int, int]:
    """Return (heads, width) of a body's past, which its output types must state."""
    kind = body.output_types[output]
    shape = kind.shape if isinstance(kind, TensorType) else None
    if shape is None or not isinstance(shape[-3], int) or not isinstance(shape[-1], int):
        raise errors.InvalidArgument(f"the {name} body must state the number of heads and their width in its outputs")
    return shape[-3], shape[-1]


def last_logits(logits: np.ndarray) -> np.ndarray:
    """Return the logits of the last position, float32 (rows, vocabulary)."""
    return logits[:, -1].astype(np.float32)


class GptDecoder:
    """A decoder whose body takes (ids, positions, mask, pasts (2, B, N, P, H)...) and gives (logits, presents...)."""

    def __init__(
        self,
        body: SubgraphRunner,
        first_body: SubgraphRunner | None,
        input_ids: np.ndarray,
        mask: np.ndarray | None,
        pad_token: int,
        beams: int,
    ) -> None:
        """Take the prompt (batch, length); each entry is repeated ``beams`` times."""
        self._body, self._first_body = body, first_body or body
        is_text = input_ids != pad_token  # what counts for positions, also where a mask is given
        mask = is_text if mask is None else mask
        self.start = np.repeat(input_ids, beams, axis=0)
        self._mask = np.repeat(mask.astype(np.int32), beams, axis=0)
        is_text = np.repeat(is_text, beams, axis=0)
        self._positions = np.where(is_text, np.cumsum(is_text, axis=1) - 1, 0).astype(np.int32)
        self._last = is_text.sum(axis=1, keepdims=True, dtype=np.int32) - 1
        self._past: list[np.ndarray] = []

    def first(self) -> np.ndarray:
        """Return the logits (rows, vocabulary) after the prompt."""
        heads, width = _past_shape(self._body, 1, "decoder")
        kind = self._body.output_types[1]
        assert isinstance(kind, TensorType)
        empty = np.zeros((2, self.start.shape[0], heads, 0, width), kind.dtype.numpy)
        pasts = [empty] * (self._body.input_count - 3)
        logits, *self._past = self._first_body(self.start, self._positions, self._mask, *pasts)
        self._positions = self._last
        return last_logits(logits)

    def next(self, tokens: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the logits after ``tokens`` were added to the sequences that now stand in ``rows``."""
        self._positions = self._positions + 1
        self._mask = np.concatenate([self._mask, np.ones_like(self._mask[:, :1])], axis=1)
        pasts = [past[:, rows] for past in self._past]
        ids = tokens[:, None].astype(np.int32)
        logits, *self._past = self._body(ids, self._positions, self._mask, *pasts)
        return last_logits(logits)


class EncoderDecoder:
    """An encoder that gives (logits, hidden, self pasts..., cross pasts...), or only cross pasts, and a decoder."""

    def __init__(
        self,
        encoder: SubgraphRunner,
        decoder: SubgraphRunner,
        inputs: np.ndarray,
        mask: np.ndarray | None,
        start: np.ndarray,
        pad_token: int,
        beams: int,
    ) -> None:
        """Take the encoder's input (batch, ...) and the decoder's start tokens (batch, length)."""
        self._encoder, self._decoder, self._inputs, self._beams = encoder, decoder, inputs, beams
        if mask is None:
            known = inputs.ndim == 2
            mask = (inputs != pad_token).astype(np.int32) if known else np.ones(inputs.shape[:2], np.int32)
        self._mask = mask.astype(np.int32)
        self.start = np.repeat(start.astype(np.int32), beams, axis=0)
        self._layers = (len(decoder.output_types) - 1) // 2
        self._self_past: list[np.ndarray] = []
        self._cross_past: list[np.ndarray] = []
        self._hidden: np.ndarray | None = None

    def first(self) -> np.ndarray:
        """Run the encoder, and the decoder unless the encoder's body contains its first step."""
        joint = len(self._encoder.output_types) > 2 * self._layers
        rows = np.arange(self._inputs.shape[0]).repeat(self._beams)
        feeds = (self._inputs, self._mask, self.start[:: self._beams])[: self._encoder.input_count]
        if self._encoder.input_count == 2 and joint:
            feeds = (self._inputs, self.start[:: self._beams])
        results = self._encoder(*feeds)
        if joint:
            logits, hidden, *pasts = (value[rows] for value in results)
            self._hidden, self._self_past = hidden, pasts[: 2 * self._layers]
            self._cross_past = pasts[2 * self._layers :]
            self._mask = self._mask[rows]
            return last_logits(logits)
        self._cross_past = [value[rows] for value in results]
        self._mask = self._mask[rows]
        heads, width = _past_shape(self._decoder, 1, "decoder")
        empty = np.zeros((rows.size, heads, 0, width), self._cross_past[0].dtype)
        self._self_past = [empty] * (2 * self._layers)
        return self._step(self.start)

    def next(self, tokens: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the logits after ``tokens`` were added to the sequences that now stand in ``rows``."""
        # Beams of one entry share its encoding, so cross pasts and the mask stay as they are.
        self._self_past = [past[rows] for past in self._self_past]
        return self._step(tokens[:, None].astype(np.int32))

    def _step(self, ids: np.ndarray) -> np.ndarray:
        pasts = [*self._self_past, *self._cross_past]
        extra: list[np.ndarray] = []
        free = self._decoder.input_count - 1 - len(pasts)
        if free >= 1 and self._inputs.ndim == 2:
            extra.append(self._mask)
            free -= 1
        if free >= 1 and self._hidden is not None:
            extra.append(self._hidden)
        logits, *self._self_past = self._decoder(ids, *extra, *pasts)
        self._self_past = self._self_past[: 2 * self._layers]
        return last_logits(logits)
