"""Decomposition: a node that TensorRT does not take is handed over in its operator's own parts.

The parts are those of the ONNX specification (function bodies), and for onnxruntime's own operators those of a table.
What holds of nodes holds of them: nothing in float64, which the parser would make float32, and nothing random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ort_core.plugin import Rejection
from ort_core.plugin.ir import Constant, DataType, Graph, Node, walk
from ort_core.plugin.kernels import EvaluationContext
from ort_core.plugin.rewrite import decompose
from ort_ep_tensorrt.lowering.branches import unequal_branches
from ort_ep_tensorrt.lowering.editing import Editor, LoweringRefusal, Writer, mark_parts, place_of
from ort_ep_tensorrt.lowering.operator_rewrites import DOMAIN, writer_of

RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
_SAME = frozenset({"DequantizeLinear", "QuantizeLinear"})  # onnxruntime's mean what ONNX's do
_LATEST = 1_000  # an opset behind all others
MAX_DEPTH = 8  # bodies within bodies; those of the specification are at most three deep


def has_parts(node: Node, context: EvaluationContext) -> bool:
    """Return whether an operator's specification gives its parts, or the table of onnxruntime's own operators does."""
    if writer_of(node) is not None:
        return True
    schema = context.schemas.find(node.domain, node.op_type, context.opset_of(node))
    return not isinstance(schema, Rejection) and schema.build_body is not None


def is_misread_by_parser(node: Node, context: EvaluationContext) -> bool:
    """Return whether the parser would take a node for another: it goes by names, and does not look at domains."""
    if node.domain in ("", "ai.onnx") or (node.domain == DOMAIN and node.op_type in _SAME):
        return False
    return not isinstance(context.schemas.find("", node.op_type, _LATEST), Rejection)


def decompose_nodes(
    graph: Graph, places: Iterable[int], context: EvaluationContext, is_unknown: Callable[[str], bool]
) -> None:
    """Replace nodes by their parts.

    Args:
        graph: the marked copy of a claim.
        places: which nodes, by their place in the claim.
        context: schemas of the model.
        is_unknown: whether the parser lacks an operator; such nodes are replaced wherever they stand, in parts too.

    Raises:
        LoweringRefusal: a node has no parts, or TensorRT would compute one of them in another way.
    """
    chosen = set(places)

    def is_foreign(node: Node) -> bool:
        return is_unknown(node.op_type) or is_misread_by_parser(node, context)

    waiting = [(node, 0) for node in graph.nodes if place_of(node) in chosen or is_foreign(node)]
    while waiting:
        node, depth = waiting.pop()
        place = place_of(node)
        if is_misread_by_parser(node, context) and not has_parts(node, context):
            raise LoweringRefusal(place, mistaken_words(node))
        if place not in chosen and not has_parts(node, context):
            continue  # the parser says what it lacks
        writer = writer_of(node)
        if writer is not None:
            _write(Editor(graph, node, context), writer, place)
            continue
        parts = decompose(graph, node, context)
        if isinstance(parts, Rejection) or depth >= MAX_DEPTH:
            raise LoweringRefusal(place, parts.reason if isinstance(parts, Rejection) else "its parts have no end")
        mark_parts(parts, place)
        _check(parts, place, node.op_type)
        waiting += [(part, depth + 1) for part in parts if is_foreign(part)]


def mistaken_words(node: Node) -> str:
    """Return why a node whose name is also one of ONNX's is not handed over."""
    return f"TensorRT's parser goes by names alone: it would take {node.qualified_name} for {node.op_type} of ONNX"


def _write(editor: Editor, writer: Writer, place: int) -> None:
    results = writer(editor)
    if isinstance(results, Rejection):
        raise LoweringRefusal(place, results.reason)
    editor.finish(results)


def _check(parts: Iterable[Node], place: int, op_type: str) -> None:
    for part in (inner for each in parts for inner in (each, *(n for g in each.subgraphs() for n in walk(g)))):
        if part.op_type in RANDOM:
            raise LoweringRefusal(place, f"{op_type} has {part.op_type} among its parts: TensorRT takes no seed")
        unequal = unequal_branches(part)
        if unequal is not None:
            raise LoweringRefusal(place, f"among the parts of {op_type}, {unequal}")
        if part.attribute("to") == int(DataType.DOUBLE) or _is_double(part.attribute("value")):
            raise LoweringRefusal(place, f"parts of {op_type} compute in float64, of which TensorRT makes float32")


def _is_double(value: object) -> bool:
    return isinstance(value, Constant) and value.dtype is DataType.DOUBLE
