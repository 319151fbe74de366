"""Group, instance and layer normalizations between convolutions: computed as the images lie, nothing moved."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.cpu.partition.partition import CpuPartition

N = helper.make_node
Agrees = Callable[..., None]
Constants = dict[str, np.ndarray]


def numbers(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def words(partitions: list[CpuPartition]) -> list[str]:
    """Return the operators of all compiled steps, in order."""
    steps = [step for made in partitions for program in made.native_programs for step in program.steps]
    return [getattr(each, "op_type", str(each)) for step in steps for each in step.operators]


def between_convolutions(nodes: Sequence[NodeProto], channels: int, taps: int = 3) -> tuple[list[NodeProto], Constants]:
    """Return a graph of ``a -> nodes -> b`` with a convolution and an activation on each side."""
    border = {"pads": [taps // 2] * 4}
    around = [N("Conv", ["x", "w0"], ["c0"], **border), N("Tanh", ["c0"], ["a"])]
    behind = [N("Conv", ["b", "w1"], ["c1"], **border), N("Tanh", ["c1"], ["y"])]
    constants = {"w0": numbers(1, channels, 3, taps, taps), "w1": numbers(2, channels, channels, taps, taps, scale=0.1)}
    return [*around, *nodes, *behind], constants


def silu(x: str, y: str) -> list[NodeProto]:
    return [N("Sigmoid", [x], [f"{y}_s"]), N("Mul", [x, f"{y}_s"], [y])]


@pytest.mark.parametrize("opset", [18, 21])
@pytest.mark.parametrize(("channels", "groups"), [(12, 3), (32, 8), (40, 40), (36, 1)])
def test_group_normalization_between_convolutions_moves_nothing(
    agrees: Agrees, partitions: list[CpuPartition], channels: int, groups: int, opset: int
) -> None:
    middle = [N("GroupNormalization", ["a", "s", "t"], ["g"], num_groups=groups, epsilon=1e-3), *silu("g", "b")]
    nodes, constants = between_convolutions(middle, channels)
    size = groups if opset < 21 else channels
    constants |= {"s": numbers(3, size), "t": numbers(4, size)}
    agrees(nodes, constants, ["N", 3, "H", 9], (1, 3, 7, 9), (3, 3, 12, 9), opset=opset)
    assert words(partitions).count("Layout") == 2, "only the input comes and the output goes channels-first"


@pytest.mark.parametrize("channels", [5, 48])
def test_instance_normalization_between_convolutions_moves_nothing(
    agrees: Agrees, partitions: list[CpuPartition], channels: int
) -> None:
    nodes, constants = between_convolutions([N("InstanceNormalization", ["a", "s", "t"], ["b"])], channels)
    constants |= {"s": numbers(3, channels), "t": numbers(4, channels)}
    agrees(nodes, constants, ["N", 3, "H", "W"], (1, 3, 30, 20), (2, 3, 1, 1))
    assert words(partitions).count("Layout") == 2


def exported(groups: int, *, scale: bool, bias: bool, restore: str) -> list[NodeProto]:
    """Return a group normalization as PyTorch's exporter writes it for opsets without one."""
    nodes = [
        N("Reshape", ["a", "rows"], ["r"]),
        N("InstanceNormalization", ["r", "one", "zero"], ["n"], epsilon=1e-4),
        N("Shape", ["a"], ["shape"]),
        N("Reshape", ["n", restore], ["p"]),
    ]
    last = "p"
    if scale:
        nodes, last = [*nodes, N("Mul", [last, "s"], ["m"])], "m"
    if bias:
        nodes, last = [*nodes, N("Add", ["t", last], ["d"])], "d"
    return [*nodes, *silu(last, "b")]


