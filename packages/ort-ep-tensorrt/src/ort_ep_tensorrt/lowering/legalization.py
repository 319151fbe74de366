"""Legalization: all changes of a claim's copy before the parser reads it, in their order.

Fixed inputs become constants, nodes that TensorRT does not take become their parts, integers of 8 bits float32, and
float32 a narrow type where that was asked for. The model of the session keeps its nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ort_core.plugin.ir import Graph
from ort_core.plugin.kernels import EvaluationContext
from ort_ep_tensorrt.lowering.decomposition import decompose_nodes
from ort_ep_tensorrt.lowering.editing import mark_places, take_places
from ort_ep_tensorrt.lowering.fixed_inputs import fix_inputs, fix_known_inputs
from ort_ep_tensorrt.lowering.integer_emulation import hold_as_float32
from ort_ep_tensorrt.lowering.precision import narrow, remove_unread_casts


@dataclass(frozen=True, slots=True)
class Changes:
    """What is changed.

    Attributes:
        in_parts: places of nodes that are handed over in their parts.
        is_unknown: whether the parser has no importer for an operator; such nodes are decomposed wherever they stand.
        fixed: values of inputs that must be constants, by name.
        precision: ``"float32"``, ``"float16"`` or ``"bfloat16"``.
        keeps_normalizations: layer normalization and its kin stay in float32.
    """

    in_parts: frozenset[int] = frozenset()
    is_unknown: Callable[[str], bool] = field(default=lambda op_type: False)
    fixed: Mapping[str, np.ndarray] = field(default_factory=dict)
    precision: str = "float32"
    keeps_normalizations: bool = False


@dataclass(frozen=True, slots=True)
class Legalized:
    """What the changes left.

    Attributes:
        places: for each node of the copy the place of the node of the claim that it stands for.
        kept: reasons for the nodes that stay in float32, by place, where a narrow type was asked for.
    """

    places: tuple[int, ...]
    kept: Mapping[int, str]


def legalize(graph: Graph, context: EvaluationContext, changes: Changes) -> Legalized:
    """Change the copy of a claim in place; its inputs and outputs stay.

    Raises:
        LoweringRefusal: a node cannot be said in TensorRT's words.
    """
    mark_places(graph)
    fix_inputs(graph, changes.fixed)
    decompose_nodes(graph, changes.in_parts, context, changes.is_unknown)
    fix_known_inputs(graph, context)
    hold_as_float32(graph)
    kept: dict[int, str] = {}
    if changes.precision != "float32":
        kept = narrow(graph, changes.precision, keeps_normalizations=changes.keeps_normalizations)
        remove_unread_casts(graph)
    return Legalized(take_places(graph), kept)
