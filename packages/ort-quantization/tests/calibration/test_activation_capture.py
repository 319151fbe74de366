"""What a session takes is given back behind the last sample, before anything is made of the values."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from float_models import feeds_of, matmul

from ort_quantization import quantize_static
from ort_quantization.calibration.activation_capture import captured

SAMPLES = [{"x": np.full((4, 16), place, np.float32)} for place in range(12)]  # so many that the model is compiled


def capture(folder: Path) -> None:
    model = matmul()
    found = [values["h"] for values in captured(model, "", ["h"], iter([feeds_of(model, seed) for seed in range(2)]))]
    assert [each.shape for each in found] == [(4, 24)] * 2


def calibrate(folder: Path) -> None:
    quantize_static(matmul(), folder / "small.onnx", SAMPLES)


@pytest.mark.parametrize("use", [capture, calibrate])
def test_no_session_is_left_for_the_garbage_collector(tmp_path: Path, use: Callable[[Path], None]) -> None:
    """A session is hundreds of objects that know each other, and holds the weights once more."""
    use(tmp_path)  # what a first use loads
    gc.collect()
    gc.disable()
    try:
        use(tmp_path)
        assert gc.collect() < 100
    finally:
        gc.enable()
