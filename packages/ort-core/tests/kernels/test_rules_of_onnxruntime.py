"""Operators whose schema leaves something open: what onnxruntime does there is what the kernels and the compiler do."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import ort_core as ort

Arrays = tuple[np.ndarray, ...]


def assert_same(
    op_type: str, domain: str, version: int, inputs: Arrays, kinds: tuple[int, ...], **attributes: object
) -> None:
    """Run one node in onnxruntime, by the compiler and by the kernels, and compare."""
    names = [f"x{index}" for index in range(len(inputs))]
    node = helper.make_node(op_type, names, [f"y{index}" for index in range(len(kinds))], domain=domain, **attributes)
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim)
        for name, array in zip(names, inputs, strict=True)
    ]
    results = [helper.make_tensor_value_info(f"y{index}", kind, None) for index, kind in enumerate(kinds)]
    imports = [helper.make_opsetid(domain, version), *([helper.make_opsetid("", 21)] if domain else [])]
    graph = helper.make_graph([node], "one", infos, results)
    content = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    feeds = dict(zip(names, inputs, strict=True))
    expected = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, feeds)
    for provider in ("CPU", "Reference"):
        found = ort.InferenceSession(content, providers=[f"{provider}ExecutionProvider"]).run(None, feeds)
        for left, right in zip(found, expected, strict=True):
            assert np.shape(left) == np.shape(right)
            if np.asarray(right).dtype.kind == "f":
                np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5, err_msg=provider)
            else:
                np.testing.assert_array_equal(left, right, err_msg=provider)


def uniform(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).uniform(0, 1, shape).astype(np.float32)


@pytest.mark.parametrize("opset", [1, 8])
@pytest.mark.parametrize("across", [0, 1])
@pytest.mark.parametrize("variance", [0, 1])
@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 5), (2, 3, 4, 5, 2)])
def test_old_mean_variance_normalization(opset: int, across: int, variance: int, shape: tuple[int, ...]) -> None:
    given = {"across_channels": across, "normalize_variance": variance}
    assert_same("MeanVarianceNormalization", "", opset, (uniform(*shape),), (1,), **given)


@pytest.mark.parametrize("targets", [1, 2, 3])
@pytest.mark.parametrize("count", range(5))
def test_intercepts_of_another_count_than_targets_are_none(targets: int, count: int) -> None:
    given: dict[str, object] = {"coefficients": [0.1 * i for i in range(4 * targets)], "targets": targets}
    if count:
        given["intercepts"] = [0.5 + i for i in range(count)]
    assert_same("LinearRegressor", "ai.onnx.ml", 1, (uniform(5, 4),), (1,), **given)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("scale", [1 / 256, 0.002, 0.00784])
@pytest.mark.parametrize("step", [0.01, 0.1, 0.3])
def test_quantized_softmax_rounds_in_whole_steps(dtype: type, scale: float, step: float) -> None:
    limits = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(limits.min, limits.max + 1, (20, 17)).astype(dtype)
    scales = np.array(step, np.float32), np.array(scale, np.float32)
    zeros = np.array(3, dtype), np.array(limits.min, dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = (x, scales[0], zeros[0], scales[1], zeros[1])
    assert_same("QLinearSoftmax", "com.microsoft", 1, inputs, (kind,), axis=-1, opset=13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.int8])
def test_windows_wholly_in_padding_give_the_lowest_number(dtype: type) -> None:
    x = (uniform(1, 2, 2, 2) * 50).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    given = {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1], "dilations": [3, 3]}
    assert_same("MaxPool", "", 22, (x,), (kind,), **given)


def test_characters_beyond_the_table_are_padding() -> None:
    words = np.array([[1, 2, 3, 20, 5, 6], [20, 2, 3, 4, 5, 6], [9, 9, 9, 9, 9, 9], [1, 2, 3, 4, 5, 8]], np.int32)
    assert_same("WordConvEmbedding", "com.microsoft", 1, (words, uniform(4, 1, 3, 5), uniform(4), uniform(9, 5)), (1,))


@pytest.mark.parametrize("scored", [(0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("bases", [0, 1, 2])
@pytest.mark.parametrize("is_positive", [True, False], ids=["positive", "signed"])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("labels", [[0, 1], [5, 7], ["a", "b"]], ids=str)
def test_two_classes_of_a_tree_ensemble(
    scored: tuple[int, ...], bases: int, is_positive: bool, transform: str, labels: list[int] | list[str]
) -> None:
    rng = np.random.default_rng(len(scored) + bases)
    trees = range(3)
    leaves = [(tree, leaf, target) for tree in trees for leaf in (1, 2) for target in scored]
    weights = rng.uniform(0, 0.4, len(leaves)) if is_positive else rng.standard_normal(len(leaves))
    given: dict[str, object] = {
        "nodes_treeids": [tree for tree in trees for _ in range(3)], "nodes_nodeids": [0, 1, 2] * 3,
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"] * 3, "nodes_featureids": [0, 0, 0, 1, 0, 0, 2, 0, 0],
        "nodes_values": [0.5] * 9, "nodes_truenodeids": [1, 0, 0] * 3, "nodes_falsenodeids": [2, 0, 0] * 3,
        "class_treeids": [each[0] for each in leaves], "class_nodeids": [each[1] for each in leaves],
        "class_ids": [each[2] for each in leaves], "class_weights": weights.tolist(), "post_transform": transform,
    }  # fmt: skip
    given["classlabels_strings" if isinstance(labels[0], str) else "classlabels_int64s"] = labels
    if bases:
        given["base_values"] = [0.1, 0.25][:bases]
    kinds = (8 if isinstance(labels[0], str) else 7, 1)
    assert_same("TreeEnsembleClassifier", "ai.onnx.ml", 3, (uniform(40, 3),), kinds, **given)


@pytest.mark.parametrize("x", [(2, 3), (3,), (1, 3), (2, 1), (1,), (), (0, 3), (1, 0)])
@pytest.mark.parametrize("slope", [(2, 3), (3,), (4, 1, 1), (1, 1, 1), ()])
def test_a_slope_of_prelu_broadcasts_both_ways(x: tuple[int, ...], slope: tuple[int, ...]) -> None:
    try:
        np.broadcast_shapes(x, slope)
    except ValueError:
        pytest.skip("shapes that do not broadcast")
    given = tuple(np.asarray(uniform(*shape) - np.float32(0.5)) for shape in (x, slope))
    assert_same("PRelu", "", 16, given, (1,))


FUNCTIONS = (
    "Affine", "Elu", "HardSigmoid", "LeakyRelu", "Relu", "ScaledTanh", "Sigmoid", "Softplus", "Softsign", "Tanh",
    "ThresholdedRelu",
)  # fmt: skip


@pytest.mark.parametrize("given", [{}, {"activation_alpha": [0.7]}, {"activation_beta": [0.4]}], ids=str)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_parameters_of_layers_that_are_left_out(function: str, given: dict[str, list[float]]) -> None:
    x = np.linspace(-3, 3, 13, dtype=np.float32).reshape(13, 1, 1)
    one, none = np.ones((1, 1, 1), np.float32), np.zeros((1, 1, 1), np.float32)
    assert_same("RNN", "", 14, (x, one, none), (1,), hidden_size=1, activations=[function], **given)
    weights = np.ones((1, 4, 1), np.float32)
    names = ["Sigmoid", function, "Tanh"]
    assert_same("LSTM", "", 14, (x, weights, weights * 0), (1,), hidden_size=1, activations=names, **given)


@pytest.mark.parametrize("clip", [0.0, -1.0, 0.5])
def test_a_limit_of_a_simple_layer_may_be_zero(clip: float) -> None:
    x, weights = uniform(3, 2, 4) * 4, (uniform(1, 5, 4), uniform(1, 5, 5))
    assert_same("RNN", "", 14, (x, *weights), (1, 1), hidden_size=5, clip=clip)


@pytest.mark.parametrize("shape", [(4,), (1, 4), (4, 1), (1,), ()], ids=str)
def test_scale_and_shift_of_groups_have_any_shape(shape: tuple[int, ...]) -> None:
    scale, bias = (np.asarray(uniform(*shape) + i, np.float32) for i in range(2))
    assert_same("GroupNormalization", "", 21, (uniform(3, 4, 5, 2), scale, bias), (1,), num_groups=2)


@pytest.mark.parametrize("op_type", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weights", [0, 5, 7])
def test_classes_of_losses_count_from_the_last_and_may_be_fewer(op_type: str, reduction: str, weights: int) -> None:
    target = np.array([[0, -1, 4], [-5, 2, 1]], np.int64)
    for rows in (2, 3):
        inputs = (uniform(rows, 5, 4), target, *((uniform(weights),) if weights else ()))
        assert_same(op_type, "", 13, inputs, (1,), reduction=reduction)


@pytest.mark.parametrize("leafs", [1, 7, -1])
def test_flags_of_leaves_are_any_number_but_0(leafs: int) -> None:
    given = {
        "n_targets": 1, "tree_roots": [0, 1], "nodes_featureids": [0, 1], "nodes_truenodeids": [1, 0],
        "nodes_falsenodeids": [2, 1], "nodes_trueleafs": [0, leafs], "nodes_falseleafs": [leafs, leafs],
        "leaf_targetids": [0, 0, 0], "nodes_modes": numpy_helper.from_array(np.zeros(2, np.uint8)),
        "nodes_splits": numpy_helper.from_array(np.array([0.5, 0.3], np.float32)),
        "leaf_weights": numpy_helper.from_array(np.array([1, 2, 4], np.float32)),
    }  # fmt: skip
    assert_same("TreeEnsemble", "ai.onnx.ml", 5, (uniform(20, 2),), (1,), **given)


@pytest.mark.parametrize("tracks", [[1], [0], [1, 0], [0, 1, 1, 1], [2]])
def test_flags_of_missing_values_may_be_of_any_count(tracks: list[int]) -> None:
    given = {
        "nodes_treeids": [0] * 3, "nodes_nodeids": [0, 1, 2], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_featureids": [0] * 3, "nodes_values": [0.5] * 3, "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0], "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0],
        "target_weights": [1.0, 2.0], "n_targets": 1, "nodes_missing_value_tracks_true": tracks,
    }  # fmt: skip
    x = np.array([[np.nan], [0.2], [0.7]], np.float32)
    assert_same("TreeEnsembleRegressor", "ai.onnx.ml", 3, (x,), (1,), **given)


@pytest.mark.parametrize("keys", [3, 5, 19])
def test_causal_queries_of_no_past_see_keys_from_the_first_on(keys: int) -> None:
    """The last query sees all."""
    query, key, value = uniform(1, 3, 16), uniform(1, keys, 16), uniform(1, keys, 16) * 2
    given = {"num_heads": 2, "unidirectional": 1}
    assert_same("MultiHeadAttention", "com.microsoft", 1, (query, key, value), (1,), **given)


@pytest.mark.parametrize("op_type", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("zero", [0, 1, 11, 128])
def test_halves_of_two_quantized_operands_round_with_their_zero_point(op_type: str, zero: int) -> None:
    a, b = (np.random.default_rng(i).integers(0, 256, (20, 33)).astype(np.uint8) for i in range(2))
    scales = [np.array(scale, np.float32) for scale in (0.5, 0.25, 1.0)]
    points = [np.array(point, np.uint8) for point in (3, 4, zero)]
    inputs = (a, scales[0], points[0], b, scales[1], points[1], scales[2], points[2])
    assert_same(op_type, "com.microsoft", 1, inputs, (2,))


@pytest.mark.parametrize("window", [-1, 0, 1, 3])
@pytest.mark.parametrize("lengths", [(4, 4), (2, 4), (1, 3), (4, 1)], ids=str)
def test_padding_behind_a_prompt_sees_the_keys_that_count(lengths: tuple[int, ...], window: int) -> None:
    query, key, value = (uniform(2, 4, 32) + np.float32(i) for i in range(3))
    ends = np.array(lengths, np.int32) - np.int32(1)
    feeds = {"q": query, "k": key, "v": value, "ends": ends, "longest": np.array([4], np.int32)}
    names = ["q", "k", "v", "", "", "ends", "longest"]
    given = {"num_heads": 2, "kv_num_heads": 2, "local_window_size": window, "softcap": -1.0}
    outputs = ["y", "present_k", "present_v"]
    node = helper.make_node("GroupQueryAttention", names, outputs, domain="com.microsoft", **given)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), [None] * a.ndim)
        for n, a in feeds.items()
    ]
    graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info(n, 1, None) for n in outputs])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    content = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    expected = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, feeds)
    for provider in ("CPU", "Reference"):
        found = ort.InferenceSession(content, providers=[f"{provider}ExecutionProvider"]).run(None, feeds)
        for left, right in zip(found, expected, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5, err_msg=provider)
