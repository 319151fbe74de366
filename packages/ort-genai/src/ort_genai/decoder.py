"""The session of a decoder, and a state that grows with what it reads: caches that stay where they are.

Caches are (batch, heads, capacity, size) and are bound as past and as present, so that a step writes one position of
each and copies nothing. The capacity doubles when it is used up. Rows of a batch may have different lengths: each is
filled from its first position on, as GroupQueryAttention reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, cast

import ml_dtypes
import numpy as np

import ort_core
from ort_genai.configuration import Config
from ort_genai.errors import InvalidGeneration, InvalidModelFolder

Array = np.ndarray
CACHE_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(bfloat16)": ml_dtypes.bfloat16}
_FIRST = 64  # positions that a new cache has
_CHUNK = 256  # tokens of a prompt at once: logits of all of them come back


@dataclass(frozen=True, slots=True)
class CacheNames:
    """Where a cache goes in and comes out, and what it holds: heads and elements of a head."""

    past: str
    present: str
    heads: int
    size: int
    dtype: np.dtype


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

    def shortened(self, length: int) -> RowCaches:
        """Return what the first tokens gave."""
        return RowCaches(length, tuple(each[:, :length] for each in self.arrays))


class Decoder:
    """A model that gives logits of tokens.

    Args:
        config: of its folder.

    Raises:
        InvalidModelFolder: the graph lacks inputs or outputs that the configuration names.
    """

    def __init__(self, config: Config) -> None:
        stated = config.decoder
        _refuse_others(stated)
        file = str(stated.get("filename", "model.onnx"))
        path = config.folder / file
        if file not in config.model_data and not path.is_file():
            raise InvalidModelFolder(f"{str(path)!r}, which genai_config.json names, is not there")
        self.session = ort_core.InferenceSession(config.model_data.get(file, path), providers=config.providers)
        self._inputs = {each.name: each for each in self.session.get_inputs()}
        inputs, outputs = _names(stated, "inputs"), _names(stated, "outputs")
        self.tokens = inputs.get("input_ids", "input_ids")
        self.logits = outputs.get("logits", "logits")
        if self.tokens not in self._inputs or self.logits not in [each.name for each in self.session.get_outputs()]:
            raise InvalidModelFolder(
                f"{str(path)!r} has no input {self.tokens!r} or no output {self.logits!r}; it has "
                f"{', '.join(list(self._inputs)[:4])}, …"
            )
        self.mask = self._known(inputs.get("attention_mask", "attention_mask"))
        self.positions = self._known(inputs.get("position_ids", "position_ids"))
        self.vocab_size, self.context_length = config.number("vocab_size"), config.number("context_length")
        self.end_tokens = config.end_tokens
        self.pad_token = config.number("pad_token_id") if isinstance(config.model.get("pad_token_id"), int) else 0
        self.shares_caches = bool(config.search.get("past_present_share_buffer", False)) and self.mask is not None
        self.caches = self._cache_names(config, inputs, outputs)

    def _known(self, name: str) -> str | None:
        return name if name in self._inputs else None

    def _cache_names(self, config: Config, inputs: dict[str, str], outputs: dict[str, str]) -> list[CacheNames]:
        layers = config.decoder.get("num_hidden_layers")
        if not isinstance(layers, int):
            raise InvalidModelFolder(f"genai_config.json has model.decoder.num_hidden_layers = {layers!r}")
        found = []
        for place in range(layers):
            for part in ("key", "value"):
                past = inputs.get(f"past_{part}_names", f"past_key_values.%d.{part}").replace("%d", str(place))
                present = outputs.get(f"present_{part}_names", f"present.%d.{part}").replace("%d", str(place))
                given = self._inputs.get(past)
                if given is None or given.type not in CACHE_TYPES or len(given.shape) != 4:
                    raise InvalidModelFolder(
                        f"the graph has no cache {past!r} of floats and four axes, which genai_config.json names for "
                        f"layer {place}"
                    )
                heads: object = given.shape[1]
                size: object = given.shape[3]
                if not isinstance(heads, int):
                    heads = config.decoder.get("num_key_value_heads")
                if not isinstance(size, int):
                    size = config.decoder.get("head_size")
                if not isinstance(heads, int) or not isinstance(size, int):
                    raise InvalidModelFolder(f"neither the graph nor genai_config.json says how large {past!r} is")
                found.append(CacheNames(past, present, heads, size, np.dtype(CACHE_TYPES[given.type])))
        return found

    def new_state(self) -> DecoderState:
        """Return a state without rows."""
        return SharedState(self) if self.shares_caches else AppendedState(self)

    def check(self, tokens: Array) -> None:
        """Refuse tokens that the model does not have.

        Raises:
            InvalidGeneration: one is outside the vocabulary.
        """
        wrong = tokens[(tokens < 0) | (tokens >= self.vocab_size)]
        if wrong.size:
            raise InvalidGeneration(
                f"token {int(wrong[0])} is none of the model's, which are 0 to {self.vocab_size - 1}"
            )

    def cache_bytes(self, positions: int) -> int:
        """Return the bytes that caches of one row take."""
        return positions * sum(each.heads * each.size * each.dtype.itemsize for each in self.caches)


class DecoderState(Protocol):
    """What a model has read, row by row."""

    lengths: list[int]
    last_feeds: dict[str, Array]
    last_logits: Array
    run_options: ort_core.RunOptions | None

    def add_row(self) -> int:
        """Add a row that has read nothing, and return its place."""

    def drop_row(self, row: int) -> None:
        """Take a row out; the last one stands in its place."""

    def read(self, row: int, tokens: Array) -> Array:
        """Read tokens (n,) into a row and return float32 logits (vocabulary,) of the last one."""

    def step(self, tokens: Array) -> Array:
        """Read one token into each row, tokens (rows,), and return float32 logits (rows, vocabulary)."""

    def rewind(self, row: int, length: int) -> None:
        """Forget what a row has read behind a length."""

    def reorder(self, rows: Array) -> None:
        """Let each row go on from what another one has read, (rows,)."""

    def cache(self, name: str) -> Array | None:
        """Return a cache by its name among the inputs or outputs."""

    def export_row(self, row: int) -> RowCaches:
        """Return a copy of what a row has read."""

    def import_row(self, caches: RowCaches) -> int:
        """Add a row that has read what another one had, and return its place."""


class SharedState:
    """Caches that are inputs and outputs at once; one run reads a token into all rows.

    Args:
        decoder: whose caches they are.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self.lengths: list[int] = []
        self.run_options: ort_core.RunOptions | None = None
        self.last_feeds: dict[str, Array] = {}
        self.last_logits: Array = np.zeros((0, 0, decoder.vocab_size), np.float32)
        self._arrays = [np.zeros((0, each.heads, 0, each.size), each.dtype) for each in decoder.caches]
        self._bound: tuple[slice, ort_core.IOBinding] | None = None

    def add_row(self) -> int:
        """Add a row that has read nothing, and return its place."""
        self.lengths.append(0)
        self._grow(len(self.lengths), self._arrays[0].shape[2] if self._arrays else 0)
        self._bound = None
        return len(self.lengths) - 1

    def drop_row(self, row: int) -> None:
        """Take a row out; the last one stands in its place."""
        last = len(self.lengths) - 1
        if row != last:
            end = self.lengths[last]
            for array in self._arrays:
                array[row, :, :end] = array[last, :, :end]
            self.lengths[row] = end
        self.lengths.pop()
        self._bound = None

    def read(self, row: int, tokens: Array) -> Array:
        """Read tokens (n,) into a row, some at a time, and return logits of the last one."""
        logits = self.last_logits
        for start in range(0, len(tokens), _CHUNK):
            part = tokens[start : start + _CHUNK]
            logits = self._run(slice(row, row + 1), part[None])
        return logits[0, -1].astype(np.float32)

    def export_row(self, row: int) -> RowCaches:
        """Return a copy of what a row has read."""
        length = self.lengths[row]
        return RowCaches(length, tuple(array[row, :, :length].copy() for array in self._arrays))

    def import_row(self, caches: RowCaches) -> int:
        """Add a row that has read what another one had, and return its place."""
        row = self.add_row()
        if self._arrays and caches.length > self._arrays[0].shape[2]:
            self._grow(len(self.lengths), caches.length)
        for array, given in zip(self._arrays, caches.arrays, strict=True):
            array[row, :, : caches.length] = given
        self.lengths[row] = caches.length
        return row

    def step(self, tokens: Array) -> Array:
        """Read one token into each row."""
        return self._run(slice(0, len(self.lengths)), tokens[:, None])[:, -1].astype(np.float32)

    def rewind(self, row: int, length: int) -> None:
        """Forget what a row has read behind a length."""
        self.lengths[row] = min(length, self.lengths[row])

    def reorder(self, rows: Array) -> None:
        """Let each row go on from what another one has read."""
        if (rows == np.arange(len(self.lengths))).all():
            return
        end = max(self.lengths)
        for array in self._arrays:
            array[: len(rows), :, :end] = array[rows, :, :end]
        self.lengths = [self.lengths[row] for row in rows]

    def cache(self, name: str) -> Array | None:
        """Return a cache, with its capacity."""
        for names, array in zip(self._decoder.caches, self._arrays, strict=True):
            if name in (names.past, names.present):
                return array[: len(self.lengths)]
        return None

    def _run(self, rows: slice, tokens: Array) -> Array:
        decoder, count = self._decoder, tokens.shape[1]
        before = np.array(self.lengths[rows], np.int64)
        total = int(before.max()) + count
        if not self._arrays or total > self._arrays[0].shape[2]:
            self._grow(len(self.lengths), total)
        feeds = {decoder.tokens: np.ascontiguousarray(tokens, np.int64)}
        if decoder.mask is not None:
            feeds[decoder.mask] = (np.arange(total) < (before + count)[:, None]).astype(np.int64)
        if decoder.positions is not None:
            feeds[decoder.positions] = before[:, None] + np.arange(count)
        binding = self._binding(rows)
        for name, value in feeds.items():
            binding.bind_cpu_input(name, value)
        decoder.session.run_with_iobinding(binding, self.run_options)
        logits = binding.get_outputs()[-1].numpy()
        self.lengths[rows] = [length + count for length in self.lengths[rows]]
        self.last_feeds, self.last_logits = feeds, logits
        return logits

    def _binding(self, rows: slice) -> ort_core.IOBinding:
        if self._bound is not None and self._bound[0] == rows:
            return self._bound[1]
        binding = self._decoder.session.io_binding()
        for names, array in zip(self._decoder.caches, self._arrays, strict=True):
            value = ort_core.OrtValue.ortvalue_from_numpy(array[rows])
            binding.bind_ortvalue_input(names.past, value)
            binding.bind_ortvalue_output(names.present, value)
        binding.bind_output(self._decoder.logits)
        self._bound = rows, binding
        return binding

    def _grow(self, rows: int, positions: int) -> None:
        """Make room for rows and positions, twice what there was where that is not enough."""
        if not self._arrays:
            return
        had_rows, _, had, _ = self._arrays[0].shape
        wide = (
            had
            if positions <= had
            else min(max(positions, 2 * had, _FIRST), max(self._decoder.context_length, positions))
        )
        deep = had_rows if rows <= had_rows else max(rows, 2 * had_rows)
        if (deep, wide) == (had_rows, had):
            return
        grown = []
        for array in self._arrays:
            made = np.zeros((deep, array.shape[1], wide, array.shape[3]), array.dtype)
            made[:had_rows, :, :had] = array
            grown.append(made)
        self._arrays, self._bound = grown, None


