"""Sealed bytes give back what was sealed, and nothing of what was cut, changed or written by somebody else."""

from __future__ import annotations

import pytest

from ort_core.plugin import Rejection
from ort_core.plugin.cache import Unsealed, seal, unseal

MARK = b"a provider\x01"


@pytest.mark.parametrize("parts", [[], [b""], [b"one", b"", b"two\0"]])
def test_head_and_content_come_back(parts: list[bytes]) -> None:
    found = unseal(MARK, seal(MARK, "für N = 3", parts))
    assert isinstance(found, Unsealed)
    assert (found.head, bytes(found.content)) == ("für N = 3", b"".join(parts))


def test_every_cut_and_every_changed_byte_is_refused() -> None:
    blob = seal(MARK, "key", [b"content"])
    for end in range(len(blob)):
        assert isinstance(unseal(MARK, blob[:end]), Rejection), end
        changed = bytearray(blob)
        changed[end] ^= 0x40
        assert isinstance(unseal(MARK, bytes(changed)), Rejection), end


def test_bytes_of_another_provider_are_refused_with_a_reason() -> None:
    refused = unseal(b"another\x01", seal(MARK, "key", []))
    assert isinstance(refused, Rejection)
    assert "not of this provider" in refused.reason
