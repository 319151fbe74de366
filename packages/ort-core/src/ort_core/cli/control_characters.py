"""Control characters of texts that commands print."""

from __future__ import annotations

import re

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def shown(text: str) -> str:
    """Return a text with its control characters as their numbers, but for tabs and ends of lines.

    Names in a model are anybody's: a terminal that obeys them changes its title, what was printed, or the clipboard.
    """
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
