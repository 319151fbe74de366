"""How a calibrator runs its samples: on what, how many at once, told to whom, and gone on with after a break.

Few samples run by the numpy kernels, which compile nothing: a model that gives all its values is slow to compile. The
count decides, never a clock, so that equal samples give equal ranges.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto

from ort_core.whole_files import written_whole
from ort_quantization.calibration.calibration_data import Sample
from ort_quantization.errors import InvalidCalibration, InvalidQuantization

FEW_SAMPLES = 8  # break-even of compiling lies at 6 to 13 samples of small convolutional networks
SAVED_EVERY_S = 30.0
_META = "meta"


@dataclass(frozen=True, slots=True)
class CalibrationRuns:
    """How samples are run.

    Attributes:
        samples_at_once: how many are stacked along the first axis where the model leaves its size open.
        progress: called with the count of samples so far.
        state_path: a file that a run which was broken off goes on from.
    """

    samples_at_once: int = 1
    progress: Callable[[int], None] | None = None
    state_path: Path | None = None

    def __post_init__(self) -> None:
        """Refuse counts below one; paths may be given as text."""
        if self.state_path is not None:
            object.__setattr__(self, "state_path", Path(self.state_path))
        if self.samples_at_once < 1:
            raise InvalidQuantization(f"at least one sample is run at once; found {self.samples_at_once}")


def peeked(samples: Iterator[Sample], count: int) -> tuple[bool, Iterator[Sample]]:
    """Return whether there are more samples than a count, and all of them."""
    first = list(itertools.islice(samples, count + 1))
    return len(first) > count, itertools.chain(first, samples)


def has_open_batch(model: ModelProto) -> bool:
    """Return whether the first axis of all inputs has the same open size."""
    given = {tensor.name for tensor in model.graph.initializer}
    sizes = [each.type.tensor_type.shape.dim[:1] for each in model.graph.input if each.name not in given]
    if not sizes or not all(sizes) or any(size[0].HasField("dim_value") for size in sizes):
        return False
    return len({size[0].dim_param for size in sizes}) == 1


def stacked(samples: Sequence[Sample]) -> Sample | None:
    """Return samples as one, nothing where their arrays have other shapes or types."""
    found = {}
    for name in samples[0]:
        arrays = [np.asarray(sample[name]) for sample in samples if name in sample]
        first = arrays[0]
        if len(arrays) < len(samples) or not first.ndim:
            return None
        if any(each.shape[1:] != first.shape[1:] or each.dtype != first.dtype for each in arrays):
            return None
        found[name] = np.concatenate(arrays)
    return found if all(len(sample) == len(found) for sample in samples) else None


def fingerprint(*facts: object) -> str:
    """Return a digest of what a state belongs to."""
    return hashlib.sha256("\0".join(map(str, facts)).encode()).hexdigest()


def sample_digest(sample: Sample) -> str:
    """Return a digest of a sample."""
    found = hashlib.sha256()
    for name in sorted(sample):
        array = np.ascontiguousarray(sample[name])
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(array.tobytes() if array.dtype != object else repr(array.tolist()).encode())
    return found.hexdigest()


def save_state(path: Path, meta: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a state, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as place, place.open("wb") as file:
        np.savez(file, allow_pickle=False, **{_META: np.array(json.dumps(meta)), **arrays})


def load_state(path: Path, belongs_to: str) -> tuple[dict[str, object], dict[str, np.ndarray]] | None:
    """Return the meta facts and arrays of a state, nothing where there is no file.

    Raises:
        InvalidCalibration: the file is no state, or one of another model, method or options.
    """
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        meta = json.loads(str(arrays.pop(_META)))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InvalidCalibration(f"{path} is no state of a calibration; delete it to begin anew") from error
    if meta.get("belongs_to") != belongs_to:
        raise InvalidCalibration(
            f"{path} is the state of a calibration of another model, by another method or with other options; delete "
            "it to begin anew"
        )
    return meta, arrays
