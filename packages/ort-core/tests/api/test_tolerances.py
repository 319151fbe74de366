"""The table of tolerances and the facts of a comparison."""

import ml_dtypes
import numpy as np
import pytest

from ort_core.tolerances import compare, tolerance

NAMES = ["exact", "rounding", "approximate"]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_each_name_allows_more_than_the_one_before(dtype):
    limits = [tolerance(name, dtype).relative for name in NAMES]
    assert limits == sorted(limits)
    assert limits[0] == 0 < limits[1] < limits[2] < 0.1


def test_integers_and_text_are_exact_except_for_one_step_in_quantized_results():
    assert tolerance("rounding", "int64").absolute == 0
    assert tolerance("approximate", "uint8").absolute == 1
    big = np.array([2**63, 2**63 + 1], np.uint64)
    assert compare(big, big, "exact").passes
    assert compare(big, big + np.uint64(1), "approximate").passes
    assert compare(big, big + np.uint64(2), "approximate").mismatches == 2
    assert compare(np.array(["a"], object), np.array(["b"], object), "approximate").mismatches == 1


def test_not_a_number_equals_itself_and_infinities_only_their_own_sign():
    special = np.array([np.nan, np.inf, -np.inf, 0.0], np.float32)
    assert compare(special, special, "exact").passes
    assert compare(special, special[[0, 2, 1, 3]], "approximate").mismatches == 2
    assert compare(np.array([np.nan], np.float32), np.zeros(1, np.float32), "approximate").mismatches == 1


def test_the_worst_element_is_named():
    expected = np.ones((2, 3), np.float32)
    found = expected.copy()
    found[1, 2], found[0, 1] = 2, 1.5
    facts = compare(found, expected, "rounding")
    assert (facts.mismatches, facts.worst, facts.max_absolute, facts.max_relative) == (2, (1, 2), 1.0, 1.0)
    assert "2 of 6 elements outside rounding" in str(facts)


def test_one_rounding_passes_and_a_wrong_bit_in_front_does_not():
    for dtype in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16):
        one = np.ones(1, dtype)
        above = one * dtype(1 + float(ml_dtypes.finfo(dtype).eps))
        assert compare(above, one, "rounding").passes, dtype
        assert not compare(above, one, "exact").passes, dtype
        assert not compare(one * dtype(1.25), one, "approximate").passes, dtype


def test_random_results_are_compared_by_their_moments():
    generator = np.random.default_rng(1)
    first, second = generator.normal(3, 2, (2, 10_000))
    assert compare(first, second, "random").passes
    assert not compare(first, second + 1, "random").passes


def test_empty_arrays_agree_and_other_shapes_are_refused():
    assert compare(np.zeros((0, 2)), np.zeros((0, 2)), "exact").passes
    with pytest.raises(ValueError, match="differ"):
        compare(np.zeros(2), np.zeros(3), "exact")
