"""Convolutions of images with the channels last: NhwcConv of com.microsoft, which onnxruntime runs on GPUs alone.

    y = Conv(x, w, b)  ->  y = Transpose(NhwcConv(Transpose(x), w with its channels last, b))

The Transposes of neighbors cancel behind it.
"""

from __future__ import annotations

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.ir import DataType, TensorType
from ort_core.plugin.passes import Level, RulePass
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, constant, op, optional, var
from ort_transformers.fusing.fixed_constants import constant_array
from ort_transformers.fusing.skip_group_norms import FROM_LAST, MICROSOFT, TO_LAST, turned_type

_TYPES = frozenset({DataType.FLOAT, DataType.FLOAT16})


class NhwcConvolutions(RewriteRule[None]):
    """Write a convolution of images as one with the channels last."""

    name = "NhwcConvolutions"
    emits = ((MICROSOFT, "NhwcConv"),)

    def build_pattern(self) -> Pattern:
        """Return a convolution with constant weights of four axes."""
        weights = constant("weights", where=lambda found: len(found.shape) == len(TO_LAST))
        return op("Conv", var("images"), weights, optional(var("bias")), name="conv")

    def check(self, match: Match) -> Rejection | None:
        """The element type must be one of the kernel's."""
        images = match["images"].type
        if not isinstance(images, TensorType) or images.dtype not in _TYPES:
            return Rejection("NhwcConv is for float32 and float16", match.root)
        return None

    def rewrite(self, match: Match, bindings: None) -> GraphPatch:
        """Put NhwcConv between two Transposes there."""
        patch, conv = GraphPatch(match.model, match.root), match.node("conv")
        images, weights, result = match["images"], match["weights"], match.output
        last = np.ascontiguousarray(constant_array(weights).transpose(TO_LAST))
        inputs = [
            patch.op("Transpose", [images], {"perm": TO_LAST}, type=turned_type(images, TO_LAST)),
            patch.constant(last, f"{weights.name}_channels_last"),
            *([match["bias"]] if "bias" in match else []),
        ]
        made = patch.op(
            "NhwcConv", inputs, dict(conv.attributes), type=turned_type(result, TO_LAST), domain=MICROSOFT,
            name=conv.name,
        )  # fmt: skip
        patch.replace(result, patch.op("Transpose", [made], {"perm": FROM_LAST}, type=result.type))
        patch.remove(conv)
        return patch


NHWC_CONVOLUTIONS = RulePass("NhwcConvFusion", [NhwcConvolutions()], Level.EXTENDED)
