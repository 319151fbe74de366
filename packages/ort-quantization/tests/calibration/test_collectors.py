"""Collectors beside onnxruntime's: programs feed them, read and replace their histograms, and derive from them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from float_models import conv
from onnxruntime.quantization import calibrate as theirs
from onnxruntime.quantization.quant_utils import smooth_distribution as their_smooth

from ort_quantization import calibrate as ours
from ort_quantization.calibrate import CalibrationMethod, HistogramCollector, create_calibrator
from ort_quantization.errors import InvalidCalibration, InvalidQuantization
from ort_quantization.quant_utils import smooth_distribution


class Reader:
    """Gives four samples, each with larger numbers than the one before."""

    def __init__(self):
        random = np.random.default_rng(2)
        self.left = iter([{"x": random.normal(size=(1, 3, 11, 11)).astype("f") * (1 + place)} for place in range(4)])

    def get_next(self):
        return next(self.left, None)


METHODS = {
    "percentile of magnitudes": ("percentile", True, 256, 128, 99.0, "same"),
    "percentile": ("percentile", False, 256, 128, 99.0, "same"),
    "entropy": ("entropy", False, 256, 64, 99.9, "same"),
    "distribution": ("distribution", False, 512, 128, 99.9, "same"),
}
each_method = pytest.mark.parametrize("arguments", METHODS.values(), ids=METHODS)


def samples(count=4, growth=1.5):
    random = np.random.default_rng(7)
    return [(random.normal(size=500) * growth**place).astype(np.float32) for place in range(count)]


def ends_of(result):
    return result.range_value if hasattr(result, "range_value") else result[:2]


@each_method
def test_numbers_that_come_at_once_give_onnxruntimes_histogram_and_range(arguments):
    found, expected = HistogramCollector(*arguments), theirs.HistogramCollector(*arguments)
    for collector in (found, expected):
        collector.collect({"x": samples()})
    here, there = (each.get_histogram_dict()["x"] for each in (found, expected))
    assert len(here) == len(there)
    np.testing.assert_array_equal(here[0], there[0])
    for facts in zip(here[1:], there[1:], strict=True):
        np.testing.assert_allclose(*facts, rtol=1e-6, atol=1e-5)
    results = [each.compute_collection_result()["x"] for each in (found, expected)]
    np.testing.assert_allclose(*map(ends_of, results), rtol=1e-6)


@each_method
def test_numbers_that_come_one_by_one_give_a_range_within_a_bin_of_onnxruntimes(arguments):
    found, expected = HistogramCollector(*arguments), theirs.HistogramCollector(*arguments)
    for place, sample in enumerate(samples()):
        found.collect({"x": sample, **({"y": sample} if place else {})})
    expected.collect({"x": samples(), "y": samples()[1:]})
    results = [each.compute_collection_result() for each in (found, expected)]
    for name in ("x", "y"):
        width = 2 * max(np.abs(each).max() for each in samples()) / arguments[2]
        np.testing.assert_allclose(*(ends_of(each[name]) for each in results), atol=1.01 * width)


@each_method
def test_a_histogram_that_a_program_stores_is_counted_on_as_onnxruntimes_is(arguments):
    first, *others = samples()
    start = theirs.HistogramCollector(*arguments)
    start.collect({"x": first})
    found, expected = HistogramCollector(*arguments), theirs.HistogramCollector(*arguments)
    for collector in (found, expected):
        collector.histogram_dict["x"] = start.histogram_dict["x"]
        for sample in others:
            collector.collect({"x": sample})
    here, there = (each.histogram_dict["x"] for each in (found, expected))
    assert here[0].sum() == 2000
    np.testing.assert_allclose(here[2:4], there[2:4])
    results = [each.compute_collection_result()["x"] for each in (found, expected)]
    width = float(there[1][1] - there[1][0])
    np.testing.assert_allclose(*map(ends_of, results), atol=1.01 * width)


def test_merged_histograms_are_onnxruntimes():
    arguments = METHODS["entropy"]
    found, expected = HistogramCollector(*arguments), theirs.HistogramCollector(*arguments)
    first, *others = samples()
    reach = np.abs(first).max()
    counts, edges = np.histogram(first, 256, (-reach, reach))
    here = there = (counts, edges, first.min(), first.max(), reach)
    for sample in others:
        given = sample, sample.min(), sample.max(), np.abs(sample).max()
        here, there = found.merge_histogram(here, *given), expected.merge_histogram(there, *given)
        assert len(here[0]) == len(there[0])
        assert np.abs(np.cumsum(here[0]) - np.cumsum(there[0])).max() <= 1
        np.testing.assert_allclose(here[4], there[4], rtol=1e-6)


def test_a_stored_histogram_stays_small_however_far_numbers_reach():
    collector = HistogramCollector(*METHODS["entropy"])
    collector.histogram_dict["x"] = theirs.HistogramCollector(*METHODS["entropy"]).merge_histogram(
        (np.zeros(128, np.int64), np.zeros(129), np.float32(0), np.float32(0), np.float32(0)),
        np.ones(10, np.float32), np.float32(1), np.float32(1), np.float32(1),
    )  # fmt: skip
    collector.collect({"x": np.array([1e9, -1.0], np.float32)})
    counts, edges, least, most, reach = collector.histogram_dict["x"]
    assert counts.sum() == 12
    assert len(counts) <= 2**20 + 2
    assert len(edges) == len(counts) + 1
    assert (float(least), float(most)) == (-1, 1e9)
    assert reach >= 1e9


@pytest.mark.parametrize("scenario", ["same", "p3"])
def test_what_follows_from_nothing_or_from_wrong_arguments_is_told(scenario):
    collector = HistogramCollector("distribution", False, 512, 128, 99.9, scenario)
    with pytest.raises(InvalidCalibration, match="Call collect first"):
        collector.compute_collection_result()
    with pytest.raises(InvalidQuantization, match="float32 and float16; found float64 for 'x'"):
        collector.collect({"x": np.zeros(4)})
    with pytest.raises(InvalidQuantization, match="found list for 'x'"):
        collector.collect({"x": [[1.0]]})
    with pytest.raises(InvalidQuantization, match="distribution, entropy, percentile; found 'mse'"):
        HistogramCollector("mse", False, 512, 128, 99.9, scenario).collect({"x": np.zeros(4, np.float32)})
    collector.collect({"x": np.array([np.nan], np.float32)})
    with pytest.raises(InvalidCalibration, match="'x' had no finite number"):
        collector.compute_collection_result()


def test_smoothing_and_relative_entropy_are_onnxruntimes():
    counts = np.array([0, 3, 9, 0, 5, 1])
    np.testing.assert_allclose(smooth_distribution(counts), their_smooth(counts), rtol=1e-6)
    assert smooth_distribution(np.zeros(3, np.int64)) is None
    shares = np.array([0, 1, 2, 3], np.float32), np.array([1, 1, 0, 4], np.float32)
    expected = [0, 0, np.inf, 3 * np.log(0.75)]  # onnxruntime's has infinity for the first, too
    np.testing.assert_allclose(ours.rel_entr(*shares), expected, rtol=1e-6)
    shares = np.array([0.5, 1, 2, 3], np.float32), np.array([1, 1, 1, 4], np.float32)
    np.testing.assert_allclose(ours.entropy(*shares, base=2), theirs.entropy(*shares, base=2), rtol=1e-5)


def calibrated(tmp_path, method):
    onnx.save(conv(), tmp_path / "float.onnx")
    calibrator = create_calibrator(tmp_path / "float.onnx", None, tmp_path / "augmented.onnx", method)
    calibrator.collect_data(Reader())
    return calibrator, {name: data.range_value for name, data in calibrator.compute_data().items()}


def assert_equal(found, expected):
    """But for the rounding of kernels: few samples run by numpy."""
    assert found.keys() == expected.keys()
    for name, ends in found.items():
        np.testing.assert_allclose(np.ravel(ends), np.ravel(expected[name]), rtol=1e-5, atol=1e-6)


def test_a_collector_that_a_program_puts_in_its_place_counts_the_samples(tmp_path, monkeypatch):
    seen = set()

    class Noting(HistogramCollector):
        def collect(self, name_to_arr):
            seen.update(name_to_arr)
            super().collect(name_to_arr)

    _, expected = calibrated(tmp_path, CalibrationMethod.Entropy)
    monkeypatch.setattr(ours, "HistogramCollector", Noting)
    calibrator, found = calibrated(tmp_path, CalibrationMethod.Entropy)
    assert isinstance(calibrator.collector, Noting)
    assert seen == set(found) == set(expected)
    assert found == expected


def collected_by_samples(self, data_reader):
    """Do as nvidia-modelopt's step does: run a sample, and hand it to a collector."""
    names = [each.name for each in self.infer_session.get_outputs()]
    while sample := data_reader.get_next():
        self.intermediate_outputs.append(self.infer_session.run(None, sample))
        merged: dict[str, list[np.ndarray]] = {}
        for outputs in self.intermediate_outputs:
            for name, value in zip(names, outputs, strict=True):
                merged.setdefault(name, []).append(value)
        if not self.collector:
            self.collector = HistogramCollector(
                method=self.method, symmetric=self.symmetric, num_bins=self.num_bins,
                num_quantized_bins=self.num_quantized_bins, percentile=self.percentile, scenario=self.scenario,
            )  # fmt: skip
        self.collector.collect({name: merged[name] for name in merged if name in self.tensors_to_calibrate})
        self.clear_collected_data()


