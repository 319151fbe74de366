"""Compilation: from a partition to an opened package, through a folder of packages where the user named one."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from ort_core.plugin import CompileRequest, EPFail, Rejection
from ort_core.plugin.cache import seal, unseal
from ort_ep_coreml import _sdk
from ort_ep_coreml.capability import program_of
from ort_ep_coreml.mil import MilProgram
from ort_ep_coreml.options import CoreMlOptions
from ort_ep_coreml.package import MARK, SUFFIX, content_key, packed, unpack, write_package
from ort_ep_coreml.partition import CoreMlPartition, Predictor

Open = Callable[[Path, MilProgram], Predictor]
"""Opens a package to run it."""


def compile_partition(request: CompileRequest, options: CoreMlOptions, key: str, opening: Open) -> CoreMlPartition:
    """Compile a partition.

    Raises:
        EPFail: coremltools or Core ML refused it; its words are in the message.
    """
    try:
        program = program_of(request, options)
    except ValueError as error:
        raise EPFail(f"partition {request.name!r} is not lowered: {error}") from error
    digest = content_key(program, key)
    if options.ModelCacheDirectory:
        folder, path = None, Path(options.ModelCacheDirectory) / f"{digest}{SUFFIX}"
    else:
        folder = Path(tempfile.mkdtemp(prefix="ort-coreml-"))
        path = folder / f"partition{SUFFIX}"
    try:
        if not path.exists():
            write_package(program, options, path)
        return _partition(request, options, program, path, digest, opening, folder)
    except _sdk.SdkError as error:
        if folder is not None:
            shutil.rmtree(folder)
        raise EPFail(f"partition {request.name!r} could not be built for Core ML: {error}") from error


def load_partition(
    blob: bytes, request: CompileRequest, options: CoreMlOptions, key: str, opening: Open
) -> CoreMlPartition | Rejection:
    """Restore a partition from what it stored, or say why these bytes are not it."""
    try:
        program = program_of(request, options)
    except ValueError as error:
        return Rejection(str(error))
    digest, stored = content_key(program, key), unseal(MARK, blob)
    if isinstance(stored, Rejection):
        return stored
    if stored.head != digest:
        return Rejection("the stored package was built of another graph, or with other options or versions")
    folder = Path(tempfile.mkdtemp(prefix="ort-coreml-"))
    path = folder / f"partition{SUFFIX}"
    try:
        unpack(bytes(stored.content), path)
        return _partition(request, options, program, path, digest, opening, folder)
    except (_sdk.SdkError, ValueError) as error:
        shutil.rmtree(folder)
        return Rejection(f"the stored package is not opened: {error}")


def _partition(
    request: CompileRequest,
    options: CoreMlOptions,
    program: MilProgram,
    path: Path,
    digest: str,
    opening: Open,
    folder: Path | None,
) -> CoreMlPartition:
    def stored() -> bytes | Rejection:
        return seal(MARK, digest, [packed(path)])

    return CoreMlPartition(request, program, opening(path, program), options.sizes(), stored, folder)
