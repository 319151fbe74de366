"""Which element types and ranks the tensors of an operator may have, by feature level.

A line is an operator and its groups of tensors, ``Name,Name:types``. Tensors of one group have the same type. A type
behind ``@`` needs that feature level. ``REDUCE`` has a line for each of its functions. ``ranks`` bounds the number of
dimensions where it is not one to eight. What has no line is not used here.

Source: what the library of feature level 6.2 accepts, found by asking it for every type and rank (the test session of
this package asks it again), and its release notes for what levels 5.2 to 6.2 added.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ort_ep_directml.schema.element_types import ElementType
from ort_ep_directml.schema.operators import level_text, parse_level

TABLE_LEVEL = 0x5200
"""The oldest feature level that the table speaks for: DirectML 1.10. Devices of older ones are asked, too."""

MAX_RANK = 8

_NAMES = {
    "f32": ElementType.FLOAT32, "f16": ElementType.FLOAT16, "f64": ElementType.FLOAT64,
    "u8": ElementType.UINT8, "u16": ElementType.UINT16, "u32": ElementType.UINT32, "u64": ElementType.UINT64,
    "i8": ElementType.INT8, "i16": ElementType.INT16, "i32": ElementType.INT32, "i64": ElementType.INT64,
}  # fmt: skip

_FLOATS = "f32|f16"
_NARROW = "u32|u16|u8|i32|i16|i8"
_NUMBERS = f"{_FLOATS}|{_NARROW}|u64|i64"
_ALL = f"{_NUMBERS}|f64"
_INDICES = "u32|i32|u64|i64"
_WIDE = f"{_FLOATS}|u32|i32|u64|i64"
_SIGNED = f"{_FLOATS}|i32|i16|i8|i64"
_RECENT = f"{_FLOATS}|{_NARROW}|u64@6.0|i64@6.0"

_TABLE = f"""
ELEMENT_WISE_IDENTITY Input,Output:{_ALL}
ELEMENT_WISE_ABS Input,Output:{_SIGNED}
ELEMENT_WISE_ADD A,B,Output:{_NUMBERS}
ELEMENT_WISE_ATAN Input,Output:{_FLOATS}
ELEMENT_WISE_CEIL Input,Output:{_FLOATS}
ELEMENT_WISE_COS Input,Output:{_FLOATS}
ELEMENT_WISE_DIVIDE A,B,Output:{_RECENT}
ELEMENT_WISE_EXP Input,Output:{_FLOATS}
ELEMENT_WISE_FLOOR Input,Output:{_FLOATS}
ELEMENT_WISE_LOG Input,Output:{_FLOATS}
ELEMENT_WISE_LOGICAL_AND A,B,Output:u8|u32
ELEMENT_WISE_LOGICAL_EQUALS A,B:{_NUMBERS} Output:u8|u32
ELEMENT_WISE_LOGICAL_GREATER_THAN A,B:{_NUMBERS} Output:u8|u32
ELEMENT_WISE_LOGICAL_LESS_THAN A,B:{_NUMBERS} Output:u8|u32
ELEMENT_WISE_LOGICAL_NOT Input,Output:u8|u32
ELEMENT_WISE_LOGICAL_OR A,B,Output:u8|u32
ELEMENT_WISE_LOGICAL_XOR A,B,Output:u8|u32
ELEMENT_WISE_MAX A,B,Output:{_NUMBERS}
ELEMENT_WISE_MIN A,B,Output:{_NUMBERS}
ELEMENT_WISE_MULTIPLY A,B,Output:{_NUMBERS}
ELEMENT_WISE_POW Input,Output:{_FLOATS}|{_NARROW} Exponent:{_FLOATS}|{_NARROW}
ELEMENT_WISE_RECIP Input,Output:{_FLOATS}
ELEMENT_WISE_SIN Input,Output:{_FLOATS}
ELEMENT_WISE_SQRT Input,Output:{_FLOATS}
ELEMENT_WISE_SUBTRACT A,B,Output:{_NUMBERS}
ELEMENT_WISE_TAN Input,Output:{_FLOATS}
ELEMENT_WISE_QUANTIZE_LINEAR Input,Scale:f32|f16@6.0 ZeroPoint,Output:u8|i8
ELEMENT_WISE_DEQUANTIZE_LINEAR Input,ZeroPoint:{_NARROW} Scale,Output:f32|f16@6.0
ACTIVATION_ELU Input,Output:{_FLOATS}
ACTIVATION_HARD_SIGMOID Input,Output:{_FLOATS}
ACTIVATION_LEAKY_RELU Input,Output:{_FLOATS}
ACTIVATION_LINEAR Input,Output:{_FLOATS}
ACTIVATION_PARAMETERIZED_RELU Input,Slope,Output:{_FLOATS}|i32|i16|i8
ACTIVATION_RELU Input,Output:{_FLOATS}|i32|i16|i8
ACTIVATION_SCALED_ELU Input,Output:{_FLOATS}
ACTIVATION_SIGMOID Input,Output:{_FLOATS}
ACTIVATION_SOFTPLUS Input,Output:{_FLOATS}
ACTIVATION_SOFTSIGN Input,Output:{_FLOATS}
ACTIVATION_TANH Input,Output:{_FLOATS}
ACTIVATION_THRESHOLDED_RELU Input,Output:{_FLOATS}
CONVOLUTION Input,Filter,Bias,Output:{_FLOATS} ranks:3-5
GEMM A,B,C,Output:{_FLOATS} ranks:2-4
REDUCE.AVERAGE Input,Output:{_FLOATS}
REDUCE.L1 Input,Output:{_WIDE}
REDUCE.L2 Input,Output:{_FLOATS}
REDUCE.LOG_SUM Input,Output:{_FLOATS}
REDUCE.LOG_SUM_EXP Input,Output:{_FLOATS}
REDUCE.MAX Input,Output:{_NUMBERS}
REDUCE.MIN Input,Output:{_NUMBERS}
REDUCE.MULTIPLY Input,Output:{_WIDE}
REDUCE.SUM Input,Output:{_WIDE}
REDUCE.SUM_SQUARE Input,Output:{_WIDE}
AVERAGE_POOLING Input,Output:{_FLOATS} ranks:4-5
LP_POOLING Input,Output:{_FLOATS} ranks:4-5
CAST Input:{_ALL} Output:{_ALL}
JOIN Inputs,Output:{_ALL}
TILE Input,Output:{_ALL}
GATHER Input,Output:{_ALL} Indices:{_INDICES}
BATCH_NORMALIZATION Input,Mean,Variance,Scale,Bias,Output:{_FLOATS}
LOCAL_RESPONSE_NORMALIZATION Input,Output:{_FLOATS} ranks:4-4
RNN Input,Weight,Recurrence,Bias,HiddenInit,OutputSequence,OutputSingle:{_FLOATS} SequenceLengths:u32 ranks:4-4
LSTM Input,Weight,Recurrence,Bias,HiddenInit,CellMemInit,Peephole,OutputSequence,OutputSingle,OutputCellSingle:\
{_FLOATS} SequenceLengths:u32 ranks:4-4
GRU Input,Weight,Recurrence,Bias,HiddenInit,OutputSequence,OutputSingle:{_FLOATS} SequenceLengths:u32 ranks:4-4
ELEMENT_WISE_SIGN Input,Output:{_NUMBERS}
ELEMENT_WISE_IS_NAN Input:{_FLOATS} Output:u8|u32
ELEMENT_WISE_ERF Input,Output:{_FLOATS}
ELEMENT_WISE_SINH Input,Output:{_FLOATS}
ELEMENT_WISE_COSH Input,Output:{_FLOATS}
ELEMENT_WISE_ASINH Input,Output:{_FLOATS}
ELEMENT_WISE_ACOSH Input,Output:{_FLOATS}
ELEMENT_WISE_ATANH Input,Output:{_FLOATS}
ELEMENT_WISE_IF Condition:u8 A,B,Output:{_ALL}
ACTIVATION_SHRINK Input,Output:{_FLOATS}|{_NARROW}
SCATTER_ELEMENTS Input,Updates,Output:{_ALL} Indices:{_INDICES}
ONE_HOT Values,Output:{_ALL} Indices:{_INDICES}
ELEMENT_WISE_BIT_SHIFT_LEFT A,B,Output:u8|u16|u32|u64
ELEMENT_WISE_BIT_SHIFT_RIGHT A,B,Output:u8|u16|u32|u64
ELEMENT_WISE_ROUND Input,Output:{_FLOATS}
ELEMENT_WISE_IS_INFINITY Input:{_FLOATS} Output:u8
ELEMENT_WISE_MODULUS_TRUNCATE A,B,Output:{_RECENT}
ELEMENT_WISE_MODULUS_FLOOR A,B,Output:{_RECENT}
FILL_VALUE_CONSTANT Output:{_ALL}
FILL_VALUE_SEQUENCE Output:{_NUMBERS}
CUMULATIVE_SUMMATION Input,Output:{_WIDE}
REVERSE_SUBSEQUENCES Input,Output:{_ALL} SequenceLengths:u32|u64
GATHER_ELEMENTS Input,Output:{_ALL} Indices:{_INDICES}
SCATTER_ND Input,Updates,Output:{_ALL} Indices:{_INDICES}
MAX_POOLING2 Input,Output:{_NUMBERS} OutputIndices:u32|u64 ranks:4-5
SLICE1 Input,Output:{_ALL}
TOP_K1 Input,OutputValue:{_NUMBERS} OutputIndex:u32|u64
DEPTH_TO_SPACE1 Input,Output:{_ALL} ranks:4-4
SPACE_TO_DEPTH1 Input,Output:{_ALL} ranks:4-4
MEAN_VARIANCE_NORMALIZATION1 Input,Scale,Bias,Output:{_FLOATS}
MATRIX_MULTIPLY_INTEGER A,AZeroPoint:u8|i8 B,BZeroPoint:u8|i8 Output:i32 ranks:2-4
QUANTIZED_LINEAR_MATRIX_MULTIPLY A,AZeroPoint:u8|i8 B,BZeroPoint:u8|i8 OutputZeroPoint,Output:u8|i8 \
AScale,BScale,OutputScale:f32 ranks:2-4
CONVOLUTION_INTEGER Input,InputZeroPoint:u8|i8 Filter,FilterZeroPoint:u8|i8 Output:i32 ranks:3-4
QUANTIZED_LINEAR_CONVOLUTION Input,InputZeroPoint:u8|i8 Filter,FilterZeroPoint:u8|i8 OutputZeroPoint,Output:u8|i8 \
InputScale,FilterScale,OutputScale:f32 Bias:i32 ranks:3-4
ELEMENT_WISE_BIT_AND A,B,Output:{_ALL}
ELEMENT_WISE_BIT_OR A,B,Output:{_ALL}
ELEMENT_WISE_BIT_XOR A,B,Output:{_ALL}
ELEMENT_WISE_BIT_NOT Input,Output:{_ALL}
ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL A,B:{_NUMBERS} Output:u8|u32
ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL A,B:{_NUMBERS} Output:u8|u32
ACTIVATION_CELU Input,Output:{_FLOATS}
ARGMIN Input:{_NUMBERS} Output:{_INDICES}
ARGMAX Input:{_NUMBERS} Output:{_INDICES}
GATHER_ND1 Input,Output:{_ALL} Indices:{_INDICES}
ELEMENT_WISE_ATAN_YX A,B,Output:{_FLOATS}
CUMULATIVE_PRODUCT Input,Output:{_WIDE}
ROI_ALIGN1 Input,ROI,Output:{_FLOATS} BatchIndices:u32|u64 ranks:4-4
ELEMENT_WISE_CLIP1 Input,Output:{_NUMBERS}
PADDING1 Input,Output:{_ALL}
ELEMENT_WISE_NEGATE Input,Output:{_SIGNED}
ACTIVATION_GELU Input,Output:{_FLOATS}
ACTIVATION_SOFTMAX1 Input,Output:{_FLOATS}
ACTIVATION_LOG_SOFTMAX1 Input,Output:{_FLOATS}
ACTIVATION_HARDMAX1 Input,Output:{_FLOATS}
RESAMPLE2 Input,Output:{_FLOATS}|u8@6.2|i8@6.2 ranks:1-4
DIAGONAL_MATRIX1 Input,Output:{_ALL} ranks:2-4
LP_POOLING1 Input,Output:{_FLOATS} ranks:4-5
AVERAGE_POOLING1 Input,Output:{_FLOATS} ranks:4-5
ACTIVATION_SWISH Input,Output:{_FLOATS}
ACTIVATION_HARD_SWISH Input,Output:{_FLOATS}
"""


@dataclass(frozen=True, slots=True)
class TensorTypes:
    """What the tensors of an operator may be.

    Attributes:
        groups: names of tensors that have one type, and for each type the level that it needs.
        ranks: the least and the greatest number of dimensions.
    """

    groups: tuple[tuple[tuple[str, ...], Mapping[ElementType, int]], ...]
    ranks: tuple[int, int]

    def refusal(self, kind: str, found: Collection[tuple[str, ElementType]], level: int) -> str | None:
        """Return why these types, each with its tensor's name, are not taken at a feature level, or ``None``."""
        for names, types in self.groups:
            present = {dtype for name, dtype in found if name in names}
            for dtype in present:
                if dtype not in types:
                    known = ", ".join(each.text for each in types)
                    return f"DirectML's {kind} does not compute {dtype.text}; it takes {known}"
                if types[dtype] > level:
                    needed = f"needs feature level {level_text(types[dtype])}, this is {level_text(level)}"
                    return f"DirectML's {kind} of {dtype.text} {needed}"
            if len(present) > 1:
                mixed = " and ".join(sorted(each.text for each in present))
                return f"DirectML's {kind} takes one element type for {', '.join(names)}, not {mixed}"
        return None


def _parse(table: str) -> dict[str, TensorTypes]:
    found: dict[str, TensorTypes] = {}
    for line in filter(None, table.splitlines()):
        name, *words = line.split()
        groups, ranks = [], (1, MAX_RANK)
        for word in words:
            left, _, right = word.partition(":")
            if left == "ranks":
                low, _, high = right.partition("-")
                ranks = (int(low), int(high))
            else:
                groups.append((tuple(left.split(",")), _types(right)))
        found[name] = TensorTypes(tuple(groups), ranks)
    return found


def _types(text: str) -> dict[ElementType, int]:
    found: dict[ElementType, int] = {}
    for word in text.split("|"):
        name, _, level = word.partition("@")
        found[_NAMES[name]] = parse_level(level) if level else 0
    return found


TENSOR_TYPES: Mapping[str, TensorTypes] = _parse(_TABLE)
"""By operator; those of ``REDUCE`` by operator and function, such as ``REDUCE.SUM``."""
