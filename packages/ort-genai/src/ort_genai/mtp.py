"""Multi-token prediction: a small head guesses what the model takes next, from the model's own vectors.

The head reads, at each place, the model's vector there and the token behind it, and gives logits of the token behind
that one. What it guesses is read by the model in one run, and kept as far as the model takes it, too.
"""

from __future__ import annotations

import numpy as np

from ort_genai.arguments import demand, numbers
from ort_genai.errors import InvalidGeneration
from ort_genai.generator import GeneratorParams
from ort_genai.model import Model
from ort_genai.sampling import chosen, penalized
from ort_genai.speculative_stats import SpeculativeStats
from ort_genai.token_table import texts_of

Array = np.ndarray


class MtpGenerator:
    """One generation of one row; its texts are those of a ``Generator`` without a head.

    Args:
        main: gives vectors beside logits: ``model.mtp.main_hidden_states`` names that output.
        head: takes tokens and vectors, and gives logits and, for more than one guess, vectors again.
        params: options; ``max_draft_tokens`` guesses are made at once.

    Raises:
        InvalidGeneration: the models do not fit each other, or the options are not those of one free row.
    """

    def __init__(self, main: Model, head: Model, params: GeneratorParams) -> None:
        demand("MtpGenerator()", "main", main, Model)
        demand("MtpGenerator()", "head", head, Model)
        demand("MtpGenerator()", "params", params, GeneratorParams)
        self._main, self._head, self._options = main, head, params.options
        name = main.config.part("mtp").get("main_hidden_states")
        if not isinstance(name, str) or name not in main.decoder.told:
            raise InvalidGeneration("MtpGenerator: model.mtp.main_hidden_states must name a main-model output")
        stated = main.config.part("mtp")
        self._vectors, self._taken = name, texts_of(stated, "inputs").get("hidden_states", "hidden_states")
        self._given = texts_of(stated, "outputs").get("hidden_states", "hidden_states_out")
        self._check(params)
        self._most = params.drafting.max_draft_tokens if self._feeds_back else min(params.drafting.max_draft_tokens, 1)
        self._stats = SpeculativeStats()
        self.reset()

    def _check(self, params: GeneratorParams) -> None:
        options = params.options
        if (options.batch_size, options.num_beams, options.num_return_sequences) != (1, 1, 1):
            raise InvalidGeneration("MtpGenerator supports only batch_size=1, num_beams=1, and num_return_sequences=1")
        if params.grammar is not None:
            raise InvalidGeneration("MtpGenerator does not support guided generation")
        if self._main.decoder.vocab_size != self._head.decoder.vocab_size:
            raise InvalidGeneration("MtpGenerator requires matching main-model and MTP-head vocabulary sizes")
        if self._taken not in self._head.decoder.further:
            raise InvalidGeneration("model.mtp.inputs.hidden_states must name an MTP-head input.")

    @property
    def _feeds_back(self) -> bool:
        return self._given in self._head.decoder.told

    def reset(self) -> None:
        """Forget all that was read and said."""
        self._state, self._head_state = self._main.decoder.new_state(), self._head.decoder.new_state()
        self._state.add_row()
        self._head_state.add_row()
        self._tokens: list[int] = []
        self._queue: list[int] = []  # taken by the model, not told yet
        self._last: Array | None = None  # vectors of the places that the head has not read
        self._has_ended = False
        seed = self._options.random_seed
        self._random = np.random.Generator(np.random.PCG64(None if seed < 0 else seed))

    def append_tokens(self, tokens: object) -> None:
        """Read a prompt (n,).

        Raises:
            InvalidGeneration: one was read already, or the tokens do not fit.
        """
        if self._tokens:
            raise InvalidGeneration("MtpGenerator: AppendTokens can only be called once")
        given = numbers("append_tokens()", "tokens", tokens).reshape(-1)
        if not given.size:
            raise InvalidGeneration("input_ids is empty")
        self._main.decoder.check(given)
        if given.size >= self._options.max_length:
            raise InvalidGeneration(f"{given.size} tokens; max_length is {self._options.max_length}")
        logits = self._state.read_all(0, given.astype(np.int64))
        self._tokens, self._last = [int(each) for each in given], self._state.last_outputs[self._vectors][0]
        self._take(logits[-1])

    def generate_next_token(self) -> None:
        """Say a further token.

        Raises:
            InvalidGeneration: nothing was read, or the text has ended.
        """
        if not self._tokens:
            raise InvalidGeneration("MtpGenerator: AppendTokens must be called before GenerateNextToken")
        if self.is_done():
            raise InvalidGeneration("GenerateNextToken called on a text that has ended")
        if not self._queue:
            self._round()
        self._tokens.append(self._queue.pop(0))

    def is_done(self) -> bool:
        """Return whether the text has ended, or is as long as it may be."""
        if not self._tokens:
            return False
        return not self._queue and (self._has_ended or len(self._tokens) >= self._options.max_length)

    def get_sequence(self) -> Array:
        """Return int32 tokens of the prompt and the text."""
        return np.array(self._tokens, np.int32)

    def get_stats(self) -> dict[str, object]:
        """Return what guesses did so far."""
        return self._stats.as_dict()

    def _take(self, logits: Array) -> int:
        """Let the model choose a token of logits (vocabulary,)."""
        ends, said = self._main.decoder.end_tokens, [*self._tokens, *self._queue]
        token = chosen(penalized(logits, said, self._options, ends), self._options, self._random)
        self._queue.append(token)
        self._has_ended = token in ends or len(said) + 1 >= self._options.max_length
        return token

    def _round(self) -> None:
        """Guess, read the guesses, and keep those that the model takes, too; nothing is kept where that fails."""
        try:
            with self._state.as_one(), self._head_state.as_one():
                self._guess_and_read()
        except BaseException:
            self._queue, self._has_ended = [], False
            raise

    def _guess_and_read(self) -> None:
        last = self._tokens[-1]
        room = self._options.max_length - len(self._tokens) - 1
        guesses = self._guesses(last)[: max(room, 0)]
        start = len(self._tokens) - 1  # places that the model has read
        logits = self._state.read_all(0, np.array([last, *guesses], np.int64))
        vectors = self._state.last_outputs[self._vectors][0]
        accepted = 0
        for guess, found in zip(guesses, logits, strict=False):
            if self._take(found) != guess or self._has_ended:
                break
            accepted += 1
        else:
            self._take(logits[len(guesses)])
        self._stats.count_round(len(guesses), accepted)
        self._state.rewind(0, start + 1 + accepted)
        self._last = vectors[: 1 + accepted]

    def _guesses(self, last: int) -> list[int]:
        """Return what the head takes behind the last token, having read all before it."""
        if self._last is None or not self._most:
            return []
        state, decoder = self._head_state, self._head.decoder
        done = state.lengths[0]
        behind = [*self._tokens[done + 1 :]]  # the token behind each vector that was not read yet
        logits = self._read(behind, self._last[len(self._last) - len(behind) :])
        found, length = [int(logits.argmax())], state.lengths[0]
        while len(found) < self._most:
            vector = np.asarray(state.last_outputs[self._given])[0, -1:]
            found.append(int(self._read(found[-1:], vector).argmax()))
        state.rewind(0, length)
        decoder.check(np.array(found))
        return found

    def _read(self, tokens: list[int], vectors: Array) -> Array:
        state = self._head_state
        state.inputs[0].further[self._taken] = vectors[None]
        return state.read_all(0, np.array(tokens, np.int64))[-1]
