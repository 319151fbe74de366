"""What the QDQ format's quantizer notes of values, with the names and fields that subclasses of onnxruntime's read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from ort_quantization.errors import InvalidQuantization
from ort_quantization.quantized_types import NUMPY_TYPES
from ort_quantization.quantizers.scales import FLOATS, Parameters


class QDQQuantTensorType(Enum):
    """What a value is to its operator."""

    ACTIVATION = 0
    WEIGHT = 1
    BIAS = 2


@dataclass(frozen=True, slots=True)
class QDQQuantParamProvider:
    """Whose parameters a value shares.

    Attributes:
        input_name: of the value that has them.
        node_name: of the node that reads it: readers may get different ones.
    """

    input_name: str
    node_name: str


@dataclass(slots=True)
class QDQTensorQuantInfo:
    """How a value is quantized.

    Attributes:
        tensor_type: what it is to its operator.
        quant_para_provider: whose parameters it shares; ``None`` for its own.
        axis: of its channels; ``None`` for one scale.
        data_type: ONNX's number of its element type, where it is known.
    """

    tensor_type: QDQQuantTensorType = QDQQuantTensorType.ACTIVATION
    quant_para_provider: QDQQuantParamProvider | None = None
    axis: int | None = None
    data_type: int | None = None

    @property
    def is_shared(self) -> bool:
        """Whether it has the parameters of another value."""
        return self.quant_para_provider is not None

    @property
    def is_weight(self) -> bool:
        """Whether it is a weight."""
        return self.tensor_type is QDQQuantTensorType.WEIGHT


@dataclass(frozen=True, slots=True)
class QDQBiasQuantInfo:
    """What the scale of a bias follows from.

    Attributes:
        node_name: of the node that adds it.
        input_name: of what it multiplies.
        weight_name: of its weights.
        beta: the factor of the bias.
        alpha: the factor of the products.
    """

    node_name: str
    input_name: str
    weight_name: str
    beta: float = 1.0
    alpha: float = 1.0


@dataclass(frozen=True, slots=True)
class QDQTensorQuantParams:
    """Something of a value as its producer gives it, and as readers get it where its type is converted for them.

    Attributes:
        original: parameters, or the names of their tensors.
        converted: of the converted type; ``None`` where there is none.
        converted_recv_nodes: names of the readers that get the converted type; all where it is ``None``.
    """

    original: Any  # Any: Parameters, QuantizationParams or a QuantizedValue
    converted: Any = None
    converted_recv_nodes: frozenset[str] | set[str] | None = None

    def get_for_consumer(self, consumer_node_name: str) -> Any:
        """Return what a reader gets."""
        readers = self.converted_recv_nodes
        has_converted = self.converted is not None and (readers is None or consumer_node_name in readers)
        return self.converted if has_converted else self.original


QDQTensorQuantizedValue = QDQTensorQuantParams


class QuantizationParams(dict[str, Any]):
    """Scale, zero point, ``quant_type`` and, where they are needed, axis and block size, by name.

    Raises:
        InvalidQuantization: the scale is no array of float32 or float16.
    """

    def __init__(self, **data: Any) -> None:  # Any: arrays and numbers
        super().__init__(**data)
        if "scale" in data and getattr(data["scale"], "dtype", None) not in FLOATS:
            found = getattr(data["scale"], "dtype", type(data["scale"]).__name__)
            raise InvalidQuantization(f"a scale must be an array of float32 or float16; found {found}")

    @classmethod
    def of(cls, found: Parameters) -> QuantizationParams:
        """Return parameters by name."""
        given = {"zero_point": found.zero_point, "scale": found.scale, "quant_type": found.tensor_type}
        axes = {} if found.axis is None else {"axis": found.axis}
        return cls(**given, **axes, **({"block_size": found.block_size} if found.block_size else {}))

    def get(self, key: str, default_value: Any = None) -> Any:  # Any: see above
        """Return what has a name."""
        return super().get(key, default_value)

    def parameters(self) -> Parameters:
        """Return what is written."""
        kind = int(self["quant_type"])
        zero_point = np.asarray(self["zero_point"]).astype(NUMPY_TYPES[kind])
        return Parameters(self["scale"], zero_point, kind, self.get("axis"), self.get("block_size", 0))


def written_form(found: QDQTensorQuantParams) -> QDQTensorQuantParams:
    """Return parameters as they are written, whichever form a subclass gave them."""
    original, converted = (
        each.parameters() if isinstance(each, QuantizationParams) else each
        for each in (found.original, found.converted)
    )
    return QDQTensorQuantParams(original, converted, found.converted_recv_nodes)
