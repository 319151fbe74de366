"""Operator rewrites: operators in other words, where their specification gives no parts: the table, and onnxruntime's.

y = com.microsoft.BiasGelu(x, b)   ->   s = Add(x, b)   y = 0.5 * s * (1 + Erf(s / sqrt(2)))
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.claims import dtype_of
from ort_core.plugin.ir import Constant, DataType, Node, TensorType, Value
from ort_ep_tensorrt.lowering.editing import Editor, Results, Writer
from ort_ep_tensorrt.lowering.integers import bit_shift, bitwise_not, mod, reduce_of_bool
from ort_ep_tensorrt.lowering.linear_maps import affine_grid, col2im, dft, resize
from ort_ep_tensorrt.lowering.packed_tables import gather_block_quantized
from ort_ep_tensorrt.lowering.pooling import average_pool, lp_pool, max_pool, max_unpool
from ort_ep_tensorrt.lowering.quantized_products import (
    conv_integer,
    mat_mul_integer,
    q_linear_conv,
    q_linear_mat_mul,
)
from ort_ep_tensorrt.lowering.selection import compress, cum_prod

DOMAIN = "com.microsoft"


def writer_of(node: Node) -> Writer | None:
    """Return what says a node in ONNX's words, ``None`` for operators that are not in the table."""
    tables: Mapping[str, Mapping[str, Writer]] = {DOMAIN: _WRITERS, "": _OF_ONNX, "ai.onnx": _OF_ONNX}
    return tables.get(node.domain, {}).get(node.op_type)


def _bias_gelu(editor: Editor) -> Results | Rejection:
    x, bias = editor.input(0), editor.input(1)
    return {0: _erf_gelu(editor, editor.add("Add", [x, bias], like=x))}


def _gelu(editor: Editor) -> Results | Rejection:
    return {0: _erf_gelu(editor, editor.input(0))}


def _erf_gelu(editor: Editor, x: Value) -> Value:
    error = editor.add("Erf", [_scaled(editor, x, 1 / math.sqrt(2))], like=x)
    return editor.add("Mul", [_scaled(editor, x, 0.5), _shifted(editor, error, 1.0)], like=x)


def _fast_gelu(editor: Editor) -> Results | Rejection:
    """FastGelu(x, b) -> 0.5 s (1 + Tanh(0.7978845608 (s + 0.044715 s^3))) with s = x + b."""
    x, bias = editor.input(0), editor.node.input(1)
    s = x if bias is None else editor.add("Add", [x, bias], like=x)
    square = editor.add("Mul", [s, s], like=x)
    factor = _shifted(editor, _scaled(editor, square, 0.044715), 1.0)
    inner = _scaled(editor, editor.add("Mul", [s, factor], like=x), math.sqrt(2 / math.pi))
    curve = _shifted(editor, editor.add("Tanh", [inner], like=x), 1.0)
    return {0: editor.add("Mul", [_scaled(editor, s, 0.5), curve], like=x)}


def _quick_gelu(editor: Editor) -> Results | Rejection:
    x = editor.input(0)
    gate = editor.add("Sigmoid", [_scaled(editor, x, editor.node.float_attribute("alpha", 1.702))], like=x)
    return {0: editor.add("Mul", [x, gate], like=x)}


def _skip_layer_normalization(editor: Editor) -> Results | Rejection:
    """SkipLayerNormalization(x, skip, scale, bias, b) -> LayerNormalization(x + skip + b, scale, bias)."""
    node = editor.node
    if any(index < len(node.outputs) and node.outputs[index] is not None for index in (1, 2)):
        return Rejection("means and deviations of SkipLayerNormalization are not made by TensorRT", node)
    x, skip, scale = (editor.input(index) for index in range(3))
    total = editor.add("Add", [x, skip], like=x)
    bias = node.input(4)
    total = total if bias is None else editor.add("Add", [total, bias], like=x)
    attributes = {"axis": -1, "epsilon": node.float_attribute("epsilon", 1e-12)}
    found: Results = {0: editor.add("LayerNormalization", [total, scale, node.input(3)], attributes, like=x)}
    if len(node.outputs) > 3 and node.outputs[3] is not None:
        found[3] = total
    return found


