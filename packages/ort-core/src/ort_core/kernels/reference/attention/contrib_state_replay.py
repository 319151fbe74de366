"""States taken up again after a part of guessed tokens was accepted, and selections of keys joined."""

from __future__ import annotations

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import kernel


def _view(backing: np.ndarray, offset: int, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Return a part of a vector in a shape, from an element on."""
    count = int(np.prod(shape, dtype=np.int64))
    if backing.ndim != 1 or offset < 0 or offset + count > backing.size:
        raise InvalidArgument(f"{name} of shape {backing.shape} does not hold {shape} from element {offset} on")
    return backing[offset : offset + count].reshape(shape)


def _facts(metadata: np.ndarray, count: int, op_type: str) -> list[int]:
    if metadata.shape != (count,) or (metadata < 0).any():
        raise InvalidArgument(f"{op_type}: metadata must hold {count} numbers of at least 0, found {metadata.tolist()}")
    return [int(value) for value in metadata]


@kernel("ConvStateReplay", domain="com.microsoft")
def conv_state_replay(
    source: np.ndarray, capture: np.ndarray, destination: np.ndarray, metadata: np.ndarray
) -> np.ndarray:
    """Return the destination with the history [batch, channels, width] behind the kept inputs."""
    *offsets, batch, channels, width, capacity, kept = _facts(metadata, 8, "ConvStateReplay")
    size = destination.itemsize
    if kept > capacity or channels == 0 or any(offset % size for offset in offsets):
        raise InvalidArgument(
            f"ConvStateReplay: metadata {metadata.tolist()} is impossible for elements of {size} bytes"
        )
    from_, to, captured = (offset // size for offset in offsets)
    history = _view(source, from_, (batch, channels, width), "source_backing")
    inputs = _view(capture, captured, (batch, capacity, channels), "capture_backing")[:, :kept]
    out = destination.copy()
    joined = np.concatenate([history, inputs.transpose(0, 2, 1)], axis=2)
    _view(out, to, (batch, channels, width), "destination_backing")[...] = joined[:, :, kept:]
    return out


@kernel("GatedDeltaNetStateReplay", domain="com.microsoft")
def gated_delta_net_state_replay(
    source: np.ndarray, capsule: np.ndarray, destination: np.ndarray, metadata: np.ndarray
) -> np.ndarray:
    """Return the destination with the state [Hv, Dv, Dk] behind the kept transitions: s = s * decay + key * delta."""
    from_, to, decay_at, key_at, delta_at, heads, depth, width, key_heads, capacity, kept = _facts(
        metadata, 11, "GatedDeltaNetStateReplay"
    )
    if not 1 <= kept <= capacity or min(heads, depth, width, key_heads) < 1:
        raise InvalidArgument(f"GatedDeltaNetStateReplay: metadata {metadata.tolist()} is impossible")
    whole = key_at - decay_at == capacity * heads * width
    decay = _view(capsule, decay_at, (capacity, heads, width if whole else 1), "capsule_backing")
    keys = _view(capsule, key_at, (capacity, key_heads, width), "capsule_backing")
    delta = _view(capsule, delta_at, (capacity, heads, depth), "capsule_backing")
    own = np.arange(heads) * key_heads // heads
    state = _view(source, from_, (heads, depth, width), "source_backing").astype(np.float32)
    for step in range(kept):
        state = state * decay[step][:, None] + keys[step][own][:, None] * delta[step][:, :, None]
    out = destination.copy()
    _view(out, to, (heads, depth, width), "destination_backing")[...] = state
    return out


@kernel("PackedSparseAttentionIndexerMerge", domain="com.microsoft")
def merge_selections(
    base_indices: np.ndarray,
    base_counts: np.ndarray,
    base_row_indices: np.ndarray,
    range_starts: np.ndarray | None = None,
    range_ends: np.ndarray | None = None,
    additional_indices: np.ndarray | None = None,
    additional_counts: np.ndarray | None = None,
    *,
    max_output_entries: int,
    policy_mode: str,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each query's base selection and a range or further indices, each once: indices [N, max], counts, status.

    A status of 1 says that lengths, rows or bounds are impossible, 2 that there are more than fit; nothing is
    selected then.
    """
    ranged = policy_mode == "append_range"
    second = (range_starts, range_ends) if ranged else (additional_indices, additional_counts)
    if policy_mode not in ("append_range", "append_indices") or any(value is None for value in second):
        raise InvalidArgument(
            f"PackedSparseAttentionIndexerMerge: policy_mode {policy_mode!r} is neither append_range with its range "
            "nor append_indices with its indices"
        )
    if not 1 <= max_output_entries <= 2**30:
        raise InvalidArgument(f"max_output_entries must be from 1 to 2^30, found {max_output_entries}")
    count = len(base_row_indices)
    selected = np.full((count, max_output_entries), -1, np.int32)
    counts, status = np.zeros(count, np.int32), np.zeros(count, np.int32)
    for query in range(count):
        first = _base(base_indices, base_counts, int(base_row_indices[query]))
        more = _range(*second, query) if ranged else _prefix(*second, query)
        if first is None or more is None:
            status[query] = 1
            continue
        merged = list(dict.fromkeys([*first, *more]))
        if len(merged) > max_output_entries:
            status[query] = 2
            continue
        selected[query, : len(merged)] = merged
        counts[query] = len(merged)
    return selected, counts, status


def _base(indices: np.ndarray, counts: np.ndarray, row: int) -> list[int] | None:
    return _prefix(indices, counts, row) if 0 <= row < len(indices) else None


def _prefix(indices: np.ndarray | None, counts: np.ndarray | None, row: int) -> list[int] | None:
    assert indices is not None
    assert counts is not None
    length = int(counts[row])
    if not 0 <= length <= indices.shape[1]:
        return None
    found: list[int] = indices[row, :length].tolist()
    return found if min(found, default=0) >= 0 else None


def _range(starts: np.ndarray | None, ends: np.ndarray | None, row: int) -> range | None:
    assert starts is not None
    assert ends is not None
    low, high = int(starts[row]), int(ends[row])
    return range(low, high) if 0 <= low <= high else None
