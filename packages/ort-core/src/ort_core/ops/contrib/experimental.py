"""Operators that onnxruntime registers in ai.onnx beyond the standard: old experimental ones, and its own."""

from __future__ import annotations

DOMAIN = ""
SCHEMAS = """
Affine(X:T) -> (Y:T) | alpha:float=1.0 beta:float=0.0 | T: double float float16
Affine@10!(X:T) -> (Y:T) | alpha:float=1.0 beta:float=0.0 | T: double float float16
Crop(input:T) -> (output:T) | border:ints scale:ints | T: double float float16
Crop@10!(input:T) -> (output:T) | border:ints! scale:ints | T: double float float16
DisentangledAttention_TRT(c2c_attention:T c2p_attention:T p2c_attention:T) -> (disentangled_attention:T) |
    factor:float! span:int! | T: float float16
DynamicSlice(data:T starts:Tind ends:Tind axes:Tind?) -> (output:T) | | T: CLASSIC; Tind: int32 int64
DynamicSlice@10!(data:T starts:Tind ends:Tind axes:Tind?) -> (output:T) | | T: CLASSIC; Tind: int32 int64
EfficientNMS_TRT(boxes:T scores:T anchors:T?) -> (num_detections:tensor(int32) detection_boxes:T detection_scores:T
    detection_classes:tensor(int32)) | background_class:int! box_coding:int! iou_threshold:float!
    max_output_boxes:int! plugin_version:string! score_activation:int! score_threshold:float! | T: float float16
GRUUnit(hidden_prev:T gates:T seq_lengths:T t:T) -> (hidden:T) | drop_states:int | T: double float float16
GRUUnit@10!(hidden_prev:T gates:T seq_lengths:T t:T) -> (hidden:T) | drop_states:int | T: double float float16
GivenTensorFill(shape:T?) -> (X:T) | extra_shape:ints input_as_shape:int shape:ints values:floats | T: double float
    float16
GivenTensorFill@10!(shape:T?) -> (X:T) | extra_shape:ints input_as_shape:int shape:ints values:floats | T: double
    float float16
ImageScaler(input:T) -> (output:T) | bias:floats scale:float=1.0 | T: double float float16
ImageScaler@10!(input:T) -> (output:T) | bias:floats scale:float=1.0 | T: double float float16
LayerNormalization(X:T Scale:V B:V?) -> (Y:V Mean:U? InvStdDev:U?) | axis:int=-1 epsilon:float=1e-05 stash_type:int=1
    | T: bfloat16 double float float16; U: double float; V: bfloat16 double float float16
MeanVarianceNormalization(input:T) -> (output:T) | across_channels:int=0 normalize_variance:int=1 | T: double float
    float16
MemcpyFromHost(X:T) -> (Y:T) | | T: seq(tensor(bfloat16)) seq(tensor(bool)) seq(tensor(complex128))
    seq(tensor(complex64)) seq(tensor(double)) seq(tensor(float)) seq(tensor(float16)) seq(tensor(int16))
    seq(tensor(int32)) seq(tensor(int64)) seq(tensor(int8)) seq(tensor(uint16)) seq(tensor(uint32))
    seq(tensor(uint64)) seq(tensor(uint8)) bfloat16 bool complex128 complex64 double float float16 float8e4m3fn
    float8e4m3fnuz float8e5m2 float8e5m2fnuz int16 int32 int64 int8 uint16 uint32 uint64 uint8
MemcpyToHost(X:T) -> (Y:T) | | T: seq(tensor(bfloat16)) seq(tensor(bool)) seq(tensor(complex128))
    seq(tensor(complex64)) seq(tensor(double)) seq(tensor(float)) seq(tensor(float16)) seq(tensor(int16))
    seq(tensor(int32)) seq(tensor(int64)) seq(tensor(int8)) seq(tensor(uint16)) seq(tensor(uint32))
    seq(tensor(uint64)) seq(tensor(uint8)) bfloat16 bool complex128 complex64 double float float16 float8e4m3fn
    float8e4m3fnuz float8e5m2 float8e5m2fnuz int16 int32 int64 int8 uint16 uint32 uint64 uint8
MultilevelCropAndResize_TRT(boxes:T feature_map_0:T feature_map_1:T feature_map_2:T feature_map_3:T) -> (patches:T) |
    image_size:ints! plugin_version:string! pooled_size:int! | T: float
ParametricSoftplus(X:T) -> (Y:T) | alpha:float beta:float | T: double float float16
ParametricSoftplus@10!(X:T) -> (Y:T) | alpha:float beta:float | T: double float float16
PyramidROIAlign_TRT(boxes:T feature_map_0:T feature_map_1:T feature_map_2:T feature_map_3:T) -> (patches:T) |
    plugin_version:string! pooled_size:int! | T: float
Scale(input:T) -> (output:T) | scale:float=1.0 | T: double float float16
Scale@10!(input:T) -> (output:T) | scale:float=1.0 | T: double float float16
ScaledTanh(input:T) -> (output:T) | alpha:float beta:float | T: double float float16
ScaledTanh@10!(input:T) -> (output:T) | alpha:float beta:float | T: double float float16
SimplifiedLayerNormalization(X:T scale:V) -> (Y:V inv_std_var:U?) | axis:int=-1 epsilon:float=1e-05 stash_type:int=1 |
    T: bfloat16 double float float16; U: double float; V: bfloat16 double float float16
ThresholdedRelu(X:T) -> (Y:T) | alpha:float=1.0 | T: double float float16
"""
