"""Folders that onnxruntime-genai's own builder writes give onnxruntime-genai's tokens here, family by family."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import onnx
import pytest
from genai_generation_cases import generated
from genai_tiny_models import PROMPTS, write_checkpoint

import ort_genai as og

NEEDED = ("onnxruntime_genai", "torch", "transformers", "onnx_ir")
missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} not installed (`nox -s genai`)")
# those of genai_tiny_models that builder 0.18 writes and onnxruntime-genai then runs
FAMILIES = (
    "llama", "llama3", "llama_linear", "llama_yarn", "qwen2", "qwen3", "gemma", "gemma2", "phi3_long", "phi4",
    "granite", "olmo", "nemotron", "ernie",
)  # fmt: skip
LONG = list(range(1, 60))


def written(tmp_path, family, precision):
    source, folder = write_checkpoint(tmp_path / "source", family), tmp_path / "folder"
    asked = ["-i", source, "-o", folder, "-p", precision, "-e", "cpu", "-c", tmp_path / "cache"]
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", *map(str, asked)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


def assert_same_tokens(folder):
    judge = pytest.importorskip("onnxruntime_genai")
    own, theirs = og.Model(folder), judge.Model(str(folder))
    for prompt in (*PROMPTS, LONG):
        options = {"max_length": len(prompt) + 24}
        assert generated(og, own, [prompt], options) == generated(judge, theirs, [prompt], options)


@pytest.mark.parametrize("family", FAMILIES)
def test_floats_give_the_same_tokens(tmp_path, family):
    assert_same_tokens(written(tmp_path, family, "fp32"))


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma2", "phi3_long"])
def test_numbers_of_four_bits_give_the_same_tokens_where_activations_are_floats(tmp_path, family):
    """At accuracy level 2, which is the builder's, rows are rounded to two bytes a number here, and not there."""
    folder = written(tmp_path, family, "int4")
    file = folder / "model.onnx"
    model = onnx.load(file, load_external_data=False)
    found = 0
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "MatMulNBits" and attribute.name == "accuracy_level":
                attribute.i, found = 1, found + 1
    assert found
    file.write_bytes(model.SerializeToString())
    assert_same_tokens(folder)
