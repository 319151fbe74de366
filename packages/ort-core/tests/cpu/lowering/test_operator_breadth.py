"""Single operators compiled: every family over types, axes, odd and zero sizes, against the reference kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper
from test_groups import agrees, model_of

from ort_core.cpu.partition import partition, segments

N = helper.make_node
FLOAT, DOUBLE, INT32, INT64, BOOL = (
    TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL,
)  # fmt: skip
NUMERIC = {
    FLOAT: np.float32, DOUBLE: np.float64, TensorProto.INT8: np.int8, TensorProto.INT16: np.int16, INT32: np.int32,
    INT64: np.int64, TensorProto.UINT8: np.uint8, TensorProto.UINT16: np.uint16, TensorProto.UINT32: np.uint32,
    TensorProto.UINT64: np.uint64,
}  # fmt: skip
SHAPES = ((3, 5, 7), (1, 4, 33), (2, 1, 1), (4, 19, 64))
EMPTY = (2, 0, 3)
Feeds = Mapping[str, np.ndarray]


@pytest.fixture(autouse=True)
def every_node_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile groups of one node, too; a node that is refused, or falls back, fails the test.

    What is empty whatever is fed has nothing to compile, and is the kernels'.
    """
    monkeypatch.setattr(partition, "is_worth_a_program", lambda group, context: True)
    by_kernels = segments.LazyKernels.run

    def refuse(self: segments.LazyKernels, *arguments: Any) -> object:
        made = [value for node in self.graph.nodes for value in node.present_outputs()]
        if all(0 in (getattr(value.type, "shape", None) or ()) for value in made):
            return by_kernels(self, *arguments)
        raise AssertionError(f"{[node.op_type for node in self.graph.nodes]} ran by reference kernels")

    monkeypatch.setattr(segments.LazyKernels, "run", refuse)


def random(seed: int, shape: Sequence[int], dtype: type = np.float32) -> np.ndarray:
    numbers = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return numbers.standard_normal(shape).astype(dtype)
    if dtype is np.bool_:
        return numbers.integers(0, 2, shape).astype(np.bool_)
    low = 0 if np.dtype(dtype).kind == "u" else -9
    return numbers.integers(low, 9, shape).astype(dtype)


def cube(
    operator: str, out: int = FLOAT, dtype: int = FLOAT, opset: int = 20, outputs: int = 1, **attributes: object
) -> ModelProto:
    """Return a model of one node on ``x`` [A, B, C]; a list given as ``constants`` becomes further inputs."""
    extra: list[np.ndarray] = attributes.pop("constants", [])  # type: ignore[assignment]  # an own keyword
    names = [f"c{i}" for i in range(len(extra))]
    node = N(operator, ["x", *names], [f"y{i}" for i in range(outputs)], **attributes)
    types = {f"y{i}": (INT64 if i else out) for i in range(outputs)}
    return model_of([node], {"x": (dtype, ["A", "B", "C"])}, types, dict(zip(names, extra, strict=True)), opset)


def on_shapes(dtype: type = np.float32, shapes: Sequence[Sequence[int]] = (*SHAPES, EMPTY)) -> list[Feeds]:
    return [{"x": random(seed, shape, dtype)} for seed, shape in enumerate(shapes)]


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", NUMERIC)
@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Min", "Max", "Less", "GreaterOrEqual", "Equal"])
def test_arithmetic_of_every_type_broadcasts_as_the_run_decides(operator: str, dtype: int) -> None:
    out = BOOL if operator in ("Less", "GreaterOrEqual", "Equal") else dtype
    model = model_of([N(operator, ["a", "b"], ["y"])], {"a": (dtype, ["N", "M"]), "b": (dtype, ["K", "L"])}, {"y": out})
    pairs = (((3, 5), (3, 5)), ((3, 1), (1, 5)), ((1, 1), (4, 17)), ((4, 33), (1, 1)), ((0, 3), (1, 3)))
    agrees(model, *({"a": random(1, a, NUMERIC[dtype]), "b": random(2, b, NUMERIC[dtype])} for a, b in pairs))


