"""The com.microsoft kernels give onnxruntime's numbers on random inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

from ort_core.kernels.kernel import KernelContext, Unguarded
from ort_core.kernels.reference_registry import reference_kernels
from ort_core.kernels.registry import wants_context

MS = "com.microsoft"
Values = list[np.ndarray | None]


def run_onnxruntime(
    op_type: str, inputs: Values, outputs: int, domain: str, opset: int = 20, **attributes: object
) -> list[np.ndarray]:
    """Return the outputs of onnxruntime's CPU kernel."""
    feeds = {f"x{i}": value for i, value in enumerate(inputs) if value is not None}
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), list(value.shape))
        for name, value in feeds.items()
    ]
    names = [f"x{i}" if value is not None else "" for i, value in enumerate(inputs)]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op_type, names, results, domain=domain, **attributes)
    graph = helper.make_graph([node], "one", infos, [onnx.ValueInfoProto(name=name) for name in results])
    imports = [helper.make_opsetid("", opset)]
    if domain:
        imports.append(helper.make_opsetid(domain, 1))
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1  # more would wait by spinning
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def run_kernel(
    op_type: str, inputs: Values, outputs: int, domain: str, **attributes: object
) -> list[np.ndarray | None]:
    """Return the outputs of the numpy kernel of the operator, each of ``outputs`` asked for."""
    spec = reference_kernels().find(domain, op_type, 1)
    assert spec, str(spec)
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in attributes.items()}
    if wants_context(spec.function):
        values["ctx"] = KernelContext(op_type, domain, 1, "node", (True,) * outputs, (None,) * outputs, {}, Unguarded())
    result = spec.function(*inputs, **values)
    return list(result if isinstance(result, tuple) else (result,))[:outputs]


@dataclass
class Case:
    """An operator, inputs and attributes; ``exact`` outputs are compared for equality."""

    op_type: str
    inputs: list[np.ndarray | None]
    attributes: dict[str, object] = field(default_factory=dict)
    outputs: int = 1
    note: str = ""

    def __str__(self) -> str:
        return f"{self.op_type}{'-' if self.note else ''}{self.note}"


RNG = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def bytes_of(*shape: int, dtype: type = np.uint8) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def weights_of(*shape: int) -> np.ndarray:
    """Return int8 weights of 7 bits: beside larger ones onnxruntime's sums saturate on x86 processors without VNNI."""
    return RNG.integers(-64, 64, shape).astype(np.int8)


def scalar(value: float, dtype: type = np.float32) -> np.ndarray:
    return np.array(value, dtype)


def grouped_query_cases() -> Iterator[Case]:
    rotary = [np.cos(floats(16, 8)), np.sin(floats(16, 8))]
    heads = {"num_heads": 4, "kv_num_heads": 2}

    def case(
        note: str, steps: int, past: int, lengths: list[int], extra: list[np.ndarray | None], **more: object
    ) -> Case:
        batch = len(lengths)
        cache = [floats(batch, 2, past, 16), floats(batch, 2, past, 16)] if past else [None, None]
        total = scalar(max(lengths) + 1, np.int32)
        inputs = [floats(batch, steps, 64), floats(batch, steps, 32), floats(batch, steps, 32), *cache]
        inputs += [np.array(lengths, np.int32), total, *extra]
        return Case("GroupQueryAttention", inputs, {**heads, **more}, 3, note)

    yield case("prompt", 5, 0, [4, 4], [])
    yield case("prompt with rotary", 5, 0, [4, 4], rotary, do_rotary=1)
    yield case("prompt with interleaved rotary", 5, 0, [4], rotary, do_rotary=1, rotary_interleaved=1)
    yield case("decode", 1, 6, [6, 6], rotary, do_rotary=1)
    yield case("decode into a longer cache", 1, 10, [6, 3], rotary, do_rotary=1)
    yield case("continued prompt", 3, 6, [8], rotary, do_rotary=1)
    yield case("local window", 6, 0, [5], [], local_window_size=3)
    yield case("local window decode", 1, 8, [8], [], local_window_size=3)
    yield case("softcap", 5, 0, [4], [], softcap=2.0)
    yield case("smooth softmax", 5, 0, [4], [], smooth_softmax=1)
    yield case("head sink", 5, 0, [4], [None, None, None, None, floats(4)])
    yield case("attention bias", 5, 0, [4, 4], [None, None, None, floats(2, 4, 5, 5)])
    yield case("attention bias and softcap", 5, 0, [4], [None, None, None, floats(1, 1, 5, 5)], softcap=1.5)
    yield case("scale", 5, 0, [4], [], scale=0.3)
    yield case("bidirectional", 5, 0, [4], [], causal=0)
    for bits, dtype, width in ((8, np.int8, 16), (4, np.uint8, 8)):
        for kind, shape in (("PER_TENSOR", (1,)), ("PER_CHANNEL", (1, 2, 1, 16))):
            steps = [np.abs(floats(*shape)) * 0.1 + 0.2 for _ in range(2)]
            inputs = [floats(1, 3, 64), floats(1, 3, 32), floats(1, 3, 32)]
            inputs += [bytes_of(1, 2, 4, width, dtype=dtype), bytes_of(1, 2, 4, width, dtype=dtype)]
            inputs += [np.array([6], np.int32), scalar(7, np.int32), None, None, None, None, None, *steps]
            more = {"k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": bits}
            yield Case("GroupQueryAttention", inputs, {**heads, **more}, 3, f"{bits}-bit cache {kind}")
    packed = [floats(2, 4, 128), None, None, None, None, np.array([3, 3], np.int32), scalar(4, np.int32), *rotary]
    yield Case("GroupQueryAttention", packed, {**heads, "do_rotary": 1}, 3, "packed")


