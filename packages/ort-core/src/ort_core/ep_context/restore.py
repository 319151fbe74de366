"""restore_contexts(): EPContext nodes back to compiled partitions, or to the graphs that they stand for.

A context is used only where everything fits: the provider, its ``cache_key``, the version of ort-core, the digest that
the node states. Else its graph, where it has one, takes the node's place and is compiled as any other; without a graph
the reason is an error. Bytes for a provider may be machine code: they are used only if the caller trusts the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ort_core import __version__
from ort_core.ep_context.container import ContextContent, context_digest, decode_context
from ort_core.ep_context.nodes import element_type, embedded_content, facts_of, is_context
from ort_core.errors import EngineError, InvalidGraph, ModelRequiresCompilation, OrtError
from ort_core.frozen import frozen
from ort_core.interruptions import raise_interruption
from ort_core.ir.graph import Graph
from ort_core.ir.model import Model
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.subgraph import extract, inline
from ort_core.ir.traversal import walk
from ort_core.ir.types import TensorType
from ort_core.providers.compiled import CompileRequest
from ort_core.providers.provider import ExecutionProvider
from ort_core.providers.restored import RestoredPartition

_LIST_LENGTH = 12
ReadFile = Callable[[str], memoryview]
CheckGraph = Callable[[Model], None]
MakeRequest = Callable[[str, Graph], CompileRequest]


@frozen
class RestorePolicy:
    """What restoring may do, and with whom.

    Attributes:
        providers: those of the session.
        read_file: returns the content of a file beside the model.
        check_graph: infers the types of a graph out of a context; raises ``OrtError`` when they contradict.
        request: what a provider is given beside its bytes.
        trusts_code: whether providers may use the bytes that the model carries.
        may_compile: whether what does not fit may be compiled anew.
    """

    providers: Sequence[ExecutionProvider]
    read_file: ReadFile
    check_graph: CheckGraph
    request: MakeRequest
    trusts_code: bool = False
    may_compile: bool = True


def restore_contexts(model: Model, policy: RestorePolicy) -> tuple[dict[str, RestoredPartition], tuple[str, ...]]:
    """Restore every EPContext node of an editable model, or put its graph in its place.

    Returns:
        The restored partitions by the ``partition_name`` of their nodes, and a sentence for each that was not.

    Raises:
        InvalidGraph: a node is not as this project writes it.
        EngineError: a context does not fit here and has no graph.
        ModelRequiresCompilation: a context does not fit here and nothing may be compiled.
        Fail: a file is missing or lies outside the model's folder.
    """
    restored: dict[str, RestoredPartition] = {}
    refusals: list[str] = []
    for node in [each for each in walk(model.graph) if is_context(each)]:
        name = facts_of(node).partition
        if node.graph is not model.graph or not name or name in restored:
            raise InvalidGraph(f"{node.describe()} must be in the main graph and have its own partition_name")
        context = _read(node, policy)
        body = _body(node, context, model, policy)
        found = _restore(node, name, context, body, policy)
        if isinstance(found, RestoredPartition):
            restored[name] = found
            continue
        text = f"the compiled partition {name!r} of {context.provider} is not used: {found.reason}"
        refusals.append(f"{text}; its graph is compiled instead")
        if body is None:
            raise EngineError(f"{text}. The model carries no graph to use instead: compile the original model here.")
        if not policy.may_compile:
            raise ModelRequiresCompilation(f"{text}, and session.disable_model_compile forbids to compile its graph.")
        _inline(model, node, body)
    return restored, tuple(refusals)


def _read(node: Node, policy: RestorePolicy) -> ContextContent:
    embedded = embedded_content(node)
    stored = memoryview(embedded) if embedded is not None else None
    where = "its attribute"
    if stored is None:
        where = node.string_attribute("ep_cache_context", "")
        stored = policy.read_file(where)
    expected, found = facts_of(node).digest, context_digest(stored)
    if found != expected:
        raise EngineError(
            f"{node.describe()} was compiled into a context with SHA-256 {expected or '(not stated)'}, found {found} "
            f"in {where}: it belongs to another model or was changed. Compile the model anew."
        )
    return decode_context(stored)


def _body(node: Node, context: ContextContent, model: Model, policy: RestorePolicy) -> Model | None:
    """Return the graph of a context, its types checked as those of a loaded model are."""
    if not len(context.graph):
        return None
    from ort_core.onnx_io.artefact import decode_optimized  # imports onnx

    kept = [value.constant for value in node.inputs[context.input_count :] if value is not None]
    constants = [constant for constant in kept if constant is not None]
    try:
        body = decode_optimized(memoryview(context.graph), model, constants)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise InvalidGraph(f"the graph of {node.describe()} cannot be read: {error}") from error
    policy.check_graph(body)
    count = len(body.graph.inputs)
    pairs = [*zip(body.graph.inputs, node.inputs[:count]), *zip(body.graph.outputs, node.outputs)]
    if not count == context.input_count <= len(node.inputs) or len(body.graph.outputs) != len(node.outputs):
        raise InvalidGraph(f"{node.describe()} has not the inputs and outputs of its graph")
    for inner, outer in pairs:
        if outer is None:
            raise InvalidGraph(f"{node.describe()} lacks {inner.name!r}")
        if outer.type is None:
            outer.type = None if (dtype := element_type(inner)) is None else TensorType(dtype, None)
        if element_type(inner) is None or element_type(inner) is not element_type(outer):
            raise InvalidGraph(f"{outer.name!r} of {node.describe()} is {outer.type}, its graph says {inner.type}")
    return body


def _restore(
    node: Node, name: str, context: ContextContent, body: Model | None, policy: RestorePolicy
) -> RestoredPartition | Rejection:
    provider = next((each for each in policy.providers if each.name == context.provider), None)
    if provider is None:
        asked = ", ".join(each.name for each in policy.providers)
        return Rejection(f"the session has no {context.provider} (it has {asked})")
    if context.version != __version__:
        return Rejection(f"it was compiled by ort-core {context.version}, this is {__version__}")
    here = provider.cache_key()
    if context.key != here:
        return Rejection(_difference(context.key, here))
    if not policy.trusts_code:
        return Rejection(
            "it may hold machine code, which runs only if session.trust_compiled_code is set to 1 for a model whose "
            "origin you trust"
        )
    graph = body.graph if body is not None else _shell(node)
    try:
        loaded = provider.load(bytes(context.blob), policy.request(name, graph))
    except Exception as error:  # noqa: BLE001 - the border to providers: becomes a reason
        raise_interruption(error)
        return Rejection(f"load failed: {error if isinstance(error, OrtError) else f'{type(error).__name__}: {error}'}")
    if isinstance(loaded, Rejection):
        return loaded
    return RestoredPartition(provider, loaded, context.input_count)


def _difference(there: str, here: str) -> str:
    """Return in what two cache keys differ, part by part."""
    old, new = there.split("|"), here.split("|")
    if len(old) != len(new):
        return f"it was compiled for {there}, this is {here}"
    changed = [(a, b) for a, b in zip(old, new, strict=True) if a != b]
    return "it was compiled for " + " and ".join(_change(a, b) for a, b in changed)


def _change(there: str, here: str) -> str:
    """Return a difference in words; of long lists of words, such as a processor's features, those that differ."""
    old, new = there.split(), here.split()
    if min(len(old), len(new)) < _LIST_LENGTH:
        return f"{there or '(nothing)'}, here is {here or '(nothing)'}"
    lacking, further = ([word for word in of if word not in than] for of, than in ((old, new), (new, old)))
    texts = [f"{how} {' '.join(words)}" for how, words in (("with", lacking), ("without", further)) if words]
    return f"a processor {' and '.join(texts)}, which is otherwise here"


def _shell(node: Node) -> Graph:
    """Return a graph with the inputs and outputs of a node and the node itself: all that a provider needs to know."""
    return extract([node], node.name)[0]


def _inline(model: Model, node: Node, body: Model) -> None:
    graph = model.graph
    for domain, version in body.opset_imports.items():
        own = model.opset_imports.setdefault(domain, version)
        if own != version:
            what = f"opset {version} of {domain or 'ai.onnx'!r}"
            raise InvalidGraph(f"{node.describe()} needs {what}, the model has {own}")
    bindings = {formal: actual for formal, actual in zip(body.graph.inputs, node.inputs) if actual is not None}
    results = inline(graph, node, body.graph, bindings)
    outputs = [node.detach_output(index) for index in range(len(node.outputs))]
    for result, output in zip(results, outputs, strict=True):
        graph.insert_before(node, Node("Identity", [result], [output]))
    graph.remove(node)
