"""The provider's options, by onnxruntime's names: typed; those without a meaning here are refused with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

_UNSUPPORTED = {
    "gpu_external_alloc": "memory comes from CuPy's pool; share it with cupy.cuda.set_allocator",
    "gpu_external_free": "memory comes from CuPy's pool; share it with cupy.cuda.set_allocator",
    "gpu_external_empty_cache": "memory comes from CuPy's pool; share it with cupy.cuda.set_allocator",
    "external_data_loader_use_gds": "weights are read by ort-core, which maps them",
    "external_data_loader_use_directstorage": "weights are read by ort-core, which maps them",
    "use_ep_level_unified_stream": "each run at a time has a stream of its own; user_compute_stream gives one for all",
    "tunable_op_enable": "there is no tuning by exhaustive search",
    "tunable_op_tuning_enable": "there is no tuning by exhaustive search",
    "sdpa_kernel": "attention is one call of cuDNN, or products and a kernel; which is decided by what cuDNN takes",
}


@dataclass(frozen=True, slots=True)
class CudaOptions:
    """Options of a session's provider; those without a line below are refused.

    Attributes:
        device_id: which GPU.
        gpu_mem_limit: bytes that the provider may hold on the device; 0 sets no limit.
        arena_extend_strategy: accepted for compatibility; an arena is exactly as large as its plan says.
        cudnn_conv_algo_search: how many of cuDNN's proposals are timed on the first run: ``DEFAULT`` takes the first,
            ``HEURISTIC`` the best of three, ``EXHAUSTIVE`` the best of sixteen.
        cudnn_conv_use_max_workspace: whether engines that need much scratch memory may be chosen.
        do_copy_in_default_stream: accepted; copies and kernels share one stream, so that no order is lost.
        has_user_compute_stream: whether to run on the caller's stream; ``user_compute_stream`` alone says so, too.
        user_compute_stream: the handle of a CUDA stream to run on, as an integer; 0 is the default stream, which is
            PyTorch's, too, until another is made current.
        enable_cuda_graph: whether a partition's launches are captured as one graph. On by default, where
            onnxruntime's is off: shapes decide here which graph runs, and inputs may lie anywhere.
        min_num_runs_before_cuda_graph_capture: runs of a signature before it is captured.
        use_tf32: whether float32 products may round their factors to 10 bits. Off by default, where onnxruntime's is
            on: float32 means float32.
        prefer_nhwc: whether images of float32 lie with their channels last; those of 16 bits or TF32 always do.
        prefer_nhwc_layout: as ``prefer_nhwc``, by the name of onnxruntime's plugin.
        cudnn_conv_algo: as ``cudnn_conv_algo_search``, by the name of onnxruntime's plugin; empty: not given.
        enable_cudnn: whether convolutions are taken, which cuDNN runs; without it they go to the next provider.
        fuse_conv_bias: accepted; a bias is part of the convolution where cuDNN takes it, else of the next kernel.
        cudnn_conv1d_pad_to_nc1d: accepted; an axis of one place always stands before the only axis of space.
        enable_skip_layer_norm_strict_mode: accepted; 16-bit floats are always summed in float32.
        tunable_op_max_tuning_duration_ms: accepted; it bounds what ``tunable_op_enable`` would start.
        external_data_loader_reading_threads: accepted; how ort-core reads weights does not depend on it.
    """

    refused: ClassVar[Mapping[str, str]] = _UNSUPPORTED

    device_id: int = 0
    gpu_mem_limit: int = 0
    arena_extend_strategy: Literal["kNextPowerOfTwo", "kSameAsRequested"] = "kSameAsRequested"
    cudnn_conv_algo_search: Literal["EXHAUSTIVE", "HEURISTIC", "DEFAULT"] = "HEURISTIC"
    cudnn_conv_use_max_workspace: bool = True
    do_copy_in_default_stream: bool = True
    has_user_compute_stream: bool = False
    user_compute_stream: int | None = None
    enable_cuda_graph: bool = True
    min_num_runs_before_cuda_graph_capture: int = 1
    use_tf32: bool = False
    prefer_nhwc: bool = False
    prefer_nhwc_layout: bool = False
    cudnn_conv_algo: Literal["", "EXHAUSTIVE", "HEURISTIC", "DEFAULT"] = ""
    enable_cudnn: bool = True
    fuse_conv_bias: bool = False
    cudnn_conv1d_pad_to_nc1d: bool = False
    enable_skip_layer_norm_strict_mode: bool = False
    tunable_op_max_tuning_duration_ms: int = 0
    external_data_loader_reading_threads: int = 4
    external_data_loader_use_gds: bool = False
    external_data_loader_use_directstorage: bool = False
    use_ep_level_unified_stream: bool = False
    gpu_external_alloc: str = ""
    gpu_external_free: str = ""
    gpu_external_empty_cache: str = ""
    tunable_op_enable: bool = False
    tunable_op_tuning_enable: bool = False
    sdpa_kernel: int = 0

    @property
    def callers_stream(self) -> int | None:
        """The handle of the caller's stream, ``None`` where runs have streams of their own."""
        is_given = self.has_user_compute_stream or self.user_compute_stream is not None
        return self.user_compute_stream or 0 if is_given else None

    @property
    def puts_channels_last(self) -> bool:
        """Whether images of float32 lie with their channels last."""
        return self.prefer_nhwc or self.prefer_nhwc_layout

    @property
    def search(self) -> str:
        """How many of cuDNN's proposals are timed, as a word."""
        return self.cudnn_conv_algo or self.cudnn_conv_algo_search

    def __post_init__(self) -> None:
        for name, reason in _UNSUPPORTED.items():
            if getattr(self, name) not in ("", "0", 0, False):
                raise ValueError(f"option {name!r} cannot be used: {reason}")
        for name in ("device_id", "gpu_mem_limit", "min_num_runs_before_cuda_graph_capture"):
            if getattr(self, name) < 0:
                raise ValueError(f"option {name!r} is {getattr(self, name)}, expected 0 or more")
