"""The package has three names, and onnxruntime's modules have their names and parameters in it."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import subprocess
import sys

import pytest
from onnxruntime_tools import theirs

MODULES = (
    "symbolic_shape_infer", "onnx_model_utils", "update_onnx_opset", "make_dynamic_shape_fixed",
    "remove_initializer_from_input", "optimize_onnx_model", "onnx_randomizer", "onnxruntime_test", "file_utils",
    "logger", "offline_tuning", "qdq_helpers.optimize_qdq_model",
)  # fmt: skip
INSIDE = {  # what onnxruntime's modules import, or need among themselves
    "symbolic_shape_infer": {"sympy", "np", "numpy_helper", "version", "deque", "logger"},
    "offline_tuning": {"pprint", "Any", "TuningResults"},
}


def run(program: str) -> str:
    """Run a program in a process of its own and return what it prints."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_name_below_ort_core_gives_the_package_itself() -> None:
    assert importlib.import_module("ort_core.tools") is importlib.import_module("ort_tools")


def test_under_the_drop_in_onnxruntimes_name_gives_the_same_classes() -> None:
    program = (
        "from ort_core.dropin import install; install(); "
        "from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference; "
        "import ort_tools.symbolic_shape_infer as own; print(own.SymbolicShapeInference is SymbolicShapeInference)"
    )
    assert run(program).split() == ["True"]


def test_modules_that_the_package_does_not_have_come_from_an_installed_onnxruntime() -> None:
    pytest.importorskip("onnxruntime")
    program = (
        "from ort_core.dropin import install; install(); "
        "import onnxruntime.tools.check_onnx_model_mobile_usability as theirs; "
        "import onnxruntime.tools.qnn.preprocess as inner; "
        "print(theirs.__file__.endswith('mobile_usability.py'), inner.__name__)"
    )
    assert run(program).split() == ["True", "onnxruntime.tools.qnn.preprocess"]


def test_without_the_package_the_import_says_what_to_install() -> None:
    program = (
        "import importlib.metadata as m; m.entry_points = lambda **_: ()\n"
        "try:\n    import ort_core.tools\nexcept ModuleNotFoundError as error:\n    print(error)"
    )
    assert "pip install ort-tools" in run(program)


def test_the_distribution_has_the_version_of_ort_core() -> None:
    assert importlib.metadata.version("ort-tools") == importlib.metadata.version("ort-core")


@pytest.mark.parametrize("name", MODULES)
def test_modules_have_onnxruntimes_functions_and_parameters(name):
    other, ours = theirs(name), importlib.import_module(f"ort_tools.{name}")
    for key, value in vars(other).items():
        if key.startswith("_") or inspect.ismodule(value) or key in INSIDE.get(name, ()):
            continue
        if getattr(value, "__module__", other.__name__) != other.__name__:
            continue  # what it imports
        assert hasattr(ours, key), key
        if inspect.isfunction(value):
            wanted = list(inspect.signature(value).parameters)
            found = list(inspect.signature(getattr(ours, key)).parameters)
            assert found[: len(wanted)] == wanted, key


def test_symbolic_shape_inference_has_onnxruntimes_arguments_and_defaults():
    ours = importlib.import_module("ort_tools.symbolic_shape_infer").SymbolicShapeInference
    other = theirs("symbolic_shape_infer").SymbolicShapeInference
    for method in ("__init__", "infer_shapes"):
        found = inspect.signature(getattr(ours, method)).parameters
        wanted = inspect.signature(getattr(other, method)).parameters
        assert {key: each.default for key, each in found.items()} == {key: each.default for key, each in wanted.items()}
