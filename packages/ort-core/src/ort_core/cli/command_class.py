"""The class of our commands: an empty argument is refused before anything is done.

A shell passes ``"$MODEL"`` as an empty text where the variable is not set, and an empty path would mean the current
folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import typer
from typer.core import TyperCommand


class OrtCommand(TyperCommand):
    """A command whose arguments all say something."""

    def parse_args(
        self, ctx: Any, args: list[str]
    ) -> list[str]:  # Any: typer's Context, in different modules by version
        """Return what typer's command returns.

        Raises:
            BadParameter: an argument, or the value of an option, is empty.
        """
        empty = find_empty(args)
        if empty is not None:
            raise typer.BadParameter(
                f"{empty} is empty; give a value, or leave it out (a variable of the shell that is not set is empty)"
            )
        return super().parse_args(ctx, args)


def find_empty(args: Sequence[str]) -> str | None:
    """Return what is empty among the words of a command: an option by its name, or ``an argument``; else ``None``."""
    for before, word in pairwise(["", *args]):
        if word == "":
            return before if before.startswith("-") else "an argument"
        if word.startswith("--") and word.endswith("=") and word.count("=") == 1:
            return word[:-1]
    return None
