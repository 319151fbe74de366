"""How calibration runs its samples: together, told of, gone on with after a break, by whom."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest
from float_models import Builder, conv, matmul

from ort_quantization import quantize_static
from ort_quantization.calibrate import CalibrationMethod, create_calibrator
from ort_quantization.errors import InvalidCalibration, InvalidQuantization

METHODS = [CalibrationMethod.MinMax, CalibrationMethod.Percentile, CalibrationMethod.Entropy]


class Reader:
    """Gives samples, and raises before one of them."""

    def __init__(self, samples, breaks_at=None):
        self.left, self.breaks_at, self.given = list(samples), breaks_at, 0

    def get_next(self):
        if self.given == self.breaks_at:
            raise OSError("power lost")
        self.given += 1
        return self.left.pop(0) if self.left else None


def samples_of(count, shape, seed=0):
    random = np.random.default_rng(seed)
    return [{"x": (random.normal(size=shape) * (1 + place)).astype(np.float32)} for place in range(count)]


def calibrator_of(tmp_path, method, model, **options):
    onnx.save(model, tmp_path / "float.onnx")
    return create_calibrator(tmp_path / "float.onnx", None, tmp_path / "a.onnx", method, extra_options=options)


def ranges_of(calibrator):
    found = calibrator.compute_data()
    return {name: tuple(float(end.item()) for end in data.range_value) for name, data in found.items()}


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("count", [5, 12])
def test_a_calibration_that_was_broken_off_goes_on_where_it_stopped(tmp_path, method, count):
    samples = samples_of(count, (1, 3, 11, 11))
    whole = calibrator_of(tmp_path, method, conv())
    whole.set_execution_providers()
    whole.collect_data(Reader(samples))
    seen = []
    options = {"state_path": tmp_path / "state", "progress": seen.append}
    broken = calibrator_of(tmp_path, method, conv(), **options)
    broken.set_execution_providers()
    with pytest.raises(InvalidCalibration, match="power lost"):
        broken.collect_data(Reader(samples, breaks_at=3))
    assert (tmp_path / "state").exists()
    resumed = calibrator_of(tmp_path, method, conv(), **options)
    resumed.set_execution_providers()
    resumed.collect_data(Reader(samples))
    assert ranges_of(resumed) == ranges_of(whole)
    assert seen == [1, 2, 3, *range(4, count + 1)], "samples of the state must not run again"
    assert not (tmp_path / "state").exists()


KILLED = """
import os, sys
import numpy as np
from ort_quantization import CalibrationMethod, quantize_static
from ort_quantization.calibration import calibrater_base

folder, method = sys.argv[1:]
calibrater_base.SAVED_EVERY_S = -1.0  # each sample is saved

class Reader:
    given = 0
    def get_next(self):
        if self.given == 7:
            os._exit(9)  # as if it were killed: nothing is tidied up
        self.given += 1
        return {"x": np.load(f"{folder}/{self.given - 1}.npy")}

quantize_static(f"{folder}/float.onnx", f"{folder}/a.onnx", Reader(), calibrate_method=CalibrationMethod[method],
                extra_options={"CalibStatePath": f"{folder}/state"})
