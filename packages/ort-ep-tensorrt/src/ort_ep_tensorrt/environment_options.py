"""Options from the environment: the variables ``ORT_TENSORRT_...`` that onnxruntime reads, for options not given.

What a session gives for an option counts, as in onnxruntime; a variable that is empty says nothing.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping

log = logging.getLogger(__name__)
PREFIX = "ORT_TENSORRT_"
_OF_THE_SAME_NAME = (
    "auxiliary_streams", "bf16_enable", "build_heuristics_enable", "builder_optimization_level",
    "context_memory_sharing_enable", "cuda_graph_enable", "dla_core", "dla_enable", "dump_subgraphs",
    "engine_cache_enable", "engine_cache_path", "engine_decryption_enable", "engine_decryption_lib_path",
    "extra_plugin_lib_paths", "force_sequential_engine_build", "fp16_enable", "int8_calibration_table_name",
    "int8_enable", "int8_use_native_calibration_table", "layer_norm_fp32_fallback", "max_partition_iterations",
    "max_workspace_size", "min_subgraph_size", "onnx_model_folder_path", "profile_max_shapes", "profile_min_shapes",
    "profile_opt_shapes", "sparsity_enable", "tactic_sources", "timing_cache_enable", "weight_stripped_engine_enable",
)  # fmt: skip
VARIABLES: Mapping[str, str] = {
    **{PREFIX + name.upper(): f"trt_{name}" for name in _OF_THE_SAME_NAME},
    "ORT_TENSORRT_CACHE_PATH": "trt_engine_cache_path",  # the newer name, which counts where both are set
    "ORT_TENSORRT_CACHE_PREFIX": "trt_engine_cache_prefix",
    "ORT_TENSORRT_DETAILED_BUILD_LOG_ENABLE": "trt_detailed_build_log",
    "ORT_TENSORRT_FORCE_TIMING_CACHE_ENABLE": "trt_force_timing_cache",
    "ORT_TENSORRT_GLOBAL_CACHE_PATH": "trt_timing_cache_path",
}
"""The option that each variable sets."""


def variables_for(given: Mapping[str, object], environment: Mapping[str, str]) -> dict[str, str]:
    """Return for each option that the environment sets, and the session does not, the name of the variable.

    A variable with the prefix that is none of onnxruntime's is said in a warning, with the nearest that is.
    """
    for name in environment:
        if name.startswith(PREFIX) and name not in VARIABLES:
            near = difflib.get_close_matches(name, VARIABLES, 1)
            log.warning("%s sets no option of TensorRT%s", name, f"; did you mean {near[0]}?" if near else "")
    return {
        option: name for name, option in VARIABLES.items() if environment.get(name, "") != "" and option not in given
    }
