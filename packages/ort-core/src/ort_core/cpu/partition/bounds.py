"""Whether every size of a lowered group can be read off its inputs, and fits the words of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.steps import NotLowered, Pointer, Step
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import Buffer
from ort_core.cpu.program.sizes import bindings, is_evaluable
from ort_core.plugin.ir import KnownDim, Node, SymbolicDim, TensorType, Value

LARGEST_SIZE = 1 << 58  # bytes or elements; beyond it products of sizes leave 64 bits


def unbound_nodes(lowering: Lowering, group: Sequence[Node], others: Sequence[Value] = ()) -> dict[Node, str]:
    """Return the nodes with sizes that cannot be read off the program's inputs, and why.

    All at once: a group may have hundreds, and is lowered again without them. A size that follows from what such a
    node gives will be there when the node is outside.

    Args:
        lowering: the group's, finished.
        group: its nodes.
        others: values that will be there, too: those whose sizes are needed become inputs.

    Raises:
        NotLowered: a step has a fixed size that no memory has.
    """
    of_steps = _sizes_of_steps(lowering)
    sizes = _sizes_of(lowering, of_steps)
    known = _bound_atoms(lowering)
    if all(is_evaluable(size, known) for size in sizes):
        return {}
    _take_sizes(lowering, others, {name for size in sizes for name in size.symbols()})
    known = _bound_atoms(lowering)
    told, members = set(known), set(group)
    found: dict[Node, str] = {}
    for size, node in _sizes_of(lowering, of_steps).items():
        if is_evaluable(size, known) or (found and size.symbols() <= told):
            continue
        blamed = node if node in members else group[-1]
        found.setdefault(blamed, f"the size {size} cannot be told from the sizes of inputs")
        told |= size.symbols().union(*[_names_of(value) for value in blamed.present_outputs()])
    return found


def _bound_atoms(lowering: Lowering) -> set[str]:
    return {binding.atom for binding in bindings([tensor_type(value) for value in lowering.inputs])}


def _names_of(value: Value) -> frozenset[str]:
    """Return the names of all sizes of a value, as far as they are known."""
    shape = value.type.shape if isinstance(value.type, TensorType) else None
    return frozenset().union(*[size.symbols() for size in shape or () if isinstance(size, SymbolicDim)])


def _sizes_of_steps(lowering: Lowering) -> dict[SymbolicDim, Node | None]:
    """Return every size among the arguments of steps that is not a number, once, with the first node it belongs to.

    Raises:
        NotLowered: at the first step with a fixed size that no memory has: tables hold 64-bit words.
    """
    seen: set[Buffer] = set()
    symbolic: dict[SymbolicDim, Node | None] = {}
    for step in lowering.steps:
        for buffer in (*step.reads, *step.writes):
            if buffer not in seen:
                seen.add(buffer)
                _check_magnitude(buffer.count * buffer.itemsize, step)
        for argument in step.arguments:
            size = argument.offset if isinstance(argument, Pointer) else argument
            if isinstance(size, int):
                if not -LARGEST_SIZE < size < LARGEST_SIZE:
                    _check_magnitude(size, step)
            elif isinstance(size, SymbolicDim) and size not in symbolic:
                symbolic[size] = step.node
        _check_magnitude(step.work, step)
    return symbolic


def _check_magnitude(size: KnownDim, step: Step) -> None:
    if isinstance(size, int) and not -LARGEST_SIZE < size < LARGEST_SIZE:
        raise NotLowered(f"a size of {size} elements or bytes is more than any memory has", step.node)


def _sizes_of(lowering: Lowering, of_steps: Mapping[SymbolicDim, Node | None]) -> dict[SymbolicDim, Node | None]:
    """Return every size of a program that is not a number, once, with the first node that it belongs to."""
    found = dict(of_steps)
    for value in (*lowering.inputs, *lowering.outputs):
        for size in tensor_type(value)[1]:
            if isinstance(size, SymbolicDim):
                found.setdefault(size, value.producer)
    for pair, nodes in lowering.equal.items():
        for size in pair:
            if isinstance(size, SymbolicDim):
                found.setdefault(size, nodes[0] if nodes else None)
    return found


def _take_sizes(lowering: Lowering, others: Sequence[Value], wanted: set[str]) -> None:
    """Make inputs of the values that have a wanted size among theirs."""
    inputs = set(lowering.inputs)
    found = {size.name for v in lowering.inputs for size in tensor_type(v)[1] if isinstance(size, SymbolicDim)}
    for value in others:
        if not isinstance(value.type, TensorType) or value.type.shape is None or None in value.type.shape:
            continue
        names = {size.name for size in value.type.shape if isinstance(size, SymbolicDim)} & wanted
        if value not in inputs and not names <= found and lowering.constant_of(value) is None:
            lowering.inputs.append(value)
            inputs.add(value)
            found |= names
