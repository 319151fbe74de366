"""A console on which texts of models and files are texts: a terminal obeys none of their control characters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from ort_core.cli.control_characters import shown


class PlainConsole(Console):
    """Shows control characters by their numbers; those that rich itself writes, for colors, it writes as they are."""

    def render_str(self, text: str, **styles: Any) -> Text:  # Any: as rich has them
        """Return a text as it is measured and printed."""
        return super().render_str(shown(text), **styles)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Return the pieces of what is printed."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(shown(segment.text), segment.style)
