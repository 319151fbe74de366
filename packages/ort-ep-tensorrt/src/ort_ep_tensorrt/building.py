"""Building: from a program and ranges of shapes to a serialised engine. Needs no GPU where the SDK needs none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ort_core.plugin import CompileRequest
from ort_ep_tensorrt._sdk import Sdk
from ort_ep_tensorrt.network import Network, ParseRefusal, parse
from ort_ep_tensorrt.program import Program, program_of_request
from ort_ep_tensorrt.ranges import Ranges, ShapeRange
from ort_ep_tensorrt.recording import SdkError
from ort_ep_tensorrt.settings import BuildSettings

DEFAULT_LEVEL = 3  # TensorRT's own


@dataclass(frozen=True, slots=True)
class BuiltEngine:
    """What a build leaves.

    Attributes:
        content: the serialised engine.
        timings: measurements of kernels, for the next build; ``None`` where none are kept.
    """

    content: bytes
    timings: bytes | None


def build_engine(
    sdk: Sdk, program: Program, settings: BuildSettings, ranges: Ranges, timings: bytes | None = None
) -> BuiltEngine:
    """Build an engine.

    Args:
        sdk: what builds.
        program: the claim.
        settings: how.
        ranges: bounds of every input whose sizes vary.
        timings: measurements of earlier builds.

    Raises:
        SdkError: TensorRT did not take the program, or did not build it.
    """
    parsed = parse(sdk, program)
    if isinstance(parsed, ParseRefusal):
        raise SdkError("parse a claim", parsed.text)
    config = parsed.record.expect(parsed.builder.create_builder_config(), "make a configuration")
    _configure(sdk, config, settings)
    _add_profile(parsed, config, ranges)
    cache = _timing_cache(parsed, config, settings, timings) if settings.caches_timings else None
    plan = parsed.record.expect(parsed.builder.build_serialized_network(parsed.network, config), "build an engine")
    return BuiltEngine(bytes(plan), None if cache is None else bytes(cache.serialize()))


def try_build(sdk: Sdk, request: CompileRequest, settings: BuildSettings) -> None:
    """Build a claim's engine to see that it can be built, every free size at 2. Raises as ``build_engine``."""
    ranges = {}
    for value in request.graph.inputs:
        shape = tuple(size if isinstance(size, int) else 2 for size in value.shape or ())
        ranges[value.name] = ShapeRange(shape, shape, shape)
    build_engine(sdk, program_of_request(request), replace(settings, caches_timings=False), ranges)


def _configure(sdk: Sdk, config: Any, settings: BuildSettings) -> None:
    trt = sdk.module
    config.clear_flag(trt.BuilderFlag.TF32)  # on by default: float32 products would keep ten bits of their factors
    if settings.uses_sparsity:
        config.set_flag(trt.BuilderFlag.SPARSE_WEIGHTS)
    if settings.workspace_nbytes:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, settings.workspace_nbytes)
    if settings.shared_memory_nbytes:
        config.set_memory_pool_limit(trt.MemoryPoolType.TACTIC_SHARED_MEMORY, settings.shared_memory_nbytes)
    if settings.optimization_level != DEFAULT_LEVEL:
        config.builder_optimization_level = settings.optimization_level
    if settings.auxiliary_streams >= 0:
        config.max_aux_streams = settings.auxiliary_streams
    if settings.is_hardware_compatible:
        config.hardware_compatibility_level = trt.HardwareCompatibilityLevel.AMPERE_PLUS
    if settings.is_detailed:
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED


def _add_profile(parsed: Network, config: Any, ranges: Ranges) -> None:
    varying = [tensor for tensor in parsed.inputs() if -1 in tuple(tensor.shape)]
    if not varying:
        return
    profile = parsed.record.expect(parsed.builder.create_optimization_profile(), "make an optimisation profile")
    for tensor in varying:
        bounds = ranges.get(tensor.name)
        if bounds is None:
            raise SdkError("bound its inputs", f"no range is given for {tensor.name!r}, which is {list(tensor.shape)}")
        profile.set_shape(tensor.name, bounds.minimum, bounds.optimum, bounds.maximum)
    if config.add_optimization_profile(profile) < 0:
        raise SdkError("take an optimisation profile", parsed.record.take())


def _timing_cache(parsed: Network, config: Any, settings: BuildSettings, timings: bytes | None) -> Any:
    cache = parsed.record.expect(config.create_timing_cache(timings or b""), "read measurements of kernels")
    parsed.record.expect(config.set_timing_cache(cache, settings.accepts_foreign_timings), "take measurements")
    return cache
