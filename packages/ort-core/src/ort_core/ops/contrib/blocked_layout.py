"""The operators of com.microsoft.nchwc, which work on channels in blocks."""

from __future__ import annotations

DOMAIN = "com.microsoft.nchwc"
SCHEMAS = """
AveragePool(X:T) -> (Y:T) | auto_pad:string=NOTSET ceil_mode:int=0 count_include_pad:int=0 dilations:ints
    kernel_shape:ints! pads:ints strides:ints | T: float
Conv(X:T W:T B:T? Sum:T?) -> (Y:T) | activation:string activation_params:floats auto_pad:string=NOTSET dilations:ints
    group:int=1 kernel_shape:ints pads:ints strides:ints | T: float
GlobalAveragePool(X:T) -> (Y:T) | | T: float
GlobalMaxPool(X:T) -> (Y:T) | | T: float
MaxPool(X:T) -> (Y:T) | auto_pad:string=NOTSET ceil_mode:int=0 dilations:ints kernel_shape:ints! pads:ints
    storage_order:int=0 strides:ints | T: float
ReorderInput(X:T) -> (Y:T) | channels_last:int=0 | T: float
ReorderOutput(X:T) -> (Y:T) | channels:int=0 channels_last:int=0 | T: float
Upsample(X:T) -> (Y:T) | coordinate_transformation_mode:string=asymmetric mode:string=nearest scales:ints | T: float
"""
