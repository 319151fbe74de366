"""Models of folders that the user names: with their test data where they have some, else on seeded inputs.

A deep network carries each rounding on, and one that quantizes its activations turns the last digit of a value on the
border between two steps into a whole step. How far a right result may lie from the oracle's is therefore a property of
the model, and is measured: by how far the oracle's own result moves when inputs and small weights change in their last
digits. A difference counts where it is above what the model does to such a change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

import ort_core as ort
from ort_conformance.case import Case, DataSet
from ort_conformance.check import Check
from ort_conformance.comparison import distance
from ort_conformance.judge import case_check
from ort_conformance.subject import ORACLE
from ort_core.cli.inputs.feeds import InputRequest, build_feeds, run_with_feeds
from ort_core.cli.inputs.input_files import read_value_file
from ort_core.testing.claims import typed_model

NUDGES = 4  # draws; of rare borders between steps not every draw meets one
NUDGE = 2.0**-20  # relative, at most: eight steps of float32, what a sum of a few dozen terms may lose


def folder_checks(folder: Path) -> Iterator[Check]:
    """Yield a check for each ``.onnx`` file below a folder.

    Raises:
        FileNotFoundError: the folder holds no model.
    """
    paths = sorted(folder.rglob("*.onnx"))
    if not paths:
        raise FileNotFoundError(f"no .onnx file below {folder}")
    for path in paths:
        name = f"{folder.name}/{path.relative_to(folder).with_suffix('').as_posix()}"
        yield case_check("models", _file_case(path, name), fallbacks=())


def _file_case(path: Path, name: str) -> Case:
    recorded = sorted(path.parent.glob("test_data_set_*/input_0.pb"))

    def data_sets() -> Iterator[DataSet]:
        for first in recorded:
            yield _recorded(path, first.parent)
        if not recorded:
            with ort.InferenceSession(path, providers=[ORACLE]) as oracle:
                feeds, expected = run_with_feeds(
                    typed_model(path), InputRequest(), lambda made: oracle.run(None, made.values)
                )
            yield DataSet(feeds.values, expected)

    return Case(
        name, lambda: str(path), data_sets, "approximate", is_optimized=True,
        carried=lambda data: carried(path, data.feeds),
    )  # fmt: skip


def _recorded(path: Path, folder: Path) -> DataSet:
    """Return a data set as ONNX lays them out; outputs up to the first that is not there as protobuf."""
    model = typed_model(path)
    expected: list[object] = []
    for index, value in enumerate(model.graph.outputs):
        file = folder / f"output_{index}.pb"
        if not file.is_file():
            break
        expected.append(read_value_file(file, value))
    return DataSet(build_feeds(model, InputRequest([str(folder)])).values, expected)


def carried(path: Path, feeds: Mapping[str, object]) -> list[float]:
    """Return for each output how far the oracle's moves when nudged; infinite where its shape changes."""
    with ort.InferenceSession(path, providers=[ORACLE]) as oracle:
        base = oracle.run(None, feeds)
    moved = [0.0] * len(base)
    for seed in range(NUDGES):
        generator = np.random.default_rng(seed)
        options = ort.SessionOptions()
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(path.parent))
        model = nudged_model(path, generator).SerializeToString()
        with ort.InferenceSession(model, options, providers=[ORACLE]) as oracle:
            outputs = oracle.run(None, {name: _nudged(value, generator) for name, value in feeds.items()})
        moved = [max(before, distance(a, b)) for before, a, b in zip(moved, outputs, base, strict=True)]
    return moved


def nudged_model(path: Path, generator: np.random.Generator) -> onnx.ModelProto:
    """Return a model whose float weights inside the file are changed in their last digits; others stay beside it."""
    model = onnx.load(path, load_external_data=False)
    for proto in model.graph.initializer:
        if proto.data_type == onnx.TensorProto.FLOAT and proto.data_location != onnx.TensorProto.EXTERNAL:
            proto.CopyFrom(numpy_helper.from_array(_nudged_array(numpy_helper.to_array(proto), generator), proto.name))
    return model


def _nudged(value: object, generator: np.random.Generator) -> object:
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        return value
    return _nudged_array(value, generator)


def _nudged_array(array: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    return (array * (1 + generator.uniform(-NUDGE, NUDGE, array.shape))).astype(array.dtype)