def attention_cases() -> Iterator[Case]:
    base = [floats(2, 4, 8), floats(8, 24), floats(24)]
    yield Case("Attention", base, {"num_heads": 2}, 2, "plain")
    yield Case("Attention", base, {"num_heads": 2, "unidirectional": 1}, 2, "causal")
    raw = np.array([[1, 1, 1, 0], [0, 0, 0, 0]], np.int32)
    for causal in (0, 1):
        more = {"num_heads": 2, "unidirectional": causal}
        yield Case("Attention", [*base, raw], more, 1, f"raw mask causal={causal}")
        yield Case("Attention", [*base, np.array([3, 1], np.int32)], more, 1, f"lengths causal={causal}")
        yield Case("Attention", [*base, raw[:, None].repeat(4, 1)], more, 1, f"3-d mask causal={causal}")
    past = floats(2, 2, 2, 3, 4)
    yield Case("Attention", [*base, None, past], {"num_heads": 2, "unidirectional": 1}, 2, "past")
    sizes = [floats(2, 4, 8), floats(8, 28), floats(28)]
    yield Case("Attention", sizes, {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 12]}, 1, "wide values")
    three = [floats(2, 3, 8), floats(2, 5, 8), floats(2, 5, 12)]
    yield Case("MultiHeadAttention", three, {"num_heads": 2}, 1, "cross")
    biased = [floats(2, 3, 8), floats(2, 3, 8), floats(2, 3, 8), floats(24)]
    yield Case("MultiHeadAttention", biased, {"num_heads": 2, "unidirectional": 1}, 3, "biased and causal")
    padded = [*biased, np.array([[1, 1, 0], [1, 1, 1]], np.int32), floats(1, 2, 3, 3)]
    yield Case("MultiHeadAttention", padded, {"num_heads": 2, "scale": 0.2}, 1, "mask and bias")
    grown = [*biased, None, None, floats(2, 2, 4, 4), floats(2, 2, 4, 4)]
    yield Case("MultiHeadAttention", grown, {"num_heads": 2}, 3, "past")
    crossed = [floats(2, 1, 8), floats(2, 2, 5, 4), floats(2, 2, 5, 4)]
    yield Case("DecoderMaskedMultiHeadAttention", crossed, {"num_heads": 2}, 1, "cross")


