"""Files that a configuration names: they lie in the model's folder, wherever a text would lead."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath

from ort_genai.errors import InvalidModelFolder

_LONGEST = 255  # bytes of a name, which all systems take


def path_inside(folder: Path, stated: object, field: str) -> Path:
    """Return the path of a file that a field of ``genai_config.json`` names.

    Links within the folder are followed, as folders of downloads consist of them.

    Args:
        folder: of the model.
        stated: the field's value.
        field: its name, for the refusal.

    Raises:
        InvalidModelFolder: it is no text, or leads out of the folder.
    """
    if not isinstance(stated, str) or not _is_name(stated):
        raise InvalidModelFolder(f"genai_config.json has {field} = {stated!r}, expected the name of a file")
    forms = (PurePosixPath(stated), PureWindowsPath(stated))
    if any(each.is_absolute() or each.anchor or ".." in each.parts for each in forms):
        raise InvalidModelFolder(
            f"genai_config.json has {field} = {stated!r}, which leads out of the model's folder {str(folder)!r}: "
            "name a file in it"
        )
    return folder / stated


def _is_name(stated: str) -> bool:
    """Return whether systems of files take a text as the name of a file."""
    try:
        return 0 < len(stated.encode()) <= _LONGEST and "\x00" not in stated
    except UnicodeEncodeError:  # half a pair of surrogates
        return False


def part_file(folder: Path, stated: Mapping[str, object], part: str, default: str) -> tuple[str, Path]:
    """Return the name and the path of a part's graph.

    Args:
        folder: of the model.
        stated: the part's section.
        part: its name.
        default: name of the file where the section has none.

    Raises:
        InvalidModelFolder: the name leads out of the folder.
    """
    name = stated.get("filename", default)
    path = path_inside(folder, name, f"model.{part}.filename")
    return str(name), path
