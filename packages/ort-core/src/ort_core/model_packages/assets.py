"""Shared assets: folders that a package holds once, named by the digest of what is in them."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from ort_core.errors import InvalidPackage, NoSuchFile

_URI = re.compile(r"sha256:[0-9a-f]{64}")
_CHUNK = 1 << 20  # bytes read at once


def is_asset_uri(text: str) -> bool:
    """Return whether a text is ``sha256:`` and 64 digits."""
    return _URI.fullmatch(text) is not None


def folder_of(uri: str) -> str:
    """Return the name of an asset's folder below ``shared_assets``."""
    return uri.replace(":", "-")


def directory_uri(source: str | os.PathLike) -> str:
    """Return the URI of a folder: the digest of a line ``digest  path`` for each file, in the order of their paths.

    Raises:
        InvalidPackage: there is a link in it.
        NoSuchFile: it is not a folder.
    """
    root = Path(source)
    if not root.is_dir():
        raise NoSuchFile(f"AddSharedAsset: '{source}' is not a directory.")
    files: list[tuple[bytes, Path]] = []
    for folder, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = Path(folder, name)
            if path.is_symlink():
                raise InvalidPackage(f"ComputeDirectoryAssetUri: symlink not allowed: '{path}'.")
        files += [(path.relative_to(root).as_posix().encode(), path) for path in (Path(folder, n) for n in names)]
    whole = hashlib.sha256()
    for name_bytes, path in sorted(files):
        whole.update(_digest(path).encode() + b"  " + name_bytes + b"\n")
    return f"sha256:{whole.hexdigest()}"


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while content := file.read(_CHUNK):
            found.update(content)
    return found.hexdigest()
