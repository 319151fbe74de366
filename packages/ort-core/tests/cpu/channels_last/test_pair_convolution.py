"""Convolutions of bfloat16 pairs, and results stored as bfloat16, against float64 over the rounded operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from convolution_sums import Pads, expected

from ort_core.cpu.codegen.convolutions.convolution import convolution_kernel
from ort_core.cpu.codegen.convolutions.convolution_plan import Convolution, PairConvolution, is_tiled, pack_weights
from ort_core.cpu.codegen.convolutions.depthwise import is_narrow, narrow_kernel, pack_narrow_weights
from ort_core.cpu.codegen.convolutions.tile_convolution import tile_convolution_kernel
from ort_core.cpu.codegen.images.channels_last import Epilogue, OperandKind
from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.jit import assembly
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target, restricted_target, target_of
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products.bfloat16_tiles import has_tile_products
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import cast, element, maximum

RunKernel = Callable[..., np.ndarray]
F32, BF16 = DataType.FLOAT, DataType.BFLOAT16
UNIT = 2.0**-8  # half of the distance of two neighboring numbers of bfloat16, relative to the smaller one

DENSE: list[tuple[Convolution, tuple[int, int, int], Pads]] = [
    (Convolution(64, 64, (3, 3), expected_width=14), (1, 14, 14), (1, 1, 1, 1)),
    (Convolution(6, 33, (3, 3), expected_width=5), (2, 9, 5), (1, 1, 1, 1)),
    (Convolution(64, 24, (1, 1), expected_width=49), (1, 1, 49), (0, 0, 0, 0)),
    (Convolution(32, 48, (1, 1), (2, 2)), (1, 13, 15), (0, 0, 0, 0)),
    (Convolution(8, 17, (3, 2), (1, 3), (2, 3)), (2, 12, 33), (2, 0, 1, 3)),
    (Convolution(1800, 40, (1, 1), expected_width=20), (1, 3, 20), (0, 0, 0, 0)),
    (Convolution(12, 20, (3, 3), groups=2), (1, 8, 9), (1, 1, 1, 1)),
    (Convolution(80, 40, (3, 3), groups=2), (2, 4, 17), (1, 1, 1, 1)),
    (Convolution(34, 50, (2, 3), (1, 2), expected_width=33), (3, 3, 67), (0, 0, 0, 0)),
    (Convolution(512, 544, (3, 3), expected_width=7), (1, 5, 7), (1, 1, 1, 1)),
    (Convolution(4, 70, (7, 7), (2, 2)), (1, 21, 50), (3, 3, 3, 3)),
    (Convolution(32, 33, (3, 3)), (3, 6, 20), (1, 1, 1, 1)),
    (Convolution(36, 16, (5, 2)), (2, 8, 9), (0, 0, 2, 1)),
    (Convolution(16, 40, (3, 3), dilations=(2, 2), groups=2), (1, 11, 7), (2, 2, 2, 2)),
    (Convolution(96, 1, (1, 1), expected_width=1), (1, 1, 1), (0, 0, 0, 0)),
]


def rounded(array: np.ndarray) -> np.ndarray:
    return array.astype(ml_dtypes.bfloat16).astype(np.float32)


def pair_target() -> Target:
    """Return the host without its name, which alone tells that its dot products are slow."""
    target = restricted_target("amx")
    if target.lanes != 16 or not target.has("avx512bf16"):
        pytest.skip("this processor has no dot products of bfloat16")
    return target


def tile_target() -> Target:
    """Return the host, if it multiplies tiles."""
    target = host_target()
    if not has_tile_products(target):
        pytest.skip("needs a processor with AMX, and a system that permits it")
    return target


TARGETS = {"dots": pair_target, "tiles": tile_target}


def operands_of(spec: Convolution, size: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    x = rounded(random.standard_normal((*size, spec.in_channels), np.float32))
    weights = random.standard_normal((spec.out_channels, spec.group_inputs, *spec.kernel), np.float32)
    return x, rounded(weights), random.standard_normal(spec.out_channels, np.float32)


def run_pairs(
    run: RunKernel, target: Target, spec: Convolution, x: np.ndarray, weights: np.ndarray, bias: np.ndarray, pads: Pads,
    *, rounds: bool,
) -> np.ndarray:  # fmt: skip
    """Return ReLU of the convolution and a bias, computed of pairs, stored as floats or rounded."""
    top, left, bottom, right = pads
    sum_ = maximum(element(0, F32) + element(1, F32), 0.0)
    epilogue = Epilogue(cast(sum_, BF16) if rounds else sum_, (OperandKind.CHANNEL,))
    words = {"in_channels": spec.in_channels // 2, "epilogue": epilogue}
    pairs = PairConvolution(**{**{name: getattr(spec, name) for name in Convolution.__match_args__}, **words})
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    batch, height, width, channels = expected(spec, x, weights, pads).shape
    row, image = padded.shape[2] * spec.in_channels // 2, int(np.prod(padded.shape[1:])) // 2
    count = batch * height * width * channels
    out = np.full(-(-count // 2) if rounds else count, np.nan, np.float32)
    if count % 2 and rounds:
        out.view(np.uint16)[-1] = 0
    entries: list[int | np.ndarray] = [
        padded.astype(ml_dtypes.bfloat16).view(np.float32), pack_weights(pairs, weights, target), out, batch, height,
        width, row, image, width * channels, height * width * channels, x.shape[1], x.shape[2], 0, 0, 0, 0, 0, bias,
    ]  # fmt: skip
    make = tile_convolution_kernel if is_tiled(pairs, target) else convolution_kernel
    found = run(make("kernel", pairs, target), entries, 2, target)
    numbers = found.view(ml_dtypes.bfloat16).astype(np.float32)[:count] if rounds else found
    return numbers.reshape(batch, height, width, channels)


@pytest.mark.sweep(parts=2)  # any two of the three meet
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("rounds", [False, True], ids=["floats", "rounded"])
@pytest.mark.parametrize(("spec", "size", "pads"), DENSE)
def test_pairs_give_the_sum_in_float64_of_the_rounded_operands(
    spec: Convolution, size: tuple[int, int, int], pads: Pads, rounds: bool, name: str, run_kernel: RunKernel
) -> None:
    target = TARGETS[name]()
    x, weights, bias = operands_of(spec, size)
    found = run_pairs(run_kernel, target, spec, x, weights, bias, pads, rounds=rounds)
    wanted = np.maximum(expected(spec, x, weights, pads) + bias, 0)
    largest = expected(spec, np.abs(x), np.abs(weights), pads) + np.abs(bias)
    bound = largest * (spec.depth + 4) * 2.0**-24 + (UNIT * np.abs(wanted) if rounds else 0)
    assert (np.abs(found - wanted) <= bound).all()


@pytest.mark.parametrize("channels", [32, 19])
def test_depthwise_results_are_stored_rounded(channels: int, target: Target, run_kernel: RunKernel) -> None:
    epilogue = Epilogue(cast(element(0, F32), BF16))
    spec = Convolution(channels, channels, (3, 3), groups=channels, epilogue=epilogue)
    assert is_narrow(spec, target)
    x, weights, _ = operands_of(spec, (1, 8, 9))
    plain = replace(spec, epilogue=None)
    size, count = (1, 6, 7, channels), 6 * 7 * channels
    results = []
    for each in (spec, plain):
        out = np.zeros(count if each is plain else -(-count // 2), np.float32)
        entries: list[int | np.ndarray] = [
            x, pack_narrow_weights(each, weights, target), out, *size[:3], 9 * channels, 72 * channels, 7 * channels,
            count, 8, 9, 0, 0, 0, 0, 0,
        ]  # fmt: skip
        results.append(run_kernel(narrow_kernel("kernel", each, target), entries, 2, target))
    halves, floats = results
    np.testing.assert_array_equal(halves.view(np.uint16)[:count], floats.astype(ml_dtypes.bfloat16).view(np.uint16))


def test_pairs_are_multiplied_by_one_instruction_or_in_tiles_and_float32_by_none_of_them() -> None:
    features = "+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx512bf16,+fma"
    target = target_of("x86_64-unknown-linux-gnu", "znver5", features)
    tiles = target_of("x86_64-unknown-linux-gnu", "sapphirerapids", f"{features},+amx-tile,+amx-bf16")
    spec = PairConvolution(32, 64, (3, 3), expected_width=14)
    text = assembly(module_text(tile_convolution_kernel("kernel", spec, tiles)), tiles, is_vectorized=True)
    assert "tdpbf16ps" in text
    assert "vdpbf16ps" not in text
    for make, has_dots in ((PairConvolution, True), (Convolution, False)):
        text = module_text(convolution_kernel("kernel", make(32, 64, (3, 3), expected_width=14), target))
        assert ("vdpbf16ps" in assembly(text, target, is_vectorized=True)) is has_dots
    assert host_target().cpu  # the host's name decides which of them a session takes
