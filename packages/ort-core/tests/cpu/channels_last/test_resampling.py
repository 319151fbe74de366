"""Resize as compiled, against weighted sums written down in float64, and against the reference kernels.

Coordinates are onnxruntime's, in float32; filters that shrink with ``align_corners`` go by the uncut size in later
versions, as ONNX's cases: where that does not matter onnxruntime's results are compared.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import ort_core as ort
from ort_core.tolerances import compare

CENTERS = ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric"]


def resize_model(
    attributes: dict[str, object], given: np.ndarray, shape: Sequence[int | str], opset: int = 18, name: str = "Resize"
) -> bytes:
    """Return x -> 1x1 convolution by ones on the diagonal -> resize -> negation: channels-last inside."""
    channels = shape[1]
    assert isinstance(channels, int)
    is_sizes = given.dtype == np.int64
    names = ["a", "given"] if opset < 11 else ["a", "", "", "given"] if is_sizes else ["a", "", "given"]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node(name, names, ["b"], **attributes),
        helper.make_node("Neg", ["b"], ["y"]),
    ]
    info = helper.make_tensor_value_info
    weights = np.eye(channels, dtype=np.float32)[:, :, None, None]
    graph = helper.make_graph(
        nodes, "resize", [info("x", TensorProto.FLOAT, shape)], [info("y", TensorProto.FLOAT, None)],
        initializer=[numpy_helper.from_array(weights, "w"), numpy_helper.from_array(given, "given")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return bytes(model.SerializeToString())


def compiled_result(model: bytes, x: np.ndarray) -> np.ndarray:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    (planned,) = session._loaded.prepared.plan.steps
    assert not planned.step.compiled.refusals, "not compiled"
    return np.asarray(session.run(None, {"x": x})[0])


def assert_near(found: np.ndarray, expected: np.ndarray, what: object) -> None:
    assert found.shape == expected.shape, what
    comparison = compare(found, expected.astype(np.float32), "approximate")
    assert comparison.passes, f"{what}: {comparison}"


def center(made: np.ndarray, size: int, count: int, mode: str) -> np.ndarray:
    """Return where outputs stand in the input, for sizes that are given."""
    scale = count / size
    if mode == "asymmetric":
        return made / scale
    if mode == "align_corners":
        return made * (size - 1) / max(count - 1, 1)
    if mode == "pytorch_half_pixel" and count == 1:
        return made * 0.0
    return (made + 0.5) / scale - 0.5


def weight(distance: np.ndarray, mode: str, a: float) -> np.ndarray:
    d = np.abs(distance)
    if mode == "linear":
        return np.maximum(1 - d, 0)
    near, far = (a + 2) * d**3 - (a + 3) * d**2 + 1, a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def matrix(size: int, count: int, mode: str, centers: str, a: float) -> np.ndarray:
    """Return the matrix of an axis: pixels outside count as the nearest one inside."""
    at = center(np.arange(count, dtype=np.float64), size, count, centers)
    found = np.zeros((count, size))
    for reached in range(-8, size + 8):
        found[:, min(max(reached, 0), size - 1)] += weight(at - reached, mode, a)
    return found


@pytest.mark.sweep
@pytest.mark.parametrize("centers", CENTERS)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize(
    ("size", "made"), [((5, 6), (11, 9)), ((9, 7), (4, 3)), ((3, 8), (3, 13)), ((6, 1), (1, 5))], ids=str
)
def test_each_output_is_the_weighted_sum_of_its_neighbors(
    size: tuple[int, int], made: tuple[int, int], mode: str, centers: str
) -> None:
    a = -0.5
    attributes = {"mode": mode, "coordinate_transformation_mode": centers, "cubic_coeff_a": a}
    given = np.array([2, 19, *made], np.int64)
    x = np.random.default_rng(sum(size)).standard_normal((2, 19, *size)).astype(np.float32)
    rows, columns = (matrix(s, m, mode, centers, a) for s, m in zip(size, made, strict=True))
    expected = -np.einsum("oy,ncyx,px->ncop", rows, x.astype(np.float64), columns)
    assert_near(compiled_result(resize_model(attributes, given, [2, 19, *size]), x), expected, attributes)


@pytest.mark.parametrize("centers", CENTERS)
@pytest.mark.parametrize(
    ("attributes", "opset"),
    [
        ({"mode": "nearest", "nearest_mode": "floor"}, 18), ({"mode": "nearest", "nearest_mode": "ceil"}, 18),
        ({"mode": "nearest"}, 13), ({"mode": "nearest", "nearest_mode": "round_prefer_ceil"}, 19),
        ({"mode": "linear"}, 13), ({"mode": "linear"}, 19), ({"mode": "cubic"}, 13),
        ({"mode": "cubic", "exclude_outside": 1}, 18), ({"mode": "linear", "axes": [3, 2]}, 18),
    ],
    ids=str,
)  # fmt: skip
def test_scales_agree_with_the_reference_kernels(attributes: dict[str, object], opset: int, centers: str) -> None:
    given = np.array([0.6, 2.5] if "axes" in attributes else [1, 1, 2.5, 0.6], np.float32)
    model = resize_model({**attributes, "coordinate_transformation_mode": centers}, given, ["N", 5, 8, 10], opset)
    x = np.random.default_rng(3).standard_normal((3, 5, 8, 10)).astype(np.float32)
    (expected,) = ort.InferenceSession(model, providers=["ReferenceExecutionProvider"]).run(None, {"x": x})
    assert_near(compiled_result(model, x), expected, attributes)


@pytest.mark.parametrize(("name", "opset"), [("Upsample", 9), ("Resize", 10)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_the_forms_of_old_agree_with_onnxruntime(name: str, opset: int, mode: str) -> None:
    model = resize_model({"mode": mode}, np.array([1, 1, 1.5, 2.25], np.float32), [1, 3, 6, 4], opset, name)
    x = np.random.default_rng(4).standard_normal((1, 3, 6, 4)).astype(np.float32)
    (expected,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    assert_near(compiled_result(model, x), expected, name)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("made", [(8, 10), (8, 5)], ids=str)
def test_regions_are_cut_out_of_results_of_any_size(made: tuple[int, int], mode: str) -> None:
    """A result of the input's sizes was taken for the input."""
    attributes = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": -7.0}
    regions = numpy_helper.from_array(np.array([0, 0, 0.1, 0.2, 1, 1, 0.8, 1.3], np.float32), "regions")
    sizes = numpy_helper.from_array(np.array([1, 3, *made]), "sizes")
    node = helper.make_node("Resize", ["x", "regions", "", "sizes"], ["y"], **attributes)
    infos = [helper.make_tensor_value_info(name, 1, ["N", "C", "H", "W"]) for name in "xy"]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:], [regions, sizes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    x = np.random.default_rng(5).standard_normal((1, 3, 8, 10)).astype(np.float32)
    [expected] = ReferenceEvaluator(model).run(None, {"x": x})
    for provider in ("CPUExecutionProvider", "ReferenceExecutionProvider"):
        [found] = ort.InferenceSession(model.SerializeToString(), providers=[provider]).run(None, {"x": x})
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, err_msg=provider)
