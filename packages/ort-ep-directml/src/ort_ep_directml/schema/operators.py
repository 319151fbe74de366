"""The operators of DirectML: one table, in the order of their numbers.

A line is an operator: its name (DirectML.h has it behind ``DML_OPERATOR_``) and its fields in order, as ``kind:Name``.
A line ``level X.Y`` says which feature level the operators below it need. The number of an operator is its place,
counted from one: the header's enumeration has no gaps. Tensors go without the suffix ``Tensor`` of their fields.

Kinds of fields:

- ``in``, ``out``: a tensor, with ``?`` one that may be absent; ``ins``, ``outs``: an array of tensors;
- ``uint``, ``int``, ``float``, ``bool``: a number; ``type``: an element type; ``scalar``: 8 bytes of any element type;
- ``count``: the length of the arrays behind it, up to the next ``count``;
- ``uints``, ``ints``, ``floats``: an array of numbers;
- ``op?``: a fused activation or nothing; ``ops``: an array of activations;
- ``scale_bias?``: two floats or nothing; ``size2d``: width and height.

Source: DirectML.h for feature level 6.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

UNARY = "in:Input out:Output"
SCALED = f"{UNARY} scale_bias?:ScaleBias"
BINARY = "in:A in:B out:Output"
WINDOW = "count:DimensionCount uints:Strides uints:WindowSize uints:StartPadding uints:EndPadding"
AXES = "count:AxisCount uints:Axes"
PIXELS = "count:DimensionCount floats:Scales floats:InputPixelOffsets floats:OutputPixelOffsets"
FOLD = "count:DimensionCount uints:WindowSizes uints:Strides uints:Dilations uints:StartPadding uints:EndPadding"
CONVOLVED = "count:DimensionCount uints:Strides uints:Dilations uints:StartPadding uints:EndPadding"
QUANTIZED_PAIR = "in:A in:AScale in?:AZeroPoint in:B in:BScale in?:BZeroPoint"
STEPS = "in:Input in:Weight in:Recurrence in?:Bias in?:HiddenInit"
QUERIES = (
    "in?:Query in?:Key in?:Value in?:StackedQueryKey in?:StackedKeyValue in?:StackedQueryKeyValue in?:Bias in?:Mask "
    "in?:RelativePositionBias in?:PastKey in?:PastValue"
)
PRESENT = "out:Output out?:OutputPresentKey out?:OutputPresentValue float:Scale float:MaskFilterValue"
ALIGNED = "uint:ReductionFunction uint:InterpolationMode float:SpatialScaleX float:SpatialScaleY"

_TABLE = f"""
level 1.0
ELEMENT_WISE_IDENTITY {SCALED}
ELEMENT_WISE_ABS {SCALED}
ELEMENT_WISE_ACOS {SCALED}
ELEMENT_WISE_ADD {BINARY}
ELEMENT_WISE_ASIN {SCALED}
ELEMENT_WISE_ATAN {SCALED}
ELEMENT_WISE_CEIL {SCALED}
ELEMENT_WISE_CLIP {SCALED} float:Min float:Max
ELEMENT_WISE_COS {SCALED}
ELEMENT_WISE_DIVIDE {BINARY}
ELEMENT_WISE_EXP {SCALED}
ELEMENT_WISE_FLOOR {SCALED}
ELEMENT_WISE_LOG {SCALED}
ELEMENT_WISE_LOGICAL_AND {BINARY}
ELEMENT_WISE_LOGICAL_EQUALS {BINARY}
ELEMENT_WISE_LOGICAL_GREATER_THAN {BINARY}
ELEMENT_WISE_LOGICAL_LESS_THAN {BINARY}
ELEMENT_WISE_LOGICAL_NOT {UNARY}
ELEMENT_WISE_LOGICAL_OR {BINARY}
ELEMENT_WISE_LOGICAL_XOR {BINARY}
ELEMENT_WISE_MAX {BINARY}
ELEMENT_WISE_MEAN {BINARY}
ELEMENT_WISE_MIN {BINARY}
ELEMENT_WISE_MULTIPLY {BINARY}
ELEMENT_WISE_POW in:Input in:Exponent out:Output scale_bias?:ScaleBias
ELEMENT_WISE_CONSTANT_POW {SCALED} float:Exponent
ELEMENT_WISE_RECIP {SCALED}
ELEMENT_WISE_SIN {SCALED}
ELEMENT_WISE_SQRT {SCALED}
ELEMENT_WISE_SUBTRACT {BINARY}
ELEMENT_WISE_TAN {SCALED}
ELEMENT_WISE_THRESHOLD {SCALED} float:Min
ELEMENT_WISE_QUANTIZE_LINEAR in:Input in:Scale in?:ZeroPoint out:Output
ELEMENT_WISE_DEQUANTIZE_LINEAR in:Input in:Scale in?:ZeroPoint out:Output
ACTIVATION_ELU {UNARY} float:Alpha
ACTIVATION_HARDMAX {UNARY}
ACTIVATION_HARD_SIGMOID {UNARY} float:Alpha float:Beta
ACTIVATION_IDENTITY {UNARY}
ACTIVATION_LEAKY_RELU {UNARY} float:Alpha
ACTIVATION_LINEAR {UNARY} float:Alpha float:Beta
ACTIVATION_LOG_SOFTMAX {UNARY}
ACTIVATION_PARAMETERIZED_RELU in:Input in:Slope out:Output
ACTIVATION_PARAMETRIC_SOFTPLUS {UNARY} float:Alpha float:Beta
ACTIVATION_RELU {UNARY}
ACTIVATION_SCALED_ELU {UNARY} float:Alpha float:Gamma
ACTIVATION_SCALED_TANH {UNARY} float:Alpha float:Beta
ACTIVATION_SIGMOID {UNARY}
ACTIVATION_SOFTMAX {UNARY}
ACTIVATION_SOFTPLUS {UNARY} float:Steepness
ACTIVATION_SOFTSIGN {UNARY}
ACTIVATION_TANH {UNARY}
ACTIVATION_THRESHOLDED_RELU {UNARY} float:Alpha
CONVOLUTION in:Input in:Filter in?:Bias out:Output uint:Mode uint:Direction {CONVOLVED} uints:OutputPadding \
uint:GroupCount op?:FusedActivation
GEMM in:A in:B in?:C out:Output uint:TransA uint:TransB float:Alpha float:Beta op?:FusedActivation
REDUCE uint:Function {UNARY} {AXES}
AVERAGE_POOLING {UNARY} {WINDOW} bool:IncludePadding
LP_POOLING {UNARY} {WINDOW} uint:P
MAX_POOLING {UNARY} {WINDOW}
ROI_POOLING in:Input in:ROI out:Output float:SpatialScale size2d:PooledSize
SLICE {UNARY} count:DimensionCount uints:Offsets uints:Sizes uints:Strides
CAST {UNARY}
SPLIT in:Input count:OutputCount outs:Outputs uint:Axis
JOIN count:InputCount ins:Inputs out:Output uint:Axis
PADDING {UNARY} uint:PaddingMode float:PaddingValue count:DimensionCount uints:StartPadding uints:EndPadding
VALUE_SCALE_2D {UNARY} float:Scale count:ChannelCount floats:Bias
UPSAMPLE_2D {UNARY} size2d:ScaleSize uint:InterpolationMode
GATHER in:Input in:Indices out:Output uint:Axis uint:IndexDimensions
SPACE_TO_DEPTH {UNARY} uint:BlockSize
DEPTH_TO_SPACE {UNARY} uint:BlockSize
TILE {UNARY} count:RepeatsCount uints:Repeats
TOP_K in:Input out:OutputValue out:OutputIndex uint:Axis uint:K
BATCH_NORMALIZATION in:Input in:Mean in:Variance in:Scale in:Bias out:Output bool:Spatial float:Epsilon \
op?:FusedActivation
MEAN_VARIANCE_NORMALIZATION in:Input in?:Scale in?:Bias out:Output bool:CrossChannel bool:NormalizeVariance \
float:Epsilon op?:FusedActivation
LOCAL_RESPONSE_NORMALIZATION {UNARY} bool:CrossChannel uint:LocalSize float:Alpha float:Beta float:Bias
LP_NORMALIZATION {UNARY} uint:Axis float:Epsilon uint:P
RNN {STEPS} in?:SequenceLengths out?:OutputSequence out?:OutputSingle count:ActivationDescCount \
ops:ActivationDescs uint:Direction
LSTM {STEPS} in?:CellMemInit in?:SequenceLengths in?:Peephole out?:OutputSequence out?:OutputSingle \
out?:OutputCellSingle count:ActivationDescCount ops:ActivationDescs uint:Direction float:ClipThreshold \
bool:UseClipThreshold bool:CoupleInputForget
GRU {STEPS} in?:SequenceLengths out?:OutputSequence out?:OutputSingle count:ActivationDescCount \
ops:ActivationDescs uint:Direction bool:LinearBeforeReset
level 2.0
ELEMENT_WISE_SIGN {UNARY}
ELEMENT_WISE_IS_NAN {UNARY}
ELEMENT_WISE_ERF {SCALED}
ELEMENT_WISE_SINH {SCALED}
ELEMENT_WISE_COSH {SCALED}
ELEMENT_WISE_TANH {SCALED}
ELEMENT_WISE_ASINH {SCALED}
ELEMENT_WISE_ACOSH {SCALED}
ELEMENT_WISE_ATANH {SCALED}
ELEMENT_WISE_IF in:Condition {BINARY}
ELEMENT_WISE_ADD1 {BINARY} op?:FusedActivation
ACTIVATION_SHRINK {UNARY} float:Bias float:Threshold
MAX_POOLING1 {UNARY} out?:OutputIndices {WINDOW}
MAX_UNPOOLING in:Input in:Indices out:Output
DIAGONAL_MATRIX out:Output int:Offset float:Value
SCATTER_ELEMENTS in:Input in:Indices in:Updates out:Output uint:Axis
ONE_HOT in:Indices in:Values out:Output uint:Axis
RESAMPLE {UNARY} uint:InterpolationMode count:ScaleCount floats:Scales
level 2.1
ELEMENT_WISE_BIT_SHIFT_LEFT {BINARY}
ELEMENT_WISE_BIT_SHIFT_RIGHT {BINARY}
ELEMENT_WISE_ROUND {UNARY} uint:RoundingMode
ELEMENT_WISE_IS_INFINITY {UNARY} uint:InfinityMode
ELEMENT_WISE_MODULUS_TRUNCATE {BINARY}
ELEMENT_WISE_MODULUS_FLOOR {BINARY}
FILL_VALUE_CONSTANT out:Output type:ValueDataType scalar:Value
FILL_VALUE_SEQUENCE out:Output type:ValueDataType scalar:ValueStart scalar:ValueDelta
CUMULATIVE_SUMMATION {UNARY} uint:Axis uint:AxisDirection bool:HasExclusiveSum
REVERSE_SUBSEQUENCES in:Input in:SequenceLengths out:Output uint:Axis
GATHER_ELEMENTS in:Input in:Indices out:Output uint:Axis
GATHER_ND in:Input in:Indices out:Output uint:InputDimensionCount uint:IndicesDimensionCount
SCATTER_ND in:Input in:Indices in:Updates out:Output uint:InputDimensionCount uint:IndicesDimensionCount
MAX_POOLING2 {UNARY} out?:OutputIndices {WINDOW} uints:Dilations
SLICE1 {UNARY} count:DimensionCount uints:InputWindowOffsets uints:InputWindowSizes ints:InputWindowStrides
TOP_K1 in:Input out:OutputValue out:OutputIndex uint:Axis uint:K uint:AxisDirection
DEPTH_TO_SPACE1 {UNARY} uint:BlockSize uint:Order
SPACE_TO_DEPTH1 {UNARY} uint:BlockSize uint:Order
MEAN_VARIANCE_NORMALIZATION1 in:Input in?:Scale in?:Bias out:Output {AXES} bool:NormalizeVariance float:Epsilon \
op?:FusedActivation
RESAMPLE1 {UNARY} uint:InterpolationMode {PIXELS}
MATRIX_MULTIPLY_INTEGER in:A in?:AZeroPoint in:B in?:BZeroPoint out:Output
QUANTIZED_LINEAR_MATRIX_MULTIPLY {QUANTIZED_PAIR} in:OutputScale in?:OutputZeroPoint out:Output
CONVOLUTION_INTEGER in:Input in?:InputZeroPoint in:Filter in?:FilterZeroPoint out:Output {CONVOLVED} uint:GroupCount
QUANTIZED_LINEAR_CONVOLUTION in:Input in:InputScale in?:InputZeroPoint in:Filter in:FilterScale in?:FilterZeroPoint \
in?:Bias in:OutputScale in?:OutputZeroPoint out:Output {CONVOLVED} uint:GroupCount
level 3.0
ELEMENT_WISE_BIT_AND {BINARY}
ELEMENT_WISE_BIT_OR {BINARY}
ELEMENT_WISE_BIT_XOR {BINARY}
ELEMENT_WISE_BIT_NOT {UNARY}
ELEMENT_WISE_BIT_COUNT {UNARY}
ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL {BINARY}
ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL {BINARY}
ACTIVATION_CELU {UNARY} float:Alpha
ACTIVATION_RELU_GRAD in:Input in:InputGradient out:OutputGradient
AVERAGE_POOLING_GRAD in:InputGradient out:OutputGradient {WINDOW} bool:IncludePadding
MAX_POOLING_GRAD in:Input in:InputGradient out:OutputGradient {WINDOW} uints:Dilations
RANDOM_GENERATOR in:InputState out:Output out?:OutputState uint:Type
NONZERO_COORDINATES in:Input out:OutputCount out:OutputCoordinates
RESAMPLE_GRAD in:InputGradient out:OutputGradient uint:InterpolationMode {PIXELS}
SLICE_GRAD in:InputGradient out:OutputGradient count:DimensionCount uints:InputWindowOffsets \
uints:InputWindowSizes ints:InputWindowStrides
ADAM_OPTIMIZER in:InputParameters in:InputFirstMoment in:InputSecondMoment in:Gradient in:TrainingStep \
out:OutputParameters out:OutputFirstMoment out:OutputSecondMoment float:LearningRate float:Beta1 float:Beta2 \
float:Epsilon
ARGMIN {UNARY} {AXES} uint:AxisDirection
ARGMAX {UNARY} {AXES} uint:AxisDirection
ROI_ALIGN in:Input in:ROI in:BatchIndices out:Output {ALIGNED} float:OutOfBoundsInputValue \
uint:MinimumSamplesPerOutput uint:MaximumSamplesPerOutput
GATHER_ND1 in:Input in:Indices out:Output uint:InputDimensionCount uint:IndicesDimensionCount uint:BatchDimensionCount
level 3.1
ELEMENT_WISE_ATAN_YX {BINARY}
ELEMENT_WISE_CLIP_GRAD in:Input in:InputGradient out:OutputGradient float:Min float:Max
ELEMENT_WISE_DIFFERENCE_SQUARE {BINARY}
LOCAL_RESPONSE_NORMALIZATION_GRAD in:Input in:InputGradient out:OutputGradient bool:CrossChannel uint:LocalSize \
float:Alpha float:Beta float:Bias
CUMULATIVE_PRODUCT {UNARY} uint:Axis uint:AxisDirection bool:HasExclusiveProduct
BATCH_NORMALIZATION_GRAD in:Input in:InputGradient in:Mean in:Variance in:Scale out:OutputGradient \
out:OutputScaleGradient out:OutputBiasGradient float:Epsilon
level 4.0
ELEMENT_WISE_QUANTIZED_LINEAR_ADD {QUANTIZED_PAIR} in:OutputScale in?:OutputZeroPoint out:Output
DYNAMIC_QUANTIZE_LINEAR in:Input out:Output out:OutputScale out:OutputZeroPoint
ROI_ALIGN1 in:Input in:ROI in:BatchIndices out:Output {ALIGNED} float:InputPixelOffset float:OutputPixelOffset \
float:OutOfBoundsInputValue uint:MinimumSamplesPerOutput uint:MaximumSamplesPerOutput bool:AlignRegionsToCorners
level 4.1
ROI_ALIGN_GRAD in?:Input in:InputGradient in:ROI in:BatchIndices out?:OutputGradient out?:OutputROIGradient \
{ALIGNED} float:InputPixelOffset float:OutputPixelOffset uint:MinimumSamplesPerOutput \
uint:MaximumSamplesPerOutput bool:AlignRegionsToCorners
BATCH_NORMALIZATION_TRAINING in:Input in:Scale in:Bias in?:FusedAdd out:Output out:OutputMean out:OutputVariance \
float:Epsilon op?:FusedActivation
BATCH_NORMALIZATION_TRAINING_GRAD in:Input in:InputGradient in:Mean in:Variance in:Scale out:OutputGradient \
out:OutputScaleGradient out:OutputBiasGradient float:Epsilon
level 5.0
ELEMENT_WISE_CLIP1 {SCALED} type:MinMaxDataType scalar:Min scalar:Max
ELEMENT_WISE_CLIP_GRAD1 in:Input in:InputGradient out:OutputGradient type:MinMaxDataType scalar:Min scalar:Max
PADDING1 {UNARY} uint:PaddingMode type:PaddingValueDataType scalar:PaddingValue count:DimensionCount \
uints:StartPadding uints:EndPadding
ELEMENT_WISE_NEGATE {UNARY}
level 5.1
ACTIVATION_GELU {UNARY}
ACTIVATION_SOFTMAX1 {UNARY} {AXES}
ACTIVATION_LOG_SOFTMAX1 {UNARY} {AXES}
ACTIVATION_HARDMAX1 {UNARY} {AXES}
RESAMPLE2 {UNARY} uint:InterpolationMode uint:RoundingDirection {PIXELS}
RESAMPLE_GRAD1 in:InputGradient out:OutputGradient uint:InterpolationMode uint:RoundingDirection {PIXELS}
DIAGONAL_MATRIX1 in?:Input out:Output type:ValueDataType scalar:Value int:DiagonalFillBegin int:DiagonalFillEnd
level 6.1
MULTIHEAD_ATTENTION {QUERIES} {PRESENT} uint:HeadCount uint:MaskType
level 6.2
LP_POOLING1 {UNARY} {WINDOW} uints:Dilations uint:P
AVERAGE_POOLING1 {UNARY} {WINDOW} uints:Dilations bool:IncludePadding
ACTIVATION_SWISH {UNARY} float:SigmoidInputScale
ACTIVATION_HARD_SWISH {UNARY} float:Alpha float:Beta
QUANTIZED_LINEAR_AVERAGE_POOLING in:Input in:InputScale in?:InputZeroPoint in:OutputScale in?:OutputZeroPoint \
out:Output {WINDOW} uints:Dilations bool:IncludePadding
MATRIX_MULTIPLY_INTEGER_TO_FLOAT {QUANTIZED_PAIR} in?:Bias out:Output
level 6.3
MEAN_VARIANCE_NORMALIZATION2 in:Input in?:Scale in?:Bias out:Output {AXES} bool:UseMean bool:UseVariance \
float:Epsilon op?:FusedActivation
MULTIHEAD_ATTENTION1 {QUERIES} in?:PastSequenceLengths {PRESENT} uint:QueryHeadCount uint:KeyValueHeadCount \
uint:MaskType
QUANTIZE in:Input uint:QuantizationType count:QuantizationTensorCount ins:Quantization out:Output
DEQUANTIZE in:Input uint:QuantizationType count:QuantizationTensorCount ins:Quantization out:Output
level 6.4
RESAMPLE3 {UNARY} uint:InterpolationMode uint:RoundingDirection {PIXELS} bool:Antialiased
FOLD {UNARY} {FOLD}
UNFOLD {UNARY} {FOLD}
"""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an operator's structure.

    Attributes:
        kind: how it is laid out, without the mark of those that may be absent.
        name: as in the header; tensors without the suffix ``Tensor``.
        is_optional: whether it may be absent.
        count: the field that holds the length of an array; empty for others.
    """

    kind: str
    name: str
    is_optional: bool = False
    count: str = ""

    @property
    def is_input(self) -> bool:
        """Whether it is one tensor or several that the operator reads."""
        return self.kind in ("in", "ins")

    @property
    def is_output(self) -> bool:
        """Whether it is one tensor or several that the operator writes."""
        return self.kind in ("out", "outs")


