"""What a quantized value of a graph is called, and what its scale and zero point are called."""

from __future__ import annotations

from dataclasses import dataclass

from ort_quantization.quantized_types import QuantizedValueType


@dataclass(init=False, slots=True)
class QuantizedValue:
    """A value and its quantized form.

    Attributes:
        original_name: of the value in float.
        q_name: of the quantized value.
        scale_name: of its scale.
        zp_name: of its zero point.
        value_type: whether it is an initializer.
        axis: of its channels; ``None`` where one scale is for all.
        node_type: a note of the caller, as are the other two.
        node_qtype: a note of the caller.
        scale_type: a note of the caller.
    """

    original_name: str
    q_name: str
    scale_name: str
    zp_name: str
    value_type: QuantizedValueType
    axis: int | None
    node_type: str | None
    node_qtype: int | None
    scale_type: int | None

    def __init__(
        self, name: str, new_quantized_name: str, scale_name: str, zero_point_name: str,
        quantized_value_type: QuantizedValueType = QuantizedValueType.Input, axis: int | None = None,
        node_type: str | None = None, node_qtype: int | None = None, scale_type: int | None = None,
    ) -> None:  # fmt: skip
        self.original_name, self.q_name = name, new_quantized_name
        self.scale_name, self.zp_name = scale_name, zero_point_name
        self.value_type, self.axis = quantized_value_type, axis
        self.node_type, self.node_qtype, self.scale_type = node_type, node_qtype, scale_type

    @property
    def inputs(self) -> list[str]:
        """The quantized value, its scale and its zero point: how quantized operators read it."""
        return [self.q_name, self.scale_name, self.zp_name]
