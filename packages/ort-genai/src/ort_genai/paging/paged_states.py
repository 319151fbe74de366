"""What a decoder over blocks has read, row by row; rows of any length are read together, as packed sequences.

A run reads any number of tokens into each of some rows, and gives logits of the tokens that are asked for. Whoever
takes a row over, or goes on from a beginning that was kept, shares its whole blocks, and copies the last one's rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

import ort_core
from ort_genai.decoder_states import DecoderState
from ort_genai.errors import GenerationFailed, raised_as
from ort_genai.paging.block_pool import BLOCK_ROWS, BlockPool
from ort_genai.paging.paged_inputs import ENDS, PAST, TABLE, WANTED
from ort_genai.prompt_parts import part_length, runs_of, steps_of
from ort_genai.row_inputs import RowInputs

if TYPE_CHECKING:
    from ort_genai.decoder import Decoder
    from ort_genai.paging.paged_decoder import PagedDecoder

Array = np.ndarray
_CHUNK = 256  # tokens of a prompt at once
_KEPT_RUNS = 64  # bindings
_LEAST_WIDTH = 4  # blocks that a table has columns for: powers of 2, so that few shapes come


def blocks_of(positions: int) -> int:
    """Return how many blocks hold so many positions."""
    return -(-positions // BLOCK_ROWS)


@dataclass(slots=True)
class _Row:
    """Blocks of a row, and from which position on they are its own to write: before it others may read them."""

    blocks: list[int] = field(default_factory=list)
    own_from: int = 0


@dataclass(frozen=True, slots=True)
class PagedCaches:
    """What a row has read, in blocks that are held for whoever keeps this.

    Attributes:
        length: tokens.
        blocks: where they lie.
        pool: of the blocks.
    """

    length: int
    blocks: tuple[int, ...]
    pool: BlockPool

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks."""
        return len(self.blocks) * self.pool.block_nbytes

    @property
    def pieces(self) -> dict[Hashable, int]:
        """The bytes of each block."""
        return dict.fromkeys(self.blocks, self.pool.block_nbytes)

    @property
    def whole_blocks(self) -> tuple[int, ...]:
        """The blocks that are full, and can be shared."""
        return self.blocks[: self.length // BLOCK_ROWS]

    def shortened(self, length: int) -> PagedCaches:
        """Return what the first tokens gave; it holds nothing by itself."""
        return PagedCaches(length, self.blocks[: blocks_of(length)], self.pool)

    def cut(self, length: int) -> PagedCaches:
        """Let go of the blocks behind the first tokens, and return what holds the rest."""
        kept = self.shortened(length)
        self.pool.release(self.blocks[len(kept.blocks) :], is_kept=True)
        return kept

    def release(self) -> None:
        """Let go of the blocks."""
        self.pool.release(self.blocks, is_kept=True)


@dataclass(frozen=True, slots=True)
class _Bound:
    binding: ort_core.IOBinding
    feeds: dict[str, Array]


class PagedRuns:
    """Runs of a decoder over the blocks of a pool, with the arrays that they are fed from; one thread uses it."""

    def __init__(self, decoder: Decoder, paged: PagedDecoder, pool: BlockPool) -> None:
        self.decoder, self.paged, self.pool = decoder, paged, pool
        self._bound: dict[tuple[int, int, int, int], _Bound] = {}
        self._version = -1

    def run(
        self, fed: Sequence[Array], pasts: Sequence[int], blocks: Sequence[Sequence[int]], wanted: Array,
        options: ort_core.RunOptions | None,
    ) -> tuple[Array, dict[str, Array]]:  # fmt: skip
        """Read tokens, or their vectors, of sequences, and return logits (wanted, vocabulary), and what was fed.

        Args:
            fed: (n,) tokens or (n, hidden) vectors of each sequence.
            pasts: what each has read before.
            blocks: of each.
            wanted: numbers of tokens, of all together, whose logits are given.
            options: of the run.
        """
        counts = [len(each) for each in fed]
        width = max(_LEAST_WIDTH, max(map(len, blocks)))
        width = 1 << (width - 1).bit_length()
        bound = self._bound_run((sum(counts), len(counts), width, len(wanted)))
        feeds, decoder = bound.feeds, self.decoder
        np.concatenate(fed, out=feeds[decoder.tokens][0], casting="unsafe")
        np.cumsum(counts, out=feeds[ENDS][1:])
        feeds[PAST][:] = pasts
        feeds[WANTED][:] = wanted
        table = feeds[TABLE]
        for row, own in zip(table, blocks, strict=True):
            row[: len(own)] = self.pool.places[own]
        if self.paged.positions is not None:
            places = [np.arange(past, past + count) for past, count in zip(pasts, counts, strict=True)]
            np.concatenate(places, out=feeds[self.paged.positions][0])
        with raised_as(GenerationFailed):
            self.paged.session.run_with_iobinding(bound.binding, options)
        return bound.binding.take_outputs()[-1].numpy()[0], feeds

    def _bound_run(self, key: tuple[int, int, int, int]) -> _Bound:
        if self._version != self.pool.version or len(self._bound) > _KEPT_RUNS:
            self._bound.clear()
            self._version = self.pool.version
        found = self._bound.get(key)
        if found is None:
            found = self._bound[key] = self._bind(*key)
        return found

    def _bind(self, tokens: int, sequences: int, width: int, wanted: int) -> _Bound:
        decoder = self.decoder
        binding = self.paged.session.io_binding()
        for names, array in zip(decoder.caches, self.pool.arrays, strict=True):
            value = ort_core.OrtValue.ortvalue_from_numpy(array)
            binding.bind_ortvalue_input(names.past, value)
            binding.bind_ortvalue_output(names.present, value)
        binding.bind_output(decoder.logits)
        feeds = {
            decoder.tokens: decoder.token_feed(1, tokens), ENDS: np.zeros(sequences + 1, np.int32),
            PAST: np.zeros(sequences, np.int32), TABLE: np.zeros((sequences, width), np.int32),
            WANTED: np.zeros(wanted, np.int64),
        }  # fmt: skip
        if self.paged.positions is not None:
            feeds[self.paged.positions] = np.zeros((1, tokens), np.int64)
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        return _Bound(binding, feeds)


class PagedState(DecoderState):
    """Rows in blocks of a pool, which other states may share.

    Args:
        runs: of the decoder, over the pool.
    """

    def __init__(self, runs: PagedRuns) -> None:
        super().__init__(runs.decoder)
        self._runs, self.pool = runs, runs.pool
        self._rows: list[_Row] = []

    def add_row(self) -> int:
        """Add a row that has read nothing, and return its place."""
        self.lengths.append(0)
        self.inputs.append(RowInputs())
        self._rows.append(_Row())
        return len(self.lengths) - 1

    def drop_row(self, row: int) -> None:
        """Take a row out; the last one stands in its place."""
        self.pool.release(self._pop(row).blocks)

    def _pop(self, row: int) -> _Row:
        found = self._rows[row]
        self.lengths[row], self._rows[row], self.inputs[row] = self.lengths[-1], self._rows[-1], self.inputs[-1]
        self.lengths.pop()
        self.inputs.pop()
        self._rows.pop()
        return found

    def take_row(self, other: DecoderState, row: int) -> int:
        """Take a row over from a state of the same pool, which has it no more; return its place."""
        assert isinstance(other, PagedState), "states of one engine are of one kind"
        self.lengths.append(other.lengths[row])
        self.inputs.append(other.inputs[row])
        self._rows.append(other._pop(row))
        return len(self.lengths) - 1

    def export_row(self, row: int) -> PagedCaches:  # type: ignore[override]  # in blocks, and not in arrays
        """Return what a row has read: its blocks, held for the caller until they are released."""
        length, own = self.lengths[row], self._rows[row]
        blocks = tuple(own.blocks[: blocks_of(length)])
        self.pool.hold(blocks, is_kept=True)
        own.own_from = length
        return PagedCaches(length, blocks, self.pool)

    def import_row(self, caches: PagedCaches) -> int:  # type: ignore[override]  # as above
        """Add a row that has read what another one had, and return its place; whole blocks are shared.

        Raises:
            OutOfBlocks: none is left for the rest.
        """
        place = self.add_row()
        row, (whole, rest) = self._rows[place], divmod(caches.length, BLOCK_ROWS)
        row.blocks = list(caches.blocks[:whole])
        self.pool.hold(row.blocks)
        self.lengths[place] = row.own_from = caches.length
        if rest:
            shared = caches.blocks[whole : whole + 1]
            self.pool.hold(shared, is_kept=True)  # so that it stays while another one is looked for; no row has it
            try:
                block = self.pool.take()
                self.pool.copy(caches.blocks[whole], block, rest)
                row.blocks.append(block)
            finally:
                self.pool.release(shared, is_kept=True)
        return place

    def reserve(self, row: int, positions: int) -> None:
        """Take blocks for so many positions of a row.

        Raises:
            OutOfBlocks: some are missing; those that were taken stay.
        """
        own = self._rows[row].blocks
        while len(own) * BLOCK_ROWS < positions:
            own.append(self.pool.take())

    def missing(self, fresh: int) -> int:
        """Return how many blocks are missing to read so many tokens into each row."""
        rows = zip(self.lengths, self._rows, strict=True)
        return sum(max(0, blocks_of(length + fresh) - len(row.blocks)) for length, row in rows)

    def step(self, tokens: Array) -> Array:
        """Read one token into each row, in one run, or in several where more rows would be computed otherwise."""
        rows = len(self.lengths)
        most = self._decoder.rows_of_run(rows, rows)
        if most is None or rows <= most:
            return self.step_at_once(tokens)
        with self.as_one():
            parts = [
                self._read_rows(range(first, end), [tokens[row : row + 1] for row in range(first, end)])
                for first, end in steps_of(rows, most)
            ]
        self.last_logits = np.concatenate(parts)[:, None]
        return np.concatenate(parts)

    def step_at_once(self, tokens: Array) -> Array:
        """Read one token into each row, in one run."""
        rows = range(len(self.lengths))
        return self._read_rows(rows, [tokens[row : row + 1] for row in rows])

    def step_beside(self, tokens: Array, other: PagedState, part: Array) -> tuple[Array, Array]:
        """Read a token into each row and a part of a prompt into another state's only one, in one run.

        Returns:
            Logits of the rows, and of the last token of the part.
        """
        members = [(self, row) for row in range(len(self.lengths))] + [(other, 0)]
        given = [*(tokens[row : row + 1] for row in range(len(self.lengths))), part]
        found = _run(members, given, is_all=False)
        return found[:-1], found[-1]

    def rewind(self, row: int, length: int) -> None:
        """Forget what a row has read behind a length; what others may read is left to them."""
        length = min(length, self.lengths[row])
        own, kept = self._rows[row], blocks_of(length)
        self.pool.release(own.blocks[kept:])
        del own.blocks[kept:]
        if length < own.own_from and length % BLOCK_ROWS:
            block = self.pool.take()
            self.pool.copy(own.blocks[-1], block, length % BLOCK_ROWS)
            self.pool.release(own.blocks[-1:])
            own.blocks[-1] = block
        own.own_from = min(own.own_from, length)
        self.lengths[row] = length
        self.inputs[row].rewind(length)

    def reorder(self, rows: Array) -> None:
        """Let each row go on from what another one has read."""
        held = [self.export_row(int(row)) for row in rows]
        inputs = [self.inputs[int(row)].copy() for row in rows]
        while self.lengths:
            self.drop_row(len(self.lengths) - 1)
        for caches, own in zip(held, inputs, strict=True):
            self.inputs[self.import_row(caches)] = own
            caches.release()

    def cache(self, name: str) -> Array | None:
        """Return nothing: no array has the cache of a row."""
        return None

    def nbytes_for(self, rows: int, positions: int) -> int:
        """Return the bytes of the blocks of so many rows of so many positions."""
        return rows * blocks_of(positions) * self.pool.block_nbytes

    def read(self, row: int, tokens: Array) -> Array:
        """Read tokens (n,), one at least, into a row, and return float32 logits (vocabulary,) of the last one."""
        done, found = 0, self.last_logits[0, -1] if self.last_logits.size else np.zeros(0, np.float32)
        while done < len(tokens):
            count = part_length(len(tokens) - done, _CHUNK)
            found = self._read_rows([row], [tokens[done : done + count]])[0]
            done += count
        return found

    def read_each(self, rows: Sequence[int], tokens: Sequence[Array]) -> list[Array]:
        """Read tokens of its own into each of some rows, in one run, or in several where more would be other numbers.

        Returns:
            Float32 logits (n, vocabulary) of each row.
        """
        counts, found = [len(own) for own in tokens], list[Array]()
        with self.as_one():
            for first, end in runs_of(counts, self._decoder.rows_of_run(sum(counts), sum(counts))):
                logits = _run([(self, row) for row in rows[first:end]], tokens[first:end], is_all=True)
                found += np.split(logits, np.cumsum([len(own) for own in tokens[first : end - 1]]))
        return found

    def _read_part(self, row: int, tokens: Array, wanted: int) -> Array:
        return _run([(self, row)], [tokens], is_all=True)[None, -wanted:]

    def _read_rows(self, rows: Sequence[int], tokens: Sequence[Array]) -> Array:
        """Read tokens into rows and return float32 logits of the last one of each."""
        found = _run([(self, row) for row in rows], tokens, is_all=False)
        self.last_logits = found[:, None]
        return found

    def _fed_to(self, row: int, tokens: Array) -> Array:
        return self._fed(row, tokens[None])[0]


def read_together(states: Sequence[PagedState], tokens: Sequence[Array]) -> Array:
    """Read tokens into the only row of each of some states of one pool; return float32 logits of the last of each."""
    return _run([(state, 0) for state in states], tokens, is_all=False)


def _run(members: Sequence[tuple[PagedState, int]], tokens: Sequence[Array], *, is_all: bool) -> Array:
    """Read tokens into rows of states of one pool; return float32 logits of the last one of each, or of all."""
    first, counts = members[0][0], [len(each) for each in tokens]
    fed, pasts, blocks = [], [], []
    for (state, row), own in zip(members, tokens, strict=True):
        state.reserve(row, state.lengths[row] + len(own))
        fed.append(state._fed_to(row, own))
        pasts.append(state.lengths[row])
        blocks.append(state._rows[row].blocks)
    wanted = np.arange(sum(counts)) if is_all else np.cumsum(counts) - 1
    logits, first.last_feeds = first._runs.run(fed, pasts, blocks, wanted, first.run_options)
    for (state, row), count in zip(members, counts, strict=True):
        state.lengths[row] += count
    found = logits.astype(np.float32, copy=False)  # of its own: memory of outputs is used again when nobody has it
    first.last_logits = found[None]
    return found
