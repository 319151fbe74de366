"""Odd values: NaN, infinities and zeros of either sign where one answer is right, and equals that are ranked by index.

The truth is IEEE 754's order, and numpy's stable sort: of equal elements the one with the lower index comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import onnx

from ort_conformance.case import Case
from ort_conformance.suites.model_text import evaluated, node_model, seeded

ODD = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.5)
COMPARISONS: Mapping[str, tuple[int, np.ufunc]] = {
    "Equal": (13, np.equal), "Greater": (13, np.greater), "GreaterOrEqual": (16, np.greater_equal),
    "Less": (13, np.less), "LessOrEqual": (16, np.less_equal),
}  # fmt: skip
EXTREMES: Mapping[str, Callable[..., np.ndarray]] = {"ReduceMax": np.max, "ReduceMin": np.min}
TIED_SHAPES = (((16,), 0), ((3, 40), 1), ((5, 4), 0), ((2, 3, 9), 1))
MANY_TIES = 3  # different numbers among the tied ones


def _pairs(dtype: str) -> dict[str, np.ndarray]:
    """Return each odd value beside each."""
    odd = np.array(ODD, dtype)
    return {"a": np.repeat(odd, len(odd)), "b": np.tile(odd, len(odd))}


def _comparison(op_type: str, opset: int, compare: np.ufunc, dtype: str, *, is_same: bool) -> Case:
    feeds = {"a": np.array(ODD, dtype)} if is_same else _pairs(dtype)

    def build() -> tuple[onnx.ModelProto, Mapping[str, np.ndarray]]:
        model = node_model(op_type, feeds, {}, opset=opset)
        if is_same:
            model.graph.node[0].input.append("a")
        return model, feeds

    def truth(given: Mapping[str, np.ndarray]) -> Sequence[object]:
        return [compare(given["a"], given["a" if is_same else "b"])]

    name = f"{op_type}_{'itself' if is_same else 'odd'}_{dtype}@{opset}"
    return evaluated(name, build, "exact", truth=truth)


def _extreme(op_type: str, find: Callable[..., np.ndarray], dtype: str) -> Case:
    pairs = _pairs(dtype)
    x = np.stack([pairs["a"], pairs["b"]], axis=1)

    def build() -> tuple[onnx.ModelProto, Mapping[str, np.ndarray]]:
        return node_model(op_type, {"x": x}, {}, opset=18, constants={"axes": np.array([1], np.int64)}), {"x": x}

    def truth(feeds: Mapping[str, np.ndarray]) -> Sequence[object]:
        return [find(feeds["x"], axis=1, keepdims=True)]

    return evaluated(f"{op_type}_odd_{dtype}", build, "exact", truth=truth)


def _ranked(shape: tuple[int, ...], axis: int, count: int, *, is_largest: bool) -> Case:
    x = seeded("TopK", shape).integers(0, MANY_TIES, shape).astype(np.float32)

    def build() -> tuple[onnx.ModelProto, Mapping[str, np.ndarray]]:
        given = {"k": np.array([count], np.int64)}
        attributes = {"axis": axis, "largest": int(is_largest)}
        return node_model("TopK", {"x": x}, attributes, constants=given, output_count=2), {"x": x}

    def truth(feeds: Mapping[str, np.ndarray]) -> Sequence[object]:
        order = np.argsort(-feeds["x"] if is_largest else feeds["x"], axis=axis, kind="stable")
        kept = np.take(order, range(count), axis=axis)
        return [np.take_along_axis(feeds["x"], kept, axis=axis), kept]

    shown = "x".join(map(str, shape))
    return evaluated(f"TopK_ties_{shown}_{count}_{'largest' if is_largest else 'least'}", build, "exact", truth=truth)


def _first_of_equals(op_type: str, *, is_last: bool) -> Case:
    x = seeded(op_type).integers(0, MANY_TIES, (4, 33)).astype(np.float32)

    def build() -> tuple[onnx.ModelProto, Mapping[str, np.ndarray]]:
        return node_model(op_type, {"x": x}, {"axis": 1, "select_last_index": int(is_last)}), {"x": x}

    def truth(feeds: Mapping[str, np.ndarray]) -> Sequence[object]:
        find = np.argmax if op_type == "ArgMax" else np.argmin
        row = feeds["x"][:, ::-1] if is_last else feeds["x"]
        found = find(row, axis=1)[:, None]
        return [row.shape[1] - 1 - found if is_last else found]

    return evaluated(f"{op_type}_ties_{'last' if is_last else 'first'}", build, "exact", truth=truth)


def odd_value_cases() -> Iterator[Case]:
    """Yield comparisons and extremes of odd values, and rankings of equals."""
    for dtype in ("float32", "float16"):
        for op_type, (opset, compare) in COMPARISONS.items():
            for is_same in (False, True):
                yield _comparison(op_type, opset, compare, dtype, is_same=is_same)
        for op_type, find in EXTREMES.items():
            yield _extreme(op_type, find, dtype)
    for shape, axis in TIED_SHAPES:
        for is_largest in (True, False):
            for count in sorted({1, shape[axis] - 1, shape[axis]}):
                yield _ranked(shape, axis, count, is_largest=is_largest)
    for op_type in ("ArgMax", "ArgMin"):
        for is_last in (False, True):
            yield _first_of_equals(op_type, is_last=is_last)
