"""com.microsoft tensor operators: products, convolutions, images, indexing, texts, generation; and blocked layouts."""

from __future__ import annotations

from ort_core.ir.dims import Dim, product
from ort_core.ir.graph import Graph
from ort_core.ir.types import DataType, Shape
from ort_core.ops.infer.convolution import conv_shape, pool_shape, window_shape
from ort_core.ops.infer.generators import infer_range
from ort_core.ops.infer.images import infer_grid_sample
from ort_core.ops.infer.indexing import infer_gather_nd
from ort_core.ops.infer.matrix import gemm_shape, matmul_shape
from ort_core.ops.infer_rule import infer_rule
from ort_core.ops.inference_context import InferenceContext
from ort_core.ops.shape_arithmetic import add_dims, divide_dim, scale_dim

MS = "com.microsoft"
BLOCKED = "com.microsoft.nchwc"


def _transposed(shape: Shape | None, swap: int, batch: int) -> Shape | None:
    """Return a shape as ``transA`` and ``transBatchA`` make it: the first axis goes behind the batch, then a swap."""
    if shape is None or len(shape) < 2:
        return shape
    if batch:
        shape = (*shape[1:-1], shape[0], shape[-1])
    return (*shape[:-2], shape[-1], shape[-2]) if swap else shape


@infer_rule("FusedMatMul", "FusedMatMulActivation", "TransposeMatMul", "SparseToDenseMatMul", domain=MS)
def infer_fused_matmul(ctx: InferenceContext) -> None:
    """As ``numpy.matmul`` of transposed inputs."""
    left = _transposed(ctx.shape(0), ctx.int_of("transA"), ctx.int_of("transBatchA"))
    right = _transposed(ctx.shape(1), ctx.int_of("transB"), ctx.int_of("transBatchB"))
    ctx.set_shape(0, matmul_shape(ctx, left, right))


@infer_rule("FusedGemm", domain=MS)
def infer_fused_gemm(ctx: InferenceContext) -> None:
    """As Gemm."""
    ctx.set_shape(0, gemm_shape(ctx, 0, 1))


@infer_rule("GemmFastGelu", domain=MS)
def infer_gemm_fast_gelu(ctx: InferenceContext) -> None:
    """As ``numpy.matmul``."""
    ctx.set_shape(0, matmul_shape(ctx, ctx.shape(0), ctx.shape(1)))


@infer_rule("FusedConv", domain=MS)
@infer_rule("Conv", domain=BLOCKED)
def infer_fused_conv(ctx: InferenceContext) -> None:
    """As Conv."""
    ctx.set_shape(0, conv_shape(ctx, 0, 1))


@infer_rule("NhwcConv", "NhwcFusedConv", domain=MS)
def infer_nhwc_conv(ctx: InferenceContext) -> None:
    """As Conv, with channels last; the layout of the weights is the provider's."""
    shape, weights, kernel = ctx.shape_min_rank(0, 3), ctx.shape(1), ctx.ints_of("kernel_shape")
    if shape is None:
        return
    space = shape[1:-1]
    after = (None,) * len(space) if kernel is None else window_shape(ctx, space, kernel)
    ctx.set_shape(0, (shape[0], *after, weights[0] if weights else None))


@infer_rule("ConvTransposeWithDynamicPads", domain=MS)
def infer_conv_transpose_with_dynamic_pads(ctx: InferenceContext) -> None:
    """As ConvTranspose, with the pads in an input."""
    x, w, pads = ctx.shape_min_rank(0, 2), ctx.shape(1), ctx.dims(2)
    if w is not None and len(w) < 3:
        ctx.refuse(f"Weight tensor must have at least 3 dimensions, found {len(w)}")
    if x is None:
        return
    count = len(x) - 2
    kernel: Shape | None = ctx.ints_of("kernel_shape") or (None if w is None else w[2:])
    strides, dilations = ctx.ints_of("strides") or (1,) * count, ctx.ints_of("dilations") or (1,) * count
    extra = ctx.ints_of("output_padding") or (0,) * count
    if not ctx.has_input(2):
        pads = (0,) * (2 * count)
    channels = None if w is None else scale_dim(w[1], ctx.int_of("group", 1))
    if kernel is None or pads is None or len(pads) != 2 * count or len(kernel) != count:
        ctx.set_shape(0, (x[0], channels, *((None,) * count)))
        return
    if not len(strides) == len(dilations) == len(extra) == count:
        ctx.refuse(f"strides, dilations and output_padding must have {count} entries")
    space: list[Dim] = []
    for i in range(count):
        steps = scale_dim(add_dims(x[i + 2], -1), strides[i])
        extent = add_dims(scale_dim(add_dims(kernel[i], -1), dilations[i]), 1)
        space.append(add_dims(steps, extent, extra[i], scale_dim(add_dims(pads[i], pads[i + count]), -1)))
    ctx.set_shape(0, (x[0], channels, *space))


