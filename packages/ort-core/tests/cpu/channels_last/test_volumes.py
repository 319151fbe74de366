"""Convolution and pooling of volumes compiled: against float64 sums over the window, tap by tap."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.cpu.partition.partition import CpuPartition
from ort_core.tolerances import compare

N = helper.make_node
Run = Callable[..., np.ndarray]
ONES = (1, 1, 1)


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture
def run(partitions: list[CpuPartition]) -> Run:
    """Return a function that runs nodes from ``x`` to ``y``, all of them compiled as one program."""

    def result(
        nodes: Sequence[NodeProto], constants: dict[str, np.ndarray], x: np.ndarray, shape: Sequence[int | str]
    ) -> np.ndarray:
        info = helper.make_tensor_value_info
        initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
        ins, outs = [info("x", TensorProto.FLOAT, shape)], [info("y", TensorProto.FLOAT, None)]
        graph = helper.make_graph(list(nodes), "volumes", ins, outs, initializer=initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        options = ort.SessionOptions()
        options.intra_op_num_threads = 2
        partitions.clear()
        compiled = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        refusals = {node.op_type: reason for each in partitions for node, reason in each.refusals.items()}
        assert not refusals, f"not compiled: {refusals}"
        assert sum(len(each.native_programs) for each in partitions) == 1, "not one program"
        compiled.run(None, {"x": x})  # the next run is a direct call
        found = compiled.run(None, {"x": x})[0]
        assert isinstance(found, np.ndarray)
        return found

    return result


def agree(found: np.ndarray, truth: np.ndarray) -> None:
    assert (found.dtype, found.shape) == (np.dtype(np.float32), truth.shape)
    comparison = compare(found, truth.astype(np.float32), "approximate")
    assert comparison.passes, str(comparison)


def taps_of(
    x: np.ndarray, taps: Sequence[int], strides: Sequence[int], dilations: Sequence[int], pads: Sequence[int],
    fill: float,
) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:  # fmt: skip
    """Yield each tap of a window and what it sees at every output."""
    border = [(0, 0), (0, 0), *zip(pads[:3], pads[3:])]
    wide = np.pad(x.astype(np.float64), border, constant_values=fill)
    sizes = [
        (wide.shape[2 + a] - (taps[a] - 1) * dilations[a] - 1) // strides[a] + 1 for a in range(3)
    ]  # fmt: skip
    for tap in itertools.product(*map(range, taps)):
        cut = tuple(
            slice(tap[a] * dilations[a], tap[a] * dilations[a] + (sizes[a] - 1) * strides[a] + 1, strides[a])
            for a in range(3)
        )
        yield tap, wide[(slice(None), slice(None), *cut)]


def convolved(
    x: np.ndarray, weights: np.ndarray, strides: Sequence[int], dilations: Sequence[int], pads: Sequence[int],
    groups: int,
) -> np.ndarray:  # fmt: skip
    outputs, inputs = weights.shape[:2]
    total: np.ndarray | float = 0.0
    for tap, seen in taps_of(x, weights.shape[2:], strides, dilations, pads, 0.0):
        grouped = seen.reshape(len(x), groups, inputs, *seen.shape[2:])
        factors = weights[(slice(None), slice(None), *tap)].reshape(groups, outputs // groups, inputs)
        part = np.einsum("ngidhw,goi->ngodhw", grouped, factors.astype(np.float64))
        total = total + part.reshape(len(x), outputs, *seen.shape[2:])
    assert isinstance(total, np.ndarray)
    return total


CASES = [
    # channels, outputs, window, strides, dilations, pads, groups, size
    (3, 16, (3, 3, 3), ONES, ONES, (1, 1, 1, 1, 1, 1), 1, (1, 5, 9, 11)),
    (8, 40, (3, 3, 3), (2, 2, 2), ONES, (1, 1, 1, 1, 1, 1), 1, (2, 7, 8, 9)),
    (5, 7, (2, 3, 1), (1, 2, 3), (3, 1, 2), (2, 0, 1, 3, 1, 0), 1, (2, 9, 8, 10)),
    (16, 33, (1, 1, 1), ONES, ONES, (0,) * 6, 1, (2, 3, 4, 5)),
    (16, 20, (1, 1, 1), (2, 2, 2), ONES, (0,) * 6, 1, (1, 5, 6, 7)),
    (12, 18, (3, 3, 3), ONES, ONES, (1,) * 6, 3, (1, 4, 5, 17)),
    (9, 9, (3, 3, 3), ONES, ONES, (1,) * 6, 9, (2, 4, 6, 7)),
    (4, 64, (5, 1, 1), ONES, (2, 1, 1), (4, 0, 0, 4, 0, 0), 1, (1, 3, 6, 31)),
    (3, 8, (3, 3, 3), ONES, (4, 1, 1), (4, 1, 1, 4, 1, 1), 1, (1, 2, 5, 5)),  # only one plane of taps inside
    (24, 24, (3, 5, 3), (2, 1, 2), (1, 2, 1), (1, 4, 1, 1, 3, 1), 24, (2, 6, 9, 10)),
    (20, 20, (3, 3, 3), ONES, (4, 1, 1), (4, 1, 1, 4, 1, 1), 20, (1, 2, 5, 5)),
    (8, 16, (3, 3, 3), ONES, ONES, (1,) * 6, 4, (1, 4, 6, 9)),
    (16, 16, (7, 1, 1), ONES, ONES, (3, 0, 0, 3, 0, 0), 16, (1, 5, 3, 8)),
    (40, 80, (2, 2, 2), (2, 2, 2), ONES, (0,) * 6, 40, (2, 4, 6, 7)),
    (1, 1, (7, 7, 7), (1, 2, 2), ONES, (3,) * 6, 1, (1, 8, 15, 14)),
]


@pytest.mark.parametrize(
    "case", CASES, ids=[f"{c[0]}to{c[1]}-{'x'.join(map(str, c[2]))}-{i}" for i, c in enumerate(CASES)]
)
def test_convolution_is_the_sum_over_its_window(run: Run, case: tuple) -> None:
    channels, outputs, window, strides, dilations, pads, groups, (batch, *space) = case
    x, weights = numbers(1, batch, channels, *space), numbers(2, outputs, channels // groups, *window)
    bias = numbers(3, outputs)
    node = N("Conv", ["x", "w", "b"], ["y"], strides=strides, dilations=dilations, pads=pads, group=groups)
    truth = convolved(x, weights, strides, dilations, pads, groups) + bias[:, None, None, None]
    agree(run([node], {"w": weights, "b": bias}, x, ["N", channels, *space]), truth)


def test_epilogue_of_a_convolution_adds_another_and_rectifies(run: Run) -> None:
    x, first, second = numbers(1, 2, 6, 4, 5, 6), numbers(2, 20, 6, 3, 3, 3), numbers(3, 20, 6, 1, 1, 1)
    nodes = [
        N("Conv", ["x", "w0"], ["a"], pads=[1] * 6), N("Conv", ["x", "w1"], ["b"]), N("Add", ["a", "b"], ["c"]),
        N("Relu", ["c"], ["y"]),
    ]  # fmt: skip
    both = convolved(x, first, ONES, ONES, (1,) * 6, 1) + convolved(x, second, ONES, ONES, (0,) * 6, 1)
    agree(run(nodes, {"w0": first, "w1": second}, x, ["N", 6, "D", "H", "W"]), np.maximum(both, 0))


@pytest.mark.parametrize("batch", [0, 1, 3])
def test_convolutions_in_a_row_take_every_size_of_volumes(run: Run, batch: int) -> None:
    weights = [numbers(k, 10, 10, 3, 3, 3) / 8 for k in range(2)]
    nodes = [
        N("Conv", ["x", "w0"], ["a"], pads=[1] * 6), N("Sigmoid", ["a"], ["b"]),
        N("Conv", ["b", "w1"], ["y"], auto_pad="VALID"),
    ]  # fmt: skip
    x = numbers(9, batch, 10, 5, 4, 6)
    inner = 1 / (1 + np.exp(-convolved(x, weights[0], ONES, ONES, (1,) * 6, 1)))
    truth = convolved(inner, weights[1], ONES, ONES, (0,) * 6, 1)
    agree(run(nodes, {"w0": weights[0], "w1": weights[1]}, x, ["N", 10, "D", "H", "W"]), truth)


def test_nan_and_infinity_reach_the_outputs_whose_windows_hold_them(run: Run) -> None:
    x, weights = numbers(1, 1, 2, 5, 6, 7), numbers(2, 17, 2, 3, 3, 3)
    x[0, 0, 0, 0, 0], x[0, 1, 4, 5, 6] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        truth = convolved(x, weights, ONES, ONES, (0,) * 6, 1)
    agree(run([N("Conv", ["x", "w"], ["y"])], {"w": weights}, x, ["N", 2, "D", "H", "W"]), truth)


POOLS = [
    ((2, 2, 2), (2, 2, 2), ONES, (0,) * 6),
    ((3, 3, 3), (2, 1, 2), ONES, (1,) * 6),
    ((2, 3, 1), ONES, (2, 1, 1), (1, 0, 0, 0, 2, 0)),
    ((1, 1, 4), (1, 1, 3), ONES, (0, 0, 1, 0, 0, 2)),
]


@pytest.mark.parametrize("pool", POOLS, ids=range(len(POOLS)))
@pytest.mark.parametrize("channels", [3, 40])
def test_maximum_of_a_window_is_that_of_its_taps(run: Run, pool: tuple, channels: int) -> None:
    window, strides, dilations, pads = pool
    x = numbers(4, 2, channels, 6, 7, 8)
    x[1, 0, 2, 3, 4] = np.nan
    attributes = {"kernel_shape": window, "strides": strides, "dilations": dilations, "pads": pads}
    seen = [each for _, each in taps_of(x, window, strides, dilations, pads, -np.inf)]
    nodes = [N("MaxPool", ["x"], ["a"], **attributes), N("Neg", ["a"], ["y"])]
    agree(run(nodes, {}, x, ["N", channels, "D", "H", "W"]), -np.max(seen, axis=0))


@pytest.mark.parametrize("counts_border", [0, 1])
@pytest.mark.parametrize("pool", POOLS, ids=range(len(POOLS)))
def test_average_of_a_window_counts_its_taps(run: Run, pool: tuple, counts_border: int) -> None:
    window, strides, dilations, pads = pool
    x = numbers(5, 2, 19, 6, 7, 8)
    attributes = {"kernel_shape": window, "strides": strides, "dilations": dilations, "pads": pads}
    total = sum(each for _, each in taps_of(x, window, strides, dilations, pads, 0.0))
    inside = np.ones_like(x) if not counts_border else None
    count: np.ndarray | int = int(np.prod(window))
    if inside is not None:
        count = sum(each for _, each in taps_of(inside, window, strides, dilations, pads, 0.0))
    nodes = [N("AveragePool", ["x"], ["a"], count_include_pad=counts_border, **attributes), N("Neg", ["a"], ["y"])]
    agree(run(nodes, {}, x, ["N", 19, "D", "H", "W"]), -total / count)


@pytest.mark.parametrize("operator", ["GlobalAveragePool", "GlobalMaxPool"])
def test_whole_volumes_are_pooled_behind_a_convolution(run: Run, operator: str) -> None:
    x, weights = numbers(1, 3, 4, 3, 5, 7), numbers(2, 21, 4, 3, 3, 3)
    nodes = [N("Conv", ["x", "w"], ["a"], pads=[1] * 6), N(operator, ["a"], ["y"])]
    inner = convolved(x, weights, ONES, ONES, (1,) * 6, 1)
    reduced = inner.mean((2, 3, 4), keepdims=True) if "Average" in operator else inner.max((2, 3, 4), keepdims=True)
    agree(run(nodes, {"w": weights}, x, ["N", 4, "D", "H", "W"]), reduced)


def test_the_largest_of_a_channel_that_is_minus_infinity_is_that(run: Run) -> None:
    x = numbers(1, 2, 19, 3, 5)
    x[1, 3:] = -np.inf
    agree(run([N("GlobalMaxPool", ["x"], ["y"])], {}, x, ["N", 19, "H", "W"]), x.max((2, 3), keepdims=True))


TRANSPOSED = [
    # channels, outputs, window, strides, dilations, pads, output_padding, groups, size
    (6, 20, (2, 2, 2), (2, 2, 2), ONES, (0,) * 6, (0, 0, 0), 1, (2, 3, 4, 5)),
    (5, 7, (3, 3, 3), (2, 2, 2), ONES, (1,) * 6, (1, 1, 1), 1, (2, 3, 4, 5)),
    (4, 9, (4, 3, 4), (2, 1, 2), ONES, (1, 1, 1, 1, 1, 1), (0, 0, 0), 1, (1, 4, 5, 6)),
    (8, 12, (3, 2, 3), (1, 2, 1), (1, 1, 2), (1, 0, 2, 1, 0, 2), (0, 0, 0), 4, (2, 4, 3, 6)),
]


@pytest.mark.parametrize("case", TRANSPOSED, ids=range(len(TRANSPOSED)))
def test_transposed_convolution_adds_every_input_to_its_window(run: Run, case: tuple) -> None:
    channels, outputs, window, strides, dilations, pads, extra, groups, (batch, *space) = case
    x, weights = numbers(1, batch, channels, *space), numbers(2, channels, outputs // groups, *window)
    bias = numbers(3, outputs)
    sizes = [strides[a] * (space[a] - 1) + extra[a] + (window[a] - 1) * dilations[a] + 1 for a in range(3)]
    whole = np.zeros((batch, outputs, *sizes))
    grouped = x.reshape(batch, groups, -1, *space).astype(np.float64)
    for tap in itertools.product(*map(range, window)):
        factors = weights[(slice(None), slice(None), *tap)].reshape(groups, channels // groups, -1)
        part = np.einsum("ngidhw,gio->ngodhw", grouped, factors).reshape(batch, outputs, *space)
        place = tuple(
            slice(tap[a] * dilations[a], tap[a] * dilations[a] + strides[a] * (space[a] - 1) + 1, strides[a])
            for a in range(3)
        )
        whole[(slice(None), slice(None), *place)] += part
    cut = tuple(slice(pads[a], sizes[a] - pads[a + 3]) for a in range(3))
    truth = np.maximum(whole[(slice(None), slice(None), *cut)] + bias[:, None, None, None], 0)
    nodes = [
        N(
            "ConvTranspose", ["x", "w", "b"], ["a"], strides=strides, dilations=dilations, pads=pads, group=groups,
            output_padding=extra,
        ),
        N("Relu", ["a"], ["y"]),
    ]  # fmt: skip
    agree(run(nodes, {"w": weights, "b": bias}, x, ["N", channels, *space]), truth)
