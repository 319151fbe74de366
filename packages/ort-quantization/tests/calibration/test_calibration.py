"""Calibrated ranges beside those of onnxruntime's calibrators, memory, and readers and values that go wrong."""

from __future__ import annotations

import logging

import numpy as np
import onnx
import pytest
from float_models import Builder, conv, embedding, matmul
from onnxruntime.quantization import CalibrationMethod as TheirMethod
from onnxruntime.quantization import create_calibrator as their_calibrator
from onnxruntime.quantization import load_tensors_data as their_load
from onnxruntime.quantization import save_tensors_data as their_save

from ort_quantization.calibrate import (
    CalibrationDataReader,
    CalibrationMethod,
    MinMaxCalibrater,
    create_calibrator,
)
from ort_quantization.calibration.histograms import Histogram
from ort_quantization.calibration.tensor_ranges import TensorData, load_tensors_data, save_tensors_data
from ort_quantization.errors import InvalidCalibration, InvalidQuantization


class Reader(CalibrationDataReader):
    """Gives samples of normal numbers, each larger than the one before."""

    def __init__(self, shape=(1, 3, 11, 11), count=6, name="x", growth=0.4, dtype=np.float32):
        random = np.random.default_rng(2)
        self.samples = [{name: (random.normal(size=shape) * (1 + growth * i)).astype(dtype)} for i in range(count)]
        self.left = iter(self.samples)

    def get_next(self):
        return next(self.left, None)

    def __len__(self):
        return len(self.samples)

    def set_range(self, start_index, end_index):
        self.left = iter(self.samples[start_index:end_index])


def calibrated(tmp_path, make, method, reader, model=None, calls=1, **options):
    """The ranges of a calibrator, ours or theirs."""
    source = tmp_path / "float.onnx"
    onnx.save(conv() if model is None else model, source)
    kind = CalibrationMethod if make is create_calibrator else TheirMethod
    calibrator = make(source, None, str(tmp_path / f"{make.__module__}.onnx"), kind[method.name], extra_options=options)
    count = len(reader.samples) // calls
    for call in range(calls):
        reader.set_range(call * count, (call + 1) * count)
        calibrator.collect_data(reader)
    return calibrator.compute_data()


def assert_same_ranges(found, expected, **tolerance):
    assert set(found.keys()) == set(expected.keys())
    for name, data in expected.items():
        for here, there in zip(found[name].range_value, data.range_value, strict=True):
            np.testing.assert_allclose(np.squeeze(here), np.squeeze(there), err_msg=name, **tolerance)


@pytest.mark.parametrize(
    ("calls", "options"),
    [
        (1, {}),
        (3, {}),
        (1, {"symmetric": True}),
        (1, {"moving_average": True}),
        (3, {"moving_average": True, "averaging_constant": 0.3}),
        (1, {"per_channel": True}),
    ],
    ids=str,
)
def test_least_and_greatest_numbers_are_those_of_onnxruntime(tmp_path, calls, options):
    found = calibrated(tmp_path, create_calibrator, CalibrationMethod.MinMax, Reader(), calls=calls, **options)
    expected = calibrated(tmp_path, their_calibrator, CalibrationMethod.MinMax, Reader(), calls=calls, **options)
    assert_same_ranges(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (CalibrationMethod.Percentile, {}),
        (CalibrationMethod.Percentile, {"symmetric": False, "percentile": 99.0}),
        (CalibrationMethod.Percentile, {"percentile": 90.0, "num_bins": 512}),
        (CalibrationMethod.Entropy, {}),
        (CalibrationMethod.Entropy, {"num_bins": 512, "num_quantized_bins": 64}),
        (CalibrationMethod.Distribution, {}),
    ],
    ids=str,
)
def test_ranges_of_histograms_lie_within_a_bin_of_onnxruntimes(tmp_path, method, options):
    found = calibrated(tmp_path, create_calibrator, method, Reader(), **options)
    expected = calibrated(tmp_path, their_calibrator, method, Reader(), **options)
    for name, data in expected.items():
        width = 2 * np.abs(np.asarray(data.range_value)).max() / options.get("num_bins", 2048)
        for here, there in zip(found[name].range_value, data.range_value, strict=True):
            np.testing.assert_allclose(here, there, rtol=1e-5, atol=1.01 * width, err_msg=name)
    if method is CalibrationMethod.Distribution:
        for name, data in expected.items():
            np.testing.assert_allclose(found[name].avg_std, data.avg_std, rtol=1e-3, atol=1e-3, err_msg=name)


def test_values_of_whole_numbers_are_not_calibrated(tmp_path):
    reader = Reader((2, 5), name="ids", dtype=np.int64, growth=0)
    reader.samples = [{"ids": np.abs(sample["ids"])} for sample in reader.samples]
    found = calibrated(tmp_path, create_calibrator, CalibrationMethod.MinMax, reader, embedding())
    assert set(found.keys()) == {"e", "h", "t", "s", "y"}


