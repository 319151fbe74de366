"""Normalizations, activations, dropout, and sums fused with them."""

from __future__ import annotations

DOMAIN = "com.microsoft"
SCHEMAS = """
BiasAdd(X:T bias:T skip:T) -> (Y:T) | | T: float float16
BiasDropout(data:T bias:T residual:T? ratio:T1? training_mode:T2?) -> (output:T mask:T2?) | seed:int | T: bfloat16
    double float float16; T1: bfloat16 double float float16; T2: bool
BiasGelu(A:T B:T) -> (C:T) | | T: bfloat16 double float float16
BiasSoftmax(data:T bias:T) -> (output:T) | axis:int=1 is_inner_broadcast:int! | T: double float float16
BiasSplitGelu(X:T bias:T) -> (Y:T) | | T: float float16
BitmaskBiasDropout(data:T bias:T residual:T? ratio:T1? training_mode:T2?) -> (output:T mask:T3?) | seed:int | T:
    bfloat16 double float float16; T1: bfloat16 double float float16; T2: bool; T3: uint32
BitmaskDropout(data:T ratio:T1? training_mode:T2?) -> (output:T mask:T3?) | seed:int | T: bfloat16 double float
    float16; T1: bfloat16 double float float16; T2: bool; T3: uint32
BranchwiseRMSNorm(X:T scale:M?) -> (Y:T) | epsilon:float=1e-05 num_branches:int=0 | T: bfloat16 float float16; M:
    bfloat16 float float16
EmbedLayerNormalization(input_ids:T1 segment_ids:T1? word_embedding:T position_embedding:T segment_embedding:T?
    gamma:T beta:T mask:T1? position_ids:T1?) -> (output:T mask_index:T1? embedding_sum:T?) | epsilon:float=1e-12
    mask_index_type:int | T1: int32; T: float float16
EngramGate(key:T query:T value:T key_norm_scale:T query_norm_scale:T conv_norm_scale:T?) -> (output:T
    gated_value_normed:T?) | epsilon:float=1e-05 | T: bfloat16 float float16
FastGelu(X:T bias:T?) -> (Y:T) | | T: bfloat16 double float float16
GatedAdd(X:T Y:T gate:T gate_weight:T?) -> (output:T) | | T: bfloat16 float float16
GatedRMSNorm(X:T scale:T gate:T) -> (Y:T) | activation:string=silu epsilon:float=1e-05 | T: bfloat16 float float16
Gelu(X:T) -> (Y:T) | | T: bfloat16 double float float16
GroupNorm(X:T gamma:M beta:M) -> (Y:T) | activation:int! channels_last:int=1 epsilon:float=1e-05 groups:int! | T:
    float float16; M: float float16
HyperConnectionLowRankMix(streams:T norm_scale:T down_weight:T up_weight:T inject_weight:T prev_block_output:T?
    prev_post_gate:T?) -> (pre_output:T post_gate:T streams_out:T?) | epsilon:float=1e-05 gate_div:float=1.0
    gate_mul:float=1.0 num_branches:int! reduction_scale:float=1.0 silu_alpha:float=1.0 | T: bfloat16 float float16
HyperConnectionPostMix(streams:T block_output:T post_mix:M stream_mix:M?) -> (output:T) | num_branches:int=0 | T:
    bfloat16 float float16; M: bfloat16 float float16
HyperConnectionPreMix(streams:T pre_mix:M) -> (output:T) | num_branches:int=0 reduction_scale:float=1.0 | T: bfloat16
    float float16; M: bfloat16 float float16
QuickGelu(X:T) -> (Y:T) | alpha:float=1.702 | T: bfloat16 double float float16
RMSNormRotary(X:T scale:F position_ids:I cosine:TCos sine:TCos prefill_numerics:TI?) -> (Y:TOut normalized_fp32:F?) |
    epsilon:float=1e-06 flatten_batch:int=0 input_start:int=0 input_width:int=0 output_fp16:int=0
    rotary_embedding_dim:int! use_fp32_arithmetic:int=1 | T: bfloat16 float16; TCos: bfloat16 float; TOut: bfloat16
    float16; F: float; I: int64; TI: int32
ScaledSiLU(X:T scale:M?) -> (Y:T) | alpha:float=1.0 | T: bfloat16 float float16; M: bfloat16 float float16
SkipGroupNorm(X:T gamma:M beta:M skip:T bias:T?) -> (Y:T S:T?) | activation:int! channels_last:int=1
    epsilon:float=1e-05 groups:int! | T: float float16; M: float float16
SkipLayerNormalization(input:T skip:T gamma:T beta:T? bias:T?) -> (output:T mean:U? inv_std_var:U?
    input_skip_bias_sum:T?) | epsilon:float=1e-12 | T: bfloat16 float float16; U: float
SkipSimplifiedLayerNormalization(input:T skip:T gamma:T bias:T?) -> (output:T mean:U? inv_std_var:U?
    input_skip_bias_sum:T?) | epsilon:float=1e-12 | T: bfloat16 float float16; U: float
SwiGLU(gate:T up:T?) -> (output:T) | activation_alpha:float=1.0 activation_beta:float=0.0 limit:float=0.0
    round_activation:int=0 | T: bfloat16 float float16
"""