@pytest.mark.parametrize(("scale", "bias"), [(True, True), (True, False), (False, False)])
@pytest.mark.parametrize("restore", ["shape", "whole"])
def test_exporters_group_norm_is_one_operator(
    agrees: Agrees, partitions: list[CpuPartition], scale: bool, bias: bool, restore: str
) -> None:
    nodes, constants = between_convolutions(exported(4, scale=scale, bias=bias, restore=restore), 24)
    constants |= {
        "rows": np.array([0, 4, -1]), "one": np.full(4, 1.5, np.float32), "zero": numbers(5, 4),
        "s": numbers(3, 24, 1, 1), "t": numbers(4, 24, 1, 1), "whole": np.array([0, 24, 8, 9]),
    }  # fmt: skip
    agrees(nodes, constants, ["N", 3, 8, 9], (1, 3, 8, 9), (2, 3, 8, 9), opset=18)
    found = words(partitions)
    assert "InstanceNormalization" not in found
    assert "GroupNormalization" in found
    assert found.count("Layout") == 2
    assert not {"Mul", "Add"} & set(found), "scale and bias belong to the normalization"


def test_exporters_group_norm_of_images_of_unknown_size_is_one_operator(
    agrees: Agrees, partitions: list[CpuPartition]
) -> None:
    nodes, constants = between_convolutions(exported(4, scale=True, bias=True, restore="shape"), 24)
    constants |= {
        "rows": np.array([0, 4, -1]), "one": np.ones(4, np.float32), "zero": np.zeros(4, np.float32),
        "s": numbers(3, 24, 1, 1), "t": numbers(4, 24, 1, 1),
    }  # fmt: skip
    agrees(nodes, constants, ["N", 3, "H", "W"], (1, 3, 8, 9), (2, 3, 5, 1), opset=18)
    assert "InstanceNormalization" not in words(partitions)
    assert words(partitions).count("Layout") == 2


def test_tokens_behind_a_group_norm_are_the_pixels_as_they_lie(agrees: Agrees, partitions: list[CpuPartition]) -> None:
    middle = [
        N("Reshape", ["a", "rows"], ["r"]),
        N("InstanceNormalization", ["r", "one", "zero"], ["n"]),
        N("Reshape", ["n", "tokens"], ["p"]),
        N("Transpose", ["p"], ["q"], perm=[0, 2, 1]),
        N("MatMul", ["q", "w"], ["m"]),
        N("Transpose", ["m"], ["k"], perm=[0, 2, 1]),
        N("Reshape", ["k", "images"], ["i"]),
        N("Add", ["i", "a"], ["b"]),
    ]
    nodes, constants = between_convolutions(middle, 24)
    constants |= {
        "rows": np.array([0, 4, -1]), "one": np.ones(4, np.float32), "zero": np.zeros(4, np.float32),
        "tokens": np.array([0, 24, 72]), "images": np.array([0, 24, 8, 9]), "w": numbers(6, 24, 24, scale=0.2),
    }  # fmt: skip
    agrees(nodes, constants, ["N", 3, 8, 9], (1, 3, 8, 9), (2, 3, 8, 9), opset=18)
    found = words(partitions)
    assert "GroupNormalization" in found
    assert "Copy" not in found
    assert found.count("Layout") == 2


@pytest.mark.parametrize("odd", ["rows_of_half_channels", "scale_per_column", "result_of_other_channels"])
def test_near_misses_of_the_exporters_form_are_computed_as_written(
    agrees: Agrees, partitions: list[CpuPartition], odd: str
) -> None:
    groups = 16 if odd == "rows_of_half_channels" else 4
    middle = exported(groups, scale=True, bias=True, restore="whole")
    nodes, constants = between_convolutions(middle, 24)
    whole = [0, 12, 16, 9] if odd == "result_of_other_channels" else [0, 24, 8, 9]
    channels = whole[1]
    shape = (1, 9) if odd == "scale_per_column" else (channels, 1, 1)
    constants |= {
        "rows": np.array([0, groups, -1]), "one": np.ones(groups, np.float32), "zero": np.zeros(groups, np.float32),
        "s": numbers(3, *shape), "t": numbers(4, *shape), "whole": np.array(whole),
        "w1": numbers(2, 8, channels, 3, 3, scale=0.1),
    }  # fmt: skip
    agrees(nodes, constants, ["N", 3, 8, 9], (2, 3, 8, 9), opset=18)
    assert ("InstanceNormalization" in words(partitions)) == (odd != "scale_per_column")


