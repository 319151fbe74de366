"""Samples from files, for the command line: arrays of numpy and tensors of ONNX's test data."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto, numpy_helper

from ort_quantization.calibration_data import CalibrationDataReader, Sample
from ort_quantization.errors import InvalidCalibration
from ort_quantization.model_files import read_model

_KINDS = (".npz", ".npy", ".pb")
_TEST_INPUT = re.compile(r"input_(\d+)\.pb")


class SampleReader(CalibrationDataReader):
    """Gives samples that were read before, again for each calibrator that asks."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._left: Iterator[Sample] = iter(samples)

    def get_next(self) -> Sample | None:
        """Return the next sample, ``None`` behind the last."""
        return next(self._left, None)


def read_samples(paths: Sequence[Path], model_path: Path) -> list[Sample]:
    """Return the samples of files and folders.

    Raises:
        InvalidCalibration: a path holds no samples, or a file does not say which input it is for.
    """
    if not paths:
        return []
    names = _input_names(read_model(model_path)[0])
    found = [sample for path in paths for sample in _samples_at(path, names)]
    if not found:
        raise InvalidCalibration(
            f"no samples lie at {', '.join(map(str, paths))}: files of {', '.join(_KINDS)} are read"
        )
    return found


def _input_names(model: ModelProto) -> list[str]:
    given = {tensor.name for tensor in model.graph.initializer}
    return [each.name for each in model.graph.input if each.name not in given]


def _samples_at(path: Path, names: list[str]) -> list[Sample]:
    if path.is_file():
        return [_sample_of(path, names)]
    if not path.is_dir():
        raise InvalidCalibration(f"{path} does not exist: no samples can be read from it")
    inputs = {int(match[1]): each for each in path.iterdir() if (match := _TEST_INPUT.fullmatch(each.name))}
    if inputs:
        return [{names[place]: _tensor_at(inputs[place]) for place in sorted(inputs) if place < len(names)}]
    inner = sorted(each for each in path.iterdir() if each.is_dir() or each.suffix.lower() in _KINDS)
    return [sample for each in inner for sample in _samples_at(each, names)]


def _sample_of(path: Path, names: list[str]) -> Sample:
    if path.suffix.lower() == ".npz":
        try:
            with np.load(path) as archive:
                arrays = {name: archive[name] for name in archive.files}
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise InvalidCalibration(f"{path} holds no arrays: {error}") from error
        unknown = arrays.keys() - set(names)
        if unknown:
            raise InvalidCalibration(f"{path} has {sorted(unknown)[0]!r}; the model's inputs are {', '.join(names)}")
        return arrays
    if len(names) != 1:
        raise InvalidCalibration(
            f"{path} does not say which of the inputs {', '.join(names)} it is for; use .npz files"
        )
    return {names[0]: _tensor_at(path)}


def _tensor_at(path: Path) -> np.ndarray:
    try:
        if path.suffix.lower() == ".pb":
            tensor = TensorProto()
            tensor.ParseFromString(path.read_bytes())
            return numpy_helper.to_array(tensor)
        return np.load(path)
    except (OSError, ValueError, TypeError, DecodeError, onnx.checker.ValidationError) as error:
        raise InvalidCalibration(f"{path} holds no array: {error}") from error
