"""Weights of a Hugging Face folder: ``config.json`` and one or more ``.safetensors`` files."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from ort_genai.errors import InvalidModelFolder
from ort_genai.json_files import read_json

TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt",
    "chat_template.jinja", "tokenizer.model",
)  # fmt: skip
_FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)  # OCP's E2M1
_FLOATS = ("F64", "F32", "F16", "BF16")


class SafetensorsSource:
    """A folder with ``config.json`` and weights.

    Raises:
        InvalidModelFolder: a file is missing or cannot be read.
    """

    norms_hold_offset = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.config: Mapping[str, object] = _with_generation(folder)
        self._home = _homes(folder)

    def has(self, name: str) -> bool:
        """Return whether there is a tensor of this name."""
        return name in self._home or f"{name}_blocks" in self._home

    def read(self, name: str) -> np.ndarray:
        """Return a tensor as float32; one of MXFP4 has two in the file, ``_blocks`` and ``_scales``."""
        if name not in self._home and f"{name}_blocks" in self._home:
            blocks, scales = (self._stored(f"{name}_{part}", ("U8",)) for part in ("blocks", "scales"))
            return np.swapaxes(_unpacked_mxfp4(blocks, scales), -1, -2)  # the file has the inputs of products last
        return self._stored(name, _FLOATS).astype(np.float32)

    def _stored(self, name: str, kinds: Sequence[str]) -> np.ndarray:
        if name not in self._home:
            raise InvalidModelFolder(
                f"{str(self._folder)!r} has no tensor {name!r}, which its architecture needs; it has "
                f"{len(self._home)} others"
            )
        file = self._home[name]
        try:
            with safe_open(file, "numpy") as opened:
                kind = opened.get_slice(name).get_dtype()
                if kind not in kinds:
                    raise InvalidModelFolder(
                        f"tensor {name!r} of {file.name} is of type {kind}; expected one of {', '.join(kinds)}: "
                        "build from the model before its quantization"
                    )
                return np.asarray(opened.get_tensor(name))
        except (SafetensorError, OSError) as error:
            raise InvalidModelFolder(f"{str(file)!r} cannot be read as safetensors: {error}") from error

    def write_tokenizer(self, folder: Path) -> None:
        """Copy the files of the tokenizer."""
        if not (self._folder / "tokenizer.json").is_file():
            raise InvalidModelFolder(
                f"{str(self._folder)!r} has no tokenizer.json; transformers writes one: "
                "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
            )
        self.write_others(folder, TOKENIZER_FILES)

    def write_others(self, folder: Path, names: Sequence[str]) -> None:
        """Copy further files, those that there are."""
        for name in names:
            if (self._folder / name).is_file():
                shutil.copyfile(self._folder / name, folder / name)


def _with_generation(folder: Path) -> dict[str, object]:
    """Return ``config.json``, with the tokens that ``generation_config.json`` names in their place."""
    config = read_json(folder / "config.json")
    text = config.get("text_config")
    if isinstance(text, dict):  # a model of images and text: its decoder is what is built
        config = {**config, **text, "architectures": config.get("architectures")}
    if (folder / "generation_config.json").is_file():
        chosen = read_json(folder / "generation_config.json")
        names = ("bos_token_id", "eos_token_id", "pad_token_id", "do_sample", "temperature", "top_k", "top_p")
        config.update({name: chosen[name] for name in names if chosen.get(name) is not None})
    return config


def _homes(folder: Path) -> dict[str, Path]:
    """Return the file of each tensor."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise InvalidModelFolder(f"{str(folder)!r} has no .safetensors file")
    homes: dict[str, Path] = {}
    for file in files:
        try:
            with safe_open(file, "numpy") as opened:
                homes.update(dict.fromkeys(opened.keys(), file))
        except (SafetensorError, OSError) as error:
            raise InvalidModelFolder(f"{str(file)!r} cannot be read as safetensors: {error}") from error
    return homes


def _unpacked_mxfp4(blocks: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return float32 (…, blocks * 32) of OCP's MXFP4: halves of bytes, the lower first, and a power of 2 for 32.

    Args:
        blocks: uint8 (…, blocks, 16).
        scales: uint8 (…, blocks), exponents plus 127.

    Raises:
        InvalidModelFolder: the shapes do not fit.
    """
    if blocks.shape != (*scales.shape, 16):
        raise InvalidModelFolder(
            f"MXFP4 blocks of shape {blocks.shape} with scales {scales.shape}, expected 16 of each"
        )
    halves = np.stack([_FP4[blocks & 15], _FP4[blocks >> 4]], axis=-1).reshape(*scales.shape, 32)
    found = np.ldexp(halves, scales[..., None].astype(np.int32) - 127)
    return found.reshape(*scales.shape[:-1], -1)
