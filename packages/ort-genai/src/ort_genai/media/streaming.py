"""Sound as it comes: chunks of samples become chunks of frames.

onnxruntime-genai has this for models that hear by chunks (Nemotron's, Moonshine); such folders are not built here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ort_genai.errors import InvalidGeneration

if TYPE_CHECKING:
    from ort_genai.model import Model


class StreamingProcessor:
    """Turns sound as it comes into inputs of a model that hears by chunks.

    Args:
        model: of a type that does; none that this package runs is one.

    Raises:
        InvalidGeneration: the model does not.
    """

    def __init__(self, model: Model) -> None:
        if not hasattr(model, "decoder"):
            raise TypeError(f"StreamingProcessor() takes a Model, not {type(model).__name__}")
        raise InvalidGeneration(
            f"CreateStreamingProcessor: unsupported model type '{model.type}'. Models that hear by chunks "
            "(nemotron_speech, streaming_enc_dec_asr) are not run; Whisper hears 30 seconds at once: "
            "model.create_multimodal_processor()"
        )

    def process(self, audio_chunk: object) -> object:
        """Take samples, and return inputs once a chunk is whole."""
        raise NotImplementedError

    def flush(self) -> object:
        """Return what is left, followed by silence."""
        raise NotImplementedError

    def get_option(self, key: str) -> str:
        """Return an option."""
        raise NotImplementedError

    def set_option(self, key: str, value: str) -> None:
        """Set an option."""
        raise NotImplementedError
