"""Sizes of what a user's kernel gives: memory is planned before it runs, so they must follow from its inputs' sizes.

Inference has asked the shape function, with symbols: ``(N, 4) -> (3 * N, 4)``. Here the symbols get their numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

from ort_core.plugin import EPFail
from ort_core.plugin.ir import Constant, Dim, KnownDim, Node, SymbolicDim, TensorType, Value
from ort_ep_cuda.lowering.node_facts import LoweredNode
from ort_ep_cuda.lowering.values.views import Shape


def refuse_sizes(node: Node) -> str | None:
    """Return which output of a node has sizes that its inputs' sizes do not tell, ``None`` where all are told."""
    dims = {dim for value in node.present_inputs() for dim in _dims(value) or () if isinstance(dim, SymbolicDim)}
    names = {dim.name for dim in dims}
    for value in node.present_outputs():
        shape = _dims(value)
        if shape is None:
            return f"the shape of {value.name!r} is known only after it ran: its operator needs a shape function"
        for dim in shape:
            is_told = isinstance(dim, int) or dim in dims or (dim is not None and dim.symbols() <= names)
            if not is_told:
                return f"the size {dim} of {value.name!r} does not follow from the sizes of the node's inputs"
    return None


def output_shape(facts: LoweredNode, value: Value) -> Shape:
    """Return the shape of a node's output.

    Raises:
        EPFail: two inputs contradict each other.
    """
    sizes = _sizes(facts)
    numbers = {dim.name: size for dim, size in sizes.items() if isinstance(dim, SymbolicDim) and dim.name is not None}
    return tuple(_size(dim, sizes, numbers) for dim in _dims(value) or ())


def runtime_attributes(node: Node) -> dict[str, object]:
    """Return the attributes as users' functions take them: tensors as arrays."""
    values = {name: attribute.value for name, attribute in node.attributes.items()}
    return {name: value.array() if isinstance(value, Constant) else value for name, value in values.items()}


def _sizes(facts: LoweredNode) -> dict[KnownDim, int]:
    """Return how large the sizes that the inputs' types name are in this signature."""
    sizes: dict[KnownDim, int] = {}
    for value in facts.node.present_inputs():
        for dim, size in zip(_dims(value) or (), facts.builder.tensor(value).shape, strict=False):
            if dim is not None and sizes.setdefault(dim, size) != size:
                raise EPFail(
                    f"{facts.node.describe()}: the size {dim} is {sizes[dim]} in one input and {size} in another"
                )
    return sizes


def _size(dim: Dim, sizes: Mapping[KnownDim, int], numbers: Mapping[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    assert dim is not None  # the capability has seen to it
    return sizes[dim] if dim in sizes else dim.evaluate(numbers)


def _dims(value: Value) -> tuple[Dim, ...] | None:
    return value.type.shape if isinstance(value.type, TensorType) else None
