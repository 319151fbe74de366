"""Tensor operators: convolutions, pooling, images, indexing, Fourier transforms."""

from __future__ import annotations

DOMAIN = "com.microsoft"
SCHEMAS = """
AttnLSTM(X:T W:T R:T B:T? sequence_lens:T1? initial_h:T? initial_c:T? P:T? QW:T? MW:T? V:T? M:T? memory_seq_lens:T1?
    AW:T?) -> (Y:T? Y_h:T? Y_c:T?) | activation_alpha:floats activation_beta:floats activations:strings clip:float
    direction:string=forward hidden_size:int input_forget:int=0 | T: double float; T1: int32
CDist(A:T B:T) -> (C:T) | metric:string=sqeuclidean | T: double float
ComplexMul(A:T B:T) -> (C:T) | | T: double float float16
ComplexMulConj(A:T B:T) -> (C:T) | | T: double float float16
ConvTransposeWithDynamicPads(X:T W:T Pads:tensor(int64)? B:T?) -> (Y:T) | auto_pad:string=NOTSET dilations:ints
    group:int=1 kernel_shape:ints output_padding:ints strides:ints | T: double float float16
CropAndResize(X:T1 rois:T1 batch_indices:T2 crop_size:T2) -> (Y:T1) | extrapolation_value:float=0.0
    mode:string=bilinear | T1: double float float16; T2: int32
DynamicTimeWarping(input:F) -> (output:I) | | F: float; I: int32
ExpandDims(X:T axis:tensor(int32)) -> (Y:T) | | T: CLASSIC
FusedConv(X:T W:T B:T? Z:T?) -> (Y:T) | activation:string activation_params:floats auto_pad:string=NOTSET
    dilations:ints group:int=1 kernel_shape:ints pads:ints strides:ints | T: double float float16
GatherND(data:T indices:Tind) -> (output:T) | | T: CLASSIC; Tind: int32 int64
GatherPacked(data:T1 indices:Tind) -> (output:T2) | K:int! output_dtype:int=16 packed_type:int! | T1: uint8; T2:
    bfloat16 float float16; Tind: int32 int64
GridSample(X:T1 Grid:T1) -> (Y:T2) | align_corners:int=0 mode:string=bilinear padding_mode:string=zeros | T1: CLASSIC;
    T2: double float float16
Inverse(X:T) -> (Y:T) | | T: double float float16
Irfft(X:T) -> (Y:T) | normalized:int=0 onesided:int=1 signal_ndim:int! | T: double float float16
IsAllFinite(input:V*) -> (output:T) | isinf_only:int=0 isnan_only:int=0 | V: bfloat16 double float float16; T: bool
MaxpoolWithMask(X:T M:tensor(int32)) -> (Y:T) | auto_pad:string=NOTSET kernel_shape:ints pads:ints storage_order:int=0
    strides:ints | T: float
NhwcConv(X:T W:T B:T?) -> (Y:T) | auto_pad:string=NOTSET dilations:ints group:int=1 kernel_shape:ints pads:ints
    strides:ints | T: double float float16
NhwcFusedConv(X:T W:T B:T? Z:T?) -> (Y:T) | activation:string activation_params:floats auto_pad:string=NOTSET
    dilations:ints group:int=1 kernel_shape:ints pads:ints strides:ints | T: float float16
NhwcMaxPool(x:T) -> (y:T) | auto_pad:string=NOTSET ceil_mode:int=0 dilations:ints kernel_shape:ints! pads:ints
    strides:ints | T: int8 uint8
Pad(data:T pads:tensor(int64) value:T?) -> (output:T) | mode:string=constant | T: double float float16
Range(start:T limit:T delta:T?) -> (Y:T) | | T: double float int16 int32 int64
Rfft(X:T) -> (Y:T) | normalized:int=0 onesided:int=1 signal_ndim:int=1 | T: double float float16
SampleOp(X:T) -> (Y:T) | | T: double float float16 int32 int64 uint32 uint64
TorchEmbedding(weight:T indices:tensor(int64) padding_idx:tensor(int64)? scale_grad_by_freq:tensor(bool)?) -> (Y:T) |
    | T: NUMBERS
Trilu(X:T k:tensor(int64)?) -> (Y:T) | upper:int=1 | T: NUMBERS_AND_BOOL
UnfoldTensor(input:T) -> (output:T) | dim:int=-1 size:int! step:int=1 | T: CLASSIC_BFLOAT16
Unique(x:T) -> (y:T idx:tensor(int64) counts:tensor(int64)) | | T: CLASSIC
"""
