"""Sound as it comes, in pieces of any length: the chunks are those of the whole sound, and so are the texts."""

from __future__ import annotations

import numpy as np
import pytest
from genai_built import built
from genai_media_models import END, sound, write_whisper_checkpoint

import ort_genai as og
from ort_genai.builder.build import BuildOptions, build
from ort_genai.builder.precision_names import Precision
from ort_genai.media.audios import Audios, Sound
from ort_genai.media.log_mel import LogMel

PROMPT = "<|startoftranscript|><|en|><|transcribe|><|notimestamps|>"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    root = tmp_path_factory.mktemp("streamed")
    build(write_whisper_checkpoint(root / "source"), root / "built", BuildOptions(Precision.FP32))
    return og.Model(root / "built")


def chunks(processor, samples, lengths):
    """Return the inputs of all chunks of a sound that comes in pieces of some lengths, again and again."""
    found, start, place = [], 0, 0
    while start < len(samples):
        length = lengths[place % len(lengths)]
        inputs = processor.process(samples[start : start + length])
        found += [] if inputs is None else [inputs]
        start, place = start + length, place + 1
    while (inputs := processor.flush()) is not None:
        found.append(inputs)
    assert processor.flush() is None
    return found


def said(model, inputs):
    generator = og.Generator(model, og.GeneratorParams(model))
    generator.set_inputs(inputs)
    while not generator.is_done():
        generator.generate_next_token()
    return generator.get_sequence(0).tolist()


@pytest.mark.parametrize("lengths", [[160], [1, 16000, 333], [480_000], [10_000_000]], ids=str)
def test_chunks_are_those_of_the_whole_sound_however_it_comes(model, lengths):
    samples = sound(3, 71.3)
    processor = model.create_streaming_processor()
    found = chunks(processor, samples, lengths)
    parts = [samples[start : start + 480_000] for start in range(0, len(samples), 480_000)]
    assert len(found) == len(parts) == 3
    for inputs, part in zip(found, parts, strict=True):
        np.testing.assert_array_equal(inputs["audio_features"].as_numpy()[0], LogMel().features(part))


@pytest.mark.parametrize(("milliseconds", "count"), [("5000", 3), ("12345", 1), ("12344", 2)])
def test_chunks_may_be_shorter_than_what_is_heard(model, milliseconds, count):
    samples, each = sound(4, 12.345), int(milliseconds) * 16
    processor = model.create_streaming_processor()
    processor.set_option("chunk_ms", milliseconds)
    assert processor.get_option("chunk_ms") == milliseconds
    found = chunks(processor, samples, [777])
    assert len(found) == count
    for place, inputs in enumerate(found):
        expected = LogMel().features(samples[place * each : (place + 1) * each])
        np.testing.assert_array_equal(inputs["audio_features"].as_numpy()[0], expected)


def test_texts_of_chunks_are_those_of_the_multimodal_processor(model):
    samples = sound(1, 33.0)
    processor, whole = model.create_streaming_processor(), model.create_multimodal_processor()
    processor.set_option("prompt", PROMPT)
    assert processor.get_option("prompt") == PROMPT
    found = [said(model, inputs) for inputs in chunks(processor, samples, [4000])]
    parts = [samples[:480_000], samples[480_000:]]
    expected = [said(model, whole([PROMPT], audios=Audios([Sound(part, 16000)]))) for part in parts]
    assert found == expected
    assert all(len(text) > 5 for text in found)


def test_without_a_prompt_the_model_chooses_language_and_task(model):
    (inputs,) = chunks(model.create_streaming_processor(), sound(1, 3.0), [4000])
    ids = inputs["input_ids"].as_numpy()
    assert ids.shape == (1, 1)
    text = said(model, inputs)
    assert text[0] == ids[0, 0]
    assert END in text or len(text) > 10


def test_samples_are_copied(model):
    memory, processor = sound(2, 0.5), model.create_streaming_processor()
    before = memory.copy()
    assert processor.process(memory) is None
    memory[:] = 0
    np.testing.assert_array_equal(processor.flush()["audio_features"].as_numpy()[0], LogMel().features(before))


@pytest.mark.parametrize("given", [np.zeros((2, 100), np.float32), np.float32(1), "abc", None, [[1], [2, 3]]], ids=str)
def test_what_are_no_samples_is_refused_and_changes_nothing(model, given):
    processor = model.create_streaming_processor()
    with pytest.raises(RuntimeError, match=r"process\(\) takes samples"):
        processor.process(given)
    assert processor.flush() is None


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("use_vad", "true", "leave silence out"), ("vad_threshold", "0.5", "use_vad"),
        ("chunk_ms", "0", "100 to 30000"),
        ("chunk_ms", "30001", "100 to 30000"), ("chunk_ms", "1e3", "whole number"), ("chunk_mss", "1", "chunk_ms"),
        ("chunk_ms", "9" * 5000, "whole number"),
    ],
)  # fmt: skip
def test_options_that_are_none_are_refused(model, key, value, words):
    processor = model.create_streaming_processor()
    with pytest.raises(RuntimeError, match=words):
        processor.set_option(key, value)
    assert processor.get_option("chunk_ms") == "30000"
    processor.set_option("use_vad", "false")
    assert processor.get_option("use_vad") == "false"
    if key not in ("use_vad", "chunk_ms"):
        with pytest.raises(RuntimeError, match=key):
            processor.get_option(key)


def test_a_model_that_does_not_hear_says_what_to_use():
    with pytest.raises(RuntimeError, match=r"unsupported model type 'llama'.*Tokenizer\(model\)"):
        og.Model(built()).create_streaming_processor()
