"""Text generation, tokenizing and hashing of text, and the markers of compiled subgraphs."""

from __future__ import annotations

DOMAIN = "com.microsoft"
SCHEMAS = """
BeamSearch(input_ids:F max_length:I min_length:I? num_beams:I num_return_sequences:I length_penalty:T?
    repetition_penalty:T? vocab_mask:M? prefix_vocab_mask:M? attention_mask:I? decoder_input_ids:I?
    logits_processor:I?) -> (sequences:I sequences_scores:T? scores:T?) | decoder:graph! decoder_start_token_id:int=-1
    early_stopping:int=0 encoder:graph eos_token_id:int! init_decoder:graph model_type:int=0
    no_repeat_ngram_size:int=0 pad_token_id:int! vocab_size:int=-1 | T: float float16; F: float float16 int32; I:
    int32; M: int32
BifurcationDetector(src_tokens:T cur_tokens:T prev_suffix_match_idx:T pred_tokens:T?) -> (tokens:T suffix_match_idx:T)
    | max_ngram_size:int=3 min_ngram_size:int=1 | T: int64
EPContext(inputs:T*~) -> (outputs:T*~) | embed_mode:int=1 ep_cache_context:string ep_sdk_version:string
    hardware_architecture:string main_context:int=1 max_size:int=0 notes:string onnx_model_filename:string
    partition_name:string source:string | T: NUMBERS_AND_BOOL
GreedySearch(input_ids:I max_length:I min_length:I? repetition_penalty:T? vocab_mask:I? prefix_vocab_mask:I?
    attention_mask:I?) -> (sequences:I) | decoder:graph! decoder_start_token_id:int=-1 encoder:graph eos_token_id:int!
    init_decoder:graph model_type:int=0 no_repeat_ngram_size:int=0 pad_token_id:int! vocab_size:int=-1 | T: float; I:
    int32
MurmurHash3(X:T1) -> (Y:T2) | positive:int=1 seed:int=0 | T1: double float int32 int64 string uint32 uint64; T2: int32
    uint32
NGramHashMapping(input_ids:M multipliers:M vocab_sizes:M past_ids:M? head_offsets:M? eos_token_id:M?
    segment_ids:tensor(int32)?) -> (hash_ids:M present_ids:M?) | max_ngram_size:int! n_head_per_ngram:int! pad_id:int!
    reset_on_eos:int=0 | M: int32 int64
NGramRepeatBlock(input_ids:Tid scores:T) -> (scores_out:T) | ngram_size:int! | Tid: int64; T: float
Sampling(input_ids:I max_length:I min_length:I? repetition_penalty:T? vocab_mask:I? prefix_vocab_mask:I?
    attention_mask:I? presence_mask:I? seed:I?) -> (sequences:I filtered_logits:T?) | custom:int=0 decoder:graph!
    decoder_start_token_id:int=-1 encoder:graph eos_token_id:int! filter_value:float=-1e+20 init_decoder:graph
    min_tokens_to_keep:int=0 model_type:int=0 no_repeat_ngram_size:int=0 pad_token_id:int! presence_penalty:float=0.0
    temperature:float=1.0 top_p:float=0.0 vocab_size:int=-1 | T: float; I: int32
Snpe(inputs:T*) -> (outputs:T*) | DLC:string! notes:string snpe_version:string target_device:string | T: float uint16
    uint8
SpeculativePrefixCommit(next_tokens:I64 input_ids:I64 status:I32 ctl:I64 ctx_commit:I64 prefixes:I64 ptrs:I64) ->
    (head_c:I32 updated_ctl:I64 updated_ctx_commit:I64) | head_rows:int=8 | I64: int64; I32: int32
Tokenizer(X:T) -> (Y:T) | mark:int! mincharnum:int! pad_value:string! separators:strings tokenexp:string | T: string
VarlenNGramHashMapping(input_ids:M multipliers:M vocab_sizes:M cumulative_sequence_length:S past_ids:M?
    head_offsets:M? eos_token_id:M? segment_ids:tensor(int32)? past_segment_ids:S? capture_count:S?) -> (hash_ids:M
    present_ids:M? present_segment_ids:S? state_update:M?) | max_ngram_size:int! n_head_per_ngram:int! pad_id:int!
    reset_on_eos:int=0 state_update_capacity:int=0 | M: int32 int64; S: int32
WhisperBeamSearch(input_ids:F max_length:I min_length:I? num_beams:I num_return_sequences:I length_penalty:T?
    repetition_penalty:T? vocab_mask:M? prefix_vocab_mask:M? attention_mask:I? decoder_input_ids:I?
    logits_processor:I? cross_qk_layer_head:I? extra_decoding_ids:I? temperature:T?) -> (sequences:I
    sequences_scores:T? scores:T? cross_qk:V? non_speech_probs:T?) | beginning_timestamp_token_id:int decoder:graph!
    decoder_output_cross_qk:int decoder_start_token_id:int=-1 early_stopping:int=0 encoder:graph eos_token_id:int!
    init_decoder:graph model_type:int=2 no_repeat_ngram_size:int=0 no_speech_token_id:int no_timestamps_token_id:int
    pad_token_id:int! start_of_lm_token_id:int transcribe_token_id:int translate_token_id:int vocab_size:int=-1 | T:
    float float16; F: float float16 int32; I: int32; M: int32; V: float
WordConvEmbedding(Sequence:T W:T1 B:T1 C:T1) -> (Y:T1) | char_embedding_size:int conv_window_size:int
    embedding_size:int | T: int32; T1: float
"""
