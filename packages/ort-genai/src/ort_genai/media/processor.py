"""From a prompt with images or sounds to inputs of a ``Generator``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ort_genai.errors import InvalidGeneration
from ort_genai.json_files import read_json
from ort_genai.media.audios import Audios
from ort_genai.media.image_pixels import PixelRecipe
from ort_genai.media.image_tiles import TileRecipe
from ort_genai.media.images import Images
from ort_genai.media.log_mel import LogMel
from ort_genai.media.seen_images import ImageRecipe, SeenImage
from ort_genai.tensors import NamedTensors
from ort_genai.text import Tokenizer, TokenizerStream

if TYPE_CHECKING:
    from ort_genai.model import Model
    from ort_genai.part_sessions import AudioEncoder

_MOST_TOKENS = 1 << 16  # that stand for a tile: far above any model that is known


class MultiModalProcessor:
    """Writes the inputs of a model that sees or hears; ``Model.create_multimodal_processor`` makes it.

    Args:
        model: that takes them.

    Raises:
        InvalidGeneration: it takes text alone.
        InvalidModelFolder: the folder does not say how images are seen.
    """

    def __init__(self, model: Model) -> None:
        if model.vision is None and model.encoder is None:
            raise InvalidGeneration(
                f"MultiModalProcessor cannot be created. {model.type} is not a registered multi-modal model type."
            )
        self._model, self._tokenizer = model, Tokenizer(model)
        self._recipe = _recipe_of(model.config.folder) if model.vision is not None else None
        self._mel = _log_mel(model.encoder) if model.encoder is not None else None

    def __call__(
        self, prompt: str | Sequence[str] | None = None, *, images: Images | None = None, audios: Audios | None = None
    ) -> NamedTensors:
        """Return the inputs of prompts, one a row.

        Args:
            prompt: one or several; of a model that hears the tokens that the text begins with, by their names.
            images: in the order in which the prompts name them.
            audios: one of each row.

        Raises:
            InvalidGeneration: images or sounds do not fit the prompts, or the model does not take them.
        """
        prompts = [prompt] if isinstance(prompt, str) else list(prompt or [""])
        if self._mel is not None:
            return self._heard(prompts, images, audios, self._mel)
        if audios is not None:
            raise InvalidGeneration(f"a model of type {self._model.type} does not hear")
        return self._seen(prompts, images)

    @property
    def span_s(self) -> float:
        """Seconds of sound that are heard at once.

        Raises:
            InvalidGeneration: the model does not hear.
        """
        if self._mel is None:
            raise InvalidGeneration(f"a model of type {self._model.type} does not hear")
        return self._mel.length / self._mel.rate

    def pixels_of(self, images: Images) -> np.ndarray:
        """Return pixels (tiles, channels, height, width) as the part that sees reads them.

        Raises:
            InvalidGeneration: the model does not see.
        """
        return np.concatenate([each.pixels for each in self.seen_of(images)])

    def seen_of(self, images: Images) -> list[SeenImage]:
        """Return what is seen of each image.

        Raises:
            InvalidGeneration: the model does not see.
        """
        if self._recipe is None:
            raise InvalidGeneration(f"a model of type {self._model.type} does not see")
        return [self._recipe.seen(each) for each in images.pixels]

    def written(self, seen: SeenImage) -> str:
        """Return what stands in a prompt for an image."""
        return seen.written(self._image_name, self._tokens_of_a_tile)

    def decode(self, tokens: object) -> str:
        """Return the text of tokens."""
        return self._tokenizer.decode(tokens)

    def create_stream(self) -> TokenizerStream:
        """Return a stream of text."""
        return self._tokenizer.create_stream()

    def _heard(self, prompts: list[str], images: Images | None, audios: Audios | None, mel: LogMel) -> NamedTensors:
        if images is not None or audios is None:
            raise InvalidGeneration(f"a model of type {self._model.type} takes audios, and no images")
        if len(prompts) == 1:
            prompts = prompts * len(audios)
        if len(prompts) != len(audios):
            raise InvalidGeneration(f"{len(audios)} audios for {len(prompts)} prompts")
        features = np.stack([mel.features(each.at_rate(mel.rate)) for each in audios.sounds])
        return NamedTensors({"input_ids": self._rows(prompts), "audio_features": features})

    def _seen(self, prompts: list[str], images: Images | None) -> NamedTensors:
        table, vision = self._model.decoder.table, self._model.vision
        if table is None or vision is None:
            raise InvalidGeneration("the folder has a vision part and no embedding part, which it needs")
        name = self._image_name
        count = sum(text.count(name) for text in prompts) if name else 0
        given = 0 if images is None else len(images)
        if count != given:
            raise InvalidGeneration(f"{given} images for {count} times {name!r} in the prompt")
        if images is None:
            return NamedTensors({"input_ids": self._rows(prompts)})
        seen = self.seen_of(images)
        texts = iter(self.written(each) for each in seen)
        written = [re.sub(re.escape(name), lambda _: next(texts), text) for text in prompts]
        found = NamedTensors({"input_ids": self._rows(written)})
        found[vision.pixels] = np.concatenate([each.pixels for each in seen])
        return found

    @property
    def _image_name(self) -> str:
        """The name of the token that stands for an image."""
        table = self._model.decoder.table
        return "" if table is None else self._model.text.library.id_to_token(table.image_token) or ""

    @property
    def _tokens_of_a_tile(self) -> int:
        found = self._model.config.part("vision").get("tokens_per_image")
        if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= _MOST_TOKENS:
            raise InvalidGeneration(
                f"genai_config.json has model.vision.tokens_per_image = {found!r}, expected 1 to {_MOST_TOKENS}"
            )
        return found

    def _rows(self, prompts: list[str]) -> np.ndarray:
        """Return int32 tokens (rows, longest), padded behind."""
        rows = [self._model.text.encode(text, has_special=self._mel is None) for text in prompts]
        longest = max(len(row) for row in rows)
        found = np.full((len(rows), longest), self._model.decoder.pad_token, np.int32)
        for place, row in enumerate(rows):
            found[place, : len(row)] = row
        return found


def _recipe_of(folder: Path) -> ImageRecipe:
    """Return how images are seen: of ``preprocessor_config.json``, or of ``processor_config.json``, its newer place.

    Raises:
        InvalidModelFolder: neither is there, or what it states is none.
    """
    file, newer = folder / "preprocessor_config.json", folder / "processor_config.json"
    stated = read_json(newer).get("image_processor") if newer.is_file() and not file.is_file() else None
    found = stated if isinstance(stated, dict) else read_json(file)
    kind = str(found.get("image_processor_type", ""))
    has_tiles = kind.startswith(("SmolVLM", "Idefics3")) or "max_image_size" in found
    return TileRecipe.of(found) if has_tiles else PixelRecipe.of(found)


def _log_mel(encoder: AudioEncoder) -> LogMel:
    """Return frames of as many bands, and as many of them, as the encoder's input has."""
    (shape,) = [each.shape for each in encoder.session.get_inputs() if each.name == encoder.features]
    bands, frames = (each if isinstance(each, int) else 0 for each in shape[1:3])
    return LogMel(bands or LogMel.bands, frames=frames or LogMel.frames)
