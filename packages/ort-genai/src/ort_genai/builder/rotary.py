"""Tables of cosines and sines, with the scalings that make contexts longer."""

from __future__ import annotations

import math

import numpy as np

from ort_genai.builder.architecture import Rotation
from ort_genai.errors import InvalidModelFolder


def tables(rotation: Rotation, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return cosines and sines, float32 (length, width / 2).

    Raises:
        InvalidModelFolder: the scaling is none that is known, or lacks a number.
    """
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
    lengths = 2 * math.pi / plain
    share = (original / lengths - low) / (high - low)
    between = (1 - share) * plain / factor + share * plain
    slow = np.where(lengths > original / low, plain / factor, plain)
    is_between = (lengths <= original / low) & (lengths >= original / high)
    return np.where(is_between, between, slow).astype(np.float32)


def _yarn(plain: np.ndarray, rotation: Rotation, length: int) -> tuple[np.ndarray, float]:
    scaling = rotation.scaling
    original = _value(scaling, "original_max_position_embeddings", float(length))
    factor = _value(scaling, "factor")
    fast, slow = _value(scaling, "beta_fast", 32.0), _value(scaling, "beta_slow", 1.0)

    def place(rotations: float) -> float:
        return rotation.width * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(rotation.theta))

    low, high = place(fast), place(slow)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotation.width - 1)
    ramp = np.clip((np.arange(rotation.width // 2, dtype=np.float32) - low) / max(high - low, 0.001), 0, 1)
    frequencies = plain / factor * ramp + plain * (1 - ramp)
    stated = scaling.get("attention_factor")
    return frequencies.astype(np.float32), float(stated) if isinstance(stated, int | float) else _magnitude(
        scaling, factor
    )


def _magnitude(scaling: dict[str, object], factor: float) -> float:
    def of(scale: float, weight: float) -> float:
        return 1.0 if scale <= 1 else 0.1 * weight * math.log(scale) + 1.0

    first, all_dims = scaling.get("mscale"), scaling.get("mscale_all_dim")
    if isinstance(first, int | float) and isinstance(all_dims, int | float) and first and all_dims:
        return of(factor, first) / of(factor, all_dims)
    return of(factor, 1.0)


def _longrope(plain: np.ndarray, scaling: dict[str, object], length: int) -> tuple[np.ndarray, float]:
    """Return those for contexts up to the original length: what a longer one needs is another table."""
    factors = scaling.get("short_factor")
    if not isinstance(factors, list) or len(factors) != len(plain):
        raise InvalidModelFolder(
            f"rope_scaling of {scaling.get('rope_type')!r} needs short_factor with {len(plain)} numbers"
        )
    original = _value(scaling, "original_max_position_embeddings", float(length))
    longest = _value(scaling, "factor", 0.0) or _value(scaling, "max_position_embeddings", original) / original
    stated = scaling.get("attention_factor")
    magnitude = 1.0 if longest <= 1 else math.sqrt(1 + math.log(longest) / math.log(original))
    return plain / np.asarray(factors, np.float32), float(stated) if isinstance(stated, int | float) else magnitude


def _value(scaling: dict[str, object], name: str, default: float | None = None) -> float:
    found = scaling.get(name)
    found = default if found is None else found
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise InvalidModelFolder(f"rope_scaling of {scaling.get('rope_type')!r} needs {name}, found {found!r}")
    return float(found)
