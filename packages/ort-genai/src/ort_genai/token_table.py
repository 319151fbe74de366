"""The graph that turns tokens into vectors where images stand among them: ``model.embedding`` of a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ort_genai.configuration import Config
from ort_genai.element_types import FLOATS
from ort_genai.errors import GenerationFailed, InvalidModelFolder, raised_as
from ort_genai.row_inputs import RowInputs
from ort_genai.session_options import open_part, run_options

Array = np.ndarray


class TokenTable:
    """Vectors of tokens, with those of images in the place of the tokens that stand for them.

    Args:
        config: of the folder.

    Raises:
        InvalidModelFolder: the graph lacks an input or an output that the configuration names.
    """

    def __init__(self, config: Config) -> None:
        stated = config.part("embedding")
        self._session = open_part(config, "embedding", "embedding.onnx")
        self._run_options = run_options(stated.get("run_options"))
        inputs, outputs = texts_of(stated, "inputs"), texts_of(stated, "outputs")
        known = {each.name: each for each in self._session.get_inputs()}
        self._tokens = _named(inputs.get("input_ids", "input_ids"), known, "embedding")
        self._features = _named(inputs.get("image_features", "image_features"), known, "embedding")
        given = known[self._features]
        self.dtype = np.dtype(FLOATS.get(given.type, np.float32))
        self._axes = len(given.shape)
        width = given.shape[-1]
        self._width = width if isinstance(width, int) else config.size("hidden_size")
        self._result = outputs.get("inputs_embeds", "inputs_embeds")
        token = config.model.get("image_token_id", config.part("vision").get("image_token_id"))
        if not isinstance(token, int) or not 0 <= token < 1 << 31:
            raise InvalidModelFolder(
                f"genai_config.json has model.image_token_id = {token!r}, expected the token that stands for images"
            )
        self.image_token = token

    def vectors(self, tokens: Array, inputs: RowInputs, before: int) -> Array:
        """Return vectors (n, hidden) of tokens (n,) that stand behind ``before`` others in a row.

        Raises:
            InvalidGeneration: more tokens stand for images than there are vectors of them.
        """
        found = inputs.taken(tokens == self.image_token, before)
        features = found.astype(self.dtype) if found.size else np.zeros((0, self._width), self.dtype)
        feeds = {
            self._tokens: np.ascontiguousarray(tokens[None], np.int64),
            self._features: features.reshape((*(1,) * (self._axes - 2), *features.shape)),
        }
        with raised_as(GenerationFailed):
            return np.asarray(self._session.run([self._result], feeds, self._run_options)[0])[0]


def texts_of(stated: Mapping[str, object], side: str) -> dict[str, str]:
    """Return the names that a part states of its ``inputs`` or ``outputs``."""
    found = stated.get(side, {})
    return {key: value for key, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}


def _named(name: str, known: Mapping[str, object] | Sequence[str], part: str) -> str:
    if name not in known:
        raise InvalidModelFolder(f"the graph of the {part} has no input {name!r}; it has {', '.join(known)}")
    return name
