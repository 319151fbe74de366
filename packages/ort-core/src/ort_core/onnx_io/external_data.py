"""External data: where a tensor's bytes lie outside the model file, checked before anything is opened.

A location must be a relative path that stays, links resolved, inside the model's folder. A model file that is a link
has two: where the link lies, and where the file lies. Caches link both model and data into a folder of contents named
by their digests. Files are memory-mapped.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ort_core.errors import Fail, InvalidArgument
from ort_core.forks import Lock, new_lock
from ort_core.frozen import frozen
from ort_core.tensors.mapped_files import map_file


@frozen
class ExternalLocation:
    """A byte range of a file: ``length`` bytes from ``offset`` (``None``: to what the tensor needs)."""

    location: str
    offset: int = 0
    length: int | None = None


@dataclass(slots=True)
class ExternalFiles:
    """The files that a model's tensors may lie in: a folder, or contents given in memory by file name.

    Maps each file once; thread-safe. ``folder`` is ``None`` for a model that came as bytes without a folder.
    ``linked_folder`` is where the model's own file lies, if that is reached by a link from ``folder``.
    ``given`` names tensors whose data the caller has: their files need not be there.
    """

    folder: Path | None
    in_memory: Mapping[str, memoryview] = field(default_factory=dict)
    linked_folder: Path | None = None
    given: Collection[str] = ()
    _maps: dict[str, np.ndarray] = field(default_factory=dict)
    _lock: Lock = field(default_factory=new_lock)

    def read(self, tensor_name: str, where: ExternalLocation, nbytes: int) -> np.ndarray:
        """Return ``nbytes`` bytes as a read-only uint8 array, without copying them.

        Raises:
            Fail: the path leaves the folder, the file is missing or too short, or there is no folder.
        """
        content = self._content(tensor_name, where)
        length = nbytes if where.length is None else where.length
        if length != nbytes:
            raise Fail(
                f"External data of initializer {tensor_name!r}: its type and shape take {nbytes} bytes, "
                f"but the model says length {length} in {where.location!r}."
            )
        if where.offset < 0 or where.offset + nbytes > content.size:
            raise Fail(
                f"External initializer: {tensor_name} offset: {where.offset} size to read: {nbytes} given file_length: "
                f"{content.size} are out of bounds or can not be read in full."
            )
        return content[where.offset : where.offset + nbytes]

    def read_whole(self, what: str, location: str) -> memoryview:
        """Return the content of a file, without copying it. Raises as ``read``; ``what`` names its reader."""
        return self._content(what, ExternalLocation(location)).data

    def check(self, tensor_name: str, where: ExternalLocation) -> None:
        """Check the location of a tensor without reading it. Raises as ``read``."""
        if where.location not in self.in_memory and tensor_name not in self.given:
            self._path(tensor_name, where.location)

    def _content(self, tensor_name: str, where: ExternalLocation) -> np.ndarray:
        with self._lock:
            if where.location in self._maps:
                return self._maps[where.location]
            if where.location in self.in_memory:
                content = np.frombuffer(self.in_memory[where.location], np.uint8)
            else:
                path = self._path(tensor_name, where.location)
                content = np.frombuffer(map_file(path), np.uint8)
            self._maps[where.location] = content
            return content

    def _path(self, tensor_name: str, location: str) -> Path:
        prefix = f"External data path validation failed for initializer: {tensor_name}. "
        if self.folder is None:
            raise Fail(
                f"{prefix}External data path {location!r} has no folder to start from: the model came as bytes. Load "
                "it from a path, or give the file's contents with "
                "SessionOptions.add_external_initializers_from_files_in_memory."
            )
        if not location or "\0" in location or os.path.isabs(location) or Path(location).drive:
            raise Fail(f"{prefix}External data path must be relative to the model's folder, found {location!r}.")
        folders = [each.resolve() for each in (self.folder, self.linked_folder) if each is not None]
        try:
            paths = [(folder / location).resolve() for folder in folders]
            files = [path.is_file() for path in paths]
        except (RuntimeError, OSError) as error:  # links that lead to each other; a name that is too long
            raise Fail(f"{prefix}External data path {location!r} leads nowhere: {error}") from error
        for path, is_file in zip(paths, files, strict=True):
            if not any(path.is_relative_to(folder) for folder in folders):
                raise Fail(
                    f"{prefix}External data path escapes model directory. External data path: {location!r} "
                    f"resolved path: {path} allowed directory: {' or '.join(map(str, folders))}"
                )
            if is_file:
                return path
        found = " nor ".join(f'"{path}"' for path in paths)
        raise Fail(f"{prefix}External data path does not exist: {found}")


def parse_location(tensor_name: str, entries: Mapping[str, str]) -> ExternalLocation:
    """Read the key-value entries of a tensor's external data.

    Raises:
        InvalidArgument: the location is missing, or a number is malformed.
    """
    if "location" not in entries:
        raise InvalidArgument(f"initializer {tensor_name!r} lies in external data but names no location")
    return ExternalLocation(
        entries["location"], _number(tensor_name, entries, "offset") or 0,
        _number(tensor_name, entries, "length") or None,  # 0 is as good as none, as onnxruntime reads it
    )  # fmt: skip


def _number(tensor_name: str, entries: Mapping[str, str], key: str) -> int | None:
    text = entries.get(key)
    if text is None or text == "":
        return None
    if not text.isascii() or not text.strip().isdigit():
        raise InvalidArgument(f"initializer {tensor_name!r}: external data {key} must be a number >= 0, found {text!r}")
    return int(text)
