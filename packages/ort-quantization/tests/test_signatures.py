"""Functions, classes and methods take what onnxruntime's take, in the same order and with the same defaults."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

theirs = importlib.import_module("onnxruntime.quantization")
PLACES = ("", "execution_providers/qnn", "operators")
MODULES = sorted(
    ".".join([*filter(None, place.split("/")), each.name])
    for place in PLACES
    for path in theirs.__path__
    for each in pkgutil.iter_modules([f"{path}/{place}"])
    if not each.ispkg
    and importlib.util.find_spec(f"ort_quantization.{'.'.join([*filter(None, place.split('/'))] + [each.name])}")
)

OWN = {
    "GPTQWeightOnlyQuantConfig": {"real_zero_points"}, "NVAWQWeightOnlyQuantConfig": {"calibration_data_reader"},
    "MatMulNBitsQuantizer": {"providers"}, "ONNXModel": {"folder"}, "QDQQuantizer.quantize_bias_tensor": {"alpha"},
    "QDQBiasQuantInfo": {"alpha"}, "MinMaxCalibrater": {"moments"},
    "parse_arguments": {"arguments"}, "main": {"arguments"},
}  # fmt: skip
"""Parameters that only ours have: the last, and optional."""

DEFAULTS = {"DistributionCalibrater": {"num_bins"}}  # with the default of its constructor onnxruntime's fails
"""Parameters with another default, and why."""

INSIDE = "a step inside the tool"
ABSENT = {
    **dict.fromkeys(("ConvInteger.add_bias", "QLinearActivation.QuantizeClipRelu"), INSIDE),
    "OnnxModelCalibrationDataReader.read_onnx_pb_data": INSIDE,
    "MatMulNBitsQuantizer.int4_quant_algo": INSIDE,
    **dict.fromkeys((f"NVAWQWeightOnlyQuantConfig.{name}" for name in ("get_calib_inputs", "make_model_input")),
                    "reads data sets of Hugging Face by torch; samples come from a reader here"),
    **{f"{kind}.{name}": "patterns are matched by GraphIndex"
       for kind in ("FusionLpNormalization", "FusionSpaceToDepth")
       for name in ("create_unique_node_name", "find_constant_input", "find_first_child_by_type", "fuse",
                    "get_constant_input", "get_node_attribute", "has_constant_input", "input_index",
                    "is_constant_with_specified_rank", "is_safe_to_fuse_nodes", "match_first_parent", "match_parent",
                    "match_parent_path", "match_parent_paths", "tensor_shape_to_list")},
}  # fmt: skip
"""Methods that onnxruntime's classes have and ours do not, and why."""


def pairs(name: str) -> Iterator[tuple[str, object, object]]:
    """What is called by the same name there and here: functions, classes, methods."""
    there, here = (
        importlib.import_module(f"{root}.{name}") for root in ("onnxruntime.quantization", "ort_quantization")
    )
    for key, value in vars(there).items():
        if key.startswith("_") or getattr(value, "__module__", "") != there.__name__ or not hasattr(here, key):
            continue
        yield key, value, getattr(here, key)
        for method in dir(value) if inspect.isclass(value) else ():
            if not method.startswith("_") and callable(getattr(value, method)):
                yield f"{key}.{method}", getattr(value, method), getattr(getattr(here, key), method, None)


def parameters(value: object) -> dict[str, inspect.Parameter]:
    try:
        found = inspect.signature(value).parameters
    except ValueError:
        return {}
    return {name: each for name, each in found.items() if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)}


def plain(default: object) -> object:
    """A default as it can be compared: nothing, an empty list and an empty dictionary mean the same."""
    if isinstance(default, (list, tuple)):
        return tuple(map(plain, default)) or None
    if default is inspect.Parameter.empty:
        return "required"
    return getattr(default, "__name__", None) or (None if default in (None, {}) else str(default))


@pytest.mark.parametrize("name", MODULES)
def test_what_can_be_called_takes_onnxruntimes_arguments(name: str) -> None:
    for key, there, here in pairs(name):
        if here is None:
            assert key in ABSENT, f"{key} has no counterpart"
            continue
        expected, found = parameters(there), parameters(here)
        if inspect.isclass(there) and not expected:
            continue
        own = OWN.get(key, set())
        assert [each for each in found if each not in own] == list(expected), key
        assert all(found[each].default is not inspect.Parameter.empty for each in own & found.keys()), key
        for each, parameter in expected.items():
            if parameter.default is parameter.empty or each in DEFAULTS.get(key, ()):
                continue  # what must be given there may be left out here
            assert plain(found[each].default) == plain(parameter.default), f"{key}({each})"
