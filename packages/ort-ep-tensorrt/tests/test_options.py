"""The options: what they mean, and that those without an effect are refused by name."""

import dataclasses

import fake_tensorrt
import pytest

from ort_core.plugin import InvalidArgument, OrtError, describe_options
from ort_ep_tensorrt.environment_options import VARIABLES
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
    assert settings(trt_dla_enable="0") == settings()


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


def test_switches_become_settings():
    found = settings(
        trt_fp16_enable="1",
        trt_layer_norm_fp32_fallback="1",
        trt_weight_stripped_engine_enable="1",
        trt_cuda_graph_enable="1",
        trt_engine_version_compatible="1",
        trt_engine_exclude_lean_runtime="1",
        trt_tactic_sources="+JIT_CONVOLUTIONS, -EDGE_MASK_CONVOLUTIONS",
        trt_preview_features="ALIASED_PLUGIN_IO_10_03",
        trt_extra_plugin_lib_paths="a.so;b.so",
    )
    assert (found.precision, found.keeps_normalizations) == ("float16", True)
    assert (found.strips_weights, found.captures_graphs) == (True, True)
    assert (found.is_version_compatible, found.excludes_runtime) == (True, True)
    assert found.tactic_sources == (("JIT_CONVOLUTIONS", True), ("EDGE_MASK_CONVOLUTIONS", False))
    assert found.preview_features == ("ALIASED_PLUGIN_IO_10_03",)
    assert found.plugin_paths == ("a.so", "b.so")
    assert settings(trt_bf16_enable="1").precision == "bfloat16"
    assert settings(trt_int8_enable="1") == settings(), "so anyway, where the model is quantized"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"trt_tactic_sources": "CUBLAS"}, "expected \\+ or - and a name"),
        ({"trt_engine_exclude_lean_runtime": "1"}, "needs 'trt_engine_version_compatible'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, words):
    with pytest.raises(InvalidArgument, match=words):
        settings(**options)


@pytest.mark.parametrize(
    ("variable", "text", "setting", "expected"),
    [
        ("ORT_TENSORRT_FP16_ENABLE", "1", "precision", "float16"),
        ("ORT_TENSORRT_MAX_WORKSPACE_SIZE", "1073741824", "workspace_nbytes", 1 << 30),
        ("ORT_TENSORRT_MIN_SUBGRAPH_SIZE", "5", "min_subgraph_size", 5),
        ("ORT_TENSORRT_CACHE_PATH", "engines", "engine_folder", "engines"),
        ("ORT_TENSORRT_ENGINE_CACHE_PATH", "engines", "engine_folder", "engines"),
        ("ORT_TENSORRT_GLOBAL_CACHE_PATH", "timings", "timing_folder", "timings"),
        ("ORT_TENSORRT_FORCE_TIMING_CACHE_ENABLE", "1", "accepts_foreign_timings", True),
        ("ORT_TENSORRT_DETAILED_BUILD_LOG_ENABLE", "1", "is_detailed", True),
        ("ORT_TENSORRT_CUDA_GRAPH_ENABLE", "1", "captures_graphs", True),
        ("ORT_TENSORRT_TACTIC_SOURCES", "-JIT_CONVOLUTIONS", "tactic_sources", (("JIT_CONVOLUTIONS", False),)),
    ],
)
def test_the_environment_sets_what_the_session_leaves_out(monkeypatch, caplog, variable, text, setting, expected):
    caplog.set_level("INFO", "ort_ep_tensorrt.provider")
    monkeypatch.setenv(variable, text)
    assert getattr(settings(), setting) == expected
    assert f"the environment sets {variable}" in caplog.text


def test_a_session_overrides_the_environment(monkeypatch):
    monkeypatch.setenv("ORT_TENSORRT_MIN_SUBGRAPH_SIZE", "5")
    assert settings(trt_min_subgraph_size="2").min_subgraph_size == 2
    monkeypatch.setenv("ORT_TENSORRT_CACHE_PATH", "newer")
    monkeypatch.setenv("ORT_TENSORRT_ENGINE_CACHE_PATH", "older")
    assert settings().engine_folder == "newer"
    monkeypatch.setenv("ORT_TENSORRT_CACHE_PATH", "")
    assert settings().engine_folder == "older", "an empty variable says nothing"


def test_every_variable_sets_an_option_that_is_there():
    known = {field.name for field in dataclasses.fields(TensorrtExecutionProvider.options_type)}
    assert set(VARIABLES.values()) <= known


def test_a_variable_without_effect_is_refused_by_its_name(monkeypatch):
    monkeypatch.setenv("ORT_TENSORRT_DLA_ENABLE", "1")
    with pytest.raises(InvalidArgument, match=r"'trt_dla_enable' is not supported: .*; the environment sets ORT_TENSO"):
        settings()
    monkeypatch.setenv("ORT_TENSORRT_DLA_ENABLE", "perhaps")
    with pytest.raises(InvalidArgument, match="the environment sets ORT_TENSORRT_DLA_ENABLE=perhaps"):
        settings()


def test_a_variable_that_nobody_knows_is_said_with_a_like_one(monkeypatch, caplog):
    monkeypatch.setenv("ORT_TENSORRT_FP16_ENABLED", "1")
    assert settings() == settings()
    assert "did you mean ORT_TENSORRT_FP16_ENABLE?" in caplog.text


def test_the_environment_says_nothing_to_tensorrt_rtx(monkeypatch):
    before = NvTensorRtRtxExecutionProvider({}).settings
    monkeypatch.setenv("ORT_TENSORRT_FP16_ENABLE", "1")
    assert NvTensorRtRtxExecutionProvider({}).settings == before


CHAIN = "g (float[2,4] x) => (float[2,4] y) { a = Relu(x)  y = Neg(a) }"


def test_sources_of_kernels_and_previews_reach_the_builder(session, builds):
    with session(CHAIN, trt_tactic_sources="-EDGE_MASK_CONVOLUTIONS", trt_preview_features="ALIASED_PLUGIN_IO_10_03"):
        pass
    assert builds[0]["sources"] == 1 << 4, "what is not named stays on"
    assert builds[0]["previews"] == {fake_tensorrt.PreviewFeature.ALIASED_PLUGIN_IO_10_03}


def test_sources_that_this_version_lacks_are_an_error_with_those_it_has(session):
    said = "names 'CUBLAS'; this version knows EDGE_MASK_CONVOLUTIONS, JIT_CONVOLUTIONS"
    with pytest.raises(OrtError, match=said), session(CHAIN, trt_tactic_sources="+CUBLAS"):
        pass


def test_plugins_are_loaded_once(session, tmp_path, monkeypatch):
    library = tmp_path / "plugins.so"
    library.write_bytes(b"code")
    monkeypatch.setattr(fake_tensorrt, "plugins", [])
    for _ in range(2):
        with session(CHAIN, trt_extra_plugin_lib_paths=str(library)):
            pass
    assert fake_tensorrt.plugins == [str(library)]


def test_plugins_that_do_not_load_are_said(session):
    said = r"failed to load the plugins of 'missing\.so'"
    with pytest.raises(OrtError, match=said), session(CHAIN, trt_extra_plugin_lib_paths="missing.so"):
        pass


def test_every_name_of_onnxruntime_is_known():
    known = {field.name for field in dataclasses.fields(TensorrtExecutionProvider.options_type)}
    names = """device_id has_user_compute_stream user_compute_stream trt_max_partition_iterations trt_min_subgraph_size
        trt_max_workspace_size trt_fp16_enable trt_bf16_enable trt_int8_enable trt_int8_calibration_table_name
        trt_int8_use_native_calibration_table trt_dla_enable trt_dla_core trt_dump_subgraphs trt_engine_cache_enable
        trt_engine_cache_path trt_engine_cache_prefix trt_weight_stripped_engine_enable trt_onnx_model_folder_path
        trt_engine_decryption_enable trt_engine_decryption_lib_path trt_force_sequential_engine_build
        trt_context_memory_sharing_enable trt_layer_norm_fp32_fallback trt_timing_cache_enable trt_timing_cache_path
        trt_force_timing_cache trt_detailed_build_log trt_build_heuristics_enable trt_sparsity_enable
        trt_builder_optimization_level trt_auxiliary_streams trt_tactic_sources trt_extra_plugin_lib_paths
        trt_profile_min_shapes trt_profile_max_shapes trt_profile_opt_shapes trt_cuda_graph_enable
        trt_ep_context_embed_mode trt_ep_context_file_path trt_dump_ep_context_model trt_engine_hw_compatible
        trt_onnx_bytestream trt_onnx_bytestream_size trt_external_data_bytestream trt_external_data_bytestream_size
        trt_op_types_to_exclude trt_preview_features trt_load_user_initializer"""
    assert set(names.split()) <= known
    rtx = {field.name for field in dataclasses.fields(NvTensorRtRtxExecutionProvider.options_type)}
    names = """device_id has_user_compute_stream user_compute_stream user_aux_stream_array nv_length_aux_stream_array
        nv_max_workspace_size nv_max_shared_mem_size nv_dump_subgraphs nv_detailed_build_log nv_profile_min_shapes
        nv_profile_max_shapes nv_profile_opt_shapes enable_cuda_graph nv_multi_profile_enable
        nv_use_external_data_initializer nv_runtime_cache_path"""
    assert set(names.split()) <= rtx


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
def test_an_optimization_level_outside_of_its_bounds_is_refused(level):
    with pytest.raises(InvalidArgument, match="expected 0 to 5"):
        settings(trt_builder_optimization_level=level)


def test_both_providers_mean_the_same_by_their_own_names():
    rtx = NvTensorRtRtxExecutionProvider({"nv_max_workspace_size": "5", "enable_cuda_graph": "1"}).settings
    assert (rtx.workspace_nbytes, rtx.captures_graphs, rtx.caches_timings) == (5, True, False)


@pytest.mark.parametrize(
    "provider", [TensorrtExecutionProvider, NvTensorRtRtxExecutionProvider], ids=lambda cls: cls.name
)
def test_every_option_has_a_sentence(provider):
    assert [option.name for option in describe_options(provider.options_type) if not option.sentence] == []
