"""The files of one version of a model: what its size counts, and what tells whether it has changed."""

from __future__ import annotations

from pathlib import Path

from ort_core.plugin.files import changed_ns
from ort_serve.repository.model_settings import ModelSettings

Stamp = tuple[str, tuple[tuple[str, int, int, int, int], ...], str]


def files_of(path: Path) -> list[Path]:
    """Return the files of a version's folder; the model's alone where it lies among others."""
    folder = next((folder for folder in path.parents[:2] if folder.name.isdecimal()), None)
    if folder is None:
        return [path]
    return sorted(file for file in folder.rglob("*") if file.is_file())


def stamp_of(path: Path, settings: ModelSettings, *, is_alone: bool) -> Stamp:
    """Return what is another one as soon as a version would be loaded otherwise.

    Weights may lie beside the model, and arrive later. A file that is written over with as many bytes may keep the
    time of its contents (copies that preserve times, builds that set them); the time of its entry, or the entry itself,
    is another one then.

    Args:
        path: the model.
        settings: how it is served.
        is_alone: the files around the model are not its own.

    Raises:
        OSError: a file cannot be looked at, such as one that goes meanwhile.
    """
    files = [path] if is_alone else files_of(path)
    return str(path.resolve()), tuple(_entry(file) for file in files), settings.model_dump_json()


def _entry(file: Path) -> tuple[str, int, int, int, int]:
    found = file.stat()
    return str(file), found.st_mtime_ns, changed_ns(file, found), found.st_size, found.st_ino
