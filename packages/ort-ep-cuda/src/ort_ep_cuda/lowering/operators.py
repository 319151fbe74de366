"""The table of operators: how each is lowered, why a node may be refused, which inputs the host must know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.loops import lift
from ort_ep_cuda.lowering import elementwise, indexing, movement, ordering, products, rows, windows
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.node_facts import LoweredNode
from ort_ep_cuda.lowering.preamble import STORAGE, compute_type
from ort_ep_cuda.lowering.tensors import LazyTensor

Lower = Callable[[LoweredNode], None]
Refuse = Callable[[Node], str | None]


@dataclass(frozen=True, slots=True)
class Operator:
    """How an operator is lowered. ``host_inputs`` are read on the host when a program is built."""

    lower: Lower
    refuse: Refuse = lambda node: None
    host_inputs: tuple[int, ...] = ()
    dtypes: frozenset[DataType] = frozenset(STORAGE)
    oldest_opset: int = 7


def _lower_filled(facts: LoweredNode) -> None:
    shape = tuple(int(size) for size in (facts.integers(0, "") or ()))
    dtype = element_type(facts.output)
    constant = facts.node.attribute("value")
    content = constant.array().reshape(()).astype(compute_type(dtype).numpy).item() if constant is not None else 0  # type: ignore[attr-defined]  # the attribute is a Constant
    facts.builder.define(facts.output, LazyTensor(lift(content, compute_type(dtype)), (), shape, dtype))


def _refuse_dropout(node: Node) -> str | None:
    return "Dropout in training is not generated" if len(node.inputs) > 2 or len(node.outputs) > 1 else None


_REAL = rows.refuse_real
_NORM = rows.refuse_norm
_PLAIN: Mapping[str, Operator] = {
    **{name: Operator(rows.lower_reduction, rows.refuse_reduction, (1,)) for name in rows.REDUCTIONS},
    **{name: Operator(rows.lower_global_pool, _REAL) for name in ("GlobalAveragePool", "GlobalMaxPool")},
    "Softmax": Operator(rows.lower_softmax, _REAL), "LogSoftmax": Operator(rows.lower_softmax, _REAL),
    "LayerNormalization": Operator(rows.lower_layer_norm, _NORM),
    "RMSNormalization": Operator(rows.lower_rms_norm, _NORM),
    "InstanceNormalization": Operator(rows.lower_instance_norm, _NORM),
    "GroupNormalization": Operator(rows.lower_group_norm, _NORM, oldest_opset=21),
    "BatchNormalization": Operator(elementwise.lower_batch_norm, elementwise.refuse_batch_norm),
    "QuantizeLinear": Operator(elementwise.lower_quantize, elementwise.refuse_quantization),
    "DequantizeLinear": Operator(elementwise.lower_dequantize, elementwise.refuse_quantization),
    **{name: Operator(movement.lower_reshape, host_inputs=(1,)) for name in ("Reshape", "Squeeze", "Unsqueeze")},
    "Flatten": Operator(movement.lower_reshape), "Identity": Operator(movement.lower_reshape),
    "Dropout": Operator(lambda facts: facts.builder.define(facts.output, facts.tensor(0)), _refuse_dropout),
    "Transpose": Operator(movement.lower_transpose), "Expand": Operator(movement.lower_expand, host_inputs=(1,)),
    "Slice": Operator(movement.lower_slice, host_inputs=(1, 2, 3, 4)),
    "Split": Operator(movement.lower_split, host_inputs=(1,)), "Concat": Operator(movement.lower_concat),
    "Tile": Operator(movement.lower_tile, host_inputs=(1,)),
    "Pad": Operator(movement.lower_pad, movement.refuse_pad, (1, 3)),
    "ConstantOfShape": Operator(_lower_filled, host_inputs=(0,)),
    "Gather": Operator(indexing.lower_gather),
    "GatherElements": Operator(indexing.lower_gather_elements, indexing.refuse_elements),
    "ScatterElements": Operator(indexing.lower_scatter_elements, indexing.refuse_elements),
    "GatherND": Operator(indexing.lower_gather_nd),
    "ScatterND": Operator(indexing.lower_scatter_nd, indexing.refuse_scatter_nd),
    "OneHot": Operator(indexing.lower_one_hot, indexing.refuse_one_hot, (1,)),
    "TopK": Operator(ordering.lower_top_k, ordering.refuse_selection, (1,)),
    "ArgMax": Operator(ordering.lower_arg, ordering.refuse_selection),
    "ArgMin": Operator(ordering.lower_arg, ordering.refuse_selection),
    "CumSum": Operator(ordering.lower_cumulative_sum, host_inputs=(1,)),
    "Trilu": Operator(ordering.lower_triangle, host_inputs=(1,)),
    "MaxPool": Operator(windows.lower_pool, windows.refuse_pool),
    "AveragePool": Operator(windows.lower_pool, windows.refuse_pool),
    "Resize": Operator(windows.lower_resize, windows.refuse_resize, (1, 2, 3), oldest_opset=11),
    "MatMul": Operator(products.lower_matmul, products.refuse_product),
    "Gemm": Operator(products.lower_gemm, products.refuse_product),
    "Conv": Operator(products.lower_convolution, products.refuse_convolution),
}  # fmt: skip

_ELEMENTWISE = Operator(elementwise.lower_elementwise, elementwise.refuse_elementwise)

OPERATORS: Mapping[tuple[str, str], Operator] = {
    **dict.fromkeys(elementwise.ELEMENTWISE, _ELEMENTWISE),
    **{("", name): operator for name, operator in _PLAIN.items()},
}
"""By domain and name; hand-written lowerings replace the elementwise form of the same operator."""
