"""GGUF's numbers of few bits in plain Python, block by block, from ggml's description of the formats."""

from __future__ import annotations

import struct

_LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)  # of IQ4
_FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def half(block: bytes, at: int) -> float:
    """Return a float16."""
    return struct.unpack_from("<e", block, at)[0]


def nibbles(packed: bytes) -> list[int]:
    """Return the low halves of bytes, and behind them the high ones."""
    return [each & 15 for each in packed] + [each >> 4 for each in packed]


def q4_0(block: bytes) -> list[float]:
    return [half(block, 0) * (each - 8) for each in nibbles(block[2:18])]


def q4_1(block: bytes) -> list[float]:
    return [half(block, 0) * each + half(block, 2) for each in nibbles(block[4:20])]


def q5_0(block: bytes) -> list[float]:
    (high,) = struct.unpack_from("<I", block, 2)
    return [half(block, 0) * ((low | (high >> at & 1) << 4) - 16) for at, low in enumerate(nibbles(block[6:22]))]


def q5_1(block: bytes) -> list[float]:
    (high,) = struct.unpack_from("<I", block, 4)
    lows = enumerate(nibbles(block[8:24]))
    return [half(block, 0) * (low | (high >> at & 1) << 4) + half(block, 2) for at, low in lows]


def q8_0(block: bytes) -> list[float]:
    return [half(block, 0) * each for each in struct.unpack_from("<32b", block, 2)]


def q2_k(block: bytes) -> list[float]:
    scales, packed, step, offset = block[:16], block[16:80], half(block, 80), half(block, 82)
    found = []
    for at in range(256):
        byte, shift = packed[at // 128 * 32 + at % 32], at % 128 // 32 * 2
        scale = scales[at // 16]
        found.append(step * (scale & 15) * (byte >> shift & 3) - offset * (scale >> 4))
    return found


def q3_k(block: bytes) -> list[float]:
    masks, packed, scales, step = block[:32], block[32:96], block[96:108], half(block, 108)
    found = []
    for at in range(256):
        place = at // 16
        low = scales[place] & 15 if place < 8 else scales[place - 8] >> 4
        scale = (low | (scales[8 + place % 4] >> place // 4 * 2 & 3) << 4) - 32
        value = packed[at // 128 * 32 + at % 32] >> at % 128 // 32 * 2 & 3
        found.append(step * scale * (value - (0 if masks[at % 32] >> at // 32 & 1 else 4)))
    return found


def scale_and_offset(packed: bytes, place: int) -> tuple[int, int]:
    """Return what 12 bytes hold of 6 bits for one of eight parts of a block."""
    if place < 4:
        return packed[place] & 63, packed[place + 4] & 63
    both = packed[place + 4]
    return both & 15 | packed[place - 4] >> 6 << 4, both >> 4 | packed[place] >> 6 << 4


def q4_k(block: bytes) -> list[float]:
    return _of_eight_parts(block, None, block[16:144])


def q5_k(block: bytes) -> list[float]:
    return _of_eight_parts(block, block[16:48], block[48:176])


def _of_eight_parts(block: bytes, highs: bytes | None, lows: bytes) -> list[float]:
    step, offset, found = half(block, 0), half(block, 2), []
    for at in range(256):
        part = at // 32
        scale, least = scale_and_offset(block[4:16], part)
        value = lows[part // 2 * 32 + at % 32] >> part % 2 * 4 & 15
        if highs is not None:
            value |= (highs[at % 32] >> part & 1) << 4
        found.append(step * scale * value - offset * least)
    return found


def q6_k(block: bytes) -> list[float]:
    lows, highs, scales = block[:128], block[128:192], struct.unpack_from("<16b", block, 192)
    found = []
    for at in range(256):
        whole, part, place = at // 128, at % 128 // 32, at % 32
        low = lows[whole * 64 + part % 2 * 32 + place] >> part // 2 * 4 & 15
        high = highs[whole * 32 + place] >> part * 2 & 3
        found.append(half(block, 208) * scales[at // 16] * ((low | high << 4) - 32))
    return found


def iq4_nl(block: bytes) -> list[float]:
    return [half(block, 0) * _LEVELS[each] for each in nibbles(block[2:18])]


def iq4_xs(block: bytes) -> list[float]:
    (highs,) = struct.unpack_from("<H", block, 2)
    found = []
    for part in range(8):
        scale = (block[4 + part // 2] >> part % 2 * 4 & 15 | (highs >> part * 2 & 3) << 4) - 32
        found += [half(block, 0) * scale * _LEVELS[each] for each in nibbles(block[8 + part * 16 : 24 + part * 16])]
    return found


def mxfp4(block: bytes) -> list[float]:
    return [2.0 ** (block[0] - 127) * _FP4[each & 7] * (-1 if each & 8 else 1) for each in nibbles(block[1:17])]


def bf16(block: bytes) -> list[float]:
    return list(struct.unpack("<f", b"\0\0" + block))


def f16(block: bytes) -> list[float]:
    return [half(block, 0)]


def f32(block: bytes) -> list[float]:
    return list(struct.unpack("<f", block))


# bytes of a block, places of its float16 numbers, and how it is read
FORMATS = {
    "F32": (4, (), f32), "F16": (2, (0,), f16), "BF16": (2, (), bf16), "Q4_0": (18, (0,), q4_0),
    "Q4_1": (20, (0, 2), q4_1), "Q5_0": (22, (0,), q5_0), "Q5_1": (24, (0, 2), q5_1), "Q8_0": (34, (0,), q8_0),
    "Q2_K": (84, (80, 82), q2_k), "Q3_K": (110, (108,), q3_k), "Q4_K": (144, (0, 2), q4_k), "Q5_K": (176, (0, 2), q5_k),
    "Q6_K": (210, (208,), q6_k), "IQ4_NL": (18, (0,), iq4_nl), "IQ4_XS": (136, (0,), iq4_xs), "MXFP4": (17, (), mxfp4),
}  # fmt: skip