"""


@pytest.mark.parametrize("method", ["MinMax", "Percentile", "Entropy", "Distribution"])
def test_a_calibration_whose_process_was_killed_is_resumed_with_equal_tables(tmp_path, method):
    samples = samples_of(12, (1, 3, 11, 11))
    for place, sample in enumerate(samples):
        np.save(tmp_path / f"{place}.npy", sample["x"])
    onnx.save(conv(), tmp_path / "float.onnx")
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), method], capture_output=True, check=False)
    assert done.returncode == 9, done.stderr
    tables = {}
    for name, options in {"resumed": {"CalibStatePath": tmp_path / "state"}, "whole": {}}.items():
        reader = Reader(samples)
        quantize_static(
            tmp_path / "float.onnx", tmp_path / f"{name}.onnx", reader, calibrate_method=CalibrationMethod[method],
            extra_options=options, calibration_cache_path=tmp_path / f"{name}.json",
        )  # fmt: skip
        tables[name] = (tmp_path / f"{name}.json").read_bytes()
    assert tables["resumed"] == tables["whole"]
    assert not (tmp_path / "state").exists()
    assert (tmp_path / "resumed.onnx").read_bytes() == (tmp_path / "whole.onnx").read_bytes()


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_state_of_something_else_is_refused(tmp_path, method):
    samples = samples_of(6, (2, 16))
    broken = calibrator_of(tmp_path, method, matmul(), state_path=tmp_path / "state")
    broken.set_execution_providers()
    with pytest.raises(InvalidCalibration):
        broken.collect_data(Reader(samples, breaks_at=2))
    other = calibrator_of(tmp_path, method, conv(), state_path=tmp_path / "state")
    with pytest.raises(InvalidCalibration, match="another model"):
        other.collect_data(Reader(samples_of(6, (1, 3, 11, 11))))
    again = calibrator_of(tmp_path, method, matmul(), state_path=tmp_path / "state")
    with pytest.raises(InvalidCalibration, match="with other samples"):
        again.collect_data(Reader(samples_of(6, (2, 16), seed=9)))
    (tmp_path / "state").write_bytes(b"nothing")
    with pytest.raises(InvalidCalibration, match="is no state"):
        again.collect_data(Reader(samples))


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("at_once", [2, 4, 100])
def test_samples_that_run_together_give_the_same_ranges(tmp_path, method, at_once):
    samples = samples_of(11, (3, 16))
    found = []
    for each in (1, at_once):
        counts = []
        calibrator = calibrator_of(tmp_path, method, matmul(), samples_at_once=each, progress=counts.append)
        calibrator.collect_data(Reader(samples))
        found.append(ranges_of(calibrator))
        assert counts[-1] == 11
        assert len(counts) == -(-11 // each)
    for name, expected in found[0].items():
        assert found[1][name] == pytest.approx(expected, rel=1e-3, abs=1e-6), name


def mixing():
    """A model whose samples change each other: each is divided by the largest number of all."""
    b = Builder(18)
    most = b.node("ReduceMax", ["x", b.constant("axes", [0, 1], np.int64)], "m")
    b.node("Div", ["x", most], "y")
    return b.model({"x": ("n", 4)}, ["y"])


def test_samples_that_change_each_other_run_one_by_one(tmp_path, caplog):
    random = np.random.default_rng(1)
    samples = [{"x": (random.uniform(1, 2, (1, 4)) * 10**place).astype(np.float32)} for place in range(4)]
    one, two = (
        calibrator_of(tmp_path, CalibrationMethod.Percentile, mixing(), samples_at_once=count) for count in (1, 2)
    )
    one.collect_data(Reader(samples))
    two.collect_data(Reader(samples))
    assert ranges_of(one) == ranges_of(two)
    assert "is another when they are run together" in caplog.text


def test_models_with_a_fixed_batch_take_samples_one_by_one(tmp_path):
    calibrator = calibrator_of(tmp_path, CalibrationMethod.MinMax, conv(), samples_at_once=4)
    calibrator.collect_data(Reader(samples_of(5, (1, 3, 11, 11))))
    assert "y" in ranges_of(calibrator)


def test_samples_of_other_shapes_run_one_by_one(tmp_path):
    b = Builder()
    b.node("Relu", ["x"], "y")
    samples = [{"x": np.full((1, size), -float(size), np.float32)} for size in (2, 3, 4)]
    calibrator = calibrator_of(tmp_path, CalibrationMethod.MinMax, b.model({"x": ("n", "m")}, ["y"]), samples_at_once=3)
    calibrator.collect_data(Reader(samples))
    assert ranges_of(calibrator)["x"] == (-4.0, -2.0)


@pytest.mark.parametrize(("count", "provider"), [(8, "ReferenceExecutionProvider"), (9, "CPUExecutionProvider")])
def test_few_samples_run_without_compiling(tmp_path, count, provider):
    calibrator = calibrator_of(tmp_path, CalibrationMethod.MinMax, matmul())
    calibrator.collect_data(Reader(samples_of(count, (2, 16))))
    assert calibrator.infer_session.get_providers()[0] == provider


def test_a_provider_that_is_asked_for_runs_few_samples_too(tmp_path):
    onnx.save(matmul(), tmp_path / "float.onnx")
    calibrator = create_calibrator(
        tmp_path / "float.onnx", None, tmp_path / "a.onnx", providers=["CPUExecutionProvider"]
    )
    calibrator.collect_data(Reader(samples_of(2, (2, 16))))
    assert calibrator.infer_session.get_providers() == ["CPUExecutionProvider"]


def test_no_samples_at_once_are_refused(tmp_path):
    with pytest.raises(InvalidQuantization, match="at least one"):
        calibrator_of(tmp_path, CalibrationMethod.MinMax, matmul(), samples_at_once=0)
