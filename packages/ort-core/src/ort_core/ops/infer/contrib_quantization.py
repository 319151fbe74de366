"""com.microsoft quantized operators and matrix products with packed weights."""

from __future__ import annotations

from ort_core.ir.dims import Dim
from ort_core.ir.types import DataType, Shape
from ort_core.ops.infer.convolution import conv_shape, pool_shape
from ort_core.ops.infer.matrix import gemm_shape, matmul_shape
from ort_core.ops.infer.recurrent import recurrent_shapes
from ort_core.ops.infer_rule import infer_rule
from ort_core.ops.inference_context import InferenceContext
from ort_core.ops.shape_arithmetic import add_dims, broadcast, same_dim, scale_dim

MS = "com.microsoft"


@infer_rule("QuantizeLinear", domain=MS)
def infer_quantize_linear(ctx: InferenceContext) -> None:
    """The element type is the zero point's, else uint8."""
    ctx.set_output(0, ctx.dtype(2) or DataType.UINT8, ctx.shape(0))


@infer_rule("DequantizeLinear", domain=MS)
def infer_dequantize_linear(ctx: InferenceContext) -> None:
    """The element type is the scale's."""
    ctx.set_output(0, ctx.dtype(1), ctx.shape(0))


@infer_rule("DequantizeWithOrder", domain=MS)
def infer_dequantize_with_order(ctx: InferenceContext) -> None:
    """The element type is the attribute ``to``."""
    ctx.set_output(0, ctx.data_type_of("to"), ctx.shape(0))


@infer_rule("QuantizeBFP", domain=MS)
def infer_quantize_bfp(ctx: InferenceContext) -> None:
    """Raw bytes, and the shape and strides of what was quantized."""
    rank = None if ctx.shape(0) is None else len(ctx.shape(0) or ())
    ctx.set_output(0, DataType.UINT8, (None,))
    ctx.set_output(1, DataType.INT64, (rank,))
    ctx.set_output(2, DataType.INT64, (rank,))


@infer_rule("DequantizeBFP", domain=MS)
def infer_dequantize_bfp(ctx: InferenceContext) -> None:
    """The shape in the second input."""
    ctx.set_output(0, ctx.data_type_of("dtype", DataType.FLOAT), ctx.dims(1))


def _require_scalars(ctx: InferenceContext, *indices: int) -> None:
    """Refuse scales and zero points that have axes: they are of the whole tensor."""
    if any(ctx.shape(index) for index in indices):
        ctx.refuse("Scale and Zero-point must be a scalar")


@infer_rule("QLinearAdd", "QLinearMul", domain=MS)
def infer_qlinear_binary(ctx: InferenceContext) -> None:
    """Both data inputs broadcast."""
    ctx.set_shape(0, broadcast(ctx, (ctx.shape(0), ctx.shape(3))))
    _require_scalars(ctx, 1, 2, 4, 5, 6, 7)


@infer_rule("MulInteger", domain=MS)
def infer_mul_integer(ctx: InferenceContext) -> None:
    """Both data inputs broadcast."""
    ctx.set_output(0, DataType.INT32, broadcast(ctx, (ctx.shape(0), ctx.shape(2))))


@infer_rule("QLinearWhere", domain=MS)
def infer_qlinear_where(ctx: InferenceContext) -> None:
    """Condition and both choices broadcast."""
    ctx.set_shape(0, broadcast(ctx, (ctx.shape(0), ctx.shape(1), ctx.shape(4))))


@infer_rule("QLinearConcat", domain=MS)
def infer_qlinear_concat(ctx: InferenceContext) -> None:
    """After scale and zero point of the result: (data, scale, zero point) of every input."""
    count, rest = divmod(ctx.input_count - 2, 3)
    if rest or count < 1:
        ctx.refuse(f"{ctx.input_count - 2} inputs are not groups of data, scale and zero point")
    shapes = [ctx.shape(2 + 3 * i) for i in range(count)]
    if any(shape is None or len(shape) != len(shapes[0] or ()) for shape in shapes):
        return
    result = list(shapes[0] or ())
    axis = ctx.axis(ctx.int_of("axis"), len(result))
    for shape in shapes[1:]:
        for place, dim in enumerate(shape or ()):
            if place == axis:
                result[place] = add_dims(result[place], dim)
            else:
                result[place] = same_dim(ctx, result[place], dim, f"size {place}")
    ctx.set_output(0, ctx.dtype(1), result)


