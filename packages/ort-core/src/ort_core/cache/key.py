"""CacheKey: everything that an artefact depends on, typed; equal keys may share an artefact, no others ever do."""

from __future__ import annotations

from ort_core.cache.digests import digest_of
from ort_core.frozen import frozen


@frozen
class CacheKey:
    """What an artefact depends on.

    Attributes:
        kind: what sort of artefact this is, such as ``optimized-model``; also its folder in the cache.
        structure: digest of the graph: operators, attributes, edges, types.
        weights: digests of all weights whose values are in the artefact or decided something in it.
        facts: name and text of each further dependence: options, provider, SDK, driver and CPU versions.
    """

    kind: str
    structure: bytes
    weights: tuple[bytes, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()

    def digest(self) -> str:
        """Return the name of the artefact: 64 hexadecimal digits."""
        facts = [text.encode() for fact in sorted(self.facts) for text in fact]
        count = len(self.weights).to_bytes(8, "little")
        return digest_of((self.kind.encode(), self.structure, count, *self.weights, *facts)).hex()
