"""Reranking by a model that reads a query and a document together, and gives one number for the pair.

The folder is what `ort genai build` writes of such a checkpoint, or what exporters of Hugging Face's models write:
``model.onnx`` (or ``onnx/model.onnx``), ``tokenizer.json`` and ``config.json``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import ort_core
from ort_genai.errors import GenerationFailed, InvalidGeneration, InvalidModelFolder, raised_as
from ort_genai.json_files import read_json
from ort_genai.text import Text

Array = np.ndarray
_PLACES = ("model.onnx", "onnx/model.onnx")
_FED = ("input_ids", "attention_mask", "token_type_ids")
_BATCH = 16  # pairs that are read at once, those of like lengths together
_OFFSET = {"roberta", "xlm-roberta", "camembert"}  # positions begin behind the padding token's
_LONGEST = 512  # of a pair, where the folder says nothing


class CrossEncoder:
    """Orders texts by how well they answer a query; any thread may ask.

    Args:
        folder: of the model.
        providers: to run on; ``None``: as ort-core chooses.

    Raises:
        InvalidModelFolder: a part is missing, or the graph reads something else than tokens of a pair.
    """

    def __init__(self, folder: str | os.PathLike[str], providers: Sequence[str] | None = None) -> None:
        self.folder = Path(folder)
        graph = next((self.folder / place for place in _PLACES if (self.folder / place).is_file()), None)
        if graph is None:
            raise InvalidModelFolder(f"{str(self.folder)!r} has neither {' nor '.join(_PLACES)}")
        self._text = Text(self.folder)
        self._config: Mapping[str, object] = _config_of(self.folder)
        with raised_as(InvalidModelFolder):
            self._session = ort_core.InferenceSession(graph, providers=providers or ["CPUExecutionProvider"])
        self._fed = {each.name: each.type for each in self._session.get_inputs()}
        outputs = [each.name for each in self._session.get_outputs()]
        if "logits" not in outputs or "input_ids" not in self._fed or not set(self._fed) <= set(_FED):
            raise InvalidModelFolder(
                f"{str(graph)!r} reads {', '.join(self._fed)} and gives {', '.join(outputs)}; expected some of "
                f"{', '.join(_FED)}, and logits of a pair of texts"
            )
        self.longest = self._longest()

    def score(self, query: str, texts: Sequence[str]) -> Array:
        """Return float32 numbers (texts,) between 0 and 1: how well each text answers the query.

        Pairs that are too long lose the ends of their texts.

        Raises:
            InvalidGeneration: the query alone is too long.
        """
        pairs = [self._pair(query, text) for text in texts]
        found = np.zeros(len(texts), np.float32)
        order = np.argsort([len(tokens) for tokens, _ in pairs], kind="stable")
        for start in range(0, len(order), _BATCH):
            places = order[start : start + _BATCH]
            found[places] = self._scores([pairs[place] for place in places])
        return found

    def ranked(self, query: str, texts: Sequence[str]) -> list[tuple[int, float]]:
        """Return places of texts and their scores, the best first."""
        scores = self.score(query, texts)
        return [(int(place), float(scores[place])) for place in np.argsort(-scores, kind="stable")]

    def _pair(self, query: str, text: str) -> tuple[list[int], list[int]]:
        """Return the tokens of a pair, and which of the two texts each is of."""
        library = self._text.library
        try:
            whole = library.encode(query, text)
            if len(whole.ids) <= self.longest:
                return whole.ids, whole.type_ids
            bare = library.encode(text, add_special_tokens=False)
        except TypeError as error:
            raise InvalidGeneration("a text has half a pair of surrogates, which is not a character") from error
        kept = len(bare.ids) - (len(whole.ids) - self.longest)
        if kept < 1:
            raise InvalidGeneration(
                f"the query leaves no room for a document: the model reads pairs of {self.longest} tokens"
            )
        shorter = library.encode(query, text[: bare.offsets[kept - 1][1]])
        return shorter.ids[: self.longest], shorter.type_ids[: self.longest]

    def _scores(self, pairs: Sequence[tuple[list[int], list[int]]]) -> Array:
        longest = max(len(tokens) for tokens, _ in pairs)
        rows = {name: np.zeros((len(pairs), longest), np.int64) for name in _FED}
        rows["input_ids"][:] = self._padding
        for place, (tokens, kinds) in enumerate(pairs):
            rows["input_ids"][place, : len(tokens)] = tokens
            rows["attention_mask"][place, : len(tokens)] = 1
            rows["token_type_ids"][place, : len(tokens)] = kinds
        types = {"tensor(int32)": np.int32}
        feeds = {name: rows[name].astype(types.get(kind, np.int64)) for name, kind in self._fed.items()}
        with raised_as(GenerationFailed):
            logits = np.asarray(self._session.run(["logits"], feeds)[0]).astype(np.float32)
        if logits.ndim != 2 or logits.shape[1] not in (1, 2):
            raise InvalidModelFolder(f"the graph gives logits of shape {logits.shape}, expected 1 or 2 for each pair")
        margin = logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]
        return np.array([_logistic(each) for each in margin], np.float32)

    @property
    def _padding(self) -> int:
        found = self._config.get("pad_token_id", 0)
        return found if isinstance(found, int) else 0

    def _longest(self) -> int:
        found = self._config.get("max_position_embeddings", _LONGEST)
        longest = found if isinstance(found, int) and found > 0 else _LONGEST
        return longest - self._padding - 1 if self._config.get("model_type") in _OFFSET else longest


def _config_of(folder: Path) -> Mapping[str, object]:
    file = folder / "config.json"
    return read_json(file) if file.is_file() else {}


def _logistic(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value > -700 else 0.0