@pytest.mark.parametrize("method", ["Entropy", "Percentile", "Distribution"])
def test_a_step_that_a_program_replaces_finds_what_onnxruntimes_calibrator_has(tmp_path, monkeypatch, method):
    _, expected = calibrated(tmp_path, CalibrationMethod[method])
    monkeypatch.setattr(ours.HistogramCalibrater, "collect_data", collected_by_samples)
    _, found = calibrated(tmp_path, CalibrationMethod[method])
    assert_equal(found, expected)


def made_bare(self, model_path, op_types_to_calibrate=None, augmented_model_path="", symmetric=False,
              use_external_data_format=False, per_channel=False):  # fmt: skip
    """Set what onnxruntime's base class sets, and nothing else."""
    self.model = ours.load_model_with_shape_infer(model_path)
    self.op_types_to_calibrate, self.augmented_model_path = op_types_to_calibrate, augmented_model_path
    self.symmetric, self.use_external_data_format = symmetric, use_external_data_format
    self.per_channel, self.augment_model, self.infer_session = per_channel, None, None
    self.execution_providers = ["CPUExecutionProvider"]


@pytest.mark.parametrize("method", list(CalibrationMethod), ids=str)
def test_a_base_class_whose_init_is_replaced_still_calibrates(tmp_path, monkeypatch, method):
    _, expected = calibrated(tmp_path, method)
    monkeypatch.setattr(ours.CalibraterBase, "__init__", made_bare)
    _, found = calibrated(tmp_path, method)
    assert_equal(found, expected)


def extremes_by_samples(self, data_reader):
    """Do as onnxruntime's own step does: keep extremes of samples, and merge them by hand."""
    while sample := data_reader.get_next():
        self.intermediate_outputs.append(self.infer_session.run(None, sample))
    names = [each.name for each in self.infer_session.get_outputs()][self.num_model_outputs :]
    merged = dict(zip(names, zip(*(each[self.num_model_outputs :] for each in self.intermediate_outputs)), strict=True))
    pairs = {
        least.rpartition("_")[0]: (np.nanmin(merged[least], axis=0), np.nanmax(merged[most], axis=0))
        for least, most in zip(names[::2], names[1::2], strict=True)
    }
    self.calibrate_tensors_range = ours.TensorsData(CalibrationMethod.MinMax, pairs)


def test_the_model_gives_extremes_in_the_order_and_by_the_names_that_programs_expect(tmp_path, monkeypatch):
    _, expected = calibrated(tmp_path, CalibrationMethod.MinMax)
    monkeypatch.setattr(ours.MinMaxCalibrater, "collect_data", extremes_by_samples)
    _, found = calibrated(tmp_path, CalibrationMethod.MinMax)
    assert_equal(found, expected)
