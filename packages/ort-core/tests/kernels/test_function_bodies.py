"""The function bodies of com.microsoft's operators compute what the numpy kernels and onnxruntime do."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, NotImplemented, RuntimeException
from test_contrib_against_onnxruntime import CASES as SHARED
from test_contrib_against_onnxruntime import MS, RNG, Case, bytes_of, floats, run_kernel, scalar

from ort_core.ir.rejection import Rejection
from ort_core.ir.subgraph import extract
from ort_core.kernels.evaluator import BoundGraph
from ort_core.kernels.kernel import Unguarded
from ort_core.ops.bodies.table import MICROSOFT
from ort_core.rewrite.decompose import decompose
from ort_core.testing.claims import typed_model, view_of

OPSETS = (13, 17, 18, 21, 26)  # where operators that bodies are made of changed, or came
HALF, SINGLE, DOUBLE = np.float16, np.float32, np.float64


def activation_cases() -> Iterator[Case]:
    for dtype in (HALF, SINGLE, DOUBLE):
        name, x, row = np.dtype(dtype).name, floats(3, 8).astype(dtype), floats(8).astype(dtype)
        yield Case("Gelu", [x], note=name)
        yield Case("BiasGelu", [x, row], note=name)
        yield Case("FastGelu", [x, row], note=f"bias {name}")
        yield Case("FastGelu", [x], note=name)
        yield Case("QuickGelu", [x], note=name)
        if dtype is not DOUBLE:
            yield Case("ScaledSiLU", [x, row[:1].reshape(())], note=name)
            image = floats(2, 3, 8).astype(dtype)
            yield Case("BiasSplitGelu", [image, row], note=name)
            yield Case("BiasAdd", [image, row, image * 2], note=name)
        for inner, shape in ((1, (2, 1, 1, 3, 4)), (0, (1, 2, 3, 3, 4))):
            data, bias = floats(2, 2, 3, 3, 4).astype(dtype), floats(*shape).astype(dtype)
            more = {"axis": 3, "is_inner_broadcast": inner}
            yield Case("BiasSoftmax", [data, bias], more, note=f"{name} inner={inner}")


def product_cases() -> Iterator[Case]:
    for dtype in (HALF, SINGLE, DOUBLE):
        name, a, b = np.dtype(dtype).name, floats(2, 5, 3).astype(dtype), floats(2, 5, 4).astype(dtype)
        yield Case("FusedMatMul", [a, b], {"transA": 1, "alpha": 0.5}, note=name)
        yield Case("TransposeMatMul", [a, b], {"transA": 1}, note=name)
        for kind in ("Relu", "Softmax", "Gelu", "HardSwish", "Elu"):
            more = {"transA": 1, "activation": kind}
            yield Case("FusedMatMulActivation", [a, b], more, note=f"{name} {kind}")
        if dtype is not DOUBLE:
            gelu = [floats(3, 4).astype(dtype), floats(4, 5).astype(dtype), floats(5).astype(dtype)]
            yield Case("GemmFastGelu", gelu, note=name)
    whole = [RNG.integers(-9, 9, shape).astype(np.int32) for shape in ((3, 4), (4, 5), (5,))]
    yield Case("FusedGemm", whole, note="int32")
    shorts = [RNG.integers(-99, 99, shape).astype(np.int16) for shape in ((3, 4), (4, 5))]
    yield Case("MatMulInteger16", shorts)


def normalization_cases() -> Iterator[Case]:
    for dtype in (HALF, SINGLE):
        name = np.dtype(dtype).name
        x, skip = floats(2, 3, 8).astype(dtype), floats(3, 8).astype(dtype)
        vectors = [floats(8).astype(dtype) for _ in range(3)]
        yield Case("SkipLayerNormalization", [x, skip, *vectors], {"epsilon": 1e-5}, 4, f"all outputs {name}")
        yield Case("SkipLayerNormalization", [x, skip, vectors[0]], {}, 1, f"no beta {name}")
        simple = [x, skip, vectors[0], vectors[1]]
        yield Case("SkipSimplifiedLayerNormalization", simple, {"epsilon": 1e-5}, 4, f"all outputs {name}")
        for last in (0, 1):
            image = floats(2, 4, 4, 8).astype(dtype)
            channels = 8 if last else 4
            shift = [floats(channels), floats(channels)]
            more = {"activation": 1, "groups": 2, "channels_last": last}
            yield Case("GroupNorm", [image, *shift], more, note=f"{name} {last}")
            skip, bias = floats(2, channels).astype(dtype), floats(channels).astype(dtype)
            yield Case("SkipGroupNorm", [image, *shift, skip, bias], more, 2, f"{name} {last}")
    yield Case("GatedRMSNorm", [floats(2, 8), floats(8), floats(2, 8)], {"activation": "sigmoid"})
    yield Case("BranchwiseRMSNorm", [floats(2, 3, 8), floats(4)], {"num_branches": 2}, note="shared scale")
    ids = RNG.integers(0, 5, (2, 3)).astype(np.int32)
    tables = [floats(5, 8), floats(7, 8), floats(2, 8), floats(8), floats(8)]
    mask = np.array([[1, 1, 0], [1, 0, 0]], np.int32)
    yield Case("EmbedLayerNormalization", [ids, ids % 2, *tables, mask], {}, 3, "mask")
    bare = [ids, None, *tables[:2], None, *tables[3:]]
    yield Case("EmbedLayerNormalization", bare, {}, 2, "no segments")
    yield Case("EmbedLayerNormalization", [ids, ids % 2, *tables, None, ids], {}, 2, "positions")


def quantization_cases() -> Iterator[Case]:
    for dtype in (np.uint8, np.int8):
        name, zero = np.dtype(dtype).name, scalar(3, dtype)
        x = [bytes_of(2, 3, 4, 5, dtype=dtype), scalar(0.05), zero]
        out = [scalar(0.03), scalar(7, dtype)]
        yield Case("QLinearLeakyRelu", [*x, *out], {"alpha": 0.2}, note=name)
        yield Case("QLinearSigmoid", [*x, scalar(1 / 256), zero], note=name)
        yield Case("QLinearReduceMean", [*x, *out], {"axes": [2, 3], "keepdims": 0}, note=name)
        means = [scalar(0.0317), out[1]]  # by such a step no mean of 12 or 20 elements lies between two bytes
        yield Case("QLinearGlobalAveragePool", [*x, *means], note=name)
        yield Case("QLinearGlobalAveragePool", [*x, *means], {"channels_last": 1}, note=f"channels last {name}")
        yield Case("QLinearAdd", [*x, bytes_of(4, 5, dtype=dtype), scalar(0.1), zero, *out], note=name)
        yield Case("QLinearMul", [*x, bytes_of(4, 5, dtype=dtype), scalar(0.1), zero, *out], note=name)
        yield Case("QLinearSoftmax", [*x, scalar(1 / 256), zero], {"opset": 12, "axis": 2}, note=name)
        yield Case("QLinearSoftmax", [*x, scalar(1 / 256), zero], {"opset": 13, "axis": 2}, note=f"13 {name}")
        yield Case("MulInteger", [bytes_of(3, 4, dtype=dtype), zero, bytes_of(4, dtype=dtype)], note=name)
        yield Case("ReduceSumInteger", [x[0]], {"axes": [1, 3], "keepdims": 1}, note=name)
        scales = [np.abs(floats(3)) + 0.1, bytes_of(3, dtype=dtype)]
        yield Case("QuantizeLinear", [floats(2, 3, 4) * 9, *scales], {"axis": 1}, note=f"axis {name}")
        yield Case("DequantizeLinear", [x[0], *scales], {"axis": 1}, note=f"axis {name}")
    dynamic = [floats(2, 3, 5), bytes_of(5, 4), np.abs(floats(4)) + 0.1, bytes_of(4)]
    yield Case("DynamicQuantizeMatMul", dynamic, note="columns")
    weights = {"K": 40, "N": 6, "block_size": 16, "bits": 4}
    packed = [floats(2, 3, 40), bytes_of(6, 3, 8), floats(6, 3)]
    yield Case("MatMulNBits", packed, weights, note="middle code")
    yield Case("MatMulNBits", [*packed, floats(6, 3)], weights, note="float zero points")
    order = np.repeat(np.arange(3), 16)[RNG.permutation(48)].astype(np.int32)
    whole = [floats(2, 3, 48), *packed[1:], None, order]  # with zero points, onnxruntime takes 8 for all of them
    yield Case("MatMulNBits", whole, {**weights, "K": 48}, note="groups")
    ids = np.array([[0, 4, -1], [2, 1, 3]], np.int64)
    table = [bytes_of(5, 16), ids, floats(5, 2), bytes_of(5, 1)]
    yield Case("GatherBlockQuantized", table, {"block_size": 16}, note="zero points")
    yield Case("GatherBlockQuantized", table[:3], {"block_size": 16}, note="middle code")


def other_cases() -> Iterator[Case]:
    image = [floats(1, 6, 5, 4), floats(8, 3, 2, 4), floats(8)]
    yield Case("NhwcConv", image, {"pads": [1, 0, 1, 1], "strides": [2, 1]})
    fused = [floats(1, 6, 5, 4), floats(8, 4, 3, 2), None, floats(1, 4, 4, 8)]
    yield Case("NhwcFusedConv", fused, {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]})
    for dtype in (SINGLE, DOUBLE):
        a, b = floats(5, 3).astype(dtype), floats(4, 3).astype(dtype)
        yield Case("CDist", [a, b], note=np.dtype(dtype).name)
    for dtype in (np.int16, np.int32, np.int64, SINGLE, DOUBLE):
        ends = [scalar(each, dtype) for each in (1, 9, 3)]
        yield Case("Range", ends, note=np.dtype(dtype).name)
    yield Case("Range", [scalar(1, np.int64), scalar(4, np.int64)], note="no delta")
    yield Case("Pad", [floats(2, 3), np.array([0, 1, 1, -1]), scalar(0.5)])
    yield Case("Trilu", [floats(2, 3, 4), np.array(-1)], {"upper": 0})
    yield Case("TorchEmbedding", [floats(5, 3), np.array([[1, 4]])])
    for op_type in ("ComplexMul", "ComplexMulConj"):
        yield Case(op_type, [floats(3, 4, 2), floats(4, 2)])
    yield Case("BiasDropout", [floats(3, 4), floats(4), floats(3, 4)], {}, 2)


def attention_cases() -> Iterator[Case]:
    base, heads = [floats(2, 4, 8), floats(8, 24), floats(24)], {"num_heads": 2}
    ends = np.array([3, 4, 1, 0], np.int32)
    yield Case("Attention", [*base, ends], heads, 1, "ends and starts")
    half = [each.astype(HALF) for each in base]
    yield Case("Attention", half, {**heads, "unidirectional": 1, "scale": 0.2}, 2, "half")
    square = np.tril(np.ones((2, 1, 6, 6), np.int32))
    yield Case("Attention", [*base, square], heads, 1, "4-d mask")
    for dtype in (np.int8, np.uint8):
        projected = [bytes_of(2, 4, 8, dtype=dtype), bytes_of(8, 24, dtype=np.int8) // 2, floats(24), scalar(0.02)]
        zeros = [scalar(5, dtype), bytes_of(24, dtype=np.int8) // 4]
        columns = np.abs(floats(24)) * np.float32(0.01)
        name = np.dtype(dtype).name
        masked = [*projected, scalar(0.01), np.array([3, 4], np.int32), zeros[0], scalar(2, np.int8)]
        yield Case("QAttention", masked, heads, 1, f"lengths {name}")
        yield Case("QAttention", [*projected, columns, None, *zeros], heads, 1, f"columns {name}")
        behind = [*masked[:5], None, *masked[6:], floats(2, 2, 2, 3, 4)]
        yield Case("QAttention", behind, {**heads, "unidirectional": 1}, 2, f"past {name}")
    packed = [floats(2, 3, 2, 3, 4)]
    yield Case("MultiHeadAttention", packed, heads, 1, "packed")
    pairs = [floats(2, 3, 8), floats(2, 5, 2, 2, 4)]
    yield Case("MultiHeadAttention", pairs, heads, 1, "packed keys and values")
    given = [floats(2, 3, 8), floats(2, 2, 5, 4), floats(2, 2, 5, 4)]
    yield Case("MultiHeadAttention", given, heads, 1, "cross over a cache")
    for length, note in ((9, "ragged"), (6, "shared buffer")):
        cache = [floats(2, 2, length - 1, 16), floats(2, 2, length - 1, 16)]
        step = [floats(2, 1, 64), floats(2, 1, 32), floats(2, 1, 32), *cache]
        ends = [np.array([length - 1 if note == "ragged" else 4, 2], np.int32)]
        total = scalar(int(ends[0].max()) + 1, np.int32)
        more = {"num_heads": 4, "kv_num_heads": 2, "local_window_size": 3}
        yield Case("GroupQueryAttention", [*step, *ends, total], more, 3, note)
    for queries in (1, 2):
        none, caches, tables = [floats(1, 0, 32)] * 2, [floats(1, 2, 9, 16)] * 2, [floats(20, 8)] * 2
        shared = [floats(1, queries, 64), *none, *caches, np.array([4], np.int32), scalar(5, np.int32), *tables]
        more = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}
        yield Case("GroupQueryAttention", shared, more, 3, f"{queries} queries of shared keys")


def expert_cases() -> Iterator[Case]:
    scores, first, second = floats(5, 3), floats(3, 6, 8), floats(3, 8, 6)
    for dtype in (HALF, SINGLE):
        given = [each.astype(dtype) for each in (floats(5, 8), scores, first)]
        rest = [None, second.astype(dtype), None, floats(3, 6, 8).astype(dtype), floats(3, 6).astype(dtype)]
        name = np.dtype(dtype).name
        yield Case("MoE", [*given, *rest], {"k": 2, "activation_type": "silu"}, 1, f"gate {name}")
    image = [floats(2, 3, 8), floats(6, 3), floats(3, 12, 8), floats(3, 12), second, floats(3, 8)]
    late = {"k": 1, "activation_type": "swiglu", "swiglu_limit": 0.5, "swiglu_limit_after_activation": 1}
    yield Case("MoE", image, {**late, "swiglu_fusion": 2}, 1, "swiglu in halves, limited late")
    for bits in (2, 4, 8):
        fc1, fc2 = bytes_of(3, 6, 16 * bits // 8), bytes_of(3, 16, 8 * bits // 8)
        rows = [floats(5, 16), scores, fc1, np.abs(floats(3, 6)) / 9, floats(3, 6), fc2[:, :, : 6 * bits // 8]]
        # onnxruntime's CPU scales the chosen shares to a sum of one whatever normalize_routing_weights says.
        more = {"k": 2, "expert_weight_bits": bits, "normalize_routing_weights": 1}
        if bits != 2:  # six columns are no whole bytes of four codes
            yield Case("QMoE", [*rows, np.abs(floats(3, 16)) / 9], more, 1, f"rows of {bits} bits")
        behind = [bytes_of(3, 32, 2 * bits), np.abs(floats(3, 32, 1)) / 9, None]
        blocks = [floats(5, 32), scores, bytes_of(3, 16, 4 * bits), np.abs(floats(3, 16, 2)) / 9, None, *behind]
        yield Case("QMoE", blocks, {**more, "block_size": 16}, 1, f"blocks of {bits} bits")
        zeros = [*[None] * 3, bytes_of(3, 16, 1 if bits < 8 else 2), None, None, np.abs(floats(5, 3))]
        shares = {**more, "block_size": 16, "normalize_routing_weights": 0}
        yield Case("QMoE", [*blocks, *zeros], shares, 1, f"zero points of {bits} bits")


OWN = [
    case
    for make in (
        activation_cases, product_cases, normalization_cases, quantization_cases, other_cases, attention_cases,
        expert_cases,
    )
    for case in make()
]  # fmt: skip
ALL = [case for case in [*SHARED, *OWN] if case.op_type in MICROSOFT]
NOT_THERE = re.compile(
    r"Could not find an implementation|Kernel not found|is not a registered function"
    r"|not implemented for CPU|cpu kernel is not supported|currently requires CUDA"
    r"|type inference failed|does not match the expected data type"
)
"""How onnxruntime's CPU says that it lacks an operator, or its own schema a type."""


