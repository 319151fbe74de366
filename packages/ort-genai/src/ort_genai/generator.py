"""onnxruntime-genai's generation loop: rows that are read together, a token each at a time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

import ort_core
from ort_genai.beam_search import BeamsState
from ort_genai.errors import InvalidGeneration
from ort_genai.guidance import Grammar, Guide
from ort_genai.model import Adapters, Model
from ort_genai.sampling import chosen, penalized
from ort_genai.search_options import SearchOptions

Array = np.ndarray


class GeneratorParams:
    """How a model generates.

    Args:
        model: whose folder states the defaults.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.options: SearchOptions = model.search
        self.grammar: Grammar | None = None

    def set_search_options(self, **options: object) -> None:
        """Change options by name.

        Raises:
            InvalidGeneration: there is no such option, or a value does not fit.
        """
        self.options = self.options.changed(options)

    def get_search_options(self) -> dict[str, object]:
        """Return the options by name."""
        return self.options.as_dict()

    def set_guidance(self, type: str, data: str, enable_ff_tokens: bool = False) -> None:
        """Let texts follow a grammar: ``json_schema``, ``regex`` or ``lark_grammar``.

        Args:
            type: what the grammar is written in.
            data: the grammar.
            enable_ff_tokens: taken, to no effect: tokens that must come are chosen as all others.

        Raises:
            InvalidGeneration: there is no such kind.
        """
        self.grammar = Grammar.of(type, data)