def normalization_cases() -> Iterator[Case]:
    for dtype in (np.float32, np.float16):
        inputs = [floats(2, 3, 8).astype(dtype) for _ in range(2)] + [floats(8).astype(dtype) for _ in range(3)]
        yield Case("SkipLayerNormalization", inputs, {"epsilon": 1e-5}, 1, np.dtype(dtype).name)
        simple = [*inputs[:3], inputs[4]]
        yield Case("SkipSimplifiedLayerNormalization", simple, {"epsilon": 1e-5}, 1, np.dtype(dtype).name)
    yield Case("GatedRMSNorm", [floats(2, 3, 8), floats(4), floats(2, 3, 8)])
    yield Case("BranchwiseRMSNorm", [floats(2, 3, 8), floats(8)], {"num_branches": 2})
    gate = [floats(1, 2, 3, 8), floats(1, 2, 3, 8), floats(1, 2, 8), floats(3, 8), floats(3, 8), floats(3, 8)]
    yield Case("EngramGate", gate, {}, 2)
    yield Case("HyperConnectionPreMix", [floats(2, 3, 8), floats(2, 3)])
    post = [floats(2, 12), floats(2, 4), floats(2, 3), floats(2, 3, 3)]
    yield Case("HyperConnectionPostMix", post, {"num_branches": 3})
    yield Case("ScaledSiLU", [floats(4, 5).astype(np.float16)], {"alpha": 0.7})
    yield Case("QuickGelu", [floats(4, 5)], {"alpha": 1.3})


