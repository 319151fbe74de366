"""Commands of `ort genai`: what they write, and how they end."""

from __future__ import annotations

import pytest
from genai_built import built
from typer.testing import CliRunner

from ort_genai.builder.precision_names import Precision
from ort_genai.commands.app import app
from ort_genai.commands.comparison import compare


def test_chat_answers_lines_until_an_empty_one():
    lines = "hi\nand now?\n\n"
    done = CliRunner().invoke(app, ["chat", str(built()), "--tokens", "4", "--seed", "1"], input=lines)
    assert done.exit_code == 0, done.output
    assert done.output.count("\n") >= 2


@pytest.mark.parametrize("engine", ["ort-core", "onnxruntime"])
def test_verify_finds_a_model_equal_to_itself_in_both_engines(engine):
    done = CliRunner().invoke(app, ["verify", str(built()), str(built()), "--tokens", "8", "--engine", engine])
    assert done.exit_code == 0, done.output
    assert "none" in done.output


def test_verify_says_where_two_models_part():
    found = compare(built(), built("llama3"), ("the man in the thin rain ran on and on",), 12, "ort-core")[0]
    assert found.parted is not None
    assert found.largest > 0.1
    assert found.divergence > 0
    done = CliRunner().invoke(app, ["verify", str(built()), str(built("llama3")), "--prompt", "the man " * 5])
    assert done.exit_code == 1


def test_quantized_models_stay_close_to_their_floats():
    bounds = {Precision.INT8: 0.02, Precision.INT4: 0.4, Precision.FP16: 0.001, Precision.BF16: 0.02}
    found = {
        precision: compare(built(), built(precision=precision), ("the man", "on and on"), 6, "ort-core")
        for precision in bounds
    }
    for precision, bound in bounds.items():
        assert max(each.divergence for each in found[precision]) < bound, precision
        assert min(each.divergence for each in found[precision]) > 0, f"{precision} changed nothing"


def test_verify_refuses_other_engines(tmp_path):
    done = CliRunner().invoke(app, ["verify", str(built()), str(built()), "--engine", "other"])
    assert done.exit_code != 0
    assert "expected ort-core or onnxruntime" in str(done.exception)
