"""Models in which a pass or a compound lowering fires, as ONNX text: what the suite's own share of mutants begins from.

The campaign records hundreds more from the tests of passes and lowerings.
"""

from __future__ import annotations

from collections.abc import Mapping

_QUANTIZED = "float s = {0.05}, uint8 z = {128}, float t = {0.02}, uint8 u = {7}"
_HEADS = "int64[4] heads = {0,0,2,4}, int64[3] merge = {0,0,8}, float k = {0.5}"


def _between(operator: str) -> str:
    """Return an operator between a dequantization and a quantization to the same grid, dequantized again."""
    return (
        "qa = QuantizeLinear(x, s, z) a = DequantizeLinear(qa, s, z) "
        f"f = {operator} q = QuantizeLinear(f, s, z) y = DequantizeLinear(q, s, z)"
    )


def _quantized(operator: str, more: str = "", inputs: str = "float[2,4,6,6] x", rank: int = 4) -> str:
    output = f"float[{','.join('abcd'[:rank])}] y"
    return f"g ({inputs}) => ({output}) <{_QUANTIZED}{more}> {{ {_between(operator)} }}"


PATTERNS: Mapping[str, str] = {
    "quantized average": _quantized("AveragePool <kernel_shape = [2,2]> (a)"),
    "quantized maximum": _quantized("MaxPool <kernel_shape = [3,3], strides = [2,2], pads = [1,1,1,1]> (a)"),
    "quantized sum": _quantized("Add(a, a)"),
    "quantized product with a number": _quantized("LeakyRelu <alpha = 0.1> (a)"),
    "quantized shares": _quantized("Softmax <axis = 1> (a)"),
    "quantized parts": _quantized("Concat <axis = 1> (a, a)"),
    "quantized resize": _quantized('Resize <mode = "nearest"> (a, , by)', ", float[4] by = {1,1,2,2}"),
    "quantized transpose": _quantized("Transpose <perm = [0,2,3,1]> (a)"),
    "quantized mean": _quantized("GlobalAveragePool(a)"),
    "quantized reduction": _quantized("ReduceMax <keepdims = 1> (a, axes)", ", int64[1] axes = {3}"),
    "quantized convolution": (
        f"g (float[2,2,5,5] x) => (float[a,b,c,d] y) <{_QUANTIZED}, int8[3,2,1,1] w = {{10,-20,30,40,50,-60}}, "
        "float[3] ws = {0.01,0.02,0.03}, int8[3] wz = {0,0,0}> { qa = QuantizeLinear(x, s, z) "
        "a = DequantizeLinear(qa, s, z) v = DequantizeLinear <axis = 0> (w, ws, wz) c = Conv(a, v) r = Relu(c) "
        "q = QuantizeLinear(r, t, u) y = DequantizeLinear(q, t, u) }"
    ),
    "quantized Gemm": (
        f"g (float[3,4] x) => (float[a,b] y) <{_QUANTIZED}, int8[4,3] w = {{1,-2,3,4,5,-6,7,8,9,-10,11,12}}, "
        "float ws = {0.02}, int8 wz = {1}, int32[3] c = {100,-200,300}, float cs = {0.001}> { "
        "qa = QuantizeLinear(x, s, z) a = DequantizeLinear(qa, s, z) v = DequantizeLinear(w, ws, wz) "
        "b = DequantizeLinear(c, cs) f = Gemm(a, v, b) q = QuantizeLinear(f, t, u) y = DequantizeLinear(q, t, u) }"
    ),
    "scaled product of bytes": (
        f"g (float[2,3,4] x) => (float[a,b,c] y) <{_QUANTIZED}, int8[4,3] w = {{1,-2,3,4,5,-6,7,8,9,-10,11,12}}, "
        "float[3] ws = {0.01,0.02,0.03}, int8[3] wz = {0,0,0}, float h = {0.5}> { qa = QuantizeLinear(x, s, z) "
        "a = DequantizeLinear(qa, s, z) v = DequantizeLinear <axis = 1> (w, ws, wz) p = MatMul(a, v) y = Mul(p, h) }"
    ),
    "bounded quantization": (
        "g (float[3,7] x) => (uint8[a,b] y) <float s = {0.05}, uint8 z = {0}, float low = {0.0}, float high = {20.0}> "
        "{ r = Relu(x) c = Clip(r, low, high) y = QuantizeLinear(c, s, z) }"
    ),
    "quantized twice": (
        "g (uint8[3,7] x) => (float[a,b] y) <float s = {0.05}, uint8 z = {3}> "
        "{ d = DequantizeLinear(x, s, z) q = QuantizeLinear(d, s, z) y = DequantizeLinear(q, s, z) }"
    ),
    "blocks of weights": (
        "g (float[3,4] x) => (float[a,b] y) <uint8[4,3] w = {1,2,3,4,5,6,7,8,9,10,11,12}, "
        "float[2,3] ws = {0.1,0.2,0.3,0.4,0.5,0.6}> "
        "{ v = DequantizeLinear <axis = 0, block_size = 2> (w, ws) p = MatMul(x, v) y = Relu(p) }"
    ),
    "integer product": (
        "g (float[3,4] x) => (float[a,b] y) <int8[4,3] w = {1,-2,3,4,5,-6,7,8,9,-10,11,12}, int8 wz = {2}, "
        "float[3] ws = {0.01,0.02,0.03}, float[3] b = {1,2,3}> { q, s, z = DynamicQuantizeLinear(x) "
        "p = MatMulInteger(q, w, z, wz) f = Cast <to = 1> (p) k = Mul(s, ws) m = Mul(f, k) y = Add(m, b) }"
    ),
    "scaled product": (
        "g (float[2,3,4] x, float[2,5,4] w) => (float[a,b,c] y) <float h = {0.25}> "
        "{ t = Transpose <perm = [0,2,1]> (w) p = MatMul(x, t) y = Div(p, h) }"
    ),
    "Gemm with what stands around": (
        "g (float[4,3] x) => (float[a,b] y) <float[4,5] w = {1,2,3,4,5,5,4,3,2,1,1,-1,1,-1,1,0,1,0,1,0}, "
        "float[5] c = {1,2,3,4,5}> { t = Transpose <perm = [1,0]> (x) p = MatMul(t, w) a = Add(p, c) y = Sigmoid(a) }"
    ),
    "convolution with constants": (
        "g (float[1,2,5,5] x) => (float[a,b,c,d] y) <float[2,2,1,1] w = {1,2,-1,0.5}, float[2] s = {0.5,2}, "
        "float[2] b = {1,-1}, float[2] m = {0.1,0.2}, float[2] v = {1,2}, float[2,1,1] f = {2,3}> "
        "{ c = Conv(x, w) n = BatchNormalization(c, s, b, m, v) t = Mul(n, f) y = LeakyRelu <alpha = 0.2> (t) }"
    ),
    "padded pool": (
        "g (float[1,2,5,5] x) => (float[a,b,c,d] y) <int64[8] pads = {0,0,1,1,0,0,1,0}> "
        "{ p = Pad(x, pads) y = AveragePool <kernel_shape = [3,2]> (p) }"
    ),
    "layer norm": (
        "g (float[2,3,4] x, float[2,3,4] r) => (float[a,b,c] y) <float two = {2.0}, float e = {1e-5}, "
        "float[4] w = {1,2,3,4}, float[4] b = {4,3,2,1}> { t = Add(x, r) "
        "m = ReduceMean <axes = [-1]> (t) d = Sub(t, m) p = Pow(d, two) v = ReduceMean <axes = [-1]> (p) "
        "k = Add(v, e) q = Sqrt(k) n = Div(d, q) c = Mul(n, w) y = Add(c, b) }"
    ),
    "Gelu": (
        "g (float[3,8] x) => (float[a,b] y) <float root = {1.4142135}, float one = {1.0}, float half = {0.5}, "
        "float[8] v = {1,2,3,4,5,6,7,8}> "
        "{ i = Add(x, v) d = Div(i, root) e = Erf(d) o = Add(e, one) m = Mul(i, o) y = Mul(m, half) }"
    ),
    "attention": (
        f"g (float[2,3,8] q, float[2,5,8] k1, float[2,5,8] v, float[2,1,3,5] mask) => (float[a,b,c] y) <{_HEADS}> {{ "
        "qs = Reshape(q, heads) qh = Transpose <perm = [0,2,1,3]> (qs) ks = Reshape(k1, heads) "
        "kh = Transpose <perm = [0,2,3,1]> (ks) vs = Reshape(v, heads) vh = Transpose <perm = [0,2,1,3]> (vs) "
        "m = MatMul(qh, kh) c = Mul(m, k) b = Add(c, mask) p = Softmax(b) o = MatMul(p, vh) "
        "t = Transpose <perm = [0,2,1,3]> (o) y = Reshape(t, merge) }"
    ),
    "pieces of an axis": (
        "g (float[2,6,4] x) => (float[a,b,c] y) <int64[1] n = {0}, int64[1] m = {2}, int64[1] e = {6}, "
        "int64[1] i = {1}, int64[3] flat = {2,4,4}> { a = Slice(x, n, m, i) b = Slice(x, m, e, i) c = Reshape(b, flat) "
        "d = Transpose <perm = [0,2,1]> (c) f = Transpose <perm = [0,2,1]> (d) y = Concat <axis = 1> (a, f) }"
    ),
}
OLD_FORMS = ("layer norm",)  # of opset 17, where axes are attributes
