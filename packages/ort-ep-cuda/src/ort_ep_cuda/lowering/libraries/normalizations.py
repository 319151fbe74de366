"""Normalizations as calls of the library: where nothing is fused in front, a candidate beside the generated kernel.

Rows are normalized behind the last axes, images by channel; whatever the library does not take stays with the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ort_core.plugin.ir import DataType
from ort_ep_cuda.lowering.libraries.library_steps import Normalization, NormalizationKind
from ort_ep_cuda.lowering.node_facts import LoweredNode
from ort_ep_cuda.lowering.program import Launch
from ort_ep_cuda.lowering.values.tensors import LazyTensor
from ort_ep_cuda.lowering.values.views import Shape, TensorView

_TYPES = frozenset({DataType.FLOAT, DataType.FLOAT16, DataType.BFLOAT16})


def as_library_step(
    facts: LoweredNode,
    x: LazyTensor,
    affine: Sequence[LazyTensor],
    axes: Sequence[int],
    out: TensorView,
    own: Launch,
    *,
    is_centered: bool,
) -> Normalization | None:
    """Return a normalization as a step of the library, ``None`` where its form or the library does not allow it.

    Args:
        facts: the node.
        x: what is normalized; an expression stays with the kernel, which computes it on the way.
        affine: factors and summands, broadcast over ``x`` or not.
        axes: over which.
        out: where the result lies.
        own: the generated kernel.
        is_centered: whether the mean is taken off.
    """
    view = x.view
    if not facts.builder.libraries.fuses or view is None or view.dtype not in _TYPES or not affine:
        return None
    is_instance = facts.node.op_type == "InstanceNormalization"
    factors = [_vector(tensor, x.shape, axes, view.dtype, is_instance=is_instance) for tensor in affine]
    scale, bias = factors[0], factors[1] if len(factors) > 1 else None
    if scale is None or (len(factors) > 1 and bias is None) or not (view.is_dense and out.is_dense):
        return None
    kind: NormalizationKind = "instance" if is_instance else "layer" if is_centered else "rms"
    if not is_instance:
        rows = (math.prod(x.shape[: axes[0]]), math.prod(x.shape[axes[0] :]))
        view, out = view.regrouped(rows), out.regrouped(rows)
    step = Normalization(out, view, scale, bias, facts.node.float_attribute("epsilon", 1e-5), kind, own)
    return step if facts.builder.libraries.refuse(step) is None else None


def _vector(
    tensor: LazyTensor, shape: Shape, axes: Sequence[int], dtype: DataType, *, is_instance: bool
) -> TensorView | None:
    """Return factors as a dense vector: one for each column of a row, or for each channel."""
    view = tensor.view
    if view is None or view.dtype is not dtype:
        return None
    wanted = (1,) if is_instance else tuple(axes)
    added = len(shape) - len(view.shape)
    kept, strides = (1,) * added + view.shape, (0,) * added + view.strides
    if any(kept[a] != 1 and strides[a] != 0 for a in range(len(shape)) if a not in wanted):
        return None
    if any(kept[a] != shape[a] for a in wanted):
        return None
    vector = TensorView(
        view.buffer, view.dtype, tuple(kept[a] for a in wanted), tuple(strides[a] for a in wanted), view.offset
    )
    return vector.regrouped((math.prod(vector.shape),)) if vector.is_dense else None