@infer_rule("QLinearConv", domain=MS)
def infer_qlinear_conv(ctx: InferenceContext) -> None:
    """As in ai.onnx, with channels first or last."""
    shape = conv_shape(ctx, 0, 3, channels_last=ctx.int_of("channels_last") != 0)
    ctx.set_output(0, ctx.dtype(7), shape)


@infer_rule("QLinearAveragePool", domain=MS)
def infer_qlinear_average_pool(ctx: InferenceContext) -> None:
    """As AveragePool, with channels first or last."""
    ctx.set_shape(0, pool_shape(ctx, 0, channels_last=ctx.int_of("channels_last") != 0))
    _require_scalars(ctx, 1, 2, 3, 4)


@infer_rule("QLinearGlobalAveragePool", domain=MS)
def infer_qlinear_global_average_pool(ctx: InferenceContext) -> None:
    """Every spatial size becomes 1."""
    shape = ctx.shape_min_rank(0, 2)
    if shape is not None:
        ones = (1,) * (len(shape) - 2)
        ctx.set_shape(0, (shape[0], *ones, shape[-1]) if ctx.int_of("channels_last") else (*shape[:2], *ones))


@infer_rule("QLinearReduceMean", "ReduceSumInteger", domain=MS)
def infer_reduce(ctx: InferenceContext) -> None:
    """Some axes become 1 or disappear."""
    shape, axes = ctx.shape(0), ctx.ints_of("axes")
    if ctx.node.op_type == "ReduceSumInteger":
        dtype = DataType.UINT32 if ctx.dtype(0) is DataType.UINT8 else DataType.INT32
        ctx.set_output(0, dtype, None)
    if shape is None:
        return
    gone = {ctx.axis(a, len(shape)) for a in axes} if axes else set(range(len(shape)))
    keep = ctx.int_of("keepdims", 1) != 0
    ctx.set_shape(0, tuple(1 if i in gone else d for i, d in enumerate(shape) if keep or i not in gone))


@infer_rule("QGemm", domain=MS)
def infer_qgemm(ctx: InferenceContext) -> None:
    """As Gemm; without a zero point of the result the result is float32."""
    ctx.set_output(0, ctx.dtype(8) or DataType.FLOAT, gemm_shape(ctx, 0, 3))


@infer_rule("MatMulIntegerToFloat", "DynamicQuantizeMatMul", domain=MS)
def infer_matmul_to_float(ctx: InferenceContext) -> None:
    """As ``numpy.matmul``, in the type of the scales."""
    ctx.set_output(0, ctx.dtype(2), matmul_shape(ctx, ctx.shape(0), ctx.shape(1)))


@infer_rule("MatMulInteger16", domain=MS)
def infer_matmul_integer16(ctx: InferenceContext) -> None:
    """As ``numpy.matmul``, in int32 (uint32 for two unsigned inputs)."""
    unsigned = ctx.dtype(0) is DataType.UINT16 and ctx.dtype(1) is DataType.UINT16
    shape = matmul_shape(ctx, ctx.shape(0), ctx.shape(1))
    ctx.set_output(0, DataType.UINT32 if unsigned else DataType.INT32, shape)


@infer_rule("QOrderedMatMul", domain=MS)
def infer_ordered_matmul(ctx: InferenceContext) -> None:
    """As ``numpy.matmul``."""
    ctx.set_shape(0, matmul_shape(ctx, ctx.shape(0), ctx.shape(2)))


def _rows_times(ctx: InferenceContext, columns: Dim) -> Shape | None:
    """Return the shape of the first input with its last axis replaced; refuses a last axis other than ``K``."""
    shape, inner = ctx.shape_min_rank(0, 1), ctx.int_of("K")
    if shape is None:
        return None
    if inner and isinstance(shape[-1], int) and shape[-1] != inner:
        ctx.refuse(f"the last axis has size {shape[-1]}, attribute K is {inner}")
    return (*shape[:-1], columns)


