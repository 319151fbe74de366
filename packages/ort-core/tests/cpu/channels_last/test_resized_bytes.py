"""Resize of bytes as compiled: the same integers as the numpy kernel's and onnxruntime's."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core as ort

SCALES = ([1, 1, 2, 2], [1, 1, 0.5, 0.5], [1, 1, 4, 0.5], [1, 1, 3, 2], [1, 1, 0.7, 1.5])
SIZES = ([2, 3, 9, 14], [2, 3, 4, 7])


def resize_model(
    dtype: int, given: np.ndarray, shape: list[int | str], nodes: list[str], **attributes: object
) -> bytes:
    names = ["x", "", "", "given"] if given.dtype == np.int64 else ["x", "", "given"]
    made = [helper.make_node("Resize", names, ["r" if nodes else "y"], **attributes)]
    made += [helper.make_node(name, ["r"], ["y"], to=TensorProto.FLOAT) for name in nodes]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        made, "bytes", [info("x", dtype, shape)], [info("y", TensorProto.FLOAT if nodes else dtype, None)],
        [numpy_helper.from_array(given, "given")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return bytes(model.SerializeToString())


def results(model: bytes, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    compiled = [session.run(None, {"x": x})[0] for _ in range(2)][1]
    by_numpy = ort.InferenceSession(model, providers=["ReferenceExecutionProvider"]).run(None, {"x": x})[0]
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    return compiled, by_numpy, theirs, not session._loaded.prepared.plan.steps[0].step.compiled.refusals


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("center", ["half_pixel", "asymmetric", "align_corners"])
def test_bytes_are_resized_to_the_same_integers(dtype: type, mode: str, center: str) -> None:
    limits, random = np.iinfo(dtype), np.random.default_rng(7)
    x = random.integers(limits.min, limits.max, (2, 3, 8, 7), dtype, endpoint=True)
    x[0, 0] = limits.max
    kind, compiled = helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), 0
    for given in (*(np.array(scales, np.float32) for scales in SCALES), *(np.array(sizes) for sizes in SIZES)):
        shape: list[int | str] = ["N", 3, *x.shape[2:]]
        attributes = {"mode": mode, "coordinate_transformation_mode": center}
        if mode == "nearest" and center == "asymmetric":
            attributes["nearest_mode"] = "floor"
        found, by_numpy, theirs, is_native = results(resize_model(kind, given, shape, [], **attributes), x)
        compiled += is_native
        np.testing.assert_array_equal(found, by_numpy, err_msg=f"{given}")
        np.testing.assert_array_equal(found, theirs, err_msg=f"{given}")
    exact = 0 if center == "align_corners" else 1
    assert compiled >= (len(SCALES) + len(SIZES) if mode == "nearest" else exact)


def test_repeated_bytes_of_open_sizes_and_what_reads_them_are_one_program() -> None:
    model = resize_model(
        TensorProto.UINT8, np.array([1, 1, 2, 3], np.float32), ["N", "C", "H", "W"], ["Cast"], mode="nearest",
        coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    )  # fmt: skip
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    assert not session._loaded.prepared.plan.steps[0].step.compiled.refusals
    for shape in ((1, 3, 5, 7), (2, 1, 1, 1), (1, 17, 4, 33), (0, 2, 3, 4)):
        x = np.random.default_rng(1).integers(0, 255, shape, np.uint8, endpoint=True)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], x.repeat(2, axis=2).repeat(3, axis=3))


def test_sums_that_would_be_rounded_are_left_to_the_kernel() -> None:
    x = np.random.default_rng(2).integers(0, 255, (1, 2, 5, 9), np.uint8, endpoint=True)
    model = resize_model(TensorProto.UINT8, np.array([1, 2, 7, 5]), [1, 2, 5, 9], [], mode="linear")
    found, by_numpy, theirs, is_native = results(model, x)
    assert not is_native
    np.testing.assert_array_equal(found, by_numpy)
    np.testing.assert_array_equal(found, theirs)
