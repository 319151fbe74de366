"""Sizes that broadcast what is usually equal: how they are simplified, and what is compiled for them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.cpu.lowering.usual_sizes import are_usually_equal, meeting_sizes, usual_shape
from ort_core.cpu.partition.partition import CpuPartition
from ort_core.errors import OrtError
from ort_core.plugin.ir import SymbolicDim, broadcast, maximum
from ort_core.tolerances import compare

Agrees = Callable[..., None]

H, W = SymbolicDim.named("h"), SymbolicDim.named("w")
HALF = (H + 1) // 2
ENLARGED = 2 * ((HALF + 1) // 2)


def test_a_size_and_the_double_of_its_half_are_usually_equal():
    assert are_usually_equal(HALF, ENLARGED)
    assert are_usually_equal(4 * (H // 4), H)
    assert are_usually_equal(HALF + W, ENLARGED + W)


@pytest.mark.parametrize(
    ("left", "right"),
    [(H, W), (H, 2 * H), (HALF, H // 2 + 1), (HALF, 14), (HALF * W, ENLARGED), (H, H // (H - H // 1 * 1 + W))],
    ids=str,
)
def test_sizes_of_other_inputs_and_other_sizes_are_not(left, right):
    assert not are_usually_equal(left, right)


def test_of_usually_equal_sizes_the_simplest_stands_for_all():
    met = broadcast(HALF, ENLARGED)
    assert usual_shape((1, 8, met, W)) == (1, 8, HALF, W)
    assert usual_shape((3 * met + 1, maximum(met, W))) == (3 * HALF + 1, maximum(HALF, W))
    assert usual_shape(((met + 1) // 2,)) == ((HALF + 1) // 2,)
    assert meeting_sizes((1, 3 * met + 1)) == {(ENLARGED, HALF)}


def test_sizes_that_may_really_broadcast_stay():
    met = broadcast(H, W)
    assert usual_shape((met, 4)) == (met, 4)
    assert usual_shape((broadcast(broadcast(HALF, ENLARGED), W),)) == (broadcast(HALF, W),)


def pyramid(meeting: str = "Add") -> tuple[list[NodeProto], dict[str, np.ndarray]]:
    """Return two scales of an image, halved once and twice, that meet in a node, and a convolution of what that gives.

    Their sizes are ``(h + 1) // 2`` and ``2 * (((h + 1) // 2 + 1) // 2)``.
    """
    numbers = np.random.default_rng(0)
    shapes = {"first": (8, 3, 3, 3), "second": (8, 8, 3, 3), "lateral": (8, 8, 1, 1)}
    constants = {name: numbers.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}
    halving = {"pads": [1] * 4, "strides": [2, 2]}
    modes = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["fine"], **halving),
        helper.make_node("Conv", ["fine", "second"], ["coarse"], **halving),
        helper.make_node("Resize", ["coarse", "", "scales"], ["enlarged"], **modes),
        helper.make_node("Conv", ["fine", "lateral"], ["side"]),
        helper.make_node(meeting, ["side", "enlarged"], ["sum"]),
        helper.make_node("Conv", ["sum", "second"], ["y"], pads=[1] * 4),
    ]
    return nodes, {**constants, "scales": np.array([1, 1, 2, 2], np.float32)}


@pytest.mark.parametrize("meeting", ["Add", "Mul"])
def test_scales_of_open_images_meet_in_the_convolution(
    agrees: Agrees, partitions: list[CpuPartition], meeting: str
) -> None:
    agrees(*pyramid(meeting), [1, 3, "h", "w"], (1, 3, 32, 48), (1, 3, 8, 4), (1, 3, 31, 63))
    kernels = [step.kernel for each in partitions for program in each.native_programs for step in program.steps]
    assert not [name for name in kernels if name.startswith("nest_")][1:], "a step beside the copy that enlarges"


def exchanges(rounds: int) -> tuple[list[NodeProto], dict[str, np.ndarray]]:
    """Return three scales of an image, each of which becomes the sum of all in every round, as HRNet's do."""
    numbers = np.random.default_rng(0)
    constants = {"first": (4, 3, 3, 3), "down": (4, 4, 3, 3), "side": (4, 4, 1, 1)}
    halving = {"pads": [1] * 4, "strides": [2, 2]}
    modes = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    nodes = [helper.make_node("Conv", ["x", "first"], ["s0"], **halving)]

    def added(operator: str, source: str, more: Sequence[str], **settings: object) -> str:
        nodes.append(helper.make_node(operator, [source, *more], [f"v{len(nodes)}"], **settings))
        return nodes[-1].output[0]

    def brought(source: str, steps: int) -> str:
        if steps > 0:
            return added("Resize", source, ["", f"by_{2**steps}"], **modes)
        for _ in range(-steps):
            source = added("Conv", source, ["down"], **halving)
        return source if steps else added("Conv", source, ["side"])

    scales = ["s0", brought("s0", -1), brought("s0", -2)]
    for _ in range(rounds):
        scales = [
            functools.reduce(
                lambda left, right: added("Add", left, [right]),
                [brought(source, there - here) for there, source in enumerate(scales)],
            )
            for here in range(3)
        ]
    last = functools.reduce(lambda a, b: added("Concat", a, [b], axis=1), [brought(v, k) for k, v in enumerate(scales)])
    nodes.append(helper.make_node("Identity", [last], ["y"]))
    return nodes, {
        **{name: numbers.normal(0, 0.2, shape).astype(np.float32) for name, shape in constants.items()},
        **{f"by_{factor}": np.array([1, 1, factor, factor], np.float32) for factor in (2, 4)},
    }


