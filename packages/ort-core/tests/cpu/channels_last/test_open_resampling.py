"""Resize where sizes are open, and of lines and volumes: against the reference kernels, which know the sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.tolerances import compare

N = helper.make_node


def resized_like(attributes: Mapping[str, object], rank: int) -> bytes:
    """Return (x, z) -> x resized to the space of z, as exports write it."""
    nodes = [
        N("Shape", ["x"], ["head"], start=0, end=2), N("Shape", ["z"], ["tail"], start=2),
        N("Concat", ["head", "tail"], ["sizes"], axis=0), N("Resize", ["x", "", "", "sizes"], ["r"], **attributes),
        N("Neg", ["r"], ["y"]),
    ]  # fmt: skip
    return model_of(nodes, {name: ["N", 5, *(f"{name}{axis}" for axis in range(2, rank))] for name in "xz"})


def scaled(attributes: Mapping[str, object], scales: Sequence[float], opset: int = 18) -> bytes:
    """Return x -> x resized by scales, each of whose axes of space is open."""
    given = numpy_helper.from_array(np.array(scales, np.float32), "given")
    nodes = [N("Resize", ["x", "", "given"], ["r"], **attributes), N("Neg", ["r"], ["y"])]
    return model_of(nodes, {"x": ["N", 5, *(f"x{axis}" for axis in range(2, len(scales)))]}, opset, [given])


def model_of(
    nodes: list, inputs: Mapping[str, list[str | int]], opset: int = 18, constants: Sequence[TensorProto] = ()
) -> bytes:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "resize", [info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [info("y", TensorProto.FLOAT, None)], initializer=constants,
    )  # fmt: skip
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString()
    )


def agrees(model: bytes, *shapes: Mapping[str, Sequence[int]]) -> None:
    """Check one compiled session on inputs of several sizes."""
    compiled = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    refusals = [step.step.compiled.refusals for step in compiled._loaded.prepared.plan.steps]
    assert not any(refusals), refusals
    reference = ort.InferenceSession(model, providers=["ReferenceExecutionProvider"])
    for each in shapes:
        numbers = np.random.default_rng(1)
        feeds = {name: numbers.standard_normal(shape).astype(np.float32) for name, shape in each.items()}
        found, expected = (np.asarray(session.run(None, feeds)[0]) for session in (compiled, reference))
        assert found.shape == expected.shape
        comparison = compare(found, expected, "approximate")
        assert comparison.passes, f"{each}: {comparison}"


@pytest.mark.parametrize(
    "attributes",
    [
        {"mode": "linear"},
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
        {"mode": "cubic", "coordinate_transformation_mode": "half_pixel_symmetric"},
        {"mode": "cubic", "coordinate_transformation_mode": "pytorch_half_pixel", "cubic_coeff_a": -0.5},
        {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        {"mode": "nearest", "nearest_mode": "round_prefer_ceil"},
        {"mode": "nearest", "coordinate_transformation_mode": "align_corners", "nearest_mode": "ceil"},
    ],
    ids=str,
)
def test_images_are_resized_to_the_size_of_others(attributes: dict[str, object]) -> None:
    agrees(
        resized_like(attributes, 4), {"x": (2, 5, 6, 7), "z": (2, 5, 11, 3)}, {"x": (1, 5, 4, 9), "z": (1, 5, 4, 18)},
        {"x": (1, 5, 3, 1), "z": (1, 5, 1, 6)},
    )  # fmt: skip


@pytest.mark.parametrize("rank", [3, 5])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_lines_and_volumes_are_resized(rank: int, mode: str) -> None:
    small, large = (2, 5, 4, 3, 6)[:rank], (2, 5, 7, 8, 9)[:rank]
    agrees(resized_like({"mode": mode}, rank), {"x": small, "z": large}, {"x": large, "z": small})
    agrees(scaled({"mode": mode}, [1, 1, *[2.0] * (rank - 2)]), {"x": small}, {"x": large})


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_open_sizes_are_scaled(mode: str) -> None:
    agrees(scaled({"mode": mode}, [1, 1, 3, 2]), {"x": (2, 5, 6, 7)}, {"x": (1, 5, 1, 3)})
