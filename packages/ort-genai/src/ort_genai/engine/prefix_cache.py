"""What was read before: caches of prompts, so that a prompt with the same beginning is read from there on.

They are copies of arrays, or blocks that are held: one that several prompts share counts once.

A prompt gets the numbers that it gets without: what is kept was read in parts of many rows, and so is what is left
behind it (``prompt_parts``). Texts that were generated are not kept, as their tokens were read one by one.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from ort_genai.prompt_parts import FEW_ROWS, reusable_length


class KeptCaches(Protocol):
    """What a row has read, outside any state."""

    @property
    def length(self) -> int:
        """Tokens."""

    @property
    def nbytes(self) -> int:
        """Bytes that they take."""

    @property
    def pieces(self) -> dict[Hashable, int]:
        """Bytes of the pieces that they are of: the same one may be in caches of several rows."""

    def shortened(self, length: int) -> Self:
        """Return what the first tokens gave, for as long as this is kept."""

    def release(self) -> None:
        """Let go of them."""


_Caches = TypeVar("_Caches", bound=KeptCaches)


@dataclass(frozen=True, slots=True)
class _Entry(Generic[_Caches]):
    adapter: str
    tokens: tuple[int, ...]
    caches: _Caches


class PrefixCache(Generic[_Caches]):
    """Caches of the prompts that were used last, up to a number of bytes.

    One thread uses it: the engine's.

    Args:
        limit: bytes; 0: nothing is kept.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self.nbytes = limit, 0
        self._pieces: Counter[Hashable] = Counter()  # in how many entries each is
        self._entries: OrderedDict[tuple[str, tuple[int, ...]], _Entry[_Caches]] = OrderedDict()

    def find(self, tokens: list[int], adapter: str = "") -> _Caches | None:
        """Return caches of the longest beginning of a prompt, as far as more than few tokens are left.

        Args:
            tokens: of the prompt.
            adapter: that it is read with: caches of another one are of other weights.
        """
        best, length, most = None, 0, reusable_length(len(tokens))
        for entry in self._entries.values():
            if entry.adapter != adapter:
                continue
            same = min(_common(entry.tokens, tokens), most, entry.caches.length)
            if same > length:
                best, length = entry, same
        if best is None:
            return None
        self._entries.move_to_end((best.adapter, best.tokens))
        return best.caches.shortened(length)

    def keep(self, tokens: list[int], caches: _Caches, adapter: str = "") -> None:
        """Keep caches of a prompt, if it is of many tokens; those of its beginnings are not needed any more.

        Caches that are not kept, now or later, are released.
        """
        if caches.nbytes > self._limit or caches.length <= FEW_ROWS:
            caches.release()
            return
        key = tuple(tokens[: caches.length])
        for old in [each for each in self._entries if each == (adapter, key[: len(each[1])])]:
            self._let_go(self._entries.pop(old))
        self._entries[adapter, key] = _Entry(adapter, key, caches)
        pieces = caches.pieces
        self.nbytes += sum(nbytes for piece, nbytes in pieces.items() if not self._pieces[piece])
        self._pieces.update(pieces.keys())
        while self.nbytes > self._limit:
            self.drop_oldest()

    def drop_oldest(self) -> bool:
        """Let go of what was used least lately; return whether there was anything."""
        if not self._entries:
            return False
        self._let_go(self._entries.popitem(last=False)[1])
        return True

    def _let_go(self, entry: _Entry[_Caches]) -> None:
        pieces = entry.caches.pieces
        self._pieces.subtract(pieces.keys())
        self.nbytes -= sum(nbytes for piece, nbytes in pieces.items() if not self._pieces[piece])
        self._pieces = +self._pieces
        entry.caches.release()


def _common(first: tuple[int, ...], second: list[int]) -> int:
    for place, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return place
    return min(len(first), len(second))
