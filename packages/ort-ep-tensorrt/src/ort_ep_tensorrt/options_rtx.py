"""The options of NvTensorRTRTXExecutionProvider, by onnxruntime's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ort_ep_tensorrt.ranges import parse_ranges
from ort_ep_tensorrt.refused import callers_stream, refuse_changed
from ort_ep_tensorrt.settings import BuildSettings

_STREAM = "TensorRT-RTX chooses the streams beside the caller's"
_REFUSED = {
    "user_aux_stream_array": _STREAM,
    "nv_length_aux_stream_array": _STREAM,
    "nv_dump_subgraphs": "`ort extract` writes any part of a model",
    "nv_multi_profile_enable": "each range of shapes has an engine of its own",
}


@dataclass(frozen=True, slots=True)
class RtxOptions:
    """Options of a session's provider; those without a line below are refused.

    Attributes:
        device_id: which GPU.
        has_user_compute_stream: whether to run on the caller's stream; ``user_compute_stream`` alone says so, too.
        user_compute_stream: the handle of a CUDA stream on which engines run, as an integer, one run at a time;
            0 is the default stream.
        nv_max_workspace_size: scratch memory of a layer in bytes; 0: no limit.
        nv_max_shared_mem_size: shared memory of a kernel in bytes; 0: no limit.
        nv_detailed_build_log: engines keep the names of their layers.
        nv_profile_min_shapes: the smallest shapes, ``x:1x3x224x224,y:1x4``; all three of nv_profile or none.
        nv_profile_max_shapes: the largest shapes, in the same form.
        nv_profile_opt_shapes: the shapes that engines are tuned for, in the same form.
        enable_cuda_graph: TensorRT-RTX replays its work as a CUDA graph.
        nv_runtime_cache_path: a folder for the kernels that TensorRT-RTX compiles on the GPU; by default none are kept.
        nv_use_external_data_initializer: accepted; weights are read in place anyway.
    """

    refused: ClassVar[Mapping[str, str]] = _REFUSED

    device_id: int = 0
    has_user_compute_stream: bool = False
    user_compute_stream: int | None = None
    user_aux_stream_array: str = ""
    nv_length_aux_stream_array: int = 0
    nv_max_workspace_size: int = 0
    nv_max_shared_mem_size: int = 0
    nv_dump_subgraphs: bool = False
    nv_detailed_build_log: bool = False
    nv_profile_min_shapes: str = ""
    nv_profile_max_shapes: str = ""
    nv_profile_opt_shapes: str = ""
    enable_cuda_graph: bool = False
    nv_multi_profile_enable: bool = False
    nv_use_external_data_initializer: bool = False
    nv_runtime_cache_path: str = ""

    def __post_init__(self) -> None:
        """Refuse what has no effect here, and what does not parse (``ValueError``)."""
        refuse_changed(self, _REFUSED)
        self.settings()

    def settings(self) -> BuildSettings:
        """Return what they mean."""
        return BuildSettings(
            device_id=self.device_id,
            stream=callers_stream(self.has_user_compute_stream, self.user_compute_stream),
            workspace_nbytes=self.nv_max_workspace_size,
            shared_memory_nbytes=self.nv_max_shared_mem_size,
            is_detailed=self.nv_detailed_build_log,
            captures_graphs=self.enable_cuda_graph,
            ranges=parse_ranges(
                self.nv_profile_min_shapes, self.nv_profile_opt_shapes, self.nv_profile_max_shapes, "nv_profile"
            ),
            kernel_folder=str(Path(self.nv_runtime_cache_path)) if self.nv_runtime_cache_path else "",
            caches_timings=False,  # measurements mean nothing to TensorRT-RTX, which compiles kernels on the GPU
        )
