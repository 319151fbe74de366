"""Matrix products, among them with quantized weights and with experts."""

from __future__ import annotations

DOMAIN = "com.microsoft"
SCHEMAS = """
FusedGemm(A:T B:T C:T?) -> (Y:T) | activation:string activation_alpha:float activation_beta:float
    activation_gamma:float alpha:float=1.0 beta:float=1.0 transA:int=0 transB:int=0 | T: double float float16 int32
    int64 uint32 uint64
FusedMatMul(A:T B:T) -> (Y:T) | alpha:float=1.0 transA:int=0 transB:int=0 transBatchA:int=0 transBatchB:int=0 | T:
    bfloat16 double float float16
FusedMatMulActivation(A:T B:T) -> (Y:T) | activation:string! activation_alpha:float activation_axis:int
    activation_beta:float activation_gamma:float alpha:float=1.0 transA:int=0 transB:int=0 transBatchA:int=0
    transBatchB:int=0 | T: bfloat16 double float float16
GatherBlockQuantized(data:T1 indices:Tind scales:T2 zero_points:T1?) -> (output:T2) | bits:int=4 block_size:int=128
    gather_axis:int=0 quantize_axis:int=1 | T1: float4e2m1 float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz int4
    uint4 uint8; T2: bfloat16 float float16; Tind: int32 int64
GemmFastGelu(X:T W:T bias:T?) -> (Y:T) | | T: bfloat16 float float16
GemmFloat8(A:TA B:TB C:TC? scaleA:TS? scaleB:TS? scaleY:TS?) -> (Y:TR) | activation:string alpha:float=1.0
    beta:float=0.0 dtype:int=1 transA:int=0 transB:int=0 | TA: bfloat16 float float16 float8e4m3fn float8e5m2; TB:
    bfloat16 float float16 float8e4m3fn float8e5m2; TC: bfloat16 float float16; TR: bfloat16 float float16
    float8e4m3fn float8e5m2; TS: float
MatMulBlockQuantizedFp4Weight(A:T B:T1 weight_scale:T2 weight_scale_2:T3 input_scale:T3? bias:T?) -> (Y:T) |
    block_size:int=16 | T: bfloat16 float16; T1: uint8; T2: uint8; T3: float
MatMulBlockQuantizedFp8Weight(A:T B:T1 b_scale:T2 a_scale:T2? bias:T?) -> (Y:T) | block_size:int=128 | T: bfloat16
    float16; T1: float8e4m3fn; T2: float
MatMulBnb4(A:T1 B:T2 absmax:T1) -> (Y:T1) | K:int! N:int! block_size:int! quant_type:int! training_mode:int=0
    transB:int=1 | T1: bfloat16 float float16; T2: uint8
MatMulFpQ4(A:T1 B:T2 B_shape:T3) -> (Y:T1) | blk_quant_type:int=1 | T1: float; T2: uint8; T3: int64
MatMulNBits(A:T1 B:T2 scales:T1 zero_points:T3? g_idx:T4? bias:T1?) -> (Y:T1) | K:int! N:int! accuracy_level:int=0
    bits:int=4 block_size:int! weight_prepacked:int=0 | T1: bfloat16 float float16; T2: uint8; T3: bfloat16 float
    float16 uint8; T4: int32
MatMulNBitsMlp(A:T1 skip:T1? norm_scale:T1? gate_B:T2 gate_scales:T1 gate_bias:T1? up_B:T2 up_scales:T1 up_bias:T1?)
    -> (Y:T1 input_skip_bias_sum:T1?) | K:int! N:int! accuracy_level:int=0 activation:string! bits:int=4
    block_size:int! epsilon:float=1e-05 | T1: bfloat16 float float16; T2: uint8
MatMulNBitsQLoRA(X:T W:TQ scales:T lora_A:TQ lora_A_scales:T lora_B:TQ lora_B_scales:T) -> (Y:T) | K:int! N:int!
    accuracy_level:int=0 bits:int=4 block_size:int=32 lora_bits:int=8 lora_block_size:int=32 | T: float float16; TQ:
    uint8
MatMulNBitsQkv(A:T1 skip:T1? norm_scale:T1 q_B:T2 q_scales:T1 q_bias:T1? k_B:T2 k_scales:T1 k_bias:T1? v_B:T2
    v_scales:T1 v_bias:T1?) -> (Q:T1 K:T1 V:T1 input_skip_bias_sum:T1?) | K:int! Nkv:int! Nq:int! accuracy_level:int=0
    bits:int=4 block_size:int! epsilon:float=1e-06 | T1: bfloat16 float float16; T2: uint8
MatMulPacked(A:T1 B:T2 global_scale:Tscale?) -> (Y:T1) | K:int! N:int! activation_type:string=none packed_type:int! |
    T1: bfloat16 float16; T2: uint8; Tscale: float
MoE(input:T router_probs:T fc1_experts_weights:T fc1_experts_bias:T? fc2_experts_weights:T fc2_experts_bias:T?
    fc3_experts_weights:T? fc3_experts_bias:T?) -> (output:T) | activation_alpha:float=1.0 activation_beta:float=0.0
    activation_type:string=relu k:int=1 normalize_routing_weights:int=0 swiglu_fusion:int=0 swiglu_limit:float
    swiglu_limit_after_activation:int=0 use_sparse_mixer:int=0 | T: bfloat16 float float16
MoEGroupRouter(logits:T expert_bias:TF projection_weight:T?) -> (router_probs:T? selection_scores:TF?
    router_weights:TF?) | group_topk:int=2 n_group:int=1 router_sentinel:float=-10000.0 top_k:int! topk_group:int=1 |
    T: bfloat16 float float16; TF: float
MoEPacked(input:T router_probs:TR gate_experts_weights:T2 up_experts_weights:T2? down_experts_weights:T2
    router_weights:TR?) -> (output:T) | activation_type:string=swiglu down_type:int! gate_type:int! k:int=1
    normalize_routing_weights:int=1 routed_scaling_factor:float=1.0 routing_epsilon:float=0.0 up_type:int=-1 | T:
    bfloat16 float16; T2: uint8; TR: bfloat16 float float16
QMoE(input:T router_probs:T fc1_experts_weights:T1 fc1_scales:T2? fc1_experts_bias:T? fc2_experts_weights:T1
    fc2_scales:T2? fc2_experts_bias:T? fc3_experts_weights:T1? fc3_scales:T2? fc3_experts_bias:T? fc1_zero_points:T1?
    fc2_zero_points:T1? fc3_zero_points:T1? router_weights:T? fc1_global_scale:T4? fc2_global_scale:T4?
    fc1_act_scale:T4? fc2_act_scale:T4? fc1_act_block_scale:T2? fc2_act_block_scale:T2?) -> (output:T) |
    accuracy_level:int=0 activation_alpha:float=1.0 activation_beta:float=0.0 activation_type:string=relu
    block_size:int expert_weight_bits:int=4 fc1_expert_weight_bits:int fc2_expert_weight_bits:int
    fc3_expert_weight_bits:int k:int=1 normalize_routing_weights:int=0 quant_type:string=int swiglu_fusion:int=0
    swiglu_limit:float swiglu_limit_after_activation:int=0 use_sparse_mixer:int=0 weights_prepacked:int=-1 | T:
    bfloat16 float float16; T1: float8e4m3fn uint8; T2: bfloat16 float float16 float8e4m3fn float8e8m0; T4: float
RouterGateUpProj(X:T W:T) -> (router:T activated:T) | activation:string=swiglu activation_alpha:float=1.0
    activation_beta:float=0.0 limit:float=0.0 router_size:int! | T: bfloat16 float16
SparseToDenseMatMul(A:T B:T1) -> (Y:T1) | alpha:float=1.0 transA:int=0 transB:int=0 | T: sparse_tensor(double)
    sparse_tensor(float) sparse_tensor(int32) sparse_tensor(int64) sparse_tensor(uint32) sparse_tensor(uint64); T1:
    double float int32 int64 uint32 uint64
TransposeMatMul(A:T B:T) -> (Y:T) | alpha:float=1.0 transA:int=0 transB:int=0 | T: bfloat16 double float float16
"""
