"""Random numbers: Philox by its definition, the distributions that were asked for, another draw in each run."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_provider import session_of

COUNT = 20_000


def philox(place: int, draw: int, seed: int) -> tuple[int, ...]:
    """Return the four words of a place, as Salmon et al. define Philox 4x32-10."""
    counter = [place & 0xFFFFFFFF, place >> 32, draw & 0xFFFFFFFF, draw >> 32]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            (second >> 32) ^ counter[1] ^ key[0], second & 0xFFFFFFFF,
            (first >> 32) ^ counter[3] ^ key[1], first & 0xFFFFFFFF,
        ]  # fmt: skip
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return tuple(counter)


def test_the_definition_that_tests_compare_with_gives_the_published_numbers() -> None:
    assert philox(0, 0, 0) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    everything = 2**64 - 1
    assert philox(everything, everything, everything) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)


def test_numbers_of_a_seed_are_those_of_the_definition_run_for_run(gpu) -> None:
    session = session_of("g (float[1] x) => (float[9] y) { y = RandomUniform<shape = [9], seed = 2.5>() }")
    seed = int(np.float32(2.5).view(np.uint32))
    for draw in range(3):
        (found,) = session.run(None, {"x": np.zeros(1, np.float32)})
        words = [word for place in range(3) for word in philox(place, draw, seed)]
        expected = np.array([(word >> 8) * 2.0**-24 for word in words[:9]], np.float32)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("body", "mean", "deviation"),
    [
        ("RandomUniform<shape = [20000], low = -1.0, high = 3.0, seed = 1.0>()", 1.0, 4 / 12**0.5),
        ("RandomNormal<shape = [20000], mean = 2.0, scale = 3.0, seed = 1.0>()", 2.0, 3.0),
        ("RandomNormal<shape = [20000], dtype = 11, seed = 1.0>()", 0.0, 1.0),
        ("RandomUniform<shape = [20000], dtype = 11, seed = 1.0>()", 0.5, 1 / 12**0.5),
        ("RandomNormal<shape = [20000], dtype = 10, seed = 1.0>()", 0.0, 1.0),
    ],
)
def test_numbers_have_the_distribution_that_was_asked_for(gpu, body, mean, deviation) -> None:
    dtype = {"11": "double", "10": "float16"}.get(body.partition("dtype = ")[2][:2], "float")
    session = session_of(f"g (float[1] x) => ({dtype}[20000] y) {{ y = {body} }}")
    found = session.run(None, {"x": np.zeros(1, np.float32)})[0].astype(np.float64)
    allowed = 5 * deviation / COUNT**0.5  # five standard errors of the mean
    assert abs(found.mean() - mean) < allowed
    assert abs(found.std() - deviation) < allowed
    assert len(np.unique(found)) > 0.3 * COUNT


def test_coins_and_classes_come_as_often_as_their_weights_say(gpu) -> None:
    session = session_of(
        "g (float[20000] p, float[2,3] w) => (float[20000] c, int32[2,10000] k) "
        "{ c = Bernoulli<seed = 3.0>(p) k = Multinomial<sample_size = 10000, seed = 4.0>(w) }"
    )
    weights = np.array([[0.2, 0.3, 0.5], [0.6, 0.0, 0.4]], np.float32)
    with np.errstate(divide="ignore"):
        logarithms = np.log(weights)
    coins, classes = session.run(None, {"p": np.full(COUNT, 0.25, np.float32), "w": logarithms})
    assert set(np.unique(coins)) == {0, 1}
    assert abs(coins.mean() - 0.25) < 5 * (0.25 * 0.75 / COUNT) ** 0.5
    shares = np.stack([np.bincount(row, minlength=3) for row in classes]) / 10000
    np.testing.assert_array_less(np.abs(shares - weights), 5 * 0.5 / 100)
    assert shares[1, 1] == 0


def test_nodes_without_a_seed_differ_from_each_other_and_from_run_to_run(gpu) -> None:
    session = session_of(
        "g (float[50] x) => (float[50] y, float[50] z) { y = RandomUniformLike(x) z = RandomUniformLike(x) }"
    )
    feeds = {"x": np.zeros(50, np.float32)}
    drawn = [array for _ in range(3) for array in session.run(None, feeds)]
    assert len({array.tobytes() for array in drawn}) == 6
