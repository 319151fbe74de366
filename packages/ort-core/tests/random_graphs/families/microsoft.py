"""Other operators of com.microsoft that exports and onnxruntime's own optimizer write."""

from __future__ import annotations

from random_graphs import element_types as et
from random_graphs.families.images import image, window
from random_graphs.families.operands import partner
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Value

MICROSOFT = "com.microsoft"


@family()
def fused_product(g: GraphWriter) -> Value:
    value = g.pick(et.F32, et.F32, et.F16, least=2)
    flipped = g.choice((0, 1))
    columns = g.choice((1, 8, 17))
    shape = (columns, value.size(-1)) if flipped else (value.size(-1), columns)
    weights = g.weights(value.dtype, *shape)
    return g.node("FusedMatMul", [value, weights], domain=MICROSOFT, transB=flipped, alpha=g.choice((1.0, 0.25)))


@family()
def fused_gemm(g: GraphWriter) -> Value:
    value = g.pick(et.F32, rank=2)
    columns = g.choice((1, 8, 17))
    operands = [value, g.weights(et.F32, value.size(1), columns), g.weights(et.F32, columns)]
    return g.node("FusedGemm", operands, domain=MICROSOFT, activation=g.choice(("Relu", "Sigmoid", "Tanh")))


@family()
def fused_convolution(g: GraphWriter) -> Value:
    value = image(g, et.F32, least=4, most=4)
    kernel, given = window(g, value)
    weights = g.weights(et.F32, g.choice((1, 8, 17)), value.size(1), *kernel, low=-0.3, high=0.3)
    return g.node("FusedConv", [value, weights], domain=MICROSOFT, activation=g.choice(("Relu", "Tanh")), **given)


@family()
def skip_bias(g: GraphWriter) -> Value:
    value = g.pick(et.F32, least=1)
    return g.node("BiasGelu", [value, g.weights(et.F32, value.size(-1))], domain=MICROSOFT)


@family()
def trained_random(g: GraphWriter) -> Value:
    """Dropout, which does nothing when a model is run."""
    value = g.pick(et.F32, et.F64, et.F16)
    ratio = g.constant(0.5, value.dtype)
    return g.node("Dropout", [value, ratio], 2 if g.chance(0.3) else 1)


@family()
def bias_softmax(g: GraphWriter) -> Value:
    value = g.pick(et.F32, least=2)
    other = partner(g, value)
    return g.node("Softmax", [g.node("Add", [value, other])], axis=-1)