@infer_rule("MaxpoolWithMask", domain=MS)
@infer_rule("AveragePool", "MaxPool", domain=BLOCKED)
def infer_pool(ctx: InferenceContext) -> None:
    """As MaxPool."""
    ctx.set_shape(0, pool_shape(ctx, 0))


@infer_rule("NhwcMaxPool", domain=MS)
def infer_nhwc_max_pool(ctx: InferenceContext) -> None:
    """As MaxPool, with channels last."""
    ctx.set_shape(0, pool_shape(ctx, 0, channels_last=True))


@infer_rule("GlobalAveragePool", "GlobalMaxPool", domain=BLOCKED)
def infer_global_pool(ctx: InferenceContext) -> None:
    """Every spatial size becomes 1."""
    shape = ctx.shape_min_rank(0, 2)
    if shape is not None:
        ctx.set_shape(0, (*shape[:2], *((1,) * (len(shape) - 2))))


@infer_rule("ReorderInput", domain=BLOCKED)
def infer_reorder_input(ctx: InferenceContext) -> None:
    """Channels first, their number padded to the provider's block size, which only it knows."""
    shape = ctx.shape_min_rank(0, 2)
    if shape is not None:
        space = shape[1:-1] if ctx.int_of("channels_last") else shape[2:]
        ctx.set_shape(0, (shape[0], None, *space))


@infer_rule("ReorderOutput", domain=BLOCKED)
def infer_reorder_output(ctx: InferenceContext) -> None:
    """The true number of channels again, first or last."""
    shape, channels = ctx.shape_min_rank(0, 2), ctx.int_of("channels")
    if shape is not None:
        last = ctx.int_of("channels_last")
        ctx.set_shape(0, (shape[0], *shape[2:], channels) if last else (shape[0], channels, *shape[2:]))


@infer_rule("Upsample", domain=BLOCKED)
def infer_blocked_upsample(ctx: InferenceContext) -> None:
    """Every size times its integer scale."""
    shape, scales = ctx.shape(0), ctx.ints_of("scales")
    if shape is None:
        return
    if scales is None or len(scales) != len(shape):
        ctx.refuse(f"scales must have {len(shape)} entries")
    ctx.set_shape(0, tuple(scale_dim(d, s) for d, s in zip(shape, scales, strict=True)))


@infer_rule("CDist", domain=MS)
def infer_cdist(ctx: InferenceContext) -> None:
    """A distance for every pair of rows."""
    left, right = ctx.shape_of_rank(0, 2), ctx.shape_of_rank(1, 2)
    ctx.set_shape(0, (None if left is None else left[0], None if right is None else right[0]))


@infer_rule("CropAndResize", domain=MS)
def infer_crop_and_resize(ctx: InferenceContext) -> None:
    """[regions, channels, height, width]."""
    x, rois, size = ctx.shape_of_rank(0, 4), ctx.shape_of_rank(1, 2), ctx.dims(3)
    if size is not None and len(size) != 2:
        ctx.refuse(f"crop_size has {len(size)} entries; expected 2")
    ctx.set_shape(0, (rois[0] if rois else None, x[1] if x else None, *(size or (None, None))))


@infer_rule("DynamicTimeWarping", domain=MS)
def infer_dynamic_time_warping(ctx: InferenceContext) -> None:
    """The points of a path."""
    ctx.set_output(0, DataType.INT32, (2, None))