@infer_rule("MatMulNBits", domain=MS)
def infer_matmul_nbits(ctx: InferenceContext) -> None:
    """[..., N]."""
    ctx.set_shape(0, _rows_times(ctx, ctx.int_of("N")))


@infer_rule("MatMulBnb4", domain=MS)
def infer_matmul_bnb4(ctx: InferenceContext) -> None:
    """[..., N]; with ``transB`` 0 the matrix is [N, K] and the result [..., K]."""
    if ctx.int_of("transB", 1):
        ctx.set_shape(0, _rows_times(ctx, ctx.int_of("N")))
    else:
        shape = ctx.shape_min_rank(0, 1)
        ctx.set_shape(0, None if shape is None else (*shape[:-1], ctx.int_of("K")))


@infer_rule("MatMulNBitsMlp", domain=MS)
def infer_matmul_nbits_mlp(ctx: InferenceContext) -> None:
    """[..., N], and the sum of input and skip."""
    ctx.set_shape(0, _rows_times(ctx, ctx.int_of("N")))
    ctx.set_shape(1, ctx.shape(0))


@infer_rule("MatMulNBitsQkv", domain=MS)
def infer_matmul_nbits_qkv(ctx: InferenceContext) -> None:
    """Queries [..., Nq], keys and values [..., Nkv], and the sum of input and skip."""
    for index, name in enumerate(("Nq", "Nkv", "Nkv")):
        ctx.set_shape(index, _rows_times(ctx, ctx.int_of(name)))
    ctx.set_shape(3, ctx.shape(0))


@infer_rule("MatMulBlockQuantizedFp4Weight", "MatMulBlockQuantizedFp8Weight", domain=MS)
def infer_matmul_block_quantized(ctx: InferenceContext) -> None:
    """[..., N] with N rows of packed weights."""
    weights = ctx.shape_of_rank(1, 2)
    ctx.set_shape(0, _rows_times(ctx, None if weights is None else weights[0]))


@infer_rule("MatMulFpQ4", domain=MS)
def infer_matmul_fpq4(ctx: InferenceContext) -> None:
    """As ``numpy.matmul`` with the shape of B in the third input."""
    weights = ctx.dims(2)
    if weights is not None and len(weights) == 2:
        ctx.set_shape(0, matmul_shape(ctx, ctx.shape(0), weights))


@infer_rule("GemmFloat8", domain=MS)
def infer_gemm_float8(ctx: InferenceContext) -> None:
    """As Gemm, in the type of an attribute."""
    ctx.set_output(0, ctx.data_type_of("dtype", DataType.FLOAT), gemm_shape(ctx, 0, 1))


@infer_rule("GatherBlockQuantized", domain=MS)
def infer_gather_block_quantized(ctx: InferenceContext) -> None:
    """As Gather, of the unpacked data; bytes hold several numbers along the last axis."""
    data, indices = ctx.shape_min_rank(0, 1), ctx.shape(1)
    if data is None or indices is None:
        return
    unpacked = list(data)
    if ctx.dtype(0) is DataType.UINT8:
        unpacked[-1] = scale_dim(unpacked[-1], max(8 // max(ctx.int_of("bits", 4), 1), 1))
    axis = ctx.axis(ctx.int_of("gather_axis"), len(data))
    ctx.set_output(0, ctx.dtype(2), (*unpacked[:axis], *indices, *unpacked[axis + 1 :]))


@infer_rule("DynamicQuantizeLSTM", "AttnLSTM", domain=MS)
def infer_lstm(ctx: InferenceContext) -> None:
    """As LSTM."""
    every, last = recurrent_shapes(ctx, batch_first=False)
    if ctx.node.op_type == "DynamicQuantizeLSTM" and not ctx.int_of("hidden_size"):
        recurrence = ctx.shape_of_rank(2, 3)  # stored transposed: [directions, hidden, 4 * hidden]
        hidden = None if recurrence is None else recurrence[1]
        every, last = (*every[:3], hidden), (*last[:2], hidden)
    ctx.set_shape(0, every)
    ctx.set_shape(1, last)
    ctx.set_shape(2, last)
