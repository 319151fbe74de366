"""The users' door: every name of onnxruntime, lazily, and cheap to open."""

import subprocess
import sys

import onnxruntime
import pytest

import ort_core

# Names of onnxruntime's package that are no API: its own files, imported standard modules, private helpers.
NO_API = {
    "capi",
    "contextlib",
    "cuda_version",
    "import_capi_exception",
    "onnxruntime_validation",
    "package_name",
    "version",
}
BUDGET_MS = 50  # what `import ort_core` may cost beyond `import numpy`


def test_every_public_name_of_onnxruntime_is_there():
    theirs = {name for name in dir(onnxruntime) if not name.startswith("_")} - NO_API
    theirs -= {"backend", "datasets", "quantization", "tools", "transformers"}  # other packages; backend: the drop-in
    assert not {name for name in theirs if not hasattr(ort_core, name)}
    assert not theirs - set(dir(ort_core))


@pytest.mark.parametrize("name", sorted(ort_core.__all__))
def test_every_listed_name_can_be_had(name):
    assert getattr(ort_core, name) is not None


def test_an_unknown_name_is_refused_with_the_near_one():
    with pytest.raises(AttributeError, match=r"no attribute 'InferenceSesion'.*Did you mean 'InferenceSession'"):
        _ = ort_core.InferenceSesion


def test_the_import_is_cheap_and_brings_nothing_heavy():
    program = (
        "import numpy, sys, time; before = set(sys.modules); start = time.perf_counter(); import ort_core; "
        "cost = 1000 * (time.perf_counter() - start); new = {m.split('.')[0] for m in set(sys.modules) - before}; "
        "print(cost, ' '.join(sorted(new)))"
    )
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True) for _ in range(3)
    ]
    costs = [float(run.stdout.split()[0]) for run in runs]
    assert min(costs) < BUDGET_MS, f"import ort_core took {costs} ms"
    assert not {"onnx", "ml_dtypes", "llvmlite", "pluggy", "importlib_metadata"} & set(runs[0].stdout.split()[1:])


def test_options_and_values_are_had_without_onnx():
    program = (
        "import ort_core, sys; ort_core.SessionOptions(); ort_core.OrtValue; ort_core.GraphOptimizationLevel; "
        "assert 'onnx' not in sys.modules and 'ml_dtypes' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
