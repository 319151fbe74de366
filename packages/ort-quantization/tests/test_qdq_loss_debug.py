"""Values and weights of quantized models beside those of the float model, as onnxruntime's functions give them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from onnxruntime import quantization
from onnxruntime.quantization import qdq_loss_debug as theirs

from ort_quantization import qdq_loss_debug as ours
from ort_quantization.calibration.calibration_data import CalibrationDataReader
from ort_quantization.errors import InvalidCalibration
from ort_quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from ort_quantization.quantized_types import QuantFormat


class Reader(CalibrationDataReader):
    def __init__(self, count: int = 3) -> None:
        random = np.random.default_rng(0)
        samples = [{"x": random.normal(size=(2, 3, 8, 8)).astype(np.float32)} for _ in range(count)]
        self._samples: Iterator[dict[str, np.ndarray]] = iter(samples)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._samples, None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A float model, and what onnxruntime's own tool makes of it."""
    folder = tmp_path_factory.mktemp("models")
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 3, 8, 8] x) => (float[2, 4, 5] y) {
            c = Conv <pads = [1, 1, 1, 1]> (x, k, b) r = Relu(c) s = Reshape(r, shape) y = MatMul(s, w)
        }""")
    random = np.random.default_rng(1)
    for name, shape in (("k", (4, 3, 3, 3)), ("b", (4,)), ("w", (64, 5))):
        model.graph.initializer.append(numpy_helper.from_array(random.normal(size=shape).astype(np.float32), name))
    model.graph.initializer.append(numpy_helper.from_array(np.array([2, 4, 64]), "shape"))
    onnx.save_model(model, folder / "float.onnx")
    logging.disable(logging.CRITICAL)
    try:
        for per_channel, name in ((False, "qdq.onnx"), (True, "channels.onnx")):
            quantization.quantize_static(folder / "float.onnx", folder / name, Reader(), per_channel=per_channel)
    finally:
        logging.disable(logging.NOTSET)
    return folder


@pytest.mark.parametrize("operators", [None, ["MatMul"]])
@pytest.mark.parametrize("name", ["float.onnx", "qdq.onnx"])
def test_the_augmented_model_gives_the_values_that_onnxruntimes_does(
    folder: Path, name: str, operators: list[str] | None, tmp_path: Path
) -> None:
    found = []
    for tool in (theirs, ours):
        tool.modify_model_output_intermediate_tensors(folder / name, tmp_path / "augmented.onnx", operators)
        found.append(tool.collect_activations(str(tmp_path / "augmented.onnx"), Reader()))
    assert found[0].keys() == found[1].keys()
    for value in found[0]:
        assert len(found[1][value]) == 3
        for want, got in zip(found[0][value], found[1][value], strict=True):
            step = 0.1 * np.abs(want).max() if name == "qdq.onnx" else 1e-4  # a number may round to the next one
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=step)


def test_values_are_matched_and_judged_as_by_onnxruntime(folder: Path, tmp_path: Path) -> None:
    values = []
    for name in ("qdq.onnx", "float.onnx"):
        ours.modify_model_output_intermediate_tensors(folder / name, tmp_path / name)
        values.append(ours.collect_activations(tmp_path / name, Reader()))
    found, want = (tool.create_activation_matching(*values) for tool in (ours, theirs))
    assert {name: sorted(match) for name, match in found.items()} == {
        name: sorted(match) for name, match in want.items()
    }
    errors, expected = ours.compute_activation_error(found), theirs.compute_activation_error(want)
    assert errors.keys() == expected.keys()
    assert errors
    for name, each in errors.items():
        assert each == pytest.approx(expected[name], abs=0.01)
    alone = ours.compute_activation_error(ours.create_activation_matching(values[0]))
    assert all(each.keys() == {"qdq_err"} for each in alone.values())


@pytest.mark.parametrize("name", ["qdq.onnx", "channels.onnx"])
def test_weights_are_matched_and_judged_as_by_onnxruntime(folder: Path, name: str) -> None:
    logging.disable(logging.CRITICAL)
    try:
        want = theirs.create_weight_matching(str(folder / "float.onnx"), str(folder / name))
        found = ours.create_weight_matching(folder / "float.onnx", folder / name)
    finally:
        logging.disable(logging.NOTSET)
    assert found.keys() == want.keys()
    for weight, match in found.items():
        np.testing.assert_array_equal(match["float"], want[weight]["float"])
        np.testing.assert_allclose(match["dequantized"], want[weight]["dequantized"], rtol=1e-6)
    assert ours.compute_weight_error(found) == pytest.approx(theirs.compute_weight_error(want), rel=1e-4)
    assert min(ours.compute_weight_error(found).values()) > 30


@pytest.mark.parametrize("is_symmetric", [True, False])
def test_weights_in_blocks_are_matched(folder: Path, is_symmetric: bool, tmp_path: Path) -> None:
    quantizer = MatMulNBitsQuantizer(
        str(folder / "float.onnx"), block_size=16, is_symmetric=is_symmetric, quant_format=QuantFormat.QDQ
    )
    quantizer.process()
    quantizer.model.save_model_to_file(tmp_path / "blocks.onnx")
    errors = ours.compute_weight_error(ours.create_weight_matching(folder / "float.onnx", tmp_path / "blocks.onnx"))
    assert errors.keys() == {"w"}
    assert 15 < errors["w"] < 30


def test_the_ratio_is_that_of_norms_in_decibels() -> None:
    random = np.random.default_rng(2)
    left = [random.normal(size=shape).astype(np.float32) for shape in ((3, 4), (5, 4))]
    right = [each + np.float32(0.01) for each in left]
    ratio = ours.compute_signal_to_quantization_noice_ratio
    assert ratio(left, right) == pytest.approx(theirs.compute_signal_to_quantization_noice_ratio(left, right), rel=1e-5)
    assert ratio(left[0], left[0]) > 280
    assert ratio(np.zeros(3), np.zeros(3)) == 0
    with pytest.raises(RuntimeError, match="Unequal"):
        theirs.compute_signal_to_quantization_noice_ratio(left, right[:1])
    with pytest.raises(RuntimeError, match="Unequal"):
        ratio(left, right[:1])


def test_no_data_is_told(folder: Path, tmp_path: Path) -> None:
    ours.modify_model_output_intermediate_tensors(folder / "float.onnx", tmp_path / "augmented.onnx")
    with pytest.raises(InvalidCalibration, match="No data is collected"):
        ours.collect_activations(tmp_path / "augmented.onnx", Reader(0))
