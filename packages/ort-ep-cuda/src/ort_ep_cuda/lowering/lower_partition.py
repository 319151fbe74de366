"""From a partition's graph and the shapes of its inputs to its program."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence

import numpy as np

from ort_core.plugin import EPFail, OrtError
from ort_core.plugin.ir import Graph, Node, Value
from ort_core.plugin.kernels import EvaluationContext
from ort_ep_cuda.lowering.builder import ProgramBuilder
from ort_ep_cuda.lowering.custom.custom_operators import get_operator
from ort_ep_cuda.lowering.libraries.epilogues import find_chains, lower_chain
from ort_ep_cuda.lowering.libraries.libraries import NOTHING_FUSED, Libraries
from ort_ep_cuda.lowering.node_facts import LoweredNode
from ort_ep_cuda.lowering.operators import OPERATORS
from ort_ep_cuda.lowering.program import Program
from ort_ep_cuda.lowering.requirements import Whole, require
from ort_ep_cuda.lowering.values.sizes import computes_sizes, define_sizes, inputs_of_sizes
from ort_ep_cuda.lowering.values.views import Shape


def lower_partition(
    graph: Graph,
    context: EvaluationContext,
    shapes: Sequence[Shape],
    known: Mapping[Value, np.ndarray],
    states: MutableMapping[Node, dict[str, object]] | None = None,
    libraries: Libraries = NOTHING_FUSED,
    turned: Mapping[Value, Value] | None = None,
    wholes: Mapping[Node, Whole] | None = None,
) -> Program:
    """Lower every node in order.

    Args:
        graph: the partition; its nodes were claimed, so each has an operator.
        context: gives the version of each node's domain.
        shapes: of the graph's inputs.
        known: contents of inputs that nodes read on the host.
        states: what users' kernels keep from run to run, by node; filled here, and passed again for other sizes.
        libraries: what may be fused into library calls.
        turned: matrices that are the transpose of another constant, which is read in their place.
        wholes: nodes that are lowered in parts, by the first of their parts.

    Raises:
        InvalidArgument: a node does not take operands of these sizes.
        EPFail: a node cannot be lowered at these sizes; the message names it.
    """
    builder = ProgramBuilder(graph, shapes, known, states, libraries, turned)

    asked = {} if wholes is None else wholes

    def lower(node: Node) -> None:
        if node in asked:
            require(asked[node], builder)
        if computes_sizes(node, builder):
            define_sizes(node, context, builder)
            return
        try:
            require(Whole(node, context.opset_of(node), node.inputs), builder)
            get_operator(node, context).lower(LoweredNode(node, context.opset_of(node), builder))
        except OrtError:
            raise
        except (ValueError, IndexError, TypeError) as error:  # sizes that contradict each other, found by numpy
            raise EPFail(f"{node.describe()} cannot be lowered at these sizes: {error}") from error

    chains = find_chains(graph) if libraries.fuses else {}
    waiting = {node for chain in chains.values() for node in chain}
    for node in graph:
        if node in chains:
            lower_chain(chains[node], context, builder, lower)
        elif node not in waiting:  # a product waits for the operands of what follows it
            lower(node)
    return builder.build()


def host_inputs(graph: Graph) -> tuple[int, ...]:
    """Return the numbers of the inputs whose contents decide the program."""
    wanted = inputs_of_sizes(graph, (value for node in graph for value in host_values(node)))
    return tuple(index for index, value in enumerate(graph.inputs) if value in wanted)


def host_values(node: Node) -> tuple[Value, ...]:
    """Return the inputs of a node that are read on the host, constants not counted."""
    operator = OPERATORS.get((node.domain, node.op_type))
    found = [node.input(index) for index in (operator.host_inputs if operator else ())]
    return tuple(value for value in found if value is not None and value.constant is None)
