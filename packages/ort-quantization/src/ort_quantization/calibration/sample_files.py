"""Samples from files, for the command line: arrays of numpy and tensors of ONNX's test data."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import overload

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto, numpy_helper

from ort_quantization.calibration.calibration_data import CalibrationDataReader, Sample
from ort_quantization.errors import InvalidCalibration
from ort_quantization.models.model_files import read_model

_KINDS = (".npz", ".npy", ".pb")
_TEST_INPUT = re.compile(r"input_(\d+)\.pb")


class SampleReader(CalibrationDataReader):
    """Gives samples that were read before, again for each calibrator that asks."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._left: Iterator[Sample] = iter(samples)

    def get_next(self) -> Sample | None:
        """Return the next sample, ``None`` behind the last."""
        return next(self._left, None)


class SampleFiles(Sequence[Sample]):
    """The samples of files; each is read when it is asked for, and none is kept.

    Args:
        places: for each sample an archive that names its arrays, or files by the names of inputs.
    """

    def __init__(self, places: Sequence[Path | Mapping[str, Path]]) -> None:
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> Sample: ...

    @overload
    def __getitem__(self, place: slice) -> SampleFiles: ...

    def __getitem__(self, place: int | slice) -> Sample | SampleFiles:
        if isinstance(place, slice):
            return SampleFiles(self._places[place])
        found = self._places[place]
        if isinstance(found, Path):
            return _arrays_of(found)
        return {name: _tensor_at(path) for name, path in found.items()}


def read_samples(paths: Sequence[Path], model_path: Path) -> SampleFiles:
    """Return the samples of files and folders.

    Raises:
        InvalidCalibration: a path holds no samples, or a file does not say which input it is for; files that hold no
            numbers are told of when they are read.
    """
    if not paths:
        return SampleFiles([])
    names = _input_names(read_model(model_path)[0])
    found = [place for path in paths for place in _places_at(path, names)]
    if not found:
        raise InvalidCalibration(
            f"no samples lie at {', '.join(map(str, paths))}: files of {', '.join(_KINDS)} are read"
        )
    return SampleFiles(found)


def _input_names(model: ModelProto) -> list[str]:
    given = {tensor.name for tensor in model.graph.initializer}
    return [each.name for each in model.graph.input if each.name not in given]


def _places_at(path: Path, names: list[str]) -> list[Path | Mapping[str, Path]]:
    if path.is_file():
        return [_place_of(path, names)]
    if not path.is_dir():
        raise InvalidCalibration(f"{path} does not exist: no samples can be read from it")
    inputs = {int(match[1]): each for each in path.iterdir() if (match := _TEST_INPUT.fullmatch(each.name))}
    if inputs:
        return [{names[place]: inputs[place] for place in sorted(inputs) if place < len(names)}]
    inner = sorted(each for each in path.iterdir() if each.is_dir() or each.suffix.lower() in _KINDS)
    return [place for each in inner for place in _places_at(each, names)]


def _place_of(path: Path, names: list[str]) -> Path | Mapping[str, Path]:
    """Return where a sample lies; an archive's names are looked at, its arrays are not."""
    kind = path.suffix.lower()
    if kind not in _KINDS:
        raise InvalidCalibration(f"{path} holds no samples: files of {', '.join(_KINDS)} are read")
    if kind == ".npz":
        with _opened_archive(path) as archive:
            found = [*archive.files]
        unknown = sorted(set(found) - set(names))
        if unknown or not found:
            has = f"has {unknown[0]!r}" if unknown else "is an empty archive"
            raise InvalidCalibration(f"{path} {has}; the model's inputs are {', '.join(names)}")
        return path
    if len(names) != 1:
        raise InvalidCalibration(
            f"{path} does not say which of the inputs {', '.join(names)} it is for; use .npz files"
        )
    return {names[0]: path}


def _opened_archive(path: Path) -> np.lib.npyio.NpzFile:
    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidCalibration(f"{path} is no archive of arrays, such as numpy.savez writes") from error
    if not isinstance(found, np.lib.npyio.NpzFile):
        raise InvalidCalibration(f"{path} is one array, no archive of arrays, such as numpy.savez writes")
    return found


def _arrays_of(path: Path) -> Sample:
    with _opened_archive(path) as archive:
        try:
            return {name: archive[name] for name in archive.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise InvalidCalibration(f"{path} holds an array that cannot be read: {error}") from error


def _tensor_at(path: Path) -> np.ndarray:
    try:
        if path.suffix.lower() == ".pb":
            tensor = TensorProto()
            tensor.ParseFromString(path.read_bytes())
            return numpy_helper.to_array(tensor)
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError, TypeError, EOFError, DecodeError, onnx.checker.ValidationError) as error:
        raise InvalidCalibration(f"{path} holds no array of numbers") from error
    if not isinstance(found, np.ndarray):
        raise InvalidCalibration(f"{path} is an archive of arrays, which has the ending .npz")
    return found
