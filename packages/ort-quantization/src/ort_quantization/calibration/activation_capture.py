"""Values inside a graph, as runs over a caller's data show them: one sample after another, none is kept.

The graph's outputs are replaced by the values that are asked for, so that only what they need is computed. Samples that
are needed more than once are kept in a file, never in memory.
"""

from __future__ import annotations

import gc
import pickle
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import onnx
from onnx import ModelProto, ValueInfoProto

import ort_core
from ort_core.errors import OrtError
from ort_quantization.calibration.calibration_data import CalibrationDataReader, Sample, samples_of
from ort_quantization.errors import InvalidCalibration
from ort_quantization.models.model_files import FILE_LIMIT

Providers = Sequence[str | tuple[str, Mapping[str, object]]]
_FOLDER = "session.model_external_initializers_file_folder_path"


class Samples:
    """The samples of a reader, as often as they are needed; use it in a ``with`` statement.

    Args:
        reader: is read once, to its end.
    """

    def __init__(self, reader: CalibrationDataReader) -> None:
        self._reader = reader
        self._file: IO[bytes] | None = None
        self._count = 0

    def __enter__(self) -> Samples:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()

    def __iter__(self) -> Iterator[Sample]:
        """Yield each sample.

        Raises:
            InvalidCalibration: the reader has none, or gives something else than inputs by name.
        """
        if self._file is not None:
            yield from self._again(self._file)
            return
        self._file = tempfile.TemporaryFile(prefix="ort.samples.")  # noqa: SIM115 - closed in __exit__
        for sample in samples_of(self._reader):
            pickle.dump(dict(sample), self._file, protocol=pickle.HIGHEST_PROTOCOL)
            self._count += 1
            yield sample
        if not self._count:
            raise InvalidCalibration("the data reader gave no sample: get_next() returned None at once")

    def _again(self, file: IO[bytes]) -> Iterator[Sample]:
        file.seek(0)
        for _ in range(self._count):
            yield pickle.load(file)  # what was written above, into a file without a name


def captured(
    model: ModelProto, folder: str, names: Sequence[str], samples: Iterator[Sample], providers: Providers | None = None
) -> Iterator[dict[str, np.ndarray]]:
    """Yield the values of each sample's run, by name.

    Args:
        model: as it was loaded; unchanged behind the last value.
        folder: where its external data lies.
        names: values of the main graph; inputs of the graph may be among them.
        samples: inputs of runs.
        providers: that run it; the default ones by default.
    """
    inputs = {each.name for each in model.graph.input}
    inner = [name for name in names if name not in inputs]
    session = None
    if inner:
        with _outputs(model, inner):
            session = session_of(model, folder, providers)
    for count, sample in enumerate(samples):
        found = {name: np.asarray(sample[name]) for name in names if name in inputs and name in sample}
        if session is not None:
            results = run_sample(session, inner, sample, count)
            found.update((name, np.asarray(value)) for name, value in zip(inner, results, strict=True))
        yield found
    if session is not None:
        del session
        gc.collect()  # its weights are as large as the model's, and objects that know each other hold them


def run_sample(
    session: ort_core.InferenceSession, names: Sequence[str], sample: Sample, count: int
) -> Sequence[object]:
    """Return what a session gives for a sample.

    Raises:
        InvalidCalibration: the model does not run on it; ``count`` says which sample it is.
    """
    try:
        with np.errstate(all="ignore"):  # as compiled code does
            results: Sequence[object] = session.run(names, dict(sample))
            return results
    except OrtError as error:
        raise InvalidCalibration(f"the model does not run on calibration sample {count}: {error}") from error


def session_of(model: ModelProto, folder: str, providers: Providers | None) -> ort_core.InferenceSession:
    """Open a model in memory, however large, whose external data lies in a folder."""
    options = ort_core.SessionOptions()
    if model.ByteSize() > FILE_LIMIT:
        return _session_of_file(model, options, providers)
    if folder:
        options.add_session_config_entry(_FOLDER, folder)
    return ort_core.InferenceSession(model.SerializeToString(), options, providers=providers)


def _session_of_file(
    model: ModelProto, options: ort_core.SessionOptions, providers: Providers | None
) -> ort_core.InferenceSession:
    """Open a model that is larger than a message can be; its weights lie in a file while it is loaded."""
    with tempfile.TemporaryDirectory(prefix="ort.capture.", ignore_cleanup_errors=True) as place:
        path = Path(place) / "model.onnx"
        copied = ModelProto()
        copied.CopyFrom(model)
        onnx.save_model(copied, path, save_as_external_data=True, location="weights")
        return ort_core.InferenceSession(str(path), options, providers=providers)


@contextmanager
def _outputs(model: ModelProto, names: Sequence[str]) -> Iterator[None]:
    """Give a graph other outputs for a while."""
    graph = model.graph
    kept = list(graph.output)
    known = {each.name: each for each in [*graph.value_info, *kept]}
    try:
        del graph.output[:]
        graph.output.extend(known.get(name, ValueInfoProto(name=name)) for name in names)
        yield
    finally:
        del graph.output[:]
        graph.output.extend(kept)
