"""The cases of the ONNX backend test suite of the installed onnx: models, data sets and tolerances as they ship."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import DATA_DIR, load_model_tests
from onnx.backend.test.runner import Runner
from onnx_values import decode, read_value

KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted", "real")  # "real": light copies of known networks
DataSet = tuple[dict[str, object], list[object]]


@functools.cache
def backend_cases() -> dict[str, TestCase]:
    """Return every case by name. The node cases are computed by onnx on the first call, which takes seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # onnx's own arithmetic on hostile numbers while it makes its expectations
        cases = {case.name: case for kind in KINDS for case in load_model_tests(kind=kind)}
    return dict(sorted(cases.items()))


def model_of(case: TestCase) -> onnx.ModelProto | str:
    """Return what to load: the model that is given, or its path."""
    if case.model is not None:
        return case.model
    if case.model_dir is not None:
        return str(Path(case.model_dir, "model.onnx"))
    return str(Path(DATA_DIR, "light", Path(case.url).name))


def data_sets(case: TestCase) -> Iterator[DataSet]:
    """Yield feeds by input name, and the expected outputs."""
    source = model_of(case)
    model = onnx.load(source, load_external_data=False) if isinstance(source, str) else source
    if case.data_sets is not None:
        for inputs, outputs in case.data_sets:
            names = [info.name for info in model.graph.input]
            yield dict(zip(names, map(decode, inputs), strict=False)), [decode(value) for value in outputs]
    elif case.model_dir is not None:
        for folder in sorted(Path(case.model_dir).glob("test_data_set_*")):
            yield _stored(folder, model)
    else:
        yield _light(Path(str(source)), model)


def _stored(folder: Path, model: onnx.ModelProto) -> DataSet:
    infos = {info.name: info for info in model.graph.input}
    feeds: dict[str, object] = {}
    for index, info in enumerate(required_inputs(model, len(list(folder.glob("input_*.pb"))))):
        name, value = read_value(folder / f"input_{index}.pb", info.type)
        feeds[name if name in infos else info.name] = value
    count = len(list(folder.glob("output_*.pb")))
    outputs = [
        read_value(folder / f"output_{index}.pb", info.type)[1] for index, info in enumerate(model.graph.output[:count])
    ]
    return feeds, outputs


def required_inputs(model: onnx.ModelProto, count: int) -> list[onnx.ValueInfoProto]:
    """Return the inputs that ``count`` stored values belong to: those without a default, unless there are more."""
    defaults = {tensor.name for tensor in model.graph.initializer}
    required = [info for info in model.graph.input if info.name not in defaults]
    return (required if count <= len(required) else list(model.graph.input))[:count]


def _light(path: Path, model: onnx.ModelProto) -> DataSet:
    feeds: dict[str, object] = {
        info.name: Runner.generate_dummy_data(info)
        for info in required_inputs(model, len(model.graph.input) - len(model.graph.initializer))
    }
    outputs: list[object] = []
    for index in range(len(model.graph.output)):
        stored = onnx.TensorProto.FromString(path.with_name(f"{path.stem}_output_{index}.pb").read_bytes())
        outputs.append(np.asarray(decode(stored)))
    return feeds, outputs
