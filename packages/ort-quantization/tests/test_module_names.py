"""The package has three names: its own, the one below ort_core, and onnxruntime's under the drop-in."""

from __future__ import annotations

import importlib
import importlib.metadata
import subprocess
import sys

import pytest


def run(program: str) -> str:
    """Run a program in a process of its own and return what it prints."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_name_below_ort_core_gives_the_package_itself() -> None:
    assert importlib.import_module("ort_core.quantization") is importlib.import_module("ort_quantization")


@pytest.mark.parametrize("prefix", ["ort_core", "onnxruntime"])
def test_a_class_is_the_same_whichever_name_it_was_imported_by(prefix: str) -> None:
    start = "from ort_core.dropin import install; install(); " if prefix == "onnxruntime" else ""
    program = (
        f"{start}from {prefix}.quantization import QuantType; from {prefix}.quantization.quantized_types import "
        f"QuantType as again; import {prefix}.quantization.quantized_types as module; import ort_quantization; "
        "print(QuantType is again is ort_quantization.QuantType, module.QuantType is again)"
    )
    assert run(program).split() == ["True", "True"]


def test_a_module_that_the_package_does_not_have_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("ort_core.quantization.no_such_module")


def test_without_the_package_the_import_says_what_to_install() -> None:
    program = (
        "import importlib.metadata as m; m.entry_points = lambda **_: ()\n"
        "try:\n    import ort_core.quantization\nexcept ModuleNotFoundError as error:\n    print(error)"
    )
    assert "pip install ort-quantization" in run(program)


def test_the_distribution_has_the_version_of_ort_core() -> None:
    assert importlib.metadata.version("ort-quantization") == importlib.metadata.version("ort-core")


MISSING_YET = {  # of onnxruntime's quant_utils: debugging, plots, and what no program outside it uses
    "BiasToQuantize", "QuantizedInitializer", "QuantizedValue", "apply_plot", "optimize_model", "smooth_distribution",
    "to_array_extended",
}  # fmt: skip


@pytest.mark.parametrize("module", ["quant_utils", "quantize", "shape_inference", "tensor_quant_overrides"])
def test_onnxruntimes_modules_have_their_names(module):
    theirs = importlib.import_module(f"onnxruntime.quantization.{module}")
    ours = importlib.import_module(f"ort_quantization.{module}")
    homes = {name: getattr(value, "__module__", "") for name, value in vars(theirs).items() if not name.startswith("_")}
    own = {name for name, home in homes.items() if home == theirs.__name__}
    assert {name for name in own if not hasattr(ours, name)} <= MISSING_YET


def test_the_package_has_onnxruntimes_names_but_for_those_that_need_torch_or_tensorrt():
    theirs, ours = (importlib.import_module(f"{name}") for name in ("onnxruntime.quantization", "ort_quantization"))
    kinds = {name: type(value).__name__ for name, value in vars(theirs).items() if not name.startswith("_")}
    public = {name for name, kind in kinds.items() if kind != "module"}
    assert {name for name in public if not hasattr(ours, name)} == {"CudaQuantizer"}