@dataclass(frozen=True, slots=True)
class OperatorSchema:
    """One operator.

    Attributes:
        name: as in the header, behind ``DML_OPERATOR_``.
        number: its value in the header's enumeration.
        level: the feature level that it needs, as the header writes it: ``0x5100`` is 5.1.
        fields: in the order of its structure.
    """

    name: str
    number: int
    level: int
    fields: tuple[Field, ...]

    @property
    def inputs(self) -> tuple[Field, ...]:
        """The tensors that it reads, in order."""
        return tuple(field for field in self.fields if field.is_input)

    @property
    def outputs(self) -> tuple[Field, ...]:
        """The tensors that it writes, in order."""
        return tuple(field for field in self.fields if field.is_output)


def level_text(level: int) -> str:
    """Return a feature level as people write it: ``5.1`` for ``0x5100``."""
    return f"{level >> 12}.{level >> 8 & 0xF}"


def parse_level(text: str) -> int:
    """Return the number of a feature level, such as ``5.1``.

    Raises:
        ValueError: the text is no level.
    """
    major, _, minor = text.partition(".")
    return int(major) << 12 | int(minor) << 8


def _parse(table: str) -> dict[str, OperatorSchema]:
    found: dict[str, OperatorSchema] = {}
    level = 0
    for line in filter(None, table.splitlines()):
        name, *fields = line.split()
        if name == "level":
            level = parse_level(fields[0])
        else:
            found[name] = OperatorSchema(name, len(found) + 1, level, _fields(fields))
    return found


def _fields(words: list[str]) -> tuple[Field, ...]:
    found: list[Field] = []
    count = ""
    for word in words:
        kind, _, name = word.partition(":")
        count = name if kind == "count" else count
        is_array = kind in ("ins", "outs", "uints", "ints", "floats", "ops")
        found.append(Field(kind.rstrip("?"), name, kind.endswith("?"), count if is_array else ""))
    return tuple(found)


OPERATORS: Mapping[str, OperatorSchema] = _parse(_TABLE)
"""Every operator by its name."""
