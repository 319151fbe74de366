"""Inverse circular functions of float32: their stated errors hold over all of it, special values are numpy's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from compiled_scalar import SPECIAL, compiled, errors_in_ulp, every_stride

from ort_core.loops import float32_inverse

TRUTH: dict[str, Callable[[np.ndarray], np.ndarray]] = {"asin": np.arcsin, "acos": np.arccos, "atan": np.arctan}
LEVELS = {"host": (), "AVX2": ("avx512", "amx"), "SSE": ("fma", "avx", "amx")}


def computed(name: str, x: np.ndarray, level: str) -> np.ndarray:
    return compiled(getattr(float32_inverse, name), x, without=LEVELS[level])


@pytest.mark.parametrize("level", list(LEVELS))
@pytest.mark.parametrize("name", list(TRUTH))
def test_inverse_keeps_its_stated_error_over_all_of_float32(name: str, level: str) -> None:
    near_half = np.float32(0.5) + np.arange(-999, 999, dtype=np.float32) * np.float32(2.0**-25)
    near_one = np.float32(1) - np.arange(999, dtype=np.float32) * np.float32(2.0**-24)
    borders = np.concatenate([near_half, near_one, 1 / near_one[1:]])
    spread = np.linspace(-1, 1, 200_003, dtype=np.float32)
    x = np.concatenate([every_stride(), spread, spread * 9, borders, -borders])
    with np.errstate(all="ignore"):
        expected = TRUTH[name](x.astype(np.float64))
        errors = errors_in_ulp(computed(name, x, level), expected)
    assert not np.isnan(errors).any(), f"{name}({x[np.isnan(errors)][:5]}) is NaN where it should not be, or not NaN"
    worst = int(np.argmax(errors))
    limit = float32_inverse.MAX_ULP[name]
    assert errors[worst] <= limit, f"{name}({x[worst]!r}) is off by {errors[worst]:.2f} ulp"


@pytest.mark.parametrize("level", list(LEVELS))
@pytest.mark.parametrize("name", list(TRUTH))
def test_inverse_of_special_values_is_the_rounded_one(name: str, level: str) -> None:
    ends = np.array([] if name == "atan" else [1, -1, 1.0000001, -1.0000001], np.float32)
    x = np.tile(np.concatenate([SPECIAL, ends]), 3)  # whole vectors and a rest
    with np.errstate(all="ignore"):
        expected = np.float32(TRUTH[name](x.astype(np.float64)))
    np.testing.assert_array_equal(computed(name, x, level), expected)


@pytest.mark.parametrize("name", ["asin", "atan"])
def test_odd_inverse_keeps_subnormal_numbers_and_the_sign_of_zero(name: str) -> None:
    x = np.array([0.0, -0.0, 1e-45, -1e-45, 1e-40, -1e-40], np.float32)
    np.testing.assert_array_equal(computed(name, x, "host").view(np.int32), x.view(np.int32))
