"""Numbers that fields of operators take, by the names of the header without the prefix of their enumeration."""

from __future__ import annotations

import enum


class ReduceFunction(enum.IntEnum):
    """``DML_REDUCE_FUNCTION``."""

    ARGMAX = 0
    ARGMIN = 1
    AVERAGE = 2
    L1 = 3
    L2 = 4
    LOG_SUM = 5
    LOG_SUM_EXP = 6
    MAX = 7
    MIN = 8
    MULTIPLY = 9
    SUM = 10
    SUM_SQUARE = 11


class MatrixTransform(enum.IntEnum):
    """``DML_MATRIX_TRANSFORM``."""

    NONE = 0
    TRANSPOSE = 1


class ConvolutionMode(enum.IntEnum):
    """``DML_CONVOLUTION_MODE``: ONNX means cross-correlation."""

    CONVOLUTION = 0
    CROSS_CORRELATION = 1


class ConvolutionDirection(enum.IntEnum):
    """``DML_CONVOLUTION_DIRECTION``: backward is the transposed convolution."""

    FORWARD = 0
    BACKWARD = 1


class PaddingMode(enum.IntEnum):
    """``DML_PADDING_MODE``; ``WRAP`` from feature level 6.4."""

    CONSTANT = 0
    EDGE = 1
    REFLECTION = 2
    SYMMETRIC = 3
    WRAP = 4


class InterpolationMode(enum.IntEnum):
    """``DML_INTERPOLATION_MODE``."""

    NEAREST_NEIGHBOR = 0
    LINEAR = 1


class RecurrentDirection(enum.IntEnum):
    """``DML_RECURRENT_NETWORK_DIRECTION``."""

    FORWARD = 0
    BACKWARD = 1
    BIDIRECTIONAL = 2


class RoundingMode(enum.IntEnum):
    """``DML_ROUNDING_MODE``."""

    HALVES_TO_NEAREST_EVEN = 0
    TOWARD_ZERO = 1
    TOWARD_INFINITY = 2


class InfinityMode(enum.IntEnum):
    """``DML_IS_INFINITY_MODE``."""

    EITHER = 0
    POSITIVE = 1
    NEGATIVE = 2


class AxisDirection(enum.IntEnum):
    """``DML_AXIS_DIRECTION``: of sums the way they run, of rankings which end comes first."""

    INCREASING = 0
    DECREASING = 1


class DepthSpaceOrder(enum.IntEnum):
    """``DML_DEPTH_SPACE_ORDER``: ONNX's DCR and CRD."""

    DEPTH_COLUMN_ROW = 0
    COLUMN_ROW_DEPTH = 1


class AttentionMask(enum.IntEnum):
    """``DML_MULTIHEAD_ATTENTION_MASK_TYPE``."""

    NONE = 0
    KEY_SEQUENCE_LENGTH = 1
    KEY_SEQUENCE_END_START = 2
    KEY_QUERY_SEQUENCE_LENGTH_START_END = 3
    BOOLEAN = 4
