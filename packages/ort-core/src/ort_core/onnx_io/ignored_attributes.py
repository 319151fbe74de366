"""Attributes that no version of an operator knows, of operators that take any: dropped when a model is loaded.

onnxruntime registered its experimental operators and its layer normalization so, and exporters of that time relied on
it. ai.onnx before version 7 stands for the same age: nobody validated attributes then. Names that begin with two
underscores are a tool's own notes on a node: ONNX lets every operator carry them. A domain of users keeps them, since
its operators may declare such a name. Of a ``Constant`` with several values the first one is taken, as onnxruntime
does.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import onnx.defs

from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.traversal import walk

log = logging.getLogger(__name__)

TAKES_ANY = frozenset({
    "Affine", "Crop", "DynamicSlice", "GRUUnit", "GivenTensorFill", "ImageScaler", "LayerNormalization",
    "ParametricSoftplus", "Scale", "ScaledTanh", "SimplifiedLayerNormalization",
})  # fmt: skip
VALUES = frozenset(onnx.defs.get_schema("Constant").attributes)
VALIDATED_SINCE = 7  # the first version of ai.onnx that onnxruntime supports
NOTE_PREFIX = "__"  # ONNX's prefix of internal names
STANDARD_DOMAINS = ("ai.onnx", "com.microsoft")


def drop_ignored_attributes(graph: Graph, imports: Mapping[str, int]) -> None:
    """Drop tools' notes, and unknown attributes of the operators that take any with a warning for each node."""
    version = imports.get("", 1)
    for node in walk(graph):
        if not node.domain or node.domain.startswith(STANDARD_DOMAINS):
            for name in [each for each in node.attributes if each.startswith(NOTE_PREFIX)]:
                del node.attributes[name]
        if node.op_type == "Constant" and not node.domain:
            _keep_first_value(node)
            continue
        if node.domain or not node.attributes or not (node.op_type in TAKES_ANY or version < VALIDATED_SINCE):
            continue
        known = _known_attributes(node, version)
        for name in sorted(node.attributes.keys() - known) if known is not None else ():
            log.warning("%s has no attribute %r in opset %d: it is ignored", node.describe(), name, version)
            del node.attributes[name]


def _keep_first_value(node: Node) -> None:
    values = [name for name in node.attributes if name in VALUES]
    for name in values[1:]:
        log.warning("%s has several values: %r is taken and %r is ignored", node.describe(), values[0], name)
        del node.attributes[name]


def _known_attributes(node: Node, version: int) -> frozenset[str] | None:
    from ort_core.ops.contrib_schemas import find_contrib_schema  # few models need it

    try:
        return frozenset(onnx.defs.get_schema(node.op_type, version, "").attributes)
    except onnx.defs.SchemaError:
        schema = find_contrib_schema("", node.op_type, version)
        return None if schema is None else frozenset(schema.attributes)