def tolerance(*arrays: np.ndarray) -> float:
    return 4e-3 if any(each.dtype == HALF for each in arrays) else 2e-4


def model_of(case: Case, opset: int) -> onnx.ModelProto:
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), list(value.shape))
        for name, value in feeds_of(case).items()
    ]
    names = [f"x{i}" if value is not None else "" for i, value in enumerate(case.inputs)]
    results = [f"y{i}" for i in range(case.outputs)]
    node = helper.make_node(case.op_type, names, results, domain=MS, **case.attributes)
    graph = helper.make_graph([node], "one", infos, [onnx.ValueInfoProto(name=name) for name in results])
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def feeds_of(case: Case) -> dict[str, np.ndarray]:
    return {f"x{i}": value for i, value in enumerate(case.inputs) if value is not None}


def run_body(case: Case, opset: int) -> list[np.ndarray] | Rejection:
    """Return what the parts of a node compute, or why it has none."""
    feeds, view = feeds_of(case), view_of(typed_model(model_of(case, opset)))
    part, _ = extract(view.nodes)
    made = decompose(part, part.nodes[0], view.context)
    if isinstance(made, Rejection):
        return made
    assert {each.domain for each in made} == {""}, "the parts are operators of ai.onnx"
    found = BoundGraph(part, view.context).run([feeds[value.name] for value in part.inputs], {}, Unguarded())
    by_name = {value.name: result for value, result in zip(part.outputs, found, strict=True)}
    return [by_name[f"y{index}"] for index in range(case.outputs)]


