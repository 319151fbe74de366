"""int8 operators with explicit matrix orders, and block floating point."""

from __future__ import annotations

DOMAIN = "com.microsoft"
SCHEMAS = """
DequantizeBFP(x:T1 shape:T2 strides:T2) -> (y:T3) | bfp_type:int! block_dim:int=-1 dtype:int=1 | T1: uint8; T2: int64;
    T3: bfloat16 float float16
DequantizeWithOrder(input:Q scale_input:S) -> (output:F) | order_input:int! order_output:int! to:int! | Q: int8; F:
    float float16; S: float
QOrderedAttention(input:Q scale_input:S scale_Q_gemm:S scale_K_gemm:S scale_V_gemm:S Q_weight:Q K_weight:Q V_weight:Q
    scale_Q_weight:S scale_K_weight:S scale_V_weight:S Q_bias:S K_bias:S V_bias:S scale_QKT_gemm:S?
    scale_QKT_softmax:S? scale_values_gemm:S mask_index:G? past:Q? attention_bias:S?) -> (output:Q) | num_heads:int!
    order_input:int! order_output:int! order_weight:int! qkv_hidden_sizes:ints unidirectional:int=0 | Q: int8; S:
    float; G: int32
QOrderedGelu(X:Q scale_X:S scale_Y:S) -> (Y:Q) | order_X:int order_Y:int | Q: int8; S: float
QOrderedLayerNormalization(X:Q scale_X:S scale:F B:F? scale_Y:S) -> (Y:Q) | axis:int=-1 epsilon:float=1e-05
    order_X:int=1 order_Y:int=1 | F: float float16; S: float; Q: int8
QOrderedLongformerAttention(input:Q scale_input:S weight:Q scale_weight:S bias:S scale_bias:S scale_qkv_gemm:S mask:F
    global_weight:Q scale_global_weight:S global_bias:S scale_global_gemm:S global:G scale_output:S) -> (output:Q) |
    num_heads:int! order_global_weight:int! order_input:int! order_output:int! order_weight:int! window:int! | Q:
    int8; S: float; G: int32; F: float16
QOrderedMatMul(A:Q scale_A:S B:Q scale_B:S scale_Y:S bias:S? C:Q? scale_C:S?) -> (Y:Q) | order_A:int! order_B:int!
    order_Y:int! | Q: int8; S: float
QuantizeBFP(x:T1) -> (y:T2 shape:T3 strides:T3) | bfp_type:int! block_dim:int=-1 | T1: bfloat16 float float16; T2:
    uint8; T3: int64
QuantizeWithOrder(input:F scale_input:S) -> (output:Q) | order_input:int! order_output:int! | Q: int8; F: float
    float16; S: float
"""
