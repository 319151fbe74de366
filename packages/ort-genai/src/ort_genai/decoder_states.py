"""What a decoder has read, row by row, and caches that stay where they are.

Shared caches are (batch, heads, capacity, size) and are bound as past and as present, so that a step writes one
position of each and copies nothing. The capacity is a power of 2 and doubles when it is used up; what no row will reach
is left out, and a prompt gets its room at once. Rows of a batch may have different lengths: each is filled from its
first position on, as GroupQueryAttention reads them. Where the graph takes nothing of the mask but lengths, the mask is
as long as the caches: all steps have the same shapes then, and one binding serves them until the caches grow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

import ort_core
from ort_genai.errors import GenerationFailed, raised_as
from ort_genai.paging.paged_inputs import WANTED
from ort_genai.prompt_parts import part_length, steps_of
from ort_genai.row_inputs import RowInputs, stacked

if TYPE_CHECKING:
    from ort_genai.decoder import Decoder

Array = np.ndarray
_FIRST = 64  # positions that a new cache has
_STEP = 256  # positions: longest rows of all lengths give few capacities, and so few shapes of a step
_CHUNK = 256  # tokens of a prompt at once


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
        last_logits: what it gave, (rows, n, vocabulary): of a prompt maybe of its last tokens alone.
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
        self._has_all = True  # whether the last logits are those of all tokens
        self._again: Callable[[], Array] | None = None  # computes them where they are not; it does not have the state

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
    def _read_part(self, row: int, tokens: Array, wanted: int) -> Array:
        """Read tokens (n,) into a row in one run and return logits (1, wanted, vocabulary) of the last ones."""

    def read(self, row: int, tokens: Array) -> Array:
        """Read tokens (n,), one at least, into a row, and return float32 logits (vocabulary,) of the last one."""
        self.reserve(row, self.lengths[row] + len(tokens))
        done = 0
        while done < len(tokens):
            count = part_length(len(tokens) - done, _CHUNK)
            self._read_part(row, tokens[done : done + count], self._decoder.rows_of_logits(count))
            done += count
        return self.last_logits[0, -1].astype(np.float32)

    def all_logits(self) -> Array | None:
        """Return the logits of all tokens of the last run; ``None`` where one behind it has failed.

        Of a prompt its last part is read once more, into the same places, unless that gave all; prompts give all from
        then on.
        """
        if not self._has_all and self._again is not None:
            self._decoder.give_all()
            self.last_logits, self._has_all = self._again(), True
            self._again = None
        return self.last_logits if self._has_all else None

    def _fed(self, first: int, tokens: Array) -> Array:
        """Return what the graph reads for tokens (rows, n) of rows from the first one on: them, or their vectors."""
        decoder = self._decoder
        if decoder.table is None:
            return tokens
        rows = zip(tokens, self.inputs[first:], self.lengths[first:], strict=False)
        return np.stack([decoder.table.vectors(row, inputs, before) for row, inputs, before in rows])

    def read_all(self, row: int, tokens: Array) -> Array:
        """Read tokens (n,) into a row in one run, and return float32 logits (n, vocabulary) of all of them."""
        return self._read_part(row, tokens, len(tokens))[0].astype(np.float32)

    def read_each(self, rows: Sequence[int], tokens: Sequence[Array]) -> list[Array]:
        """Read tokens (n,) of its own into each of some rows, and return float32 logits (n, vocabulary) of each."""
        with self.as_one():
            return [self.read_all(row, own) for row, own in zip(rows, tokens, strict=True)]

    @contextmanager
    def as_one(self) -> Iterator[None]:
        """Let no row have read anything where one of several runs fails, or is to end."""
        lengths = list(self.lengths)
        try:
            yield
        except BaseException:
            for row, length in enumerate(lengths):
                self.rewind(row, length)
            raise


@dataclass(frozen=True, slots=True)
class _Bound:
    """A run of some rows that read some tokens each, with the arrays that it is fed from."""

    session: ort_core.InferenceSession
    binding: ort_core.IOBinding
    feeds: dict[str, Array]
    wanted: Array


class SharedState(DecoderState):
    """Caches that are inputs and outputs at once; one run reads a token into all rows."""

    def __init__(self, decoder: Decoder, longest: int | None = None) -> None:
        super().__init__(decoder, longest)
        self._arrays = [np.zeros((0, each.heads, 0, each.size), each.dtype) for each in decoder.caches]
        self._bound: dict[tuple[int, int, int, int], _Bound] = {}

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
            self._again = None
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
        with self.as_one():
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
        end, inputs = max(self.lengths), [self.inputs[row].copy() for row in rows]
        parts = [array[: len(rows), :, :end] for array in self._arrays]
        room = np.empty(max((part.nbytes for part in parts), default=0), np.uint8)
        for array, part in zip(self._arrays, parts, strict=True):  # which allocates nothing: no failure leaves a half
            copied = room[: part.nbytes].view(array.dtype).reshape(part.shape)
            for place, row in enumerate(rows):
                copied[place] = array[row, :, :end]
            part[:] = copied
        self.lengths, self.inputs = [self.lengths[row] for row in rows], inputs

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

    def _read_part(self, row: int, tokens: Array, wanted: int) -> Array:
        return self._run(row, row + 1, tokens[None], wanted)

    def _run(self, first: int, end: int, tokens: Array, wanted: int = 1) -> Array:
        decoder, count = self._decoder, tokens.shape[1]
        before = np.array(self.lengths[first:end], np.int64)
        total = int(before.max()) + count
        self._grow(len(self.lengths), total)
        bound = self._bound_run(first, end, count, wanted)
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
        *others, last = bound.binding.take_outputs()[len(decoder.caches) :]
        logits = last.numpy()
        self.last_outputs = {name: each.numpy() for name, each in zip(decoder.told, others, strict=True)}
        self.lengths[first:end] = [length + count for length in self.lengths[first:end]]
        self.last_feeds, self.last_logits, self._has_all = feeds, logits, wanted == count
        self._again = None if self._has_all else partial(_all_logits, bound, count, self.run_options)
        return logits

    def _bound_run(self, first: int, end: int, count: int, wanted: int) -> _Bound:
        """Return a run of rows; those of one token, and of a whole part of a prompt, are kept."""
        key = (first, end, count, wanted)
        found = self._bound.get(key)
        if found is None:
            found = self._bind(first, end, count, wanted)
            if count in (1, _CHUNK):
                self._bound[key] = found
        return found

    def _bind(self, first: int, end: int, count: int, wanted: int) -> _Bound:
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
        places = np.arange(count - wanted, count)
        if decoder.gathers:
            binding.bind_cpu_input(WANTED, places)
        return _Bound(session, binding, feeds, places)

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
        self._again = None  # it has the arrays
        for place, array in enumerate(self._arrays):  # one after another: the old ones go as the new ones come
            made = np.zeros((deep, array.shape[1], wide, array.shape[3]), array.dtype)
            made[:had_rows, :, :had] = array
            self._arrays[place] = made


def _all_logits(bound: _Bound, count: int, options: ort_core.RunOptions | None) -> Array:
    """Return logits of all tokens of the last run, which writes to the caches what they have already."""
    bound.binding.bind_cpu_input(WANTED, np.arange(count))
    with raised_as(GenerationFailed):
        bound.session.run_with_iobinding(bound.binding, going_on(options))
    logits = bound.binding.take_outputs()[-1].numpy()
    bound.binding.bind_cpu_input(WANTED, bound.wanted)
    return logits


def going_on(options: ort_core.RunOptions | None) -> ort_core.RunOptions | None:
    """Return the options of a run that was made, for one more like it, also where runs are to end by now."""
    if options is None:
        return None
    found = options.copy()
    found.terminate = False
    return found


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
