"""Whole groups by the CPU provider against the reference provider: cases that went wrong once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.tolerances import compare

N = helper.make_node
FLOAT, INT64, INT32, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL
Feeds = Mapping[str, np.ndarray]
Result = list[np.ndarray] | str


def session(model: ModelProto, provider: str, *, optimized: bool = False) -> ort.InferenceSession:
    options = ort.SessionOptions()
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
    options.intra_op_num_threads = 2
    return ort.InferenceSession(model.SerializeToString(), options, providers=[provider])


def run(ran: ort.InferenceSession, feeds: Feeds) -> Result:
    """Return the outputs, or the error's text."""
    with np.errstate(all="ignore"):
        try:
            return list(ran.run(None, dict(feeds)))
        except ort.OrtError as error:
            return f"{type(error).__name__}: {error}"


def check(found: Result, expected: Result, where: object) -> None:
    if isinstance(found, str) or isinstance(expected, str):
        assert found == expected, where
        return
    for number, (left, right) in enumerate(zip(found, expected, strict=True)):
        assert (left.dtype, left.shape) == (right.dtype, right.shape), f"output {number} of {where}"
        comparison = compare(left, right, "approximate" if right.dtype.kind == "f" else "exact")
        assert comparison.passes, f"output {number} of {where}: {comparison}"


def model_of(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[int | str]]],
    outputs: Mapping[str, int],
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 20,
    declared: Mapping[str, Sequence[int | str]] | None = None,
) -> ModelProto:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        list(nodes),
        "group",
        [info(name, dtype, shape) for name, (dtype, shape) in inputs.items()],
        [info(name, dtype, None) for name, dtype in outputs.items()],
        initializer=[numpy_helper.from_array(np.asarray(a), name) for name, a in (constants or {}).items()],
        value_info=[info(name, FLOAT, shape) for name, shape in (declared or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10 if opset > 8 else 3)


def agrees(model: ModelProto, *feeds: Feeds) -> list[Result]:
    """Check both providers on all feeds of one session; returns what the CPU provider gave."""
    reference, compiled = (session(model, f"{name}ExecutionProvider") for name in ("Reference", "CPU"))
    results = []
    for each in feeds:
        results.append(run(compiled, each))
        check(results[-1], run(reference, each), {k: v.shape for k, v in each.items()})
    return results


def random(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 3e9, -3e9, 1e20, 0.5, 1.5, 2.5, -0.5, 88.8, -104, 10, -10, 0.7, 4.1],
    np.float32,
)
UNARY = (
    "Exp",
    "Log",
    "Tanh",
    "Sigmoid",
    "Erf",
    "Sqrt",
    "Floor",
    "Ceil",
    "Round",
    "Relu",
    "LeakyRelu",
    "Elu",
    "Selu",
    "Celu",
    "HardSigmoid",
    "HardSwish",
    "Gelu",
    "Softplus",
    "Softsign",
    "Mish",
    "ThresholdedRelu",
    "Reciprocal",
    "Sign",
    "Abs",
)


def test_elementwise_operators_of_special_values_are_the_references() -> None:
    nodes = [N(name, ["x"], [name]) for name in UNARY]
    model = model_of(nodes, {"x": (FLOAT, ["N"])}, dict.fromkeys(UNARY, FLOAT), opset=22)
    agrees(model, {"x": SPECIAL}, {"x": SPECIAL[:1]}, {"x": SPECIAL[:0]})


@pytest.mark.parametrize("then", ["Greater", "Cast"])
def test_product_that_only_a_bool_or_integer_result_reads_is_stored_first(then: str) -> None:
    last = N("Greater", ["a", "zero"], ["b"]) if then == "Greater" else N("Cast", ["a"], ["b"], to=INT64)
    nodes = [N("MatMul", ["x", "w"], ["a"]), last]
    constants = {"w": np.eye(8, dtype=np.float32) * 3, "zero": np.float32(0)}
    model = model_of(nodes, {"x": (FLOAT, ["N", 8])}, {"b": BOOL if then == "Greater" else INT64}, constants)
    agrees(model, {"x": np.arange(40, dtype=np.float32).reshape(5, 8) - 20})