class AppendedState:
    """Caches that come back longer than they went in: one run a row.

    Args:
        decoder: whose caches they are.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self.lengths: list[int] = []
        self.run_options: ort_core.RunOptions | None = None
        self.last_feeds: dict[str, Array] = {}
        self.last_logits: Array = np.zeros((0, 0, decoder.vocab_size), np.float32)
        self._rows: list[list[Array]] = []

    def add_row(self) -> int:
        """Add a row that has read nothing, and return its place."""
        self.lengths.append(0)
        self._rows.append([np.zeros((1, each.heads, 0, each.size), each.dtype) for each in self._decoder.caches])
        return len(self.lengths) - 1

    def drop_row(self, row: int) -> None:
        """Take a row out; the last one stands in its place."""
        self.lengths[row], self._rows[row] = self.lengths[-1], self._rows[-1]
        self.lengths.pop()
        self._rows.pop()

    def read(self, row: int, tokens: Array) -> Array:
        """Read tokens (n,) into a row, some at a time, and return logits of the last one."""
        logits = self.last_logits
        for start in range(0, len(tokens), _CHUNK):
            logits = self._run(row, tokens[None, start : start + _CHUNK])
        return logits[0, -1].astype(np.float32)

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
        found = [self._run(row, tokens[row : row + 1, None]) for row in range(len(self.lengths))]
        self.last_logits = np.concatenate(found)
        return self.last_logits[:, -1].astype(np.float32)

    def rewind(self, row: int, length: int) -> None:
        """Forget what a row has read behind a length."""
        self.lengths[row] = min(length, self.lengths[row])
        self._rows[row] = [np.ascontiguousarray(each[:, :, :length]) for each in self._rows[row]]

    def reorder(self, rows: Array) -> None:
        """Let each row go on from what another one has read."""
        self.lengths = [self.lengths[row] for row in rows]
        self._rows = [self._rows[row] for row in rows]

    def cache(self, name: str) -> Array | None:
        """Return the cache of the first row."""
        for place, names in enumerate(self._decoder.caches):
            if name in (names.past, names.present) and self._rows:
                return self._rows[0][place]
        return None

    def _run(self, row: int, tokens: Array) -> Array:
        decoder, before, count = self._decoder, self.lengths[row], tokens.shape[1]
        feeds = {decoder.tokens: np.ascontiguousarray(tokens, np.int64)}
        if decoder.mask is not None:
            feeds[decoder.mask] = np.ones((1, before + count), np.int64)
        if decoder.positions is not None:
            feeds[decoder.positions] = np.arange(before, before + count)[None]
        pasts = dict(zip([each.past for each in decoder.caches], self._rows[row], strict=True))
        names = [decoder.logits, *(each.present for each in decoder.caches)]
        logits, *presents = cast(list[Array], decoder.session.run(names, {**feeds, **pasts}, self.run_options))
        self._rows[row], self.lengths[row] = presents, before + count
        self.last_feeds, self.last_logits = feeds, logits
        return logits


def _refuse_others(stated: Mapping[str, object]) -> None:
    """Refuse folders whose decoder is run in ways that this one is not."""
    if "pipeline" in stated:
        raise InvalidModelFolder("genai_config.json has a decoder of several sessions (pipeline), which cannot be run")
    sliding = stated.get("sliding_window")
    if isinstance(sliding, dict) and (sliding.get("slide_key_value_cache") or sliding.get("slide_inputs")):
        raise InvalidModelFolder(
            "genai_config.json has caches or inputs that slide (model.decoder.sliding_window), which cannot be run"
        )


def _names(stated: Mapping[str, object], side: str) -> dict[str, str]:
    found = stated.get(side, {})
    return {key: value for key, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}
