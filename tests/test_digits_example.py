"""The demo's network, its held-out digits and its functions, checked with onnxruntime as the independent truth."""

from __future__ import annotations

import importlib.util
import io
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnxruntime
import pytest
from rich.console import Console

DIGITS = Path(__file__).resolve().parent.parent / "examples/digits"


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("digits_demo", DIGITS / "demo.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["digits_demo"] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def session() -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(DIGITS / "digits.onnx", providers=["CPUExecutionProvider"])


def test_the_network_is_valid_and_small() -> None:
    onnx.checker.check_model(onnx.load(DIGITS / "digits.onnx"), full_check=True)
    assert (DIGITS / "digits.onnx").stat().st_size < 1_000_000


def test_the_network_recognizes_as_many_held_out_digits_as_its_metadata_says(demo, session) -> None:
    digits = demo.load_held_out()
    accuracy = (demo.probabilities(session, digits.images).argmax(1) == digits.labels).mean()
    metadata = session.get_modelmeta().custom_metadata_map
    assert accuracy >= 0.97
    assert accuracy == pytest.approx(float(metadata["held_out_accuracy"]), abs=5e-5)
    assert len(digits.labels) == int(metadata["held_out_digits"])


def test_the_network_takes_any_batch(demo, session) -> None:
    images = demo.load_held_out().images
    together = demo.probabilities(session, images[:5])
    alone = np.concatenate([demo.probabilities(session, images[i : i + 1]) for i in range(5)])
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-6)


def test_a_picture_has_two_characters_for_each_pixel(demo) -> None:
    image = np.zeros((8, 8), np.uint8)
    image[0, 0], image[7, 7] = 16, 8
    lines = demo.picture(image, " .+#@").split("\n")
    assert lines[0] == "@@" + " " * 14
    assert lines[7] == " " * 14 + "++"
    assert len(lines) == 8


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_the_demo_shows_pictures_truth_and_accuracy_in_terminals_of(encoding, demo, session) -> None:
    written = io.BytesIO()
    file = io.TextIOWrapper(written, encoding=encoding)
    digits = demo.load_held_out()
    demo.show(Console(file=file, width=100), session, digits, count=2)
    file.flush()
    text = written.getvalue().decode(encoding)
    assert text.count("truth") == 2
    assert f"of {len(digits.labels)} held-out digits recognized" in text


def test_latency_is_the_median_of_the_asked_runs(demo) -> None:
    class CountingSession:
        runs = 0

        def run(self, output_names, input_feed):
            self.runs += 1
            return [np.zeros((1, 10), np.float32)]

    counting = CountingSession()
    assert demo.median_latency_ms(counting, np.zeros((8, 8), np.uint8), runs=20) >= 0
    assert counting.runs == 22


def test_the_demo_shows_placement_and_latency_and_recognizes_what_onnxruntime_does(demo, session, capsys) -> None:
    import ort_core

    if not hasattr(ort_core, "InferenceSession"):
        pytest.skip("ort_core.InferenceSession is not written yet")
    assert demo.main(["--count", "2", "--runs", "5"]) == 0
    shown = capsys.readouterr().out
    accuracy = float(session.get_modelmeta().custom_metadata_map["held_out_accuracy"])
    assert f"held-out digits recognized ({accuracy:.2%})" in shown
    assert "CPUExecutionProvider" in shown
    assert "median of 5 runs" in shown
