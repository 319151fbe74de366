"""onnxruntime-genai's generation loop: rows that are read together, a token each at a time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_genai.arguments import demand, numbers
from ort_genai.beam_search import BeamsState
from ort_genai.drafts_ahead import Ahead, SpeculativeOptions
from ort_genai.element_types import FLOATS
from ort_genai.errors import InvalidGeneration
from ort_genai.guidance import Grammar, Guide
from ort_genai.model import Adapters, Model
from ort_genai.sampling import chosen, penalized, taken
from ort_genai.search_options import SearchOptions
from ort_genai.speculative_stats import SpeculativeStats
from ort_genai.tensors import as_array

Array = np.ndarray
UNREAD = ("attention_mask", "num_image_tokens", "num_audio_tokens")  # what a processor may tell, and no graph takes


class GeneratorParams:
    """How a model generates.

    Args:
        model: whose folder states the defaults.
    """

    def __init__(self, model: Model) -> None:
        demand("GeneratorParams()", "model", model, Model)
        self.model = model
        self.options: SearchOptions = model.search
        self.drafting = SpeculativeOptions().changed(model.config.speculative)
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

    def set_speculative_options(self, **options: object) -> None:
        """Change how tokens are guessed: with ``ngram_size`` by what followed the same tokens before.

        The text stays the same. A ``Generator`` of one row guesses up to ``max_draft_tokens`` at once.

        Raises:
            InvalidGeneration: there is no such option, or a value does not fit.
        """
        self.drafting = self.drafting.changed(options)

    def get_speculative_options(self) -> dict[str, object]:
        """Return the options by name."""
        return self.drafting.as_dict()

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
        demand("Generator()", "model", model, Model)
        demand("Generator()", "params", params, GeneratorParams)
        self._model, self._decoder, self._options = model, model.decoder, params.options
        if self._options.max_length > self._decoder.context_length:
            raise InvalidGeneration(
                f"max_length ({self._options.max_length}) cannot be greater than model context_length "
                f"({self._decoder.context_length})"
            )
        if params.grammar is not None and self._options.num_beams > 1:
            raise InvalidGeneration("beams cannot follow a grammar: set num_beams to 1, or no guidance")
        self._state = self._decoder.new_state(self._options.max_length)
        self._rows: list[list[int]] = []
        self._logits: Array | None = None
        self._ended: list[bool] = []
        self._next: list[int] = []
        self._beams: list[BeamsState] = []
        self._grammar = params.grammar
        self._guides: list[Guide] = []
        self._guided: list[list[int]] = []  # places of the tokens that each guide took
        self._has_padding = False
        rows = self._options.batch_size * self._options.num_beams
        self._ahead = Ahead(params.drafting) if rows == 1 else None
        seed = self._options.random_seed
        self._random = np.random.Generator(np.random.PCG64(None if seed < 0 else seed))
        for _ in range(rows):
            self._state.add_row()
        self._begin_guides()

    def _begin_guides(self) -> None:
        """Let each text begin its grammar; one that cannot be read is refused before anything is."""
        if self._grammar is not None:
            self._guides = [self._model.guidance.matcher(self._grammar) for _ in range(self._options.batch_size)]
            self._guided = [[] for _ in self._guides]

    # ------------------------------------------------------------ reading

    def append_tokens(self, tokens: object) -> None:
        """Read tokens into the rows: (n,) into one, (rows, n) into several, padded behind where they are shorter.

        Raises:
            InvalidGeneration: there are none, they do not fit the rows or the longest length, or one is not the
                model's.
        """
        given = numbers("append_tokens()", "tokens", tokens)
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
        beams = self._options.num_beams
        self._drop_guesses()
        unpadded = [self._unpadded(row) if len(rows) > 1 else row for row in rows]
        with self._state.as_one():
            logits = self._read_rows(unpadded)
        if not self._rows:
            self._rows = [[] for _ in rows]
        for own, row in zip(self._rows, rows, strict=True):
            own += row
        self._ended, self._logits = [False] * len(rows), logits
        self._has_padding |= unpadded != rows
        self._next = [row[-1] for row in rows]
        if not self._guides:
            self._begin_guides()
        if beams > 1:
            self._beams = [BeamsState.begun(row, beams) for row in self._rows]

    def _read_rows(self, rows: list[list[int]]) -> Array:
        """Return logits behind rows that are read, and the tokens before them that were not; as many for each beam."""
        beams, pending, logits = self._options.num_beams, self._pending(), []
        for place, row in enumerate(rows):
            found = self._state.read(place * beams, np.array(pending[place] + row, np.int64))
            logits += [found] * beams
        if beams > 1:  # the first beam of each row has read its prompt
            self._state.reorder(np.repeat(np.arange(len(rows)) * beams, beams))
        return np.stack(logits)

    def _drop_guesses(self) -> None:
        """Forget what was read ahead of the text: what follows it, or how it is read, is another thing now."""
        if self._ahead is not None and self._rows and self._rows[0]:
            self._ahead.drop(self._state, len(self._rows[0]) - len(self._pending()[0]))

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

        The tokens that end the last rows are not put into them: ``get_next_tokens`` tells them, and what is appended to
        a single row then stands behind the text. Rows of a batch that end before others take their token, and padding.

        Raises:
            InvalidGeneration: nothing was read, all rows are as long as they may be, or runs are to end.
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
        options = self._state.run_options
        if options is not None and options.terminate:
            raise InvalidGeneration("Session in Terminated state, exiting! Set terminate_session to 0 to go on.")
        if self._options.batch_size == 1 and self._ended[0] and not self._beams:
            self._next = [self._decoder.pad_token]
            return
        logits = self._known_logits()
        if self._beams:
            self._step_beams(logits)
            return
        were_over, ends = list(self._ended), self._decoder.end_tokens
        try:
            self._next = [
                self._decoder.pad_token if is_over else self._choose(logits[place], row, place, self._options)
                for place, (row, is_over) in enumerate(zip(self._rows, were_over, strict=True))
            ]
        except BaseException:  # nothing was chosen for any row
            self._ended = were_over
            for place, row in enumerate(self._rows):
                self._lead_back(place, len(row))
            raise
        self._logits = None
        fresh = [token for token, is_over in zip(self._next, were_over, strict=True) if not is_over]
        if fresh and all(self._ended) and all(token in ends for token in fresh):
            self._logits = logits  # the rows stay as they are, and have read all their tokens
            return
        for row, token in zip(self._rows, self._next, strict=True):
            row.append(token)

    def _choose(self, logits: Array, row: list[int], place: int, options: SearchOptions) -> int:
        guide, ends = self._guides[place] if self._guides else None, self._decoder.end_tokens
        if guide is None:
            token = taken(logits, row, options, ends, self._random)
        else:
            token = chosen(guide.allowed(penalized(logits, row, options, ends)), options, self._random)
        is_end = token in ends
        if guide is not None and not (is_end and len(self._rows) == 1):
            guide.take(token)
            self._guided[place].append(len(row))
        self._ended[place] = is_end or (guide is not None and guide.has_ended)
        return token

    def _step_beams(self, logits: Array) -> None:
        count, tokens, origins = self._options.num_beams, [], []
        followed = [beams.copied() for beams in self._beams]  # a step that fails leaves all rows as they were
        for place, beams in enumerate(followed):
            part = logits[place * count : (place + 1) * count]
            shaped = np.stack([
                penalized(each, row, self._options, self._decoder.end_tokens)
                for each, row in zip(part, beams.tokens, strict=True)
            ])  # fmt: skip
            found, froms = beams.step(shaped, self._options, self._decoder.end_tokens, self._decoder.pad_token)
            tokens += found
            origins += [place * count + each for each in froms]
        self._state.reorder(np.array(origins))
        self._beams, self._next, self._logits = followed, tokens, None
        for place, beams in enumerate(followed):
            self._rows[place].append(tokens[place * count])
            self._ended[place] = beams.is_done

    def _known_logits(self) -> Array:
        """Return logits of the rows, reading what was chosen last where that is not done."""
        if self._logits is None:
            if not self._rows or not self._rows[0]:
                raise InvalidGeneration("logits are not computed yet: append tokens first")
            last = self._next if self._beams else [row[-1] for row in self._rows]
            if self._ahead is not None and self._ahead.size:
                room = self._options.max_length - len(self._rows[0]) - 1
                self._logits = self._ahead.logits(self._state, self._rows[0], room)[None]
            else:
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
        given = numbers("set_logits()", "logits", logits).astype(np.float32)
        if given.size != self._logits.size:
            raise InvalidGeneration(
                f"logits of shape {given.shape}, expected {(len(self._logits), 1, self._logits.shape[1])}"
            )
        self._logits = given.reshape(self._logits.shape).copy()

    def get_input(self, name: str) -> Array:
        """Return a copy of what the last run was fed, or of a cache.

        Raises:
            InvalidGeneration: there is no such input.
        """
        found = self._state.last_feeds.get(name)
        found = self._state.cache(name) if found is None else found
        if found is None:
            raise InvalidGeneration(f"Generator input '{name}' was not found.")
        if name == self._decoder.mask:  # it may be as long as the caches
            found = found[:, : max(self._state.lengths)]
        return found.copy()

    def get_output(self, name: str) -> Array:
        """Return a copy of what the last run gave.

        Raises:
            InvalidGeneration: there is no such output.
        """
        found = self._state.all_logits() if name == self._decoder.logits else self._state.cache(name)
        found = self._state.last_outputs.get(name) if found is None else found
        if found is None:
            raise InvalidGeneration(f"Generator output '{name}' was not found.")
        return found.copy()

    # ------------------------------------------------------------ changing

    def rewind_to(self, length: int) -> None:
        """Forget the tokens behind a length.

        Raises:
            InvalidGeneration: the rows are shorter, or beams are followed, or rows were padded.
        """
        if length < 0:
            raise TypeError(f"rewind_to() takes a length from 0 on, not {length}")
        if not 0 <= length <= self.token_count():
            raise InvalidGeneration(
                f"Cannot rewind to a length greater than the current sequence length: {length} is none of 0 to "
                f"{self.token_count()}"
            )
        if self._beams:
            raise InvalidGeneration("beams cannot be rewound")
        if length and self._has_padding:
            raise InvalidGeneration("rows that were padded can be rewound to 0 only")
        if self._ahead is not None:
            self._ahead.clear()
        for place, row in enumerate(self._rows):
            self._lead_back(place, length)
            del row[length:]
            self._state.rewind(place, max(length - 1, 0))
            self._ended[place] = bool(self._guides) and self._guides[place].has_ended
        self._logits = None
        if not length:
            self._rows, self._guides, self._has_padding = [], [], False

    def _lead_back(self, place: int, length: int) -> None:
        """Let the guide of a row forget the tokens from a place on."""
        if self._guides:
            kept = [each for each in self._guided[place] if each < length]
            self._guides[place].back(len(self._guided[place]) - len(kept))
            self._guided[place] = kept

    def snapshot_state(self) -> None:
        """Do nothing: every length can be rewound to."""

    def set_active_adapter(self, adapters: Adapters, name: str) -> None:
        """Run with an adapter from now on.

        Raises:
            InvalidGeneration: none has this name.
        """
        options, before = self._decoder.new_run_options(), self._state.run_options
        options.terminate = before is not None and before.terminate
        demand("set_active_adapter()", "adapters", adapters, Adapters)
        options.add_active_adapter(adapters.find(name))
        self._drop_guesses()
        self._state.run_options = options

    def set_runtime_option(self, key: str, value: str) -> None:
        """Set ``terminate_session`` to ``1`` to end runs, or to ``0`` to allow them.

        Raises:
            InvalidGeneration: there is no such option.
        """
        for name, given in (("key", key), ("value", value)):
            demand("set_runtime_option()", name, given, str)
        if key != "terminate_session" or value not in ("0", "1"):
            raise InvalidGeneration(f"runtime option {key!r} = {value!r}; expected terminate_session = 0 or 1")
        options = self._state.run_options or self._decoder.new_run_options()
        options.terminate = value == "1"
        self._state.run_options = options

    def set_inputs(self, inputs: Mapping[str, object]) -> None:
        """Read ``input_ids`` among named tensors, with the images or sounds that stand beside them.

        ``model.create_multimodal_processor()`` gives such tensors; inputs of the graph by their names are taken, too.

        Raises:
            InvalidGeneration: one is neither an input of the graph nor what the model sees or hears.
        """
        demand("set_inputs()", "inputs", inputs, Mapping)
        given = {name: as_array(value) for name, value in inputs.items()}
        named = [name for name in ("input_ids", "decoder_input_ids", self._decoder.tokens) if name in given]
        if not named:
            raise InvalidGeneration(f"inputs {', '.join(given)}; {self._decoder.tokens} is not among them")
        tokens = given.pop(named[0])
        if self._model.encoder is not None and self._model.encoder.features in given:
            self._hear(given.pop(self._model.encoder.features))
        if self._model.vision is not None and self._model.vision.pixels in given:
            self._see(given.pop(self._model.vision.pixels), tokens)
        for name, value in given.items():
            if name not in UNREAD:
                self.set_model_input(name, value)
        self.append_tokens(tokens)

    def _hear(self, features: Array) -> None:
        encoder, rows = self._model.encoder, self._options.batch_size
        if encoder is None or len(features) != rows:
            raise InvalidGeneration(f"audio features of {len(features)} sounds for batch_size {rows}")
        for name, value in encoder.inputs_of(features).items():
            self.set_model_input(name, value)

    def _see(self, pixels: Array, tokens: Array) -> None:
        """Let each row have the vectors of its images, in the order of its tokens."""
        vision, table = self._model.vision, self._decoder.table
        if vision is None or table is None:
            raise InvalidGeneration("the folder has a vision part and no embedding part, which it needs")
        found = vision.features_of(pixels) if len(pixels) else np.zeros((0, 1), np.float32)
        rows = np.asarray(tokens).reshape(self._options.batch_size, -1)
        counts = (rows == table.image_token).sum(axis=1)
        if counts.sum() != len(found):
            raise InvalidGeneration(
                f"the prompt has {counts.sum()} tokens that stand for images, and the images have {len(found)} vectors"
            )
        parts = np.split(found, np.cumsum(counts)[:-1])
        for place, inputs in enumerate(self._state.inputs):
            inputs.features, inputs.places = parts[place // self._options.num_beams], []

    def set_model_input(self, name: str, value: Array) -> None:
        """Feed an input of the graph, (rows, …), from now on.

        Raises:
            InvalidGeneration: the graph has no such input, or it has another type, or the rows are others.
        """
        if name not in self._decoder.further:
            known = ", ".join(self._decoder.further) or "none"
            raise InvalidGeneration(
                f"the graph has no input {name!r} beside tokens, masks, positions and caches; it has {known}"
            )
        given, stated = as_array(value), self._decoder.further[name].type
        if stated in FLOATS:
            given = given.astype(FLOATS[stated], copy=False)
        rows = self._options.batch_size
        if given.ndim and len(given) != rows:
            raise InvalidGeneration(f"input {name!r} of shape {given.shape}, expected {rows} rows")
        self._drop_guesses()
        for place, inputs in enumerate(self._state.inputs):
            row = place // self._options.num_beams
            inputs.further[name] = given[row : row + 1] if given.ndim else given

    def set_hidden_states(self, hidden_states: Array) -> None:
        """Feed ``hidden_states``, (rows, …), to a graph that takes them.

        Raises:
            InvalidGeneration: the graph has no such input.
        """
        self.set_model_input("hidden_states", hidden_states)

    def get_speculative_stats(self) -> dict[str, object]:
        """Return what guesses did so far."""
        return (self._ahead.stats if self._ahead is not None else SpeculativeStats()).as_dict()
