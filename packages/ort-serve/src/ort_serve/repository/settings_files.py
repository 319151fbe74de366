"""Settings of a model from its folder: ``model.toml``, or the common fields of Triton's ``config.pbtxt``."""

from __future__ import annotations

import tomllib
from pathlib import Path

from ort_serve.failures import InvalidRequest
from ort_serve.repository.model_settings import ModelSettings, checked_settings
from ort_serve.repository.triton_config import read_triton_config


def read_model_settings(folder: Path) -> ModelSettings:
    """Return the settings of a model's folder: of ``model.toml``, else of ``config.pbtxt``, else the defaults.

    Raises:
        InvalidRequest: the file cannot be read; the message names it and what to change.
    """
    toml, pbtxt = folder / "model.toml", folder / "config.pbtxt"
    if toml.is_file():
        return _from_toml(toml)
    if pbtxt.is_file():
        return read_triton_config(pbtxt)
    return ModelSettings()


def _from_toml(path: Path) -> ModelSettings:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # of integers with thousands of digits: a plain ValueError
        raise InvalidRequest(f"{path} cannot be read: {error}") from error
    return checked_settings(values, str(path))