def product_cases() -> Iterator[Case]:
    for activation in ("Relu", "LeakyRelu", "Tanh", "Sigmoid", "HardSigmoid"):
        inputs = [floats(3, 4), floats(5, 4), floats(5)]
        attributes = {"activation": activation, "transB": 1, "alpha": 0.5, "beta": 2.0}
        if activation in ("LeakyRelu", "HardSigmoid"):
            attributes |= {"activation_alpha": 0.3}
        if activation == "HardSigmoid":
            attributes |= {"activation_beta": 0.4}
        yield Case("FusedGemm", inputs, attributes, 1, activation)
    rotated = [floats(3, 4, 2, 5), floats(4, 2, 6, 5)]
    yield Case("FusedMatMul", rotated, {"transBatchA": 1, "transB": 1, "transA": 0})
    params = [scalar(0.1), floats(4) ** 2, scalar(9, np.uint8), bytes_of(4), floats(4)]
    yield Case("MatMulIntegerToFloat", [bytes_of(3, 5), bytes_of(5, 4), *params])
    dynamic = [floats(3, 5), weights_of(5, 4), scalar(0.1), scalar(3, np.int8), floats(4)]
    yield Case("DynamicQuantizeMatMul", dynamic)
    gemm = [bytes_of(3, 5), scalar(0.1), scalar(9, np.uint8), bytes_of(5, 4), scalar(0.2), scalar(7, np.uint8)]
    c = RNG.integers(-99, 99, 4).astype(np.int32)
    yield Case("QGemm", [*gemm, c], {"alpha": 0.5}, 1, "float")
    yield Case("QGemm", [*gemm, c, scalar(9.0), scalar(100, np.uint8)], {}, 1, "uint8")
    nbits = {"K": 40, "N": 6, "block_size": 16}
    for bits in (2, 4, 8):
        b, zeros = bytes_of(6, 3, 2 * bits), bytes_of(6, -(-3 * bits // 8))
        yield Case(
            "MatMulNBits",
            [floats(2, 3, 40), b, floats(6, 3), zeros, None, floats(6)],
            {**nbits, "bits": bits},
            1,
            f"{bits} bits",
        )
    for kind in (0, 1):
        inputs = [floats(2, 32), bytes_of(6 * 16), np.abs(floats(6 * 2))]
        attributes = {"K": 32, "N": 6, "block_size": 16, "quant_type": kind}
        yield Case("MatMulBnb4", inputs, attributes, 1, "NF4" if kind else "FP4")
    for zero_bytes in (0, 1):
        blob = bytes_of(3, 2, 20 + zero_bytes)
        blob[..., :4] = floats(3, 2, 1).view(np.uint8)
        blob[..., 4 : 4 + zero_bytes] &= 15
        inputs = [floats(2, 64), blob.reshape(-1), np.array([64, 3], np.int64)]
        note = "zero point" if zero_bytes else "symmetric"
        yield Case("MatMulFpQ4", inputs, {"blk_quant_type": zero_bytes}, 1, note)
    attention = [bytes_of(2, 3, 8), weights_of(8, 24), floats(24), scalar(0.02), scalar(0.02)]
    attention += [None, scalar(128, np.uint8), scalar(1, np.int8)]
    yield Case("QAttention", attention, {"num_heads": 2, "unidirectional": 1})


def convolution_cases() -> Iterator[Case]:
    fused = [floats(2, 4, 7, 7), floats(6, 2, 3, 3), floats(6), floats(2, 6, 4, 4)]
    attributes = {"activation": "Relu", "group": 2, "strides": [2, 2], "pads": [1, 1, 1, 1]}
    yield Case("FusedConv", fused, attributes)
    clipped = {**attributes, "activation": "Clip", "activation_params": [-0.5, 0.7]}
    yield Case("FusedConv", fused, clipped, 1, "clip")
    same = [floats(1, 3, 6, 5), floats(4, 3, 3, 2)]
    yield Case("FusedConv", same, {"auto_pad": "SAME_UPPER", "activation": "Tanh"}, 1, "same upper")
    params = [scalar(0.1), scalar(9, np.uint8), weights_of(4, 3, 3, 3), np.abs(floats(4)) + 0.1]
    params += [np.zeros(4, np.int8), scalar(40.0), scalar(120, np.uint8), RNG.integers(-999, 999, 4).astype(np.int32)]
    yield Case("QLinearConv", [bytes_of(1, 6, 6, 3), *params], {"channels_last": 1, "pads": [1, 1, 1, 1]})
    moved = [floats(1, 4, 5, 5), floats(4, 3, 3, 3), np.array([1, 0, 1, 1], np.int64), floats(3)]
    yield Case("ConvTransposeWithDynamicPads", moved, {"strides": [2, 2], "output_padding": [1, 1]})


def other_cases() -> Iterator[Case]:
    yield Case(
        "CropAndResize",
        [
            floats(2, 3, 6, 5),
            np.array([[0, 0, 1, 1], [0.2, 0.9, 0.7, 0.1], [-0.1, 0, 0.5, 2]], np.float32),
            np.array([0, 1, 1], np.int32),
            np.array([4, 3], np.int32),
        ],
    )
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            for corners in (0, 1):
                yield Case(
                    "GridSample",
                    [floats(1, 2, 5, 4), floats(1, 6, 7, 2)],
                    {"mode": mode, "padding_mode": padding, "align_corners": corners},
                    1,
                    f"{mode} {padding} {corners}",
                )
    yield Case("CDist", [floats(5, 3), floats(4, 3)], {"metric": "euclidean"})
    yield Case("Inverse", [floats(2, 4, 4)])
    yield Case("UnfoldTensor", [floats(3, 9, 2)], {"dim": 1, "size": 4, "step": 2})
    yield Case("DynamicTimeWarping", [np.abs(floats(7, 9))])
    yield Case("Unique", [RNG.integers(0, 4, 20).astype(np.float32)], {}, 3)
    for dtype in (np.int32, np.int64, np.float32, np.float64, np.uint32):
        yield Case("MurmurHash3", [(floats(9) * 100).astype(dtype)], {"seed": 3}, 1, np.dtype(dtype).name)
    tokens = RNG.integers(0, 6, (2, 9)).astype(np.int64)
    hashing = [tokens, np.array([3, 5, 7], np.int64), np.array([11, 13, 17, 19], np.int64)]
    sizes = {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 1}
    yield Case("NGramHashMapping", hashing, sizes, 2, "plain")
    history = RNG.integers(0, 6, (2, 2)).astype(np.int64)
    offsets = np.array([0, 11, 24, 41], np.int64)
    ended = [*hashing, history, offsets, scalar(2, np.int64)]
    yield Case("NGramHashMapping", ended, {**sizes, "reset_on_eos": 1}, 2, "end tokens")
    segments = np.sort(RNG.integers(0, 3, (2, 9)), axis=1).astype(np.int32)
    yield Case("NGramHashMapping", [*ended, segments], sizes, 2, "segments")
    packed = [tokens.reshape(-1), *hashing[1:], np.array([0, 4, 5, 18], np.int32)]
    yield Case("VarlenNGramHashMapping", packed, sizes, 2, "packed")
    lstm = {"hidden_size": 4, "direction": "bidirectional"}
    weights = [weights_of(2, 3, 16), weights_of(2, 4, 16), floats(2, 32)]
    scales = [np.array([0.01, 0.02], np.float32), np.zeros(2, np.int8)]
    # One sequence: with more, onnxruntime's threads quantize their shares of the batch each over its own range.
    inputs = [floats(5, 1, 3), *weights, np.array([4], np.int32), None, None, floats(2, 12), *scales, *scales]
    yield Case("DynamicQuantizeLSTM", inputs, lstm, 3)
    conv = [floats(2, 3, 6), floats(3, 1, 3), floats(3), floats(2, 3, 4)]
    yield Case("CausalConvWithState", conv, {"dilation": 2, "activation": "silu"}, 2)
    for rule in ("linear", "gated", "delta", "gated_delta"):
        gates = [
            None,
            -np.abs(floats(1, 5, 2)) if "gated" in rule else None,
            np.abs(floats(1, 5, 2)) / 4 if "delta" in rule else None,
        ]
        while gates[-1] is None and len(gates) > 1:
            gates.pop()
        rows = [floats(1, 5, 16) / 4, floats(1, 5, 8) / 4, floats(1, 5, 12)]
        heads = {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": rule}
        yield Case("LinearAttention", rows + gates, heads, 2, rule)
    experts = [floats(5, 8), floats(5, 3), floats(3, 6, 8), floats(3, 6), floats(3, 8, 6), floats(3, 8)]
    for kind in ("relu", "gelu", "silu", "identity"):
        yield Case("MoE", experts, {"k": 2, "activation_type": kind}, 1, kind)
    gated = [floats(5, 8), floats(5, 3), floats(3, 12, 8), floats(3, 12), floats(3, 8, 6), floats(3, 8)]
    swiglu = {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "normalize_routing_weights": 1}
    swiglu |= {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.8}
    yield Case("MoE", gated, swiglu, 1, "swiglu")
    earlier = [floats(5, 8), floats(5, 3), floats(3, 8, 6), floats(3, 6), floats(3, 6, 8), floats(3, 8)]
    yield Case("MoE", earlier, {"k": 2}, 1, "shapes of earlier exporters")
    for inner in (8, 6):  # of 8 columns the second layer is square, and the first one alone tells
        earlier = [floats(5, 8), floats(5, 3), floats(3, 8, 2 * inner), floats(3, 2 * inner), floats(3, inner, 8)]
        yield Case("MoE", earlier, swiglu, 1, f"swiglu of {inner}, shapes of earlier exporters")
    rotary = [floats(2, 3, 24), np.array([[0, 3, 2], [5, 1, 1]]), floats(8, 3), floats(8, 3)]
    yield Case("RotaryEmbedding", rotary, {"num_heads": 3, "rotary_embedding_dim": 6})
    yield Case(
        "RotaryEmbedding",
        [floats(2, 3, 5, 8), np.array([2]), floats(9, 4), floats(9, 4)],
        {"interleaved": 1},
        1,
        "4-d",
    )
    positions = RNG.integers(0, 9, (3, 2, 4))
    for layout in (0, 1):
        inputs = [floats(2, 4, 36), positions, floats(9, 6), floats(9, 6)]
        attributes = {"num_heads": 3, "mrope_section": [2, 2, 2], "mrope_layout": layout}
        yield Case("MRotaryEmbedding", inputs, attributes, 1, f"layout {layout}")


CASES = [
    *grouped_query_cases(),
    *attention_cases(),
    *normalization_cases(),
    *product_cases(),
    *convolution_cases(),
    *other_cases(),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernel_gives_the_numbers_of_onnxruntime_on_random_inputs(case: Case) -> None:
    try:
        expected = run_onnxruntime(case.op_type, case.inputs, case.outputs, MS, **case.attributes)
    except Fail as refusal:
        if "not yet supported on this hardware platform" not in str(refusal):
            raise
        pytest.skip(f"onnxruntime has no {case.op_type} for this processor")
    found = run_kernel(case.op_type, case.inputs, case.outputs, MS, **case.attributes)
    for index, (want, got) in enumerate(zip(expected, found, strict=True)):
        assert got is not None, f"output {index} is absent"
        assert got.dtype == want.dtype, f"output {index}"
        assert got.shape == want.shape, f"output {index}"
        if want.dtype.kind in "iub":
            assert np.array_equal(got, want), f"output {index}: {got} instead of {want}"
        else:
            tolerance = 2e-3 if want.dtype == np.float16 else 2e-4
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=f"output {index}")
