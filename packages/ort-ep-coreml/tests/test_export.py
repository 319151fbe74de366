"""``ort export-coreml``: what is written, and what is said where nothing is."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import typer
from typer.testing import CliRunner

from ort_ep_coreml.commands.export_coreml import export_coreml
from ort_ep_coreml.evaluation.evaluator import Evaluator

pytestmark = pytest.mark.usefixtures("sdk")


@pytest.fixture
def export(parse, tmp_path):
    """Return a function that exports a model from text, and gives the result and the package's path."""
    app = typer.Typer()
    app.command()(export_coreml)

    def run(text: str, *arguments: str):
        source, target = tmp_path / "model.onnx", tmp_path / "out" / "model.mlpackage"
        onnx.save(parse(text), source)
        return CliRunner().invoke(app, [str(source), "-o", str(target), *arguments]), target

    return run


def test_the_whole_model_becomes_one_package(export):
    result, path = export("g (float[n,4] x, float[n,4] w) => (float[n,4] y, float[n,4] z) { y = Relu(x)  z = Tanh(w) }")
    assert result.exit_code == 0, result.output
    assert "inputs x, w; outputs y, z" in result.output
    x = np.array([[-1, 2, -3, 4]], np.float32)
    found = Evaluator.of_package(path, "iOS17").predict({"x": x, "w": x})
    assert found["y"].tolist() == [[0, 2, 0, 4]]
    assert list(path.parent.iterdir()) == [path], "drafts are removed"


def test_a_node_that_is_not_lowered_is_named_and_nothing_is_written(export):
    result, path = export("g (float[2,2] x) => (float y) { a = Relu(x)  y = Det(a) }")
    assert result.exit_code == 1
    assert "Det" in result.output
    assert "not among the operators" in result.output
    assert not path.exists()


def test_a_package_is_replaced_only_by_force(export):
    text = "g (float[4] x) => (float[4] y) { y = Relu(x) }"
    assert export(text)[0].exit_code == 0
    refused, path = export(text)
    assert refused.exit_code != 0
    assert "--force" in refused.output
    assert export(text, "--force")[0].exit_code == 0
    assert (path / "Manifest.json").exists()


def test_the_name_must_be_that_of_a_package(export, parse, tmp_path):
    result, _ = export("g (float[4] x) => (float[4] y) { y = Relu(x) }", "-o", str(tmp_path / "model.onnx2"))
    assert result.exit_code != 0
    assert ".mlpackage" in result.output
