"""Quantized operators."""

from __future__ import annotations

DOMAIN = "com.microsoft"
SCHEMAS = """
DequantizeLinear(x:T1 x_scale:T2 x_zero_point:T1?) -> (y:T2) | axis:int | T1: int16 int32 int4 int8 uint16 uint4
    uint8; T2: float float16
DynamicQuantizeLSTM(X:T W:T2 R:T2 B:T? sequence_lens:T1? initial_h:T? initial_c:T? P:T? W_scale:T W_zero_point:T2
    R_scale:T R_zero_point:T2) -> (Y:T? Y_h:T? Y_c:T?) | activation_alpha:floats activation_beta:floats
    activations:strings clip:float direction:string=forward hidden_size:int input_forget:int=0 | T: float; T1: int32;
    T2: int8 uint8
DynamicQuantizeMatMul(A:T1 B:T2 b_scale:T1 b_zero_point:T2? bias:T1?) -> (Y:T1) | | T1: float; T2: int8 uint8
MatMulInteger16(A:T1 B:T2) -> (Y:T3) | | T1: int16 uint16; T2: int16 uint16; T3: int32 uint32
MatMulIntegerToFloat(A:T1 B:T2 a_scale:T3 b_scale:T3 a_zero_point:T1? b_zero_point:T2? bias:T3?) -> (Y:T3) | | T1:
    int8 uint8; T2: int8 uint8; T3: float float16
MulInteger(A:T A_zero_point:T? B:T B_zero_point:T?) -> (C:T1) | | T: int8 uint8; T1: int32
QEmbedLayerNormalization(input_ids:T1 segment_ids:T1? word_embedding_quant:T2 position_embedding_quant:T2
    segment_embedding:T2? gamma_quant:T2 beta_quant:T2 mask:T1? word_embedding_scale:T position_embedding_scale:T
    segment_embedding_scale:T? gamma_scale:T beta_scale:T word_embedding_zero_point:T2
    position_embedding_zero_point:T2 segment_embedding_zero_point:T2? gamma_zero_point:T2 beta_zero_point:T2) ->
    (layernorm_out:T mask_index_out:T1) | epsilon:float=1e-12 | T1: int32; T2: int8 uint8; T: float
QGemm(A:TA a_scale:T a_zero_point:TA B:TB b_scale:T b_zero_point:TB C:TC? y_scale:T? y_zero_point:TYZ?) -> (Y:TY) |
    alpha:float=1.0 transA:int=0 transB:int=0 | T: float; TA: int8 uint8; TB: int8 uint8; TC: int32; TYZ: int8 uint8;
    TY: float int8 uint8
QLinearAdd(A:T A_scale:tensor(float) A_zero_point:T? B:T B_scale:tensor(float) B_zero_point:T? C_scale:tensor(float)
    C_zero_point:T?) -> (C:T) | | T: int8 uint8
QLinearAveragePool(X:T x_scale:tensor(float) x_zero_point:T? y_scale:tensor(float) y_zero_point:T?) -> (Y:T) |
    auto_pad:string=NOTSET ceil_mode:int=0 channels_last:int=0 count_include_pad:int=0 kernel_shape:ints! pads:ints
    strides:ints | T: int8 uint8
QLinearConcat(Y_scale:TF Y_zero_point:T8 inputs:TV*~) -> (Y:T8) | axis:int! | T8: int8 uint8; TF: float; TV: float
    int8 uint8
QLinearConv(x:T1 x_scale:tensor(float) x_zero_point:T1 w:T2 w_scale:tensor(float) w_zero_point:T2
    y_scale:tensor(float) y_zero_point:T3 B:T4?) -> (y:T3) | auto_pad:string=NOTSET channels_last:int=0 dilations:ints
    group:int=1 kernel_shape:ints pads:ints strides:ints | T1: int8 uint8; T2: int8 uint8; T3: int8 uint8; T4: int32
QLinearGlobalAveragePool(X:T x_scale:tensor(float) x_zero_point:T y_scale:tensor(float) y_zero_point:T) -> (Y:T) |
    channels_last:int=0 | T: int8 uint8
QLinearLeakyRelu(X:T X_scale:tensor(float) X_zero_point:T? Y_scale:tensor(float) Y_zero_point:T?) -> (Y:T) |
    alpha:float=0.01 | T: int8 uint8
QLinearMul(A:T A_scale:tensor(float) A_zero_point:T? B:T B_scale:tensor(float) B_zero_point:T? C_scale:tensor(float)
    C_zero_point:T?) -> (C:T) | | T: int8 uint8
QLinearReduceMean(data:T data_scale:tensor(float) data_zero_point:T? reduced_scale:tensor(float)
    reduced_zero_point:T?) -> (reduced:T) | axes:ints! keepdims:int! | T: int8 uint8
QLinearSigmoid(X:T X_scale:tensor(float) X_zero_point:T? Y_scale:tensor(float) Y_zero_point:T?) -> (Y:T) | | T: int8
    uint8
QLinearSoftmax(X:T X_scale:tensor(float) x_zero_point:T? y_scale:tensor(float) y_zero_point:T) -> (Y:T) | axis:int=-1
    opset:int! | T: int8 uint8
QLinearWhere(condition:B X:T x_scale:TF x_zero_point:T Y:T y_scale:TF y_zero_point:T z_scale:TF z_zero_point:T) ->
    (Z:T) | | B: bool; TF: float; T: int8 uint8
QuantizeLinear(x:T1 y_scale:T1 y_zero_point:T2?) -> (y:T2) | axis:int | T1: float float16; T2: int16 int4 int8 uint16
    uint4 uint8
ReduceSumInteger(data:T1) -> (reduced:T2) | axes:ints! keepdims:int! | T1: int8 uint8; T2: int32 uint32
"""