@pytest.mark.parametrize("shape", [(2, 24, 11), (2, 24, 3, 4, 5)])
def test_volumes_and_lines_are_normalized_as_they_lie(
    agrees: Agrees, partitions: list[CpuPartition], shape: tuple[int, ...]
) -> None:
    window = [1] * (len(shape) - 2)
    constants = {"w": numbers(1, 24, 24, *window, scale=0.2), "s": numbers(2, 24), "t": numbers(3, 24)}
    nodes = [
        N("Conv", ["x", "w"], ["c"]), N("Tanh", ["c"], ["a"]),
        N("GroupNormalization", ["a", "s", "t"], ["g"], num_groups=6), N("Conv", ["g", "w"], ["y"]),
    ]  # fmt: skip
    agrees(nodes, constants, ["N", *shape[1:]], shape, opset=21)
    assert words(partitions).count("Layout") == 2


def contrib(op_type: str, names: Sequence[str], outputs: Sequence[str], activation: int, groups: int) -> NodeProto:
    return N(op_type, names, outputs, domain="com.microsoft", activation=activation, groups=groups, epsilon=1e-3)


@pytest.mark.parametrize("activation", [0, 1])
@pytest.mark.parametrize(("channels", "groups"), [(12, 3), (64, 8)])
def test_contrib_group_norm_takes_images_with_the_channels_last(
    agrees: Agrees, channels: int, groups: int, activation: int
) -> None:
    nodes = [contrib("GroupNorm", ["x", "s", "t"], ["g"], activation, groups), N("Neg", ["g"], ["y"])]
    agrees(nodes, {"s": numbers(1, channels), "t": numbers(2, channels)}, ["N", "H", 5, channels], (2, 7, 5, channels))


@pytest.mark.parametrize("outputs", [["g"], ["g", "sum"]])
@pytest.mark.parametrize("residual", ["images", "channels"])
def test_contrib_skip_group_norm_adds_before_it_normalizes(agrees: Agrees, residual: str, outputs: list[str]) -> None:
    skip = numbers(3, 2, 7, 5, 16) if residual == "images" else numbers(3, 2, 16)
    names = ["x", "s", "t", "skip", "bias"]
    nodes = [contrib("SkipGroupNorm", names, outputs, 1, 4)]
    nodes.append(N("Add", ["g", "sum"], ["y"]) if len(outputs) > 1 else N("Neg", ["g"], ["y"]))
    constants = {"s": numbers(1, 16), "t": numbers(2, 16), "skip": skip, "bias": numbers(4, 16)}
    agrees(nodes, constants, [2, 7, 5, 16], (2, 7, 5, 16))


