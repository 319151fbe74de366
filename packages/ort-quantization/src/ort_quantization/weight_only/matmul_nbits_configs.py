"""The methods of weight-only quantization and their settings, with onnxruntime's names and arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from ort_quantization.arguments.given_arguments import refuse_single_names
from ort_quantization.calibration.calibration_data import CalibrationDataReader
from ort_quantization.errors import InvalidQuantization
from ort_quantization.quantized_types import QuantFormat

BITS = (2, 4, 8)
DEFAULT_AXES = {"MatMul": 0, "Gather": 1}
NodeConfigs = Mapping[str, Mapping[str, Any]]  # Any: numbers of bits and of blocks, names of schemes


def checked_bits(bits: int) -> int:
    """Return a number of bits.

    Raises:
        InvalidQuantization: weights are not quantized to so many.
    """
    if bits not in BITS:
        raise InvalidQuantization(f"weights are quantized to 2, 4 or 8 bits, not to {bits}")
    return bits


class WeightOnlyQuantConfig:
    """What all methods have in common.

    Args:
        algorithm: name of the method.
        quant_format: ``QOperator`` (MatMulNBits, GatherBlockQuantized) or ``QDQ`` (DequantizeLinear before MatMul).
        op_types_to_quantize: operators; MatMul by default.
        quant_axes: pairs of an operator and the axis of its blocks; MatMul 0, Gather 1 by default.
        customized_weight_config: settings (``bits``, ``group_size``, ``scheme``: ``sym`` or ``asym``) by node name.
    """

    def __init__(
        self,
        algorithm: str,
        quant_format: QuantFormat,
        op_types_to_quantize: Iterable[str] | None = None,
        quant_axes: Iterable[tuple[str, int]] | None = None,
        customized_weight_config: NodeConfigs | None = None,
    ) -> None:
        if not isinstance(quant_format, QuantFormat):
            raise InvalidQuantization(f"{quant_format!r} is no format: choose QuantFormat.QOperator or QuantFormat.QDQ")
        refuse_single_names(op_types_to_quantize=op_types_to_quantize)
        self.algorithm = algorithm
        self.quant_format = quant_format
        self.op_types_to_quantize = set(op_types_to_quantize) if op_types_to_quantize else {"MatMul"}
        self.quant_axes = _axes_of(quant_axes) if quant_axes else dict(DEFAULT_AXES)
        self.customized_weight_config = customized_weight_config


def _axes_of(given: Iterable[tuple[str, int]]) -> dict[str, int]:
    try:
        return {str(op_type): int(axis) for op_type, axis in (given.items() if isinstance(given, Mapping) else given)}
    except (TypeError, ValueError) as error:
        raise InvalidQuantization(
            f"quant_axes is {given!r}; pairs of an operator and an axis are expected, such as (('MatMul', 0),)"
        ) from error


class DefaultWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """Each block's own range, by onnxruntime's native functions, bit for bit.

    Args:
        block_size: rows that share a scale.
        is_symmetric: no zero points.
        accuracy_level: of MatMulNBits; 4 lets engines compute in int8.
        quant_format: as in ``WeightOnlyQuantConfig``.
        op_types_to_quantize: likewise.
        quant_axes: likewise.
        bits: 2, 4 or 8.
        channel_wised_quantize: one block for a whole column (QDQ only).
    """

    def __init__(
        self,
        block_size: int = 128,
        is_symmetric: bool = False,
        accuracy_level: int | None = None,
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: Iterable[str] | None = None,
        quant_axes: Iterable[tuple[str, int]] | None = None,
        bits: int = 4,
        channel_wised_quantize: bool = False,
    ) -> None:
        super().__init__("DEFAULT", quant_format, op_types_to_quantize, quant_axes)
        if channel_wised_quantize and quant_format == QuantFormat.QOperator:
            raise NotImplementedError("channel_wised_quantize needs quant_format QDQ: MatMulNBits has blocks")
        self.block_size = block_size
        self.is_symmetric = is_symmetric
        self.accuracy_level = accuracy_level
        self.bits = bits
        self.channel_wised_quantize = channel_wised_quantize


class _RatiosConfig(WeightOnlyQuantConfig):
    """A method that takes ratios of ranges by the names of weights."""

    method: ClassVar[str]

    def __init__(
        self,
        ratios: Mapping[str, float] | None = None,
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: Iterable[str] | None = None,
        customized_weight_config: NodeConfigs | None = None,
    ) -> None:
        super().__init__(self.method, quant_format, op_types_to_quantize, None, customized_weight_config)
        self.ratios = dict(ratios or {})


class RTNWeightOnlyQuantConfig(_RatiosConfig):
    """Round to nearest, after ranges were cut by a ratio.

    Args:
        ratios: what is left of the range of a weight, by its name; 1 for others.
        quant_format: as in ``WeightOnlyQuantConfig``.
        op_types_to_quantize: likewise.
        customized_weight_config: likewise.
    """

    method = "RTN"


class KQuantWeightOnlyQuantConfig(_RatiosConfig):
    """Scales and least values found by weighted least squares over twenty widths of the range.

    Args:
        ratios: taken for onnxruntime's sake; the search needs none.
        quant_format: as in ``WeightOnlyQuantConfig``.
        op_types_to_quantize: likewise.
        customized_weight_config: likewise.
    """

    method = "k_quant"


class HQQWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """Half-quadratic quantization: float zero points that leave a sparse error.

    Args:
        block_size: rows that share a scale.
        bits: 2, 4 or 8.
        axis: 1, columns of the transposed weight; 0 is refused.
        quant_format: QOperator; DequantizeLinear takes no float zero points.
        op_types_to_quantize: as in ``WeightOnlyQuantConfig``.
        quant_axes: likewise.
    """

    def __init__(
        self,
        block_size: int = 128,
        bits: int = 4,
        axis: int = 1,
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: Iterable[str] | None = None,
        quant_axes: Iterable[tuple[str, int]] | None = None,
    ) -> None:
        super().__init__("HQQ", quant_format, op_types_to_quantize, quant_axes)
        if quant_format != QuantFormat.QOperator:
            raise InvalidQuantization("HQQ has float zero points, which DequantizeLinear does not take; use QOperator")
        if axis != 1:
            raise InvalidQuantization(f"HQQ along axis {axis}: blocks of MatMulNBits lie along axis 1")
        self.block_size = block_size
        self.bits = bits
        self.axis = axis


class GPTQWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """GPTQ: rows are quantized one after another, and those that follow make up for the error in the outputs.

    Args:
        calibration_data_reader: gives the model's inputs, run after run.
        percdamp: share of the mean of the Hessian's diagonal that is added to it.
        block_size: rows whose corrections reach the other rows together; changes speed only.
        actorder: rows with the largest activations first, in blocks that are fixed before.
        mse: scales by the least error in the outputs instead of the range.
        perchannel: each column has its own scales, as MatMulNBits has it; ``False`` is refused.
        quant_format: as in ``WeightOnlyQuantConfig``.
        op_types_to_quantize: likewise.
        real_zero_points: zero points of 2 and 4 bits are floats, as those of HQQ; QOperator and no symmetry.
    """

    def __init__(
        self,
        calibration_data_reader: CalibrationDataReader | None = None,
        percdamp: float = 0.01,
        block_size: int = 128,
        actorder: bool = False,
        mse: bool = False,
        perchannel: bool = True,
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: Iterable[str] | None = None,
        real_zero_points: bool = False,
    ) -> None:
        super().__init__("GPTQ", quant_format, op_types_to_quantize)
        if real_zero_points and quant_format != QuantFormat.QOperator:
            raise InvalidQuantization("DequantizeLinear takes no float zero points; use QOperator")
        if not perchannel:
            raise InvalidQuantization("GPTQ with perchannel=False: MatMulNBits has scales for each column")
        self.calibration_data_reader = calibration_data_reader
        self.percdamp = percdamp
        self.block_size = block_size
        self.actorder = actorder
        self.mse = mse
        self.perchannel = perchannel
        self.real_zero_points = real_zero_points


class AWQWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """Activation-aware quantization: channels with large activations are scaled up, so that they lose less.

    Args:
        calibration_data_reader: gives the model's inputs, run after run.
        calibration_method: ``awq_lite`` searches scales, ``awq_clip`` ranges of blocks, ``awq_full`` both.
        quant_format: as in ``WeightOnlyQuantConfig``.
        op_types_to_quantize: likewise.
    """

    def __init__(
        self,
        calibration_data_reader: CalibrationDataReader | None = None,
        calibration_method: str = "awq_lite",
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: Iterable[str] | None = None,
    ) -> None:
        super().__init__("nvidia_awq", quant_format, op_types_to_quantize)
        if calibration_method not in ("awq_lite", "awq_clip", "awq_full"):
            raise InvalidQuantization(f"{calibration_method!r} is no method; known: awq_lite, awq_clip, awq_full")
        self.calibration_data_reader = calibration_data_reader
        self.calibration_method = calibration_method


class NVAWQWeightOnlyQuantConfig(AWQWeightOnlyQuantConfig):
    """AWQ with onnxruntime's arguments; the activations come from a reader, and nothing needs torch.

    Args:
        tokenizer_dir: taken for onnxruntime's sake; texts are not downloaded.
        dataset_name: likewise.
        cache_dir: likewise.
        calibration_method: as in ``AWQWeightOnlyQuantConfig``.
        calibration_data_reader: gives the model's inputs, run after run.
    """

    def __init__(
        self,
        tokenizer_dir: str | None = None,
        dataset_name: str = "cnn",
        cache_dir: str = "./cache",
        calibration_method: str = "awq_lite",
        calibration_data_reader: CalibrationDataReader | None = None,
    ) -> None:
        super().__init__(calibration_data_reader, calibration_method, QuantFormat.QDQ)
        self.tokenizer_dir = tokenizer_dir
        self.dataset_name = dataset_name
        self.cache_dir = cache_dir
