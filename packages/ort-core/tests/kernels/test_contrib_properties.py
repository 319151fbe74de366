"""The com.microsoft kernels that onnxruntime's CPU provider cannot check: formulas, equivalences and round trips."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ort_core import errors
from ort_core.kernels.kernel import KernelContext, Unguarded
from ort_core.kernels.reference.arrays.error_function import erf
from ort_core.kernels.reference.attention import (
    contrib_attention,
    contrib_group_query_attention,
    contrib_linear_attention,
    contrib_packed_sequences,
    contrib_relative_position,
    contrib_sparse_attention,
)
from ort_core.kernels.reference.elementwise import contrib_activation
from ort_core.kernels.reference.generators import contrib_dropout
from ort_core.kernels.reference.normalization import contrib_normalization
from ort_core.kernels.reference.products import contrib_block_quantized, contrib_fused_projections
from ort_core.kernels.reference.quantization import contrib_ordered
from ort_core.kernels.reference.signals import contrib_spectrum
from ort_core.kernels.reference.texts import contrib_text

RNG = np.random.default_rng(11)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def context(outputs: int = 1) -> KernelContext:
    present = (True,) * outputs
    return KernelContext("Op", "com.microsoft", 1, "node", present, (None,) * outputs, {}, Unguarded())


def test_erf_has_the_precision_of_float64() -> None:
    x = np.concatenate([np.linspace(-7, 7, 4001), [0.0, -0.0, 2.0, 6.0, np.inf, -np.inf]])
    expected = np.array([math.erf(value) for value in x])
    np.testing.assert_allclose(erf(x), expected, rtol=1e-13, atol=1e-15)
    assert np.isnan(erf(np.array([np.nan]))).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gelu_of_narrow_floats_rounds_once(dtype: str) -> None:
    import ml_dtypes

    kind = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
    x = floats(200).astype(kind)
    exact = [0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x.astype(np.float64)]
    found = contrib_activation.gelu_exact(x)
    assert found.dtype == x.dtype
    assert np.array_equal(found.astype(np.float32), np.array(exact).astype(np.float32).astype(kind).astype(np.float32))


@pytest.mark.parametrize("tokens", [[1] * 12, [5, 1, 1, 3, 2]])
@pytest.mark.parametrize("capacity", [4, 6])
def test_a_windowed_cache_gives_what_a_full_cache_gives_with_a_local_window(capacity: int, tokens: list[int]) -> None:
    window, heads = 4, {"num_heads": 4, "kv_num_heads": 2, "local_window_size": 4, "ctx": context(3)}
    full = [np.zeros((1, 2, 0, 8), np.float32)] * 2
    small = [np.zeros((1, 2, capacity, 8), np.float32)] * 2
    total = 0
    for count in tokens:
        total += count
        inputs = [floats(1, count, 32), floats(1, count, 16), floats(1, count, 16)]
        lengths = [np.array([total - 1], np.int32), np.array(total, np.int32)]
        run = contrib_group_query_attention.group_query_attention
        expected, *full, _ = run(*inputs, *full, *lengths, **heads)
        found, *small, _ = run(*inputs, *small, *lengths, sliding_window_cache=1, **heads)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        assert small[0].shape[2] == capacity
        kept = min(total, window)
        resident = (
            total
            if total <= capacity
            else total - (capacity - window + 1) * -(-(total - capacity) // (capacity - window + 1))
        )
        np.testing.assert_array_equal(small[0][:, :, resident - kept : resident], full[0][:, :, total - kept : total])


@pytest.mark.parametrize(("bits", "dtype"), [(8, np.int8), (4, np.uint8)])
def test_a_quantized_cache_stays_close_to_a_float_cache(bits: int, dtype: type) -> None:
    inputs = [floats(1, 6, 32), floats(1, 6, 16), floats(1, 6, 16)]
    lengths = [np.array([5], np.int32), np.array(6, np.int32)]
    heads = {"num_heads": 4, "kv_num_heads": 2, "ctx": context(3)}
    run = contrib_group_query_attention.group_query_attention
    exact, *_ = run(*inputs, None, None, *lengths, **heads)
    empty = np.zeros((1, 2, 0, 8 * bits // 8), dtype)
    step = np.array([3.5 / (1 << (bits - 1))], np.float32)
    rough, key, _, _ = run(
        *inputs,
        empty,
        empty,
        *lengths,
        k_scale=step,
        v_scale=step,
        k_quant_type="PER_TENSOR",
        v_quant_type="PER_TENSOR",
        kv_cache_bit_width=bits,
        **heads,
    )
    assert key.dtype == dtype
    np.testing.assert_allclose(rough, exact, atol=8 * step[0])


def test_sparse_attention_with_all_blocks_equals_grouped_query_attention() -> None:
    query, key, value = floats(2, 5, 32), floats(2, 5, 16), floats(2, 5, 16)
    empty = np.zeros((2, 2, 8, 8), np.float32)
    rows, columns = np.array([[0, 1, 3]], np.int32), np.array([[0, 0, 1]], np.int32)
    total, lengths = np.array(5, np.int32), np.array([5, 5], np.int32)
    found, *_ = contrib_sparse_attention.sparse_attention(
        query,
        key,
        value,
        empty,
        empty,
        rows,
        columns,
        total,
        lengths,
        num_heads=4,
        kv_num_heads=2,
        sparse_block_size=4,
        ctx=context(3),
    )
    expected, *_ = contrib_group_query_attention.group_query_attention(
        query, key, value, None, None, lengths - 1, total, num_heads=4, kv_num_heads=2, ctx=context(3)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_decoding_step_in_a_shared_buffer_equals_attention_over_the_joined_past() -> None:
    step, past = [floats(2, 1, 8) for _ in range(3)], [floats(2, 2, 4, 4) for _ in range(2)]
    shared = [np.concatenate([cache, np.zeros((2, 2, 3, 4), np.float32)], axis=2) for cache in past]
    expected, key, *_ = contrib_attention.multi_head_attention(*step, None, None, None, *past, num_heads=2)
    length = np.array([4], np.int32)
    found, present, *_ = contrib_attention.decoder_masked_multi_head_attention(
        *step, None, None, *shared, length, num_heads=2, past_present_share_buffer=1, ctx=context(2)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(present[:, :, :5], key)


def test_beams_are_followed_through_the_cache() -> None:
    step, past = [floats(2, 1, 8) for _ in range(3)], [floats(2, 2, 3, 4) for _ in range(2)]
    beams = np.array([[[0, 1, 0], [1, 1, 1]]], np.int32)
    mixed = [np.stack([np.stack([c[0, :, 0], c[1, :, 1], c[0, :, 2]], 1), c[1]]) for c in past]
    expected, *_ = contrib_attention.multi_head_attention(*step, None, None, None, *mixed, num_heads=2)
    found, *_ = contrib_attention.multi_head_attention(*step, None, None, None, *past, None, beams, num_heads=2)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_packed_attention_equals_attention_with_lengths() -> None:
    x, weights, bias, lengths = floats(3, 5, 8), floats(8, 24), floats(24), np.array([5, 2, 4], np.int32)
    packed, offsets, ends, longest = contrib_packed_sequences.remove_padding(x, lengths)
    assert packed.shape == (11, 8)
    assert longest.tolist() == [5]
    found = contrib_packed_sequences.packed_attention(packed, weights, bias, offsets, ends, num_heads=2)
    expected, _ = contrib_attention.attention(x, weights, bias, lengths, num_heads=2)
    np.testing.assert_allclose(
        found, contrib_packed_sequences.remove_padding(expected, lengths)[0], rtol=1e-4, atol=1e-5
    )
    restored = contrib_packed_sequences.restore_padding(packed, offsets)
    np.testing.assert_array_equal(restored, np.where((np.arange(5) < lengths[:, None])[..., None], x, 0))


def test_packed_convolution_equals_one_convolution_per_request() -> None:
    x, weight, state = floats(7, 3), floats(3, 1, 3), floats(2, 3, 2)
    ends, counts = np.array([0, 3, 7], np.int32), np.array([1, 9], np.int32)
    found, states, updates = contrib_packed_sequences.varlen_causal_conv_with_state(
        x, weight, ends, None, state, counts, state_update_capacity=2
    )
    for request, (begin, end) in enumerate([(0, 3), (3, 7)]):
        expected, present = contrib_linear_attention.causal_conv_with_state(
            x[None, begin:end].swapaxes(1, 2), weight, None, state[request : request + 1]
        )
        np.testing.assert_allclose(found[begin:end], expected[0].T)
        np.testing.assert_array_equal(states[request], present[0])
    np.testing.assert_array_equal(updates[0], [x[0], np.zeros(3)])
    np.testing.assert_array_equal(updates[1], x[3:5])


def test_group_norm_gives_groups_of_mean_0_and_deviation_1_in_both_layouts() -> None:
    x, gamma, beta = floats(2, 4, 4, 8) * 3 + 1, np.ones(8, np.float32), np.zeros(8, np.float32)
    found = contrib_normalization.group_norm(x, gamma, beta, activation=0, groups=2)
    grouped = found.reshape(2, 16, 2, 4)
    np.testing.assert_allclose(grouped.mean(axis=(1, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(grouped.std(axis=(1, 3)), 1, atol=1e-4)
    first = contrib_normalization.group_norm(
        np.moveaxis(x, -1, 1), gamma, beta, activation=1, groups=2, channels_last=0
    )
    np.testing.assert_allclose(np.moveaxis(first, 1, -1), found / (1 + np.exp(-found)), rtol=1e-4, atol=1e-5)


def test_real_transforms_are_inverse_to_each_other() -> None:
    x = floats(3, 8)
    spectrum = contrib_spectrum.rfft(x)
    assert spectrum.shape == (3, 5, 2)
    np.testing.assert_allclose(contrib_spectrum.irfft(spectrum, signal_ndim=1), x, atol=1e-5)
    squares = contrib_spectrum.complex_mul_conjugate(spectrum, spectrum)
    np.testing.assert_allclose(squares[..., 0], np.abs(np.fft.rfft(x)) ** 2, rtol=1e-4, atol=1e-4)


def test_fused_projections_equal_their_parts() -> None:
    a, skip, scale = floats(2, 32), floats(2, 32), floats(32)
    weights = [(RNG.integers(0, 256, (6, 1, 16)).astype(np.uint8), floats(6, 1), floats(6)) for _ in range(3)]
    normal, _, _, total = contrib_normalization.skip_simplified_layer_normalization(a, skip, scale, epsilon=1e-6)
    sizes = {"K": 32, "block_size": 32}
    *found, found_total = contrib_fused_projections.matmul_n_bits_qkv(
        a, skip, scale, *weights[0], *weights[1], *weights[2], Nq=6, Nkv=6, epsilon=1e-6, ctx=context(), **sizes
    )
    for got, (b, scales, bias) in zip(found, weights, strict=True):
        want = contrib_block_quantized.matmul_n_bits(normal, b, scales, None, None, bias, N=6, **sizes)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found_total, total)


def test_read_only_weights_are_dequantized_once_per_session_and_writable_ones_at_each_run() -> None:
    a, b, scales = floats(2, 32), RNG.integers(0, 256, (6, 1, 16)).astype(np.uint8), floats(6, 1)
    sizes, ctx = {"K": 32, "N": 6, "block_size": 32}, context()
    first = contrib_block_quantized.matmul_n_bits(a, b, scales, ctx=ctx, **sizes)
    assert not ctx.state
    b.flags.writeable = scales.flags.writeable = False
    kept = contrib_block_quantized.matmul_n_bits(a, b, scales, ctx=ctx, **sizes)
    held = ctx.state["weights"][1]
    contrib_block_quantized.matmul_n_bits(a, b, scales, ctx=ctx, **sizes)
    assert ctx.state["weights"][1] is held
    np.testing.assert_array_equal(first, kept)


def test_relative_positions_fall_into_the_buckets_of_t5() -> None:
    index = contrib_relative_position.buckets(1, 200, 32, 128, bidirectional=True)[0]
    assert index[:8].tolist() == [0, 17, 18, 19, 20, 21, 22, 23]
    assert index[-1] == 31
    assert (np.diff(index[1:]) >= 0).all()
    table = np.arange(64, dtype=np.float32).reshape(32, 2)
    bias = contrib_relative_position.relative_position_bias(
        table, np.array(4), np.array(4), max_distance=128, is_bidirectional=1
    )
    assert bias.shape == (1, 2, 4, 4)
    assert bias[0, 1, 0, 1] == 32 + 17


def test_dropout_keeps_what_its_mask_says_and_all_of_it_outside_of_training() -> None:
    data, bias, ratio = floats(50, 40), floats(40), np.array(0.25, np.float32)
    kept, mask = contrib_dropout.bias_dropout(data, bias, None, ratio, np.array(True), seed=3, ctx=context())
    np.testing.assert_allclose(kept, np.where(mask, (data + bias) / 0.75, 0), rtol=1e-5)
    assert 0.7 < mask.mean() < 0.8
    same, words = contrib_dropout.bitmask_dropout(data, ratio, ctx=context())
    np.testing.assert_array_equal(same, data)
    assert words.dtype == np.uint32
    assert int(np.bitwise_count(words).sum()) == data.size


def test_finite_checks_tell_infinity_from_nan() -> None:
    values = [np.array([1.0], np.float32), np.array([np.inf], np.float16)]
    assert not contrib_dropout.is_all_finite(*values)
    assert contrib_dropout.is_all_finite(*values, isnan_only=1)
    assert not contrib_dropout.is_all_finite(*values, isinf_only=1)


def test_tokens_that_are_too_short_are_left_out() -> None:
    texts = np.array(["a bcd ef", ""], object)
    found = contrib_text.tokenizer(texts, mark=0, mincharnum=2, pad_value="-", separators=(" ",))
    assert found.tolist() == [["bcd", "ef"], ["-", "-"]]


def test_an_invalid_expression_of_a_tokenizer_names_the_expression() -> None:
    with pytest.raises(errors.InvalidArgument, match=r"\(\["):
        contrib_text.tokenizer(np.array(["a"], object), mark=0, mincharnum=1, pad_value="", tokenexp="([")


def test_a_bias_softmax_repeats_its_bias_inside_or_outside_of_its_own_rows() -> None:
    data, bias = floats(2, 3, 4), floats(2, 1, 4)
    for inner, wide in ((1, np.repeat(bias, 3, axis=1)), (0, np.concatenate([bias] * 3).reshape(2, 3, 4))):
        found = contrib_activation.bias_softmax(data, bias, axis=2, is_inner_broadcast=inner)
        exponents = np.exp(data + wide)
        np.testing.assert_allclose(found, exponents / exponents.sum(-1, keepdims=True), rtol=1e-5)


def test_ordered_quantization_saturates_and_comes_back() -> None:
    x, step = np.array([-9, -1.26, 0, 0.13, 9], np.float32), np.array(0.05, np.float32)
    levels = contrib_ordered.quantize_with_order(x, step, order_input=1, order_output=1)
    assert levels.tolist() == [-128, -25, 0, 3, 127]
    back = contrib_ordered.dequantize_with_order(levels, step, order_input=1, order_output=1, to=1)
    np.testing.assert_allclose(back[1:4], x[1:4], atol=0.025)
    with pytest.raises(errors.NotImplemented, match="memory order"):
        contrib_ordered.quantize_with_order(x, step, order_input=1, order_output=2)


def test_a_product_of_float8_matrices_is_exact_up_to_its_output_type() -> None:
    import ml_dtypes

    a, b = (floats(3, 16).astype(ml_dtypes.float8_e4m3fn) for _ in range(2))
    scales = [np.array([0.5], np.float32), np.array([2.0], np.float32)]
    found = contrib_ordered.gemm_float8(a, b, None, *scales, transB=1, activation="RELU")
    expected = np.maximum(a.astype(np.float64) @ b.astype(np.float64).T, 0)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
