"""The package has three names, and onnxruntime's modules have their names, methods and parameters in it."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import inspect
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from onnxruntime_optimizer import theirs

from ort_transformers.absent_modules import reason_of


def run(program: str) -> str:
    """Run a program in a process of its own and return what it prints."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_name_below_ort_core_gives_the_package_itself() -> None:
    assert importlib.import_module("ort_core.transformers") is importlib.import_module("ort_transformers")


def test_under_the_drop_in_onnxruntimes_name_gives_the_same_classes() -> None:
    program = (
        "from ort_core.dropin import install; install(); "
        "from onnxruntime.transformers.optimizer import optimize_model; "
        "from onnxruntime.transformers.onnx_model_bert import BertOnnxModel; import ort_transformers.optimizer as own; "
        "print(optimize_model is own.optimize_model, own.MODEL_TYPES['bert'][0] is BertOnnxModel)"
    )
    assert run(program).split() == ["True", "True"]


def test_without_the_package_the_import_says_what_to_install() -> None:
    program = (
        "import importlib.metadata as m; m.entry_points = lambda **_: ()\n"
        "try:\n    import ort_core.transformers\nexcept ModuleNotFoundError as error:\n    print(error)"
    )
    assert "pip install ort-transformers" in run(program)


def test_scripts_that_the_package_does_not_have_come_from_an_installed_onnxruntime() -> None:
    pytest.importorskip("onnxruntime")
    program = (
        "from ort_core.dropin import install; install(); "
        "import onnxruntime.transformers.onnx_model as ours, onnxruntime.transformers.fusion_biasgelu as theirs; "
        "import onnxruntime.transformers.models.bart as inner; "
        "print(ours.__name__, theirs.FusionBiasGelu.__name__, theirs.Fusion.__module__, inner.__name__)"
    )
    found = run(program).split()
    assert found == [
        "ort_transformers.onnx_model",
        "FusionBiasGelu",
        "fusion_base",
        "onnxruntime.transformers.models.bart",
    ]


def test_a_script_of_an_installed_onnxruntime_that_python_runs_by_m_finds_others_by_bare_names() -> None:
    pytest.importorskip("onnxruntime")
    program = (
        "import importlib.util; from ort_core.dropin.finder import find_tool; "
        "name = 'onnxruntime.transformers.onnx_exporter'; "
        "print(importlib.util.find_spec('benchmark_helper')); "
        "find_tool(name).loader.get_code(name); "  # as runpy does; torch may be absent
        "print(importlib.util.find_spec('benchmark_helper').origin)"
    )
    before, after = run(program).splitlines()
    assert before == "None"
    assert Path(after).name == "benchmark_helper.py"


@pytest.mark.parametrize("prefix", ["onnxruntime", "ort_core"])
@pytest.mark.parametrize(
    ("name", "what"),
    [("fusion_attention_unet", "optimize_model"), ("models.longformer.convert_to_onnx", "optimum-onnx"),
     ("models.stable_diffusion.benchmark", "optimize_pipeline"), ("models.gpt2.gpt2_parity", "convert_to_onnx"),
     ("large_model_exporter", "genai")],
)  # fmt: skip
def test_a_module_that_is_left_out_says_why_and_what_to_use(prefix, name, what) -> None:
    program = (
        "import importlib; from ort_core.dropin import finder, install, installed; install(); "
        "finder.find_tool = lambda fullname: None\n"  # as where no onnxruntime is installed
        f"try:\n    importlib.import_module('{prefix}.transformers.{name}')\n"
        "except ModuleNotFoundError as error:\n    print(error)"
    )
    text = run(program)
    assert f"{prefix}.transformers.{name.split('.')[0]}" in text
    assert what in text


def test_modules_that_nobody_knows_are_not_found_as_ever() -> None:
    program = (
        "import importlib; from ort_core.dropin import install; install()\n"
        "for name in ('onnxruntime.transformers.nothing', 'ort_core.transformers.nothing'):\n"
        "    try:\n        importlib.import_module(name)\n"
        "    except ModuleNotFoundError as error:\n        print(error)"
    )
    assert run(program).count("No module named") == 2


def test_each_module_of_onnxruntime_is_here_or_left_out_for_a_reason() -> None:
    (folder,) = importlib.import_module("onnxruntime.transformers").__path__
    for path in Path(folder).rglob("*.py"):
        name = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix("__init__").strip(".")
        if name and not is_ours(name):
            assert reason_of(name), name


def is_ours(name: str) -> bool:
    """Return whether the package has a module, without importing it: some need torch."""
    return Path(str(files("ort_transformers")), *name.split(".")).with_suffix(".py").is_file()


def test_a_part_of_a_conversion_that_is_left_out_finds_its_neighbors_by_bare_names() -> None:
    pytest.importorskip("onnxruntime")
    program = (
        "import importlib.util; from ort_core.dropin.finder import find_tool; "
        "name = 'onnxruntime.transformers.models.gpt2.gpt2_parity'; find_tool(name).loader.get_code(name); "
        "print(importlib.util.find_spec('gpt2_tester').origin)"
    )
    assert Path(run(program).strip()).name == "gpt2_tester.py"


