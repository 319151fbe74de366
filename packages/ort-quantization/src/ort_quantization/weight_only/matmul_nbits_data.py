"""Methods that use data: weights are quantized by what runs of the model show of their operands.

Products that read one value share its statistics; as many values are looked at in one pass over the data as a limit of
memory allows. Where no run shows an operand, in a branch that no sample takes, weights are rounded to nearest.
"""

from __future__ import annotations

import logging
import os
import pickle
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO

import numpy as np
from onnx import ModelProto, TensorProto

from ort_quantization.calibration.activation_capture import Providers, Samples
from ort_quantization.calibration.body_capture import Operand, OperandRuns
from ort_quantization.errors import InvalidCalibration
from ort_quantization.models.model_files import read_tensor
from ort_quantization.weight_only.matmul_nbits_awq import channel_scales, with_cut_ranges
from ort_quantization.weight_only.matmul_nbits_blocks import (
    Array,
    LinearBlocks,
    Numbers,
    PackedBlocks,
    linear_blocks,
    packed_blocks,
)
from ort_quantization.weight_only.matmul_nbits_configs import (
    AWQWeightOnlyQuantConfig,
    GPTQWeightOnlyQuantConfig,
    WeightOnlyQuantConfig,
)
from ort_quantization.weight_only.matmul_nbits_gptq import GptqSettings, RowErrors, gptq
from ort_quantization.weight_only.matmul_nbits_nodes import weight_array
from ort_quantization.weight_only.matmul_nbits_rounding import round_to_nearest
from ort_quantization.weight_only.matmul_nbits_settings import Settings
from ort_quantization.weight_only.matmul_nbits_sites import Site
from ort_quantization.weight_only.matmul_nbits_statistics import OperandState, operand_states, passes

log = logging.getLogger(__name__)

Key = tuple[int, str, Operand, Settings]  # graph of the weight, its name, its operand, how it is quantized


