"""A SmolVLM built from its checkpoint sees tiles and answers what transformers does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from genai_tiled_models import SMOLVLM, TILES, write_smolvlm_checkpoint
from test_llava import answered, images

import ort_genai as og
from ort_genai.builder.build import BuildOptions, build
from ort_genai.builder.precision_names import CacheType, Precision
from ort_genai.errors import InvalidModelFolder
from ort_genai.media.image_tiles import TileRecipe
from ort_genai.media.seen_chat import seen_prompt

EXPECTED = json.loads(Path(__file__).with_name("expected_tiled.json").read_text(encoding="utf-8"))
OF_PARTS = (
    "{% for m in messages %}{% for part in m['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}"
)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return the model that splits images, and the one that does not."""
    root, found = tmp_path_factory.mktemp("smolvlm"), {}
    for is_split in (True, False):
        source = write_smolvlm_checkpoint(root / f"source-{is_split}", is_split=is_split)
        build(source, root / f"built-{is_split}", BuildOptions(Precision.FP32))
        (root / f"built-{is_split}" / "chat_template.jinja").write_text(OF_PARTS, encoding="utf-8")
        found[is_split] = og.Model(root / f"built-{is_split}")
    return found


@pytest.mark.parametrize("place", range(len(EXPECTED)))
def test_pixels_prompt_and_answer_are_transformers(models, place):
    case = EXPECTED[place]
    model = models[case["is_split"]]
    inputs = model.create_multimodal_processor()(case["question"], images=images(case["pictures"]))
    pixels = inputs["pixel_values"].as_numpy()
    assert inputs["input_ids"].as_numpy()[0].tolist() == case["prompt"]
    assert np.abs(pixels[:, :, ::11, ::7].ravel() - np.array(case["pixels"])).max() < 1e-4
    assert answered(model, inputs) == case["tokens"]


def test_a_conversation_shows_the_same_tiles(models):
    case = EXPECTED[1]
    parts = [each for text in case["question"].split("<image>") for each in ({"type": "text", "text": text}, None)][:-1]
    content = [each or {"type": "image"} for each in parts]
    seen = seen_prompt(models[True], [{"role": "user", "content": content}], images(case["pictures"]))
    assert seen.tokens == case["prompt"]
    with og.AsyncEngine(models[True]) as engine:
        pieces = engine.submit(seen.tokens, og.GenerationOptions(max_tokens=24), features=seen.features)
        assert [each.token for each in pieces] == case["tokens"]


def test_the_newer_place_of_the_processor_is_read(models, tmp_path):
    source = write_smolvlm_checkpoint(tmp_path / "source")
    (source / "preprocessor_config.json").unlink()
    (source / "processor_config.json").write_text(json.dumps({"image_processor": TILES}), encoding="utf-8")
    build(source, tmp_path / "built", BuildOptions(Precision.INT8, caches=CacheType.FP16))
    model = og.Model(tmp_path / "built")
    inputs = model.create_multimodal_processor()(EXPECTED[0]["question"], images=images(EXPECTED[0]["pictures"]))
    assert inputs["input_ids"].as_numpy()[0].tolist() == EXPECTED[0]["prompt"]
    assert len(answered(model, inputs, 4)) == 4


@pytest.mark.parametrize("name", ["size", "max_image_size"])
@pytest.mark.parametrize("stated", [{"longest_edge": 0}, {"longest_edge": True}, {"height": 5}, 7, None])
def test_sizes_that_are_none_are_refused(name, stated):
    with pytest.raises(InvalidModelFolder, match="expected longest_edge"):
        TileRecipe.of({**TILES, name: stated})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vision_config": None}, "no vision_config"), ({"image_token_id": "x"}, "image_token_id"),
        ({"scale_factor": 4}, "cannot be joined"), ({"scale_factor": 0}, "scale_factor"),
        ({"text_config": {"model_type": "mamba"}}, "mamba"),
    ],
)  # fmt: skip
def test_what_cannot_be_built_is_refused(tmp_path, change, message):
    source = write_smolvlm_checkpoint(tmp_path / "source")
    (source / "config.json").write_text(json.dumps({**SMOLVLM, **change}), encoding="utf-8")
    with pytest.raises(InvalidModelFolder, match=message):
        build(source, tmp_path / "out")
