"""Text generation as one operator: BeamSearch, GreedySearch and Sampling over decoder bodies."""

from __future__ import annotations

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import KernelContext, SubgraphRunner, kernel
from ort_core.kernels.reference.generation.generation_decoders import Decoder, EncoderDecoder, GptDecoder
from ort_core.kernels.reference.generation.generation_scores import ScoreRules, draw, keep_nucleus, log_softmax

Optional = np.ndarray | None


def _number(value: Optional, default: float) -> float:
    return default if value is None else value.reshape(-1)[0].item()


class Hypotheses:
    """The best finished sequences of one batch entry."""

    def __init__(self, beams: int, length_penalty: float, *, early_stopping: bool) -> None:
        """Keep up to ``beams`` sequences."""
        self._beams, self._penalty, self._early = beams, length_penalty, early_stopping
        self._kept: list[tuple[float, np.ndarray]] = []
        self.done = False

    def add(self, sequence: np.ndarray, log_probability: float) -> None:
        """Add a finished sequence, ranked by log probability over length to the power of the penalty."""
        self._kept.append((log_probability / sequence.size**self._penalty, sequence))
        # Stable: of equal scores the earlier one stays.
        self._kept.sort(key=lambda item: -item[0])
        del self._kept[self._beams :]

    def close_if_complete(self, best: float, length: int) -> None:
        """Mark as done when it is full and no open beam can do better than its worst."""
        if len(self._kept) == self._beams:
            self.done = self._early or self._kept[-1][0] >= best / length**self._penalty

    def best(self, count: int) -> list[tuple[float, np.ndarray]]:
        """Return the ``count`` best."""
        return self._kept[:count]


def _build_decoder(
    model_type: int,
    bodies: tuple[SubgraphRunner, SubgraphRunner | None, SubgraphRunner | None],
    input_ids: np.ndarray,
    attention_mask: Optional,
    decoder_input_ids: Optional,
    tokens: tuple[int, int],
    beams: int,
) -> Decoder:
    decoder, first_decoder, encoder = bodies
    pad_token, start_token = tokens
    if model_type == 0:
        return GptDecoder(decoder, first_decoder, input_ids, attention_mask, pad_token, beams)
    if encoder is None:
        raise errors.InvalidArgument(f"model_type {model_type} needs the attribute encoder")
    start = decoder_input_ids
    if start is None:
        start = np.full((input_ids.shape[0], 1), start_token, np.int32)
    return EncoderDecoder(encoder, decoder, input_ids, attention_mask, start, pad_token, beams)


def _beam_search(
    decoder: Decoder,
    rules: ScoreRules,
    beams: int,
    hypotheses: list[Hypotheses],
    limits: tuple[int, int, int],
    ctx: KernelContext,
) -> list[np.ndarray]:
    """Fill the hypotheses; return the processed scores (rows, vocabulary) of each step."""
    max_length, pad_token, batch = limits
    sequences = decoder.start
    running = np.full((batch, beams), -1e9, np.float32)
    running[:, 0] = 0
    logits, history = decoder.first(), []
    first = True
    while sequences.shape[1] < max_length:
        ctx.guard.check()
        scores = rules.apply(log_softmax(logits), sequences, first=first) + running.reshape(-1, 1)
        history.append(scores)
        first = False
        vocabulary = scores.shape[1]
        flat = scores.reshape(batch, beams * vocabulary)
        top = np.argsort(-flat, axis=1, kind="stable")[:, : 2 * beams]
        tokens = np.full((batch, beams), pad_token, np.int32)
        rows = np.zeros((batch, beams), np.int64)
        for entry, found in enumerate(hypotheses):
            if found.done:
                running[entry] = 0
                continue
            _extend(entry, found, flat[entry], top[entry], sequences, (tokens, rows, running), rules.end_token)
        sequences = np.concatenate([sequences[rows.reshape(-1)], tokens.reshape(-1, 1)], axis=1)
        if all(found.done for found in hypotheses) or sequences.shape[1] >= max_length:
            break
        logits = decoder.next(tokens.reshape(-1), rows.reshape(-1))
    for entry, found in enumerate(hypotheses):
        if not found.done:
            for beam in range(beams):
                found.add(sequences[entry * beams + beam], float(running[entry, beam]))
    return history


