"""How one weight is quantized: the settings of the quantizer, of its method and of the node, made into one record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ort_quantization.errors import InvalidQuantization
from ort_quantization.quantized_types import QuantFormat
from ort_quantization.weight_only.matmul_nbits_configs import WeightOnlyQuantConfig, checked_bits

_HIGHEST_LEVEL = 4  # of accuracy: products in int8
LEAST_BLOCK = 16  # rows; MatMulNBits has powers of two from here on
NATIVE_NAMES = ("DEFAULT", "HQQ")  # methods whose tensors onnxruntime names by another pattern than the others'


@dataclass(frozen=True, slots=True)
class Settings:
    """How a weight is quantized.

    Attributes:
        algorithm: name of the method.
        quant_format: of the nodes.
        bits: 2, 4 or 8.
        block_size: rows that share a scale; -1: all.
        is_symmetric: no zero points.
        accuracy_level: of MatMulNBits; 0: not stated.
        is_channel_wise: one block for a column, signed weights transposed, as onnxruntime writes them.
    """

    algorithm: str
    quant_format: QuantFormat
    bits: int
    block_size: int
    is_symmetric: bool
    accuracy_level: int = 0
    is_channel_wise: bool = False

    @property
    def is_linear(self) -> bool:
        """Whether weights become inputs of DequantizeLinear."""
        return self.quant_format == QuantFormat.QDQ

    def block_of(self, rows: int) -> int:
        """Return how many rows of a matrix share a scale."""
        return rows if self.is_channel_wise or self.block_size == -1 else self.block_size


def settings_of(
    config: WeightOnlyQuantConfig, bits: int, block_size: int, is_symmetric: bool, accuracy_level: int | None
) -> Settings:
    """Return the settings of a method; where it has none of its own, those of the quantizer hold.

    Raises:
        InvalidQuantization: the settings contradict each other.
    """
    has_own = config.algorithm in NATIVE_NAMES  # GPTQ's block size is another thing
    found = Settings(
        config.algorithm,
        config.quant_format,
        checked_bits(int(getattr(config, "bits", bits))),
        _whole(getattr(config, "block_size", block_size) if has_own else block_size),
        bool(getattr(config, "is_symmetric", is_symmetric)),
        int(getattr(config, "accuracy_level", accuracy_level) or 0),
        bool(getattr(config, "channel_wised_quantize", False)),
    )
    return _checked(found)


def _whole(block_size: object) -> int:
    """Return a count of rows.

    Raises:
        InvalidQuantization: it is no whole number.
    """
    if not isinstance(block_size, int | np.integer) or isinstance(block_size, bool):
        raise InvalidQuantization(f"block_size is {block_size!r}; a whole number of rows is expected")
    return int(block_size)


def settings_of_node(
    settings: Settings, custom: Mapping[str, Mapping[str, Any]] | None, name: str
) -> Settings:  # Any: numbers and names
    """Return the settings of one node, where the caller gave it some of its own.

    Raises:
        InvalidQuantization: a setting is unknown, or they contradict each other.
    """
    own = (custom or {}).get(name)
    if not own:
        return settings
    unknown = set(own) - {"bits", "group_size", "scheme"}
    if unknown or own.get("scheme", "sym") not in ("sym", "asym"):
        raise InvalidQuantization(
            f"settings {dict(own)} of node {name!r}: known are bits, group_size and scheme ('sym' or 'asym')"
        )
    is_symmetric = own["scheme"] == "sym" if "scheme" in own else settings.is_symmetric
    changed = replace(
        settings,
        bits=checked_bits(int(own.get("bits", settings.bits))),
        block_size=int(own.get("group_size", settings.block_size)),
        is_symmetric=is_symmetric,
    )
    return _checked(changed)


def _checked(settings: Settings) -> Settings:
    if not 0 <= settings.accuracy_level <= _HIGHEST_LEVEL:
        raise InvalidQuantization(f"accuracy_level is {settings.accuracy_level}; MatMulNBits has 0 to {_HIGHEST_LEVEL}")
    size = settings.block_size
    if settings.is_linear:
        if size < 1 and size != -1:
            raise InvalidQuantization(f"a block of {size} rows; expected 1 or more")
    elif size < LEAST_BLOCK or size & (size - 1):
        raise InvalidQuantization(f"a block of {size} rows; MatMulNBits has powers of two from {LEAST_BLOCK} on")
    return settings
