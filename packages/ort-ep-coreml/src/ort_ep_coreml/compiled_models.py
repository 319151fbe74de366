"""What Core ML compiles of a package, kept beside it: later sessions open that, and compile nothing.

Core ML compiles a package whenever it is opened, which takes longer than all else of a session, into a folder that goes
with the model.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

log = logging.getLogger(__name__)


def are_same(left: np.ndarray, given: np.ndarray) -> bool:
    """Return whether two arrays hold the same bytes: NaN is itself, and the two zeros are not one."""
    if left.shape != given.shape:
        return False
    first, second = (
        np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (left.astype(given.dtype), given)
    )
    return bool(np.array_equal(first, second))


def opened(
    models: Any,  # Any: coremltools has no types
    path: Path,
    given: Mapping[str, Any],
    *,
    keeps_compiled: bool,
) -> Any:
    """Return a package opened: what Core ML compiled for an earlier session is taken, where it lies beside it.

    One that another system compiled, which Core ML refuses, is compiled anew.
    """
    compiled = path.with_suffix(".mlmodelc")
    if keeps_compiled and compiled.is_dir():
        try:
            return models.CompiledMLModel(str(compiled), **given)
        except (RuntimeError, ValueError) as error:
            log.info("%s is compiled anew: %s", path.name, error)
            shutil.rmtree(compiled, ignore_errors=True)
    model = models.MLModel(str(path), **given)
    if keeps_compiled and (made := model.get_compiled_model_path()) is not None:
        _put(Path(made), compiled)
    return model


def _put(source: Path, target: Path) -> None:
    """Copy a folder, whole or not at all; another process may have been first, and a full disk costs no session."""
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".ort-") as folder:
            draft = Path(folder) / "draft"
            shutil.copytree(source, draft)
            os.replace(draft, target)
    except OSError as error:
        log.info("what Core ML compiled is not kept: %s", error)
