"""Digests tell any two sequences of parts apart, and are what ``hashlib`` gives; check sums tell damage."""

from __future__ import annotations

import hashlib
import zlib

import numpy as np
import pytest

from ort_core.cache import digests
from ort_core.cache.digests import check_sum, digest_of


def test_digest_is_blake2_of_the_parts_with_their_lengths() -> None:
    parts = [b"graph", b"", b"weights" * 1000]
    told = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    assert digest_of(parts) == hashlib.blake2b(told, digest_size=32).digest()


@pytest.mark.parametrize("other", [[b"ab", b"c"], [b"a", b"bc", b""], [b"", b"a", b"bc"], [b"abc"], []])
def test_parts_that_join_to_the_same_bytes_differ(other: list[bytes]) -> None:
    assert digest_of([b"a", b"bc"]) != digest_of(other)


def test_digests_are_the_same_where_python_hides_its_own_function(monkeypatch: pytest.MonkeyPatch) -> None:
    own = digest_of([b"content"])
    monkeypatch.setattr(digests, "blake2b", hashlib.blake2b)
    assert digest_of([b"content"]) == own


def test_check_sum_goes_on_behind_a_part_and_tells_each_flipped_bit() -> None:
    content = np.random.default_rng(1).bytes(300)
    assert check_sum(content) == zlib.crc32(content)
    assert check_sum(memoryview(content)[100:], check_sum(content[:100])) == check_sum(content)
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        assert check_sum(damaged) != check_sum(content), bit
