"""Attention and its companions against loops over heads and tokens in float64."""

import ml_dtypes
import numpy as np
import pytest

from ort_core.errors import InvalidArgument
from ort_core.kernels.reference.attention.attention import attention, flex_attention, join_heads, split_heads
from ort_core.kernels.reference.attention.position_and_cache import linear_attention, rotary_embedding


def by_definition(q, k, v, allowed, added=0.0, scale=None, softcap=0.0):
    """Attend query by query; ``allowed`` and ``added`` broadcast to [batch, heads, queries, keys]."""
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    batch, heads, length, size = q.shape
    allowed = np.broadcast_to(allowed, (batch, heads, length, k.shape[2]))
    added = np.broadcast_to(added, allowed.shape)
    y = np.zeros((batch, heads, length, v.shape[3]))
    for b, h, i in np.ndindex(batch, heads, length):
        g = h // (heads // k.shape[1])
        seen = np.flatnonzero(allowed[b, h, i])
        if not seen.size:
            continue
        scores = k[b, g, seen] @ q[b, h, i] * (scale or size**-0.5)
        scores = (softcap * np.tanh(scores / softcap) if softcap else scores) + added[b, h, i, seen]
        weights = np.exp(scores - scores.max())
        y[b, h, i] = weights / weights.sum() @ v[b, g, seen]
    return y


