"""The session of a decoder: what its graph takes and gives, by the names that the folder states."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

import ort_core
from ort_genai.appended_state import AppendedState
from ort_genai.configuration import Config
from ort_genai.decoder_states import DecoderState, SharedState
from ort_genai.element_types import CACHES
from ort_genai.errors import GenerationFailed, InvalidGeneration, InvalidModelFolder, raised_as
from ort_genai.graph_wiring import Wiring, find_wiring
from ort_genai.mask_use import takes_lengths_alone
from ort_genai.paging.equal_rows import EqualRows
from ort_genai.paging.paged_decoder import PagedDecoder, open_paged
from ort_genai.paging.paged_inputs import WANTED
from ort_genai.prompt_parts import FEW_ROWS, PRODUCT, operators_of_few_bits
from ort_genai.session_options import open_made, open_part, open_rewired, part_source, run_options
from ort_genai.token_table import TokenTable, texts_of
from ort_genai.wanted_rows import NotGathered, with_wanted_rows

log = logging.getLogger(__name__)

Array = np.ndarray
_TOKEN_TYPES = {"tensor(int32)": np.int32}


@dataclass(frozen=True, slots=True)
class CacheNames:
    """Where a cache goes in and comes out, and what it holds: heads and elements of a head."""

    past: str
    present: str
    heads: int
    size: int
    dtype: np.dtype


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
        self._config = config
        self._model = part_source(config, "decoder", "model.onnx")
        wiring = find_wiring(self._model)
        session = self._open(wiring)
        self._session: ort_core.InferenceSession | None = session
        self.run_options = run_options(stated.get("run_options"))
        self.providers = session.get_providers()
        self.outputs = frozenset(each.name for each in session.get_outputs())
        self._inputs = {each.name: each for each in session.get_inputs()}
        inputs, outputs = texts_of(stated, "inputs"), texts_of(stated, "outputs")
        embeds = inputs.get("inputs_embeds", "inputs_embeds")
        self.table = TokenTable(config) if embeds in self._inputs and config.part("embedding") else None
        self.tokens = embeds if self.table is not None else inputs.get("input_ids", "input_ids")
        self.logits = outputs.get("logits", "logits")
        if self.tokens not in self._inputs or self.logits not in self.outputs:
            raise InvalidModelFolder(
                f"the graph of the decoder has no input {self.tokens!r} or no output {self.logits!r}; it has "
                f"{', '.join(list(self._inputs)[:4])}, …"
            )
        self._token_type = _TOKEN_TYPES.get(self._inputs[self.tokens].type, np.int64)
        self.mask = self._known(inputs.get("attention_mask", "attention_mask"))
        self.positions = self._known(inputs.get("position_ids", "position_ids"))
        self.vocab_size, self.context_length = config.number("vocab_size"), config.number("context_length")
        self._hidden = config.size("hidden_size") if self.table is not None else 0
        self.end_tokens = config.end_tokens
        self.pad_token = config.number("pad_token_id") if isinstance(config.model.get("pad_token_id"), int) else 0
        self.shares_caches = bool(config.search.get("past_present_share_buffer", False)) and self.mask is not None
        self.caches = self._cache_names(config, inputs, outputs)
        self.takes_long_masks = self.mask is not None and takes_lengths_alone(wiring, self.mask)
        self._few_bits = operators_of_few_bits(wiring)
        self.gathers = WANTED in self._inputs
        self._gives_all = not self.gathers
        known = {self.tokens, self.mask, self.positions, WANTED, *(each.past for each in self.caches)}
        self.further = {name: each for name, each in self._inputs.items() if name not in known}
        main = config.part("mtp").get("main_hidden_states")
        told = [*outputs.values(), *([main] if isinstance(main, str) else ())]
        own = self.outputs - {self.logits}
        self.told = tuple(dict.fromkeys(name for name in told if name in own))

    def token_feed(self, rows: int, count: int) -> Array:
        """Return an array of what the graph reads for tokens (rows, count): them, or their vectors."""
        if self.table is None:
            return np.zeros((rows, count), self._token_type)
        width = self._inputs[self.tokens].shape[-1]
        return np.zeros((rows, count, width if isinstance(width, int) else self._hidden), self.table.dtype)

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
                found.append(self._cache(config, past, present))
        return found

    def _cache(self, config: Config, past: str, present: str) -> CacheNames:
        """Return what a cache holds.

        Raises:
            InvalidModelFolder: the graph does not take it, or does not give it back.
        """
        given = self._inputs.get(past)
        if given is None or given.type not in CACHES or len(given.shape) != 4:
            raise InvalidModelFolder(
                f"the graph has no cache {past!r} of floats or int8 and four axes, which genai_config.json names"
            )
        if present not in self.outputs:
            raise InvalidModelFolder(f"the graph has no output {present!r}, which genai_config.json names for a cache")
        heads: object = given.shape[1]
        size: object = given.shape[3]
        if not isinstance(heads, int):
            heads = config.decoder.get("num_key_value_heads")
        if not isinstance(size, int):
            size = config.decoder.get("head_size")
        if not isinstance(heads, int) or not isinstance(size, int):
            raise InvalidModelFolder(f"neither the graph nor genai_config.json says how large {past!r} is")
        return CacheNames(past, present, heads, size, np.dtype(CACHES[given.type]))

    def _open(self, wiring: Wiring | None) -> ort_core.InferenceSession:
        """Return a session of the graph; of the tokens that are asked for alone it gives logits, where that fits."""
        config = self._config
        inputs, outputs = texts_of(config.decoder, "inputs"), texts_of(config.decoder, "outputs")
        tokens = inputs.get("inputs_embeds", "inputs_embeds"), inputs.get("input_ids", "input_ids")
        try:
            if wiring is None:
                raise NotGathered("its graph is large, with weights within, or no file of ONNX")
            _refuse_sessions(config)
            model = with_wanted_rows(self._bytes(), wiring, tokens, outputs.get("logits", "logits"))
            return open_rewired(config, "decoder", self._model, model)
        except (NotGathered, InvalidModelFolder) as refusal:
            log.info("a prompt gives the logits of all of its tokens, and not of the last ones alone: %s", refusal)
        return open_part(config, "decoder", "model.onnx")

    def _bytes(self) -> bytes:
        return self._model if isinstance(self._model, bytes) else self._model.read_bytes()

    def rows_of_logits(self, tokens: int) -> int:
        """Return of how many tokens of a part of a prompt, the last ones, logits are computed, though one is asked for.

        A product takes one row, and maybe few rows, in another arithmetic than many: it gets more than few where there
        are as many tokens, so that the numbers are those that it gives of all.
        """
        return tokens if self._gives_all else min(tokens, FEW_ROWS + 1)

    def give_all(self) -> None:
        """Compute logits of all tokens of prompts from now on: somebody has asked for them."""
        self._gives_all = True

    @property
    def rows_of_step(self) -> int | None:
        """The most rows of one run of a step, where more may give other numbers; ``None``: any number."""
        return FEW_ROWS if self._few_bits else None

    def rows_of_run(self, tokens: int, wanted: int) -> int | None:
        """Return the most tokens of one run over blocks, where more give other numbers; ``None``: any number.

        Args:
            tokens: that there are; of few nothing is to be found out.
            wanted: of how many of them logits are.
        """
        most = self.rows_of_step
        is_equal = most is not None and tokens > most and self._may_mix(wanted)
        return None if is_equal else most

    def mixes(self, rows: int) -> bool:
        """Return whether a part of a prompt may be read in the run of a step of so many rows: all get the same."""
        return self.rows_of_step is None or self._may_mix(rows + 1)

    def _may_mix(self, wanted: int) -> bool:
        """Return the same of logits; experts of few bits get rows of any number, which few tokens do not show."""
        return self._few_bits == {PRODUCT} and self._equal_rows is not None and self._equal_rows.may_mix(wanted)

    @cached_property
    def _equal_rows(self) -> EqualRows | None:
        return None if self.paged is None else EqualRows(self, self.paged)

    @property
    def session(self) -> ort_core.InferenceSession:
        """The session of the graph as it is, opened again if it was let go of."""
        if self._session is None:
            self._session = self._open(find_wiring(self._model))
        return self._session

    def release_session(self) -> None:
        """Let go of the session, and of its weights with it where no state has it, until somebody asks for it again."""
        self._session = None

    @property
    def source(self) -> Path | bytes:
        """What the graph was read from."""
        return self._model

    @cached_property
    def paged(self) -> PagedDecoder | None:
        """This decoder over caches of blocks; ``None`` where its graph does not fit."""
        return open_paged(self)

    def open_like(self, model: bytes) -> ort_core.InferenceSession:
        """Return a session of another graph with this one's weights and options."""
        return open_made(self._config, "decoder", "model.onnx", model)

    def new_run_options(self) -> ort_core.RunOptions:
        """Return options of runs as the folder states them."""
        return ort_core.RunOptions() if self.run_options is None else self.run_options.copy()

    def new_state(self, longest: int | None = None) -> DecoderState:
        """Return a state without rows, which will have so many tokens at most; ``None``: the model's context."""
        return SharedState(self, longest) if self.shares_caches else AppendedState(self, longest)

    def run_alone(self, tokens: Array, output: str) -> Array:
        """Return an output (1, n, …) of tokens (n,) that nothing stands before, in one run without a state."""
        count = len(tokens)
        feeds: dict[str, Array] = {self.tokens: tokens[None]}
        if self.mask is not None:
            feeds[self.mask] = np.ones((1, count), np.int64)
        if self.positions is not None:
            feeds[self.positions] = np.arange(count)[None]
        if self.gathers:
            feeds[WANTED] = np.arange(count) if output == self.logits else np.array([count - 1])
        empty = {each.past: np.zeros((1, each.heads, 0, each.size), each.dtype) for each in self.caches}
        with raised_as(GenerationFailed):
            return np.asarray(self.session.run([output], {**feeds, **empty})[0])

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


def _refuse_sessions(config: Config) -> None:
    """Refuse to change the graph of sessions that run elsewhere, or that write what they run.

    Raises:
        NotGathered: the session is such a one.
    """
    first, stated = config.providers[0][0], config.decoder.get("session_options")
    if first != "CPUExecutionProvider":
        raise NotGathered(f"it is for {first}, and this is for processors alone here")
    if isinstance(stated, Mapping) and any(str(name).startswith("ep.context") for name in stated):
        raise NotGathered("its session writes a compiled model, which is to be that of the file")


def _refuse_others(stated: Mapping[str, object]) -> None:
    """Refuse folders whose decoder is run in ways that this one is not."""
    if "pipeline" in stated:
        raise InvalidModelFolder("genai_config.json has a decoder of several sessions (pipeline), which cannot be run")
    sliding = stated.get("sliding_window")
    if isinstance(sliding, dict) and (sliding.get("slide_key_value_cache") or sliding.get("slide_inputs")):
        raise InvalidModelFolder(
            "genai_config.json has caches or inputs that slide (model.decoder.sliding_window), which cannot be run"
        )
