"""AffineGrid of a known size in compiled code, beside its definition in float64."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from test_groups import model_of, run, session

SIZES = ((1, 3, 4, 5), (2, 1, 1, 7), (3, 2, 17, 1), (2, 8, 33, 19), (1, 1, 2, 3, 4), (2, 3, 5, 1, 9))


def truth(theta: np.ndarray, size: tuple[int, ...], aligned: int) -> np.ndarray:
    rank = len(size) - 2
    points = np.empty((size[0], *size[2:], rank))
    for place in np.ndindex(points.shape[:-1]):
        ends = [count - 1 if aligned else count for count in size[2:]]
        starts = [2 * at if aligned else 2 * at + 1 for at in place[1:]]
        even = [start / end - 1 if end else -1.0 for start, end in zip(starts, ends, strict=True)]
        points[place] = theta[place[0]].astype(np.float64) @ [*even[::-1], 1.0]
    return points


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_grid_is_what_the_maps_make_of_even_points(dtype: type, aligned: int) -> None:
    generator = np.random.default_rng(2)
    elements = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    for size in SIZES:
        rank = len(size) - 2
        theta = generator.standard_normal((size[0], rank, rank + 1)).astype(dtype)
        node = helper.make_node("AffineGrid", ["theta", "size"], ["y"], align_corners=aligned)
        model = model_of(
            [node], {"theta": (elements, ["N", rank, rank + 1])}, {"y": elements}, {"size": np.array(size)}
        )
        compiled = session(model, "CPUExecutionProvider")
        assert dtype is np.float16 or "numpy:" not in str(compiled.explain()), compiled.explain()
        found, expected = run(compiled, {"theta": theta})[0], truth(theta, size, aligned)
        assert found.shape == expected.shape
        bound = np.finfo(dtype).eps * 3 * np.abs(theta).sum(-1).max()
        assert np.abs(found - expected).max() <= bound, f"{size}"
