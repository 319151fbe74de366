"""The options: what they mean, and that those without an effect are refused by name."""

import pytest

from ort_core.plugin import InvalidArgument, OrtError
from ort_ep_tensorrt.options import _REFUSED as REFUSED
from ort_ep_tensorrt.options_rtx import _REFUSED as REFUSED_RTX
from ort_ep_tensorrt.provider import NvTensorRtRtxExecutionProvider, TensorrtExecutionProvider
from ort_ep_tensorrt.ranges import ShapeRange

ANOTHER = {bool: "1", int: "7", str: "x"}


def settings(**options):
    return TensorrtExecutionProvider(options).settings


@pytest.mark.parametrize(
    ("provider", "name"),
    [(TensorrtExecutionProvider, name) for name in REFUSED]
    + [(NvTensorRtRtxExecutionProvider, name) for name in REFUSED_RTX],
    ids=lambda each: each if isinstance(each, str) else each.name,
)
def test_an_option_without_effect_is_refused_with_its_reason(provider, name):
    reason = {**REFUSED, **REFUSED_RTX}[name]
    default = getattr(provider({}).options, name)
    with pytest.raises(InvalidArgument) as caught:
        provider({name: ANOTHER[type(default)]})
    assert f"option {name!r} is not supported: {reason}" in str(caught.value)


def test_an_option_at_its_default_is_accepted_although_it_has_no_effect():
    assert settings(trt_fp16_enable="0") == settings()


def test_an_unknown_option_is_an_error_that_names_a_like_one():
    with pytest.raises(OrtError, match="trt_max_workspace_size"):
        settings(trt_max_workspace="1")


def test_strings_become_settings():
    found = settings(
        device_id="1",
        trt_min_subgraph_size="3",
        trt_max_workspace_size="1024",
        trt_op_types_to_exclude="TopK, NonZero",
        trt_builder_optimization_level="5",
        trt_engine_hw_compatible="true",
        trt_sparsity_enable="1",
        trt_engine_cache_enable="0",
    )
    assert (found.device_id, found.min_subgraph_size, found.workspace_nbytes) == (1, 3, 1024)
    assert found.excluded == {"TopK", "NonZero"}
    assert (found.optimization_level, found.is_hardware_compatible, found.uses_sparsity) == (5, True, True)
    assert not found.caches_engines


def test_profiles_become_ranges():
    found = settings(
        trt_profile_min_shapes="a:b:1x3,c:1", trt_profile_opt_shapes="a:b:2x3,c:1", trt_profile_max_shapes="a:b:8x3,c:1"
    )
    assert found.ranges == {"a:b": ShapeRange((1, 3), (2, 3), (8, 3)), "c": ShapeRange((1,), (1,), (1,))}


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        (("x:1", "x:1", ""), "name different inputs"),
        (("x:1", "x:9", "x:8"), "not in order"),
        (("x:1x2", "x:1", "x:1"), "not in order"),
        (("x=1", "x:1", "x:1"), "expected an input with its sizes"),
    ],
)
def test_profiles_that_say_nothing_sensible_are_refused(shapes, words):
    low, best, high = shapes
    with pytest.raises(InvalidArgument, match=words):
        settings(trt_profile_min_shapes=low, trt_profile_opt_shapes=best, trt_profile_max_shapes=high)


@pytest.mark.parametrize("level", ["-1", "6"])
def test_an_optimisation_level_outside_of_its_bounds_is_refused(level):
    with pytest.raises(InvalidArgument, match="expected 0 to 5"):
        settings(trt_builder_optimization_level=level)


def test_both_providers_mean_the_same_by_their_own_names():
    rtx = NvTensorRtRtxExecutionProvider({"nv_max_workspace_size": "5", "enable_cuda_graph": "1"}).settings
    assert (rtx.workspace_nbytes, rtx.captures_graphs, rtx.caches_timings) == (5, True, False)
