"""Shape numbers: small values that follow from shapes are numbers when a plan is made, and cost nothing in it.

Numpy kernels compute them. What reads them sees constants: the start of a Range, the ends of a Slice, the sizes of an
Expand.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.claims import SHAPE_READERS, SIZE_ARITHMETIC, SMALL_NBYTES, results_beforehand
from ort_core.plugin.ir import Node, Value
from ort_ep_directml.lowering.lowering_context import LoweringContext, element_type
from ort_ep_directml.lowering.plan import Sizes


def is_number_of_shapes(node: Node) -> bool:
    """Return whether a node's results are numbers when a plan is made, if all that it reads is."""
    return not node.domain and (node.op_type in SHAPE_READERS | SIZE_ARITHMETIC)


def learn_numbers(context: LoweringContext, node: Node, sizes: Callable[[Value], Sizes | None]) -> bool:
    """Compute the results of a node that follow from shapes, and keep them; return whether there are such.

    Args:
        context: takes the numbers.
        node: any node; what it reads was asked for before it.
        sizes: those of a value, ``None`` where they are open.
    """
    if not is_number_of_shapes(node) or not all(_is_small(value, sizes(value)) for value in node.present_outputs()):
        return False

    def content(value: Value) -> np.ndarray | None:
        found = context.numbers.get(value)
        return context.constant(value) if found is None and context.nbytes(value) <= SMALL_NBYTES else found

    results = results_beforehand(node, context.view.context, content, sizes)
    if isinstance(results, Rejection):
        return False
    context.numbers.update(results)
    return True


def learn_behind(context: LoweringContext, node: Node, sizes: Callable[[Value], Sizes | None]) -> None:
    """Compute the numbers that a node reads, from the shapes that they follow from."""
    for producer in _number_nodes_behind(context, node):
        learn_numbers(context, producer, sizes)


def _number_nodes_behind(context: LoweringContext, node: Node) -> list[Node]:
    """Return the nodes of the graph that the numbers which a node reads follow from, each behind those it reads."""
    graph, seen, ordered = context.view.graph, set[Node](), list[Node]()
    left: list[tuple[Node, bool]] = [(node, False)]
    while left:
        each, is_done = left.pop()
        if is_done:
            ordered.append(each)
            continue
        if each is not node:
            if each in seen or each.graph is not graph or not is_number_of_shapes(each):
                continue
            seen.add(each)
            left.append((each, True))
        if each is node or each.op_type not in SHAPE_READERS:
            left += [(value.producer, False) for value in each.present_inputs() if value.producer is not None]
    return ordered


def _is_small(value: Value, sizes: Sizes | None) -> bool:
    dtype = element_type(value)
    return sizes is not None and dtype is not None and 0 < math.prod(sizes) * dtype.bits // 8 <= SMALL_NBYTES
