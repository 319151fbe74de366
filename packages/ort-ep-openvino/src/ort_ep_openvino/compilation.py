"""Compilation: from a partition to a compiled model, through the artefact cache where that saves time."""

from __future__ import annotations

import hashlib
import logging
import time
from typing import Any

from ort_core.plugin import CompileRequest, EPFail, Rejection
from ort_core.plugin.cache import ArtefactCache, CacheKey
from ort_core.plugin.ir import Graph
from ort_ep_openvino import _sdk
from ort_ep_openvino.blob import opened
from ort_ep_openvino.compiled import OpenVinoPartition
from ort_ep_openvino.lowering.program import Program, program_of_request
from ort_ep_openvino.options import OpenVinoOptions

log = logging.getLogger(__name__)


def compile_partition(request: CompileRequest, options: OpenVinoOptions, key: str) -> OpenVinoPartition:
    """Compile a partition.

    Raises:
        EPFail: OpenVINO did not read or compile it; the phase and its words are in the message.
    """
    program = program_of_request(request)
    try:
        compiled = _compiled(program, request, options)
    except _sdk.SdkError as error:
        raise EPFail(f"OpenVINO failed to {error.phase} partition {request.name!r}: {error}") from error
    return _partition(request.graph, compiled, program, key)


def load_partition(
    blob: bytes, request: CompileRequest, options: OpenVinoOptions, key: str
) -> OpenVinoPartition | Rejection:
    """Restore a partition from what it stored, or say why these bytes are not it."""
    program = program_of_request(request)
    content = opened(blob, _blob_key(program, key))
    if isinstance(content, Rejection):
        return content
    try:
        compiled = _sdk.import_model(content, options.device, options.configuration(request.num_threads))
    except _sdk.SdkError as error:
        return Rejection(f"OpenVINO does not import the stored model: {error}")
    return _partition(request.graph, compiled, program, key)


def _compiled(program: Program, request: CompileRequest, options: OpenVinoOptions) -> Any:
    model = _sdk.read_model(program.content, program.weights)
    bounds = options.shapes()
    given = {index: bounds[v.name] for index, v in enumerate(request.graph.inputs) if v.name in bounds}
    if given:
        _sdk.reshape(model, given)
    return _sdk.compile_model(model, options.device, options.configuration(request.num_threads))


def _partition(graph: Graph, compiled: Any, program: Program, key: str) -> OpenVinoPartition:
    found = (len(compiled.inputs), len(compiled.outputs))
    expected = (len(graph.inputs), len(graph.outputs))
    if found != expected:
        raise EPFail(f"OpenVINO made {found[0]} inputs and {found[1]} outputs, expected {expected[0]} and {expected[1]}")
    return OpenVinoPartition(graph, compiled, program.weights, lambda: _blob_key(program, key))


def _blob_key(program: Program, key: str) -> str:
    hasher = hashlib.sha256(program.content)
    for name, array in program.weights.items():
        hasher.update(name.encode())
        hasher.update(array.reshape(-1).view("u1").data)
    return f"{key}|{hasher.hexdigest()}"
