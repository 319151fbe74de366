"""A LLaVA built from its checkpoint sees and answers what transformers does."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from genai_media_models import IMAGE_TOKEN, LLAVA, picture, write_llava_checkpoint

import ort_genai as og
from ort_genai.builder.build import BuildOptions, build
from ort_genai.builder.precision_names import Precision
from ort_genai.errors import InvalidGeneration, InvalidModelFolder

EXPECTED = json.loads(Path(__file__).with_name("expected_media.json").read_text(encoding="utf-8"))["llava"]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_llava_checkpoint(tmp_path_factory.mktemp("llava") / "source")


@pytest.fixture(scope="module")
def model(source):
    build(source, source.parent / "built", BuildOptions(Precision.FP32))
    return og.Model(source.parent / "built")


def images(pictures):
    """Return images as they come from files."""
    image = pytest.importorskip("PIL.Image")
    contents = []
    for each in pictures:
        buffer = io.BytesIO()
        image.fromarray(picture(*each)).save(buffer, format="PNG")
        contents.append(buffer.getvalue())
    return og.Images.open_bytes(*contents)


def answered(model, inputs, count=24, **options):
    params = og.GeneratorParams(model)
    start = inputs["input_ids"].shape()[1]
    params.set_search_options(max_length=start + count, **options)
    generator = og.Generator(model, params)
    generator.set_inputs(inputs)
    while not generator.is_done():
        generator.generate_next_token()
    return generator.get_sequence(0).tolist()[start:]


@pytest.mark.parametrize("case", EXPECTED, ids=lambda case: f"images-{len(case['pictures'])}")
def test_pixels_and_tokens_are_transformers(model, case):
    inputs = model.create_multimodal_processor()(case["question"], images=images(case["pictures"]))
    pixels = inputs["pixel_values"].as_numpy()
    assert np.abs(pixels[:, :, ::7, ::5].ravel() - np.array(case["pixels"])).max() < 1e-4
    assert answered(model, inputs) == case["tokens"]


def test_an_image_that_is_read_in_parts_gives_the_same_answer(model, monkeypatch):
    case = EXPECTED[1]
    monkeypatch.setattr("ort_genai.decoder_states._CHUNK", 7)
    inputs = model.create_multimodal_processor()(case["question"], images=images(case["pictures"]))
    assert answered(model, inputs) == case["tokens"]


def test_caches_that_are_appended_give_the_same_answer(model):
    config = og.Config(model.config.folder)
    config.overlay('{"search": {"past_present_share_buffer": false}}')
    other = og.Model(config)
    case = EXPECTED[0]
    inputs = other.create_multimodal_processor()(case["question"], images=images(case["pictures"]))
    assert answered(other, inputs) == case["tokens"]


def test_rows_of_a_batch_see_their_own_images(model):
    processor = model.create_multimodal_processor()
    questions, shown = ["<image>What is it?", "<image>Where is it?"], [(1, 40, 60), (3, 90, 50)]
    alone = [
        answered(model, processor(text, images=images([each]))) for text, each in zip(questions, shown, strict=True)
    ]
    inputs = processor(questions, images=images(shown))
    start = inputs["input_ids"].shape()[1]
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=start + 24, batch_size=2)
    generator = og.Generator(model, params)
    generator.set_inputs(inputs)
    while not generator.is_done():
        generator.generate_next_token()
    rows = [generator.get_sequence(place).tolist()[start:] for place in range(2)]
    assert [row[: len(one)] for row, one in zip(rows, alone, strict=True)] == alone


def test_a_text_without_images_is_answered(model):
    inputs = model.create_multimodal_processor()("What is it?")
    assert "pixel_values" not in inputs
    assert len(answered(model, inputs, 5)) == 5


def test_a_text_is_rewound_over_an_image(model):
    case = EXPECTED[0]
    inputs = model.create_multimodal_processor()(case["question"], images=images(case["pictures"]))
    tokens = inputs["input_ids"].as_numpy()[0]
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=len(tokens) + 24)
    generator = og.Generator(model, params)
    generator.set_inputs(inputs)
    for length in (len(tokens) - 2, 5, 0):
        generator.rewind_to(length)
        generator.append_tokens(tokens[length:])
    while not generator.is_done():
        generator.generate_next_token()
    assert generator.get_sequence(0).tolist()[len(tokens) :] == case["tokens"]


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.INT8])
def test_other_precisions_answer_nearly_the_same(source, model, precision):
    folder = source.parent / precision
    build(source, folder, BuildOptions(precision))
    other, first = og.Model(folder), []
    for each in (model, other):
        inputs = each.create_multimodal_processor()("<image>What is it?", images=images([(1, 40, 60)]))
        generator = og.Generator(each, og.GeneratorParams(each))
        generator.set_inputs(inputs)
        first.append(generator.get_logits().ravel())
    assert np.corrcoef(first[0], first[1])[0, 1] > 0.99


def test_what_does_not_fit_is_refused(model, tmp_path):
    processor = model.create_multimodal_processor()
    with pytest.raises(InvalidGeneration, match="1 images for 2 times '<image>'"):
        processor("<image> and <image>", images=images([(1, 40, 60)]))
    with pytest.raises(InvalidGeneration, match="does not hear"):
        processor("<image>", audios=og.Audios([]))
    with pytest.raises(InvalidGeneration, match="Image path does not exist"):
        og.Images.open(tmp_path / "none.png")
    with pytest.raises(InvalidGeneration, match="cannot be read as an image"):
        og.Images.open_bytes(b"no image")
    generator = og.Generator(model, og.GeneratorParams(model))
    with pytest.raises(InvalidGeneration, match="tokens that stand for images"):
        generator.append_tokens(np.array([IMAGE_TOKEN]))
    source = write_llava_checkpoint(tmp_path / "source")
    for change, words in (
        ({"vision_feature_layer": [1, 2]}, "expected one layer from -3 to 3"),
        ({"vision_config": {"model_type": "siglip_vision_model"}}, "clip_vision_model"),
    ):
        (source / "config.json").write_text(json.dumps({**LLAVA, **change}), encoding="utf-8")
        with pytest.raises(InvalidModelFolder, match=words):
            build(source, tmp_path / "out")
