"""What a quantized value of a graph is called, and what its scale and zero point are called."""

from __future__ import annotations

from dataclasses import dataclass

from ort_quantization.quantized_types import QuantizedValueType


@dataclass(frozen=True, slots=True)
class QuantizedValue:
    """A value and its quantized form.

    Attributes:
        original_name: of the value in float.
        q_name: of the quantized value.
        scale_name: of its scale.
        zp_name: of its zero point.
        value_type: whether it is an initializer.
        axis: of its channels; ``None`` where one scale is for all.
    """

    original_name: str
    q_name: str
    scale_name: str
    zp_name: str
    value_type: QuantizedValueType = QuantizedValueType.Input
    axis: int | None = None

    @property
    def inputs(self) -> list[str]:
        """The quantized value, its scale and its zero point: how quantized operators read it."""
        return [self.q_name, self.scale_name, self.zp_name]
