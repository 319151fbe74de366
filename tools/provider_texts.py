"""provider_texts(): what each provider claims of a model and makes of its claims, without a device; for ``replay``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

from ort_core.ir.traversal import walk
from ort_core.plugin import Capability, Claim, CompileRequest, GraphView, Rejection
from ort_core.plugin.ir import Graph, Model, Value
from ort_core.testing.claims import request_for, view_of

OPEN = 4  # what stands for sizes with names where a provider wants numbers


def provider_texts(model: Model) -> Iterator[str]:
    """Write the claims and refusals of every graph of a frozen model, and the programs of the claims."""
    graphs: dict[Graph, None] = {model.graph: None}
    graphs.update((node.graph, None) for node in walk(model.graph) if node.graph is not None)
    for graph in graphs:
        view = view_of(model, graph)
        for name, ask, lower in PROVIDERS:
            yield f"provider {name}"
            yield from _claims(view, ask, lower)


def _claims(
    view: GraphView, ask: Callable[[GraphView], Capability], lower: Callable[[CompileRequest], str]
) -> Iterator[str]:
    for found in ask(view):
        if isinstance(found, Rejection):
            what = f"{found.node.op_type} {found.node.name}" if found.node else ""
            yield f"left {what}: {found.reason}"
            continue
        yield f"claimed {[node.op_type for node in found.nodes]} {[node.name for node in found.nodes]}"
        try:
            yield lower(request_for(view, found))
        except Exception as error:  # noqa: BLE001 - what is refused before must be refused behind, in the same words
            yield f"{type(error).__name__}: {error}"


def _cuda_claims(view: GraphView) -> Capability:
    from ort_ep_cuda.capability import find_capability

    return find_capability(view, lambda op_type: None)


def _cuda_program(request: CompileRequest) -> str:
    from ort_ep_cuda.lowering.lower_partition import lower_partition

    program = lower_partition(request.graph, request.context, [_shape(value) for value in request.graph.inputs], {})
    return "\n".join([program.describe(), *(kernel.source for kernel in program.kernels())])


def _coreml_claims(view: GraphView) -> Capability:
    from ort_ep_coreml.capability import find_capability
    from ort_ep_coreml.options import CoreMlOptions

    return find_capability(view, CoreMlOptions())


def _coreml_program(request: CompileRequest) -> str:
    from ort_ep_coreml.capability import program_of
    from ort_ep_coreml.options import CoreMlOptions

    return program_of(request, CoreMlOptions()).text()


def _directml_claims(view: GraphView) -> Capability:
    from ort_ep_directml.capability import find_capability
    from ort_ep_directml.schema.operators import parse_level

    return find_capability(view, parse_level("6.2"))


def _directml_program(request: CompileRequest) -> str:
    from ort_ep_directml.lowering.lowered import lower
    from ort_ep_directml.schema.operators import parse_level

    return lower(request, [_shape(value) for value in request.graph.inputs], parse_level("6.2")).text()


def _openvino_rules(view: GraphView) -> Capability:
    from ort_ep_openvino.lowering.table import refusal

    found = [(node, refusal(view, node)) for node in view.nodes]
    return [Claim((node,)) if why is None else Rejection(why, node) for node, why in found]


def _openvino_program(request: CompileRequest) -> str:
    from ort_ep_openvino.lowering.program import program_of

    view = request.view()
    return hashlib.sha256(program_of(view, view.nodes).content).hexdigest()


PROVIDERS = (
    ("cuda", _cuda_claims, _cuda_program),
    ("coreml", _coreml_claims, _coreml_program),
    ("directml", _directml_claims, _directml_program),
    ("openvino", _openvino_rules, _openvino_program),
)


def _shape(value: Value) -> tuple[int, ...]:
    return tuple(size if isinstance(size, int) else OPEN for size in value.shape or ())