def test_conversions_say_what_they_need_where_there_is_no_torch() -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from ort_core.dropin import install; install()\n"
        "from onnxruntime.transformers.models.t5 import convert_to_onnx\n"
        "try:\n    convert_to_onnx.export_onnx_models('folder', None, 'out')\n"
        "except ModuleNotFoundError as error:\n    print(convert_to_onnx.__name__, error)"
    )
    text = run(program)
    assert "ort_transformers.models.t5.convert_to_onnx" in text
    assert "torch" in text


def test_the_distribution_has_the_version_of_ort_core() -> None:
    assert importlib.metadata.version("ort-transformers") == importlib.metadata.version("ort-core")


def test_float16_is_that_of_the_quantization_package() -> None:
    ours = importlib.import_module("ort_transformers.float16")
    same = importlib.import_module("ort_core.quantization.float16")
    assert ours.convert_float_to_float16 is same.convert_float_to_float16


CLASSES = {
    "fusion_options": ("FusionOptions", "AttentionMaskFormat", "AttentionOpType"),
    "onnx_model": ("OnnxModel",),
    "onnx_model_bert": ("BertOnnxModel",),
    "dynamo_onnx_helper": ("DynamoOnnxHelper",),
}
INSIDE = {  # what patterns of onnxruntime need among themselves, and conversions that need torch or a GPU
    "_get_subgraph_inputs_of_node", "_get_subgraph_nodes_and_inputs", "adjust_reshape_and_expand",
    "fuse_gemm_fast_gelu",    "fuse_qordered_mamtul", "fuse_reshape", "fuse_shape",
}  # fmt: skip


@pytest.mark.parametrize("module", CLASSES)
def test_classes_have_onnxruntimes_methods_and_parameters(module):
    other = theirs(module)
    ours = importlib.import_module(f"ort_transformers.{module}")
    for name in CLASSES[module]:
        their_class, our_class = getattr(other, name), getattr(ours, name)
        wanted = {key for key in vars(their_class) if not key.startswith("__")} - INSIDE
        assert {key for key in wanted if not hasattr(our_class, key)} == set(), name
        for key in wanted:
            if inspect.isfunction(getattr(their_class, key)):
                known = list(inspect.signature(getattr(their_class, key)).parameters)
                assert list(inspect.signature(getattr(our_class, key)).parameters) == known, f"{name}.{key}"


def test_the_optimizer_has_onnxruntimes_functions_defaults_and_model_types():
    other = theirs("optimizer")
    ours = importlib.import_module("ort_transformers.optimizer")
    for name in ("optimize_model", "optimize_by_fusion", "optimize_by_onnxruntime", "get_fusion_statistics"):
        wanted = inspect.signature(getattr(other, name)).parameters
        found = inspect.signature(getattr(ours, name)).parameters
        assert list(found) == list(wanted), name
        for key, parameter in wanted.items():
            if not isinstance(parameter.default, list):  # an empty list here, an empty tuple there
                assert found[key].default == parameter.default, f"{name}: {key}"
            assert found[key].kind == parameter.kind, f"{name}: {key}"
    facts = {key: (made.__name__, *rest) for key, (made, *rest) in other.MODEL_TYPES.items()}
    assert {key: (made.__name__, *rest) for key, (made, *rest) in ours.MODEL_TYPES.items()} == facts


OWN_OPTIONS = {
    "use_standard_operators",
    "use_gpu_operators",
    "enable_experts",
}  # beyond onnxruntime's, which has no fusion of experts
OWN_FLAGS = {"use_standard_operators", "use_gpu_operators", "disable_experts"}


def test_options_of_each_model_type_are_onnxruntimes():
    other = theirs("fusion_options")
    ours = importlib.import_module("ort_transformers.fusion_options")
    for model_type in importlib.import_module("ort_transformers.optimizer").MODEL_TYPES:
        found = vars(ours.FusionOptions(model_type))
        assert {name: found[name] for name in found.keys() - OWN_OPTIONS} == vars(other.FusionOptions(model_type)), (
            model_type
        )


@pytest.mark.parametrize("model_type", ["bert", "unet"])
def test_flags_of_the_command_line_switch_what_onnxruntimes_switch(model_type):
    other = theirs("fusion_options")
    ours = importlib.import_module("ort_transformers.fusion_options")
    parsers = [argparse.ArgumentParser(), argparse.ArgumentParser()]
    for parser, module in zip(parsers, (ours, other), strict=True):
        module.FusionOptions.add_arguments(parser)
    flags = [action.option_strings[0] for action in parsers[1]._actions if action.dest != "help"]
    ours_too = [action for action in parsers[0]._actions if action.dest not in {"help", *OWN_FLAGS}]
    assert flags == [action.option_strings[0] for action in ours_too]
    for flag in flags:
        parsed = [parser.parse_args([flag]) for parser in parsers]
        for each in parsed:
            each.model_type = model_type
        found, wanted = ours.FusionOptions.parse(parsed[0]), other.FusionOptions.parse(parsed[1])
        assert {name: vars(found)[name] for name in vars(found).keys() - OWN_OPTIONS} == vars(wanted), flag
