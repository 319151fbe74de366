"""Sound as it comes: samples are gathered until a chunk is whole, which becomes the inputs of a text of its own.

onnxruntime-genai has this for models that keep what they heard from chunk to chunk (Nemotron's, Moonshine). Here it is
for Whisper, which hears up to 30 seconds at once and nothing before them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ort_core.errors import did_you_mean
from ort_genai.errors import InvalidGeneration
from ort_genai.media.audios import Audios, Sound
from ort_genai.media.processor import MultiModalProcessor
from ort_genai.tensors import NamedTensors

if TYPE_CHECKING:
    from ort_genai.model import Model

_RATE = 16000  # samples of a second
_LEAST_MS = 100
_OF_SILENCE = ("vad_threshold", "silence_duration_ms", "prefix_padding_ms")
_OPTIONS = ("prompt", "chunk_ms", "use_vad", *_OF_SILENCE)


class StreamingProcessor:
    """Turns sound as it comes into inputs of a Whisper, a chunk at a time. One thread uses it.

    Each chunk is a text of its own: give its inputs to a new ``Generator``.

    Args:
        model: a Whisper.

    Raises:
        InvalidGeneration: the model does not hear.
    """

    def __init__(self, model: Model) -> None:
        if not hasattr(model, "decoder"):
            raise TypeError(f"StreamingProcessor() takes a Model, not {type(model).__name__}")
        if model.encoder is None:
            raise InvalidGeneration(
                f"CreateStreamingProcessor: unsupported model type '{model.type}'. StreamingProcessor takes sound, and "
                "a Whisper alone hears here; images are for model.create_multimodal_processor(), and texts for "
                "Tokenizer(model)"
            )
        self._processor = MultiModalProcessor(model)
        self._most = self._length = round(self._processor.span_s * _RATE)
        self._prompt = "<|startoftranscript|>"  # the model goes on with the language and the task
        self._parts: list[np.ndarray] = []
        self._count = 0

    def process(self, audio_chunk: object) -> NamedTensors | None:
        """Take samples, and return the inputs of the next chunk if it is whole.

        Where more than a chunk was taken, the rest waits: each further call, with no samples too, returns the next.

        Args:
            audio_chunk: numbers (n,) from -1 to 1, of 16,000 Hz.

        Raises:
            InvalidGeneration: they are no numbers, or of several channels.
        """
        samples = _samples(audio_chunk)
        self._parts.append(samples)
        self._count += len(samples)
        return self._next(self._length) if self._count >= self._length else None

    def flush(self) -> NamedTensors | None:
        """Return the inputs of what is left, followed by silence; ``None`` where nothing is.

        Where more than a chunk waits, the next one is returned: call it until there is none.
        """
        return self._next(min(self._count, self._length)) if self._count else None

    def _next(self, count: int) -> NamedTensors:
        whole = np.concatenate(self._parts)
        self._parts, self._count = [whole[count:]], len(whole) - count
        return self._processor(self._prompt, audios=Audios([Sound(whole[:count], _RATE)]))

    def get_option(self, key: str) -> str:
        """Return an option: ``prompt``, ``chunk_ms`` or ``use_vad``.

        Raises:
            InvalidGeneration: there is none of this name.
        """
        found = {"prompt": self._prompt, "chunk_ms": str(self._length * 1000 // _RATE), "use_vad": "false"}
        if key not in found:
            raise _no_option(key)
        return found[key]

    def set_option(self, key: str, value: str) -> None:
        """Set an option, for chunks that follow.

        Args:
            key: ``prompt``: the tokens that each text begins with, by their names; ``chunk_ms``: how much sound a
                chunk is, up to what the model hears at once.
            value: of it.

        Raises:
            InvalidGeneration: there is none of this name, or the value is none that it takes.
        """
        if key == "prompt":
            self._prompt = value
        elif key == "chunk_ms":
            self._length = self._chunk_of(value)
        elif key != "use_vad":
            raise _no_option(key)
        elif value.lower() not in ("false", "0"):
            raise InvalidGeneration(
                "use_vad: no model that tells speech from silence is run here; leave silence out before process()"
            )

    def _chunk_of(self, value: str) -> int:
        most = self._most * 1000 // _RATE
        if not (value.isascii() and value.isdigit() and len(value) < 10 and _LEAST_MS <= int(value) <= most):
            raise InvalidGeneration(f"chunk_ms = {value!r}; expected a whole number from {_LEAST_MS} to {most}")
        return int(value) * _RATE // 1000


def _samples(given: object) -> np.ndarray:
    """Return float32 samples (n,) of what a program gives.

    Raises:
        InvalidGeneration: they are no numbers, or of several channels.
    """
    try:
        found = np.array(given, np.float32)  # a copy: recorders write the next samples to the same memory
    except (TypeError, ValueError) as error:
        raise InvalidGeneration(f"process() takes samples (n,) as float32 numbers: {error}") from error
    if found.ndim != 1:
        raise InvalidGeneration(f"process() takes samples (n,) of one channel, not of shape {found.shape}")
    return found


def _no_option(key: str) -> InvalidGeneration:
    if key in _OF_SILENCE:
        return InvalidGeneration(f"{key!r} is for use_vad, which is not run here; leave silence out before process()")
    return InvalidGeneration(f"Unknown StreamingProcessor option: {key!r}.{did_you_mean(key, list(_OPTIONS))}")
