"""Compilation: from a partition that was claimed to one that runs, or from an engine that was stored."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ort_core.plugin import CompileRequest, EPFail, GraphView, InvalidArgument, OrtError, Rejection
from ort_core.plugin.devices import Device, DeviceApi, DeviceDirectory
from ort_core.plugin.ir import Value
from ort_ep_tensorrt._sdk import Sdk
from ort_ep_tensorrt.blob import opened
from ort_ep_tensorrt.building import build_engine
from ort_ep_tensorrt.compiled import TensorRtPartition
from ort_ep_tensorrt.engine import Values
from ort_ep_tensorrt.engines import EnginesState
from ort_ep_tensorrt.lowered import Lowered, LowerRefusal, lower
from ort_ep_tensorrt.lowering.likely_sizes import likely_values
from ort_ep_tensorrt.ranges import Shape, bounds_for
from ort_ep_tensorrt.recording import SdkError
from ort_ep_tensorrt.settings import BuildSettings

log = logging.getLogger(__name__)


def compile_partition(request: CompileRequest, sdk: Sdk, settings: BuildSettings) -> TensorRtPartition:
    """Return a partition; where its shapes are fixed or given its engine is built at once, else with the first run.

    Raises:
        EPFail: no plugin offers CUDA devices, or TensorRT did not build it.
    """
    partition = _partition(request, sdk, settings)
    shapes = [_known_shape(value, settings) for value in request.graph.inputs]
    if not partition.value_inputs and None not in shapes:
        partition.plan(shapes, {})
    return partition


def load_partition(
    blob: bytes, request: CompileRequest, sdk: Sdk, settings: BuildSettings
) -> TensorRtPartition | Rejection:
    """Restore a partition from what it stored, or say why these bytes do not fit."""
    stored = opened(blob)
    if isinstance(stored, Rejection):
        return stored
    partition = _partition(request, sdk, settings)
    refused = partition.restore(stored)
    return partition if refused is None else refused


def try_build(request: CompileRequest, sdk: Sdk, settings: BuildSettings) -> Rejection | None:
    """Build a claim's engine without a device, and drop it; every free size is 2.

    Returns:
        Why that says nothing: values that decide shapes come with each run, and those that were tried do not fit.

    Raises:
        SdkError: TensorRT did not build it.
    """
    view = request.view()
    lowered = _lowered(view, sdk, settings, {})
    shapes = {v.name: tuple(s if isinstance(s, int) else 2 for s in v.shape or ()) for v in request.graph.inputs}
    deciding = {tensor.name for tensor in lowered.network.inputs() if tensor.is_shape_tensor}
    values = {v.name: likely_values(v, shapes[v.name]) for v in request.graph.inputs if v.name in deciding}
    try:
        build_engine(sdk, lowered.program, replace(settings, caches_timings=False), bounds_for(shapes, values, {}))
    except SdkError as error:
        if not deciding:
            raise
        return Rejection(f"the values of {sorted(deciding)} come with each run; with made-up ones: {error}")
    return None


def _partition(request: CompileRequest, sdk: Sdk, settings: BuildSettings) -> TensorRtPartition:
    api = _device(request, settings)
    view = request.view()
    _check_ranges(view, settings)
    try:
        lowered = _lowered(view, sdk, settings, {})
    except SdkError as error:
        raise EPFail(f"partition {request.name!r}: {error}") from error
    _report_kept(request.name, view, lowered, settings)
    deciding = [tensor.name for tensor in lowered.network.inputs() if tensor.is_shape_tensor]
    hardware = str(getattr(api, "hardware", ""))  # a DeviceApi may name the device and its driver
    program = lowered.program

    def engines_of(values: Values) -> EnginesState:
        chosen = _lowered(view, sdk, settings, values).program if values else program
        return EnginesState(request.name, sdk, settings, chosen, hardware)

    return TensorRtPartition(request, settings, api, engines_of, lowered.fixed, deciding)


def _lowered(view: GraphView, sdk: Sdk, settings: BuildSettings, values: Values) -> Lowered:
    found = lower(view, view.nodes, sdk, settings, values)
    if isinstance(found, LowerRefusal):
        raise SdkError("take a claim", "; ".join(dict.fromkeys(found.nodes.values())) or found.text)
    return found


def _device(request: CompileRequest, settings: BuildSettings) -> DeviceApi:
    devices = request.services.get("devices")
    if not isinstance(devices, DeviceDirectory):
        raise EPFail("TensorRT runs on the CUDA devices of the environment, and this request has no devices")
    try:
        return devices.get(Device("cuda", settings.device_id))
    except OrtError as error:
        raise EPFail(f"TensorRT needs a CUDA device from a plugin (pip install ort-ep-cuda): {error}") from error


def _check_ranges(view: GraphView, settings: BuildSettings) -> None:
    """Raise where a given range contradicts the shape that the model states."""
    for value in view.graph.inputs:
        given = settings.ranges.get(value.name)
        if given is None or value.shape is None:
            continue
        fits = len(given.minimum) == len(value.shape) and all(
            not isinstance(size, int) or low == high == size
            for low, high, size in zip(given.minimum, given.maximum, value.shape, strict=True)
        )
        if not fits:
            raise InvalidArgument(
                f"the profile of {value.name!r} goes from {list(given.minimum)} to {list(given.maximum)}, and the "
                f"model says {list(value.shape)}: give every size once, fixed ones as they are"
            )


def _known_shape(value: Value, settings: BuildSettings) -> Shape | None:
    """Return the shape that an engine can be built for before a run: a fixed one, or the likeliest of a given range."""
    sizes = [size for size in value.shape or () if isinstance(size, int)]
    if value.shape is not None and len(sizes) == len(value.shape):
        return tuple(sizes)
    given = settings.ranges.get(value.name)
    return None if given is None else given.optimum


def _report_kept(name: str, view: GraphView, lowered: Lowered, settings: BuildSettings) -> None:
    kept = lowered.program.kept
    if settings.precision == "float32":
        return
    log.warning(
        "partition %s computes in %s; %d of its %d nodes stay in float32%s",
        name, settings.precision, len(kept), len(view.nodes), "".join(f"; {line}" for line in kept_lines(kept)),
    )  # fmt: skip


def kept_lines(kept: Mapping[int, str]) -> list[str]:
    """Return the reasons for nodes that stay in float32, each once with how often it holds."""
    return [f"{count} x {reason}" for reason, count in Counter(kept.values()).most_common()]