def _extend(
    entry: int,
    found: Hypotheses,
    scores: np.ndarray,
    top: np.ndarray,
    sequences: np.ndarray,
    state: tuple[np.ndarray, np.ndarray, np.ndarray],
    end_token: int,
) -> None:
    """Choose one entry's next beams from its best candidates; finished ones become hypotheses."""
    tokens, rows, running = state
    beams = tokens.shape[1]
    vocabulary = scores.size // beams
    filled = 0
    for place, candidate in enumerate(top):
        row, token = entry * beams + int(candidate) // vocabulary, int(candidate) % vocabulary
        if token == end_token:
            if place < beams:
                found.add(sequences[row], float(scores[candidate]))
            continue
        tokens[entry, filled], rows[entry, filled], running[entry, filled] = token, row, scores[candidate]
        filled += 1
        if filled == beams:
            break
    found.close_if_complete(float(scores[top].max()), sequences.shape[1])


@kernel("BeamSearch", domain="com.microsoft")
def beam_search(
    input_ids: np.ndarray,
    max_length: np.ndarray,
    min_length: Optional,
    num_beams: np.ndarray,
    num_return_sequences: np.ndarray,
    length_penalty: Optional = None,
    repetition_penalty: Optional = None,
    vocab_mask: Optional = None,
    prefix_vocab_mask: Optional = None,
    attention_mask: Optional = None,
    decoder_input_ids: Optional = None,
    logits_processor: Optional = None,
    *,
    decoder: SubgraphRunner,
    eos_token_id: int,
    pad_token_id: int,
    decoder_start_token_id: int = -1,
    early_stopping: int = 0,
    encoder: SubgraphRunner | None = None,
    init_decoder: SubgraphRunner | None = None,
    model_type: int = 0,
    no_repeat_ngram_size: int = 0,
    vocab_size: int = -1,
    ctx: KernelContext,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The best sequences of a beam search, their scores, and every step's processed scores."""
    batch, beams, wanted = input_ids.shape[0], int(_number(num_beams, 1)), int(_number(num_return_sequences, 1))
    longest = int(_number(max_length, 0))
    if not 0 < wanted <= beams:
        raise errors.InvalidArgument(f"num_return_sequences {wanted} must be positive and at most num_beams {beams}")
    if _number(logits_processor, 0):
        raise errors.NotImplemented("BeamSearch: the logits processor for timestamps is not supported")
    rules = ScoreRules(
        eos_token_id,
        int(_number(min_length, 0)),
        _number(repetition_penalty, 1.0),
        no_repeat_ngram_size,
        vocab_mask=vocab_mask,
        prefix_mask=prefix_vocab_mask,
    )
    bodies = (decoder, init_decoder, encoder)
    tokens = (pad_token_id, decoder_start_token_id)
    model = _build_decoder(model_type, bodies, input_ids, attention_mask, decoder_input_ids, tokens, beams)
    penalty = _number(length_penalty, 1.0)
    hypotheses = [Hypotheses(beams, penalty, early_stopping=bool(early_stopping)) for _ in range(batch)]
    history = _beam_search(model, rules, beams, hypotheses, (longest, pad_token_id, batch), ctx)
    sequences = np.full((batch, wanted, longest), pad_token_id, np.int32)
    scores = np.zeros((batch, wanted), np.float32)
    for entry, found in enumerate(hypotheses):
        for place, (score, sequence) in enumerate(found.best(wanted)):
            sequences[entry, place, : sequence.size], scores[entry, place] = sequence, score
    vocabulary = history[0].shape[1] if history else 0
    steps = np.zeros((max(longest - model.start.shape[1], 0), batch, beams, vocabulary), np.float32)
    for step, values in enumerate(history):
        steps[step] = values.reshape(batch, beams, vocabulary)
    return sequences, scores, steps


def _one_by_one(
    model: Decoder, rules: ScoreRules, longest: int, tokens: tuple[int, int], pick: Picker, ctx: KernelContext
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Extend each sequence by the picked token until all have ended; return them padded, and each step's scores."""
    end_token, pad_token = tokens
    sequences, logits = model.start, model.first()
    ended = np.zeros(sequences.shape[0], bool)
    rows = np.arange(sequences.shape[0])
    history: list[np.ndarray] = []
    while sequences.shape[1] < longest:
        ctx.guard.check()
        scores = rules.apply(logits, sequences, first=not history)
        chosen, scores = pick(scores)
        history.append(scores)
        ended |= chosen == end_token
        added = np.where(ended, pad_token, chosen).astype(np.int32)
        sequences = np.concatenate([sequences, added[:, None]], axis=1)
        if ended.all() or sequences.shape[1] >= longest:
            break
        logits = model.next(added, rows)
    padding = np.full((sequences.shape[0], longest - sequences.shape[1]), pad_token, np.int32)
    return np.concatenate([sequences, padding], axis=1).astype(np.int32), history


class Picker:
    """Picks the next token of each row from its scores: the best one."""

    def __call__(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (tokens (rows,), scores as they were used)."""
        return scores.argmax(axis=1), scores


class NucleusPicker(Picker):
    """Picks by chance among the most probable tokens."""

    def __init__(
        self, top_p: float, filter_value: float, least: int, generator: np.random.Generator, *, custom: bool
    ) -> None:
        """Keep what reaches ``top_p``; 1 or more keeps all."""
        self._top_p, self._filter, self._least = top_p, filter_value, least
        self._generator, self._custom = generator, custom

    def __call__(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (tokens (rows,), filtered scores)."""
        if 0 < self._top_p < 1:
            scores = keep_nucleus(scores, self._top_p, self._filter, self._least, custom=self._custom)
        return draw(scores, self._generator), scores


@kernel("GreedySearch", domain="com.microsoft")
def greedy_search(
    input_ids: np.ndarray,
    max_length: np.ndarray,
    min_length: Optional = None,
    repetition_penalty: Optional = None,
    vocab_mask: Optional = None,
    prefix_vocab_mask: Optional = None,
    attention_mask: Optional = None,
    *,
    decoder: SubgraphRunner,
    eos_token_id: int,
    pad_token_id: int,
    decoder_start_token_id: int = -1,
    encoder: SubgraphRunner | None = None,
    init_decoder: SubgraphRunner | None = None,
    model_type: int = 0,
    no_repeat_ngram_size: int = 0,
    vocab_size: int = -1,
    ctx: KernelContext,
) -> np.ndarray:
    """Take the best token at each step."""
    rules = ScoreRules(
        eos_token_id,
        int(_number(min_length, 0)),
        _number(repetition_penalty, 1.0),
        no_repeat_ngram_size,
        vocab_mask=vocab_mask,
        prefix_mask=prefix_vocab_mask,
    )
    bodies = (decoder, init_decoder, encoder)
    start = (pad_token_id, decoder_start_token_id)
    model = _build_decoder(model_type, bodies, input_ids, attention_mask, None, start, 1)
    longest = int(_number(max_length, 0))
    return _one_by_one(model, rules, longest, (eos_token_id, pad_token_id), Picker(), ctx)[0]


@kernel("Sampling", domain="com.microsoft")
def sampling(
    input_ids: np.ndarray,
    max_length: np.ndarray,
    min_length: Optional = None,
    repetition_penalty: Optional = None,
    vocab_mask: Optional = None,
    prefix_vocab_mask: Optional = None,
    attention_mask: Optional = None,
    presence_mask: Optional = None,
    seed: Optional = None,
    *,
    decoder: SubgraphRunner,
    eos_token_id: int,
    pad_token_id: int,
    custom: int = 0,
    decoder_start_token_id: int = -1,
    encoder: SubgraphRunner | None = None,
    filter_value: float = -1.0000000200408773e20,
    init_decoder: SubgraphRunner | None = None,
    min_tokens_to_keep: int = 0,
    model_type: int = 0,
    no_repeat_ngram_size: int = 0,
    presence_penalty: float = 0.0,
    temperature: float = 1.0,
    top_p: float = 0.0,
    vocab_size: int = -1,
    ctx: KernelContext,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw each token by its probability among the most probable ones; the draws are not onnxruntime's."""
    rules = ScoreRules(
        eos_token_id,
        int(_number(min_length, 0)),
        _number(repetition_penalty, 1.0),
        no_repeat_ngram_size,
        temperature,
        presence_penalty,
        vocab_mask,
        prefix_vocab_mask,
        presence_mask,
    )
    generator = ctx.generator(None) if seed is None else np.random.default_rng(int(_number(seed, 0)))
    pick = NucleusPicker(top_p, filter_value, min_tokens_to_keep, generator, custom=bool(custom))
    bodies = (decoder, init_decoder, encoder)
    start = (pad_token_id, decoder_start_token_id)
    model = _build_decoder(model_type, bodies, input_ids, attention_mask, None, start, 1)
    longest = int(_number(max_length, 0))
    sequences, history = _one_by_one(model, rules, longest, (eos_token_id, pad_token_id), pick, ctx)
    return sequences, np.stack(history) if history else np.zeros((0, *input_ids.shape[:1], 0), np.float32)


@kernel("WhisperBeamSearch", domain="com.microsoft")
def whisper_beam_search(
    input_ids: np.ndarray,
    max_length: np.ndarray,
    min_length: Optional,
    num_beams: np.ndarray,
    num_return_sequences: np.ndarray,
    length_penalty: Optional = None,
    repetition_penalty: Optional = None,
    vocab_mask: Optional = None,
    prefix_vocab_mask: Optional = None,
    attention_mask: Optional = None,
    decoder_input_ids: Optional = None,
    logits_processor: Optional = None,
    cross_qk_layer_head: Optional = None,
    extra_decoding_ids: Optional = None,
    temperature: Optional = None,
    *,
    decoder: SubgraphRunner,
    eos_token_id: int,
    pad_token_id: int,
    beginning_timestamp_token_id: int | None = None,
    decoder_output_cross_qk: int = 0,
    decoder_start_token_id: int = -1,
    early_stopping: int = 0,
    encoder: SubgraphRunner | None = None,
    init_decoder: SubgraphRunner | None = None,
    model_type: int = 2,
    no_repeat_ngram_size: int = 0,
    no_speech_token_id: int | None = None,
    no_timestamps_token_id: int | None = None,
    start_of_lm_token_id: int | None = None,
    transcribe_token_id: int | None = None,
    translate_token_id: int | None = None,
    vocab_size: int = -1,
    ctx: KernelContext,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Beam search over speech features; the outputs of cross attention and of speech detection are not computed."""
    if decoder_output_cross_qk or any(ctx.output_present[3:]) or extra_decoding_ids is not None:
        raise errors.NotImplemented(
            "WhisperBeamSearch: cross attention, speech probabilities and extra decoding ids are not supported"
        )
    if temperature is not None and _number(temperature, 1.0) != 1.0:
        raise errors.NotImplemented("WhisperBeamSearch: only the temperature 1 is supported")
    return beam_search(
        input_ids,
        max_length,
        min_length,
        num_beams,
        num_return_sequences,
        length_penalty,
        repetition_penalty,
        vocab_mask,
        prefix_vocab_mask,
        attention_mask,
        decoder_input_ids,
        logits_processor,
        decoder=decoder,
        eos_token_id=eos_token_id,
        pad_token_id=pad_token_id,
        decoder_start_token_id=decoder_start_token_id,
        early_stopping=early_stopping,
        encoder=encoder,
        init_decoder=init_decoder,
        model_type=model_type,
        no_repeat_ngram_size=no_repeat_ngram_size,
        vocab_size=vocab_size,
        ctx=ctx,
    )
