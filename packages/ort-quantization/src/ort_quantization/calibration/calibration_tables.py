"""Calibrated ranges as the files that the TensorRT provider reads: JSON, a flatbuffer and lines of text.

The buffer is a table with a vector of pairs of strings: the name of a value, and how far its numbers lie from zero. The
text has the same pairs, one on each line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import flatbuffers
import numpy as np

from ort_core.whole_files import written_whole
from ort_quantization.calibration.tensor_ranges import CalibrationCacheEncoder, TensorData, TensorsData
from ort_quantization.errors import InvalidQuantization

Ranges = TensorsData | Mapping[str, TensorData | tuple[float, float]]


def write_calibration_table(calibration_cache: Ranges, dir: str | Path = ".") -> None:
    """Write ``calibration.json``, ``calibration.flatbuffers`` and ``calibration.cache``.

    Args:
        calibration_cache: ranges by name, as a calibrator gives them, or pairs of numbers.
        dir: the folder to write into.

    Raises:
        InvalidQuantization: a value has no range.
    """
    folder = Path(dir)
    folder.mkdir(parents=True, exist_ok=True)
    content = calibration_cache.to_dict() if isinstance(calibration_cache, TensorsData) else dict(calibration_cache)
    reaches = {name: _reach(name, calibration_cache[name]) for name in sorted(calibration_cache.keys())}
    lines = "".join(f"{name} {reach}\n" for name, reach in reaches.items())
    written = {
        "calibration.json": json.dumps(content, cls=CalibrationCacheEncoder).encode(),
        "calibration.flatbuffers": _table(reaches),
        "calibration.cache": lines.encode(),
    }
    with ExitStack() as held:  # all take their names once all are whole: a reader's next file fits the last
        for name, text in written.items():
            held.enter_context(written_whole(folder / name)).write_bytes(text)


def _reach(name: str, known: TensorData | tuple[float, float]) -> str:
    """Return how far the numbers of a value lie from zero, in decimals."""
    ends = known if isinstance(known, tuple) else (getattr(known, "lowest", None), getattr(known, "highest", None))
    if len(ends) != 2 or any(end is None for end in ends):
        raise InvalidQuantization(f"value {name!r} has no range, and a calibration table holds nothing else")
    return str(max(float(np.max(np.abs(np.asarray(end)))) for end in ends))


def _table(reaches: Mapping[str, str]) -> bytes:
    builder = flatbuffers.Builder(1024)
    pairs = [_pair(builder, name, reach) for name, reach in reaches.items()]
    builder.StartVector(4, len(pairs), 4)
    for pair in reversed(pairs):
        builder.PrependUOffsetTRelative(pair)
    vector = builder.EndVector()
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(0, vector, 0)
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())


def _pair(builder: flatbuffers.Builder, name: str, reach: str) -> int:
    strings = [builder.CreateString(each) for each in (name, reach)]
    builder.StartObject(2)
    for slot, each in enumerate(strings):
        builder.PrependUOffsetTRelativeSlot(slot, each, 0)
    return int(builder.EndObject())
