"""Shape and Size: numbers that are known when a signature is; written only where something reads them as data."""

from __future__ import annotations

from ort_core.cpu.codegen.nests.size_vectors import size_vector_kernel
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.steps import KernelText, pointer
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import count_of
from ort_core.plugin.ir import KnownDim, Node


def shape(lowering: Lowering, node: Node) -> None:
    """Shape: the sizes of the axes from ``start`` to ``end``."""
    value = node.input(0)
    assert value is not None
    _, sizes = tensor_type(value)
    end = node.attribute("end")
    first = node.int_attribute("start", 0)
    _store(lowering, node, sizes[first : len(sizes) if end is None else node.int_attribute("end", 0)])


def size(lowering: Lowering, node: Node) -> None:
    """Size: the number of elements."""
    value = node.input(0)
    assert value is not None
    _store(lowering, node, (count_of(tensor_type(value)[1]),))


def _store(lowering: Lowering, node: Node, numbers: tuple[KnownDim, ...]) -> None:
    target = lowering.result_view(node.output)
    lowering.require_equal(count_of(target.shape), len(numbers))
    name, function = size_vector_kernel(len(numbers))
    lowering.emit(KernelText(name, function), [pointer(target), *numbers], (), (target.buffer,), 1, (node,))
    lowering.set(node.output, target)
