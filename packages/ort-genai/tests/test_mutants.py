"""Whatever a file of a folder holds, it is read, or refused in a sentence: no other error, no hang, no memory."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from genai_built import built
from genai_media_models import picture, sound, write_llava_checkpoint, write_whisper_checkpoint
from genai_mutants import broken_bytes, mutants
from genai_tiled_models import write_smolvlm_checkpoint
from genai_tiny_models import write_checkpoint
from PIL import Image
from test_gguf import write_gguf
from test_llava import images
from test_whisper import wav

import ort_core
import ort_genai as og
from ort_core.errors import OrtError
from ort_genai.builder.build import BuildOptions, build
from ort_genai.builder.precision_names import Precision
from ort_genai.errors import InvalidGeneration

_SEEING = {"llava": write_llava_checkpoint, "smolvlm": write_smolvlm_checkpoint}


def tried(use, told):
    """Use something; return whether it was refused, in a sentence."""
    refusal = None
    try:
        with np.errstate(all="ignore"):
            use()
    except OrtError as error:
        refusal = str(error)
    except Exception as error:
        raise AssertionError(f"{told}: {type(error).__name__}: {str(error)[:300]}") from error
    assert refusal is None or 15 < len(refusal) < 1400, f"{told}: {refusal}"
    return refusal is not None


def refusals(file, count, seed, use):
    """Return how many mutants of a JSON file were refused."""
    whole = file.read_text(encoding="utf-8")
    found = 0
    for told, stated in mutants(json.loads(whole), count, seed):
        file.write_text(json.dumps(stated), encoding="utf-8")
        found += tried(use, f"{file.name}: {told}")
    file.write_text(whole, encoding="utf-8")
    return found


def generated(folder):
    model = og.Model(str(folder))
    tokenizer = og.Tokenizer(model)
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=9)
    generator = og.Generator(model, params)
    generator.append_tokens(tokenizer.encode("the inn"))
    generator.generate_next_token()
    tokenizer.decode(generator.get_sequence(0))
    tokenizer.apply_chat_template('[{"role": "user", "content": "x"}]')


@pytest.mark.parametrize("name", ["genai_config.json", "tokenizer.json", "tokenizer_config.json"])
def test_files_of_a_folder(tmp_path, name):
    shutil.copytree(built(), tmp_path / "folder")
    count = 120
    assert 0 < refusals(tmp_path / "folder" / name, count, 1, lambda: generated(tmp_path / "folder")) < count


@pytest.mark.parametrize("kind", _SEEING)
def test_files_of_a_folder_that_sees(tmp_path, kind):
    build(_SEEING[kind](tmp_path / "source"), tmp_path / "folder", BuildOptions(Precision.FP32))
    shown = images([(1, 40, 60)])

    def seen():
        og.Model(tmp_path / "folder").create_multimodal_processor()("<image>What", images=shown)

    for name in ("preprocessor_config.json", "genai_config.json"):
        assert 0 < refusals(tmp_path / "folder" / name, 60, 2, seen) < 60


@pytest.mark.parametrize("family", ["llama3", "phi3_long", "gemma3", "qwen2_moe", "gpt2", "gpt_oss", "olmo3"])
def test_configurations_of_checkpoints(tmp_path, family):
    source = write_checkpoint(tmp_path / "source", family)

    def made():
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        build(source, tmp_path / "out", BuildOptions(Precision.FP32))

    assert 0 < refusals(source / "config.json", 40, 3, made) < 40


@pytest.mark.parametrize("kind", ["whisper", *_SEEING])
def test_configurations_of_checkpoints_that_see_or_hear(tmp_path, kind):
    source = {"whisper": write_whisper_checkpoint, **_SEEING}[kind](tmp_path / "source")

    def made():
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        build(source, tmp_path / "out", BuildOptions(Precision.FP32))

    assert 0 < refusals(source / "config.json", 30, 4, made) < 30


def test_heads_of_safetensors(tmp_path):
    source = write_checkpoint(tmp_path / "source", "llama")
    file = source / "model.safetensors"
    whole = file.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    found = 0
    for told, stated in mutants(json.loads(whole[8 : 8 + size]), 60, 5):
        head = json.dumps(stated).encode()
        file.write_bytes(len(head).to_bytes(8, "little") + head + whole[8 + size :])
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        found += tried(lambda: build(source, tmp_path / "out", BuildOptions(Precision.FP32)), told)
    assert found > 30


def test_bytes_of_gguf_files_adapters_images_and_sounds(tmp_path):
    gguf = write_gguf(tmp_path, "llama", "llama")
    made = ort_core.AdapterFormat()
    made.set_parameters({"lora_A": ort_core.OrtValue.ortvalue_from_numpy(np.ones((64, 4), np.float32))})
    made.export_adapter(str(tmp_path / "a.onnx_adapter"))
    adapters = og.Adapters(og.Model(str(built())))
    (tmp_path / "sound").write_bytes(wav(sound(1, 0.1)))
    cases = [
        (gguf, 12000, 40, lambda: build(gguf, tmp_path / "out", BuildOptions(Precision.FP32))),
        (tmp_path / "a.onnx_adapter", 400, 300, lambda: adapters.load(str(tmp_path / "a.onnx_adapter"), "x")),
        (tmp_path / "sound", 60, 300, lambda: og.Audios.open(str(tmp_path / "sound"))),
    ]
    for kind in ("PNG", "JPEG", "GIF", "BMP"):
        Image.fromarray(picture(1, 40, 50)).save(tmp_path / kind, kind)
        cases.append((tmp_path / kind, 900, 100, lambda kind=kind: og.Images.open(str(tmp_path / kind))))
    for file, end, count, use in cases:
        found = 0
        for place, data in enumerate(broken_bytes(file.read_bytes(), count, 6, end)):
            file.write_bytes(data)
            shutil.rmtree(tmp_path / "out", ignore_errors=True)
            found += tried(use, f"{file.name}: {place}")
            adapters = og.Adapters(og.Model(str(built()))) if "x" in adapters.names() else adapters
        assert found > 0, file.name


@pytest.mark.parametrize("template", ['{{ "a"|truncate(0) }}', "{% break %}", "{% for a in b", "{{ 7**90000|string }}"])
def test_templates_that_python_or_jinja_refuse(template):
    with pytest.raises(InvalidGeneration, match="the chat template"):
        og.Tokenizer(str(built())).apply_chat_template('[{"role": "user", "content": "x"}]', template_str=template)
