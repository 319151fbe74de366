"""MatMulInteger of two sides that are computed: exact sums of bytes, without a kernel of numpy."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import ort_core

KINDS = {np.int8: TensorProto.INT8, np.uint8: TensorProto.UINT8}
Shape = tuple[int, ...]


def session_of(
    shapes: tuple[Shape, Shape], kinds: tuple[type, type], points: tuple[Shape | None, Shape | None], is_open: bool
) -> ort_core.InferenceSession:
    """A model whose two sides and zero points are inputs; ``is_open`` leaves the depth to the run."""
    sides = [list(shape) for shape in shapes]
    if is_open:
        sides[0][-1] = sides[1][-2] = "depth"
    given = [helper.make_tensor_value_info(n, KINDS[k], s) for n, k, s in zip("ab", kinds, sides, strict=True)]
    names = []
    for name, kind, shape in zip(("za", "zb"), kinds, points, strict=True):
        names.append("" if shape is None else name)
        if shape is not None:
            given.append(helper.make_tensor_value_info(name, KINDS[kind], shape))
    node = helper.make_node("MatMulInteger", ["a", "b", *names], ["y"])
    result = helper.make_tensor_value_info("y", TensorProto.INT32, None)
    graph = helper.make_graph([node], "g", given, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return ort_core.InferenceSession(model.SerializeToString())


def extreme(kind: type, shape: Shape, random: np.random.Generator) -> np.ndarray:
    """Numbers half of which are the ends of a type."""
    span = np.iinfo(kind)
    drawn = random.integers(span.min, span.max + 1, shape)
    return np.where(random.random(shape) < 0.5, random.choice([span.min, span.max], shape), drawn).astype(kind)


@pytest.mark.parametrize("kinds", [(np.uint8, np.int8), (np.uint8, np.uint8), (np.int8, np.int8)], ids=str)
@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize(
    ("left", "right", "points"),
    [
        ((5, 7), (7, 3), (None, None)),
        ((2, 3, 4, 64), (2, 3, 64, 5), ((), (1,))),
        ((3, 4, 257), (3, 257, 6), ((4,), (6,))),
        ((4, 700), (700, 9), ((1,), ())),
        ((2, 3, 3000), (3000, 2), (None, (2,))),
        ((1, 3, 1), (1, 1, 3), ((), None)),
    ],
)
def test_sums_are_exact(
    left: Shape, right: Shape, points: tuple[Shape | None, Shape | None], kinds: tuple[type, type], is_open: bool
) -> None:
    random = np.random.default_rng(len(left) + left[-1])
    session = session_of((left, right), kinds, points, is_open)
    sides = [extreme(kind, shape, random) for kind, shape in zip(kinds, (left, right), strict=True)]
    feeds = dict(zip("ab", sides, strict=True))
    wide = [each.astype(np.int64) for each in sides]
    for place, (name, shape) in enumerate(zip(("za", "zb"), points, strict=True)):
        if shape is not None:
            feeds[name] = extreme(kinds[place], shape, random)
            zero = feeds[name].astype(np.int64)
            wide[place] = wide[place] - (zero[:, None] if place == 0 and zero.size > 1 else zero)
    np.testing.assert_array_equal(session.run(None, feeds)[0], wide[0] @ wide[1])
    assert "numpy" not in str(session.explain())


def test_a_depth_of_nothing_gives_zeros() -> None:
    session = session_of(((2, 0), (0, 3)), (np.uint8, np.int8), (None, None), is_open=False)
    found = session.run(None, {"a": np.zeros((2, 0), np.uint8), "b": np.zeros((0, 3), np.int8)})[0]
    np.testing.assert_array_equal(found, np.zeros((2, 3), np.int32))
