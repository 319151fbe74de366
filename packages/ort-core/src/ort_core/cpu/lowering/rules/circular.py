"""Sin, Cos and Tan: of float64 with a look for arguments that the reference kernels reduce, in a run that needs it."""

from __future__ import annotations

from ort_core.cpu.codegen.nests.bound_check import bound_check_kernel
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import FusionState, PendingElementwise
from ort_core.cpu.lowering.rules.elementwise import elementwise
from ort_core.cpu.lowering.steps import KernelText, Pointer, pointer
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import count_of
from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.loops import CIRCULAR, MOST_CIRCULAR


def circular(lowering: Lowering, node: Node) -> None:
    """Describe the node's result as an expression; a run whose arguments it does not hold for goes to the kernels."""
    dtype, shape = tensor_type(node.output)
    if dtype is not DataType.DOUBLE:
        elementwise(lowering, node)
        return
    view, state = lowering.contiguous(node.input(0)), FusionState()
    name, function = bound_check_kernel(MOST_CIRCULAR)
    count = count_of(view.shape)
    lowering.emit(
        KernelText(name, function), (pointer(view), Pointer(lowering.error_buffer()), count), (view.buffer,), (), count,
        ("BoundCheck",),
    )  # fmt: skip
    found = CIRCULAR[node.op_type](state.add(view))
    lowering.set(node.output, PendingElementwise(found, tuple(state.inputs), shape, (node,)))