@pytest.mark.parametrize("source", [*NUMERIC, BOOL])
def test_cast_goes_from_every_type_to_every_type(source: int) -> None:
    nodes = [N("Cast", ["x"], [f"y{to}"], to=to) for to in (*NUMERIC, BOOL)]
    model = model_of(nodes, {"x": (source, ["N"])}, {f"y{to}": to for to in (*NUMERIC, BOOL)})
    dtype = NUMERIC.get(source, np.bool_)
    values = np.abs(random(1, (37,), dtype)) * 3 if source != BOOL else random(1, (37,), np.bool_)
    agrees(model, {"x": values.astype(dtype)})


@pytest.mark.parametrize(
    "operator",
    ["Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Shrink", "IsInf"],
)
def test_function_of_special_values_is_the_reference_s(operator: str) -> None:
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -0.9, 2, 1e4, -1e6, 1e-30], np.float32)
    model = model_of([N(operator, ["x"], ["y"])], {"x": (FLOAT, ["N"])}, {"y": BOOL if operator == "IsInf" else FLOAT})
    agrees(model, {"x": special}, {"x": random(1, (1001,))}, {"x": special[:0]})


@pytest.mark.sweep
@pytest.mark.parametrize("axes", [[0], [1], [2], [0, 1], [0, 2], [1, -1], [0, 1, 2]], ids=str)
@pytest.mark.parametrize(
    "operator",
    ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
     "ReduceLogSum", "ReduceLogSumExp"],
)  # fmt: skip
def test_reduction_over_any_axes(operator: str, axes: list[int]) -> None:
    for keep in (0, 1):
        model = cube(operator, keepdims=keep, constants=[np.array(axes)])
        feeds = on_shapes(shapes=SHAPES)
        if operator in ("ReduceLogSum", "ReduceProd"):
            feeds = [{"x": np.abs(each["x"]) * 0.5 + 0.5} for each in feeds[:3]]
        agrees(model, *feeds)


@pytest.mark.parametrize("dtype", [DOUBLE, INT32, INT64, TensorProto.UINT8])
@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceMin"])
def test_extremes_of_every_type_over_any_axis(operator: str, dtype: int) -> None:
    for axis in range(3):
        agrees(cube(operator, dtype, dtype, constants=[np.array([axis])]), *on_shapes(NUMERIC[dtype], SHAPES))


@pytest.mark.parametrize("dtype", [INT32, TensorProto.UINT32])
@pytest.mark.parametrize("operator", ["ReduceSum", "ReduceL1", "ReduceSumSquare"])
def test_sums_of_integers_stop_at_the_limits_of_their_type(operator: str, dtype: int) -> None:
    model, limits = cube(operator, dtype, dtype, constants=[np.array([1])]), np.iinfo(NUMERIC[dtype])
    large = np.full((2, 3, 17), limits.max, NUMERIC[dtype])
    large[1] = limits.min
    agrees(model, {"x": large}, *on_shapes(NUMERIC[dtype]))