@pytest.mark.parametrize("to", [INT32, INT64, BOOL])
def test_cast_of_nan_and_of_what_is_out_of_range_is_the_references(to: int) -> None:
    nodes = [N("Neg", ["x"], ["a"]), N("Relu", ["x"], ["c"]), N("Cast", ["a"], ["b"], to=to)]
    agrees(model_of(nodes, {"x": (FLOAT, ["N"])}, {"b": to, "c": FLOAT}), {"x": SPECIAL})


@pytest.mark.parametrize("bounds", [(1, -1), (np.nan, 1), (0, np.nan), (-np.inf, np.inf)], ids=str)
def test_clip_with_odd_bounds_is_the_references(bounds: tuple[float, float]) -> None:
    low, high = (np.float32(bound) for bound in bounds)
    nodes = [N("Clip", ["x", "low", "high"], ["a"]), N("Neg", ["a"], ["b"])]
    model = model_of(nodes, {"x": (FLOAT, ["N"])}, {"b": FLOAT}, {"low": low, "high": high})
    agrees(model, {"x": SPECIAL})


@pytest.mark.parametrize("indices", [[0, -1], [7], [-9], [8, 0], []], ids=str)
def test_gather_out_of_bounds_raises_the_references_error(indices: list[int]) -> None:
    nodes = [N("Gather", ["x", "i"], ["a"], axis=1), N("Exp", ["a"], ["b"])]
    model = model_of(nodes, {"x": (FLOAT, ["N", 8]), "i": (INT64, ["K"])}, {"b": FLOAT})
    good = {"x": random(1, 5, 8), "i": np.array([3], np.int64)}
    results = agrees(model, good, {"x": random(1, 5, 8), "i": np.array(indices, np.int64)}, good)
    assert isinstance(results[1], str) == any(not -8 <= i < 8 for i in indices)


BOUNDS = [(0, 3), (2, 4), (-2, 2**62), (0, -3), (1, 2**62), (-3, -1), (-100, 100), (3, 1)]


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize("step", [1, 2])
def test_slice_clamps_to_an_axis_of_any_size(bounds: tuple[int, int], step: int) -> None:
    nodes = [N("Slice", ["x", "start", "end", "axis", "step"], ["a"]), N("Exp", ["a"], ["b"])]
    values = {"start": bounds[0], "end": bounds[1], "axis": 0, "step": step}
    constants = {name: np.array([value], np.int64) for name, value in values.items()}
    model = model_of(nodes, {"x": (FLOAT, ["N", 8])}, {"b": FLOAT}, constants)
    agrees(model, *({"x": random(n, n, 8)} for n in (5, 1, 0, 2, 3, 9)))


def test_declared_shape_that_is_wrong_reads_no_memory_beyond() -> None:
    nodes = [N("Slice", ["x", "start", "end", "axis"], ["a"]), N("Exp", ["a"], ["b"])]
    constants = {"start": np.array([0]), "end": np.array([4]), "axis": np.array([0])}
    declared = {"a": [4, 8], "b": [4, 8]}
    model = model_of(nodes, {"x": (FLOAT, ["N", 8])}, {"b": FLOAT}, constants, declared=declared)
    agrees(model, *({"x": random(n, n, 8)} for n in (5, 1, 0, 4, 3)))


def test_reshape_whose_size_only_run_time_knows_is_checked_then() -> None:
    nodes = [N("Reshape", ["x", "shape"], ["a"]), N("Exp", ["a"], ["b"]), N("Neg", ["b"], ["c"])]
    model = model_of(nodes, {"x": (FLOAT, ["N", "M"])}, {"c": FLOAT}, {"shape": np.array([0, 2, -1])})
    agrees(model, *({"x": random(1, *shape)} for shape in ((5, 8), (0, 8), (5, 7), (2, 2))))


def test_sizes_that_differ_run_by_the_kernels() -> None:
    nodes = [N("Add", ["x", "y"], ["a"]), N("Exp", ["a"], ["b"])]
    model = model_of(nodes, {"x": (FLOAT, ["N", "M"]), "y": (FLOAT, ["N", "M"])}, {"b": FLOAT})
    x = random(1, 5, 8)
    agrees(model, {"x": x, "y": x}, {"x": x, "y": x[:1]}, {"x": x[:1], "y": x}, {"x": x, "y": x[:2]})


