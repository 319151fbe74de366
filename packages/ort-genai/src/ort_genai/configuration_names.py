"""Every name that ``genai_config.json`` may have, section by section, and what a name that is not run is told of."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from ort_core.errors import did_you_mean
from ort_genai.errors import InvalidModelFolder
from ort_genai.search_options import SEARCH_NAMES

log = logging.getLogger(__name__)
_LONGEST = 80  # characters of a name that are told
Names: TypeAlias = Mapping[str, "Names | None"]  # None: a value, or a section of any names


def _values(text: str) -> dict[str, Names | None]:
    return dict.fromkeys(text.split())


_GRAPH: Names = _values("filename session_options run_options")
_CACHES_IN = "past_key_names past_value_names past_key_scale_names past_value_scale_names"
_CACHES_OUT = "present_key_names present_value_names present_key_scale_names present_value_scale_names"
_SIZES = _values("hidden_size num_attention_heads num_hidden_layers num_key_value_heads head_size")
_FEW_INPUTS = _values(f"input_ids hidden_states attention_mask position_ids {_CACHES_IN}")

_DECODER: Names = {
    **_GRAPH, **_SIZES,
    **_values(
        "pipeline layer_types shared_initializers state_groups state_update_capacity conv_cache_size ple_token_pad_id"
    ),
    "sliding_window": _values(
        "window_size pad_value alignment slide_key_value_cache slide_inputs cache_slack layers"
    ),
    "inputs": {
        **_FEW_INPUTS,
        **_values(
            "inputs_embeds past_names cross_past_key_names cross_past_value_names past_sequence_length "
            "current_sequence_length total_sequence_length encoder_hidden_states encoder_attention_mask "
            "rnn_states_prev past_key_values_length cache_indirection cumulative_sequence_lengths "
            "past_sequence_lengths block_table block_table_windowed attention_metadata past_conv_names "
            "past_recurrent_names past_ple_token_names past_ple_conv_names past_indexer_names "
            "state_update_capture_count state_update_active targets targets_length lstm_hidden_state "
            "lstm_cell_state per_layer_inputs"
        ),
    },
    "outputs": _values(
        f"logits {_CACHES_OUT} present_names output_cross_qk_names rnn_states present_conv_names "
        "present_recurrent_names present_ple_token_names present_ple_conv_names present_indexer_names "
        "state_update_conv_value_names state_update_recurrent_capsule_names hidden_states aux_hidden_states "
        "outputs outputs_length lstm_hidden_state lstm_cell_state"
    ),
}  # fmt: skip

_ENCODER: Names = {
    **_GRAPH, **_SIZES,
    "inputs": _values(
        "input_ids inputs_embeds attention_mask position_ids audio_features input_lengths cache_last_channel "
        "cache_last_time cache_last_channel_len lang_id"
    ),
    "outputs": _values(
        "encoder_hidden_states encoder_outputs output_lengths cache_last_channel_next cache_last_time_next "
        "cache_last_channel_len_next cross_present_key_names cross_present_value_names"
    ),
}  # fmt: skip

_VISION: Names = {
    **_GRAPH,
    **_values(
        "config_filename adapter_filename spatial_merge_size tokens_per_second patch_size num_visual_tokens "
        "window_size num_position_embeddings pipeline tokens_per_image image_token_id"
    ),
    "inputs": _values(
        "pixel_values pixel_position_ids image_sizes image_grid_thw attention_mask pos_embed_indices "
        "pos_embed_weights vision_cos vision_sin vision_attention_bias"
    ),
    "outputs": _values("image_features"),
}

_EMBEDDING: Names = {
    **_GRAPH,
    "inputs": _values("input_ids image_features audio_features"),
    "outputs": _values("inputs_embeds per_layer_inputs"),
}

_MTP: Names = {
    **_GRAPH, **_SIZES, **_values("main_hidden_states shared_initializers"),
    "inputs": _FEW_INPUTS, "outputs": _values(f"logits hidden_states {_CACHES_OUT}"),
}  # fmt: skip

_MODEL: Names = {
    **_values(
        "type tokenizer_dir vocab_size context_length pad_token_id eos_token_id bos_token_id decoder_start_token_id "
        "sep_token_id image_token_id audio_token_id boa_token_id video_token_id vision_start_token_id bot_token_id "
        "eot_token_id bor_token_id eor_token_id num_mels fft_size hop_length win_length preemph log_eps norm_eps "
        "subsampling_factor left_context conv_context pre_encode_cache_size sample_rate chunk_samples blank_id "
        "max_symbols_per_step left_context_samples right_context_samples tdt_durations speech joiner vad moonshine "
        "dflash2 dspark"
    ),
    "decoder": _DECODER, "draft": _DECODER, "encoder": _ENCODER, "vision": _VISION, "embedding": _EMBEDDING,
    "mtp": _MTP,
}  # fmt: skip

NAMES: Names = {
    "model": _MODEL,
    "search": _values(" ".join(SEARCH_NAMES)),
    "speculative": _values("max_draft_tokens ngram_size ngram_chained_lookup min_adaptive_k cooldown"),
    "engine": {
        "dynamic_batching": _values("block_size num_blocks gpu_utilization_factor max_batch_size max_scheduled_tokens"),
        "static_batching": _values("max_batch_size"),
    },
}

_HEARS = "sound is heard as a Whisper hears it, and by no other kind of model"
_GUESSES = "text is the same without it: og.ModelDrafter and og.NgramDrafter guess tokens ahead"
_BLOCKS = "num_blocks bounds og.Engine, og.EngineOptions(cache_bytes=…) og.AsyncEngine, and blocks need no GPU"
_WITHOUT_EFFECT = {
    "model.speech": _HEARS, "model.joiner": _HEARS, "model.vad": _HEARS,
    "model.draft": _GUESSES, "model.dflash2": _GUESSES, "model.dspark": _GUESSES,
    "model.vision.adapter_filename": "load its weights by og.Adapters, where the decoder takes them",
    "model.decoder.shared_initializers": "each graph reads its own weights",
    "engine.dynamic_batching.gpu_utilization_factor": _BLOCKS,
    "engine.dynamic_batching.max_scheduled_tokens": "prompts are read 256 tokens at a time",
}  # fmt: skip


def check_names(stated: Mapping[str, object], known: Names = NAMES, path: str = "") -> None:
    """Refuse names that there are not, as onnxruntime-genai does; those without effect are told in the log.

    Args:
        stated: a section.
        known: its names.
        path: of the section, with a dot behind it; empty: the whole.

    Raises:
        InvalidModelFolder: a name is unknown.
    """
    for name, value in stated.items():
        if name not in known:
            if not path and not isinstance(value, Mapping):
                continue  # a remark: onnxruntime-genai leaves values beside the sections alone
            where = f"{path.removesuffix('.')}: " if path else ""
            told = name[:_LONGEST]
            raise InvalidModelFolder(
                f'genai_config.json: {where}Unknown value "{told}".{did_you_mean(told, list(known))}'
            )
        inner = known[name]
        if inner is not None and isinstance(value, Mapping):
            check_names(value, inner, f"{path}{name}.")


def tell_without_effect(stated: Mapping[str, object]) -> None:
    """Write a line of the log for each name that is known, stated and changes nothing here."""
    for path, reason in _WITHOUT_EFFECT.items():
        if any(True for _ in _found(stated, path.split("."))):
            log.warning("genai_config.json: %s has no effect: %s", path, reason)


def _found(stated: Mapping[str, object], path: list[str]) -> Iterator[object]:
    value: object = stated
    for name in path:
        if not isinstance(value, Mapping) or value.get(name) is None:
            return
        value = value[name]
    yield value