@pytest.mark.parametrize("dtype", [INT64, INT32, TensorProto.UINT32])
def test_means_of_integers_are_exact_and_truncated(dtype: int) -> None:
    limits, random_numbers = np.iinfo(NUMERIC[dtype]), np.random.default_rng(3)
    large = random_numbers.choice([limits.max, limits.min, limits.max - 1, 0, 7], (4, 5, 17)).astype(NUMERIC[dtype])
    large[0], large[1] = limits.max, limits.min
    whole = random_numbers.integers(limits.min, limits.max, (3, 7, 19), NUMERIC[dtype], endpoint=True)
    for axes in ([0], [1], [2], [1, 2], [0, 1, 2]):
        model = cube("ReduceMean", dtype, dtype, constants=[np.array(axes)], keepdims=axes[0] % 2)
        agrees(model, {"x": large}, {"x": whole}, *on_shapes(NUMERIC[dtype]))


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
def test_index_of_an_extreme_is_the_first_or_last_and_sees_nan(operator: str, last: int) -> None:
    for axis in range(3):
        model = cube(operator, INT64, axis=axis, select_last_index=last, keepdims=axis % 2)
        feeds = [{"x": np.round(each["x"])} for each in on_shapes(shapes=SHAPES)]  # rounded: equal elements
        feeds[0]["x"][1, 2, 3] = feeds[0]["x"][0, 4, 3] = np.nan
        agrees(model, *feeds)


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Hardmax", "LpNormalization"])
def test_operator_along_any_axis(operator: str) -> None:
    for axis in range(3):
        agrees(cube(operator, axis=axis), *on_shapes(shapes=SHAPES))


@pytest.mark.parametrize("operator", ["CumSum", "CumProd"])
def test_running_sums_go_both_ways(operator: str) -> None:
    for axis in range(3):
        for exclusive, reverse in ((0, 0), (1, 0), (0, 1), (1, 1)):
            constants = [np.array(axis)]
            opset = 26 if operator == "CumProd" else 20
            agrees(cube(operator, constants=constants, exclusive=exclusive, reverse=reverse, opset=opset), *on_shapes())


@pytest.mark.parametrize("largest", [0, 1])
def test_top_k_orders_equal_elements_and_nan(largest: int) -> None:
    for axis in range(3):
        model = cube("TopK", outputs=2, axis=axis, largest=largest, constants=[np.array([3])])
        feeds = [{"x": np.round(random(seed, (4, 5, 6)) * 2)} for seed in range(3)]
        feeds[1]["x"][2, 2, :3] = np.nan
        agrees(model, *feeds)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pad_grows_and_crops_every_axis(mode: str) -> None:
    for pads in ([1, 2, 0, 0, 3, 1], [0, 0, 2, 2, 0, 0], [0, -1, 1, 1, -1, 2]):
        for dtype in (FLOAT, INT64):
            model = cube("Pad", dtype, dtype, mode=mode, constants=[np.array(pads)])
            agrees(model, *on_shapes(NUMERIC[dtype], ((3, 6, 7), (4, 9, 33))))


@pytest.mark.parametrize(
    "bounds",
    [([1], [5], [1], [2]), ([-1], [-100], [2], [-1]), ([3, 0], [0, 9], [0, 1], [-2, 3]), ([9], [1], [0], [1])],
    ids=str,
)
def test_slice_steps_both_ways(bounds: tuple[list[int], ...]) -> None:
    constants = {f"c{i}": np.array(each) for i, each in enumerate(bounds)}
    for shape in SHAPES:  # backwards the sizes must be known: inference names the result's size anew otherwise
        model = model_of([N("Slice", ["x", *constants], ["y"])], {"x": (FLOAT, shape)}, {"y": FLOAT}, constants)
        agrees(model, {"x": random(1, shape)})


