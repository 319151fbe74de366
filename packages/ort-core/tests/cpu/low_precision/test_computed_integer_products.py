"""MatMulInteger of two sides that are computed: exact sums of bytes, without a kernel of numpy."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

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


def quantized(form: str, kinds: tuple[type, type], shapes: tuple[list[int | str], list[int | str]]) -> bytes:
    """A product on grids of powers of two, by QLinearMatMul or between DequantizeLinear and QuantizeLinear nodes."""
    sides = zip("ab", kinds, shapes, strict=True)
    given = [helper.make_tensor_value_info(name, KINDS[kind], shape) for name, kind, shape in sides]
    grids = {"a": ["a_s", "a_z"], "b": ["b_s", "b_z"], "y": ["y_s", "a_z"]}
    if form == "QLinearMatMul":
        nodes = [helper.make_node("QLinearMatMul", ["a", *grids["a"], "b", *grids["b"], *grids["y"]], ["y"])]
    else:
        nodes = [
            helper.make_node("DequantizeLinear", ["a", *grids["a"]], ["c"]),
            helper.make_node("DequantizeLinear", ["b", *grids["b"]], ["d"]),
            helper.make_node("MatMul", ["c", "d"], ["m"]),
            helper.make_node("QuantizeLinear", ["m", *grids["y"]], ["y"]),
        ]
    constants = {
        "a_s": np.float32(0.5), "b_s": np.float32(2.0**-8), "y_s": np.float32(4.0), "a_z": kinds[0](POINTS[kinds[0]]),
        "b_z": kinds[1](POINTS[kinds[1]]),
    }  # fmt: skip
    result = helper.make_tensor_value_info("y", KINDS[kinds[0]], None)
    made = [numpy_helper.from_array(np.array(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", given, [result], made)
    opsets = [helper.make_opsetid("", 17)]
    found: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return found


POINTS = {np.uint8: 131, np.int8: -7}


@pytest.mark.parametrize("form", ["QLinearMatMul", "QDQ"])
@pytest.mark.parametrize("kinds", [(np.uint8, np.int8), (np.uint8, np.uint8), (np.int8, np.int8)], ids=str)
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_sums_on_a_grid_are_rounded_once_for_batches_that_repeat_as_the_run_says(
    form: str, kinds: tuple[type, type], threads: int
) -> None:
    options = ort_core.SessionOptions()
    options.intra_op_num_threads = threads
    model = quantized(form, kinds, (["A", 3, "M", "K"], ["B", 3, "K", "N"]))
    session = ort_core.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(threads)
    for left, right, rows, depth, columns in (
        (1, 3, 5, 70, 33),
        (3, 1, 33, 64, 16),
        (2, 2, 1, 3, 7),
        (1, 1, 40, 130, 40),
    ):
        sides = extreme(kinds[0], (left, 3, rows, depth), random), extreme(kinds[1], (right, 3, depth, columns), random)
        found = session.run(None, dict(zip("ab", sides, strict=True)))[0]
        wide = [each.astype(np.int64) - POINTS[kind] for each, kind in zip(sides, kinds, strict=True)]
        limits = np.iinfo(kinds[0])
        wanted = np.clip(np.rint((wide[0] @ wide[1]) * 2.0**-11) + POINTS[kinds[0]], limits.min, limits.max)
        np.testing.assert_array_equal(found, wanted)
    assert "numpy" not in str(session.explain())


def test_matrices_of_one_side_alone_repeat() -> None:
    session = session_of(((2, 3, 4, 20), (20, 5)), (np.uint8, np.int8), ((), ()), is_open=True)
    other = session_of(((4, 20), (2, 3, 20, 5)), (np.uint8, np.int8), ((4,), (5,)), is_open=True)
    random = np.random.default_rng(1)
    for each, shapes, rows in ((session, ((2, 3, 4, 20), (20, 5)), False), (other, ((4, 20), (2, 3, 20, 5)), True)):
        a, b = (extreme(kind, shape, random) for kind, shape in zip((np.uint8, np.int8), shapes, strict=True))
        za = extreme(np.uint8, (4,) if rows else (), random)
        zb = extreme(np.int8, (5,) if rows else (), random)
        left = a.astype(np.int64) - (za.astype(np.int64)[:, None] if rows else int(za))
        found = each.run(None, {"a": a, "b": b, "za": za, "zb": zb})[0]
        np.testing.assert_array_equal(found, left @ (b.astype(np.int64) - zb.astype(np.int64)))
        assert "numpy" not in str(each.explain())
