"""The artefact cache for plugin authors (provisional)."""

from __future__ import annotations

from ort_core.cache.key import CacheKey
from ort_core.cache.store import ArtefactCache

__all__ = ["ArtefactCache", "CacheKey"]