def test_one_group_of_large_numbers_agrees_with_float64() -> None:
    x = (numbers(1, 1, 8, 40, 40) * np.float32(0.05) + np.float32(3000)).astype(np.float32)
    eye = np.eye(8, dtype=np.float32).reshape(8, 8, 1, 1)
    tensors = {"w": eye, "s": numbers(2, 8), "t": numbers(3, 8)}
    nodes = [
        N("Conv", ["x", "w"], ["a"]),
        N("GroupNormalization", ["a", "s", "t"], ["b"], num_groups=2),
        N("Conv", ["b", "w"], ["y"]),
    ]
    info = helper.make_tensor_value_info
    ins, outs = [info("x", TensorProto.FLOAT, x.shape)], [info("y", TensorProto.FLOAT, None)]
    initializers = [numpy_helper.from_array(array, name) for name, array in tensors.items()]
    graph = helper.make_graph(nodes, "images", ins, outs, initializer=initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    (found,) = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    grouped = np.float64(x).reshape(2, -1)
    normal = (grouped - grouped.mean(1, keepdims=True)) / np.sqrt(grouped.var(1, keepdims=True) + 1e-5)
    column = (8, 1, 1)
    wanted = normal.reshape(x.shape) * tensors["s"].reshape(column) + tensors["t"].reshape(column)
    # The mean is rounded to float32: half of its last digit over the deviation is all that may be lost.
    bound = 2.0**-24 * 3000 / 0.05 * np.abs(tensors["s"]).max() * 2
    assert np.abs(found - wanted).max() <= bound


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("channels", [6, 40])
def test_layer_norm_over_channels_written_as_means_moves_nothing(
    agrees: Agrees, partitions: list[CpuPartition], channels: int, opset: int
) -> None:
    axes = {"axes": [1]} if opset < 18 else {}
    names = lambda x: [x] if opset < 18 else [x, "axis"]  # noqa: E731 - the operands of a mean
    middle = [
        N("ReduceMean", names("a"), ["u"], **axes), N("Sub", ["a", "u"], ["d"]), N("Pow", ["d", "two"], ["q"]),
        N("ReduceMean", names("q"), ["v"], **axes), N("Add", ["v", "epsilon"], ["e"]), N("Sqrt", ["e"], ["r"]),
        N("Div", ["d", "r"], ["n"]), N("Mul", ["n", "s"], ["m"]), N("Add", ["m", "t"], ["b"]),
    ]  # fmt: skip
    nodes, constants = between_convolutions(middle, channels)
    constants |= {
        "axis": np.array([1]), "two": np.array(2, np.float32), "epsilon": np.array(1e-6, np.float32),
        "s": numbers(3, channels, 1, 1), "t": numbers(4, channels, 1, 1),
    }  # fmt: skip
    agrees(nodes, constants, ["N", 3, "H", 9], (1, 3, 7, 9), (2, 3, 12, 9), opset=opset)
    assert words(partitions).count("Layout") == 2


def test_layer_norm_over_transposed_channels_moves_nothing(agrees: Agrees, partitions: list[CpuPartition]) -> None:
    middle = [
        N("Transpose", ["a"], ["l"], perm=[0, 2, 3, 1]), N("LayerNormalization", ["l", "s", "t"], ["n"]),
        N("MatMul", ["n", "w"], ["p"]), N("Gelu", ["p"], ["g"]), N("Transpose", ["g"], ["k"], perm=[0, 3, 1, 2]),
        N("Mul", ["k", "gain"], ["m"]), N("Sigmoid", ["m"], ["b"]),
    ]  # fmt: skip
    nodes, constants = between_convolutions(middle, 24)
    constants |= {
        "s": numbers(3, 24), "t": numbers(4, 24), "w": numbers(5, 24, 24, scale=0.2), "gain": numbers(6, 24, 1, 1),
    }  # fmt: skip
    agrees(nodes, constants, ["N", 3, "H", 9], (1, 3, 7, 9), (2, 3, 12, 9))
    assert words(partitions).count("Layout") == 2
    assert "Copy" not in words(partitions)


@pytest.mark.sweep
@pytest.mark.parametrize("axes", [[1], [2, 3], [1, 2, 3], [0, 2, 3], [2], [0, 1]])
@pytest.mark.parametrize("operator", ["ReduceSum", "ReduceL2", "ReduceMean", "ReduceMax", "ReduceLogSumExp"])
def test_reductions_read_channels_last_images_in_their_own_order(
    agrees: Agrees, operator: str, axes: list[int]
) -> None:
    nodes = [N("Conv", ["x", "w"], ["a"]), N(operator, ["a", "axes"], ["b"], keepdims=0), N("Neg", ["b"], ["y"])]
    constants = {"w": numbers(1, 20, 3, 1, 1), "axes": np.array(axes)}
    agrees(nodes, constants, ["N", 3, 6, "W"], (2, 3, 6, 5), (1, 3, 6, 17))


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax"])
def test_softmax_over_channels_reads_channels_last_images(
    agrees: Agrees, partitions: list[CpuPartition], operator: str
) -> None:
    nodes = [N("Conv", ["x", "w"], ["a"]), N(operator, ["a"], ["b"], axis=1), N("Conv", ["b", "w2"], ["y"])]
    constants = {"w": numbers(1, 21, 3, 1, 1), "w2": numbers(2, 4, 21, 1, 1)}
    agrees(nodes, constants, ["N", 3, 6, "W"], (2, 3, 6, 5), (1, 3, 6, 17))
    assert words(partitions).count("Layout") == 2