def test_scales_that_meet_again_and_again_are_one_program(agrees: Agrees) -> None:
    agrees(*exchanges(rounds=5), [1, 3, "h", "w"], (1, 3, 16, 24), (1, 3, 8, 8))


@pytest.mark.parametrize("size", [(1, 1), (1, 16), (16, 2), (2, 2), (2, 1)], ids=str)
def test_results_are_right_where_a_size_of_1_broadcasts(agrees: Agrees, size: tuple[int, int]) -> None:
    agrees(*pyramid(), [1, 3, "h", "w"], (1, 3, *size), (1, 3, 16, 16), (1, 3, *size))


@pytest.mark.parametrize("size", [(1, 1), (16, 2), (32, 32)], ids=str)
def test_an_image_expands_to_the_size_of_another_where_its_own_is_1(size: tuple[int, int]) -> None:
    nodes, constants = pyramid()
    nodes[3:] = [
        helper.make_node("Shape", ["enlarged"], ["sizes"]),
        helper.make_node("Expand", ["fine", "sizes"], ["sum"]),
        helper.make_node("Conv", ["sum", "second"], ["y"], pads=[1] * 4),
    ]
    fused, plain = (
        ort.InferenceSession(model_of(nodes, constants), providers=[name])
        for name in ("CPUExecutionProvider", "ReferenceExecutionProvider")
    )
    x = np.random.default_rng(1).normal(size=(1, 3, *size)).astype(np.float32)
    (found,), (expected,) = fused.run(None, {"x": x}), plain.run(None, {"x": x})
    assert compare(found, expected, "approximate").passes


@pytest.mark.parametrize("size", [(32, 48), (1, 1), (16, 2)], ids=str)
def test_images_are_resized_to_the_size_at_which_others_met(
    agrees: Agrees, partitions: list[CpuPartition], size: tuple[int, int]
) -> None:
    """Sizes that only shapes tell, as ``interpolate`` to the size of a feature map writes them."""
    nodes, constants = pyramid()
    nodes[5:] = [
        helper.make_node("Shape", ["sum"], ["sizes"], start=2),
        helper.make_node("Shape", ["coarse"], ["images"], end=2),
        helper.make_node("Concat", ["images", "sizes"], ["wanted"], axis=0),
        helper.make_node("Resize", ["coarse", "", "", "wanted"], ["other"], mode="linear"),
        helper.make_node("Concat", ["sum", "other"], ["both"], axis=1),
        helper.make_node("Conv", ["both", "joined"], ["y"]),
    ]
    constants["joined"] = np.random.default_rng(2).normal(0, 0.2, (4, 16, 1, 1)).astype(np.float32)
    agrees(nodes, constants, [1, 3, "h", "w"], (1, 3, *size))


def model_of(nodes: list[NodeProto], constants: dict[str, np.ndarray]) -> bytes:
    """Return a model of open images."""
    graph = helper.make_graph(
        nodes, "pyramid", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()


def test_images_that_do_not_meet_are_refused_as_onnx_does() -> None:
    session = ort.InferenceSession(model_of(*pyramid()), providers=["CPUExecutionProvider"])
    with pytest.raises(OrtError, match="Add"):
        session.run(None, {"x": np.zeros((1, 3, 29, 32), np.float32)})
