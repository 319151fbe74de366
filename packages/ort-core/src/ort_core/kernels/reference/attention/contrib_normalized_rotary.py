"""RMS normalization and rotary positions in one: com.microsoft's RMSNormRotary."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.means import mean as mean_of
from ort_core.kernels.reference.arrays.widening import narrow, widen

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_FLOAT16 = np.dtype(np.float16)


@kernel("RMSNormRotary", domain="com.microsoft")
@np.errstate(over="ignore", invalid="ignore")
def rms_norm_rotary(
    x: np.ndarray,
    scale: np.ndarray,
    position_ids: np.ndarray,
    cosine: np.ndarray,
    sine: np.ndarray,
    prefill_numerics: np.ndarray | None = None,
    *,
    epsilon: float = 1e-6,
    flatten_batch: int = 0,
    input_start: int = 0,
    input_width: int = 0,
    output_fp16: int = 0,
    rotary_embedding_dim: int,
    use_fp32_arithmetic: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Y = rotated(x[..., start : start + width] / rms * scale), and the values before the rotation.

    With float16 on either side, or caches of float32, nothing is rounded before the end. Else the normalized values
    are bfloat16, and so are the products of the rotation in prefill mode or without ``use_fp32_arithmetic``.
    """
    width = _width_of(x, scale, input_start, input_width, epsilon)
    _require_rotation(cosine, sine, rotary_embedding_dim, width)
    batch, length, heads, _ = x.shape
    is_wide = x.dtype == _FLOAT16 or bool(output_fp16) or cosine.dtype == np.float32
    is_prefill = _is_prefill(prefill_numerics)
    values = widen(x[..., input_start : input_start + width])
    normalized = _normalized(values, scale, epsilon, by_division=not is_wide and not is_prefill)
    if not is_wide:
        normalized = _rounded(normalized)
    positions = _positions(position_ids, batch, length, len(cosine))
    angles = [widen(table[positions])[:, :, None, :] for table in (cosine, sine)]
    rounds = not is_wide and (is_prefill or not use_fp32_arithmetic)
    turned = _turned(normalized, angles[0], angles[1], rounds=rounds)
    rows = (1, batch * length) if flatten_batch else (batch, length)
    y = narrow(turned, _FLOAT16 if output_fp16 else _BFLOAT16)
    return y.reshape(*rows, heads * width), normalized


def _rounded(x: np.ndarray) -> np.ndarray:
    return widen(narrow(x, _BFLOAT16))


def _width_of(x: np.ndarray, scale: np.ndarray, start: int, width: int, epsilon: float) -> int:
    if x.ndim != 4:
        raise InvalidArgument(f"RMSNormRotary: X must be [batch, sequence, heads, stride], found shape {x.shape}")
    found = width or x.shape[3]
    if start < 0 or found < 1 or start + found > x.shape[3]:
        raise InvalidArgument(
            f"RMSNormRotary: input_start {start} and input_width {width} do not lie within a last axis of {x.shape[3]}"
        )
    if scale.shape != (found,):
        raise InvalidArgument(f"RMSNormRotary: scale must have shape ({found},), found {scale.shape}")
    if not np.isfinite(epsilon) or epsilon < 0:
        raise InvalidArgument(f"RMSNormRotary: epsilon must be finite and not negative, found {epsilon}")
    return found


def _require_rotation(cosine: np.ndarray, sine: np.ndarray, rotary: int, width: int) -> None:
    if rotary < 2 or rotary % 2 or rotary > width:
        raise InvalidArgument(f"RMSNormRotary: rotary_embedding_dim must be even and in 2 to {width}, found {rotary}")
    if cosine.ndim != 2 or cosine.shape[1] != rotary // 2 or sine.shape != cosine.shape:
        raise InvalidArgument(
            f"RMSNormRotary: cosine and sine must have shape (rows, {rotary // 2}), found {cosine.shape} and "
            f"{sine.shape}"
        )


def _is_prefill(mode: np.ndarray | None) -> bool:
    if mode is None:
        return False
    if mode.size != 1 or int(mode.reshape(-1)[0]) not in (0, 1):
        raise InvalidArgument(f"RMSNormRotary: prefill_numerics must be one number, 0 or 1; found {mode.tolist()}")
    return bool(mode.reshape(-1)[0])


def _positions(given: np.ndarray, batch: int, length: int, rows: int) -> np.ndarray:
    """Return int64 [batch, sequence]: as given, or counted from one base."""
    if given.size == 1 and given.shape != (batch, length):
        found = np.broadcast_to(given.reshape(-1)[0] + np.arange(length), (batch, length))
    elif given.shape == (batch, length):
        found = given
    else:
        raise InvalidArgument(
            f"RMSNormRotary: position_ids must be one number or of shape ({batch}, {length}), found {given.shape}"
        )
    if found.size and not 0 <= int(found.min()) <= int(found.max()) < rows:
        raise InvalidArgument(f"RMSNormRotary: position_ids reach beyond the {rows} rows of cosine and sine")
    return found


def _normalized(x: np.ndarray, scale: np.ndarray, epsilon: float, *, by_division: bool) -> np.ndarray:
    mean = mean_of(np.square(x), -1, dtype=np.float64).astype(np.float32)
    root = np.sqrt(mean + np.float32(epsilon))
    return (x / root if by_division else x * (1 / root)) * scale


def _turned(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray, *, rounds: bool) -> np.ndarray:
    """Rotate the pairs (i, i + half) of the first elements; with ``rounds`` each product is a bfloat16."""
    half = cosine.shape[-1]
    first, second, kept = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    products = [first * cosine, second * sine, second * cosine, first * sine]
    if rounds:
        products = [_rounded(each) for each in products]
    return np.concatenate([products[0] - products[1], products[2] + products[3], kept], axis=-1)
