"""What follows a product is computed by the library behind it: a bias, an addend, an activation.

    y = Relu(Add(MatMul(a, b), bias))    ->    product y = a @ b + bias then relu

A chain is lowered where its last node stands, when all operands are there. The library is asked for the whole chain,
then for less and less of it; what it does not fuse is lowered as usual, and joins the next elementwise kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ort_core.plugin.ir import Graph, Node, Value
from ort_core.plugin.kernels import EvaluationContext
from ort_ep_cuda.lowering.builder import ProgramBuilder
from ort_ep_cuda.lowering.libraries.anchors import Anchor, lower_anchor
from ort_ep_cuda.lowering.libraries.library_steps import NO_EPILOGUE, Activation, Convolution, Epilogue
from ort_ep_cuda.lowering.node_facts import LoweredNode
from ort_ep_cuda.lowering.products.convolutions import convolution_anchor, transposed_anchor
from ort_ep_cuda.lowering.products.products import gemm_anchor, matmul_anchor
from ort_ep_cuda.lowering.values.tensors import LazyTensor
from ort_ep_cuda.lowering.values.views import Shape, TensorView

Chain = tuple[Node, ...]
"""A product or convolution, and the nodes behind it, each the only reader of the one before."""

LONGEST = 4  # two sums and an activation behind a product
_ANCHORS: Mapping[str, Callable[[LoweredNode], Anchor]] = {
    "MatMul": matmul_anchor, "Gemm": gemm_anchor, "Conv": convolution_anchor, "ConvTranspose": transposed_anchor,
}  # fmt: skip
_ACTIVATIONS = {
    ("", "Relu"): Activation("relu"), ("", "Sigmoid"): Activation("sigmoid"), ("", "Tanh"): Activation("tanh"),
    ("com.microsoft", "Gelu"): Activation("gelu"), ("com.microsoft", "FastGelu"): Activation("gelu_tanh"),
}  # fmt: skip


def find_chains(graph: Graph) -> Mapping[Node, Chain]:
    """Return the chains of a graph by their last nodes; no node is part of two."""
    found: dict[Node, Chain] = {}
    taken: set[Node] = set()
    for node in graph:
        if node.domain or node.op_type not in _ANCHORS:
            continue
        chain = [node]
        while len(chain) < LONGEST:
            reader = _only_reader(chain[-1].output)
            if reader is None or reader in taken or not _may_follow(reader):
                break
            chain.append(reader)
        taken.update(chain)
        found[chain[-1]] = tuple(chain)
    return found


def _only_reader(value: Value) -> Node | None:
    if value.is_graph_output or value.use_count != 1:
        return None
    return value.consumers()[0]


def _may_follow(node: Node) -> bool:
    return (not node.domain and node.op_type in ("Add", "Clip", "Gelu")) or (node.domain, node.op_type) in _ACTIVATIONS


def lower_chain(
    chain: Chain, context: EvaluationContext, builder: ProgramBuilder, lower: Callable[[Node], None]
) -> None:
    """Give the library as much of a chain as it fuses; the rest is lowered by itself.

    Args:
        chain: the nodes.
        context: gives the version of the anchor's domain.
        builder: the program.
        lower: lowers one node as usual.
    """
    node = chain[0]
    facts = LoweredNode(node, context.opset_of(node), builder)
    anchor = _ANCHORS[node.op_type](facts)
    fused = _fused(facts, anchor, chain)
    if fused == 0:
        lower_anchor(facts, anchor)
    for member in chain[max(fused, 1) :]:
        lower(member)


def _fused(facts: LoweredNode, anchor: Anchor, chain: Chain) -> int:
    """Add the longest beginning of a chain that the library fuses; return how many nodes it is, 0 for none."""
    if anchor.step is None:
        return 0
    builder = facts.builder
    epilogues = _epilogues(builder, anchor, chain)
    for count in range(len(epilogues), 0, -1):
        epilogue = epilogues[count - 1]
        step = replace(anchor.step, epilogue=epilogue)
        if epilogue == NO_EPILOGUE or builder.libraries.refuse(step) is not None:
            continue
        lower_anchor(replace(facts, node=chain[count - 1]), replace(anchor, step=step, addend=None))
        return count
    return 0


def _epilogues(builder: ProgramBuilder, anchor: Anchor, chain: Chain) -> Sequence[Epilogue]:
    """Return the epilogue after each node of a chain, as far as there is one."""
    epilogue: Epilogue | None = NO_EPILOGUE
    if anchor.addend is not None:
        epilogue = _with_sum(builder, anchor, NO_EPILOGUE, anchor.addend.tensor, anchor.addend.beta)
    found: list[Epilogue] = []
    for before, node in zip((None, *chain), (*chain, None), strict=True):
        if before is not None:
            if epilogue is None:
                break
            found.append(epilogue)
            if node is not None:
                epilogue = _extended(builder, anchor, epilogue, before.output, node)
    return found


def _extended(builder: ProgramBuilder, anchor: Anchor, epilogue: Epilogue, value: Value, node: Node) -> Epilogue | None:
    """Return the epilogue with one node more; ``None`` where its form does not allow it."""
    if epilogue.activation is not None:
        return None
    if node.op_type == "Add":
        other = next(operand for operand in node.present_inputs() if operand is not value)
        return _with_sum(builder, anchor, epilogue, builder.tensor(other), value=other)
    activation = _activation(node)
    return None if activation is None else replace(epilogue, activation=activation)


def _activation(node: Node) -> Activation | None:
    if (node.domain, node.op_type) in _ACTIVATIONS:
        return _ACTIVATIONS[node.domain, node.op_type] if len(node.inputs) == 1 else None
    if node.op_type == "Gelu":
        return Activation("gelu_tanh" if node.string_attribute("approximate", "none") == "tanh" else "gelu")
    bounds = []
    for index, attribute, default in ((1, "min", float("-inf")), (2, "max", float("inf"))):
        value = node.input(index)
        if value is not None and (value.constant is None or value.constant.size != 1):
            return None
        given = default if value is None or value.constant is None else value.constant.array().reshape(()).item()
        bounds.append(node.float_attribute(attribute, float(given)))
    return Activation("clip", *bounds)


def _with_sum(
    builder: ProgramBuilder,
    anchor: Anchor,
    epilogue: Epilogue,
    tensor: LazyTensor,
    beta: float = 1.0,
    value: Value | None = None,
) -> Epilogue | None:
    """Return the epilogue with a summand: a number per channel is its bias, a tensor like the result its addend."""
    assert anchor.step is not None
    if tensor.dtype is not anchor.step.out.dtype or not tensor.operands:
        return None
    is_convolution = isinstance(anchor.step, Convolution)
    axis = 1 if is_convolution else len(anchor.shape) - 1
    channels = anchor.step.out.shape[1 if is_convolution else 2]
    if _is_vector(tensor.shape, anchor.shape, axis) and epilogue.bias is None and beta == 1.0 and channels > 1:
        vector = _as_vector(builder, tensor, value, channels)
        return None if vector is None else replace(epilogue, bias=vector)
    if tensor.shape != anchor.shape or epilogue.addend is not None:
        return None
    view = builder.view(value) if value is not None else tensor.view
    view = None if view is None else view.laid_out(anchor.order)
    return None if view is None else replace(epilogue, addend=anchor.place(view), beta=beta)


def _is_vector(shape: Shape, result: Shape, axis: int) -> bool:
    """Return whether a tensor has one number for each place of an axis of the result, repeated along the others."""
    lifted = (1,) * (len(result) - len(shape)) + shape
    return len(lifted) == len(result) and all(size == (result[a] if a == axis else 1) for a, size in enumerate(lifted))


def _as_vector(builder: ProgramBuilder, tensor: LazyTensor, value: Value | None, size: int) -> TensorView | None:
    view = builder.view(value) if value is not None else tensor.view
    dense = view.reshaped((size,)) if view is not None else None
    return dense if dense is not None and dense.strides == (1,) else None
