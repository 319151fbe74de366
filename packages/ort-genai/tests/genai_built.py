"""Tiny models, built once in a test run."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path

from genai_tiny_models import write_checkpoint

from ort_genai.builder.build import BuildOptions, build
from ort_genai.builder.precision_names import Precision

_FOLDER = tempfile.TemporaryDirectory(prefix="ort-genai-tests-", ignore_cleanup_errors=True)


def built(family: str = "llama", precision: Precision = Precision.FP32, **options: object) -> Path:
    """Return the folder of a built model."""
    root = Path(_FOLDER.name)
    name = "-".join([family, precision, *(f"{key}={value}" for key, value in options.items())])
    if not (root / name).is_dir():
        source = write_checkpoint(root / f"{family}-source", family)
        build(source, root / name, BuildOptions(precision=precision, **options))
    return root / name


@functools.cache
def built_wide() -> Path:
    """Return the folder of `llama` with a context of 4,096 tokens."""
    root = Path(_FOLDER.name)
    source = write_checkpoint(root / "wide-source", "llama")
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    (source / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 4096}), encoding="utf-8")
    build(source, root / "wide", BuildOptions(precision=Precision.FP32))
    return root / "wide"
