"""Tables of cosines and sines, with the scalings that make contexts longer."""

from __future__ import annotations

import math
from typing import TypeGuard

import numpy as np

from ort_genai.builder.architecture import Rotation
from ort_genai.errors import InvalidModelFolder

_GREATEST = 1e30  # of a number that a scaling states
_MOST_BYTES = 1 << 30  # of a table: 8 million positions of heads of 64


def tables(rotation: Rotation, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return cosines and sines, float32 (length, width / 2).

    Raises:
        InvalidModelFolder: the scaling is none that is known, or lacks a number, or the tables are too large.
    """
    if 2 * length * rotation.width > _MOST_BYTES:
        raise InvalidModelFolder(
            f"cosines of {length} positions take {2 * length * rotation.width:,} bytes; build for a shorter context, "
            "with --context"
        )
    frequencies, factor = _frequencies(rotation, length)
    # transformers computes frequencies and angles in float32; so do these, so that far positions agree
    angles = np.arange(length, dtype=np.float32)[:, None] * frequencies.astype(np.float32)[None]
    return (np.cos(angles) * np.float32(factor)).astype(np.float32), (np.sin(angles) * np.float32(factor)).astype(
        np.float32
    )


def _frequencies(rotation: Rotation, length: int) -> tuple[np.ndarray, float]:
    """Return frequencies and the factor of the tables."""
    steps = np.arange(0, rotation.width, 2, dtype=np.float32) / np.float32(rotation.width)
    plain = (1.0 / np.float32(rotation.theta) ** steps).astype(np.float32)
    scaling = rotation.scaling
    kind = scaling.get("rope_type", "default")
    if kind == "default":
        return plain, 1.0
    if kind == "linear":
        return plain / np.float32(_value(scaling, "factor")), 1.0
    if kind == "llama3":
        return _by_wavelength(plain, scaling), 1.0
    if kind == "yarn":
        return _yarn(plain, rotation, length)
    if kind in ("longrope", "su"):
        return _longrope(plain, scaling, length)
    if kind == "factors":  # as GGUF files state it, whatever they were found by
        return plain / np.asarray(scaling["factors"], np.float32), 1.0
    raise InvalidModelFolder(
        f"the rotation's scaling {kind!r} cannot be built; known: default, linear, llama3, yarn, longrope"
    )


def _by_wavelength(plain: np.ndarray, scaling: dict[str, object]) -> np.ndarray:
    factor, low, high = (_value(scaling, name) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    original = _value(scaling, "original_max_position_embeddings")
    if low >= high:
        raise InvalidModelFolder(f"rope_scaling has low_freq_factor = {low}, not below high_freq_factor = {high}")
    lengths = 2 * math.pi / plain
    share = (original / lengths - low) / (high - low)
    between = (1 - share) * plain / factor + share * plain
    slow = np.where(lengths > original / low, plain / factor, plain)
    is_between = (lengths <= original / low) & (lengths >= original / high)
    return np.where(is_between, between, slow).astype(np.float32)


def _yarn(plain: np.ndarray, rotation: Rotation, length: int) -> tuple[np.ndarray, float]:
    scaling = rotation.scaling
    original = _original(scaling, length)
    factor = _value(scaling, "factor")
    fast, slow = _value(scaling, "beta_fast", 32.0), _value(scaling, "beta_slow", 1.0)

    def place(rotations: float) -> float:
        return rotation.width * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(rotation.theta))

    low, high = place(fast), place(slow)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotation.width - 1)
    ramp = np.clip((np.arange(rotation.width // 2, dtype=np.float32) - low) / ((high - low) or 0.001), 0, 1)
    frequencies = plain / factor * ramp + plain * (1 - ramp)
    stated = _stated_factor(scaling)
    return frequencies.astype(np.float32), _magnitude(scaling, factor) if stated is None else stated


def _magnitude(scaling: dict[str, object], factor: float) -> float:
    def of(scale: float, weight: float) -> float:
        return 1.0 if scale <= 1 else 0.1 * weight * math.log(scale) + 1.0

    first, all_dims = scaling.get("mscale"), scaling.get("mscale_all_dim")
    if _is_number(first) and _is_number(all_dims) and first > 0 and all_dims > 0:
        return of(factor, first) / of(factor, all_dims)
    return of(factor, 1.0)


def _longrope(plain: np.ndarray, scaling: dict[str, object], length: int) -> tuple[np.ndarray, float]:
    """Return those for contexts up to the original length: what a longer one needs is another table."""
    factors = scaling.get("short_factor")
    is_whole = isinstance(factors, list) and len(factors) == len(plain)
    if not isinstance(factors, list) or not is_whole or not all(_is_number(each) and each > 0 for each in factors):
        raise InvalidModelFolder(
            f"rope_scaling of {scaling.get('rope_type')!r} needs short_factor with {len(plain)} numbers above 0"
        )
    original = _original(scaling, length)
    longest = _value(scaling, "factor", 0.0) or _value(scaling, "max_position_embeddings", original) / original
    stated = _stated_factor(scaling)
    if stated is None:
        if original <= 1:
            raise InvalidModelFolder(f"rope_scaling has original_max_position_embeddings = {original}, expected over 1")
        stated = 1.0 if longest <= 1 else math.sqrt(1 + math.log(longest) / math.log(original))
    return plain / np.asarray(factors, np.float32), stated


def _original(scaling: dict[str, object], length: int) -> float:
    """Return the positions that a model was trained with before its context was made longer."""
    whole = _value(scaling, "max_position_embeddings", float(length))
    return _value(scaling, "original_max_position_embeddings", whole)


def _value(scaling: dict[str, object], name: str, default: float | None = None) -> float:
    found = scaling.get(name)
    found = default if found is None else found
    if not _is_number(found) or (found <= 0 and found != default):
        raise InvalidModelFolder(
            f"rope_scaling of {scaling.get('rope_type')!r} needs {name}, a number above 0; found {found!r}"
        )
    return float(found)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _GREATEST


def _stated_factor(scaling: dict[str, object]) -> float | None:
    """Return what multiplies cosines and sines, where the scaling states it."""
    return None if scaling.get("attention_factor") is None else _value(scaling, "attention_factor")
