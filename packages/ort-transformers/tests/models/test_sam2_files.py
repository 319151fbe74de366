"""SAM2's scripts: files, shapes and results as onnxruntime's, and what they say where a model is not there."""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ort_transformers.models.sam2 import convert_to_onnx, sam2_utils


def theirs(*names: str) -> dict[str, Any]:
    """Return functions of onnxruntime's ``sam2_utils`` without its imports: it needs torch and the authors' package."""
    pytest.importorskip("onnxruntime")
    spec = PathFinder.find_spec("onnxruntime")
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).parent / "transformers" / "models" / "sam2" / "sam2_utils.py"
    body = ast.parse(path.read_text(encoding="utf-8")).body
    chosen = [each for each in body if isinstance(each, ast.FunctionDef) and each.name in names]
    found: dict[str, Any] = {"os": os, "Mapping": Mapping}
    exec(compile(ast.Module([*chosen], []), str(path), "exec"), found)
    return found


@pytest.mark.parametrize("model_type", sam2_utils.MODEL_TYPES)
@pytest.mark.parametrize("several", [False, True])
def test_files_and_configurations_have_onnxruntimes_names(model_type, several):
    other = theirs("sam2_onnx_path", "_get_model_cfg")
    assert sam2_utils.MODEL_TYPES[model_type] == other["_get_model_cfg"](model_type)
    for component in sam2_utils.COMPONENTS:
        for suffix in ("", "_fp16_gpu"):
            given = ("out", model_type, component, several, suffix)
            assert Path(sam2_utils.sam2_onnx_path(*given)) == Path(other["sam2_onnx_path"](*given))


def test_shapes_are_onnxruntimes():
    other = theirs("encoder_shape_dict", "decoder_shape_dict")
    assert sam2_utils.encoder_shape_dict(3, 1024, 1024) == other["encoder_shape_dict"](3, 1024, 1024)
    assert sam2_utils.decoder_shape_dict(7, 9, 2, 5, 3) == other["decoder_shape_dict"](7, 9, 2, 5, 3)
    with pytest.raises(ValueError, match="512 by 1024"):
        sam2_utils.encoder_shape_dict(1, 512, 1024)


@pytest.mark.parametrize(
    ("far", "is_same"),
    [(0, True), (1, True), (3, False)],
)
def test_results_are_the_same_where_few_elements_differ(far, is_same):
    first = np.linspace(-3, 3, 2000, dtype=np.float32)
    second = first * 1.00005
    second[:far] += 1
    assert sam2_utils.compare_tensors_with_tolerance("x", first, second) is is_same


def test_what_is_not_a_number_differs_and_so_do_shapes():
    wrong = np.full(10, np.nan, np.float32)
    assert sam2_utils.compare_tensors_with_tolerance("x", np.zeros(10, np.float32), wrong) is False
    with pytest.raises(ValueError, match=r"x: the shapes \(2,\) and \(3,\) differ"):
        sam2_utils.compare_tensors_with_tolerance("x", np.zeros(2), np.zeros(3))


def test_a_model_that_is_not_there_is_asked_for_by_its_path(tmp_path):
    with pytest.raises(FileNotFoundError, match="--sam2_dir"):
        sam2_utils.load_sam2_model(str(tmp_path / "none"), "sam2_hiera_tiny")
    with pytest.raises(FileNotFoundError, match=r"sam2_hiera_tiny\.pt"):
        sam2_utils.load_sam2_model(str(tmp_path), "sam2_hiera_tiny")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}), encoding="utf-8")
    with pytest.raises(ValueError, match="'bert'"):
        sam2_utils.load_sam2_model(str(tmp_path), "sam2_hiera_tiny")
    with pytest.raises(ValueError, match="sam2_hiera_large"):
        sam2_utils.load_sam2_model(str(tmp_path), "sam2_hiera_huge")


def test_a_checkpoint_needs_the_authors_package(tmp_path, monkeypatch):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "sam2_hiera_tiny.pt").touch()
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "sam2", None)
    with pytest.raises(ModuleNotFoundError, match=r"authors' package is needed to read sam2_hiera_tiny\.pt"):
        sam2_utils.load_sam2_model(str(tmp_path), "sam2_hiera_tiny")


def test_the_demonstration_is_refused_with_what_to_do(monkeypatch):
    monkeypatch.setattr(convert_to_onnx, "setup_logger", lambda verbose: None)
    with pytest.raises(ValueError, match="SAM2ImageOnnxPredictor"):
        convert_to_onnx.main(["--demo"])
