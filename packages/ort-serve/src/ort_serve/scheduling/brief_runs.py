"""Which runs are so short that handing them to a thread costs more than they do.

Shapes that were seen to run in less than ``LIMIT_S`` run in the event loop itself: the change of threads, there and
back, takes about 0.2 ms, and a run of that length keeps nobody waiting. A shape is first run by a thread, and goes back
there when a run of it took longer. Models whose work depends on the values of inputs, not on their sizes alone, never
run in the loop: one request could hold up all others.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

LIMIT_S = 0.0003
_MOST_SHAPES = 512
_RISE = 1.5  # a run may be interrupted by other programs: only several long ones after another count as long
_SIZED_BY_VALUES = frozenset({
    "AffineGrid", "BeamSearch", "BlackmanWindow", "CenterCropPad", "Col2Im", "ConstantOfShape", "CropAndResize", "DFT",
    "DecoderMaskedMultiHeadAttention", "DecoderMaskedSelfAttention", "Expand", "GreedySearch", "GroupQueryAttention",
    "HammingWindow", "HannWindow", "If", "ImageDecoder", "Loop", "MaxUnpool",
    "MelWeightMatrix", "OneHot", "Pad", "Range", "RegexFullMatch", "RegexReplace", "Resize", "RoiAlign", "STFT",
    "Sampling", "Scan", "SequenceMap", "StringConcat", "StringNormalizer", "StringSplit", "Tile", "Tokenizer",
    "Upsample", "WhisperBeamSearch",
})  # fmt: skip

_KNOWN_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})  # an operator of others may do anything


def is_work_bounded(operators: Iterable[tuple[str, str]]) -> bool:
    """Return whether the sizes of a model's inputs bound what a run of it takes.

    Args:
        operators: domain and op_type of its nodes.
    """
    return all(domain in _KNOWN_DOMAINS and op_type not in _SIZED_BY_VALUES for domain, op_type in operators)


class BriefRuns:
    """What runs of a model took, by shapes. Threads may call it at once: each entry is replaced whole."""

    def __init__(self, is_bounded: bool) -> None:
        self._is_bounded = is_bounded
        self._seen: dict[Hashable, tuple[int, float]] = {}

    def is_brief(self, shapes: Hashable, rows: int) -> bool:
        """Return whether a run of so many joined rows is known to be short."""
        seen = self._seen.get(shapes)
        if seen is None:
            return False
        return seen[1] * max(rows / seen[0], 1.0) <= LIMIT_S

    def learn(self, shapes: Hashable, rows: int, seconds: float) -> None:
        """Note what a run took."""
        if not self._is_bounded:
            return
        seen = self._seen.get(shapes)
        if seen is None and len(self._seen) >= _MOST_SHAPES:
            self._seen.clear()  # sizes that come once each are not worth a better choice
        if seen is not None and rows >= seen[0]:
            seconds = min(seconds, seen[1] * rows / seen[0] * _RISE)
        self._seen[shapes] = (rows, seconds)
