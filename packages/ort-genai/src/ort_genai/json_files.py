"""Objects of JSON files, read with a sentence for what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

from ort_genai.errors import InvalidModelFolder


def read_json(path: Path) -> dict[str, object]:
    """Return an object of a JSON file.

    Raises:
        InvalidModelFolder: there is no such file, or no object in it.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise InvalidModelFolder(f"{str(path)!r} is not there") from error
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidModelFolder(f"{str(path)!r} cannot be read as JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidModelFolder(f"{str(path)!r} holds {type(found).__name__}, expected an object")
    return found
