"""The package has three names, its command says what it does, and its classes have onnxruntime-genai's methods."""

from __future__ import annotations

import importlib
import subprocess
import sys

from genai_built import built
from typer.testing import CliRunner

import ort_genai
from ort_core.cli.plugin_commands import missing_command_text
from ort_genai.commands.app import app

METHODS = {
    "Config": (
        "add_model_data", "append_provider", "clear_providers", "overlay", "remove_model_data", "set_provider_option",
    ),
    "Generator": (
        "append_tokens", "generate_next_token", "get_input", "get_logits", "get_next_tokens", "get_output",
        "get_sequence",
        "is_done", "rewind_to", "set_active_adapter", "set_inputs", "set_logits", "set_runtime_option",
        "snapshot_state",
        "token_count",
    ),
    "GeneratorParams": ("get_search_options", "set_guidance", "set_search_options"),
    "Model": ("device_type", "type"),
    "Tokenizer": (
        "apply_chat_template", "bos_token_id", "create_stream", "decode", "decode_batch", "encode", "encode_batch",
        "eos_token_ids", "pad_token_id", "to_token_id", "update_options",
    ),
    "TokenizerStream": ("decode",),
    "Adapters": ("load", "unload"),
    "Tensor": ("as_numpy", "shape", "type"),
}  # fmt: skip


def test_classes_have_onnxruntime_genais_methods():
    for name, methods in METHODS.items():
        assert [each for each in methods if not hasattr(getattr(ort_genai, name), each)] == [], name


def test_the_name_below_ort_core_gives_the_package_itself():
    assert importlib.import_module("ort_core.genai") is ort_genai


def test_under_the_drop_in_onnxruntimes_name_gives_the_same_classes():
    program = (
        "from ort_core.dropin import install; install(); import onnxruntime_genai as og, ort_genai; "
        "from onnxruntime_genai.text import Tokenizer; print(og is ort_genai, og.Tokenizer is Tokenizer)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True", "True"], done.stderr


def test_the_doors_of_models_import_nothing_that_a_first_token_does_not_need():
    program = (
        "import sys; from ort_genai import Model, Generator, GeneratorParams, Tokenizer; "
        "heavy = ('onnx', 'jinja2', 'llguidance', 'ort_core.providers.discovery'); "
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["[]"], done.stdout + done.stderr


def test_without_the_package_the_command_line_says_what_to_install():
    assert "pip install ort-genai" in missing_command_text("genai")


def test_run_answers_a_prompt():
    done = CliRunner().invoke(app, ["run", str(built()), "hi", "--tokens", "5", "--raw"])
    assert done.exit_code == 0, done.output
    assert done.output.strip()


def test_build_writes_a_folder(tmp_path):
    done = CliRunner().invoke(app, ["build", str(built().parent / "llama-source"), str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert {each.name for each in (tmp_path / "out").iterdir()} >= {"genai_config.json", "model.onnx", "tokenizer.json"}
