"""Where weights come from: a folder of safetensors or one GGUF file, behind one small interface.

Names are those of Hugging Face's checkpoints, whatever the file calls them; tensors are read one at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from ort_genai.builder.gguf_source import GgufSource
from ort_genai.builder.safetensors_source import SafetensorsSource
from ort_genai.errors import InvalidModelFolder


class WeightSource(Protocol):
    """A trained model on disk."""

    @property
    def config(self) -> Mapping[str, object]:
        """The contents of ``config.json``, or what stands for it."""

    @property
    def norms_hold_offset(self) -> bool:
        """Whether weights of norms have the architecture's offset added already, as in GGUF files."""

    def has(self, name: str) -> bool:
        """Return whether there is a tensor of this name."""

    def read(self, name: str) -> np.ndarray:
        """Return a tensor as float32, (outputs, inputs) for matrices.

        Raises:
            InvalidModelFolder: there is none, or its bytes are not there.
        """

    def write_tokenizer(self, folder: Path) -> None:
        """Write ``tokenizer.json`` and ``tokenizer_config.json`` into a folder."""

    def write_others(self, folder: Path, names: Sequence[str]) -> None:
        """Write further files into a folder, those that there are."""


def open_source(path: Path) -> WeightSource:
    """Return the weights of a folder of safetensors, or of a GGUF file (a folder with exactly one is taken, too).

    Raises:
        InvalidModelFolder: there is nothing of the two.
    """
    if path.is_file() and path.suffix.lower() == ".gguf":
        return GgufSource(path)
    if (path / "config.json").is_file():
        return SafetensorsSource(path)
    files = sorted(path.glob("*.gguf")) if path.is_dir() else []
    if len(files) == 1:
        return GgufSource(files[0])
    found = f"{len(files)} .gguf files" if files else "neither" if path.is_dir() else "no such folder"
    raise InvalidModelFolder(
        f"{str(path)!r} is not a trained model: expected a .gguf file, or a folder with config.json and .safetensors; "
        f"found {found}"
    )
