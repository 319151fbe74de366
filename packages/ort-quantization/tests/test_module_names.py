"""The package has three names: its own, the one below ort_core, and onnxruntime's under the drop-in."""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
import subprocess
import sys
from types import ModuleType

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


GENERATED = "generated readers and writers of one table; calibration_tables writes it"
VENDORED = "a copy of Intel's package; SmoothQuant, GPTQ, RTN and k-quant have modules of their own here"
RECORDS = "records inside the tool; here they are Parameters, with other fields"
METHODS = "a method behind a configuration; MatMulNBitsQuantizer runs it"
PARTS = "a part of the command line"
TORCH = "takes tensors of torch on CUDA devices"
PATTERNS = "rewriting for preparation is ort_core's: prepare"
PLOTS = "shows a plot in a window"
TOOLS = "used inside the tool only"

ABSENT_MODULES = {
    "CalTableFlatBuffers": GENERATED, "CalTableFlatBuffers.KeyValue": GENERATED,
    "CalTableFlatBuffers.TrtTable": GENERATED, "cuda_quantizer": TORCH,
    "fusions.replace_upsample_with_resize": PATTERNS, "neural_compressor": VENDORED,
    "neural_compressor.onnx_model": VENDORED, "neural_compressor.util": VENDORED,
    "neural_compressor.weight_only": VENDORED,
}  # fmt: skip
"""onnxruntime's modules that have none here, and why."""

ABSENT_NAMES = {
    "execution_providers.qnn.preprocess": dict.fromkeys(
        ("InputOutputNameMap", "save_and_reload_optimize_model", "update_io_to_channel_last"), TOOLS
    ),
    "base_quantizer": {"to_array_extended": TOOLS},
    "matmul_bnb4_quantizer": {"parse_args": PARTS},
    "matmul_nbits_quantizer": {
        "DefaultWeightOnlyQuantizer": METHODS, "HQQWeightOnlyQuantizer": METHODS, "NVAWQWeightOnlyQuantizer": METHODS,
        "get_initializer": TOOLS, "is_divisible": TOOLS, "ort_convert_str_to_bool": PARTS, "parse_args": PARTS,
        "parse_key_value_pair": PARTS, "transpose_packed_int4_matrix": TOOLS,
    },
    "quant_utils": {
        "BiasToQuantize": RECORDS, "QuantizedInitializer": RECORDS, "apply_plot": PLOTS,
        "optimize_model": TOOLS,
    },
}  # fmt: skip
"""Classes and functions of onnxruntime's modules that are not in ours, and why."""

theirs = importlib.import_module("onnxruntime.quantization")
FOLDERS = ("execution_providers.qnn", "operators", "fusions", "neural_compressor", "CalTableFlatBuffers")


def modules() -> list[str]:
    """All modules below onnxruntime.quantization, by their names there; some folders are no packages."""
    found = [each.name for each in pkgutil.iter_modules(theirs.__path__)]
    for folder in FOLDERS:
        places = [f"{path}/{folder.replace('.', '/')}" for path in theirs.__path__]
        found += [f"{folder}.{each.name}" for each in pkgutil.iter_modules(places)]
    return sorted(found)


def own_names(module: ModuleType) -> set[str]:
    """The public classes and functions that a module defines."""
    own = {name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__}
    return {name for name in own if not name.startswith("_")}


@pytest.mark.parametrize("name", modules())
def test_each_module_of_onnxruntime_has_its_names_here_or_a_reason_why_not(name):
    try:
        module = importlib.import_module(f"ort_quantization.{name}")
    except ModuleNotFoundError:
        assert name in ABSENT_MODULES
        return
    assert name not in ABSENT_MODULES, "it is here now"
    expected = own_names(importlib.import_module(f"onnxruntime.quantization.{name}"))
    missing = {each for each in expected if not hasattr(module, each)}
    assert missing <= ABSENT_NAMES.get(name, {}).keys()
    assert not {each for each in ABSENT_NAMES.get(name, {}) if hasattr(module, each)}, "it is here now"


SHARED_NAMES: dict[str, set[str]] = {
    "matmul_nbits_quantizer": {"gptq_quantize", "rtn_quantize"},  # functions of the vendored package
    "quantize": {"MODEL_SIZE_THRESHOLD"}, "shape_inference": {"ReplaceUpsampleWithResize"},
    "fusions": {"ReplaceUpsampleWithResize"},
}  # fmt: skip
"""Names that modules of onnxruntime take from others of the package, and that ours do not have."""


@pytest.mark.parametrize(
    "name", sorted({each.name for each in pkgutil.iter_modules(theirs.__path__)} - ABSENT_MODULES.keys())
)
def test_what_a_module_of_onnxruntime_takes_from_others_can_be_imported_from_ours_too(name):
    """Programs import a class from the module where they saw it used."""
    start = "onnxruntime.quantization."
    home, module = (importlib.import_module(f"{root}{name}") for root in (start, "ort_quantization."))
    taken = {each: str(getattr(value, "__module__", "")) for each, value in vars(home).items() if each[0] != "_"}
    known = {each for names in ABSENT_NAMES.values() for each in names}
    expected = {each for each, source in taken.items() if source.startswith(start) and each not in known}
    missing = {each for each in expected if not hasattr(module, each)}
    assert missing <= SHARED_NAMES.get(name, set())


def test_the_package_has_onnxruntimes_names_but_for_those_that_need_torch_or_tensorrt():
    theirs, ours = (importlib.import_module(f"{name}") for name in ("onnxruntime.quantization", "ort_quantization"))
    kinds = {name: type(value).__name__ for name, value in vars(theirs).items() if not name.startswith("_")}
    public = {name for name, kind in kinds.items() if kind != "module"}
    assert {name for name in public if not hasattr(ours, name)} == {"CudaQuantizer"}