def test_tile_triangles_and_blocks_are_copies() -> None:
    agrees(cube("Tile", constants=[np.array([2, 1, 3])]), *on_shapes())
    for upper, k in ((1, 0), (0, 0), (1, -2), (0, 3)):
        agrees(cube("Trilu", upper=upper, constants=[np.array(k)]), *on_shapes())
    for operator, mode in (("DepthToSpace", "DCR"), ("DepthToSpace", "CRD"), ("SpaceToDepth", "")):
        attributes = {"blocksize": 2, **({"mode": mode} if mode else {})}
        model = model_of([N(operator, ["x"], ["y"], **attributes)], {"x": (FLOAT, ["N", 8, 4, 6])}, {"y": FLOAT})
        agrees(model, {"x": random(1, (3, 8, 4, 6))}, {"x": random(1, (0, 8, 4, 6))})


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot_counts_negative_indices_from_the_end(axis: int) -> None:
    node = N("OneHot", ["i", "depth", "values"], ["y"], axis=axis)
    constants = {"depth": np.array(5), "values": np.array([-1, 2], np.float32)}
    model = model_of([node], {"i": (INT64, ["N", "M"])}, {"y": FLOAT}, constants)
    agrees(model, {"i": np.array([[0, 4, 5], [-1, -5, -6]])}, {"i": np.zeros((0, 2), np.int64)})


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_elements_are_gathered_and_scattered_along_any_axis(axis: int) -> None:
    inputs = {"x": (FLOAT, ["A", "B", "C"]), "i": (INT64, ["D", "E", "F"]), "u": (FLOAT, ["D", "E", "F"])}
    shape = [3, 4, 5]
    index = np.random.default_rng(1).integers(-shape[axis], shape[axis], (3, 2, 4))
    feeds = {"x": random(1, shape), "i": index, "u": random(2, index.shape)}
    gather = model_of([N("GatherElements", ["x", "i"], ["y"], axis=axis)], dict(list(inputs.items())[:2]), {"y": FLOAT})
    agrees(gather, {"x": feeds["x"], "i": index})
    for reduction in ("none", "add", "mul", "max", "min"):
        node = N("ScatterElements", ["x", "i", "u"], ["y"], axis=axis, reduction=reduction)
        agrees(model_of([node], inputs, {"y": FLOAT}), feeds)


def test_slices_are_gathered_and_scattered_by_tuples() -> None:
    inputs = {"x": (FLOAT, ["A", "B", "C"]), "i": (INT64, ["D", 2]), "u": (FLOAT, ["D", "C"])}
    index = np.array([[0, 1], [2, -1], [0, 1], [-3, 0]])
    feeds = {"x": random(1, (3, 4, 5)), "i": index, "u": random(2, (4, 5))}
    gather = model_of([N("GatherND", ["x", "i"], ["y"])], dict(list(inputs.items())[:2]), {"y": FLOAT})
    agrees(gather, {"x": feeds["x"], "i": index})
    for reduction in ("none", "add", "mul", "max", "min"):
        agrees(model_of([N("ScatterND", ["x", "i", "u"], ["y"], reduction=reduction)], inputs, {"y": FLOAT}), feeds)


def test_shapes_and_what_is_made_of_them_are_stored_when_they_are_asked_for() -> None:
    nodes = [
        N("Shape", ["x"], ["s"]), N("Gather", ["s", "one"], ["d"]), N("Mul", ["d", "three"], ["m"]),
        N("Range", ["zero", "d", "step"], ["r"]), N("Concat", ["m", "three"], ["t"], axis=0),
        N("ConstantOfShape", ["t"], ["f"]),
    ]  # fmt: skip
    constants = {"one": np.array([1]), "three": np.array([3]), "zero": np.array(0), "step": np.array(1)}
    nodes[3] = N("Range", ["zero", "ds", "step"], ["r"])
    nodes.insert(3, N("Squeeze", ["d"], ["ds"]))
    outputs = {"s": INT64, "m": INT64, "r": INT64, "f": FLOAT}
    model = model_of(nodes, {"x": (FLOAT, ["A", "B", "C"])}, outputs, constants)
    agrees(model, *on_shapes())


