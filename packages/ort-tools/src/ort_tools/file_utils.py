"""Files below a folder, and names that end in a suffix: onnxruntime.tools.file_utils' functions."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable


def path_match_suffix_ignore_case(path: pathlib.Path | str, suffix: str) -> bool:
    """Return whether a path ends in a suffix, in any case."""
    return str(path).casefold().endswith(suffix.casefold())


def files_from_file_or_dir(
    file_or_dir_path: pathlib.Path | str, predicate: Callable[[pathlib.Path], bool] = lambda _: True
) -> list[pathlib.Path]:
    """Return the file, or the files below a folder, for which ``predicate`` is true."""
    path = pathlib.Path(file_or_dir_path)
    if not path.is_dir():
        return [path] if predicate(path) else []
    found = (pathlib.Path(root, name) for root, _, names in os.walk(path) for name in names)
    return [each for each in found if predicate(each)]
