"""The artefact cache for plugin authors (provisional)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ort_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from ort_core.cache.about import say_that_it_compiles
    from ort_core.cache.digests import digest_of
    from ort_core.cache.key import CacheKey
    from ort_core.cache.sealed_bytes import Unsealed, seal, unseal
    from ort_core.cache.store import ArtefactCache
    from ort_core.cache.versions import package_digest, package_facts

__all__ = [
    "ArtefactCache", "CacheKey", "Unsealed", "digest_of", "package_digest", "package_facts", "say_that_it_compiles",
    "seal", "unseal",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(  # no plugin pays for names that it does not use
    __name__,
    {
        "ort_core.cache.about": ("say_that_it_compiles",),
        "ort_core.cache.digests": ("digest_of",),
        "ort_core.cache.key": ("CacheKey",),
        "ort_core.cache.sealed_bytes": ("Unsealed", "seal", "unseal"),
        "ort_core.cache.store": ("ArtefactCache",),
        "ort_core.cache.versions": ("package_digest", "package_facts"),
    },
)  # fmt: skip