@pytest.mark.parametrize("axes", [(1, 3), (0, 1, 3), (0, 3), (1, 4), (0, 2, 4)], ids=str)
@pytest.mark.parametrize("shape", [(1, 6, 5, 7), (1, 6, 1, 7), (1, 1, 3, 5, 7), (2, 1, 3, 1, 7)], ids=str)
def test_reductions_over_last_and_other_axes_of_one_image_are_the_references(
    axes: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    chosen = [axis for axis in axes if axis < len(shape)]
    nodes = [N(f"Reduce{kind}", ["x", "axes"], [kind]) for kind in ("Mean", "Max", "L2")]
    outputs = dict.fromkeys(("Mean", "Max", "L2"), FLOAT)
    model = model_of(nodes, {"x": (FLOAT, shape)}, outputs, {"axes": np.array(chosen)})
    agrees(model, {"x": random(1, *shape)})


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_rows_without_elements_and_rows_of_infinities_are_the_references() -> None:
    nodes = [N("Softmax", ["x"], ["a"]), N("LogSoftmax", ["x"], ["b"]), N("ReduceSum", ["x", "axis"], ["c"])]
    model = model_of(nodes, {"x": (FLOAT, ["N", "M"])}, dict.fromkeys("abc", FLOAT), {"axis": np.array([1])})
    odd = np.array([[np.inf, 1], [-np.inf, -np.inf], [np.nan, 2]], np.float32)
    agrees(model, *({"x": np.zeros(shape, np.float32)} for shape in ((3, 0), (0, 3), (3, 1))), {"x": odd})


def test_layer_normalization_with_a_scale_within_merged_rows_is_the_references() -> None:
    nodes = [N("LayerNormalization", ["x", "scale"], ["a"], axis=1), N("Exp", ["a"], ["b"])]
    scale = np.array([[1], [5]], np.float32)
    agrees(model_of(nodes, {"x": (FLOAT, [2, 2, 4])}, {"b": FLOAT}, {"scale": scale}), {"x": random(1, 2, 2, 4)})


def test_layer_normalization_of_float16_runs_by_the_kernels() -> None:
    nodes = [N("LayerNormalization", ["x", "scale"], ["a"]), N("Abs", ["a"], ["b"])]
    half = TensorProto.FLOAT16
    model = model_of(nodes, {"x": (half, ["N", 8])}, {"b": half}, {"scale": np.ones(8, np.float16)})
    agrees(model, {"x": random(1, 5, 8).astype(np.float16)})


def test_skip_layer_normalization_without_epsilon_uses_its_own_default() -> None:
    nodes = [
        N("SkipLayerNormalization", ["x", "y", "scale", "bias"], ["a"], domain="com.microsoft"),
        N("Exp", ["a"], ["b"]),
    ]
    shape = (FLOAT, ["N", 2, 8])
    constants = {"scale": np.ones(8, np.float32), "bias": np.zeros(8, np.float32)}
    x = np.broadcast_to(np.arange(8) * 2.0**-16, (1, 2, 8)).astype(np.float32)
    agrees(model_of(nodes, {"x": shape, "y": shape}, {"b": FLOAT}, constants), {"x": x, "y": np.zeros_like(x)})


def test_operands_before_opset_7_align_by_axis() -> None:
    nodes = [N("Add", ["x", "y"], ["a"], broadcast=1, axis=0), N("Exp", ["a"], ["b"])]
    model = model_of(nodes, {"x": (FLOAT, [3, 3]), "y": (FLOAT, [3])}, {"b": FLOAT}, opset=6)
    agrees(model, {"x": random(1, 3, 3), "y": random(2, 3)})
    nodes = [N("PRelu", ["x", "slope"], ["a"]), N("Exp", ["a"], ["b"])]
    model = model_of(nodes, {"x": (FLOAT, [3, 3, 3])}, {"b": FLOAT}, {"slope": random(3, 3)}, opset=6)
    agrees(model, {"x": random(4, 3, 3, 3)})


def test_outputs_that_are_views_of_inputs_and_constants_are_the_callers_own() -> None:
    nodes = [
        N("Identity", ["x"], ["a"]), N("Reshape", ["x", "flat"], ["b"]), N("Exp", ["x"], ["c"]), N("Neg", ["c"], ["d"]),
        N("Identity", ["w"], ["e"]),
    ]  # fmt: skip
    constants = {"flat": np.array([-1]), "w": random(1, 8, 8)}
    model = model_of(nodes, {"x": (FLOAT, ["N", 8])}, dict.fromkeys("abcde", FLOAT), constants)
    x = random(2, 5, 8)
    kept = x.copy()
    ran = session(model, "CPUExecutionProvider")
    first = run(ran, {"x": x})
    assert isinstance(first, list)
    expected = [array.copy() for array in first]
    for array in first:
        if array.flags.writeable:
            array[...] = 7
    check(run(ran, {"x": kept}), expected, "a second run")


def test_columns_are_joined_natively() -> None:
    nodes = [N("Exp", ["x"], ["a"]), N("Neg", ["a"], ["b"]), N("Concat", ["a", "b", "x"], ["c"], axis=1)]
    model = model_of(nodes, {"x": (FLOAT, ["N", 1])}, {"c": FLOAT})
    agrees(model, *({"x": random(1, n, 1)} for n in (5, 0, 1)))


def test_transposed_convolution_keeps_its_own_layout() -> None:
    nodes = [
        N("Conv", ["x", "w"], ["a"], kernel_shape=[1, 1]),
        N("Transpose", ["a"], ["b"], perm=[1, 0, 2, 3]),
        N("Exp", ["b"], ["c"]),
    ]
    model = model_of(nodes, {"x": (FLOAT, ["N", 17, 2, 3])}, {"c": FLOAT}, {"w": random(1, 5, 17, 1, 1)})
    agrees(model, *({"x": random(n, n, 17, 2, 3)} for n in (2, 1, 0)))


@pytest.mark.parametrize("to", [BOOL, INT64, INT32])
def test_channels_last_values_of_every_width_are_stored_whole(to: int) -> None:
    """What is computed beside a convolution lies in its layout, and its elements may be of 1 or 8 bytes."""
    nodes = [
        N("Conv", ["x", "w"], ["a"], kernel_shape=[1, 1]),
        N("Add", ["x", "a"], ["b"]),
        N("Floor", ["x"], ["c"]),
        N("Cast", ["c"], ["d"], to=to),
        N("Gather", ["d", "i"], ["e"], axis=2),
    ]
    constants = {"w": random(1, 16, 16, 1, 1), "i": np.array([0, 2, -1])}
    model = model_of(nodes, {"x": (FLOAT, ["N", 16, 5, 6])}, {"b": FLOAT, "d": to, "e": to}, constants)
    agrees(model, *({"x": random(n, n, 16, 5, 6) * 3} for n in (2, 1, 0)))


def test_session_runs_hundreds_of_sizes() -> None:
    nodes = [N("Exp", ["x"], ["a"]), N("MatMul", ["a", "w"], ["b"]), N("Softmax", ["b"], ["c"])]
    model = model_of(nodes, {"x": (FLOAT, ["N", 8])}, {"c": FLOAT}, {"w": random(1, 8, 8)})
    agrees(model, *({"x": random(1, n % 120, 8)} for n in range(0, 240, 3)))


@pytest.mark.parametrize("operator", ["LayerNormalization", "RMSNormalization"])
@pytest.mark.parametrize("shape", [(1, 2, 1, 4), (2, 1), (4, 1)], ids=["inner", "leading", "rows"])
def test_scale_with_as_many_elements_as_a_row_broadcasts_as_its_shape_says(
    operator: str, shape: tuple[int, ...]
) -> None:
    x = (FLOAT, ["N", 2, 2, 4]) if len(shape) == 4 else (FLOAT, ["N", *shape[:1], 4 if shape[0] == 4 else 2])
    nodes = [N(operator, ["x", "scale"], ["a"], axis=-2 if len(shape) == 4 else -1), N("Relu", ["a"], ["y"])]
    model = model_of(nodes, {"x": x}, {"y": FLOAT}, {"scale": random(3, *shape)}, opset=23)
    agrees(model, {"x": random(1, 3, *x[1][1:])}, {"x": random(2, 1, *x[1][1:])})
