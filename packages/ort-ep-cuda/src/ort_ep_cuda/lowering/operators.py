"""The table of operators: how each is lowered, why a node may be refused, which inputs the host must know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.loops import REDUCTIONS
from ort_ep_cuda.lowering.attention import attention, grouped_attention
from ort_ep_cuda.lowering.elements import cumulative, elementwise, integers, rows, windows
from ort_ep_cuda.lowering.movement import (
    indexing,
    movement,
    ordering,
    random_numbers,
    rearrangement,
    resizing,
    sampling,
    scattering,
)
from ort_ep_cuda.lowering.node_facts import LoweredNode
from ort_ep_cuda.lowering.products import (
    block_quantized,
    convolutions,
    einsum,
    integer_convolutions,
    integer_products,
    products,
)
from ort_ep_cuda.lowering.recurrent import recurrent
from ort_ep_cuda.lowering.writing.preamble import COMPUTED, NARROW

Lower = Callable[[LoweredNode], None]
Refuse = Callable[[Node], str | None]


@dataclass(frozen=True, slots=True)
class Operator:
    """How an operator is lowered. ``host_inputs`` are read on the host when a program is built."""

    lower: Lower
    refuse: Refuse = lambda node: None
    host_inputs: tuple[int, ...] = ()
    dtypes: frozenset[DataType] = COMPUTED
    oldest_opset: int = 7  # of the standard; other domains count for themselves


_REAL = rows.refuse_real
_INTEGER = integer_products.refuse_integer_product
_RANDOM = random_numbers.refuse_random
_PLAIN: Mapping[str, Operator] = {
    **{name: Operator(rows.lower_reduction, rows.refuse_reduction, (1,)) for name in REDUCTIONS},
    **{name: Operator(rows.lower_global_pool, _REAL) for name in ("GlobalAveragePool", "GlobalMaxPool")},
    "Softmax": Operator(rows.lower_softmax, _REAL), "LogSoftmax": Operator(rows.lower_softmax, _REAL),
    "LayerNormalization": Operator(rows.lower_layer_norm, _REAL),
    "RMSNormalization": Operator(rows.lower_rms_norm, _REAL),
    "SimplifiedLayerNormalization": Operator(rows.lower_rms_norm, _REAL, oldest_opset=1),
    "InstanceNormalization": Operator(rows.lower_instance_norm, _REAL),
    "GroupNormalization": Operator(rows.lower_group_norm, _REAL, oldest_opset=21),
    "BatchNormalization": Operator(elementwise.lower_batch_norm, elementwise.refuse_batch_norm),
    "QuantizeLinear": Operator(elementwise.lower_quantize, elementwise.refuse_quantization),
    "DequantizeLinear": Operator(
        elementwise.lower_dequantize, elementwise.refuse_quantization, dtypes=COMPUTED | frozenset(NARROW)),
    **{name: Operator(movement.lower_reshape, host_inputs=(1,)) for name in ("Reshape", "Squeeze", "Unsqueeze")},
    "Flatten": Operator(movement.lower_reshape), "Identity": Operator(movement.lower_reshape),
    "Dropout": Operator(rearrangement.lower_dropout, rearrangement.refuse_dropout),
    "Transpose": Operator(movement.lower_transpose), "Expand": Operator(movement.lower_expand, host_inputs=(1,)),
    "Slice": Operator(movement.lower_slice, host_inputs=(1, 2, 3, 4)),
    "Split": Operator(movement.lower_split, host_inputs=(1,)), "Concat": Operator(movement.lower_concat),
    "Tile": Operator(movement.lower_tile, host_inputs=(1,)),
    "Pad": Operator(resizing.lower_pad, resizing.refuse_pad, (1, 3)),
    "Constant": Operator(rearrangement.lower_constant, rearrangement.refuse_constant),
    "ConstantOfShape": Operator(rearrangement.lower_filled, host_inputs=(0,)),
    "Gather": Operator(indexing.lower_gather),
    "GatherElements": Operator(indexing.lower_gather_elements),
    "ScatterElements": Operator(scattering.lower_scatter_elements, scattering.refuse_scatter),
    "GatherND": Operator(indexing.lower_gather_nd),
    "ScatterND": Operator(scattering.lower_scatter_nd, scattering.refuse_scatter),
    "OneHot": Operator(indexing.lower_one_hot, indexing.refuse_one_hot, (1,)),
    "TopK": Operator(ordering.lower_top_k, ordering.refuse_selection, (1,)),
    "ArgMax": Operator(ordering.lower_arg, ordering.refuse_selection),
    "ArgMin": Operator(ordering.lower_arg, ordering.refuse_selection),
    "Hardmax": Operator(ordering.lower_hardmax, ordering.refuse_selection),
    "CumSum": Operator(cumulative.lower_cumulative, host_inputs=(1,)),
    "CumProd": Operator(cumulative.lower_cumulative, host_inputs=(1,)),
    "Trilu": Operator(cumulative.lower_triangle, host_inputs=(1,)),
    "MaxPool": Operator(windows.lower_pool, windows.refuse_pool),
    "AveragePool": Operator(windows.lower_pool, windows.refuse_pool),
    "LpPool": Operator(windows.lower_pool, windows.refuse_pool),
    "Resize": Operator(resizing.lower_resize, resizing.refuse_resize, (1, 2, 3), oldest_opset=11),
    "DepthToSpace": Operator(rearrangement.lower_depth_to_space, rearrangement.refuse_blocks),
    "SpaceToDepth": Operator(rearrangement.lower_space_to_depth, rearrangement.refuse_blocks),
    "Range": Operator(rearrangement.lower_range, host_inputs=(0, 1, 2), dtypes=rearrangement.RANGE_TYPES),
    "EyeLike": Operator(rearrangement.lower_eye),
    "ReverseSequence": Operator(rearrangement.lower_reverse_sequence, rearrangement.refuse_reverse_sequence),
    **{f"Random{kind}": Operator(random_numbers.lower_random, _RANDOM)
       for kind in ("Normal", "Uniform", "NormalLike", "UniformLike")},
    "Bernoulli": Operator(random_numbers.lower_bernoulli, random_numbers.refuse_seed),
    "Multinomial": Operator(random_numbers.lower_multinomial, random_numbers.refuse_seed),
    "LpNormalization": Operator(rows.lower_lp_normalization, _REAL),
    "DynamicQuantizeLinear": Operator(rows.lower_dynamic_quantize),
    "MatMulInteger": Operator(integer_products.lower_matmul_integer, _INTEGER),
    "QLinearMatMul": Operator(integer_products.lower_qlinear_matmul, _INTEGER),
    "ConvInteger": Operator(integer_convolutions.lower_convolution_integer, _INTEGER),
    "QLinearConv": Operator(integer_convolutions.lower_convolution_integer, _INTEGER),
    **{name: Operator(recurrent.lower_recurrent, recurrent.refuse_recurrent) for name in ("RNN", "GRU", "LSTM")},
    "Div": Operator(integers.lower_division, integers.refuse_division),
    "Mod": Operator(integers.lower_division, integers.refuse_division),
    "BitShift": Operator(integers.lower_shift, integers.refuse_shift),
    "BitCast": Operator(integers.lower_bit_cast, integers.refuse_bit_cast),
    "GridSample": Operator(sampling.lower_grid_sample, sampling.refuse_grid_sample),
    "RoiAlign": Operator(sampling.lower_roi_align, sampling.refuse_roi_align),
    "Attention": Operator(attention.lower_attention, attention.refuse_attention, oldest_opset=23),
    "Einsum": Operator(einsum.lower_einsum, einsum.refuse_einsum),
    "ConvTranspose": Operator(convolutions.lower_transposed, convolutions.refuse_convolution),
    "MatMul": Operator(products.lower_matmul, products.refuse_product),
    "Gemm": Operator(products.lower_gemm, products.refuse_product),
    "Conv": Operator(convolutions.lower_convolution, convolutions.refuse_convolution),
}  # fmt: skip

_ELEMENTWISE = Operator(elementwise.lower_elementwise, elementwise.refuse_elementwise)

OPERATORS: Mapping[tuple[str, str], Operator] = {
    **dict.fromkeys(elementwise.ELEMENTWISE, _ELEMENTWISE),
    **{("", name): operator for name, operator in _PLAIN.items()},
    ("com.microsoft", "MatMulNBits"): Operator(
        block_quantized.lower_nbits_product, block_quantized.refuse_nbits_product, oldest_opset=1
    ),
    ("com.microsoft", "GatherBlockQuantized"): Operator(
        block_quantized.lower_block_gather, block_quantized.refuse_block_gather, oldest_opset=1
    ),
    ("com.microsoft", "GroupQueryAttention"): Operator(
        grouped_attention.lower_grouped_attention, grouped_attention.refuse_grouped_attention, (6,)
    ),
    **{
        ("com.microsoft", name): Operator(rows.lower_skip_norm, rows.refuse_skip_norm, oldest_opset=1)
        for name in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
    },
    ("com.microsoft", "MultiHeadAttention"): Operator(attention.lower_attention, attention.refuse_attention),
}
"""By domain and name; hand-written lowerings replace the elementwise form of the same operator."""
