"""Infinite numbers, half precision at the borders of coremltools' passes, and fewer places than an axis has."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import ort_core as ort
from ort_core.tolerances import compare

pytestmark = pytest.mark.usefixtures("sdk")
GENERATOR = np.random.default_rng(13)
INFINITE = float("inf")


def strict_session(op_type: str, feeds: dict, constants: dict, *, opset: int = 26, then: tuple = (), **attributes):
    """A session of one node, strictly on the evaluated Core ML program, and what the reference computes."""
    info, helper = onnx.helper.make_tensor_value_info, onnx.helper
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in feeds.items()}
    nodes = [helper.make_node(op_type, [*feeds, *constants], ["y"], **attributes)]
    for place, (next_op, array) in enumerate(then):
        constants = {**constants, f"c{place}": array}
        nodes[-1].output[0] = f"t{place}"
        nodes.append(helper.make_node(next_op, [f"t{place}", *([f"c{place}"] if array is not None else [])], ["y"]))
    graph = helper.make_graph(
        nodes, "g", [info(name, kinds[name], array.shape) for name, array in feeds.items()],
        [onnx.ValueInfoProto(name="y")],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items() if array is not None],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.strict_placement = True
    given = model.SerializeToString()
    own = ort.InferenceSession(given, settings, providers=["CoreMLEvaluationExecutionProvider"], enable_fallback=False)
    reference = ort.InferenceSession(given, settings, providers=["ReferenceExecutionProvider"])
    return own.run(None, feeds)[0], reference.run(None, feeds)[0]


def assert_equal(pair: tuple[np.ndarray, np.ndarray], tolerance: str = "approximate") -> None:
    facts = compare(*pair, tolerance)
    assert facts.passes, facts


def test_an_infinite_loss_is_infinite_and_no_nan():
    x = np.array([[-INFINITE, 0], [1, 2]], np.float32)
    for reduction in ("none", "sum", "mean"):
        found = strict_session(
            "NegativeLogLikelihoodLoss", {"x": x, "t": np.array([0, 1])}, {}, opset=13, reduction=reduction
        )
        assert_equal(found)


@pytest.mark.parametrize("is_reverse", [0, 1])
def test_an_exclusive_product_begins_with_one_beside_what_is_infinite(is_reverse):
    x = np.array([INFINITE, 2, -INFINITE], np.float32)
    assert_equal(strict_session("CumProd", {"x": x}, {"axis": np.array(0)}, exclusive=1, reverse=is_reverse))


def test_elements_of_fewer_places_than_there_are_beside_the_axis_are_gathered():
    x = GENERATOR.standard_normal((3, 4, 3)).astype(np.float32)
    i = np.array([[[-1, 0], [3, -4], [1, 2]]])
    assert_equal(strict_session("GatherElements", {"x": x, "i": i}, {}, axis=1), "exact")


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_half_precision_is_padded_by_every_mode(mode):
    x = GENERATOR.standard_normal((1, 3, 3)).astype(np.float16)
    found = strict_session("Pad", {"x": x}, {"pads": np.array([0, 1, 2, 0, 2, 1])}, opset=21, mode=mode)
    assert_equal(found, "exact")


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_product_and_a_sum_by_channels_stay_what_they_are(dtype):
    x = GENERATOR.standard_normal((1, 2, 3, 3)).astype(dtype)
    scale, bias = (np.array(pair, dtype).reshape(2, 1, 1) for pair in ([1.5, 2.5], [0.5, 1.5]))
    found, expected = strict_session("Mul", {"x": x}, {"s": scale}, then=(("Add", bias), ("Relu", None)))
    assert_equal((found, expected), "approximate" if dtype == np.float16 else "rounding")


def test_a_group_normalization_of_half_precision_is_written():
    x = GENERATOR.standard_normal((1, 6, 4, 3)).astype(np.float16)
    weights = {name: GENERATOR.standard_normal(6).astype(np.float16) for name in ("scale", "bias")}
    assert_equal(strict_session("GroupNormalization", {"x": x}, weights, opset=21, num_groups=2))


def test_a_slice_backwards_from_before_the_first_element_starts_with_it():
    x = GENERATOR.standard_normal((2, 5)).astype(np.float32)
    bounds = {"starts": np.array([-3]), "ends": np.array([-(2**62)]), "axes": np.array([0]), "steps": np.array([-1])}
    assert_equal(strict_session("Slice", {"x": x}, bounds, opset=21), "exact")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "g (float[1,2,4] x, float[n] b) => (float[1,2,4] y) <float[2,2,1] w = {1,2,3,4}> { y = Conv(x, w, b) }",
            "sizes of 'b'",
        ),
        (
            "g (int8[n] x) => (float[n] y) <float[4] s = {1,2,3,4}> { y = DequantizeLinear<axis=0>(x, s) }",
            "how many places",
        ),
    ],
    ids=["a bias", "an axis of scales"],
)
def test_sizes_that_must_agree_are_known_or_refused(view, text, why):
    from ort_core.plugin import Rejection
    from ort_ep_coreml.capability import find_capability
    from ort_ep_coreml.options import CoreMlOptions

    (found,) = find_capability(view(text), CoreMlOptions())
    assert isinstance(found, Rejection)
    assert why in found.reason


@pytest.mark.parametrize("is_reverse", [0, 1])
def test_what_is_not_a_number_stays_out_of_its_own_exclusive_sum(is_reverse):
    x = np.array([[np.nan, 1, 2, INFINITE], [1, 2, np.nan, np.nan]], np.float32)
    feeds = {"axis": np.array(1)}
    assert_equal(strict_session("CumSum", {"x": x}, feeds, exclusive=1, reverse=is_reverse))
