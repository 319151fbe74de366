"""Codes of 2, 4 or 8 bits packed in bytes, low-order bits first, spread to one byte each."""

from __future__ import annotations

import numpy as np

from ort_core import errors


def unpack_bits(packed: np.ndarray, bits: int) -> np.ndarray:
    """Return uint8 codes; the last axis grows by 8 / bits.

    Raises:
        InvalidArgument: ``bits`` is not 2, 4 or 8.
    """
    if bits == 8:
        return packed
    if bits not in (2, 4):
        raise errors.InvalidArgument(f"codes of {bits} bits: expected 2, 4 or 8")
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return codes.reshape(*packed.shape[:-1], packed.shape[-1] * shifts.size)
