"""What was read before: caches of prompts, so that a prompt with the same beginning is read from there on.

A prompt gets the numbers that it gets without: what is kept was read in parts of many rows, and so is what is left
behind it (``prompt_parts``). Texts that were generated are not kept, as their tokens were read one by one.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from ort_genai.decoder_states import RowCaches
from ort_genai.prompt_parts import FEW_ROWS, reusable_length


@dataclass(frozen=True, slots=True)
class _Entry:
    adapter: str
    tokens: tuple[int, ...]
    caches: RowCaches


class PrefixCache:
    """Caches of the prompts that were used last, up to a number of bytes.

    One thread uses it: the engine's.

    Args:
        limit: bytes; 0: nothing is kept.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self.nbytes = limit, 0
        self._entries: OrderedDict[tuple[str, tuple[int, ...]], _Entry] = OrderedDict()

    def find(self, tokens: list[int], adapter: str = "") -> RowCaches | None:
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

    def keep(self, tokens: list[int], caches: RowCaches, adapter: str = "") -> None:
        """Keep caches of a prompt, if it is of many tokens; those of its beginnings are not needed any more."""
        if caches.nbytes > self._limit or caches.length <= FEW_ROWS:
            return
        key = tuple(tokens[: caches.length])
        for old in [each for each in self._entries if each == (adapter, key[: len(each[1])])]:
            self.nbytes -= self._entries.pop(old).caches.nbytes
        self._entries[adapter, key] = _Entry(adapter, key, caches)
        self.nbytes += caches.nbytes
        while self.nbytes > self._limit:
            self.nbytes -= self._entries.popitem(last=False)[1].caches.nbytes


def _common(first: tuple[int, ...], second: list[int]) -> int:
    for place, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return place
    return min(len(first), len(second))
