"""BuildSettings: what engines are built and run with, whichever SDK and whichever names of options it came from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from ort_ep_tensorrt.ranges import ShapeRange


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """The provider's decisions.

    Attributes:
        device_id: which GPU.
        stream: the handle of the caller's stream, on which engines run; ``None``: each run has one of its own.
        min_subgraph_size: claims with fewer nodes are refused.
        excluded: operators that are refused.
        workspace_nbytes: scratch memory that a layer may take on the device; 0: as much as there is.
        shared_memory_nbytes: shared memory that a kernel may take; 0: as much as there is.
        optimization_level: 0 builds fastest, 5 searches longest.
        auxiliary_streams: streams beside the caller's; -1: TensorRT chooses.
        uses_sparsity: weights in the 2:4 pattern may run on sparse tensor cores.
        is_hardware_compatible: engines run on other GPUs of the same and later architectures too.
        precision: what float32 is computed in: ``"float32"``, ``"float16"`` or ``"bfloat16"``.
        keeps_normalizations: layer normalization and its kin stay in float32 all the same.
        is_detailed: engines keep their layers' names, for profilers.
        is_version_compatible: engines run with later versions of TensorRT of the same major number.
        excludes_runtime: such engines do not hold the runtime that they were built with; TensorRT's lean one runs them.
        strips_weights: engines are kept without weights, which the model gives back when one is loaded.
        tactic_sources: where kernels are searched: names, and whether they are on; what is not named stays as it is.
        preview_features: features of the SDK that are not final, and are on.
        plugin_paths: libraries with plugins.
        captures_graphs: work is replayed as a CUDA graph.
        ranges: the bounds of inputs whose sizes vary, by name; others are learnt from what runs.
        caches_engines: built engines are kept on disk.
        engine_folder: where; empty: in ort-core's artefact cache.
        caches_timings: measurements of kernels are kept on disk.
        timing_folder: where; empty: in ort-core's artefact cache.
        accepts_foreign_timings: measurements of another GPU or version count.
        kernel_folder: where kernels that TensorRT-RTX compiles on the GPU are kept; empty: nowhere.
    """

    device_id: int = 0
    stream: int | None = None
    min_subgraph_size: int = 1
    excluded: frozenset[str] = frozenset()
    workspace_nbytes: int = 0
    shared_memory_nbytes: int = 0
    optimization_level: int = 3
    auxiliary_streams: int = -1
    uses_sparsity: bool = False
    is_hardware_compatible: bool = False
    precision: str = "float32"
    keeps_normalizations: bool = False
    is_detailed: bool = False
    is_version_compatible: bool = False
    excludes_runtime: bool = False
    strips_weights: bool = False
    tactic_sources: tuple[tuple[str, bool], ...] = ()
    preview_features: tuple[str, ...] = ()
    plugin_paths: tuple[str, ...] = ()
    captures_graphs: bool = False
    ranges: Mapping[str, ShapeRange] = field(default_factory=dict)
    caches_engines: bool = True
    engine_folder: str = ""
    caches_timings: bool = True
    timing_folder: str = ""
    accepts_foreign_timings: bool = False
    kernel_folder: str = ""

    def facts(self) -> str:
        """Return what an engine depends on, as text: not where it is kept, nor which nodes were offered."""
        kept = dataclasses.replace(
            self, stream=None, ranges={}, caches_engines=True, engine_folder="", caches_timings=True, timing_folder="",
            excluded=frozenset(), min_subgraph_size=1, captures_graphs=False, kernel_folder="",
            accepts_foreign_timings=False,
        )  # fmt: skip
        return repr(kept)