def test_a_histogram_counts_what_numpy_counts():
    random = np.random.default_rng(4)
    parts = [(random.normal(size=1000) * scale).astype(np.float32) for scale in (1e-3, 0.1, 1.0, 7.0)]
    histogram = Histogram(2048)
    for part in parts:
        histogram.add(part)
    everything = np.concatenate(parts)
    reach = np.abs(everything).max()
    expected, edges = np.histogram(everything, 128, (-reach, reach))
    counts, found_edges = histogram.between(-reach, reach, 128)
    np.testing.assert_allclose(found_edges, edges, rtol=1e-6)
    assert counts.sum() == expected.sum() == everything.size
    assert np.abs(np.cumsum(counts) - np.cumsum(expected)).max() <= 4
    magnitudes, _ = histogram.of_magnitudes(256)
    assert magnitudes.sum() == everything.size
    assert (histogram.least, histogram.most) == (everything.min(), everything.max())


def test_more_numbers_than_are_kept_are_counted_within_a_bin():
    random = np.random.default_rng(4)
    parts = [(random.normal(size=30_000) * scale).astype(np.float32) for scale in (1e-3, 0.1, 1.0, 7.0)]
    histogram = Histogram(2048)
    for part in parts:
        histogram.add(part)
    everything = np.concatenate(parts)
    reach = np.abs(everything).max()
    expected, edges = np.histogram(everything, 2048, (-reach, reach))
    counts, found_edges = histogram.between(-reach, reach, 2048)
    np.testing.assert_allclose(found_edges, edges, rtol=1e-6, atol=1e-6)
    assert counts.sum() == expected.sum() == everything.size
    # Within one bin: the cumulative counts lie between those one bin before and one bin after
    whole, found = np.cumsum(expected), np.cumsum(counts)
    assert (found[1:] >= whole[:-1]).all()
    assert (found[:-1] <= whole[1:]).all()
    magnitudes, _ = histogram.of_magnitudes(256)
    assert magnitudes.sum() == everything.size


def test_zeros_and_then_numbers_are_all_counted():
    histogram = Histogram(128)
    histogram.add(np.zeros(5, np.float32))
    histogram.add(np.array([], np.float32))
    histogram.add(np.array([3.0, -1.0, np.nan, np.inf], np.float32))
    counts, _ = histogram.between(-3, 3, 4)
    assert counts.tolist() == [0, 1, 5, 1]
    assert histogram.skipped == 2


def test_memory_does_not_grow_with_samples(tmp_path):
    source = tmp_path / "float.onnx"
    onnx.save(matmul(), source)
    calibrator = create_calibrator(source, None, tmp_path / "a.onnx", CalibrationMethod.Percentile)

    def held():
        streams = calibrator.collector.get_histogram_dict().streams.values()
        kept = (each for histogram in streams for each in histogram._first)
        bins = (histogram._counts for histogram in streams)
        return sum(each.nbytes for each in (*kept, *bins))

    calibrator.collect_data(Reader((400, 16), 40))
    before = held()
    calibrator.collect_data(Reader((400, 16), 200, growth=3.0))
    assert before / 2 < held() < before * 2


@pytest.mark.parametrize("method", list(CalibrationMethod), ids=str)
def test_ranges_are_kept_in_files_that_both_tools_read(tmp_path, method):
    found = calibrated(tmp_path, create_calibrator, method, Reader())
    save_tensors_data(found, tmp_path / "new folder" / "ranges.json", smooth_quant=True)
    for load in (load_tensors_data, their_load):
        again = load(tmp_path / "new folder" / "ranges.json")
        assert again.calibration_method.name == method.name
        assert_same_ranges(again, found, rtol=0)
    theirs = their_load(tmp_path / "new folder" / "ranges.json")
    their_save(theirs, tmp_path / "theirs.json")
    assert_same_ranges(load_tensors_data(tmp_path / "theirs.json"), found, rtol=0)


class Raising:
    def get_next(self):
        raise OSError("disk gone")


class Listing:
    def get_next(self):
        return [1, 2]


@pytest.mark.parametrize("method", [CalibrationMethod.MinMax, CalibrationMethod.Percentile], ids=str)
@pytest.mark.parametrize(
    ("reader", "message"),
    [
        (lambda: Reader(count=0), "gave no sample"),
        (Raising, "raised OSError at sample 0: disk gone"),
        (Listing, "gave a list at sample 0"),
        (lambda: Reader((1, 4, 11, 11)), "sample 0"),
        (lambda: Reader(name="z"), "sample 0"),
        (lambda: Reader(dtype=np.float64), "sample 0"),
    ],
    ids=["empty", "raising", "no dictionary", "shape", "name", "type"],
)
def test_readers_that_go_wrong_are_told_of(tmp_path, reader, message, method):
    source = tmp_path / "float.onnx"
    onnx.save(conv(), source)
    calibrator = create_calibrator(source, None, tmp_path / "a.onnx", method)
    with pytest.raises(InvalidCalibration, match=message):
        calibrator.collect_data(reader())
    with pytest.raises(InvalidCalibration, match="No data is collected"):
        calibrator.compute_data()