class KeptState:
    """Quantized weights, in a file until they are taken: those of all products are known before a model is changed."""

    def __init__(self) -> None:
        self._places: dict[Key, int] = {}
        self._file: IO[bytes] | None = None

    @property
    def keys(self) -> frozenset[Key]:
        """What is kept."""
        return frozenset(self._places)

    def add(self, key: Key, blocks: PackedBlocks | LinearBlocks) -> None:
        """Keep a weight."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="ort.blocks.")  # noqa: SIM115 - it lives as long as this
            weakref.finalize(self, self._file.close)
        self._places[key] = self._file.seek(0, os.SEEK_END)
        pickle.dump(blocks, self._file, protocol=pickle.HIGHEST_PROTOCOL)

    def find(self, key: Key) -> PackedBlocks | LinearBlocks | None:
        """Return a weight, ``None`` where none was kept."""
        if self._file is None or key not in self._places:
            return None
        self._file.seek(self._places[key])
        found: PackedBlocks | LinearBlocks = pickle.load(self._file)  # what was written above
        return found


@dataclass(frozen=True, slots=True)
class FoundState:
    """What data gave.

    Attributes:
        numbers: quantized weights.
        divisors: factors (K,) that operands are divided by.
    """

    numbers: KeptState = field(default_factory=KeptState)
    divisors: dict[Operand, Array] = field(default_factory=dict)


def key_of(site: Site) -> Key:
    """Return what a weight, its operand and its settings are known by."""
    return id(site.owner), site.tensor.name, operand_of(site), site.settings


def operand_of(site: Site) -> Operand:
    """Return what the operand of a product is known by."""
    return id(site.source), site.operand


def quantized_by_data(
    sites: list[Site], model: ModelProto, folder: str, config: WeightOnlyQuantConfig, providers: Providers | None,
    limit_nbytes: int,
) -> FoundState:  # fmt: skip
    """Return the quantized weights of all sites whose operands runs can show.

    Args:
        sites: products.
        model: as it was loaded; unchanged afterwards.
        folder: where its external data lies.
        config: of GPTQ or AWQ.
        providers: that run the model; the default ones by default.
        limit_nbytes: of the statistics that are held at once.

    Raises:
        InvalidCalibration: there is no data, or nothing follows from it.
    """
    reader = getattr(config, "calibration_data_reader", None)
    if reader is None:
        raise InvalidCalibration(
            f"{config.algorithm} needs data: give the configuration a calibration_data_reader, whose get_next() "
            "returns the model's inputs by name, and None behind the last"
        )
    found = FoundState()
    groups = _by_operand(sites)
    channels = {operand: group[0].shape[0] for operand, group in groups.items()}
    with Samples(reader) as samples, OperandRuns(model, folder, channels, samples, providers) as runs:
        for part in passes(channels, limit_nbytes // 4 if runs.is_in_pieces else limit_nbytes):
            states = operand_states(runs, part)
            for operand in part:
                if operand in states:
                    _quantize_group(groups[operand], states.pop(operand), folder, config, found)
                else:
                    _tell_of_unseen(groups[operand])
    return found


def _by_operand(sites: list[Site]) -> dict[Operand, list[Site]]:
    groups: dict[Operand, list[Site]] = {}
    for site in sites:
        groups.setdefault(operand_of(site), []).append(site)
    return groups


def _tell_of_unseen(group: list[Site]) -> None:
    for site in group:
        log.warning(
            "no run shows the operand %r of node %r, which lies inside a graph of control flow: its weight is rounded "
            "to nearest", site.operand, site.node.name,
        )  # fmt: skip


def _quantize_group(
    group: list[Site], state: OperandState, folder: str, config: WeightOnlyQuantConfig, found: FoundState
) -> None:
    if isinstance(config, GPTQWeightOnlyQuantConfig):
        hessian = state.products
        hessian /= max(state.count, 1)  # in place: it is as large as all that follows
        errors = RowErrors.of_hessian(hessian, config.percdamp, config.actorder)
        del hessian
        state.products = np.empty((0, 0))  # as large as the errors, and not needed any more
        for site, weight in _weights(group, folder):
            settings = site.settings
            # engines take whole ones of 8 bits, and bfloat16 has too few digits
            can_be_real = settings.bits != 8 and site.tensor.data_type != TensorProto.BFLOAT16
            has_real_points = config.real_zero_points and can_be_real
            numbers = gptq(
                weight, errors,
                GptqSettings(
                    settings.bits, settings.block_of(len(weight)), settings.is_symmetric,
                    config.block_size, config.actorder, config.mse, has_real_points,
                ),
            )  # fmt: skip
            found.numbers.add(key_of(site), in_layout(numbers, settings))
        return
    assert isinstance(config, AWQWeightOnlyQuantConfig)  # there is no third method
    scales = None
    if config.calibration_method != "awq_clip":
        scales = channel_scales([weight for _, weight in _weights(group, folder)], state, group[0].settings)
    if scales is not None:
        found.divisors[operand_of(group[0])] = scales
        state = _divided(state, scales)
    for site, weight in _weights(group, folder):
        scaled = weight if scales is None else weight.astype(np.float32) * scales[:, None]
        if config.calibration_method != "awq_lite":
            scaled = with_cut_ranges(scaled, state, site.settings)
        found.numbers.add(key_of(site), in_layout(nearest(scaled.astype(weight.dtype), site), site.settings))


def in_layout(numbers: Numbers, settings: Settings) -> PackedBlocks | LinearBlocks:
    """Return numbers as their operator reads them, several in a byte."""
    return linear_blocks(numbers) if settings.is_linear else packed_blocks(numbers)


def nearest(weight: Array, site: Site) -> Numbers:
    """Return a site's weight rounded to nearest."""
    settings = site.settings
    return round_to_nearest(weight, settings.bits, settings.block_of(len(weight)), settings.is_symmetric)


def _divided(state: OperandState, scales: Array) -> OperandState:
    return OperandState(state.products / np.outer(scales, scales), state.sizes / scales, state.count)


def _weights(group: list[Site], folder: str) -> Iterator[tuple[Site, Array]]:
    seen: set[Key] = set()
    for site in group:
        if key_of(site) not in seen:
            seen.add(key_of(site))
            yield site, matrix_of(site, folder)


def matrix_of(site: Site, folder: str) -> Array:
    """Return the weight (K, N) of a site, read from its file where it lies in one.

    Raises:
        InvalidCalibration: it has a value that is no finite number.
    """
    found = weight_array(read_tensor(site.tensor, folder)).reshape(site.shape)
    if not np.isfinite(found).all():
        raise InvalidCalibration(
            f"weight {site.tensor.name!r} of node {site.node.name!r} has values that are NaN or infinite; exclude the "
            "node by nodes_to_exclude"
        )
    return found