def run_there(case: Case) -> list[np.ndarray] | None:
    """Return what onnxruntime computes, ``None`` of what it has no CPU kernel for."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1  # more would wait by spinning
    content = model_of(case, 21).SerializeToString()
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        return session.run(None, feeds_of(case))
    except (Fail, NotImplemented, RuntimeException) as refusal:
        if not NOT_THERE.search(str(refusal)):
            raise
        return None


def check(found: list[np.ndarray], expected: list[np.ndarray | None], what: str) -> None:
    for index, (got, want) in enumerate(zip(found, expected, strict=True)):
        assert want is not None, f"{what}: output {index} is absent"
        assert got.dtype == want.dtype, f"{what}: output {index}"
        assert got.shape == want.shape, f"{what}: output {index}"
        near = 0 if want.dtype.kind in "iub" else tolerance(want)
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), rtol=near, atol=near, err_msg=f"{what}: output {index}"
        )


def _is_refused_before(case: Case, opset: int, reason: str) -> bool:
    return opset < 21 and ("from opset" in reason or "of ai.onnx" in reason or "ai.onnx has" in reason)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("case", ALL, ids=str)
def test_the_body_computes_what_the_kernel_does(case: Case, opset: int) -> None:
    found = run_body(case, opset)
    if isinstance(found, Rejection):
        expected = str(case) in WITHOUT or _is_refused_before(case, opset, found.reason)
        assert expected, found.reason
        return
    assert str(case) not in WITHOUT, "this has a body now: take it off the list"
    check(found, run_kernel(case.op_type, case.inputs, case.outputs, MS, **case.attributes), "kernel")


@pytest.mark.parametrize("case", ALL, ids=str)
def test_the_body_computes_what_onnxruntime_does(case: Case) -> None:
    found = run_body(case, 21)
    if isinstance(found, Rejection):
        assert str(case) in WITHOUT, found.reason
        return
    expected = run_there(case)
    if expected is not None:
        check(found, list(expected), "onnxruntime")


WITHOUT = frozenset(
    f"GroupQueryAttention-{bits}-bit cache {kind}" for bits in (4, 8) for kind in ("PER_TENSOR", "PER_CHANNEL")
)
"""Cases of operators with a body that have none: quantized caches are no composition."""


def test_every_body_is_compared() -> None:
    assert MICROSOFT.keys() - {case.op_type for case in ALL} - COMPARED_ELSEWHERE == set()


COMPARED_ELSEWHERE = frozenset(
    {"ExpandDims", "GatherND", "NhwcMaxPool", "QLinearAveragePool", "QLinearConcat", "QLinearWhere", "SampleOp"}
)
"""By the operator cases of onnxruntime's own tests."""


def test_experts_of_which_few_are_chosen_have_no_body() -> None:
    given = [floats(5, 8), floats(5, 9), floats(9, 6, 8), None, floats(9, 8, 6)]
    refused = run_body(Case("MoE", given, {"k": 1}), 21)
    assert isinstance(refused, Rejection)
    assert "all 9 experts for each token, a kernel 1" in refused.reason
    assert not isinstance(run_body(Case("MoE", given, {"k": 2}), 21), Rejection)


def test_an_expert_that_is_not_chosen_may_give_no_number() -> None:
    x, scores = np.ones((1, 2), SINGLE), np.array([[5, 1]], SINGLE)
    first = np.stack([np.eye(2, dtype=SINGLE), np.full((2, 2), np.nan, SINGLE)])
    (found,) = run_body(Case("MoE", [x, scores, first, None, first], {"k": 1, "normalize_routing_weights": 1}), 21)
    np.testing.assert_array_equal(found, x)
