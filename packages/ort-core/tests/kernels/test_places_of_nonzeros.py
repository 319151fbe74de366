"""NonZero finds the coordinates that numpy finds, whatever the type, the axes and the memory order."""

from __future__ import annotations

import numpy as np
import pytest

from ort_core.kernels.reference.movement.selection import non_zero


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.uint8, np.bool_, object])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 0, 2), (0, 4), (3, 5), (2, 3, 4), (2, 1, 3, 2, 2)])
def test_coordinates_are_those_of_numpy(shape: tuple[int, ...], dtype: type) -> None:
    generator = np.random.default_rng(len(shape))
    x = generator.integers(0, 3, shape)
    x = np.where(x > 0, "a", "").astype(object) if dtype is object else np.asarray(x).astype(dtype)
    for each in (x, x.T):
        found = non_zero(each)
        wanted = np.stack(np.nonzero(np.atleast_1d(each)))
        assert found.dtype == np.int64
        assert np.array_equal(found, wanted)


def test_a_nan_and_a_tiny_number_are_not_zero_and_a_negative_zero_is() -> None:
    assert non_zero(np.array([0.0, -0.0, np.nan, 1e-45, np.inf], np.float32)).tolist() == [[2, 3, 4]]
