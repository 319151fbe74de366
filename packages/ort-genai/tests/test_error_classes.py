"""Wrong calls raise what onnxruntime-genai raises (recorded, 0.18), so that programs that catch it go on."""

from __future__ import annotations

import builtins
import json
from pathlib import Path

import numpy as np
import pytest
from genai_built import built
from genai_error_cases import CASES, Scene

import ort_genai as og
from ort_core.errors import OrtError
from ort_genai.errors import GenerationFailed, InvalidModelFolder

EXPECTED = json.loads(Path(__file__).with_name("expected_errors.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    empty = tmp_path_factory.mktemp("empty")
    (empty / "nothing.bin").write_bytes(b"nothing")
    return Scene(og, built(), empty)


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_call_raises_the_class_that_onnxruntime_genai_raises(scene, case):
    """What it takes in silence may be refused here; what is refused there is refused here, by a sentence."""
    expected = EXPECTED[case]
    if not expected:
        return
    with pytest.raises(getattr(builtins, expected)) as told:
        CASES[case](scene)
    assert "object has no attribute" not in str(told.value)
    assert len(str(told.value)) > 10 or expected == "KeyError"


def test_every_case_is_recorded():
    assert list(EXPECTED) == list(CASES)


def test_a_run_that_fails_is_an_error_that_programs_catch(monkeypatch):
    model = og.Model(built())
    generator = og.Generator(model, og.GeneratorParams(model))

    def failing(*_):
        raise OrtError("the device is gone")

    monkeypatch.setattr(model.decoder.session, "run_with_iobinding", failing)
    with pytest.raises(RuntimeError, match="the device is gone") as told:
        generator.append_tokens(np.array([5, 7], np.int32))
    assert isinstance(told.value, GenerationFailed)


@pytest.mark.parametrize(
    ("overlay", "words"),
    [
        ('{"serach": {}}', r"serach.*search"),
        ('{"search": {"do_sample": 1}}', "Expected a bool"),
        ('{"search": {"top_p": 7}}', r"from 0\.0 to 1\.0"),
    ],
)
def test_an_overlay_that_cannot_be_meant_is_refused(overlay, words):
    with pytest.raises(InvalidModelFolder, match=words):
        og.Config(built()).overlay(overlay)


def test_model_data_of_a_number_is_not_so_many_zeros():
    with pytest.raises(InvalidModelFolder, match="model data for 'x' are int, expected bytes"):
        og.Config(built()).add_model_data("x", 5)


def test_deleting_a_named_tensor_that_is_not_there_does_nothing():
    named = og.NamedTensors({"a": np.zeros(2, np.float32)})
    del named["b"]
    del named["a"]
    assert named.keys() == []
