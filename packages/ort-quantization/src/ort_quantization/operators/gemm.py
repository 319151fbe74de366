"""Gemm: the classes of onnxruntime's module of this name."""

from __future__ import annotations

from onnx import NodeProto, helper

from ort_quantization.operators import boundaries, linear
from ort_quantization.operators.built_in import MarkedOperator
from ort_quantization.operators.matmul import QOpMatMul


class QLinearGemm(QOpMatMul):
    """Writes QGemm."""

    writer = linear.write_gemm


class QDQGemm(MarkedOperator):
    """Marks the values around Gemm."""

    marker = boundaries.mark_gemm


def is_B_transposed(gemm_node: NodeProto) -> bool:  # noqa: N802 - onnxruntime's name
    """Return whether a Gemm reads its second operand transposed."""
    return any(each.name == "transB" and each.i > 0 for each in gemm_node.attribute)


def get_beta(gemm_node: NodeProto) -> float:
    """Return the factor of a Gemm's bias."""
    return next((each.f for each in gemm_node.attribute if each.name == "beta"), 1.0)


def set_default_beta(gemm_node: NodeProto) -> float:
    """Set the factor of a Gemm's bias to 1, and return it."""
    kept = [each for each in gemm_node.attribute if each.name != "beta"]
    del gemm_node.attribute[:]
    gemm_node.attribute.extend([*kept, helper.make_attribute("beta", 1.0)])
    return 1.0
