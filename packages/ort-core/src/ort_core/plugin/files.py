"""Files for plugin authors (provisional): when one last changed, on Windows too."""

from __future__ import annotations

from ort_core.file_changes import changed_ns

__all__ = ["changed_ns"]
