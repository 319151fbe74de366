"""The keys of ``extra_options``: onnxruntime's list, and those of calibration beside onnxruntime's own ranges."""

from __future__ import annotations

import copy
import re

import numpy as np
import onnx
import pytest
from float_models import Builder, conv, feeds_of
from onnx import helper
from onnxruntime import quantization as theirs

import ort_quantization as ours
from ort_quantization.arguments.extra_options import EXTRA_OPTIONS

_KEY = re.compile(r"^\s+([A-Z][A-Za-z0-9]+|extra\.Sigmoid\.nnapi)\s*=", re.MULTILINE)


@pytest.mark.parametrize("name", ["quantize_static", "quantize_dynamic"])
def test_every_key_that_onnxruntime_documents_is_known(name):
    documented = set(_KEY.findall(getattr(theirs, name).__doc__))
    assert len(documented) > 5
    assert documented <= EXTRA_OPTIONS.keys()


class Reader(ours.CalibrationDataReader):
    """Samples whose numbers grow; a stride reads a few at once."""

    def __init__(self):
        self.samples = [{"x": feeds_of(conv(), seed)["x"] * (1 + 0.3 * seed)} for seed in range(6)]
        self.left = iter(self.samples)

    def get_next(self):
        return next(self.left, None)

    def __len__(self):
        return len(self.samples)

    def set_range(self, start_index, end_index):
        self.left = iter(self.samples[start_index:end_index])


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("MinMax", {}),
        ("MinMax", {"CalibTensorRangeSymmetric": True}),
        ("MinMax", {"CalibMovingAverage": True}),
        ("MinMax", {"CalibMovingAverage": True, "CalibMovingAverageConstant": 0.3, "CalibStridedMinMax": 2}),
        ("MinMax", {"CalibStridedMinMax": 3}),
        ("Percentile", {"CalibPercentile": 98.0}),
        ("Percentile", {"CalibPercentile": 98.0, "CalibTensorRangeSymmetric": False}),
        ("Entropy", {"CalibTensorRangeSymmetric": True}),
    ],
    ids=str,
)
def test_options_of_calibration_give_onnxruntimes_ranges(tmp_path, method, options):
    source = tmp_path / "float.onnx"
    onnx.save(conv(), source)
    found = {}
    for package, name in ((ours, "here"), (theirs, "there")):
        package.quantize_static(
            source, tmp_path / f"{name}.onnx", Reader(), activation_type=package.QuantType.QUInt8,
            calibrate_method=package.CalibrationMethod[method], extra_options=copy.deepcopy(options),
            calibration_cache_path=tmp_path / f"{name}.json",
        )  # fmt: skip
        found[name] = package.load_tensors_data(tmp_path / f"{name}.json")
    assert set(found["here"].keys()) == set(found["there"].keys())
    for name in found["there"].keys():  # noqa: SIM118 - onnxruntime's has no iterator
        ends = [np.ravel(each[name].range_value).astype(float) for each in found.values()]
        width = ends[1].max() - ends[1].min()
        step = {"MinMax": 1e-5, "Percentile": 2 / 2048, "Entropy": 2 / 128}[method]  # a bin on either side
        np.testing.assert_allclose(ends[0], ends[1], atol=step * width, err_msg=name)


def test_a_limit_of_kept_samples_changes_nothing(tmp_path):
    """None are kept here. The tool forgets samples: with a limit of 2 all six, and says that there are none."""
    onnx.save(conv(), tmp_path / "float.onnx")
    for limit in (None, 2, 4):
        options = {"CalibMaxIntermediateOutputs": limit} if limit else {}
        ours.quantize_static(
            tmp_path / "float.onnx", tmp_path / "quantized.onnx", Reader(), extra_options=options,
            calibration_cache_path=tmp_path / f"{limit}.json",
        )  # fmt: skip
    assert len({(tmp_path / f"{limit}.json").read_text() for limit in (None, 2, 4)}) == 1


def unknown_types():
    """A product of what an operator of somebody's own gives: nothing tells its type."""
    b = Builder()
    b.node("Mine", ["x"], "h", domain="my.own")
    b.node("Mine", [b.node("MatMul", ["h", b.weight("w", 4, 4)], "g")], "y", domain="my.own")
    model = b.model({"x": (2, 4)}, ["y"])
    model.opset_import.append(helper.make_opsetid("my.own", 1))
    return model


def test_the_type_of_a_product_is_that_of_its_weights_where_nothing_else_tells_it(tmp_path):
    """The tool wants DefaultTensorType for it; here that changes nothing."""
    with pytest.raises(RuntimeError, match="DefaultTensorType"):
        theirs.quantize_dynamic(unknown_types(), tmp_path / "theirs.onnx")
    for options in ({}, {"DefaultTensorType": onnx.TensorProto.FLOAT}):
        ours.quantize_dynamic(unknown_types(), tmp_path / f"{len(options)}.onnx", extra_options=options)
    found = [onnx.load(tmp_path / f"{count}.onnx").graph.node for count in (0, 1)]
    assert [node.op_type for node in found[0]] == [node.op_type for node in found[1]]
    assert "MatMulInteger" in {node.op_type for node in found[0]}
