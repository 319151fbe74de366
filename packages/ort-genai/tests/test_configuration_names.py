"""Names of genai_config.json: unknown ones are refused, those without effect are told, the others are followed."""

from __future__ import annotations

import json
import shutil

import pytest
from genai_built import built

import ort_genai as og
from ort_genai.errors import InvalidModelFolder


@pytest.mark.parametrize(
    "stated", [
        {"model": {"vocabsize": 3}}, {"model": {"decoder": {"layers": 2}}}, {"search": {"topk": 3}}, {"serch": {}},
        {"model": {"decoder": {"inputs": {"tokens": "x"}}}}, {"engine": {"dynamic_batching": {"blocks": 1}}},
        {"speculative": {"ngram": 2}}, {"model": {"encoder": {"outputs": {"logits": "x"}}}},
    ],
)  # fmt: skip
def test_an_unknown_name_is_refused_with_one_that_is_near(stated, tmp_path):
    name = json.dumps(stated).split('"')[-4 if '": "' in json.dumps(stated) else -2]
    with pytest.raises(InvalidModelFolder, match=f'Unknown value "{name}"'):
        og.Config(built()).overlay(json.dumps(stated))
    folder = copied(tmp_path, stated)
    with pytest.raises(InvalidModelFolder, match=f'Unknown value "{name}"'):
        og.Config(folder)


def copied(tmp_path, stated):
    """Return the folder of a tiny model whose configuration states more."""
    folder = tmp_path / "copied"
    shutil.copytree(built(), folder)
    file = folder / "genai_config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    for name, value in stated.items():
        config[name] = {**config.get(name, {}), **value}
    file.write_text(json.dumps(config), encoding="utf-8")
    return folder


def test_a_remark_beside_the_sections_is_left_alone(tmp_path):
    folder = copied(tmp_path, {})
    file = folder / "genai_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "comment": "by hand"}), encoding="utf-8")
    assert og.Config(folder).search["num_beams"] == 1


def test_names_without_effect_are_told(tmp_path, caplog):
    og.Config(copied(tmp_path, {"engine": {"dynamic_batching": {"gpu_utilization_factor": 0.5, "max_batch_size": 2}}}))
    assert [each.getMessage().split(":")[1] for each in caplog.records] == [
        " engine.dynamic_batching.gpu_utilization_factor has no effect"
    ]


def test_guesses_are_made_as_the_folder_states(tmp_path):
    model = og.Model(str(copied(tmp_path, {"speculative": {"ngram_size": 2, "max_draft_tokens": 3}})))
    found = og.GeneratorParams(model).get_speculative_options()
    assert (found["ngram_size"], found["max_draft_tokens"]) == (2, 3)


def test_the_tokenizer_is_read_where_the_folder_states(tmp_path):
    folder = copied(tmp_path, {})
    (folder / "words").mkdir()
    for file in folder.glob("token*"):
        file.rename(folder / "words" / file.name)
    config = og.Config(folder)
    config.overlay(json.dumps({"model": {"tokenizer_dir": "words"}}))
    assert list(og.Tokenizer(og.Model(config)).encode("ab")) == list(og.Tokenizer(og.Model(str(built()))).encode("ab"))
    config.overlay(json.dumps({"model": {"tokenizer_dir": "../words"}}))
    with pytest.raises(InvalidModelFolder, match="leads out of the model's folder"):
        og.Tokenizer(og.Model(config))


@pytest.mark.parametrize("kind", ["nemotron_speech", "streaming_enc_dec_asr", "marian-ssru", "phi4mm"])
def test_a_kind_of_model_that_is_not_run_is_refused_by_its_name(kind):
    config = og.Config(built())
    config.overlay(json.dumps({"model": {"type": kind}}))
    with pytest.raises(InvalidModelFolder, match=f"{kind}.*cannot be run"):
        og.Model(config)
