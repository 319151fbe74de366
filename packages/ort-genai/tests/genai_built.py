"""Tiny models, built once in a test run."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from genai_tiny_models import write_checkpoint

from ort_genai.builder.build import BuildOptions, build
from ort_genai.builder.precision_names import Precision

_FOLDER = tempfile.TemporaryDirectory(prefix="ort-genai-tests-", ignore_cleanup_errors=True)


@functools.cache
def built(family: str = "llama", precision: Precision = Precision.FP32, **options: object) -> Path:
    """Return the folder of a built model."""
    root = Path(_FOLDER.name)
    name = "-".join([family, precision, *(f"{key}={value}" for key, value in options.items())])
    build(
        write_checkpoint(root / f"{family}-source", family), root / name, BuildOptions(precision=precision, **options)
    )
    return root / name
