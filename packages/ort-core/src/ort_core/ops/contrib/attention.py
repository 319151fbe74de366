"""Attention and what surrounds it: rotary embeddings, position biases, padding, convolutions with state."""

from __future__ import annotations

DOMAIN = "com.microsoft"
SCHEMAS = """
Attention(input:T weights:T bias:T? mask_index:M? past:T? attention_bias:T? past_sequence_length:M?) -> (output:T
    present:T?) | do_rotary:int mask_filter_value:float num_heads:int! past_present_share_buffer:int
    qkv_hidden_sizes:ints rotary_embedding_dim:int scale:float unidirectional:int=0 | T: bfloat16 float float16; M:
    int32
CausalConvWithState(input:T weight:T bias:T? past_state:T?) -> (output:T present_state:T state_update:T?) |
    activation:string=none channels_last:int=0 dilation:int=1 input_channel_offset:int=0 input_channels:int=0
    ndim:int=1 state_channels_last:int=-1 state_length:int=0 state_update_capacity:int=0 state_window:int=0 | T:
    bfloat16 float float16
ConvStateReplay(source_backing:T capture_backing:T destination_backing:T metadata:TI) -> (destination_out:T) | | T:
    float float16; TI: int64
DecoderAttention(query:T key:T q_weight:T kv_weight:T bias:T key_padding_mask:B? key_cache:T? value_cache:T?
    static_kv:B use_past:B has_layer_state:B has_key_padding_mask:B) -> (output:T new_key_cache:T? new_value_cache:T?)
    | mask_filter_value:float num_heads:int! | T: float float16; B: bool
DecoderMaskedMultiHeadAttention(query:T key:T? value:T? mask_index:M? attention_bias:T? past_key:T? past_value:T?
    past_sequence_length:M? beam_width:M? cache_indirection:M? bias:T?) -> (output:T present_key:T? present_value:T?
    qk:QK?) | mask_filter_value:float num_heads:int! output_qk:int past_present_share_buffer:int scale:float | T:
    float float16; QK: float float16; M: int32
DecoderMaskedSelfAttention(input:T weights:T bias:T mask_index:M? past:T attention_bias:T? past_sequence_length:M
    beam_width:M? cache_indirection:M?) -> (output:T present:T) | do_rotary:int mask_filter_value:float num_heads:int!
    past_present_share_buffer:int scale:float | T: float float16; M: int32
DynamicSparseAttention(query:TQuery key:TQuery? value:TValue? past_key:TCache? past_value:TCache? auxiliary_key:T?
    auxiliary_value:T? selected_indices:M selected_counts:M seqlens_k:M total_sequence_length:M cos_cache:T?
    sin_cache:T? position_ids:tensor(int64)? q_norm_weight:T? k_norm_weight:T? head_sink:T? committed_length:M?
    key_scale:S? value_scale:S?) -> (output:T present_key:TCache? present_value:TCache? validation_status:M?) |
    attention_mode:string=selected_only auxiliary_kv_shared:int=0 do_rotary:int=0 is_causal:int=1 kv_num_heads:int!
    local_window_size:int=-1 num_heads:int! output_bf16:int=0 qk_norm_epsilon:float=1e-06 rotary_interleaved:int=0
    rotary_offset:int=0 scale:float selected_kv_source:string=main smooth_softmax:int=0 | T: bfloat16 float float16;
    TQuery: bfloat16 float float16; TValue: bfloat16 float float16; TCache: bfloat16 float float16 int8; S: float; M:
    int32
GatedDeltaNet(query:T key:T? value:T? cu_seqlens:TI? decay:TG? beta:TG? initial_state:TS? a_log:TS? dt_bias:TS?
    capture_count:TI? state_update_active:TI?) -> (output:T final_state:TS? state_update:TS?) |
    beta_activation:string=none chunk_size:int=64 gate_activation:string=none gate_lower_bound:float=-5.0
    qk_l2_norm:int=0 scale:float=0.0 state_update_capacity:int=0 update_rule:string=gated_delta | T: bfloat16 float
    float16; TS: float; TG: bfloat16 float float16; TI: int32
GatedDeltaNetStateReplay(source_backing:T capsule_backing:T destination_backing:T metadata:TI) -> (destination_out:T)
    | | T: float; TI: int64
GatedRelativePositionBias(query_layer:T query_bias:T rel_pos:T weight:T bias:T eco_a:T token_offset:M?) -> (output:T)
    | num_heads:int! | T: float float16; M: int32
GemmaRotaryEmbedding(emb:U q:T q_rot:T k:T k_rot:T) -> (output1:T output2:T) | | T: float16; U: float
GroupQueryAttention(query:T key:T? value:T? past_key:T_CACHE? past_value:T_CACHE? seqlens_k:M total_sequence_length:M
    cos_cache:T? sin_cache:T? position_ids:tensor(int64)? attention_bias:T? head_sink:T? k_scale:T_KV_SCALE?
    v_scale:T_KV_SCALE? q_norm_weight:T? k_norm_weight:T? query_seqlens:M?) -> (output:T present_key:T_CACHE?
    present_value:T_CACHE? output_qk:T?) | causal:int=1 do_rotary:int k_norm_epsilon:float k_quant_type:string=NONE
    kv_cache_bit_width:int kv_num_heads:int! local_window_size:int=-1 num_heads:int! q_norm_epsilon:float
    qk_norm_epsilon:float=1e-06 qk_output:int=0 rotary_interleaved:int scale:float sliding_window_cache:int=0
    smooth_softmax:int=-1 softcap:float v_quant_type:string=NONE | T: bfloat16 float float16; T_CACHE: bfloat16 float
    float16 float8e4m3fn int8 uint8; T_KV_SCALE: float; M: int32
LinearAttention(query:T key:T value:T past_state:S? decay:T? beta:T?) -> (output:T present_state:S) |
    chunk_size:int=64 kv_num_heads:int! q_num_heads:int! scale:float=0.0 state_window:int=0
    update_rule:string=gated_delta | T: bfloat16 float float16; S: bfloat16 float float16
LinearAttentionGate(a:T dt_bias:TF decay_scale:TF b:T?) -> (decay:T beta:T?) | | T: bfloat16 float float16; TF: float
LongformerAttention(input:T weight:T bias:T mask:T global_weight:T global_bias:T global:G) -> (output:T) |
    num_heads:int! window:int! | T: float float16; G: int32
MRotaryEmbedding(input:T position_ids:M cos_cache:T sin_cache:T) -> (output:T) | interleaved:int
    is_packed_batching:int mrope_layout:int mrope_section:ints! num_heads:int rotary_embedding_dim:int scale:float |
    T: bfloat16 float float16; M: int64
Mamba2Verify(projection:T conv_state:T ssm_state:F conv_weight:T conv_bias:T dt_bias:F A_negative:F D:F norm_weight:F
    state_row:I) -> (Y:T conv_snapshots:T ssm_snapshots:F xbc:T? readout:F?) | d_state:int=128 epsilon:float=1e-05
    head_dim:int=64 heads:int! n_groups:int! time_step_min:float=0.001 | T: bfloat16; F: float; I: int32
MultiHeadAttention(query:T key:T? value:T? bias:T? key_padding_mask:M? attention_bias:T? past_key:T? past_value:T?
    past_sequence_length:M? cache_indirection:M?) -> (output:T present_key:T? present_value:T? qk:QK?) |
    mask_filter_value:float num_heads:int! scale:float unidirectional:int=0 | T: bfloat16 float float16; QK: bfloat16
    float float16; M: int32
PackedAttention(input:T weights:T bias:T token_offset:M cumulative_sequence_length:M attention_bias:T?) -> (output:T)
    | num_heads:int! qkv_hidden_sizes:ints scale:float | T: float float16; M: int32
PackedMultiHeadAttention(query:T key:T? value:T? bias:T? token_offset:M cumulative_sequence_length:M
    attention_bias:T?) -> (output:T) | mask_filter_value:float num_heads:int! scale:float | T: float float16; M: int32
PackedSparseAttentionIndexer(query:T key:T? query_norm_weight:T key_norm_weight:T cos_cache:T sin_cache:T
    cumulative_sequence_lengths:M past_sequence_lengths:M gate:T? position_bias:T? head_weights:T? position_ids:I?
    past_key_state:T_KEY past_kv_buffer:T past_gate_buffer:T? past_state_lengths:M state_update_capture_count:M?
    state_update_active:M? indexshare_mode:M? merged_indices:M? merged_counts:M? merged_status:M?) ->
    (selected_indices:M selected_counts:M present_key_state:T_KEY present_kv_buffer:T present_gate_buffer:T?
    present_state_lengths:M state_update:T? indexshare_status:M? state_status:M?) | compress_ratio:int!
    epsilon:float=1e-06 head_weight_scale:float index_topk:int indexshare_state_policy:string=default
    max_output_entries:int=0 policy_mode:string! scale:float state_capacity:int! state_update_capacity:int=0
    token_budget:int | T: bfloat16 float float16; T_KEY: bfloat16 float float16; I: int64; M: int32
PackedSparseAttentionIndexerMerge(base_indices:T base_counts:T base_row_indices:T range_starts:T? range_ends:T?
    additional_indices:T? additional_counts:T?) -> (selected_indices:T selected_counts:T status:T) |
    max_output_entries:int! policy_mode:string! | T: int32
PagedAttention(query:T key:T? value:T? key_cache:T_CACHE value_cache:T_CACHE? cumulative_sequence_length:S
    past_seqlens:S block_table:S cos_cache:T? sin_cache:T? slot_mapping:S? head_sink:T? q_norm_weight:T?
    k_norm_weight:T? k_scale:T_KV_SCALE? v_scale:T_KV_SCALE? attention_metadata:S?) -> (output:T
    key_cache_out:T_CACHE? value_cache_out:T_CACHE?) | do_rotary:int is_causal:int=1 k_cache_dtype:string=
    k_quant_type:string=NONE kv_cache_layout:string=SEPARATE kv_num_heads:int! local_window_size:int=-1 num_heads:int!
    qk_norm_epsilon:float rotary_interleaved:int rotary_offset:int scale:float softcap:float v_cache_dtype:string=
    v_head_size:int v_quant_type:string=NONE | T: bfloat16 float16; T_CACHE: bfloat16 float16 float8e4m3fn int8 uint8;
    T_KV_SCALE: float; S: int32
QAttention(input:T1 weight:T2 bias:T3 input_scale:T3 weight_scale:T3 mask_index:T4? input_zero_point:T1?
    weight_zero_point:T2? past:T3?) -> (output:T3 present:T3?) | do_rotary:int mask_filter_value:float num_heads:int!
    past_present_share_buffer:int scale:float unidirectional:int=0 | T1: int8 uint8; T2: int8 uint8; T3: float
    float16; T4: int32
RelativePositionBias(bias_table:T query_length:U key_length:U) -> (output:T) | is_bidirectional:int=0
    max_distance:int! | T: float float16; U: int64
RemovePadding(input:T sequence_token_count:M) -> (output:T token_offset:M cumulated_seq_len:M max_seq_len:M) | | T:
    float float16; M: int32
RestorePadding(input:T token_offset:M) -> (output:T) | | T: float float16; M: int32
RotaryEmbedding(input:T position_ids:M cos_cache:T sin_cache:T) -> (output:T) | interleaved:int is_packed_batching:int
    num_heads:int rotary_embedding_dim:int scale:float | T: bfloat16 float float16; M: int64
SparseAttention(query:T key:T? value:T? past_key:T past_value:T block_row_indices:M block_col_indices:M
    total_sequence_length:M key_total_sequence_lengths:M cos_cache:T? sin_cache:T?) -> (output:T present_key:T
    present_value:T) | do_rotary:int kv_num_heads:int! num_heads:int! rotary_interleaved:int scale:float
    sparse_block_size:int! | T: bfloat16 float float16; M: int32
SparseAttentionIndexer(query:T key:T? query_norm_weight:T key_norm_weight:T cos_cache:T sin_cache:T mask:TB?
    past_key:T gate:T? position_bias:T? head_weights:T? position_ids:I? past_sequence_length:M? past_proj_buffer:T?)
    -> (selected_indices:M present_key:T present_proj_buffer:T?) | compress_ratio:int! epsilon:float=1e-06
    head_weight_scale:float index_topk:int policy_mode:string! scale:float token_budget:int | T: bfloat16 float
    float16; TB: int64; I: int64; M: int32
SparsePagedAttention(query:T key:T? value:T? key_cache:T_CACHE value_cache:T_CACHE cumulative_sequence_length:S
    past_seqlens:S block_table:S slot_mapping:S? selected_indices:S selected_counts:S auxiliary_key:T?
    auxiliary_value:T? auxiliary_lengths:S? cos_cache:T? sin_cache:T? head_sink:T? q_norm_weight:T? k_norm_weight:T?
    k_scale:T_KV_SCALE? v_scale:T_KV_SCALE? attention_metadata:S?) -> (output:T key_cache_out:T_CACHE?
    value_cache_out:T_CACHE?) | attention_mode:string=selected_only auxiliary_cache_layout:string=contiguous
    auxiliary_kv_shared:int=0 do_rotary:int=0 is_causal:int=1 k_quant_type:string=NONE kv_num_heads:int!
    local_window_size:int=-1 num_heads:int! qk_norm_epsilon:float=1e-06 rotary_interleaved:int=0 rotary_offset:int=0
    scale:float selected_kv_source:string=main softcap:float v_quant_type:string=NONE | T: bfloat16 float16; T_CACHE:
    bfloat16 float16 int8; T_KV_SCALE: float; S: int32
VarlenCausalConvWithState(input:T weight:T cumulative_sequence_length:M bias:T? initial_state:T capture_count:M?
    kernel_delta:T? previous_mask:T?) -> (output:T final_state:T state_update:T?) | activation:string=none
    delta_offset:int=0 dilation:int=1 group_size:int=1 state_update_capacity:int=0 | T: bfloat16 float float16; M:
    int32
"""
