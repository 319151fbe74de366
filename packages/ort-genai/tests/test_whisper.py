"""A Whisper built from its checkpoint hears and writes what transformers does."""

from __future__ import annotations

import io
import json
import wave
from pathlib import Path

import numpy as np
import pytest
from genai_media_models import EN, END, NO_TIMES, START, TRANSCRIBE, sound, write_whisper_checkpoint

import ort_genai as og
from ort_genai.builder.build import BuildOptions, build
from ort_genai.builder.precision_names import Precision
from ort_genai.media.log_mel import LogMel

RECORDED = json.loads(Path(__file__).with_name("expected_media.json").read_text(encoding="utf-8"))
EXPECTED = RECORDED["whisper"]
PROMPT = "<|startoftranscript|><|en|><|transcribe|><|notimestamps|>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("whisper")
    build(write_whisper_checkpoint(root / "source"), root / "built", BuildOptions(Precision.FP32))
    return root / "built"


@pytest.fixture(scope="module")
def model(folder):
    return og.Model(folder)


def wav(samples, rate=16000, width=2, channels=1):
    """Return the bytes of a WAV file."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as made:
        made.setnchannels(channels)
        made.setsampwidth(width)
        made.setframerate(rate)
        numbers = np.repeat(np.round(samples * (1 << (8 * width - 1))).astype(np.int64), channels)
        if width == 1:
            data = (numbers + 128).clip(0, 255).astype(np.uint8).tobytes()
        else:
            data = numbers.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width].tobytes()
        made.writeframes(data)
    return buffer.getvalue()


def greedy(model, inputs, batch=1, beams=1):
    params = og.GeneratorParams(model)
    params.set_search_options(batch_size=batch, num_beams=beams)
    generator = og.Generator(model, params)
    generator.set_inputs(inputs)
    while not generator.is_done():
        generator.generate_next_token()
    return [generator.get_sequence(place).tolist() for place in range(batch)]


@pytest.mark.parametrize("case", EXPECTED, ids=lambda case: f"seconds-{case['seconds']}")
def test_log_mel_frames_are_transformers(case):
    found = LogMel().features(sound(case["seed"], case["seconds"]))
    assert np.abs(found[::9, ::601].ravel() - np.array(case["features"])).max() < 2e-5


@pytest.mark.parametrize("name", ["plain", "german", "times"])
@pytest.mark.parametrize("case", EXPECTED, ids=lambda case: f"seconds-{case['seconds']}")
def test_transcribed_tokens_are_transformers(model, case, name):
    audios = og.Audios.open_bytes(wav(sound(case["seed"], case["seconds"])))
    language, task = ("de", "translate") if name == "german" else ("en", "transcribe")
    found = og.Transcriber(model).transcribe(audios, language=language, task=task, has_times=name == "times")
    assert list(found[0].tokens) == [token for token in case[name] if token != END]


def test_the_language_is_the_one_that_transformers_finds_likeliest(model):
    cases = [each for each in EXPECTED if each["seconds"] < 30]
    audios = og.Audios.open_bytes(*[wav(sound(each["seed"], each["seconds"])) for each in cases])
    found = og.Transcriber(model).transcribe(audios)
    assert [each.language for each in found] == [each["language"] for each in cases]


def test_rows_of_a_batch_write_what_each_writes_alone(model):
    contents = [wav(sound(seed, seconds)) for seed, seconds in ((1, 3.0), (2, 11.5))]
    processor = model.create_multimodal_processor()
    alone = [greedy(model, processor([PROMPT], audios=og.Audios.open_bytes(each)))[0] for each in contents]
    inputs = processor([PROMPT] * 2, audios=og.Audios.open_bytes(*contents))
    assert inputs["input_ids"].as_numpy()[0].tolist() == [START, EN, TRANSCRIBE, NO_TIMES]
    together = greedy(model, inputs, batch=2)
    assert [row[: len(one)] for row, one in zip(together, alone, strict=True)] == alone


def test_beams_hear_the_same_sound(model):
    inputs = model.create_multimodal_processor()([PROMPT], audios=og.Audios.open_bytes(wav(sound(1, 3.0))))
    found = greedy(model, inputs, beams=3)[0]
    assert found[:4] == [START, EN, TRANSCRIBE, NO_TIMES]
    assert len(found) > 4


def test_segments_have_times_in_their_order(model):
    found = og.Transcriber(model).transcribe(og.Audios.open_bytes(wav(sound(2, 11.5))), language="en", has_times=True)[
        0
    ]
    times = [time for each in found.segments for time in (each.start, each.end) if time is not None]
    assert times
    assert times == sorted(times)


def test_sound_of_more_than_one_window_is_heard_to_its_end(model):
    parts = [sound(seed, 30.0) for seed in (4, 5)]
    transcriber = og.Transcriber(model)
    whole = transcriber.transcribe(og.Audios.open_bytes(wav(np.concatenate(parts))), language="en")[0]
    alone = [transcriber.transcribe(og.Audios.open_bytes(wav(each)), language="en")[0] for each in parts]
    assert whole.tokens == alone[0].tokens + alone[1].tokens


def test_vectors_of_tokens_are_not_scaled_whatever_is_stated(tmp_path, model):
    """transformers takes ``scale_embedding``, and multiplies nothing by it."""
    source = write_whisper_checkpoint(tmp_path / "source")
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    (source / "config.json").write_text(json.dumps({**config, "scale_embedding": True}), encoding="utf-8")
    build(source, tmp_path / "built", BuildOptions(Precision.FP32))
    other, audios = og.Model(tmp_path / "built"), og.Audios.open_bytes(wav(sound(1, 3.0)))
    texts = [greedy(each, each.create_multimodal_processor()(PROMPT, audios=audios)) for each in (model, other)]
    assert texts[0] == texts[1]


def test_a_whisper_that_hears_two_seconds_hears_a_longer_sound_part_by_part(tmp_path):
    """Frames were always those of 30 seconds, which its graph does not take."""
    build(write_whisper_checkpoint(tmp_path / "source", 100), tmp_path / "built", BuildOptions(Precision.FP32))
    model = og.Model(tmp_path / "built")
    whole = og.Audios.open_bytes(wav(sound(1, 3.0)))
    features = model.create_multimodal_processor()(PROMPT, audios=whole)["audio_features"].as_numpy()[0]
    assert features.shape == (80, 200)
    assert np.abs(features[::9, ::41].ravel() - np.array(RECORDED["short_frames"])).max() < 2e-5
    parts = np.split(sound(1, 3.0), [32000])
    transcriber = og.Transcriber(model)
    texts = [
        transcriber.transcribe(og.Audios.open_bytes(wav(each)), language="en", has_times=True)[0]
        for each in (sound(1, 3.0), *parts)
    ]
    assert texts[0].tokens == texts[1].tokens + texts[2].tokens
    starts = [[each.start for each in text.segments] for text in texts]
    assert starts[0] == pytest.approx(starts[1] + [start + 2 for start in starts[2]])


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2])
def test_wav_files_of_whole_numbers_are_read(width, channels):
    samples = sound(1, 0.2) * 0.9
    found = og.Audios.open_bytes(wav(samples, width=width, channels=channels)).sounds[0]
    assert found.rate == 16000
    assert np.abs(found.samples - samples).max() <= 1.01 / (1 << min(8 * width - 1, 22))


def test_sound_of_another_rate_is_resampled():
    pytest.importorskip("scipy")
    times = np.arange(8000) / 8000
    found = og.Audios.open_bytes(wav(0.5 * np.sin(2 * np.pi * 440 * times), rate=8000)).sounds[0].at_rate(16000)
    expected = 0.5 * np.sin(2 * np.pi * 440 * np.arange(16000) / 16000)
    assert np.abs(found - expected)[200:-200].max() < 5e-3


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.INT4])
def test_other_precisions_hear_nearly_the_same(tmp_path, model, precision):
    build(write_whisper_checkpoint(tmp_path / "source"), tmp_path / "built", BuildOptions(precision))
    other = og.Model(tmp_path / "built")
    first = []
    for each in (model, other):
        generator = og.Generator(each, og.GeneratorParams(each))
        generator.set_inputs(
            each.create_multimodal_processor()([PROMPT], audios=og.Audios.open_bytes(wav(sound(1, 3.0))))
        )
        first.append(generator.get_logits().ravel())
    share = np.corrcoef(first[0], first[1])[0, 1]
    assert share > {Precision.INT4: 0.9}.get(precision, 0.99), share


def test_what_does_not_fit_is_refused(model, tmp_path):
    processor = model.create_multimodal_processor()
    with pytest.raises(og_error(), match="takes audios"):
        processor([PROMPT])
    with pytest.raises(og_error(), match="2 audios for 3 prompts"):
        processor([PROMPT] * 3, audios=og.Audios.open_bytes(*[wav(sound(1, 0.1))] * 2))
    with pytest.raises(og_error(), match="Audio path does not exist"):
        og.Audios.open(tmp_path / "none.wav")
    with pytest.raises(og_error(), match="fr"):
        og.Transcriber(model).transcribe(og.Audios.open_bytes(wav(sound(1, 0.1))), language="fr")
    for place in range(0, 44, 7):
        with pytest.raises(og_error()):
            og.Audios.open_bytes(wav(sound(1, 0.1))[:place])


def og_error():
    from ort_genai.errors import InvalidGeneration

    return InvalidGeneration
