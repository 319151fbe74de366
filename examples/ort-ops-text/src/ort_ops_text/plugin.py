"""The plugin: named by the package's entry point; imports nothing heavy before a hook is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ort_core.plugin import hookimpl

if TYPE_CHECKING:
    from ort_core import OpLibrary

ORT_PLUGIN_API = (2, 0)


@hookimpl
def ort_custom_ops() -> list[OpLibrary]:
    """Return the package's operators."""
    from ort_ops_text.operators import LIBRARY

    return [LIBRARY]
