"""Compilation: from a partition to a compiled model, through the artefact cache where that saves time."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from ort_core.plugin import CompileRequest, EPFail, KernelFallbackState, Rejection
from ort_core.plugin.cache import ArtefactCache, CacheKey
from ort_core.plugin.ir import TensorType, Value
from ort_ep_openvino import _sdk
from ort_ep_openvino.blob import opened
from ort_ep_openvino.compiled import OpenVinoPartition
from ort_ep_openvino.fixed_sizes import FixedSizesPartition, Shapes
from ort_ep_openvino.lowering.ports import Ports
from ort_ep_openvino.lowering.program import Program, program_of_request
from ort_ep_openvino.options import OpenVinoOptions
from ort_ep_openvino.size_conditions import SizeConditions

Weights = Mapping[str, np.ndarray]
log = logging.getLogger(__name__)

MIN_CACHED_NODES = 16  # fewer compile in less time than their weights take to digest
MIN_CACHED_S = 0.5  # a compilation that was faster is not worth the disk
CACHED_NBYTES_PER_S = 100e6  # of weights: to digest, read, check and import them takes a second for some 300 MB


def compile_partition(
    request: CompileRequest, options: OpenVinoOptions, key: str
) -> OpenVinoPartition | FixedSizesPartition:
    """Compile a partition; one of open sizes, where sizes are to be fixed, in the first run of each.

    Raises:
        EPFail: OpenVINO did not read or compile it; the phase and its words are in the message.
    """
    program = program_of_request(request)
    weights, conditions = program.weights(), SizeConditions(request.view())
    if options.has_fixed_sizes and any(_is_open(value) for value in request.graph.inputs):
        return FixedSizesPartition(
            request.graph,
            lambda shapes: _of_sizes(request, options, key, program, weights, conditions, shapes),
            KernelFallbackState(request),
        )
    with _failing(request):
        compiled, ports = _compiled_or_cached(program, weights, request, options, key)
    return _partition(request, options, compiled, ports, program, weights, conditions, key)


def _is_open(value: Value) -> bool:
    shape = value.type.shape if isinstance(value.type, TensorType) else None
    return shape is None or not all(isinstance(dim, int) for dim in shape)


@contextmanager
def _failing(request: CompileRequest) -> Iterator[None]:
    """Raise what OpenVINO says as ``EPFail``."""
    try:
        yield
    except _sdk.SdkError as error:
        raise EPFail(f"OpenVINO failed to {error.phase} partition {request.name!r}: {error}") from error


def _of_sizes(
    request: CompileRequest,
    options: OpenVinoOptions,
    key: str,
    program: Program,
    weights: Weights,
    conditions: SizeConditions,
    shapes: Shapes,
) -> OpenVinoPartition:
    with _failing(request):
        compiled, ports = _compiled(program, weights, request, options, shapes)
    return _partition(request, options, compiled, ports, program, weights, conditions, f"{key}|{shapes}", shapes)


def load_partition(
    blob: bytes, request: CompileRequest, options: OpenVinoOptions, key: str
) -> OpenVinoPartition | Rejection:
    """Restore a partition from what it stored, or say why these bytes are not it."""
    program = program_of_request(request)
    content = opened(blob, _blob_key(program, key))
    if isinstance(content, Rejection):
        return content
    try:
        ports, exported = Ports.opened(content)
        compiled = _sdk.import_model(exported, options.device, options.configuration(request.num_threads))
    except (_sdk.SdkError, ValueError) as error:
        return Rejection(f"OpenVINO does not import the stored model: {error}")
    conditions = SizeConditions(request.view())
    return _partition(request, options, compiled, ports, program, program.weights(), conditions, key)


def _compiled_or_cached(
    program: Program, weights: Weights, request: CompileRequest, options: OpenVinoOptions, key: str
) -> tuple[Any, Ports]:
    configuration = options.configuration(request.num_threads)
    if len(request.graph) < MIN_CACHED_NODES or "CACHE_DIR" in configuration:  # a folder of OpenVINO's own was chosen
        return _compiled(program, weights, request, options)
    cache, mark = ArtefactCache(), _mark_of(program, key, configuration)
    found = cache.get(_cache_key(program, mark)) if cache.get(mark) is not None else None
    if found is not None:
        try:
            ports, exported = Ports.opened(found)
            return _sdk.import_model(exported, options.device, configuration), ports
        except (_sdk.SdkError, ValueError) as error:  # written by another build of OpenVINO: compiled anew and replaced
            log.info("a cached model of %s is not used: %s", request.name, error)
    start = time.perf_counter()
    compiled, ports = _compiled(program, weights, request, options)
    if time.perf_counter() - start >= max(MIN_CACHED_S, program.weights_nbytes / CACHED_NBYTES_PER_S):
        try:
            exported = _sdk.export_model(compiled)
        except _sdk.SdkError as error:
            log.info("a model of %s is not cached: %s", request.name, error)
        else:
            cache.put(_cache_key(program, mark), ports.sealed_with(exported))
            cache.put(mark, b"stored")
    return compiled, ports


def _mark_of(program: Program, key: str, configuration: Mapping[str, object]) -> CacheKey:
    """Return the key of the entry which says that a model of this structure was stored, with some weights.

    Without it no weights are digested: that takes about as long as OpenVINO takes to compile most models.
    """
    facts = (("provider", key), ("configuration", repr(sorted(configuration.items()))))
    return CacheKey("openvino-stored", hashlib.sha256(program.content).digest(), (), facts)


def _cache_key(program: Program, mark: CacheKey) -> CacheKey:
    weights = tuple(name.encode() + constant.digest() for name, constant in program.constants.items())
    return replace(mark, kind="openvino-model", weights=weights)


def _compiled(
    program: Program,
    weights: Weights,
    request: CompileRequest,
    options: OpenVinoOptions,
    shapes: Shapes | None = None,
) -> tuple[Any, Ports]:
    """Return a model compiled for ``shapes`` of the claim's inputs, or with the sizes that its graph leaves open."""
    model = _sdk.read_model(program.content, weights)
    _sdk.compute_fixed(model)
    ports = _sdk.separate_passed(model, program.inputs)
    bounds = options.shapes()
    names = [request.graph.inputs[place].name for place in ports.inputs]
    given = {index: bounds[name] for index, name in enumerate(names) if name in bounds}
    if shapes is not None:
        given = {index: str(list(shapes[place])) for index, place in enumerate(ports.inputs)}
    if given:
        _sdk.reshape(model, given)
    return _sdk.compile_model(model, options.device, options.configuration(request.num_threads)), ports


def _partition(
    request: CompileRequest,
    options: OpenVinoOptions,
    compiled: Any,
    ports: Ports,
    program: Program,
    weights: Weights,
    conditions: SizeConditions,
    key: str,
    shapes: Shapes | None = None,
) -> OpenVinoPartition:
    graph = request.graph
    found = (len(compiled.inputs), len(compiled.outputs))
    expected = (len(ports.inputs), len(ports.outputs))
    if found != expected:
        raise EPFail(
            f"OpenVINO made {found[0]} inputs and {found[1]} outputs, expected {expected[0]} and {expected[1]}"
        )
    return OpenVinoPartition(
        graph,
        ports,
        compiled,
        weights,
        lambda: _blob_key(program, key),
        lambda: _compiled(program, weights, request, options, shapes)[0],
        conditions,
        KernelFallbackState(request),
    )


def _blob_key(program: Program, key: str) -> str:
    hasher = hashlib.sha256(program.content)
    for name, constant in program.constants.items():
        hasher.update(name.encode() + constant.digest())
    return f"{key}|{hasher.hexdigest()}"
