"""The graphs beside the decoder: one that hears, one that sees."""

from __future__ import annotations

import numpy as np

from ort_genai.configuration import Config
from ort_genai.element_types import FLOATS
from ort_genai.errors import GenerationFailed, InvalidGeneration, InvalidModelFolder, raised_as
from ort_genai.session_options import open_part, run_options
from ort_genai.token_table import texts_of

Array = np.ndarray


class AudioEncoder:
    """The encoder of a model that hears: from sounds to what each layer of the decoder looks at.

    Args:
        config: of the folder.

    Raises:
        InvalidModelFolder: the graph lacks what the configuration names.
    """

    def __init__(self, config: Config) -> None:
        stated = config.part("encoder")
        self.session = open_part(config, "encoder", "encoder.onnx")
        self._run_options = run_options(stated.get("run_options"))
        self.features = texts_of(stated, "inputs").get("audio_features", "audio_features")
        outputs, inputs = texts_of(stated, "outputs"), texts_of(config.decoder, "inputs")
        self._names: list[tuple[str, str]] = []
        for place in range(config.size("num_hidden_layers")):
            for part in ("key", "value"):
                name = f"present_{part}_cross_%d"
                given = outputs.get(f"cross_present_{part}_names", name).replace("%d", str(place))
                taken = inputs.get(f"cross_past_{part}_names", f"past_{part}_cross_%d").replace("%d", str(place))
                self._names.append((given, taken))
        known = [each.name for each in self.session.get_outputs()]
        fed = {each.name: each.type for each in self.session.get_inputs()}
        self._type = FLOATS.get(fed.get(self.features, ""), np.float32)
        missing = [given for given, _ in self._names if given not in known]
        if missing or self.features not in fed:
            raise InvalidModelFolder(
                f"the graph of the encoder has no input {self.features!r}, or lacks the outputs "
                f"{', '.join(missing) or 'none'}; it has {', '.join(known[:4])}, …"
            )

    def inputs_of(self, features: Array) -> dict[str, Array]:
        """Return inputs of the decoder by name, each (rows, …), of features (rows, bands, frames).

        Raises:
            InvalidGeneration: the features have another shape.
        """
        if features.ndim != 3:
            raise InvalidGeneration(f"audio_features of shape {features.shape}, expected (rows, bands, frames)")
        with raised_as(GenerationFailed):
            fed: dict[str, Array] = {self.features: features.astype(self._type)}
            found = self.session.run([given for given, _ in self._names], fed, self._run_options)
        return {taken: np.asarray(value) for (_, taken), value in zip(self._names, found, strict=True)}


class VisionEncoder:
    """The graph that sees: from pixels to vectors in the place of tokens.

    Args:
        config: of the folder.

    Raises:
        InvalidModelFolder: the graph lacks what the configuration names.
    """

    def __init__(self, config: Config) -> None:
        stated = config.part("vision")
        self.session = open_part(config, "vision", "vision.onnx")
        self._run_options = run_options(stated.get("run_options"))
        self.pixels = texts_of(stated, "inputs").get("pixel_values", "pixel_values")
        self._result = texts_of(stated, "outputs").get("image_features", "image_features")
        known = {each.name: each for each in self.session.get_inputs()}
        if self.pixels not in known:
            raise InvalidModelFolder(
                f"the graph of the vision part has no input {self.pixels!r}; it has {', '.join(known)}"
            )
        self._type = FLOATS.get(known[self.pixels].type, np.float32)

    def features_of(self, pixels: Array) -> Array:
        """Return vectors (n, hidden) of pixels (images, channels, height, width), image by image."""
        with raised_as(GenerationFailed):
            fed: dict[str, Array] = {self.pixels: pixels.astype(self._type)}
            found = np.asarray(self.session.run([self._result], fed, self._run_options)[0])
        return found.reshape(-1, found.shape[-1])