def _fused_mat_mul(editor: Editor) -> Results | Rejection:
    node = editor.node
    if node.int_attribute("transBatchA", 0) or node.int_attribute("transBatchB", 0):
        return Rejection("FusedMatMul with transposed batches is not written in parts", node)
    sides: list[Value] = []
    for index, name in enumerate(("transA", "transB")):
        side = editor.input(index)
        if node.int_attribute(name, 0):
            if side.rank is None or side.rank < 2:
                return Rejection(f"the rank of {side.name!r} is not known", node)
            order = (*range(side.rank - 2), side.rank - 1, side.rank - 2)
            side = editor.add("Transpose", [side], {"perm": order})
            side.type = TensorType(dtype_of(editor.input(index)) or DataType.FLOAT, (None,) * len(order))
        sides.append(side)
    product = editor.add("MatMul", sides, like=node.output)
    alpha = node.float_attribute("alpha", 1.0)
    return {0: product if alpha == 1.0 else _scaled(editor, product, alpha)}


def _mat_mul_n_bits(editor: Editor) -> Results | Rejection:
    """MatMulNBits(x, B, s) of 4 bits -> MatMul(x, DequantizeLinear<block_size>(B - 8, s)) with int4 weights."""
    node = editor.node
    k, n, size = (node.int_attribute(name, 0) for name in ("K", "N", "block_size"))
    weights, scales = (editor.graph.fixed_constant(node.input(index)) for index in (1, 2))
    others = [node.input(index) for index in (3, 4)]
    if node.int_attribute("bits", 4) != 4 or not k or not n or not size or k % size:
        return Rejection("only 4 bits in whole blocks are int4 weights of TensorRT", node)
    if weights is None or scales is None:
        return Rejection("TensorRT needs the weights of MatMulNBits when it builds", node)
    if any(other is not None for other in others):
        return Rejection("int4 weights of TensorRT have neither zero points nor another order", node)
    x, bias = editor.input(0), node.input(5)
    packed = weights.array().reshape(n, k // 2)
    numbers = np.empty((n, k), np.int8)
    numbers[:, 0::2], numbers[:, 1::2] = packed & 15, packed >> 4
    signed = Constant.of((numbers - 8).T.astype(DataType.INT4.numpy), DataType.INT4)
    steps = editor.constant(np.ascontiguousarray(scales.array().reshape(n, k // size).T))
    blocks = {"axis": 0, "block_size": size}
    wide = editor.add("DequantizeLinear", [editor.constant(signed), steps], blocks)
    wide.type = TensorType(scales.dtype, (k, n))
    product = editor.add("MatMul", [x, wide], like=node.output)
    return {0: product if bias is None else editor.add("Add", [product, bias], like=node.output)}


def _scaled(editor: Editor, x: Value, factor: float) -> Value:
    return editor.add("Mul", [x, editor.number(factor, x)], like=x)


def _shifted(editor: Editor, x: Value, summand: float) -> Value:
    return editor.add("Add", [x, editor.number(summand, x)], like=x)


_WRITERS: Mapping[str, Writer] = {
    "BiasGelu": _bias_gelu,
    "FastGelu": _fast_gelu,
    "FusedMatMul": _fused_mat_mul,
    "GatherBlockQuantized": gather_block_quantized,
    "Gelu": _gelu,
    "MatMulNBits": _mat_mul_n_bits,
    "QuickGelu": _quick_gelu,
    "SkipLayerNormalization": _skip_layer_normalization,
}
_OF_ONNX: Mapping[str, Writer] = {
    "AffineGrid": affine_grid,
    "AveragePool": average_pool,
    "BitShift": bit_shift,
    "BitwiseNot": bitwise_not,
    "Col2Im": col2im,
    "Compress": compress,
    "ConvInteger": conv_integer,
    "CumProd": cum_prod,
    "DFT": dft,
    "LpPool": lp_pool,
    "MatMulInteger": mat_mul_integer,
    "MaxPool": max_pool,
    "MaxUnpool": max_unpool,
    "Mod": mod,
    "QLinearConv": q_linear_conv,
    "QLinearMatMul": q_linear_mat_mul,
    "ReduceMax": reduce_of_bool,
    "ReduceMin": reduce_of_bool,
    "Resize": resize,
    "Upsample": resize,
}
