"""Non-maximum suppression: take the best box, drop what overlaps it too much, and go on."""

from __future__ import annotations

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelContext, kernel


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
    candidates = np.arange(len(scores), dtype=np.int64)
    if threshold is not None:
        candidates = candidates[scores > threshold.reshape(-1)[0]]
    candidates = candidates[np.argsort(-scores[candidates], kind="stable")]
    kept: list[int] = []
    while candidates.size and len(kept) < limit:
        best, candidates = candidates[0], candidates[1:]
        kept.append(int(best))
        candidates = candidates[_overlaps(corners[:, best], corners[:, candidates]) <= overlap]
    return np.array(kept, np.int64)


def _overlaps(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return intersection over union of one box with others; nothing overlaps a box without area."""
    height = np.minimum(box[1], others[1]) - np.maximum(box[0], others[0])
    width = np.minimum(box[3], others[3]) - np.maximum(box[2], others[2])
    common = np.maximum(height, 0) * np.maximum(width, 0)
    area = (box[1] - box[0]) * (box[3] - box[2])
    areas = (others[1] - others[0]) * (others[3] - others[2])
    whole = area + areas - common
    valid = (common > 0) & (area > 0) & (areas > 0) & (whole > 0)
    return np.where(valid, common / np.where(valid, whole, 1), 0)
