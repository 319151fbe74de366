"""Random models, quantized here and by onnxruntime's tool: the same nodes, scales and zero points, equal results."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime.quantization as tool
import pytest
from beside_onnxruntime import _node, relative_error, run_onnxruntime, run_ours, tensors_of
from drawn_models import drawn_choices, drawn_model
from float_models import feeds_of

import ort_quantization

SWEPT = [pytest.param(seed, marks=pytest.mark.sweep) for seed in range(4, 30)]


class Reader(tool.CalibrationDataReader):
    """Gives three random samples."""

    def __init__(self, model):
        self.left = iter([feeds_of(model, seed) for seed in range(3)])

    def get_next(self):
        return next(self.left, None)


def quantized(package, source, target, way, activations, weights, per_channel, extra):
    kind = package.QuantType
    common = {"per_channel": per_channel, "weight_type": kind[weights], "extra_options": extra}
    if way == "dynamic":
        package.quantize_dynamic(source, target, **common)
        return
    form = package.QuantFormat.QDQ if way == "qdq" else package.QuantFormat.QOperator
    package.quantize_static(
        source, target, Reader(onnx.load(source)), quant_format=form, activation_type=kind[activations], **common
    )


@pytest.mark.parametrize("seed", [*range(4), *SWEPT])
def test_a_drawn_model_becomes_what_onnxruntime_makes_of_it(tmp_path, seed):
    random = np.random.default_rng([14, seed])
    model, choices = drawn_model(random), drawn_choices(random)
    source, here, there = (tmp_path / name for name in ("float.onnx", "here.onnx", "there.onnx"))
    onnx.save(model, source)
    extra = choices.pop("extra")
    quantized(tool, source, there, **choices, extra=dict(extra))
    quantized(ort_quantization, source, here, **choices, extra={**extra, "KeepFragileValues": False})
    ours, theirs = onnx.load(here).graph, onnx.load(there).graph
    assert set(map(_node, ours.node)) == set(map(_node, theirs.node))
    found, expected = tensors_of(ours), tensors_of(theirs)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), name
        # Ranges come from two engines, whose sums differ in the last bits: so do ties of zero points, and wide biases.
        rest = {"rtol": 1e-5, "atol": 1 if array.dtype.kind in "iu" else 0}
        np.testing.assert_allclose(found[name].astype(float), array.astype(float), **rest, err_msg=name)
    feeds = feeds_of(model)
    exact, small = run_onnxruntime(source, feeds), run_onnxruntime(here, feeds)
    loss = max(relative_error(small, exact), 0.02)
    assert relative_error(run_ours(here, feeds), small) < loss  # ties of roundings fall to either side
