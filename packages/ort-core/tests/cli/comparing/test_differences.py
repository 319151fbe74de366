"""Values beside each other: in the type that they were computed in, inside maps too, whose numbers are Python's."""

from __future__ import annotations

import numpy as np
import pytest

from ort_core.cli.comparing.differences import difference

NEXT = float(np.nextafter(np.float32(0.7), np.float32(1)))
NEAR = float(np.float32(0.7))


@pytest.mark.parametrize("found", [NEXT, np.float32(NEXT), np.array(NEXT, np.float32)])
@pytest.mark.parametrize("expected", [NEAR, np.float32(NEAR)])
def test_numbers_of_maps_are_compared_as_the_floats_that_they_were(found: object, expected: object) -> None:
    assert difference("probabilities", [{"a": found}], [{"a": expected}], "approximate").is_equal
    assert not difference("probabilities", [{"a": found}], [{"a": NEAR + 0.01}], "approximate").is_equal


def test_numbers_that_no_float32_holds_are_compared_as_doubles() -> None:
    assert not difference("weights", {1: 0.1 + 1e-9}, {1: 0.1}, "approximate").is_equal
    assert difference("weights", {1: 0.1 + 1e-17}, {1: 0.1}, "approximate").is_equal
    assert not difference("weights", {1: float("inf")}, {1: 1e300}, "approximate").is_equal


def test_nan_in_maps_equals_nan() -> None:
    assert difference("weights", {1: float("nan")}, {1: float("nan")}, "approximate").is_equal
    assert not difference("weights", {1: float("nan")}, {1: 0.5}, "approximate").is_equal


def test_integers_of_maps_are_compared_as_integers() -> None:
    assert difference("counts", {"a": 2**60}, {"a": 2**60}, "exact").is_equal
    assert not difference("counts", {"a": 2**60}, {"a": 2**60 + 1}, "exact").is_equal
