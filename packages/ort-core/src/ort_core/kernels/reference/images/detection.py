"""Non-maximum suppression: take the best box, drop what overlaps it too much, and go on."""

from __future__ import annotations

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelContext, kernel

BLOCK = 48  # candidates compared with one another at once: about twice what models keep of a class


@kernel("NonMaxSuppression", since=10)
def non_max_suppression(
    boxes: np.ndarray,
    scores: np.ndarray,
    max_output_boxes_per_class: np.ndarray | None = None,
    iou_threshold: np.ndarray | None = None,
    score_threshold: np.ndarray | None = None,
    *,
    center_point_box: int = 0,
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Return rows (batch, class, box) of the boxes [N, B, 4] that scores [N, C, B] keep, best first in each class."""
    limit = 0 if max_output_boxes_per_class is None else int(max_output_boxes_per_class.reshape(-1)[0])
    overlap = 0.0 if iou_threshold is None else iou_threshold.reshape(-1)[0]
    _check(boxes, scores, float(overlap))
    rows: list[np.ndarray] = []
    if limit > 0:
        for batch in range(scores.shape[0]):
            corners = _corners(boxes[batch], bool(center_point_box))
            for label in range(scores.shape[1]):
                if ctx is not None:
                    ctx.guard.check()
                kept = _suppress(corners, scores[batch, label], limit, overlap, score_threshold)
                head = np.broadcast_to(np.array([batch, label], np.int64), (len(kept), 2))
                rows.append(np.concatenate([head, kept[:, None]], axis=1))
    return np.concatenate(rows) if rows else np.zeros((0, 3), np.int64)


def _check(boxes: np.ndarray, scores: np.ndarray, overlap: float) -> None:
    if boxes.ndim != 3 or boxes.shape[2] != 4 or scores.ndim != 3:
        raise InvalidArgument(
            f"boxes and scores must be 3D tensors [N, B, 4] and [N, C, B], found {boxes.shape} and {scores.shape}"
        )
    if boxes.shape[0] != scores.shape[0]:
        raise InvalidArgument(f"boxes and scores should have same num_batches. Found {boxes.shape} and {scores.shape}")
    if boxes.shape[1] != scores.shape[2]:
        raise InvalidArgument(
            f"boxes and scores should have same spatial_dimension. Found {boxes.shape} and {scores.shape}"
        )
    if not 0 <= overlap <= 1:
        raise InvalidArgument(f"iou_threshold must be in range [0, 1]. Found {overlap}")


def _corners(boxes: np.ndarray, center_point_box: bool) -> np.ndarray:
    """Return [4, B]: lower and upper y, lower and upper x, whichever corners the boxes name."""
    if center_point_box:
        x, y, width, height = boxes.T
        return np.stack([y - height / 2, y + height / 2, x - width / 2, x + width / 2])
    y1, x1, y2, x2 = boxes.T
    return np.stack([np.minimum(y1, y2), np.maximum(y1, y2), np.minimum(x1, x2), np.maximum(x1, x2)])


def _suppress(
    corners: np.ndarray, scores: np.ndarray, limit: int, overlap: np.floating | float, threshold: np.ndarray | None
) -> np.ndarray:
    """Return what is kept of one class. Candidates come in blocks: one comparison of all pairs instead of many."""
    candidates = np.arange(len(scores), dtype=np.int64)
    if threshold is not None:
        candidates = candidates[scores > threshold.reshape(-1)[0]]
    candidates = candidates[np.argsort(-scores[candidates], kind="stable")]
    kept: list[int] = []
    for start in range(0, candidates.size, BLOCK):
        block = candidates[start : start + BLOCK]
        if kept:
            block = block[~(_overlaps(corners[:, kept], corners[:, block]) > overlap).any(axis=0)]
        conflicts = _overlaps(corners[:, block], corners[:, block]) > overlap
        is_dropped = np.zeros(block.size, np.bool_)
        for number, candidate in enumerate(block.tolist()):
            if is_dropped[number]:
                continue
            kept.append(candidate)
            if len(kept) == limit:
                return np.array(kept, np.int64)
            is_dropped |= conflicts[number]
    return np.array(kept, np.int64)


def _overlaps(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return intersection over union of each box (rows) with each other; nothing overlaps a box without area."""
    boxes = boxes[:, :, None]
    height = np.minimum(boxes[1], others[1]) - np.maximum(boxes[0], others[0])
    width = np.minimum(boxes[3], others[3]) - np.maximum(boxes[2], others[2])
    common = np.maximum(height, 0) * np.maximum(width, 0)
    area = (boxes[1] - boxes[0]) * (boxes[3] - boxes[2])
    areas = (others[1] - others[0]) * (others[3] - others[2])
    whole = area + areas - common
    valid = (common > 0) & (area > 0) & (areas > 0) & (whole > 0)
    return np.where(valid, common / np.where(valid, whole, 1), 0)
