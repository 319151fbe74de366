"""Float16 models quantized statically: every scale has the model's type, whatever gave its range."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from beside_onnxruntime import relative_error, run_onnxruntime, run_ours
from onnx import ModelProto, TensorProto, numpy_helper, parser

from ort_quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
from ort_quantization.calibration.histograms import Histogram

ATTENTION = """<ir_version: 8, opset_import: ["" : 19]>
g (float16[2, 6, 16] x) => (float16[2, 6, 16] y, float16[2, 6, 16] z) {
    q = MatMul(x, wq) k = MatMul(x, wk) v = MatMul(x, wv)
    turned = Transpose <perm = [0, 2, 1]> (k)
    scores = MatMul(q, turned)
    shares = Softmax <axis = -1> (scores)
    seen = MatMul(shares, v)
    c = Clip(seen, low, high)
    y = MatMul(c, wo)
    z = Sigmoid(y)
}"""


def attention() -> ModelProto:
    random = np.random.default_rng(0)
    model = parser.parse_model(ATTENTION)
    arrays = {name: random.normal(size=(16, 16)) / 4 for name in ("wq", "wk", "wv", "wo")} | {"low": -0.5, "high": 0.5}
    for name, value in arrays.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value, np.float16), name))
    return model


class Reader:
    """Gives three random samples."""

    def __init__(self) -> None:
        random = np.random.default_rng(1)
        self.samples = [{"x": random.normal(size=(2, 6, 16)).astype(np.float16)} for _ in range(3)]
        self.left = iter(self.samples)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.left, None)


@pytest.mark.parametrize("method", [CalibrationMethod.MinMax, CalibrationMethod.Entropy, CalibrationMethod.Percentile])
@pytest.mark.parametrize("is_symmetric", [False, True], ids=["", "symmetric"])
@pytest.mark.parametrize(
    "types", [(QuantType.QUInt8, QuantType.QInt8), (QuantType.QUInt16, QuantType.QInt8)], ids=["8 bits", "16 bits"]
)
def test_an_attention_runs_and_is_near_its_floats(tmp_path, method, is_symmetric, types):
    source, target = tmp_path / "float.onnx", tmp_path / "quantized.onnx"
    onnx.save(attention(), source)
    reader = Reader()
    quantize_static(
        source, target, reader, QuantFormat.QDQ, activation_type=types[0], weight_type=types[1], per_channel=True,
        calibrate_method=method,
        extra_options={"ActivationSymmetric": is_symmetric, "CalibTensorRangeSymmetric": is_symmetric},
    )  # fmt: skip
    scales = [each for each in onnx.load(target).graph.initializer if each.name.endswith("_scale")]
    assert {each.data_type for each in scales} == {TensorProto.FLOAT16}
    exact = run_onnxruntime(source, reader.samples[0])
    for found in (run_onnxruntime(target, reader.samples[0]), run_ours(target, reader.samples[0])):
        assert relative_error(found, exact) < 0.1


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("first", [0.0, 1.0, -1000.0])
def test_bins_may_be_smaller_than_the_steps_of_a_type(dtype, first):
    values = (first + np.spacing(dtype(max(abs(first), 1))) * np.arange(16)).astype(dtype)
    histogram = Histogram(2048)
    histogram.add(values)
    for counts, edges in (histogram.of_magnitudes(2048), histogram.between(-2000.0, 2000.0, 2048)):
        assert counts.sum() == 16
        assert edges.dtype == dtype
        assert (np.diff(edges.astype(np.float64)) >= 0).all()
