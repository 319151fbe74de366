"""Building: from a program and ranges of shapes to a serialized engine. Needs no GPU where the SDK needs none."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from ort_ep_tensorrt._sdk import Sdk
from ort_ep_tensorrt.network import Network, ParseRefusal, parse
from ort_ep_tensorrt.program import Program
from ort_ep_tensorrt.ranges import Bounds, Ranges, ShapeRange
from ort_ep_tensorrt.recording import RecordState, SdkError
from ort_ep_tensorrt.settings import BuildSettings

DEFAULT_LEVEL = 3  # TensorRT's own


@dataclass(frozen=True, slots=True)
class BuiltEngine:
    """What a build leaves.

    Attributes:
        content: the serialized engine.
        timings: measurements of kernels, for the next build; ``None`` where none are kept.
    """

    content: bytes
    timings: bytes | None


def build_engine(
    sdk: Sdk, program: Program, settings: BuildSettings, bounds: Bounds, timings: bytes | None = None
) -> BuiltEngine:
    """Build an engine.

    Args:
        sdk: what builds.
        program: the claim.
        settings: how.
        bounds: of every input whose sizes vary, and of values that decide shapes.
        timings: measurements of earlier builds.

    Raises:
        SdkError: TensorRT did not take the program, or did not build it.
    """
    parsed = parse(sdk, program)
    if isinstance(parsed, ParseRefusal):
        raise SdkError("parse a claim", parsed.text)
    config = parsed.record.expect(parsed.builder.create_builder_config(), "make a configuration")
    _configure(sdk, config, settings, parsed.record)
    _add_profile(parsed, config, bounds)
    cache = _timing_cache(parsed, config, settings, timings) if settings.caches_timings else None
    plan = parsed.record.expect(parsed.builder.build_serialized_network(parsed.network, config), "build an engine")
    timed = None if cache is None else parsed.record.expect(cache.serialize(), "write measurements of kernels")
    return BuiltEngine(bytes(plan), None if timed is None else bytes(timed))


def _configure(sdk: Sdk, config: Any, settings: BuildSettings, record: RecordState) -> None:
    trt = sdk.module
    config.clear_flag(trt.BuilderFlag.TF32)  # on by default: float32 products would keep ten bits of their factors
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
    for flag, is_set in (
        ("SPARSE_WEIGHTS", settings.uses_sparsity),
        ("VERSION_COMPATIBLE", settings.is_version_compatible),
        ("EXCLUDE_LEAN_RUNTIME", settings.excludes_runtime),
        ("STRIP_PLAN", settings.strips_weights),
        ("REFIT", settings.strips_weights),
    ):
        if is_set:
            config.set_flag(getattr(trt.BuilderFlag, flag))
    if settings.tactic_sources:
        sources = _sources(trt, config.get_tactic_sources(), settings)
        record.expect(config.set_tactic_sources(sources), "take the sources of kernels")
    for name in settings.preview_features:
        config.set_preview_feature(_member(trt.PreviewFeature, name, "trt_preview_features"), True)
    if settings.is_detailed:
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED


def _sources(trt: Any, before: int, settings: BuildSettings) -> int:
    """Return TensorRT's set of bits for the sources of kernels."""
    found = int(before)
    for name, is_on in settings.tactic_sources:
        bit = 1 << int(_member(trt.TacticSource, name, "trt_tactic_sources"))
        found = found | bit if is_on else found & ~bit
    return found


def _member(kind: Any, name: str, option: str) -> Any:
    known = kind.__members__
    if name not in known:
        raise SdkError("build an engine", f"option {option!r} names {name!r}; this version knows {', '.join(known)}")
    return known[name]


def _add_profile(parsed: Network, config: Any, bounds: Bounds) -> None:
    varying = [tensor for tensor in parsed.inputs() if -1 in tuple(tensor.shape)]
    deciding = [tensor for tensor in parsed.inputs() if tensor.is_shape_tensor]
    if not varying and not deciding:
        return
    profile = parsed.record.expect(parsed.builder.create_optimization_profile(), "make an optimization profile")
    for tensor in varying:
        each = _range_of(bounds.shapes, tensor, "sizes")
        work = partial(profile.set_shape, tensor.name, each.minimum, each.optimum, each.maximum)
        parsed.record.attempt(f"take the range of sizes of {tensor.name!r}", work)
    for tensor in deciding:
        each = _range_of(bounds.values, tensor, "values")
        work = partial(profile.set_shape_input, tensor.name, each.minimum, each.optimum, each.maximum)
        parsed.record.attempt(f"take the range of values of {tensor.name!r}", work)
    if config.add_optimization_profile(profile) < 0:
        raise SdkError("take an optimization profile", parsed.record.take())


def _range_of(ranges: Ranges, tensor: Any, of_what: str) -> ShapeRange:
    found = ranges.get(tensor.name)
    if found is None:
        raise SdkError("bound its inputs", f"no range of {of_what} is given for {tensor.name!r}, {list(tensor.shape)}")
    return found


def _timing_cache(parsed: Network, config: Any, settings: BuildSettings, timings: bytes | None) -> Any:
    cache = parsed.record.expect(config.create_timing_cache(timings or b""), "read measurements of kernels")
    parsed.record.expect(config.set_timing_cache(cache, settings.accepts_foreign_timings), "take measurements")
    return cache
