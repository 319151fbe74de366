"""What a decoder has read, row by row: caches that stay where they are, or that come back longer each time.

Shared caches are (batch, heads, capacity, size) and are bound as past and as present, so that a step writes one
position of each and copies nothing. The capacity is a power of 2 and doubles when it is used up; what no row will reach
is left out, and a prompt gets its room at once. Rows of a batch may have different lengths: each is filled from its
first position on, as GroupQueryAttention reads them. Where the graph takes nothing of the mask but lengths, the mask is
as long as the caches: all steps have the same shapes then, and one binding serves them until the caches grow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

import ort_core
from ort_genai.errors import GenerationFailed, raised_as
from ort_genai.prompt_parts import part_length, steps_of
from ort_genai.row_inputs import RowInputs, stacked

if TYPE_CHECKING:
    from ort_genai.decoder import Decoder

Array = np.ndarray
_FIRST = 64  # positions that a new cache has
_STEP = 256  # positions: longest rows of all lengths give few capacities, and so few shapes of a step
_CHUNK = 256  # tokens of a prompt at once: logits of all of them come back


@dataclass(frozen=True, slots=True)
class RowCaches:
    """What a row has read, outside any state.

    Attributes:
        length: tokens.
        arrays: (heads, length, size) of each cache; never written to.
    """

    length: int
    arrays: tuple[Array, ...]

    @property
    def nbytes(self) -> int:
        """Bytes that they take."""
        return sum(each.nbytes for each in self.arrays)

    @property
    def pieces(self) -> dict[Hashable, int]:
        """The bytes of what others may have, too: nobody shares arrays."""
        return {id(self): self.nbytes}

    def shortened(self, length: int) -> RowCaches:
        """Return what the first tokens gave."""
        return RowCaches(length, tuple(each[:, :length] for each in self.arrays))

    def cut(self, length: int) -> RowCaches:
        """Let go of what is behind the first tokens, and return the rest."""
        return self.shortened(length)

    def release(self) -> None:
        """Let go of what nobody keeps any more: arrays go by themselves."""


class DecoderState(ABC):
    """What a model has read, row by row; one thread uses it.

    Args:
        decoder: that reads.
        longest: tokens that a row will have; ``None``: the model's context.

    Attributes:
        lengths: tokens that each row has read.
        run_options: of the runs: adapters, or a wish to end.
        last_feeds: what the last run was fed, but for caches.
        last_logits: what it gave.
        last_outputs: what else it gave, by name: the outputs that the decoder tells.
        inputs: of each row, beside its tokens.
    """

    def __init__(self, decoder: Decoder, longest: int | None = None) -> None:
        self._decoder = decoder
        self._longest = decoder.context_length if longest is None else longest
        self.lengths: list[int] = []
        self.run_options = None if decoder.run_options is None else decoder.new_run_options()
        self.last_feeds: dict[str, Array] = {}
        self.last_logits: Array = np.zeros((0, 0, decoder.vocab_size), np.float32)
        self.last_outputs: dict[str, Array] = {}
        self.inputs: list[RowInputs] = []

    @abstractmethod
    def add_row(self) -> int:
        """Add a row that has read nothing, and return its place."""

    @abstractmethod
    def drop_row(self, row: int) -> None:
        """Take a row out; the last one stands in its place."""

    @abstractmethod
    def step(self, tokens: Array) -> Array:
        """Read one token into each row, tokens (rows,), and return float32 logits (rows, vocabulary)."""

    @abstractmethod
    def rewind(self, row: int, length: int) -> None:
        """Forget what a row has read behind a length."""

    @abstractmethod
    def reorder(self, rows: Array) -> None:
        """Let each row go on from what another one has read, (rows,)."""

    @abstractmethod
    def cache(self, name: str) -> Array | None:
        """Return a cache by its name among the inputs or outputs."""

    @abstractmethod
    def export_row(self, row: int) -> RowCaches:
        """Return a copy of what a row has read."""

    @abstractmethod
    def import_row(self, caches: RowCaches) -> int:
        """Add a row that has read what another one had, and return its place."""

    @abstractmethod
    def nbytes_for(self, rows: int, positions: int) -> int:
        """Return the bytes that caches would take with so many rows, the longest of so many positions."""

    @abstractmethod
    def reserve(self, row: int, positions: int) -> None:
        """Make room for so many positions of a row, where runs do not make it."""

    @abstractmethod
    def _read_part(self, row: int, tokens: Array) -> Array:
        """Read tokens (n,) into a row in one run and return logits (1, n, vocabulary)."""

    def read(self, row: int, tokens: Array) -> Array:
        """Read tokens (n,), one at least, into a row, and return float32 logits (vocabulary,) of the last one."""
        self.reserve(row, self.lengths[row] + len(tokens))
        done = 0
        while done < len(tokens):
            count = part_length(len(tokens) - done, _CHUNK)
            self._read_part(row, tokens[done : done + count])
            done += count
        return self.last_logits[0, -1].astype(np.float32)

    def _fed(self, first: int, tokens: Array) -> Array:
        """Return what the graph reads for tokens (rows, n) of rows from the first one on: them, or their vectors."""
        decoder = self._decoder
        if decoder.table is None:
            return tokens
        rows = zip(tokens, self.inputs[first:], self.lengths[first:], strict=False)
        return np.stack([decoder.table.vectors(row, inputs, before) for row, inputs, before in rows])

    def read_all(self, row: int, tokens: Array) -> Array:
        """Read tokens (n,) into a row in one run, and return float32 logits (n, vocabulary) of all of them."""
        return self._read_part(row, tokens)[0].astype(np.float32)

    def read_each(self, rows: Sequence[int], tokens: Sequence[Array]) -> list[Array]:
        """Read tokens (n,) of its own into each of some rows, and return float32 logits (n, vocabulary) of each."""
        return [self.read_all(row, own) for row, own in zip(rows, tokens, strict=True)]


@dataclass(frozen=True, slots=True)
class _Bound:
    """A run of some rows that read some tokens each, with the arrays that it is fed from."""

    session: ort_core.InferenceSession
    binding: ort_core.IOBinding
    feeds: dict[str, Array]


class SharedState(DecoderState):
    """Caches that are inputs and outputs at once; one run reads a token into all rows."""

    def __init__(self, decoder: Decoder, longest: int | None = None) -> None:
        super().__init__(decoder, longest)
        self._arrays = [np.zeros((0, each.heads, 0, each.size), each.dtype) for each in decoder.caches]
        self._bound: dict[tuple[int, int, int], _Bound] = {}

    def add_row(self) -> int:
        """Add a row that has read nothing, and return its place."""
        self.lengths.append(0)
        self.inputs.append(RowInputs())
        self._grow(len(self.lengths), 0)
        return len(self.lengths) - 1

    def drop_row(self, row: int) -> None:
        """Take a row out; the last one stands in its place. The last row's memory is given back with it."""
        last = len(self.lengths) - 1
        if row != last:
            end = self.lengths[last]
            for array in self._arrays:
                array[row, :, :end] = array[last, :, :end]
            self.lengths[row], self.inputs[row] = end, self.inputs[last]
        self.lengths.pop()
        self.inputs.pop()
        if not self.lengths:
            self._bound.clear()
            self._arrays = [np.zeros((0, each.heads, 0, each.size), each.dtype) for each in self._decoder.caches]

    def export_row(self, row: int) -> RowCaches:
        """Return a copy of what a row has read."""
        length = self.lengths[row]
        return RowCaches(length, tuple(array[row, :, :length].copy() for array in self._arrays))

    def import_row(self, caches: RowCaches) -> int:
        """Add a row that has read what another one had, and return its place."""
        row = self.add_row()
        self._grow(len(self.lengths), caches.length)
        for array, given in zip(self._arrays, caches.arrays, strict=True):
            array[row, :, : caches.length] = given
        self.lengths[row] = caches.length
        return row

    def step(self, tokens: Array) -> Array:
        """Read one token into each row, in one run, or in several where more rows would be computed otherwise."""
        rows, most = len(self.lengths), self._decoder.rows_of_step
        if most is None or rows <= most:
            return self._run(0, rows, tokens[:, None])[:, -1].astype(np.float32, copy=False)
        self._grow(rows, max(self.lengths) + 1)  # at once: what grows between two runs ends their bindings
        parts = []
        for first, end in steps_of(rows, most):
            logits = self._run(first, end, tokens[first:end, None]).copy()
            fed = {name: value.copy() for name, value in self.last_feeds.items()}
            parts.append((logits, fed, {name: value.copy() for name, value in self.last_outputs.items()}))
        self.last_logits = np.concatenate([logits for logits, _, _ in parts])
        self.last_feeds = _joined([fed for _, fed, _ in parts])
        self.last_outputs = _joined([told for _, _, told in parts])
        return self.last_logits[:, -1].astype(np.float32)

    def rewind(self, row: int, length: int) -> None:
        """Forget what a row has read behind a length."""
        self.lengths[row] = min(length, self.lengths[row])
        self.inputs[row].rewind(length)

    def reorder(self, rows: Array) -> None:
        """Let each row go on from what another one has read."""
        if (rows == np.arange(len(self.lengths))).all():
            return
        end = max(self.lengths)
        for array in self._arrays:
            array[: len(rows), :, :end] = array[rows, :, :end]
        self.lengths = [self.lengths[row] for row in rows]
        self.inputs = [self.inputs[row].copy() for row in rows]

    def cache(self, name: str) -> Array | None:
        """Return a cache, with its capacity."""
        for names, array in zip(self._decoder.caches, self._arrays, strict=True):
            if name in (names.past, names.present):
                return array[: len(self.lengths)]
        return None

    def nbytes_for(self, rows: int, positions: int) -> int:
        """Return the bytes of caches that hold so many rows, each as long as the longest."""
        deep, wide = self._sizes_for(rows, positions)
        return deep * self._decoder.cache_bytes(wide)

    def _read_part(self, row: int, tokens: Array) -> Array:
        return self._run(row, row + 1, tokens[None])

    def _run(self, first: int, end: int, tokens: Array) -> Array:
        decoder, count = self._decoder, tokens.shape[1]
        before = np.array(self.lengths[first:end], np.int64)
        total = int(before.max()) + count
        self._grow(len(self.lengths), total)
        bound = self._bound_run(first, end, count)
        feeds = bound.feeds
        feeds[decoder.tokens][:] = self._fed(first, tokens)
        for name, value in stacked(self.inputs[first:end]).items():
            bound.binding.bind_cpu_input(name, value)
        if decoder.positions is not None:
            np.add(before[:, None], np.arange(count), out=feeds[decoder.positions])
        ends = (before + count)[:, None]
        if decoder.mask is not None and decoder.takes_long_masks:
            mask = feeds[decoder.mask]
            mask[:] = np.arange(mask.shape[1]) < ends
        elif decoder.mask is not None:
            feeds[decoder.mask] = (np.arange(total) < ends).astype(np.int64)
            bound.binding.bind_cpu_input(decoder.mask, feeds[decoder.mask])
        with raised_as(GenerationFailed):
            bound.session.run_with_iobinding(bound.binding, self.run_options)
        *others, last = bound.binding.get_outputs()[len(decoder.caches) :]
        logits = last.numpy()
        self.last_outputs = {name: each.numpy() for name, each in zip(decoder.told, others, strict=True)}
        self.lengths[first:end] = [length + count for length in self.lengths[first:end]]
        self.last_feeds, self.last_logits = feeds, logits
        return logits

    def _bound_run(self, first: int, end: int, count: int) -> _Bound:
        """Return a run of rows; those of one token, and of a whole part of a prompt, are kept."""
        key = (first, end, count)
        found = self._bound.get(key)
        if found is None:
            found = self._bind(first, end, count)
            if count in (1, _CHUNK):
                self._bound[key] = found
        return found

    def _bind(self, first: int, end: int, count: int) -> _Bound:
        decoder = self._decoder
        session = decoder.session
        binding = session.io_binding()
        for names, array in zip(decoder.caches, self._arrays, strict=True):
            value = ort_core.OrtValue.ortvalue_from_numpy(array[first:end])
            binding.bind_ortvalue_input(names.past, value)
            binding.bind_ortvalue_output(names.present, value)
        for name in (*decoder.told, decoder.logits):
            binding.bind_output(name)
        feeds = {decoder.tokens: decoder.token_feed(end - first, count)}
        if decoder.positions is not None:
            feeds[decoder.positions] = np.zeros((end - first, count), np.int64)
        if decoder.mask is not None and decoder.takes_long_masks:
            feeds[decoder.mask] = np.zeros((end - first, self._capacity()), np.int64)
        for name, fed in feeds.items():
            binding.bind_cpu_input(name, fed)
        return _Bound(session, binding, feeds)

    def _capacity(self) -> int:
        return int(self._arrays[0].shape[2]) if self._arrays else 0

    def reserve(self, row: int, positions: int) -> None:
        """Make room for so many positions of a row, and for a token behind them."""
        self._grow(len(self.lengths), min(positions + 1, max(self._longest, positions)))

    def _sizes_for(self, rows: int, positions: int) -> tuple[int, int]:
        """Return rows and positions of caches that hold so many: powers of 2, or what holds the longest row."""
        longest = min(-(-self._longest // _STEP) * _STEP, self._decoder.context_length)
        return _power(rows), min(_power(max(positions, _FIRST)), max(longest, positions))

    def _grow(self, rows: int, positions: int) -> None:
        """Make room for rows and positions."""
        if not self._arrays:
            return
        had_rows, _, had, _ = self._arrays[0].shape
        if rows <= had_rows and positions <= had:
            return
        deep, wide = self._sizes_for(rows, max(positions, had))
        deep = max(deep, had_rows)
        self._bound.clear()
        for place, array in enumerate(self._arrays):  # one after another: the old ones go as the new ones come
            made = np.zeros((deep, array.shape[1], wide, array.shape[3]), array.dtype)
            made[:had_rows, :, :had] = array
            self._arrays[place] = made


class AppendedState(DecoderState):
    """Caches that come back longer than they went in: one run a row."""

    def __init__(self, decoder: Decoder, longest: int | None = None) -> None:
        super().__init__(decoder, longest)
        self._rows: list[list[Array]] = []

    def add_row(self) -> int:
        """Add a row that has read nothing, and return its place."""
        self.lengths.append(0)
        self.inputs.append(RowInputs())
        self._rows.append([np.zeros((1, each.heads, 0, each.size), each.dtype) for each in self._decoder.caches])
        return len(self.lengths) - 1

    def drop_row(self, row: int) -> None:
        """Take a row out; the last one stands in its place."""
        self.lengths[row], self._rows[row], self.inputs[row] = self.lengths[-1], self._rows[-1], self.inputs[-1]
        self.lengths.pop()
        self.inputs.pop()
        self._rows.pop()

    def export_row(self, row: int) -> RowCaches:
        """Return a copy of what a row has read."""
        return RowCaches(self.lengths[row], tuple(each[0].copy() for each in self._rows[row]))

    def import_row(self, caches: RowCaches) -> int:
        """Add a row that has read what another one had, and return its place."""
        row = self.add_row()
        self._rows[row] = [np.ascontiguousarray(each[None]) for each in caches.arrays]
        self.lengths[row] = caches.length
        return row

    def step(self, tokens: Array) -> Array:
        """Read one token into each row, one row after another."""
        found = [self._read_part(row, tokens[row : row + 1]) for row in range(len(self.lengths))]
        self.last_logits = np.concatenate(found)
        return self.last_logits[:, -1].astype(np.float32)

    def rewind(self, row: int, length: int) -> None:
        """Forget what a row has read behind a length."""
        self.lengths[row] = min(length, self.lengths[row])
        self.inputs[row].rewind(length)
        self._rows[row] = [np.ascontiguousarray(each[:, :, :length]) for each in self._rows[row]]

    def reorder(self, rows: Array) -> None:
        """Let each row go on from what another one has read."""
        self.lengths = [self.lengths[row] for row in rows]
        self._rows = [self._rows[row] for row in rows]
        self.inputs = [self.inputs[row].copy() for row in rows]

    def cache(self, name: str) -> Array | None:
        """Return the cache of the first row."""
        for place, names in enumerate(self._decoder.caches):
            if name in (names.past, names.present) and self._rows:
                return self._rows[0][place]
        return None

    def nbytes_for(self, rows: int, positions: int) -> int:
        """Return the bytes of caches of so many rows; a step holds one row's twice."""
        return (rows + 1) * self._decoder.cache_bytes(positions)

    def reserve(self, row: int, positions: int) -> None:
        """Do nothing: each run makes the room of what it gives back."""

    def _read_part(self, row: int, tokens: Array) -> Array:
        decoder, before, count = self._decoder, self.lengths[row], len(tokens)
        feeds = {decoder.tokens: decoder.token_feed(1, count)}
        feeds[decoder.tokens][:] = self._fed(row, tokens[None])
        if decoder.mask is not None:
            feeds[decoder.mask] = np.ones((1, before + count), np.int64)
        if decoder.positions is not None:
            feeds[decoder.positions] = np.arange(before, before + count)[None]
        pasts = dict(zip([each.past for each in decoder.caches], self._rows[row], strict=True))
        feeds.update(self.inputs[row].further)
        names = [decoder.logits, *(each.present for each in decoder.caches), *decoder.told]
        with raised_as(GenerationFailed):
            logits, *found = cast(list[Array], decoder.session.run(names, {**feeds, **pasts}, self.run_options))
        presents, others = found[: len(pasts)], found[len(pasts) :]
        self.last_outputs = dict(zip(decoder.told, others, strict=True))
        self._rows[row], self.lengths[row] = presents, before + count
        self.last_feeds, self.last_logits = feeds, logits
        return logits


def _power(count: int) -> int:
    """Return the least power of 2 that is not below a count."""
    return 1 << max(count - 1, 0).bit_length()


def _joined(parts: list[dict[str, Array]]) -> dict[str, Array]:
    """Return the rows of several runs as one has them: masks are as wide as the widest."""
    found = {}
    for name in parts[0]:
        arrays = [part[name] for part in parts]
        wide = max(each.shape[1] for each in arrays)
        found[name] = np.concatenate([
            np.pad(each, [(0, wide - size if axis == 1 else 0) for axis, size in enumerate(each.shape)])
            for each in arrays
        ])  # fmt: skip
    return found
