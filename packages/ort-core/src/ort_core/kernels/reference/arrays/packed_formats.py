"""Rows of weights packed in blocks, as GGUF files hold them: bytes to float32.

A format has a number, a block of some elements, and for each block some bytes: a float16 scale, then scales of its
parts, codes and signs. The numbers are GGML's. ``d`` is the block's scale in what follows; bits are counted from
the lowest. A codebook's entry gives the magnitudes of 4 or 8 elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.reference.arrays.packed_codebooks import IQ2_S, IQ2_XS, IQ2_XXS, IQ3_XXS, read_codebook

_FOUR_BIT_VALUES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)  # of IQ4_NL and IQ4_XS
_SIGNS = np.array([code | (code.bit_count() % 2) << 7 for code in range(128)], np.uint8)  # an even number of minuses
Blocks = np.ndarray  # uint8 [blocks, bytes of a block]; decoders give float32 [blocks, elements of a block]


@dataclass(frozen=True)
class PackedFormat:
    """How blocks of one format are read.

    Attributes:
        name: as GGML calls it.
        elements: of a block.
        nbytes: of a block.
        decode: uint8 [blocks, nbytes] to float32 [blocks, elements].
    """

    name: str
    elements: int
    nbytes: int
    decode: Callable[[Blocks], np.ndarray]

    def row_bytes(self, count: int) -> int:
        """Return the bytes of a row of ``count`` elements, a multiple of a block's."""
        return count // self.elements * self.nbytes

    def unpack(self, rows: np.ndarray) -> np.ndarray:
        """Return float32 [..., count] of uint8 [..., row bytes]."""
        with np.errstate(over="ignore", invalid="ignore"):  # scales may be infinite or NaN
            blocks = self.decode(np.ascontiguousarray(rows).reshape(-1, self.nbytes))
        return blocks.reshape(*rows.shape[:-1], rows.shape[-1] // self.nbytes * self.elements)


def find_packed_format(number: int, count: int, node: str) -> PackedFormat:
    """Return the format of a number, for rows of ``count`` elements.

    Raises:
        InvalidArgument: it is unknown, or its blocks do not fill the rows.
    """
    found = FORMATS.get(number)
    if found is None:
        known = ", ".join(f"{key} ({each.name})" for key, each in FORMATS.items())
        raise InvalidArgument(f"{node}: packed format {number} is not known; known are {known}")
    if count < 1 or count % found.elements:
        raise InvalidArgument(
            f"{node}: rows of {count} elements are not whole blocks of {found.elements}, as {found.name} has them"
        )
    return found


def _half(blocks: Blocks, start: int) -> np.ndarray:
    """Return the float16 that stands at a byte, as float32 [blocks, 1]."""
    return np.ascontiguousarray(blocks[:, start : start + 2]).view("<f2").astype(np.float32)


def _words(part: Blocks, dtype: str) -> np.ndarray:
    return np.ascontiguousarray(part).view(dtype)


def _nibbles(part: Blocks) -> np.ndarray:
    """Return the low halves of all bytes, then the high ones, on a new last axis but one: [..., 2, bytes]."""
    return np.stack([part & 15, part >> 4], axis=-2)


def _interleaved_nibbles(part: Blocks) -> np.ndarray:
    """Return [blocks, 2 * bytes]: each byte's low half, then its high one."""
    return np.stack([part & 15, part >> 4], axis=-1).reshape(len(part), -1)


def _f32(blocks: Blocks) -> np.ndarray:
    return _words(blocks, "<f4").astype(np.float32)


def _f16(blocks: Blocks) -> np.ndarray:
    return _half(blocks, 0)


def _bf16(blocks: Blocks) -> np.ndarray:
    return _words(blocks, "<u2").view(ml_dtypes.bfloat16).astype(np.float32)


def _q4_0(blocks: Blocks) -> np.ndarray:
    """(code - 8) * d: the first half of the elements in the low halves of the bytes."""
    codes = _nibbles(blocks[:, 2:]).reshape(-1, 32).astype(np.float32)
    return (codes - 8) * _half(blocks, 0)


def _q5_0(blocks: Blocks) -> np.ndarray:
    """As Q4_0, with a fifth bit for each element in four bytes of their own: (code - 16) * d."""
    fifth = np.unpackbits(blocks[:, 2:6], axis=1, bitorder="little")
    codes = _nibbles(blocks[:, 6:]).reshape(-1, 32) | fifth << 4
    return (codes.astype(np.float32) - 16) * _half(blocks, 0)


def _q8_0(blocks: Blocks) -> np.ndarray:
    return blocks[:, 2:].view(np.int8).astype(np.float32) * _half(blocks, 0)


def _q5_k(blocks: Blocks) -> np.ndarray:
    """Eight parts of 32: code * (d * scale) - (dmin * minimum), scales and minima of six bits each in twelve bytes."""
    packed = blocks[:, 4:16]
    low, middle, high = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([low & 63, (high & 15) | (low >> 6) << 4], axis=1).astype(np.float32)
    minima = np.concatenate([middle & 63, (high >> 4) | (middle >> 6) << 4], axis=1).astype(np.float32)
    fifth = (blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
    codes = _nibbles(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32) | fifth << 4
    scaled = codes.astype(np.float32) * (_half(blocks, 0) * scales)[..., None]
    return (scaled - (_half(blocks, 2) * minima)[..., None]).reshape(-1, 256)


def _q6_k(blocks: Blocks) -> np.ndarray:
    """Two halves of four parts of 32: four low bits, two high bits; (code - 32) * (d * scale) for each 16 elements."""
    low = _nibbles(blocks[:, :128].reshape(-1, 2, 2, 32).reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    high = (blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts) & 3
    codes = (low | high << 4).astype(np.float32).reshape(-1, 16, 16) - 32
    scales = blocks[:, 192:208].view(np.int8).astype(np.float32) * _half(blocks, 208)
    return (codes * scales[..., None]).reshape(-1, 256)


def _q2_0(blocks: Blocks) -> np.ndarray:
    """(code - 1) * d: codes of two bits, the first element in the lowest."""
    codes = (blocks[:, 2:, None] >> np.arange(0, 8, 2, dtype=np.uint8)) & 3
    return (codes.reshape(-1, 64).astype(np.float32) - 1) * _half(blocks, 0)


def _iq4_nl(blocks: Blocks) -> np.ndarray:
    return _FOUR_BIT_VALUES[_nibbles(blocks[:, 2:]).reshape(-1, 32)] * _half(blocks, 0)


def _iq4_xs(blocks: Blocks) -> np.ndarray:
    """Eight parts of 32 with scales of six bits: four low ones in bytes, two high ones in one word."""
    high = (_words(blocks[:, 2:4], "<u2") >> np.arange(0, 16, 2, dtype=np.uint16)) & 3
    scales = (_interleaved_nibbles(blocks[:, 4:8]) | high << 4).astype(np.float32) - 32
    values = _FOUR_BIT_VALUES[_nibbles(blocks[:, 8:].reshape(-1, 8, 16)).reshape(-1, 8, 32)]
    return (values * (_half(blocks, 0) * scales)[..., None]).reshape(-1, 256)


def _signed(magnitudes: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """Return magnitudes [blocks, n, 8] with a minus for each set bit of signs uint8 [blocks, n]."""
    minus = np.unpackbits(signs[..., None], axis=-1, bitorder="little")
    return np.where(minus, -magnitudes, magnitudes)


def _packed_signs(words: np.ndarray) -> np.ndarray:
    """Return the signs uint8 [blocks, 4 * words] of words that hold four times seven bits."""
    codes = (words[..., None] >> np.arange(0, 28, 7, dtype=np.uint32)) & 127
    return _SIGNS[codes].reshape(len(words), -1)


def _iq2_xxs(blocks: Blocks) -> np.ndarray:
    """Eight parts of 32: four bytes of codebook entries, then four times seven bits of signs, four bits of scale."""
    parts = blocks[:, 2:].reshape(-1, 8, 8)
    words = _words(parts[..., 4:], "<u4")[..., 0]
    values = _signed(read_codebook(IQ2_XXS)[parts[..., :4]].reshape(-1, 32, 8), _packed_signs(words))
    scales = _half(blocks, 0) * ((words >> 28).astype(np.float32) + 0.5) * 0.25
    return (values.reshape(-1, 8, 32) * scales[..., None]).reshape(-1, 256)


def _iq2_xs(blocks: Blocks) -> np.ndarray:
    """Words of nine bits of entry and seven of signs; a scale of four bits for each 16 elements."""
    words = _words(blocks[:, 2:66], "<u2")
    values = _signed(read_codebook(IQ2_XS)[words & 511], _SIGNS[words >> 9])
    return _scaled_by_16(values, blocks, blocks[:, 66:])


def _iq2_s(blocks: Blocks) -> np.ndarray:
    """Entries of ten bits, the two high ones apart; signs in bytes; a scale of four bits for each 16 elements."""
    high = (blocks[:, 66:74, None] >> np.arange(0, 8, 2, dtype=np.uint8)) & 3
    entries = blocks[:, 2:34].astype(np.uint16) | high.reshape(-1, 32).astype(np.uint16) << 8
    return _scaled_by_16(_signed(read_codebook(IQ2_S)[entries], blocks[:, 34:66]), blocks, blocks[:, 74:])


def _scaled_by_16(values: np.ndarray, blocks: Blocks, packed: Blocks) -> np.ndarray:
    scales = _half(blocks, 0) * (_interleaved_nibbles(packed).astype(np.float32) + 0.5) * 0.25
    return (values.reshape(-1, 16, 16) * scales[..., None]).reshape(-1, 256)


def _iq3_xxs(blocks: Blocks) -> np.ndarray:
    """Entries of four elements in bytes; words of four times seven bits of signs and four bits of scale."""
    words = _words(blocks[:, 66:], "<u4")
    magnitudes = read_codebook(IQ3_XXS)[blocks[:, 2:66]].reshape(-1, 32, 8)
    scales = _half(blocks, 0) * ((words >> 28).astype(np.float32) + 0.5) * 0.5
    return (_signed(magnitudes, _packed_signs(words)).reshape(-1, 8, 32) * scales[..., None]).reshape(-1, 256)


FORMATS: Mapping[int, PackedFormat] = {
    0: PackedFormat("F32", 1, 4, _f32), 1: PackedFormat("F16", 1, 2, _f16), 2: PackedFormat("Q4_0", 32, 18, _q4_0),
    6: PackedFormat("Q5_0", 32, 22, _q5_0), 8: PackedFormat("Q8_0", 32, 34, _q8_0),
    13: PackedFormat("Q5_K", 256, 176, _q5_k), 14: PackedFormat("Q6_K", 256, 210, _q6_k),
    16: PackedFormat("IQ2_XXS", 256, 66, _iq2_xxs), 17: PackedFormat("IQ2_XS", 256, 74, _iq2_xs),
    18: PackedFormat("IQ3_XXS", 256, 98, _iq3_xxs), 20: PackedFormat("IQ4_NL", 32, 18, _iq4_nl),
    22: PackedFormat("IQ2_S", 256, 82, _iq2_s), 23: PackedFormat("IQ4_XS", 256, 136, _iq4_xs),
    30: PackedFormat("BF16", 1, 2, _bf16), 42: PackedFormat("Q2_0", 64, 18, _q2_0),
}  # fmt: skip
