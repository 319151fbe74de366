"""Pairs of weights: every weight is in a step, every pair is safe for any activation, and few steps are needed."""

from __future__ import annotations

import numpy as np
import pytest

from ort_core.cpu.codegen.quantized.bounded_pairs import block_places
from ort_core.cpu.codegen.quantized.pair_search import REACH, PairedSteps, paired_steps

STEP_BYTES = 8


def blocks_of(rows: np.ndarray) -> np.ndarray:
    """Return weights ``[block][REACH][column]`` as words ``[block][word][column][4]``."""
    count, _, columns = rows.shape
    return np.ascontiguousarray(rows.reshape(count, REACH // 4, 4, columns).swapaxes(-1, -2))


def by_byte(steps: PairedSteps) -> np.ndarray:
    """Return the weights of steps as ``[step][pair][2][column]``."""
    count, _, columns, _ = steps.weights.shape
    return steps.weights.swapaxes(-1, -2).reshape(count, STEP_BYTES // 2, 2, columns).astype(np.int64)


def multiplied(steps: PairedSteps, count: int) -> np.ndarray:
    """Return what each byte of each block is multiplied by in all steps together."""
    pairs = by_byte(steps)
    total = np.zeros((count, REACH, pairs.shape[-1]), np.int64)
    flat = pairs.reshape(len(pairs), STEP_BYTES, -1)
    for block, sources, weights in zip(steps.blocks, steps.sources, flat, strict=True):
        for source, row in zip(sources, weights, strict=True):
            total[block, source] += row
    return total


def assert_safe(steps: PairedSteps) -> None:
    """Check that no activations of a byte bring a pair's sum out of 16 bits."""
    pairs = by_byte(steps)
    most, least = (limited.sum(axis=2) * 255 for limited in (np.maximum(pairs, 0), np.minimum(pairs, 0)))
    limits = np.iinfo(np.int16)
    assert most.max(initial=0) <= limits.max
    assert least.min(initial=0) >= limits.min


def random_rows(deviation: float, count: int, columns: int) -> np.ndarray:
    real = np.random.default_rng(5).normal(size=(count, REACH, columns)) * deviation
    return np.clip(np.rint(real), -128, 127).astype(np.int8)


@pytest.mark.parametrize("columns", [4, 8, 16])
@pytest.mark.parametrize("deviation", [5, 20, 35, 50, 90, 1000])
@pytest.mark.parametrize("count", [1, 37])
def test_steps_multiply_each_byte_by_its_weight_in_safe_pairs(deviation: float, count: int, columns: int) -> None:
    rows = random_rows(deviation, count, columns)
    steps = paired_steps(blocks_of(rows), np.ones((count, REACH), bool))
    np.testing.assert_array_equal(multiplied(steps, count), rows)
    assert_safe(steps)
    assert (np.diff(steps.blocks) >= 0).all()
    assert 2 * count <= len(steps.blocks) <= 4 * count


@pytest.mark.parametrize("largest", [(-128, -128), (127, 127), (-128, 127)], ids=str)
def test_weights_at_the_ends_of_their_type_take_four_steps_at_most(largest: tuple[int, int]) -> None:
    rows = np.random.default_rng(1).choice(np.array(largest, np.int8), (9, REACH, 16))
    steps = paired_steps(blocks_of(rows), np.ones((9, REACH), bool))
    np.testing.assert_array_equal(multiplied(steps, 9), rows)
    assert_safe(steps)
    assert len(steps.blocks) <= 4 * 9


def test_bytes_that_do_not_exist_take_no_steps() -> None:
    rows = random_rows(35, REACH + 1, 16)
    exists = np.arange(REACH) >= np.arange(REACH + 1)[:, None]
    rows[~exists] = 0
    steps = paired_steps(blocks_of(rows), exists)
    np.testing.assert_array_equal(multiplied(steps, len(rows)), rows)
    assert_safe(steps)
    found = np.bincount(steps.blocks, minlength=len(rows))
    assert found[REACH] == 0, "a block without bytes"
    assert found[REACH - STEP_BYTES] <= 2, "eight bytes in one step, or in one more"


def test_nearly_all_pairs_of_weights_that_fill_eight_bits_are_found() -> None:
    count = 2000
    steps = paired_steps(blocks_of(random_rows(127 / 3.5, count, 16)), np.ones((count, REACH), bool))
    assert len(steps.blocks) <= 2.005 * count


def test_pairs_are_safe_exactly_up_to_the_largest_sum_of_sixteen_bits() -> None:
    fitting, too_large = np.zeros((2, 1, REACH, 8), np.int8)
    fitting[..., :8, :], fitting[..., 8:, :] = 64, -64
    too_large[...] = 64
    too_large[0, 3] = 65
    exists = np.ones((1, REACH), bool)
    assert len(paired_steps(blocks_of(fitting), exists).blocks) == 2
    assert len(paired_steps(blocks_of(too_large), exists).blocks) == 3, "65 beside 64 is cut to 64 and 1"


@pytest.mark.parametrize("nbytes", [16, 17, 31, 32, 40, 147])
def test_blocks_cover_a_run_once_and_end_inside_it(nbytes: int) -> None:
    places, skipped = block_places(nbytes)
    covered = np.concatenate([np.arange(p + s, p + REACH) for p, s in zip(places, skipped, strict=True)])
    np.testing.assert_array_equal(np.sort(covered), np.arange(nbytes))
    assert (places >= 0).all()
    assert (places + REACH <= nbytes).all()