@infer_rule("ExpandDims", domain=MS)
def infer_expand_dims(ctx: InferenceContext) -> None:
    """A size of 1 is inserted."""
    shape, axes = ctx.shape(0), ctx.elements(1)
    if axes is not None and len(axes) != 1:
        ctx.refuse(f"Input axis must be a single int32 scalar initializer, found {len(axes)} elements")
    axis = None if axes is None else axes[0]
    if shape is not None and isinstance(axis, int):
        place = ctx.axis(axis, len(shape) + 1)
        ctx.set_shape(0, (*shape[:place], 1, *shape[place:]))


@infer_rule("GridSample", domain=MS)
def infer_contrib_grid_sample(ctx: InferenceContext) -> None:
    """As in ai.onnx."""
    ctx.set_output(0, ctx.dtype(0), None)
    infer_grid_sample(ctx)


@infer_rule("GatherND", domain=MS)
def infer_contrib_gather_nd(ctx: InferenceContext) -> None:
    """As in ai.onnx."""
    infer_gather_nd(ctx)


@infer_rule("Range", domain=MS)
def infer_contrib_range(ctx: InferenceContext) -> None:
    """As in ai.onnx; without a delta steps are 1."""
    if ctx.has_input(2):
        infer_range(ctx)
        return
    start, limit = ctx.scalar(0), ctx.scalar(1)
    size = max(0, limit - start) if isinstance(start, int) and isinstance(limit, int) else None
    ctx.set_output(0, ctx.dtype(0), (size,))


@infer_rule("Pad", domain=MS)
def infer_pad(ctx: InferenceContext) -> None:
    """Every axis grows by its pads."""
    shape, pads = ctx.shape(0), ctx.dims(1)
    if shape is None:
        return
    if pads is None:
        ctx.set_shape(0, (None,) * len(shape))
        return
    rank = len(shape)
    if len(pads) != 2 * rank:
        ctx.refuse(f"pads has {len(pads)} entries for {rank} axes")
    ctx.set_shape(0, tuple(add_dims(d, pads[i], pads[i + rank]) for i, d in enumerate(shape)))


@infer_rule("Rfft", domain=MS)
def infer_rfft(ctx: InferenceContext) -> None:
    """The last axis becomes its non-redundant half, and real and imaginary parts get an axis."""
    shape = ctx.shape_min_rank(0, 1)
    if shape is not None:
        ctx.set_shape(0, (*shape[:-1], add_dims(divide_dim(shape[-1], 2), 1), 2))


@infer_rule("Irfft", domain=MS)
def infer_irfft(ctx: InferenceContext) -> None:
    """The inverse of Rfft for an even length."""
    shape = ctx.shape_min_rank(0, 2)
    if shape is not None:
        ctx.set_shape(0, (*shape[:-2], scale_dim(add_dims(shape[-2], -1), 2)))


@infer_rule("TorchEmbedding", domain=MS)
def infer_torch_embedding(ctx: InferenceContext) -> None:
    """A row of the table per index."""
    table, indices = ctx.shape_of_rank(0, 2), ctx.shape(1)
    if indices is not None:
        ctx.set_shape(0, (*indices, None if table is None else table[1]))


@infer_rule("UnfoldTensor", domain=MS)
def infer_unfold_tensor(ctx: InferenceContext) -> None:
    """One axis becomes the number of windows; their elements get a new last axis."""
    shape = ctx.shape_min_rank(0, 1)
    if shape is None:
        return
    axis, size, step = ctx.axis(ctx.int_of("dim", -1), len(shape)), ctx.int_of("size"), ctx.int_of("step", 1)
    count = add_dims(divide_dim(add_dims(shape[axis], -size), step), 1)
    ctx.set_shape(0, (*shape[:axis], count, *shape[axis + 1 :], size))


@infer_rule("Unique", domain=MS)
def infer_unique(ctx: InferenceContext) -> None:
    """An unknown number of values with their counts, and an index per input element."""
    shape = ctx.shape(0)
    ctx.set_shape(0, (None,))
    ctx.set_output(1, DataType.INT64, None if shape is None else (product(shape),))
    ctx.set_output(2, DataType.INT64, (None,))


