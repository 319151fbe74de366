"""What lies beside Whisper's parts for programs that generate with them: from sound to spectra, and files' names."""

from __future__ import annotations

from typing import Any

import numpy as np

_WINDOW, _HOP, _SECONDS = 400, 160, 30  # of Whisper's spectra: samples, samples, and the length of all sounds
_KEYS, _CROSS_KEYS = "past_key_self_%d", "past_key_cross_%d"


def audio_processing(bands: int) -> dict[str, Any]:
    """Return the steps from a file of sound to a spectrum, as onnxruntime-genai's processors read them."""
    window = np.hanning(_WINDOW + 1)[:-1].astype(np.float32).tolist()
    spectrum = {"n_fft": _WINDOW, "frame_length": _WINDOW, "hop_length": _HOP, "_comment": window}
    scale = {"chunk_size": _SECONDS, "hop_length": _HOP, "n_fft": _WINDOW, "n_mel": bands}
    steps = [
        {"name": "audio_decoder", "type": "AudioDecoder"},
        {"name": "STFT", "type": "STFTNorm", "attrs": spectrum},
        {"name": "log_mel_spectrogram", "type": "LogMelSpectrum", "attrs": scale},
    ]
    return {"feature_extraction": {"sequence": [{"operation": each} for each in steps]}}


def genai_configuration(config: Any, *, encoder: str, decoder: str, provider: str) -> dict[str, Any]:
    """Return ``genai_config.json`` for an encoder and a decoder whose caches come layer by layer."""
    length = config.max_target_positions
    options = {"log_id": "onnxruntime-genai", "provider_options": [] if provider == "cpu" else [{provider: {}}]}
    decoder_inputs = {
        "input_ids": "input_ids",
        "past_key_names": _KEYS,
        "past_value_names": _KEYS.replace("key", "value"),
        "cross_past_key_names": _CROSS_KEYS,
        "cross_past_value_names": _CROSS_KEYS.replace("key", "value"),
    }
    present = [name.replace("past", "present") for name in (_KEYS, _KEYS.replace("key", "value"))]
    crossed = [name.replace("past", "present") for name in (_CROSS_KEYS, _CROSS_KEYS.replace("key", "value"))]
    decoder_outputs = {"logits": "logits", "present_key_names": present[0], "present_value_names": present[1]}
    encoder_outputs = {
        "encoder_hidden_states": "encoder_hidden_states",
        "cross_present_key_names": crossed[0],
        "cross_present_value_names": crossed[1],
    }
    search = {
        "diversity_penalty": 0.0, "do_sample": False, "early_stopping": True, "length_penalty": 1.0,
        "max_length": length, "min_length": 0, "no_repeat_ngram_size": 0, "num_beams": 1, "num_return_sequences": 1,
        "past_present_share_buffer": False, "repetition_penalty": 1.0, "temperature": 1.0, "top_k": 1, "top_p": 1.0,
    }  # fmt: skip

    def part(name: str, heads: int, layers: int, inputs: dict[str, str], outputs: dict[str, str]) -> dict[str, Any]:
        return {
            "session_options": options, "filename": name, "head_size": config.d_model // heads,
            "hidden_size": config.d_model, "inputs": inputs, "outputs": outputs, "num_attention_heads": heads,
            "num_hidden_layers": layers, "num_key_value_heads": heads,
        }  # fmt: skip

    return {
        "model": {
            "bos_token_id": config.bos_token_id,
            "context_length": length,
            "decoder": part(
                decoder, config.decoder_attention_heads, config.decoder_layers, decoder_inputs, decoder_outputs
            ),
            "encoder": part(
                encoder, config.encoder_attention_heads, config.encoder_layers, {"audio_features": "audio_features"},
                encoder_outputs,
            ),
            "eos_token_id": config.eos_token_id,
            "pad_token_id": config.pad_token_id,
            "type": "whisper",
            "vocab_size": config.vocab_size,
        },
        "search": search,
    }  # fmt: skip
