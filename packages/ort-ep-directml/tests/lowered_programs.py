"""Graphs in ONNX text whose lowered form is kept in ``goldens/``, by family and name: one at least for every rule."""

# ruff: noqa: SIM905 - names of operators read better as text

from __future__ import annotations

FLOATS = (
    "Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor Log Neg Reciprocal Round Sign Sin Sinh Sqrt Tan "
    "Abs Relu Elu HardSigmoid HardSwish LeakyRelu Mish Selu Shrink Sigmoid Softplus Softsign Swish Tanh "
    "ThresholdedRelu Celu Gelu"
).split()
PAIRS = "Add Sub Mul Div Pow Max Min Sum Mean".split()
COMPARISONS = "Equal Greater Less GreaterOrEqual LessOrEqual".split()
BITS = "BitwiseAnd BitwiseOr BitwiseXor".split()
LOGIC = "And Or Xor".split()
REDUCTIONS = (
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"
).split()
STATISTICS = "float[3] s, float[3] b"


def _of_one(body: str, left: str = "float[2,3]", right: str = "float[2,3]") -> str:
    return f"g ({left} x) => ({right} y) {{ {body} }}"


ELEMENTWISE = {
    **{name: _of_one(f"y = {name}(x)") for name in FLOATS},
    **{name: f"g (float[2,3] a, float[3] b) => (float[2,3] y) {{ y = {name}(a, b) }}" for name in PAIRS},
    **{name: f"g (float[2,3] a, float[3] b) => (bool[2,3] y) {{ y = {name}(a, b) }}" for name in COMPARISONS},
    **{name: f"g (uint8[4] a, uint8[4] b) => (uint8[4] y) {{ y = {name}(a, b) }}" for name in BITS},
    **{name: f"g (bool[4] a, bool[4] b) => (bool[4] y) {{ y = {name}(a, b) }}" for name in LOGIC},
    "Abs of unsigned": "g (uint8[4] x) => (uint8[4] y) { a = Abs(x)  y = BitwiseNot(a) }",
    "BitShift": 'g (uint8[4] a, uint8[4] b) => (uint8[4] y) { y = BitShift<direction="RIGHT">(a, b) }',
    "BitwiseNot": "g (int32[4] x) => (int32[4] y) { y = BitwiseNot(x) }",
    "Cast": _of_one("y = Cast<to=7>(x)", right="int64[2,3]"),
    "Cast to bool": _of_one("y = Cast<to=9>(x)", right="bool[2,3]"),
    "CastLike of nothing": "g (float[4] x, int32[0] l) => (int32[4] y) { y = CastLike(x, l) }",
    "CastLike": "g (float[4] x, int32[1] l) => (int32[4] y) { y = CastLike(x, l) }",
    "Clip": "g (float[4] x) => (float[4] y) <float l = {0}, float h = {6}> { y = Clip(x, l, h) }",
    "Clip by inputs": "g (float[4] x, float l, float h) => (float[4] y) { y = Clip(x, l, h) }",
    "Clip of integers": "g (int64[4] x) => (int64[4] y) <int64 l = {-3}> { y = Clip(x, l) }",
    "Gelu by tanh": _of_one('y = Gelu<approximate="tanh">(x)'),
    "IsInf": _of_one("y = IsInf<detect_negative=0>(x)", right="bool[2,3]"),
    "IsNaN": _of_one("y = IsNaN(x)", right="bool[2,3]"),
    "Mod": "g (int32[4] a, int32[4] b) => (int32[4] y) { y = Mod(a, b) }",
    "Mod as in C": "g (float[4] a, float[4] b) => (float[4] y) { y = Mod<fmod=1>(a, b) }",
    "Not": "g (bool[4] x) => (bool[4] y) { y = Not(x) }",
    "PRelu": "g (float[2,3,4] x, float[3,1] s) => (float[2,3,4] y) { y = PRelu(x, s) }",
    "Relu of int64": "g (int64[4] x) => (int64[4] y) { y = Relu(x) }",
    "Where": "g (bool[2,1] c, float[3] a, float b) => (float[2,3] y) { y = Where(c, a, b) }",
}
PRODUCTS = {
    "Einsum": 'g (float[2,3,4] a, float[5,4] b) => (float[2,5,3] y) { y = Einsum<equation="bij,kj->bki">(a, b) }',
    "Einsum of one": 'g (float[2,3] a) => (float[3] y) { y = Einsum<equation="ij->j">(a) }',
    "Gemm": "g (float[3,2] a, float[4,3] b, float[4] c) => (float[2,4] y) "
    "{ y = Gemm<transA=1, transB=1, alpha=0.5, beta=2.0>(a, b, c) }",
    "MatMul": "g (float[2,3,4] a, float[4,5] b) => (float[2,3,5] y) { y = MatMul(a, b) }",
    "MatMul of five dimensions": "g (float[2,1,3,4,5] a, float[6,1,5,2] b) => (float[2,6,3,4,2] y) "
    "{ y = MatMul(a, b) }",
    "MatMul of vectors": "g (float[4] a, float[4] b) => (float y) { y = MatMul(a, b) }",
    "MatMul of a transposed factor": "g (float[2,3,4] a, float[2,5,4] b) => (float[2,3,5] y) "
    "{ t = Transpose<perm=[0,2,1]>(b)  y = MatMul(a, t) }",
}
WINDOWS = {
    "AveragePool": _of_one(
        "y = AveragePool<kernel_shape=[2,2], pads=[1,1,0,0], count_include_pad=1>(x)",
        "float[1,2,4,4]",
        "float[1,2,4,4]",
    ),
    "AveragePool with dilations": _of_one(
        "y = AveragePool<kernel_shape=[2,2], dilations=[2,2]>(x)", "float[1,2,4,4]", "float[1,2,2,2]"
    ),
    "Conv": "g (float[1,2,7,7] x) => (float[1,4,4,4] y) <float[4,1,2,2] w = {1,2,3,4,1,2,3,4,1,2,3,4,1,2,3,4}, "
    'float[4] b = {0,1,2,3}> { y = Conv<strides=[2,2], group=2, auto_pad="SAME_LOWER">(x, w, b) }',
    "Conv of one dimension": "g (float[1,2,7] x, float[3,2,3] w) => (float[1,3,5] y) { y = Conv(x, w) }",
    "ConvTranspose": "g (float[1,2,3,3] x, float[2,1,3,3] w) => (float[1,1,7,6] y) "
    "{ y = ConvTranspose<strides=[2,2], output_padding=[1,0], pads=[0,1,1,0]>(x, w) }",
    "GlobalAveragePool": _of_one("y = GlobalAveragePool(x)", "float[1,2,4,4]", "float[1,2,1,1]"),
    "GlobalLpPool": _of_one("y = GlobalLpPool(x)", "float[1,2,4,4]", "float[1,2,1,1]"),
    "GlobalMaxPool": _of_one("y = GlobalMaxPool(x)", "float[1,2,4]", "float[1,2,1]"),
    "LpPool": _of_one("y = LpPool<kernel_shape=[2,2], p=3>(x)", "float[1,2,4,4]", "float[1,2,3,3]"),
    "MaxPool": "g (float[1,2,5] x) => (float[1,2,3] y, int64[1,2,3] i) "
    "{ y, i = MaxPool<kernel_shape=[2], strides=[2], ceil_mode=1>(x) }",
}
REDUCED = {
    **{
        name: f"g (float[2,3,4] x) => (float[2,1,4] y) <int64[1] a = {{1}}> {{ y = {name}(x, a) }}"
        for name in REDUCTIONS
    },
    "ArgMax": _of_one("y = ArgMax<axis=1, keepdims=0, select_last_index=1>(x)", right="int64[2]"),
    "ArgMin": _of_one("y = ArgMin<axis=0>(x)", right="int64[1,3]"),
    "CumProd": "g (float[2,3] x) => (float[2,3] y) <int64 a = {1}> { y = CumProd<reverse=1>(x, a) }",
    "CumSum": "g (float[2,3] x) => (float[2,3] y) <int64 a = {-1}> { y = CumSum<exclusive=1>(x, a) }",
    "Hardmax": _of_one("y = Hardmax(x)"),
    "LogSoftmax": _of_one("y = LogSoftmax<axis=0>(x)"),
    "ReduceSum of everything": _of_one("y = ReduceSum<keepdims=0>(x)", right="float"),
    "Softmax": _of_one("y = Softmax(x)"),
}
NORMALIZED = {
    "BatchNormalization": f"g (float[2,3,4] x, {STATISTICS}, float[3] m, float[3] v) => (float[2,3,4] y) "
    "{ y = BatchNormalization(x, s, b, m, v) }",
    "GroupNormalization": "g (float[1,4,3] x, float[4] s, float[4] b) => (float[1,4,3] y) "
    "{ y = GroupNormalization<num_groups=2>(x, s, b) }",
    "InstanceNormalization": f"g (float[2,3,4] x, {STATISTICS}) => (float[2,3,4] y) "
    "{ y = InstanceNormalization(x, s, b) }",
    "LRN": _of_one("y = LRN<size=3>(x)", "float[1,4,2,2]", "float[1,4,2,2]"),
    "LayerNormalization": f"g (float[2,3] x, {STATISTICS}) => (float[2,3] y, float[2,1] m, float[2,1] d) "
    "{ y, m, d = LayerNormalization(x, s, b) }",
    "LayerNormalization of halves": "g (float16[2,3] x, float16[3] s) => (float16[2,3] y) "
    "{ y = LayerNormalization(x, s) }",
    "LpNormalization": _of_one("y = LpNormalization<p=1>(x)"),
    "MeanVarianceNormalization": _of_one("y = MeanVarianceNormalization(x)", "float[2,3,2,2]", "float[2,3,2,2]"),
    "RMSNormalization": "g (float[2,3] x, float[3] s) => (float[2,3] y) { y = RMSNormalization(x, s) }",
}
MOVED = {
    "BitCast": "g (float[4] x) => (int32[4] y) { a = Neg(x)  y = BitCast<to=6>(a) }",
    "Concat with nothing": "g (float[2,3] a, float[2,0] b, float[2,1] c) => (float[2,4] y) "
    "{ y = Concat<axis=1>(a, b, c) }",
    "Concat": "g (float[2,3] a, float[2,1] b) => (float[2,4] y) { y = Concat<axis=1>(a, b) }",
    "DepthToSpace": _of_one('y = DepthToSpace<blocksize=2, mode="CRD">(x)', "float[1,4,1,1]", "float[1,1,2,2]"),
    "Dropout": "g (float[4] x) => (float[4] y, bool[4] m) { a, m = Dropout(x)  y = Neg(a) }",
    "Expand": "g (float[3] x) => (float[2,3] y) <int64[2] s = {2,3}> { a = Expand(x, s)  y = Neg(a) }",
    "Flatten": "g (float[2,3,4] x) => (float[2,12] y) { a = Flatten(x)  y = Neg(a) }",
    "Identity": "g (float[4] x) => (float[4] y) { a = Identity(x)  y = Neg(a) }",
    "Pad": "g (float[2,3] x) => (float[3,3] y) <int64[4] p = {0,1,1,-1}, float v = {7}> { y = Pad(x, p, v) }",
    "Pad by a number like the input": "g (float16[4] x) => (float16[6] y) <int64[2] p = {1,1}, float v = {7}> "
    "{ l = CastLike(v, x)  y = Pad(x, p, l) }",
    "Pad by reflection": 'g (float[4] x) => (float[7] y) <int64[2] p = {2,1}> { y = Pad<mode="reflect">(x, p) }',
    "Reshape": "g (float[n,6] x) => (float[n,2,3] y) <int64[3] s = {0,2,3}> { a = Reshape(x, s)  y = Neg(a) }",
    "ReverseSequence": "g (float[4,2] x, int64[2] l) => (float[4,2] y) { y = ReverseSequence(x, l) }",
    "Slice": "g (float[n,5] x) => (float[m,2] y) <int64[2] b = {1,-1}, int64[2] e = {9223372036854775807,0}, "
    "int64[2] a = {0,1}, int64[2] t = {1,-2}> { y = Slice(x, b, e, a, t) }",
    "Slice to an end that follows from shapes": "g (float[n,2] x, float[1,512] p) => (float[n,n] y) "
    "<int64[1] b = {0}, int64[1] a = {1}> { e = Shape<start=0, end=1>(x)  s = Slice(p, b, e, a)  "
    "t = Transpose(x)  m = MatMul(x, t)  y = Add(m, s) }",
    "SpaceToDepth": _of_one("y = SpaceToDepth<blocksize=2>(x)", "float[1,1,2,2]", "float[1,4,1,1]"),
    "Split": "g (float[2,4] x) => (float[2,1] y, float[2,3] z) <int64[2] s = {1,3}> { y, z = Split<axis=1>(x, s) }",
    "Squeeze": "g (float[2,1,3] x) => (float[2,3] y) <int64[1] a = {1}> { s = Squeeze(x, a)  y = Neg(s) }",
    "Tile": "g (float[2,3] x) => (float[4,3] y) <int64[2] r = {2,1}> { y = Tile(x, r) }",
    "Transpose": "g (float[2,3] x) => (float[3,2] y) { y = Transpose(x)  z = Neg(x) }",
    "Trilu": "g (float[3,3] x) => (float[3,3] y) { y = Trilu<upper=0>(x) }",
    "Trilu from a diagonal that is given": "g (float[2,3,4] x, int64 k) => (float[2,3,4] y) { y = Trilu(x, k) }",
    "Unsqueeze": "g (float[2,3] x) => (float[2,1,3] y) <int64[1] a = {1}> { s = Unsqueeze(x, a)  y = Neg(s) }",
}
INDEXED = {
    "Gather": "g (float[4,3] x, int64[2,2] i) => (float[4,2,2] y) { y = Gather<axis=1>(x, i) }",
    "Gather of one": "g (float[4,3] x, int64 i) => (float[3] y) { y = Gather(x, i) }",
    "GatherElements": "g (float[4,3] x, int32[2,2] i) => (float[2,2] y) { y = GatherElements<axis=0>(x, i) }",
    "GatherND": "g (float[2,3,4] x, int64[2,1] i) => (float[2,4] y) { y = GatherND<batch_dims=1>(x, i) }",
    "OneHot": "g (int64[3] i, float[2] v) => (float[3,5] y) <int64 d = {5}> { y = OneHot(i, d, v) }",
    "ScatterElements": "g (float[4,3] x, int64[2,3] i, float[2,3] u) => (float[4,3] y) "
    "{ y = ScatterElements(x, i, u) }",
    "ScatterND": "g (float[4,3] x, int64[2,1] i, float[2,3] u) => (float[4,3] y) { y = ScatterND(x, i, u) }",
    "TopK": "g (float[2,5] x) => (float[2,3] y, int64[2,3] i) <int64[1] k = {3}> { y, i = TopK<largest=0>(x, k) }",
}
GENERATED = {
    "Constant": "g (float[2,3] x) => (float[2,1] y) { a = Constant<value_ints=[1]>()  y = ReduceMax(x, a) }",
    "ConstantOfShape": "g (float[n,3] x) => (float[n,3] y) "
    "{ s = Shape(x)  c = ConstantOfShape<value = float[1] {2}>(s)  y = Add(x, c) }",
    "EyeLike": "g (float[3,3] x) => (float[3,3] y) { e = EyeLike(x)  y = Add(x, e) }",
    "Range": "g (float[n,3] x) => (float[n,3] y) <int64 o = {0}, int64 t = {1}, int64[1] a = {1}> "
    "{ s = Shape<start=0, end=1>(x)  l = Squeeze(s)  r = Range(o, l, t)  f = Cast<to=1>(r)  u = Unsqueeze(f, a)  "
    "y = Add(x, u) }",
    "Range that is long": "g (int64[n] x) => (int64[m] y) <int64 o = {2}, int64 t = {1}, int64 k = {30000}> "
    "{ s = Shape(x)  l = Squeeze(s)  e = Mul(l, k)  r = Range(o, e, t)  a = ReduceMax<keepdims=1>(x)  y = Add(r, a) }",
    "Range that starts where a shape ends": "g (float[n,3] x, float[p] q) => (float[n,3] y) "
    "<int64 t = {1}, int64[1] a = {1}> { s = Shape<start=0, end=1>(x)  l = Squeeze(s)  b = Size(q)  e = Add(b, l)  "
    "r = Range(b, e, t)  f = Cast<to=1>(r)  u = Unsqueeze(f, a)  y = Add(x, u) }",
    "Shape and Size": "g (int64[n,3] x) => (int64[n,3] y) "
    "{ s = Shape<start=0, end=1>(x)  c = Size(x)  a = Add(x, s)  y = Add(a, c) }",
}
QUANTIZED = {
    "ConvInteger": "g (uint8[1,1,3,3] x, uint8[1,1,2,2] w, uint8 z) => (int32[1,1,2,2] y) { y = ConvInteger(x, w, z) }",
    "DequantizeLinear": "g (uint8[2,3] x, float[3] s, uint8[3] z) => (float[2,3] y) { y = DequantizeLinear(x, s, z) }",
    "DynamicQuantizeLinear": "g (float[2,3] x) => (uint8[2,3] y, float s, uint8 z) "
    "{ y, s, z = DynamicQuantizeLinear(x) }",
    "MatMulInteger": "g (uint8[2,3] a, int8[3,4] b, uint8 z) => (int32[2,4] y) { y = MatMulInteger(a, b, z) }",
    "QLinearConv": "g (uint8[1,1,3,3] x, float s, uint8 z, int8[2,1,1,1] w, float[2] t, int8[2] u, float r, uint8 v) "
    "=> (uint8[1,2,3,3] y) { y = QLinearConv(x, s, z, w, t, u, r, v) }",
    "QLinearMatMul": "g (uint8[2,3] a, float s, uint8 z, uint8[3,4] b, float t, uint8 u, float r, uint8 v) "
    "=> (uint8[2,4] y) { y = QLinearMatMul(a, s, z, b, t, u, r, v) }",
    "QuantizeLinear": "g (float[2,3] x, float s, int8 z) => (int8[2,3] y) { y = QuantizeLinear(x, s, z) }",
    "QuantizeLinear by blocks": "g (float[2,6] x, float[2,3] s) => (uint8[2,6] y) "
    "{ y = QuantizeLinear<block_size=2>(x, s) }",
}
RECURRED = {
    "GRU": "g (float[5,2,3] x, float[1,12,3] w, float[1,12,4] r) => (float[5,1,2,4] y) "
    '{ y = GRU<hidden_size=4, linear_before_reset=1, direction="reverse">(x, w, r) }',
    "GRU of one step": "g (float[1,1,3] x) => (float[1,1,1,1] y, float[1,1,1] h) "
    "<float[1,3,3] w = {1,2,3,4,5,6,7,8,9}, float[1,3,1] r = {1,2,3}> { y, h = GRU<hidden_size=1>(x, w, r) }",
    "LSTM": "g (float[5,2,3] x, float[2,16,3] w, float[2,16,4] r, float[2,32] b, int32[2] l) "
    "=> (float[5,2,2,4] y, float[2,2,4] h, float[2,2,4] c) "
    '{ y, h, c = LSTM<hidden_size=4, clip=3.0, direction="bidirectional">(x, w, r, b, l) }',
    "RNN batch first": "g (float[2,5,3] x, float[1,4,3] w, float[1,4,4] r) => (float[2,1,4] h) "
    '{ y, h = RNN<hidden_size=4, layout=1, activations=["LeakyRelu"], activation_alpha=[0.5]>(x, w, r) }',
}
RESAMPLED = {
    "Resize": "g (float[1,1,2,2] x) => (float[1,1,4,4] y) <float[4] s = {1,1,2,2}> "
    '{ y = Resize<mode="linear", coordinate_transformation_mode="align_corners">(x, , s) }',
    "Resize to sizes": "g (float[1,1,4,4] x) => (float[1,1,3,2] y) <int64[4] s = {1,1,3,2}> "
    '{ y = Resize<nearest_mode="floor">(x, , , s) }',
    "RoiAlign": "g (float[1,1,8,8] x, float[3,4] r, int64[3] b) => (float[3,1,2,2] y) "
    "{ y = RoiAlign<output_height=2, output_width=2, sampling_ratio=2, spatial_scale=0.5>(x, r, b) }",
}
ATTENDED = {
    "Attention": "g (float[1,4,2,8] q, float[1,2,3,8] k, float[1,2,3,8] v, bool[2,3] m) => (float[1,4,2,8] y) "
    "{ y = Attention<is_causal=1, softcap=2.0>(q, k, v, m) }",
    "RotaryEmbedding": "g (float[1,2,8] x, float[6,2] c, float[6,2] s, int64[1,2] p) => (float[1,2,8] y) "
    "{ y = RotaryEmbedding<num_heads=2, interleaved=1>(x, c, s, p) }",
}
LOST = {
    "NegativeLogLikelihoodLoss": "g (float[2,3,4] x, int64[2,4] t, float[3] w) => (float y) "
    "{ y = NegativeLogLikelihoodLoss<ignore_index=1>(x, t, w) }",
    "NegativeLogLikelihoodLoss that ignores a number": "g (float[2,3] x, int32[2] t) => (float y) "
    "{ y = NegativeLogLikelihoodLoss<ignore_index=-100>(x, t) }",
    "SoftmaxCrossEntropyLoss": "g (float16[2,3] x, int64[2] t) => (float16[2] y, float16[2,3] p) "
    '{ y, p = SoftmaxCrossEntropyLoss<reduction="none">(x, t) }',
}
SAMPLED = {
    "GridSample": "g (float[2,3,4,5] x, float[2,6,7,2] g) => (float[2,3,6,7] y) { y = GridSample(x, g) }",
    "GridSample of bytes": "g (uint8[1,1,4,5,6] x, float16[1,2,2,2,3] g) => (uint8[1,1,2,2,2] y) "
    '{ y = GridSample<mode="nearest", padding_mode="reflection">(x, g) }',
    "GridSample by a cubic": "g (float16[1,1,4] x, float[1,3,1] g) => (float16[1,1,3] y) "
    '{ y = GridSample<mode="cubic", padding_mode="border", align_corners=1>(x, g) }',
}
FAMILIES = {
    "elementwise": ELEMENTWISE, "products": PRODUCTS, "windows": WINDOWS, "reductions": REDUCED,
    "normalizations": NORMALIZED, "movement": MOVED, "indexing": INDEXED, "generation": GENERATED,
    "quantization": QUANTIZED, "recurrence": RECURRED, "resampling": RESAMPLED, "attention": ATTENDED,
    "losses": LOST, "sampling": SAMPLED,
}  # fmt: skip
OPSET = 24
NEWER = {"BitCast": 26, "CumProd": 26}
"""Opsets of graphs that need a later one."""
OLDER = {
    "Scatter": ("g (float[3,3] x, int64[1,3] i, float[1,3] u) => (float[3,3] y) { y = Scatter(x, i, u) }", 9),
    "Upsample": ("g (float[1,1,2,2] x) => (float[1,1,4,4] y) <float[4] s = {1,1,2,2}> { y = Upsample(x, s) }", 9),
    "Clip by attributes": ("g (float[4] x) => (float[4] y) { y = Clip<min=-1.0, max=1.0>(x) }", 6),
    "Softmax over two dimensions": ("g (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax(x) }", 11),
    "GroupNormalization by group": (
        "g (float[1,4,3] x, float[2] s, float[2] b) => (float[1,4,3] y) "
        "{ y = GroupNormalization<num_groups=2>(x, s, b) }",
        18,
    ),
    "ReduceSum by attribute": ("g (float[2,3] x) => (float[2,1] y) { y = ReduceSum<axes=[1]>(x) }", 11),
    "Slice by attributes": ("g (float[4] x) => (float[2] y) { y = Slice<starts=[1], ends=[3]>(x) }", 9),
}
"""Graphs of forms that later opsets have not, and theirs."""
