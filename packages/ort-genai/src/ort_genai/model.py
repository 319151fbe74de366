"""A model folder, opened: the decoder, the tokenizer, and what searches begin with."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ort_genai.arguments import demand
from ort_genai.configuration import Config
from ort_genai.decoder import Decoder
from ort_genai.errors import InvalidModelFolder
from ort_genai.guidance import GuidanceTokens
from ort_genai.part_sessions import AudioEncoder, VisionEncoder
from ort_genai.search_options import SearchOptions, search_options
from ort_genai.text import Text

if TYPE_CHECKING:
    from ort_core import LoraAdapter
    from ort_genai.engine.engine import AsyncEngine
    from ort_genai.engine.requests import AsyncRequest, GenerationOptions
    from ort_genai.media.processor import MultiModalProcessor
    from ort_genai.media.streaming import StreamingProcessor

_NOT_RUN = (
    "fara", "gemma4", "lfm2", "lfm2_audio", "lfm2_moe", "lfm2_vl", "marian-ssru", "nemotron_speech", "parakeet_tdt",
    "phi3v", "phi4mm", "qwen2_5_vl", "qwen3_vl", "streaming_enc_dec_asr",
)  # fmt: skip


class Model:
    """A language model that runs.

    Threads may share it; each generation has a state of its own.

    Args:
        source: a folder with ``genai_config.json``, or its configuration.

    Raises:
        InvalidModelFolder: the folder lacks something, or its parts do not fit.
    """

    def __init__(self, source: Config | str | os.PathLike[str]) -> None:
        self.config = source if isinstance(source, Config) else Config(source)
        if self.type in _NOT_RUN:
            raise InvalidModelFolder(
                f"a model of type {self.type!r} cannot be run: it has graphs or caches beside a decoder's that are not "
                "read here. Run decoders of text, Whisper, LLaVA, SmolVLM and Idefics 3"
            )
        self.decoder = Decoder(self.config)
        self.encoder = AudioEncoder(self.config) if self.config.part("encoder") else None
        self.vision = VisionEncoder(self.config) if self.config.part("vision") else None

    @property
    def type(self) -> str:
        """The architecture, as ``genai_config.json`` has it."""
        return str(self.config.model.get("type", ""))

    @property
    def device_type(self) -> str:
        """Where the model runs: the first provider's name in onnxruntime-genai's words."""
        first = self.decoder.providers[0]
        return first.removesuffix("ExecutionProvider").upper()

    def create_multimodal_processor(self) -> MultiModalProcessor:
        """Return what turns prompts with images or sounds into inputs of a ``Generator``.

        Raises:
            InvalidGeneration: the model takes text alone.
        """
        from ort_genai.media.processor import MultiModalProcessor

        return MultiModalProcessor(self)

    def create_streaming_processor(self) -> StreamingProcessor:
        """Return what turns sound as it comes into inputs.

        Raises:
            InvalidGeneration: the model does not hear.
        """
        from ort_genai.media.streaming import StreamingProcessor

        return StreamingProcessor(self)

    def generate(self, prompt: Sequence[int] | str, options: GenerationOptions | None = None) -> AsyncRequest:
        """Ask for a text: ``async for piece in model.generate(...)``; leaving the loop cancels it.

        All callers of a model share one engine, which lives as long as the model.
        """
        return self._engine.generate(prompt, options)

    @cached_property
    def _engine(self) -> AsyncEngine:
        from ort_genai.engine.engine import AsyncEngine

        return AsyncEngine(self)

    @cached_property
    def text(self) -> Text:
        """The tokenizer."""
        return Text(self.config.tokenizer_folder)

    @cached_property
    def guidance(self) -> GuidanceTokens:
        """The tokens, as grammars need them."""
        return GuidanceTokens(self.text, self.decoder.vocab_size, self.decoder.end_tokens)

    @property
    def search(self) -> SearchOptions:
        """The search that the folder states."""
        return search_options(self.config.search, self.decoder.context_length)


@dataclass(frozen=True, slots=True)
class LoadedAdapter:
    """LoRA weights, as they were loaded under a name.

    Attributes:
        key: tells them from others that have, or had, the same name.
        weights: for the inputs of a model.
    """

    key: str
    weights: LoraAdapter


class Adapters:
    """LoRA weights for the inputs of a model, by name.

    Args:
        model: whose graph has the inputs.
    """

    def __init__(self, model: Model) -> None:
        demand("Adapters()", "model", model, Model)
        self._model = model
        self._loaded: dict[str, LoadedAdapter] = {}
        self._numbers = itertools.count(1)

    def load(self, file: str, name: str) -> None:
        """Load a file ``.onnx_adapter`` under a name.

        Raises:
            InvalidGeneration: the name is taken, or the file is not an adapter.
            NoSuchFile: there is no such file.
        """
        from ort_core import LoraAdapter
        from ort_genai.errors import InvalidGeneration, raised_as

        demand("load()", "file", file, str, os.PathLike)
        demand("load()", "name", name, str)
        if name in self._loaded:
            raise InvalidGeneration(f"Adapter already loaded: {name}")
        adapter = LoraAdapter()
        with raised_as(InvalidGeneration):
            adapter.Load(file)
        self._loaded[name] = LoadedAdapter(f"{name} {next(self._numbers)}", adapter)

    def unload(self, name: str) -> None:
        """Forget an adapter.

        Raises:
            InvalidGeneration: none has this name.
        """
        self.loaded(name)
        del self._loaded[name]

    def names(self) -> list[str]:
        """Return the names of those that are loaded."""
        return list(self._loaded)

    def find(self, name: str) -> LoraAdapter:
        """Return an adapter by its name.

        Raises:
            InvalidGeneration: none has it.
        """
        return self.loaded(name).weights

    def loaded(self, name: str) -> LoadedAdapter:
        """Return an adapter by its name, with what tells it from others of that name.

        Raises:
            InvalidGeneration: none has it.
        """
        from ort_genai.errors import InvalidGeneration

        found = self._loaded.get(name)
        if found is None:
            raise InvalidGeneration(f"Adapter not found: {name}; loaded: {', '.join(self._loaded) or 'none'}")
        return found
