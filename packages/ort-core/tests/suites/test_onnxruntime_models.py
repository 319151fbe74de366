"""Small models of onnxruntime's own tests: its results, or an OrtError where it has an error."""

from __future__ import annotations

import gzip
import json
import os

import numpy as np
import onnx
import pytest
from expectations import assert_names_only, read_expectations
from outside_runners import build_worker, find_cases, import_runner

import ort_core as ort
from ort_core.tolerances import compare

FOLDER = find_cases("testdata_models")
EXPECTED = read_expectations("models")
FAILED = ("load-error", "run-error")


def read_reference():
    with gzip.open(find_cases("testdata_reference.json.gz"), "rt") as file:
        return {name.removeprefix("testdata/"): record for name, record in json.load(file)["models"].items()}


REFERENCE = read_reference()


@pytest.fixture(scope="module")
def worker():
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ALLOW_RELEASED_ONNX_OPSET_ONLY", os.environ.get("ALLOW_RELEASED_ONNX_OPSET_ONLY", "0"))
        yield build_worker(import_runner("sweep_models"))


def assert_same_interface(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        assert [each[:2] for each in ours] == [each[:2] for each in theirs], "names or types differ"
        for (name, _, left), (_, _, right) in zip(ours, theirs, strict=True):
            if left and right:
                assert len(left) == len(right), f"{name} has shape {left}, expected {right}"
            fixed = [(p, q) for p, q in zip(left, right, strict=False) if isinstance(p, int) and isinstance(q, int)]
            assert all(p == q for p, q in fixed), f"{name} has shape {left}, expected {right}"


def working_type(path):
    """Return float16 for a model that rounds to it anywhere inside: its float outputs are no more exact than that."""
    if path.suffix == ".ort":  # none of them has half types, and onnx does not read the format
        return np.dtype("float64")
    model = onnx.load(path, load_external_data=False)
    tensors = [tensor.data_type for tensor in model.graph.initializer]
    casts = [a.i for node in model.graph.node for a in node.attribute if node.op_type == "Cast" and a.name == "to"]
    inputs = [info.type.tensor_type.elem_type for info in model.graph.input]
    return np.dtype("float16" if onnx.TensorProto.FLOAT16 in (*tensors, *casts, *inputs) else "float64")


def assert_same_output(found, expected, where, rounded_to):
    assert (found["t"], found.get("shape")) == (expected["t"], expected.get("shape")), where
    if expected["t"] == "str":
        assert found["v"] == expected["v"], where
    elif isinstance(expected["v"], list):
        left, right = (np.array(side["v"], expected["t"]) for side in (found, expected))
        scale = max(1.0, float(np.nanmax(np.abs(np.where(np.isfinite(right), right, 0)), initial=0.0)))
        if left.dtype.kind == "f":  # relative to the largest value: sums cancel in the small ones
            dtype = min(left.dtype, rounded_to, key=lambda dtype: dtype.itemsize)
            left, right = (left / scale).astype(dtype), (right / scale).astype(dtype)
        comparison = compare(left, right, "approximate")
        assert comparison.passes, f"{where}: {comparison}"


@pytest.mark.filterwarnings("ignore")  # random numbers meet logarithms and divisions; numpy's warnings are no finding
@pytest.mark.parametrize("name", [EXPECTED.parameter(name, name) for name in REFERENCE])
def test_model_behaves_as_in_onnxruntime(name, worker):
    expected, found = REFERENCE[name], worker.run_case(str(FOLDER / name))
    if expected["status"] in FAILED:
        assert found["status"] in FAILED, f"{found['status']}; onnxruntime has {expected['kind']}: {expected['msg']}"
        assert issubclass(getattr(ort.errors, found["kind"]), ort.OrtError), found["msg"]
        return
    assert found["status"] == expected["status"], found.get("msg")
    assert_same_interface(found["io"], expected["io"])
    for index, (left, right) in enumerate(zip(found.get("outputs", []), expected.get("outputs", []), strict=True)):
        assert_same_output(left, right, f"output {index}", working_type(FOLDER / name))


def test_expected_failures_name_models_that_exist():
    assert_names_only("models", set(REFERENCE))
