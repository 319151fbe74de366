"""The options of TensorrtExecutionProvider, by onnxruntime's names.

An option that is taken has an effect, or says what is so anyway; all others are refused with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ort_ep_tensorrt.ranges import parse_ranges
from ort_ep_tensorrt.refused import callers_stream, refuse_changed
from ort_ep_tensorrt.settings import BuildSettings

_CALIBRATION = "TensorRT 11 calibrates no more; quantize the model (QuantizeLinear and DequantizeLinear are built)"
_DLA = "nothing here was ever run on a deep learning accelerator"
_CONTEXT = "compiled models are written by ort.ModelCompiler and `ort` alone"
_BYTES = "weights are those of the session's model, which are read where they lie"
_REFUSED = {
    "trt_max_partition_iterations": "claims are formed until TensorRT takes all of them",
    "trt_int8_calibration_table_name": _CALIBRATION,
    "trt_int8_use_native_calibration_table": _CALIBRATION,
    "trt_dla_enable": _DLA,
    "trt_dla_core": _DLA,
    "trt_dump_subgraphs": "`ort extract` writes any part of a model",
    "trt_engine_cache_prefix": "engines are named by digests of all that they depend on",
    "trt_onnx_model_folder_path": _BYTES,
    "trt_engine_decryption_enable": "engines are not encrypted",
    "trt_engine_decryption_lib_path": "engines are not encrypted",
    "trt_context_memory_sharing_enable": "each run in flight has memory of its own",
    "trt_build_heuristics_enable": "TensorRT has no such switch any more; use trt_builder_optimization_level",
    "trt_ep_context_embed_mode": _CONTEXT,
    "trt_ep_context_file_path": _CONTEXT,
    "trt_dump_ep_context_model": _CONTEXT,
    "trt_onnx_bytestream": _BYTES,
    "trt_onnx_bytestream_size": _BYTES,
    "trt_external_data_bytestream": _BYTES,
    "trt_external_data_bytestream_size": _BYTES,
}


@dataclass(frozen=True, slots=True)
class TensorrtOptions:
    """Options of a session's provider; those without a line below are refused.

    Attributes:
        device_id: which GPU.
        has_user_compute_stream: whether to run on the caller's stream; ``user_compute_stream`` alone says so, too.
        user_compute_stream: the handle of a CUDA stream on which engines run, as an integer, one run at a time;
            0 is the default stream.
        trt_min_subgraph_size: claims with fewer nodes run elsewhere.
        trt_max_workspace_size: scratch memory of a layer in bytes; 0: no limit.
        trt_fp16_enable: compute float32 in float16, but for nodes whose numbers need more; inputs and outputs stay.
        trt_bf16_enable: as ``trt_fp16_enable``, in bfloat16; one of the two.
        trt_int8_enable: accepted; what stands between QuantizeLinear and DequantizeLinear is computed in int8 anyway.
        trt_layer_norm_fp32_fallback: with float16 or bfloat16, layer normalization stays in float32.
        trt_weight_stripped_engine_enable: keep engines without weights; the model's are given back when one is loaded.
        trt_cuda_graph_enable: replay the work of shapes that come again as a CUDA graph.
        trt_tactic_sources: where kernels are searched: ``+JIT_CONVOLUTIONS,-EDGE_MASK_CONVOLUTIONS``.
        trt_preview_features: features of TensorRT that are not final, by name, with commas.
        trt_extra_plugin_lib_paths: libraries with plugins, with semicolons; loaded beside TensorRT's own plugins.
        trt_engine_version_compatible: engines run with later versions of the same major number too (not onnxruntime's).
        trt_engine_exclude_lean_runtime: engines that run with later versions do not hold their runtime (not
            onnxruntime's).
        trt_engine_cache_enable: keep built engines on disk; on by default, since keys hold all that they depend on.
        trt_engine_cache_path: a folder for built engines; by default ort-core's artefact cache.
        trt_force_sequential_engine_build: accepted; engines are built one after the other anyway.
        trt_timing_cache_enable: keep measurements of kernels, which shortens later builds.
        trt_timing_cache_path: a folder for those measurements; by default ort-core's artefact cache.
        trt_force_timing_cache: take measurements of another GPU or version too.
        trt_detailed_build_log: engines keep the names of their layers.
        trt_sparsity_enable: weights in the 2:4 pattern may run on sparse tensor cores.
        trt_builder_optimization_level: how long the fastest kernels are searched, 0 to 5.
        trt_auxiliary_streams: streams beside the caller's; -1: TensorRT chooses.
        trt_profile_min_shapes: the smallest shapes, ``x:1x3x224x224,y:1x4``; all three of trt_profile or none.
        trt_profile_max_shapes: the largest shapes, in the same form.
        trt_profile_opt_shapes: the shapes that engines are tuned for, in the same form.
        trt_engine_hw_compatible: engines run on other GPUs from Ampere on.
        trt_op_types_to_exclude: operators that run elsewhere: ``NonMaxSuppression,TopK``.
        trt_load_user_initializer: accepted; weights are read in place anyway.
    """

    refused: ClassVar[Mapping[str, str]] = _REFUSED

    device_id: int = 0
    has_user_compute_stream: bool = False
    user_compute_stream: int | None = None
    trt_max_partition_iterations: int = 1000
    trt_min_subgraph_size: int = 1
    trt_max_workspace_size: int = 0
    trt_fp16_enable: bool = False
    trt_bf16_enable: bool = False
    trt_int8_enable: bool = False
    trt_int8_calibration_table_name: str = ""
    trt_int8_use_native_calibration_table: bool = False
    trt_dla_enable: bool = False
    trt_dla_core: int = 0
    trt_dump_subgraphs: bool = False
    trt_engine_cache_enable: bool = True
    trt_engine_cache_path: str = ""
    trt_engine_cache_prefix: str = ""
    trt_weight_stripped_engine_enable: bool = False
    trt_onnx_model_folder_path: str = ""
    trt_engine_decryption_enable: bool = False
    trt_engine_decryption_lib_path: str = ""
    trt_force_sequential_engine_build: bool = False
    trt_context_memory_sharing_enable: bool = False
    trt_layer_norm_fp32_fallback: bool = False
    trt_timing_cache_enable: bool = True
    trt_timing_cache_path: str = ""
    trt_force_timing_cache: bool = False
    trt_detailed_build_log: bool = False
    trt_build_heuristics_enable: bool = False
    trt_sparsity_enable: bool = False
    trt_builder_optimization_level: int = 3
    trt_auxiliary_streams: int = -1
    trt_tactic_sources: str = ""
    trt_extra_plugin_lib_paths: str = ""
    trt_profile_min_shapes: str = ""
    trt_profile_max_shapes: str = ""
    trt_profile_opt_shapes: str = ""
    trt_cuda_graph_enable: bool = False
    trt_ep_context_embed_mode: int = 0
    trt_ep_context_file_path: str = ""
    trt_dump_ep_context_model: bool = False
    trt_engine_hw_compatible: bool = False
    trt_onnx_bytestream: str = ""
    trt_onnx_bytestream_size: int = 0
    trt_external_data_bytestream: str = ""
    trt_external_data_bytestream_size: int = 0
    trt_op_types_to_exclude: str = ""
    trt_preview_features: str = ""
    trt_load_user_initializer: bool = False
    trt_engine_version_compatible: bool = False
    trt_engine_exclude_lean_runtime: bool = False

    def __post_init__(self) -> None:
        """Refuse what has no effect here, and what does not parse (``ValueError``)."""
        refuse_changed(self, _REFUSED)
        if not 0 <= self.trt_builder_optimization_level <= 5:
            level = self.trt_builder_optimization_level
            raise ValueError(f"option 'trt_builder_optimization_level' is {level}, expected 0 to 5")
        if self.trt_fp16_enable and self.trt_bf16_enable:
            raise ValueError("options 'trt_fp16_enable' and 'trt_bf16_enable' are both set: choose one")
        if self.trt_layer_norm_fp32_fallback and not (self.trt_fp16_enable or self.trt_bf16_enable):
            raise ValueError("option 'trt_layer_norm_fp32_fallback' is set, and nothing is computed in a narrow type")
        if self.trt_engine_exclude_lean_runtime and not self.trt_engine_version_compatible:
            raise ValueError("option 'trt_engine_exclude_lean_runtime' needs 'trt_engine_version_compatible'")
        self.settings()

    def settings(self) -> BuildSettings:
        """Return what they mean."""
        return BuildSettings(
            device_id=self.device_id,
            stream=callers_stream(self.has_user_compute_stream, self.user_compute_stream),
            min_subgraph_size=self.trt_min_subgraph_size,
            excluded=frozenset(name.strip() for name in self.trt_op_types_to_exclude.split(",") if name.strip()),
            workspace_nbytes=self.trt_max_workspace_size,
            optimization_level=self.trt_builder_optimization_level,
            auxiliary_streams=self.trt_auxiliary_streams,
            precision="float16" if self.trt_fp16_enable else "bfloat16" if self.trt_bf16_enable else "float32",
            keeps_normalizations=self.trt_layer_norm_fp32_fallback,
            uses_sparsity=self.trt_sparsity_enable,
            strips_weights=self.trt_weight_stripped_engine_enable,
            captures_graphs=self.trt_cuda_graph_enable,
            is_version_compatible=self.trt_engine_version_compatible,
            excludes_runtime=self.trt_engine_exclude_lean_runtime,
            tactic_sources=_switches(self.trt_tactic_sources),
            preview_features=tuple(name.strip() for name in self.trt_preview_features.split(",") if name.strip()),
            plugin_paths=tuple(
                _folder(path.strip()) for path in self.trt_extra_plugin_lib_paths.split(";") if path.strip()
            ),
            is_hardware_compatible=self.trt_engine_hw_compatible,
            is_detailed=self.trt_detailed_build_log,
            ranges=parse_ranges(
                self.trt_profile_min_shapes, self.trt_profile_opt_shapes, self.trt_profile_max_shapes, "trt_profile"
            ),
            caches_engines=self.trt_engine_cache_enable,
            engine_folder=_folder(self.trt_engine_cache_path),
            caches_timings=self.trt_timing_cache_enable,
            timing_folder=_folder(self.trt_timing_cache_path),
            accepts_foreign_timings=self.trt_force_timing_cache,
        )


def _folder(path: str) -> str:
    return str(Path(path)) if path else ""


def _switches(text: str) -> tuple[tuple[str, bool], ...]:
    """Return names with whether they are on, of ``+A,-B``."""
    found: list[tuple[str, bool]] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        if entry[0] not in "+-" or not entry[1:]:
            raise ValueError(
                f"option 'trt_tactic_sources' has {entry!r}, expected + or - and a name: +JIT_CONVOLUTIONS"
            )
        found.append((entry[1:], entry[0] == "+"))
    return tuple(found)