def draw(seed=0, heads=4, groups=2, length=3, total=5, dtype=np.float64):
    generator = np.random.default_rng(seed)
    shapes = ((2, heads, length, 6), (2, groups, total, 6), (2, groups, total, 4))
    return [generator.standard_normal(s).astype(dtype) for s in shapes]


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-5), (np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2)]
)
def test_attention_shares_key_heads_among_successive_query_heads(dtype, tolerance):
    q, k, v = draw(dtype=dtype)
    y, present_key, present_value, _ = attention(q, k, v)
    assert y.dtype == dtype
    np.testing.assert_allclose(y.astype(np.float64), by_definition(q, k, v, True), rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(present_key, k)
    np.testing.assert_array_equal(present_value, v)


def test_attention_reads_packed_heads():
    q, k, v = draw()
    packed = [join_heads(a, 3) for a in (q, k, v)]
    y = attention(*packed, q_num_heads=4, kv_num_heads=2)[0]
    np.testing.assert_allclose(y, join_heads(attention(q, k, v)[0], 3), rtol=1e-12)
    np.testing.assert_array_equal(split_heads(packed[0], 4), q)


def test_causal_attention_looks_past_the_cache_up_to_the_query():
    q, k, v = draw(total=7)
    allowed = np.arange(7) <= np.arange(3)[:, None] + 4
    y, present_key, _, _ = attention(q, k[:, :, 4:], v[:, :, 4:], None, k[:, :, :4], v[:, :, :4], is_causal=1)
    np.testing.assert_allclose(y, by_definition(q, k, v, allowed), rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(present_key, k)


def test_attention_ignores_padding_keys_and_gives_zeros_to_queries_without_keys():
    q, k, v = draw(total=5)
    lengths = np.array([5, 1])
    offset = lengths[:, None, None, None] - 3
    allowed = (np.arange(5) < lengths[:, None, None, None]) & (np.arange(5) <= np.arange(3)[:, None] + offset)
    y, _, _, weights = attention(q, k, v, None, None, None, lengths, is_causal=1, qk_matmul_output_mode=3)
    np.testing.assert_allclose(y, by_definition(q, k, v, allowed), rtol=1e-10, atol=1e-12)
    assert (y[1, :, :2] == 0).all()
    np.testing.assert_array_equal(weights > 0, np.broadcast_to(allowed, weights.shape))


@pytest.mark.parametrize(("left", "right"), [(1, 0), (-1, 1), (2, -1), (0, 0)])
def test_attention_looks_only_into_its_window(left, right):
    q, k, v = draw(length=5, total=5)
    ahead = np.arange(5) - np.arange(5)[:, None]
    allowed = ((left < 0) | (ahead >= -left)) & ((right < 0) | (ahead <= right))
    y = attention(q, k, v, left_window_size=left, right_window_size=right)[0]
    np.testing.assert_allclose(y, by_definition(q, k, v, allowed), rtol=1e-10, atol=1e-12)


def test_attention_adds_or_applies_masks_that_may_be_short():
    q, k, v = draw()
    generator = np.random.default_rng(1)
    added = generator.standard_normal((2, 1, 3, 5))
    y = attention(q, k, v, added, softcap=2.0, scale=0.7)[0]
    np.testing.assert_allclose(y, by_definition(q, k, v, True, added, 0.7, 2.0), rtol=1e-10, atol=1e-12)
    short = np.array([[True, False, True], [False, False, False], [True, True, True]])
    allowed = np.pad(short, [(0, 0), (0, 2)])
    y = attention(q, k, v, short)[0]
    np.testing.assert_allclose(y, by_definition(q, k, v, allowed), rtol=1e-10, atol=1e-12)


def test_attention_shows_scores_at_each_stage():
    q, k, v = draw(groups=4)
    mask = np.zeros((3, 5))
    mask[:, 2] = -1.0
    raw = np.einsum("bhqd,bhkd->bhqk", q, k) * 0.5
    stages = [raw, np.tanh(raw / 3) * 3, np.tanh(raw / 3) * 3 + mask]
    for mode, expected in enumerate(stages):
        shown = attention(q, k, v, mask, scale=0.5, softcap=3.0, qk_matmul_output_mode=mode)[3]
        np.testing.assert_allclose(shown, expected, rtol=1e-10, atol=1e-12)


def test_attention_over_no_keys_gives_zeros():
    q, k, v = draw(total=0)
    np.testing.assert_array_equal(attention(q, k, v)[0], np.zeros((2, 4, 3, 4)))


def test_flex_attention_lets_subgraphs_change_scores_and_weights():
    q, k, v = draw(dtype=np.float32)
    allowed = np.arange(5) <= np.arange(3)[:, None]
    y = flex_attention(
        q, k, v, score_mod=lambda s: (np.where(allowed, s, -np.inf),), prob_mod=lambda p: (p * np.float32(2),)
    )
    np.testing.assert_allclose(y, 2 * by_definition(q, k, v, allowed), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("rotary", [0, 4])
def test_rotary_embedding_turns_pairs_by_their_angle(interleaved, rotary):
    generator = np.random.default_rng(2)
    x = generator.standard_normal((2, 3, 4, 8)).astype(np.float32)
    size = rotary or 8
    angles = generator.standard_normal((10, size // 2))
    positions = generator.integers(0, 10, (2, 4))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    y = rotary_embedding(x, cos, sin, positions, interleaved=interleaved, rotary_embedding_dim=rotary)
    pairs = (slice(0, size, 2), slice(1, size, 2)) if interleaved else (slice(0, size // 2), slice(size // 2, size))
    turned = (x[..., pairs[0]] + 1j * x[..., pairs[1]]) * np.exp(1j * angles[positions])[:, None]
    np.testing.assert_allclose(y[..., pairs[0]], turned.real, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(y[..., pairs[1]], turned.imag, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(y[..., size:], x[..., size:])


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention_continues_from_its_state(rule):
    generator = np.random.default_rng(3)
    q, k, v = (generator.standard_normal((2, 5, n)) for n in (12, 6, 8))
    decay = -generator.random((2, 5, 2)) if "gated" in rule else None
    beta = generator.random((2, 5, 2)) if "delta" in rule else None
    attributes = {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": rule}

    def run(part, state=None):
        gates = [None if g is None else g[:, part] for g in (decay, beta)]
        return linear_attention(q[:, part], k[:, part], v[:, part], state, *gates, **attributes)

    whole, state = run(slice(None))
    first, between = run(slice(0, 2))
    second, last = run(slice(2, None), between)
    np.testing.assert_allclose(np.concatenate([first, second], axis=1), whole, rtol=1e-10)
    np.testing.assert_allclose(last, state, rtol=1e-10)


def test_linear_attention_without_gates_is_causal_attention_without_softmax():
    generator = np.random.default_rng(4)
    q, k, v = (generator.standard_normal((1, 4, 3)) for _ in range(3))
    y, _ = linear_attention(q, k, v, q_num_heads=1, kv_num_heads=1, update_rule="linear", scale=0.5)
    np.testing.assert_allclose(y[0], np.tril(0.5 * q[0] @ k[0].T) @ v[0], rtol=1e-10)


def test_attention_refuses_heads_that_do_not_divide():
    q, k, v = draw(heads=3, groups=2)
    with pytest.raises(InvalidArgument, match="q_num_heads % kv_num_heads"):
        attention(q, k, v)
