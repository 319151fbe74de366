"""Means and factors of groups of channels, against float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ort_core.cpu.codegen.images.group_moments import moments_kernel, padded_channels, scales_kernel
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.tolerances import compare

RunKernel = Callable[..., np.ndarray]
EPSILON = 1e-5


def statistics(
    run_kernel: RunKernel, target: Target, x: np.ndarray, groups: int, part: int, scale: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the factor of each channel of ``x[image, pixel, channel]``."""
    count, pixels, channels = x.shape
    parts, row = -(-pixels // part), padded_channels(channels, target)
    memory = np.zeros(count * parts * 2 * row * 2, np.float32)  # of float64
    kernel = moments_kernel("kernel", channels, target)
    moments = run_kernel(kernel, [x, memory, count, pixels, part, parts, pixels * channels], 1, target)
    kernel = scales_kernel("kernel", channels, groups, EPSILON, target, is_scaled=scale is not None)
    results = []
    for output in (1, 2):
        means, factors = np.zeros((2, count, channels), np.float32)
        given = np.zeros(1, np.float32) if scale is None else scale
        results.append(run_kernel(kernel, [moments, means, factors, given, count, pixels, parts], output, target))
    return results[0], results[1]


def expected(x: np.ndarray, groups: int) -> tuple[np.ndarray, np.ndarray]:
    count, pixels, channels = x.shape
    grouped = np.float64(x).reshape(count, pixels, groups, channels // groups)
    mean, variance = grouped.mean((1, 3)), grouped.var((1, 3))
    mean, inverse = (np.repeat(each, channels // groups, 1) for each in (mean, 1 / np.sqrt(variance + EPSILON)))
    return mean, inverse


@pytest.mark.parametrize(
    ("channels", "groups"), [(1, 1), (3, 3), (8, 2), (20, 4), (37, 1), (48, 16), (64, 8), (130, 10)]
)
@pytest.mark.parametrize(("pixels", "part"), [(1, 5), (29, 29), (100, 9), (700, 512)])
def test_statistics_are_those_of_float64(
    run_kernel: RunKernel, target: Target, channels: int, groups: int, pixels: int, part: int
) -> None:
    random = np.random.default_rng(channels * pixels)
    x = (random.standard_normal((2, pixels, channels)) * 3 + random.standard_normal(channels) * 10).astype(np.float32)
    scale = random.standard_normal(channels).astype(np.float32)
    mean, factor = statistics(run_kernel, target, x, groups, part, scale)
    wanted_mean, inverse = expected(x, groups)
    for found, wanted in ((mean, wanted_mean), (factor, inverse * scale)):
        comparison = compare(found, wanted.astype(np.float32), "rounding")
        assert comparison.passes, comparison


@pytest.mark.parametrize("channels", [3, 40])
def test_moments_of_some_channels_leave_the_others_out(run_kernel: RunKernel, target: Target, channels: int) -> None:
    wide = np.random.default_rng(1).standard_normal((2, 50, channels + 7)).astype(np.float32)
    row = padded_channels(channels, target)
    kernel = moments_kernel("kernel", channels, target, pitch=channels + 7)
    memory = np.zeros(2 * 2 * 2 * row * 2, np.float32)
    found = run_kernel(kernel, [wide, memory, 2, 50, 30, 2, 50 * (channels + 7)], 1, target).view(np.float64)
    sums = found.reshape(2, 2, 2, row).sum(1)[..., :channels]
    part = wide[..., :channels].astype(np.float64)
    assert compare(sums[:, 0], part.sum(1), "approximate").passes
    assert compare(sums[:, 1], np.square(part).sum(1), "approximate").passes


def test_deviation_survives_a_mean_that_is_far_larger(run_kernel: RunKernel, target: Target) -> None:
    x = (10_000 + np.random.default_rng(1).standard_normal((1, 900, 16)) * 0.1).astype(np.float32)
    mean, factor = statistics(run_kernel, target, x, 4, 300)
    wanted_mean, inverse = expected(x, 4)
    assert compare(mean, wanted_mean.astype(np.float32), "rounding").passes
    assert compare(factor, inverse.astype(np.float32), "approximate").passes


def test_equal_elements_have_their_mean_and_no_deviation(run_kernel: RunKernel, target: Target) -> None:
    x = np.full((1, 77, 24), 1234.5678, np.float32)
    mean, factor = statistics(run_kernel, target, x, 3, 16)
    np.testing.assert_array_equal(mean, x[:, 0])
    assert compare(factor, np.full((1, 24), 1 / np.sqrt(EPSILON), np.float32), "approximate").passes


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stays_in_its_group(run_kernel: RunKernel, target: Target, odd: float) -> None:
    x = np.random.default_rng(2).standard_normal((2, 40, 24)).astype(np.float32)
    x[1, 17, 9] = odd  # of the second of three groups
    mean, factor = statistics(run_kernel, target, x, 3, 16)
    assert np.isnan(factor[1, 8:16]).all()
    assert not np.isfinite(mean[1, 8:16]).any()
    assert np.isfinite(np.delete(factor.reshape(6, 8), 4, 0)).all()
    assert np.isfinite(np.delete(mean.reshape(6, 8), 4, 0)).all()