class Generator:
    """One generation of one or more rows.

    Args:
        model: to run.
        params: options, and maybe a grammar.
    """

    def __init__(self, model: Model, params: GeneratorParams) -> None:
        self._model, self._decoder, self._options = model, model.decoder, params.options
        if self._options.max_length > self._decoder.context_length:
            raise InvalidGeneration(
                f"max_length ({self._options.max_length}) cannot be greater than model context_length "
                f"({self._decoder.context_length})"
            )
        if params.grammar is not None and self._options.num_beams > 1:
            raise InvalidGeneration("beams cannot follow a grammar: set num_beams to 1, or no guidance")
        self._state = self._decoder.new_state()
        self._rows: list[list[int]] = []
        self._logits: Array | None = None
        self._ended: list[bool] = []
        self._next: list[int] = []
        self._beams: list[BeamsState] = []
        self._grammar = params.grammar
        self._guides: list[Guide] = []
        self._start = 0
        seed = self._options.random_seed
        self._random = np.random.Generator(np.random.PCG64(None if seed < 0 else seed))
        for _ in range(self._options.batch_size * self._options.num_beams):
            self._state.add_row()

    # ------------------------------------------------------------ reading

    def append_tokens(self, tokens: object) -> None:
        """Read tokens into the rows: (n,) into one, (rows, n) into several, padded behind where they are shorter.

        Raises:
            InvalidGeneration: there are none, they do not fit the rows or the longest length, or one is not the
                model's.
        """
        given = np.asarray(tokens.as_numpy() if hasattr(tokens, "as_numpy") else tokens)
        if given.size == 0:
            raise InvalidGeneration("input_ids is empty")
        if given.dtype.kind not in "iu":
            raise InvalidGeneration(f"tokens are {given.dtype.name}, expected whole numbers")
        rows = given.reshape(1, -1) if given.ndim == 1 and self._options.batch_size == 1 else given
        if rows.ndim == 1 and rows.size % self._options.batch_size == 0:
            rows = rows.reshape(self._options.batch_size, -1)
        if rows.ndim != 2 or len(rows) != self._options.batch_size:
            raise InvalidGeneration(f"tokens of shape {given.shape} for batch_size {self._options.batch_size}")
        self._decoder.check(rows)
        self._check_length(rows.shape[1])
        if self._beams:
            raise InvalidGeneration("beams are followed already; tokens cannot be appended to them")
        self._read([row.tolist() for row in rows])

    def _check_length(self, count: int) -> None:
        length = self.token_count()
        if length + count > self._options.max_length:
            raise InvalidGeneration(
                f"input_ids size ({count}) + current sequence length ({length}) exceeds max length "
                f"({self._options.max_length})"
            )

    def _read(self, rows: list[list[int]]) -> None:
        beams, logits = self._options.num_beams, []
        if not self._rows:
            self._rows, self._ended = [[] for _ in rows], [False] * len(rows)
        pending = self._pending()
        for place, row in enumerate(rows):
            self._rows[place] += row
            unpadded = self._unpadded(row) if len(rows) > 1 else row
            for beam in range(beams):
                logits.append(self._state.read(place * beams + beam, np.array(pending[place] + unpadded, np.int64)))
            self._ended[place] = False
        self._logits = np.stack(logits)
        self._next = [row[-1] for row in rows]
        if self._grammar is not None and not self._guides:
            self._guides = [self._model.guidance.matcher(self._grammar) for _ in rows]
        if beams > 1:
            self._beams = [BeamsState.begun(row, beams) for row in self._rows]
        self._start = len(self._rows[0])

    def _unpadded(self, row: list[int]) -> list[int]:
        end = len(row)
        while end > 1 and row[end - 1] == self._decoder.pad_token:
            end -= 1
        return row[:end]

    def _pending(self) -> list[list[int]]:
        """Return the tokens that were chosen and not read yet, which are read first."""
        if self._logits is None and self._rows and self._rows[0]:
            return [[row[-1]] for row in self._rows]
        return [[] for _ in range(self._options.batch_size)]

    # ------------------------------------------------------------ choosing

    def generate_next_token(self) -> None:
        """Choose a token for each row; what was chosen last is read first.

        Raises:
            InvalidGeneration: nothing was read, or all rows are as long as they may be.
        """
        if not self._rows or not self._rows[0]:
            raise InvalidGeneration(
                "GenerateNextToken called with no prior state. Please call AppendTokens, SetLogits, or SetInputs "
                "before calling GenerateNextToken."
            )
        if self.token_count() >= self._options.max_length:
            raise InvalidGeneration(
                f"GenerateNextToken called with sequence length already at max_length ({self._options.max_length})"
            )
        logits = self._known_logits()
        self._logits = None
        if self._beams:
            self._step_beams(logits)
            return
        pad, options = self._decoder.pad_token, self._options
        self._next = []
        for place, row in enumerate(self._rows):
            token = pad if self._ended[place] else self._choose(logits[place], row, place, options)
            row.append(token)
            self._next.append(token)

    def _choose(self, logits: Array, row: list[int], place: int, options: SearchOptions) -> int:
        found = penalized(logits, row, options, self._decoder.end_tokens)
        guide = self._guides[place] if self._guides else None
        if guide is not None:
            found = guide.allowed(found)
        token = chosen(found, options, self._random)
        if guide is not None:
            guide.take(token)
        self._ended[place] = token in self._decoder.end_tokens or (guide is not None and guide.has_ended)
        return token

    def _step_beams(self, logits: Array) -> None:
        count, tokens, origins = self._options.num_beams, [], []
        for place, beams in enumerate(self._beams):
            part = logits[place * count : (place + 1) * count]
            shaped = np.stack([
                penalized(each, row, self._options, self._decoder.end_tokens)
                for each, row in zip(part, beams.tokens, strict=True)
            ])  # fmt: skip
            found, froms = beams.step(shaped, self._options, self._decoder.end_tokens, self._decoder.pad_token)
            tokens += found
            origins += [place * count + each for each in froms]
            self._rows[place].append(found[0])
            self._ended[place] = beams.is_done
        self._next = tokens
        self._state.reorder(np.array(origins))

    def _known_logits(self) -> Array:
        """Return logits of the rows, reading what was chosen last where that is not done."""
        if self._logits is None:
            if not self._rows or not self._rows[0]:
                raise InvalidGeneration("logits are not computed yet: append tokens first")
            last = self._next if self._beams else [row[-1] for row in self._rows]
            self._logits = self._state.step(np.array(last, np.int64))
        return self._logits

    # ------------------------------------------------------------ asking

    def is_done(self) -> bool:
        """Return whether every row has ended, or is as long as it may be."""
        if not self._rows:
            return False
        return all(self._ended) or self.token_count() >= self._options.max_length

    def token_count(self) -> int:
        """Return the tokens of a row."""
        return len(self._rows[0]) if self._rows else 0

    def get_sequence(self, index: int) -> Array:
        """Return int32 tokens of a row; of beams the best texts, row by row."""
        count = self._options.num_return_sequences
        if not 0 <= index < self._options.batch_size * count:
            raise InvalidGeneration(f"sequence {index} of {self._options.batch_size * count}")
        if not self._beams:
            return np.array(self._rows[index] if self._rows else [], np.int32)
        return np.array(self._beams[index // count].best(self._options)[index % count], np.int32)

    def get_next_tokens(self) -> Array:
        """Return int32 tokens that were chosen last, one of each row."""
        return np.array(self._next, np.int32)

    def get_logits(self) -> Array:
        """Return float32 logits (rows, 1, vocabulary) of the next token."""
        return self._known_logits()[:, None].astype(np.float32)

    def set_logits(self, logits: Array) -> None:
        """Choose the next tokens from other logits.

        Raises:
            InvalidGeneration: nothing was read, or the shape is another.
        """
        if self._logits is None:
            raise InvalidGeneration(
                "logits are not computed yet. Please call get_logits or append_tokens before calling set_logits."
            )
        given = np.asarray(logits, np.float32)
        if given.size != self._logits.size:
            raise InvalidGeneration(
                f"logits of shape {given.shape}, expected {(len(self._logits), 1, self._logits.shape[1])}"
            )
        self._logits = given.reshape(self._logits.shape).copy()

    def get_input(self, name: str) -> Array:
        """Return what the last run was fed, or a cache.

        Raises:
            InvalidGeneration: there is no such input.
        """
        found = self._state.last_feeds.get(name)
        found = self._state.cache(name) if found is None else found
        if found is None:
            raise InvalidGeneration(f"Generator input '{name}' was not found.")
        return found

    def get_output(self, name: str) -> Array:
        """Return what the last run gave.

        Raises:
            InvalidGeneration: there is no such output.
        """
        found = self._state.last_logits if name == self._decoder.logits else self._state.cache(name)
        if found is None:
            raise InvalidGeneration(f"Generator output '{name}' was not found.")
        return found

    # ------------------------------------------------------------ changing

    def rewind_to(self, length: int) -> None:
        """Forget the tokens behind a length.

        Raises:
            InvalidGeneration: the rows are shorter, or beams are followed, or rows were padded.
        """
        if not 0 <= length <= self.token_count():
            raise InvalidGeneration(f"Cannot rewind to a length greater than the current sequence length: {length}")
        if self._beams:
            raise InvalidGeneration("beams cannot be rewound")
        if length and len(set(self._state.lengths)) > 1:
            raise InvalidGeneration("rows of different lengths can be rewound to 0 only")
        for place, row in enumerate(self._rows):
            if self._guides:
                self._guides[place].back(min(len(row) - length, len(row) - self._start))
            del row[length:]
            self._state.rewind(place, max(length - 1, 0))
            self._ended[place] = False
        self._start = min(self._start, length)
        self._logits = None
        if not length:
            self._rows, self._guides = [], []

    def snapshot_state(self) -> None:
        """Do nothing: every length can be rewound to."""

    def set_active_adapter(self, adapters: Adapters, name: str) -> None:
        """Run with an adapter from now on.

        Raises:
            InvalidGeneration: none has this name.
        """
        options = ort_core.RunOptions()
        options.add_active_adapter(adapters.find(name))
        self._state.run_options = options

    def set_runtime_option(self, key: str, value: str) -> None:
        """Set ``terminate_session`` to ``1`` to end runs, or to ``0`` to allow them.

        Raises:
            InvalidGeneration: there is no such option.
        """
        if key != "terminate_session" or value not in ("0", "1"):
            raise InvalidGeneration(f"runtime option {key!r} = {value!r}; expected terminate_session = 0 or 1")
        options = self._state.run_options or ort_core.RunOptions()
        options.terminate = value == "1"
        self._state.run_options = options

    def set_inputs(self, inputs: Mapping[str, object]) -> None:
        """Read ``input_ids`` among named tensors.

        Raises:
            InvalidGeneration: there are others, which a decoder of text does not have.
        """
        others = [name for name in inputs if name != self._decoder.tokens]
        if others or self._decoder.tokens not in inputs:
            raise InvalidGeneration(f"inputs {', '.join(inputs)}; this model takes {self._decoder.tokens} alone")
        self.append_tokens(inputs[self._decoder.tokens])
