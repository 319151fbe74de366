"""Recurrent layers: the input's share of all steps is one product for each direction; then the steps follow.

Layers of few units are walked by one kernel. Others are a product and one or two kernels in each step, all launched
ahead; a captured graph starts them without the host.
"""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.plugin import InvalidArgument, Rejection
from ort_core.plugin.ir import Node
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.node_facts import LoweredNode
from ort_ep_cuda.lowering.products.products import PRODUCT_TYPES
from ort_ep_cuda.lowering.recurrent.recurrent_cells import Cell, find_cells
from ort_ep_cuda.lowering.recurrent.recurrent_kernel import UNITS, WEIGHTS_NBYTES, Walk, launch_walk
from ort_ep_cuda.lowering.recurrent.recurrent_layer import RecurrentLayer
from ort_ep_cuda.lowering.recurrent.recurrent_steps import Given, UnrolledDirection

_X, _BIAS, _LENGTHS, _STATE, _MEMORY, _PEEPHOLES = 0, 3, 4, 5, 6, 7


def refuse_recurrent(node: Node) -> str | None:
    """Return why a layer is not generated: its element types, a direction or a function that is not known."""
    value = node.input(_X)
    assert value is not None
    if element_type(value) not in PRODUCT_TYPES:
        return f"{node.op_type} of {element_type(value).text} is not generated"
    if node.string_attribute("direction", "forward") not in ("forward", "reverse", "bidirectional"):
        return f"{node.op_type} in the direction {node.string_attribute('direction', '')!r} is not generated"
    found = find_cells(node)
    return found.reason if isinstance(found, Rejection) else None


def lower_recurrent(facts: LoweredNode) -> None:
    """Store all states, the last one, and of an LSTM the last memory."""
    cells = find_cells(facts.node)
    if isinstance(cells, Rejection):
        raise InvalidArgument(f"{facts.node.describe()}: {cells.reason}")
    layer = RecurrentLayer.of(facts)
    nbytes = layer.weights.size * layer.dtype.numpy.itemsize // layer.directions
    if nbytes <= WEIGHTS_NBYTES and layer.units <= UNITS:
        _walk(layer, cells)
    else:
        _unroll(layer, cells)


def _walk(layer: RecurrentLayer, cells: Sequence[Cell]) -> None:
    """Let one kernel walk the layer, or one for each direction where their functions differ."""
    walk = Walk(
        layer.shares, layer.weights, layer.dense(_BIAS), layer.dense(_PEEPHOLES), layer.dense(_LENGTHS),
        layer.state(_STATE), layer.state(_MEMORY), layer.y, *layer.last,
    )  # fmt: skip
    if not walk.shares.shape[2] or not layer.units:
        return
    launches = [
        launch_walk(cell, walk, range(direction, direction + 1), is_reverse=layer.is_reverse)
        for direction, cell in enumerate(cells)
    ]
    if len(launches) == 2 and launches[0].kernel == launches[1].kernel:
        launches = [launch_walk(cells[0], walk, range(2), is_reverse=False)]
    for launch in launches:
        layer.facts.builder.add(launch)


def _unroll(layer: RecurrentLayer, cells: Sequence[Cell]) -> None:
    """Add the steps of each direction one by one."""
    biases, peepholes, lengths = (layer.dense(index) for index in (_BIAS, _PEEPHOLES, _LENGTHS))
    for direction, cell in enumerate(cells):
        memory = layer.state(_MEMORY) if cell.op_type == "LSTM" else None
        unrolled = UnrolledDirection(layer, direction, cell, Given(biases, peepholes, lengths))
        unrolled.lower(layer.state(_STATE), memory)