@infer_rule("WordConvEmbedding", domain=MS)
def infer_word_conv_embedding(ctx: InferenceContext) -> None:
    """The characters of each word become the filters' results."""
    words, filters = ctx.shape_min_rank(0, 1), ctx.shape_min_rank(1, 1)
    if words is not None:
        ctx.set_shape(0, (*words[:-1], None if filters is None else filters[0]))


@infer_rule("Tokenizer", domain=MS)
def infer_tokenizer(ctx: InferenceContext) -> None:
    """A new last axis for the tokens, as long as the longest text."""
    shape = ctx.shape_of_rank(0, 1, 2)
    if shape is not None:
        ctx.set_shape(0, (None,) * len(shape) if 0 in shape else (*shape, None))  # no texts: no axis for tokens


@infer_rule("NGramRepeatBlock", domain=MS)
def infer_ngram_repeat_block(ctx: InferenceContext) -> None:
    """The shape of the scores."""
    ctx.set_shape(0, ctx.shape(1))


@infer_rule("NGramHashMapping", domain=MS)
def infer_ngram_hash_mapping(ctx: InferenceContext) -> None:
    """Hashes of all n-grams per token, and the last tokens."""
    ids, most = ctx.shape_of_rank(0, 2), ctx.int_of("max_ngram_size")
    if ids is not None:
        ctx.set_shape(0, (*ids, (most - 1) * ctx.int_of("n_head_per_ngram")))
        ctx.set_shape(1, (ids[0], most - 1))


@infer_rule("VarlenNGramHashMapping", domain=MS)
def infer_varlen_ngram_hash_mapping(ctx: InferenceContext) -> None:
    """As NGramHashMapping for tokens of all requests in one row."""
    ids, ends, most = ctx.shape_of_rank(0, 1), ctx.shape_of_rank(3, 1), ctx.int_of("max_ngram_size")
    requests = None if ends is None else add_dims(ends[0], -1)
    if ids is not None:
        ctx.set_shape(0, (ids[0], (most - 1) * ctx.int_of("n_head_per_ngram")))
    ctx.set_shape(1, (requests, most - 1))
    ctx.set_output(2, DataType.INT32, (requests, most - 1))
    ctx.set_output(3, ctx.dtype(0), (requests, ctx.int_of("state_update_capacity"), most - 1))


@infer_rule("BifurcationDetector", domain=MS)
def infer_bifurcation_detector(ctx: InferenceContext) -> None:
    """Merged tokens, and where they match: of the shape that the earlier match came in."""
    ctx.set_output(0, DataType.INT64, (None,))
    ctx.set_output(1, DataType.INT64, ctx.shape(2))


@infer_rule("BeamSearch", "WhisperBeamSearch", domain=MS)
def infer_beam_search(ctx: InferenceContext) -> None:
    """[batch, returned sequences, maximal length], and their scores."""
    ids = ctx.shape(0)
    batch = ids[0] if ids else None
    most, returned = _size(ctx, 1), _size(ctx, 4)
    ctx.set_output(0, DataType.INT32, (batch, returned, most))
    ctx.set_output(1, ctx.dtype(5) or DataType.FLOAT, (batch, returned))
    ctx.set_output(2, ctx.dtype(5) or DataType.FLOAT, (None, batch, _size(ctx, 3), None))
    _infer_bodies(ctx)


@infer_rule("GreedySearch", "Sampling", domain=MS)
def infer_greedy_search(ctx: InferenceContext) -> None:
    """[batch, maximal length]; Sampling also gives the filtered logits."""
    ids = ctx.shape(0)
    batch = ids[0] if ids else None
    ctx.set_output(0, DataType.INT32, (batch, _size(ctx, 1)))
    ctx.set_output(1, ctx.dtype(3) or DataType.FLOAT, (batch, None))
    _infer_bodies(ctx)


def _size(ctx: InferenceContext, index: int) -> Dim:
    found = ctx.scalar(index)
    return None if isinstance(found, float) else found


def _infer_bodies(ctx: InferenceContext) -> None:
    for name in ("encoder", "decoder", "init_decoder"):
        graph = ctx.attribute(name)
        if isinstance(graph, Graph):
            ctx.infer_body(graph, [value.type for value in graph.inputs])
