"""Operators for plugin authors (provisional): what the hook ``ort_custom_ops`` returns, its parts, known contents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ort_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from ort_core.custom_ops.custom_op import CustomOp, custom_op
    from ort_core.custom_ops.definition import OpDefinition
    from ort_core.custom_ops.elementwise_op import elementwise_op
    from ort_core.custom_ops.function_op import function_definition
    from ort_core.custom_ops.library import OpLibrary
    from ort_core.custom_ops.reference_op import reference_definition
    from ort_core.custom_ops.shape_rule import TensorShape, broadcast_shapes
    from ort_core.ops.attention import (
        AttentionFeature,
        AttentionRecord,
        Cache,
        Growth,
        HeadSource,
        Layout,
        Lengths,
        Pages,
        Projection,
        Rotary,
        ScoreStage,
    )
    from ort_core.ops.attention_forms import node_attention
    from ort_core.ops.constant_node import constant_of_node
    from ort_core.ops.known_contents import known_contents
    from ort_core.ops.last_inference import LastInference
    from ort_core.ops.resize_filters import ResizeFilter
    from ort_core.ops.resized_axes import (
        TIE,
        ResizedAxis,
        aspect_factor,
        changed_axes,
        goes_by_scale,
        nearest_inputs,
        plan_resized_axes,
        scaled_size,
        source_coordinates,
    )
    from ort_core.ops.schema import AttributeSchema, OpSchema, Parameter, ParameterOption
    from ort_core.ops.shape_arithmetic import is_before_beginning, is_beyond_end, slice_bound, slice_range
    from ort_core.ops.value_range import ValueRanges, type_interval
    from ort_core.ops.version_table import VersionTable
    from ort_core.ops.windows import SAME, TransposedAxis, WindowAxis, known_sizes, node_transposed, node_windows

__all__ = [
    "SAME", "TIE", "AttentionFeature", "AttentionRecord", "AttributeSchema", "Cache", "CustomOp", "Growth",
    "HeadSource", "LastInference", "Layout", "Lengths", "OpDefinition", "OpLibrary", "OpSchema", "Pages", "Parameter",
    "ParameterOption", "Projection", "ResizeFilter", "ResizedAxis", "Rotary", "ScoreStage", "TensorShape",
    "TransposedAxis", "ValueRanges", "VersionTable", "WindowAxis", "aspect_factor", "broadcast_shapes", "changed_axes",
    "constant_of_node", "custom_op", "elementwise_op", "function_definition", "goes_by_scale", "is_before_beginning",
    "is_beyond_end", "known_contents", "known_sizes", "nearest_inputs", "node_attention", "node_transposed",
    "node_windows", "plan_resized_axes", "reference_definition", "scaled_size", "slice_bound", "slice_range",
    "source_coordinates", "type_interval",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(  # no plugin pays for names that it does not use
    __name__,
    {
        "ort_core.custom_ops.custom_op": ("CustomOp", "custom_op"),
        "ort_core.custom_ops.definition": ("OpDefinition",),
        "ort_core.custom_ops.elementwise_op": ("elementwise_op",),
        "ort_core.custom_ops.function_op": ("function_definition",),
        "ort_core.custom_ops.library": ("OpLibrary",),
        "ort_core.custom_ops.reference_op": ("reference_definition",),
        "ort_core.custom_ops.shape_rule": ("TensorShape", "broadcast_shapes"),
        "ort_core.ops.attention": (
            "AttentionFeature", "AttentionRecord", "Cache", "Growth", "HeadSource", "Layout", "Lengths", "Pages",
            "Projection", "Rotary", "ScoreStage",
        ),
        "ort_core.ops.attention_forms": ("node_attention",),
        "ort_core.ops.constant_node": ("constant_of_node",),
        "ort_core.ops.known_contents": ("known_contents",),
        "ort_core.ops.last_inference": ("LastInference",),
        "ort_core.ops.resize_filters": ("ResizeFilter",),
        "ort_core.ops.resized_axes": (
            "TIE", "ResizedAxis", "aspect_factor", "changed_axes", "goes_by_scale", "nearest_inputs",
            "plan_resized_axes", "scaled_size", "source_coordinates",
        ),
        "ort_core.ops.schema": ("AttributeSchema", "OpSchema", "Parameter", "ParameterOption"),
        "ort_core.ops.shape_arithmetic": ("is_before_beginning", "is_beyond_end", "slice_bound", "slice_range"),
        "ort_core.ops.value_range": ("ValueRanges", "type_interval"),
        "ort_core.ops.version_table": ("VersionTable",),
        "ort_core.ops.windows": (
            "SAME", "TransposedAxis", "WindowAxis", "known_sizes", "node_transposed", "node_windows",
        ),
    },
)  # fmt: skip
