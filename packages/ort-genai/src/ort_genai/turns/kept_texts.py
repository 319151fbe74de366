"""What requests keep between their turns while blocks are few: who was used least lately lets go first.

A request that lets go reads again what it had read, as a part of its next prompt.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict, deque

from ort_genai.engine.prefix_cache import PrefixCache
from ort_genai.turns.turn import KeptRow, SequenceState


class KeptTexts:
    """Sequences that keep caches while they do not run.

    Args:
        forgotten: caches of sequences that are gone.
        prefixes: beginnings that are kept; they go before sequences do.
    """

    def __init__(self, forgotten: deque[KeptRow], prefixes: PrefixCache[KeptRow]) -> None:
        self._forgotten, self._prefixes = forgotten, prefixes
        self._sequences: OrderedDict[int, weakref.ref[SequenceState]] = OrderedDict()

    def add(self, sequence: SequenceState) -> None:
        """Note that a sequence keeps what it has read, from now on."""
        key, sequences = id(sequence), self._sequences
        sequences.pop(key, None)
        sequences[key] = weakref.ref(sequence, lambda _: sequences.pop(key, None))

    def release_forgotten(self) -> bool:
        """Let go of the caches of sequences that are gone; return whether there were any."""
        was = bool(self._forgotten)
        while self._forgotten:
            self._forgotten.popleft().release()
        return was

    def drop_one(self) -> bool:
        """Let go of what is needed least; return whether there was anything."""
        if self.release_forgotten() or self._prefixes.drop_oldest():
            return True
        while self._sequences:
            sequence = self._sequences.popitem(last=False)[1]()
            if sequence is not None and sequence.caches is not None:
                sequence.keep(None)
                return True
        return False
