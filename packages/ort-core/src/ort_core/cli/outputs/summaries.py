"""Values in a few words: shape, type, range, mean and the first elements."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_core.cli.console import number_text
from ort_core.ir.types import DataType

FIRST = 6  # how many elements are shown


def summarize(value: object, first: int = FIRST) -> dict[str, object]:
    """Return the facts of a run-time value as plain data; ``kind`` says which others are there."""
    if value is None:
        return {"kind": "none"}
    if isinstance(value, np.ndarray):
        return _of_array(value, first)
    if isinstance(value, Mapping):
        entries = list(value.items())
        return {"kind": "map", "length": len(entries), "first": [[key, item] for key, item in entries[:first]]}
    if isinstance(value, (list, tuple)):
        return {
            "kind": "sequence",
            "length": len(value),
            "elements": [summarize(item, first) for item in value[:first]],
        }
    shape = getattr(value, "shape", ())
    return {"kind": type(value).__name__, "shape": list(shape)}


def _of_array(array: np.ndarray, first: int) -> dict[str, object]:
    facts: dict[str, object] = {"kind": "tensor", "type": type_name(array), "shape": list(array.shape)}
    if array.dtype == object or array.dtype.kind in "USTc":
        return {**facts, "first": [str(item) for item in array.reshape(-1)[:first]]}
    is_float = array.dtype.kind not in "iub"
    wide = array.astype(np.float64) if is_float and array.dtype != np.float64 else array
    if array.size:
        finite = wide[np.isfinite(wide)] if is_float else wide
        if finite.size:
            facts |= {
                "min": finite.min().item(),
                "max": finite.max().item(),
                "mean": float(finite.mean(dtype=np.float64)),
            }
        if is_float and finite.size < array.size:
            facts |= {"nan": int(np.isnan(wide).sum()), "infinite": int(np.isinf(wide).sum())}
    return {**facts, "first": [item.item() for item in wide.reshape(-1)[:first]]}


def type_name(array: np.ndarray) -> str:
    """Return ONNX's name of an array's element type."""
    try:
        return DataType.from_numpy(array.dtype).text
    except ValueError:
        return str(array.dtype)


def shape_text(summary: Mapping[str, object]) -> str:
    """Return type and shape of a summary, such as ``float[1, 10]``."""
    kind = summary["kind"]
    if kind == "tensor":
        return f"{summary['type']}[{', '.join(map(str, summary['shape']))}]"  # type: ignore[call-overload]  # a list, see above
    return f"{kind} of {summary['length']}" if "length" in summary else str(kind)


def range_text(summary: Mapping[str, object]) -> tuple[str, str, str]:
    """Return minimum, maximum and mean as text, with the number of values that are not finite."""
    low, high, mean = (number_text(summary[name]) if name in summary else "" for name in ("min", "max", "mean"))
    odd = [f"{summary[name]} {name}" for name in ("nan", "infinite") if summary.get(name)]
    return low, high, ", ".join([mean, *odd]) if odd else mean


def first_text(summary: Mapping[str, object]) -> str:
    """Return the first elements as text."""
    if "elements" in summary:
        elements = summary["elements"]
        assert isinstance(elements, list)
        return "; ".join(
            f"{shape_text(e)} {first_text(e)}" if e["kind"] == "tensor" else first_text(e) for e in elements[:2]
        )
    first = summary.get("first")
    if not isinstance(first, list):
        return ""
    items = [f"{i[0]}: {_short(i[1])}" if isinstance(i, list) else _short(i) for i in first]
    shape, length = summary.get("shape"), summary.get("length")
    total = int(np.prod(shape)) if isinstance(shape, list) else length
    return ", ".join([*items, *(["…"] if isinstance(total, int) and total > len(items) else [])])


def _short(item: object) -> str:
    return f"{item:.4g}" if isinstance(item, float) else repr(item) if isinstance(item, str) else str(item)