@pytest.mark.parametrize("method", [CalibrationMethod.MinMax, CalibrationMethod.Percentile], ids=str)
def test_values_that_are_no_numbers_are_left_out_or_refused(tmp_path, method, caplog):
    b = Builder()
    b.node("Sqrt", ["x"], "y")
    model = b.model({"x": (4,)}, ["y"])
    reader = Reader((4,))
    reader.samples = [{"x": np.array([-1, -1, -1, -1], "f")}, {"x": np.array([1, 4, 4, 9], "f")}]
    with caplog.at_level(logging.WARNING):
        found = calibrated(tmp_path, create_calibrator, method, reader, model)
    assert "y" in caplog.text
    assert float(np.squeeze(found["y"].highest)) <= 3
    reader.samples = reader.samples[:1]
    with pytest.raises(InvalidCalibration, match=r"'y' had (no finite number|NaN or infinities in every)"):
        calibrated(tmp_path, create_calibrator, method, reader, model)


def test_numbers_beside_missing_ones_are_counted_and_extremes_refused_with_what_to_do(tmp_path):
    b = Builder()
    b.node("Sqrt", ["x"], "y")
    model = b.model({"x": (4,)}, ["y"])
    reader = Reader((4,))
    reader.samples = [{"x": np.array([np.nan, 1, 4, 9], "f")}, {"x": np.array([1, 4, 4, np.nan], "f")}]
    found = calibrated(tmp_path, create_calibrator, CalibrationMethod.Percentile, reader, model)
    assert 2.9 < float(np.squeeze(found["y"].highest)) <= 3.1
    reader.samples = list(reader.samples)
    with pytest.raises(InvalidCalibration, match=r"in every calibration sample.*calibrate by Entropy or Percentile"):
        calibrated(tmp_path, create_calibrator, CalibrationMethod.MinMax, reader, model)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("Percentile", {"percentile": 101}),
        ("Distribution", {"num_bins": 100}),
        ("Distribution", {"scenario": "other"}),
        ("MinMax", {"moving_average": True, "averaging_constant": 2}),
    ],
)
def test_options_out_of_bounds_are_refused(tmp_path, method, options):
    with pytest.raises(InvalidQuantization):
        calibrated(tmp_path, create_calibrator, CalibrationMethod[method], Reader(), **options)


def test_facts_of_tensors_are_checked():
    with pytest.raises(ValueError, match="no fact"):
        TensorData(mean=np.float32(0))
    with pytest.raises(ValueError, match="float32 or float16"):
        TensorData(lowest=np.float64(0), highest=np.float32(1))
    with pytest.raises(FileNotFoundError):
        load_tensors_data("no such file")


def test_extremes_are_taken_where_a_value_is_given_so_that_none_is_kept_to_the_end(tmp_path):
    b = Builder()
    value = "x"
    for place in range(6):
        value = b.node("Relu", [value], f"r{place}")
    onnx.save(b.model({"x": (2, 8)}, [value]), tmp_path / "float.onnx")
    create_calibrator(tmp_path / "float.onnx", None, tmp_path / "augmented.onnx")
    nodes = onnx.load(tmp_path / "augmented.onnx").graph.node
    order = [node.op_type for node in nodes]
    assert order == ["ReduceMin", "ReduceMax", *(["Relu", "ReduceMin", "ReduceMax"] * 6)]


def test_a_program_may_take_the_results_out_of_the_model_that_gives_inner_values(tmp_path, monkeypatch):
    """Olive does so: extremes alone leave the model."""
    whole = MinMaxCalibrater.augment_graph

    def without_results(self):
        whole(self)
        model = onnx.load(self.augmented_model_path)
        for name in list(self.model_original_outputs):
            model.graph.output.remove(next(each for each in model.graph.output if each.name == name))
            self.model_original_outputs.remove(name)
            self.num_model_outputs -= 1
        onnx.save(model, self.augmented_model_path)

    onnx.save(conv(), tmp_path / "float.onnx")
    ranges = []
    for step in (whole, without_results):
        monkeypatch.setattr(MinMaxCalibrater, "augment_graph", step)
        calibrator = create_calibrator(tmp_path / "float.onnx", None, tmp_path / "augmented.onnx")
        calibrator.collect_data(Reader())
        ranges.append({name: data.range_value for name, data in calibrator.compute_data().items()})
    assert calibrator.num_model_outputs == 0
    assert ranges[0] == ranges[1]
