"""Packages: where an ``.mlpackage`` of a program lies, written once, and its form as bytes."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from ort_core.plugin import CompiledPartition, EPFail
from ort_core.plugin.cache import Unsealed, unseal
from ort_ep_coreml import _sdk
from ort_ep_coreml.mil import MilProgram, Operand
from ort_ep_coreml.options import CoreMlOptions

MARK = b"ort-ep-coreml\x01"  # of a stored package; its text is the content key
SUFFIX = ".mlpackage"
_TIMELESS = (1980, 1, 1, 0, 0, 0)  # the first date that the format knows: equal packages give equal bytes


def content_key(program: MilProgram, facts: str) -> str:
    """Return a digest of everything that a package depends on: operations, all weights, and other facts.

    Args:
        program: the program.
        facts: versions and options.
    """
    hasher = hashlib.sha256(f"{facts}\n{program.text()}".encode())
    for operation in program.operations:
        for operand in operation.inputs.values():
            _digest(hasher, operand)
    return hasher.hexdigest()


def _digest(hasher: hashlib._Hash, operand: Operand) -> None:
    if isinstance(operand, tuple):
        for each in operand:
            _digest(hasher, each)
    elif isinstance(operand, np.ndarray):
        hasher.update(np.ascontiguousarray(operand).reshape(-1).view(np.uint8).data)


def settings_of(options: CoreMlOptions) -> _sdk.BuildSettings:
    """Return how packages are built with some options."""
    return _sdk.BuildSettings(options.DeploymentTarget, options.Precision, options.sizes())


def write_package(program: MilProgram, options: CoreMlOptions, path: Path) -> None:
    """Write a package, whole or not at all; one that lies there is replaced.

    Raises:
        SdkError: coremltools does not take the program.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".ort-") as folder:
        draft = Path(folder) / f"draft{SUFFIX}"
        _sdk.save_package(program, settings_of(options), draft)
        if path.exists():
            shutil.rmtree(path)
        os.replace(draft, path)


def packed(path: Path) -> bytes:
    """Return a package as the bytes of an uncompressed archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for each in sorted(path.rglob("*")):  # folders too: a program without weights has an empty one
            name = each.relative_to(path).as_posix()
            if each.is_dir():
                archive.writestr(zipfile.ZipInfo(f"{name}/", _TIMELESS), b"")
            else:
                archive.writestr(zipfile.ZipInfo(name, _TIMELESS), each.read_bytes())
    return buffer.getvalue()


def copy_stored(partition: CompiledPartition, path: Path) -> None:
    """Write the package of a compiled partition to a path where nothing is.

    Raises:
        EPFail: something is there: another part of the same model.
    """
    if path.exists():
        raise EPFail("the model falls into several parts: one package holds only what one program can compute")
    stored = partition.serialize()
    assert isinstance(stored, bytes), "partitions of this package are stored"
    opened = unseal(MARK, stored)
    assert isinstance(opened, Unsealed), opened
    unpack(bytes(opened.content), path)


def unpack(content: bytes, path: Path) -> None:
    """Write what ``packed`` returned.

    Raises:
        ValueError: the bytes are no such archive.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            archive.extractall(path)
    except (zipfile.BadZipFile, OSError) as error:
        raise ValueError(f"the stored package cannot be read: {error}") from error
