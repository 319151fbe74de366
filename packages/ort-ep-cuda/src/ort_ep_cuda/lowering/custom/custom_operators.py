"""Which ways a node can be lowered: a built-in operator by the table, a user's by its CUDA kernel or its formula."""

from __future__ import annotations

import functools

from ort_core.plugin import NotImplemented
from ort_core.plugin.ir import Node, TensorType
from ort_core.plugin.kernels import CudaSource, DeviceKernel, EvaluationContext
from ort_ep_cuda.lowering.custom.cuda_sources import lower_source, refuse_source
from ort_ep_cuda.lowering.custom.formulas import FORMULA_TYPES, lower_formula, refuse_formula
from ort_ep_cuda.lowering.custom.function_calls import FUNCTION_TYPES, lower_function, refuse_function
from ort_ep_cuda.lowering.operators import OPERATORS, Operator


def operators_of(node: Node, context: EvaluationContext) -> tuple[Operator, ...]:
    """Return how a node may be lowered, the best first. What an author wrote for the device goes before the formula."""
    known = OPERATORS.get((node.domain, node.op_type))
    if known is not None:
        return (known,)
    opset = context.opset_of(node)
    meaning = context.meanings.find(node.domain, node.op_type, opset)
    kernels = context.device_kernels.get("cuda")
    kernel = None if kernels is None else kernels.find(node.domain, node.op_type, opset)
    found: list[Operator] = []
    if kernel is not None:
        found.append(_of_kernel(kernel, context))
    if meaning is not None:
        lower, refuse = functools.partial(lower_formula, meaning), functools.partial(refuse_formula, meaning)
        found.append(Operator(lower, refuse, dtypes=FORMULA_TYPES, oldest_opset=1))
    return tuple(found)


def _of_kernel(kernel: DeviceKernel, context: EvaluationContext) -> Operator:
    if isinstance(kernel, CudaSource):
        lower = functools.partial(lower_source, kernel, context)
        return Operator(lower, functools.partial(refuse_source, kernel, context), oldest_opset=1)
    lower = functools.partial(lower_function, kernel, context)
    return Operator(lower, refuse_function, dtypes=FUNCTION_TYPES, oldest_opset=1)


def refusal_of(node: Node, operator: Operator, opset: int) -> str | None:
    """Return why an operator is not lowered at a node, ``None`` where it is."""
    if not node.domain and opset < operator.oldest_opset:
        return f"opset {opset} is older than {operator.oldest_opset}, the first that is lowered"
    for value in (*node.present_inputs(), *node.present_outputs()):
        if not isinstance(value.type, TensorType):
            return f"{value.name!r} is {value.type or 'of unknown type'}, expected a tensor"
        if value.type.dtype not in operator.dtypes:
            return f"elements of type {value.type.dtype.text} ({value.name!r}) are not computed"
    return operator.refuse(node)


def get_operator(node: Node, context: EvaluationContext) -> Operator:
    """Return how a claimed node is lowered.

    Raises:
        NotImplemented: nothing lowers it.
    """
    found, opset = operators_of(node, context), context.opset_of(node)
    if len(found) == 1:
        return found[0]
    for operator in found:
        if refusal_of(node, operator, opset) is None:
            return operator
    raise NotImplemented(f"{node.describe()} has no lowering to CUDA")