@pytest.mark.parametrize(
    ("start", "limit", "step", "dtype"),
    [
        ("size", 0, -1, FLOAT),
        (5, "size", -2, INT32),
        (-3, "size", 2, DOUBLE),
        ("size", 40, 3, INT64),
        ("size", -40, -7, INT64),
        (7.0, "size", 1.0, FLOAT),
    ],
    ids=str,
)
def test_ranges_run_between_sizes_in_both_directions(
    start: float | str, limit: float | str, step: float, dtype: int
) -> None:
    """As an export of distances between places has them: down from a size less one, in floats."""
    bounds = {"start": start, "limit": limit, "step": step}
    nodes = [
        N("Shape", ["x"], ["s"], start=1, end=2), N("Squeeze", ["s"], ["d"]), N("Add", ["d", "minus"], ["e"]),
        N("Div", ["e", "two"], ["h"]), N("Cast", ["h"], ["size"], to=dtype),
        N("Range", ["size" if value == "size" else name for name, value in bounds.items()], ["r"]),
    ]  # fmt: skip
    constants = {k: np.array(v, NUMERIC[dtype]) for k, v in bounds.items() if v != "size"}
    constants |= {"minus": np.array(-1), "two": np.array(2)}
    model = model_of(nodes, {"x": (FLOAT, ["A", "B", "C"])}, {"r": dtype}, constants)
    for size in (1, 4, 9, 60):
        (found,) = agrees(model, {"x": random(1, (2, size, 3))})
        numbers = ((size - 1) // 2 if each == "size" else each for each in bounds.values())
        np.testing.assert_array_equal(found[0], np.arange(*numbers).astype(NUMERIC[dtype]))


@pytest.mark.parametrize("names", [["x", "low", ""], ["x", "low"], ["x", "", "high"], ["x", "", ""]], ids=str)
def test_a_clip_may_name_an_absent_bound_or_leave_it_out(names: list[str]) -> None:
    model = model_of(
        [N("Clip", names, ["y"])], {"x": (FLOAT, ["A", "B", "C"])}, {"y": FLOAT},
        {"low": np.float32(-0.2), "high": np.float32(0.3)},
    )  # fmt: skip
    agrees(model, *on_shapes())


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_layer_normalization_gives_its_statistics(outputs: int) -> None:
    node = N("LayerNormalization", ["x", "s", "b"], ["y", "m", "d"][:outputs], axis=1)
    constants = {"s": random(1, (5, 7)), "b": random(2, (5, 7))}
    types = dict.fromkeys(["y", "m", "d"][:outputs], FLOAT)
    model = model_of([node], {"x": (FLOAT, ["N", 5, 7])}, types, constants)
    agrees(model, {"x": random(3, (4, 5, 7))}, {"x": random(3, (0, 5, 7))})


@pytest.mark.parametrize("scale", [(5, 1), (7,), (1, 7), (1,)], ids=str)
def test_layer_normalization_takes_scales_that_broadcast_within_the_rows(scale: tuple[int, ...]) -> None:
    for outputs in (1, 3):
        node = N("LayerNormalization", ["x", "s"], ["y", "m", "d"][:outputs], axis=1)
        types = dict.fromkeys(["y", "m", "d"][:outputs], FLOAT)
        model = model_of([node], {"x": (FLOAT, ["N", 5, 7])}, types, {"s": random(1, scale)})
        agrees(model, {"x": random(3, (4, 5, 7))})


@pytest.mark.parametrize("norm", [1, 2])
def test_norms_along_any_axis(norm: int) -> None:
    for axis in range(3):
        feeds = on_shapes(shapes=SHAPES)
        feeds[0]["x"][1] = 0
        agrees(cube("LpNormalization", axis=axis, p=norm), *feeds)


def test_groups_and_channels_are_normalized() -> None:
    constants = {"s": random(1, (6,)), "b": random(2, (6,))}
    group = N("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=3)
    agrees(
        model_of([group], {"x": (FLOAT, ["N", 6, "H", "W"])}, {"y": FLOAT}, constants, 21),
        {"x": random(3, (2, 6, 5, 3))},
    )
    mean = N("MeanVarianceNormalization", ["x"], ["y"])
    agrees(model_of([mean], {"x": (FLOAT, ["N", 6, "H", "W"])}, {"y": FLOAT}), {"x": random(3, (2, 6, 5, 3))})
