"""The numbers of a tensor beside the range that a quantized model gives it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

from ort_quantization.calibration.histograms import Histogram
from ort_quantization.models.model_files import read_tensor

BINS = 64
_LIMITS = {
    TensorProto.UINT8: (0, 255), TensorProto.INT8: (-128, 127), TensorProto.UINT16: (0, 65535),
    TensorProto.INT16: (-32768, 32767), TensorProto.UINT4: (0, 15), TensorProto.INT4: (-8, 7),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RangePlot:
    """Counts of a tensor's numbers, and the range they are rounded in.

    Attributes:
        name: of the tensor.
        is_weight: or a value.
        counts: in even bins.
        least: the smallest number, where the first bin begins.
        most: the largest, where the last bin ends.
        low: the least number that the quantized type holds; the outermost one of all channels.
        high: the largest.
        clipped: share of the numbers that lie outside.
        type_name: element type.
        scales: how many there are: one, or one for each channel or block.
    """

    name: str
    is_weight: bool
    counts: tuple[int, ...]
    least: float
    most: float
    low: float
    high: float
    clipped: float
    type_name: str
    scales: int

    def to_dict(self) -> dict[str, object]:
        """Return it as JSON has it."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class QuantizedRange:
    """What a type, its scales and its zero points can hold.

    Attributes:
        low: the least number.
        high: the largest.
        step: the largest distance of two of them.
        kind: element type.
        scales: how many scales there are.
    """

    low: float
    high: float
    step: float
    kind: int
    scales: int


def ranges_in(model: ModelProto, folder: str) -> dict[str, QuantizedRange]:
    """Return the ranges of tensors that have a scale and a zero point in a quantized model, by their float names."""
    tensors = {each.name: each for each in model.graph.initializer}
    found = {}
    for name in tensors:
        base = name.removesuffix("_scale")
        point = tensors.get(f"{base}_zero_point")
        if base == name or point is None or point.data_type not in _LIMITS:
            continue
        least, most = _LIMITS[point.data_type]
        scale = numpy_helper.to_array(read_tensor(tensors[name], folder)).astype(np.float64)
        zero = numpy_helper.to_array(read_tensor(point, folder)).astype(np.float64)
        low, high = ((end - zero) * scale for end in (least, most))
        found[base] = QuantizedRange(
            float(low.min()), float(high.max()), float(scale.max()), point.data_type, scale.size
        )
    return found


def range_plot(name: str, is_weight: bool, numbers: Histogram, given: QuantizedRange) -> RangePlot | None:
    """Return the plot of a tensor, nothing where it had no finite number."""
    if numbers.is_empty:
        return None
    least, most = numbers.least, numbers.most
    wide = (least, most) if most > least else (least - 0.5, most + 0.5)
    counts, _ = numbers.between(*wide, BINS)
    kind = TensorProto.DataType.Name(given.kind).lower()
    return RangePlot(
        name, is_weight, tuple(int(each) for each in counts), wide[0], wide[1], given.low, given.high,
        numbers.share_outside(given.low - given.step / 2, given.high + given.step / 2), kind, given.scales,
    )  # fmt: skip
