"""Buffers for keys and values where one new row lies at a start: compiled, and as onnxruntime has them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from onnx import parser
from text_sessions import peer_of, session_of

import ort_core as ort
from ort_core.cpu.partition import partition as cpu_partition
from ort_core.errors import OrtError

HEAD = '<ir_version: 9, opset_import: ["": 18, "com.microsoft": 1]>'
ROWS = 9


def text_of(operator: str, attributes: str, more_inputs: str = "", more: str = "") -> str:
    """Return a model of one attention over buffers."""
    if operator == "DecoderMaskedMultiHeadAttention":
        read = f"q, k, v, {'mask' if 'mask' in more_inputs else ''}, , past_k, past_v, start, , , {more}"
        attributes += ", past_present_share_buffer = 1"
    else:
        read = f"q, k, v, {more}, , , past_k, past_v, start"
    return f"""{HEAD}
        g (float[B, 1, 24] q, float[B, 1, 24] k, float[B, 1, 24] v, float[B, 3, M, 8] past_k, float[B, 3, M, 8] past_v,
           int32[1] start{more_inputs})
        => (float[B, 1, 24] y, float[B, 3, M, 8] present_k, float[B, 3, M, 8] present_v) {{
            y, present_k, present_v = com.microsoft.{operator} <num_heads = 3{attributes}> ({read.rstrip(", ")}) }}"""


CASES = {
    "decoder": text_of("DecoderMaskedMultiHeadAttention", ""),
    "decoder, scaled": text_of("DecoderMaskedMultiHeadAttention", ", scale = 0.2"),
    "decoder, bias": text_of("DecoderMaskedMultiHeadAttention", "", ", float[72] bias", "bias"),
    "multi-head": text_of("MultiHeadAttention", ""),
}


def feeds_of(session: object, batch: int, start: int, seed: int = 0, rows: int = ROWS) -> dict[str, np.ndarray]:
    rng, found = np.random.default_rng(seed), {}
    for each in session.get_inputs():
        shape = [{"B": batch, "M": rows, "T": start + 1}.get(size, size) for size in each.shape]
        if each.type == "tensor(int32)":
            found[each.name] = np.ones(shape, np.int32)
        else:
            found[each.name] = rng.standard_normal(shape).astype(np.float32)
    found["start"] = np.array([start], np.int32)
    return found


def float64_result(feeds: Mapping[str, np.ndarray], scale: float | None) -> np.ndarray:
    """Return the output by its definition."""
    bias = np.split(feeds.get("bias", np.zeros(72)).astype(np.float64), 3)
    q, k, v = (
        (feeds[name].astype(np.float64) + added).reshape(-1, 3, 8) for name, added in zip("qkv", bias, strict=True)
    )
    start = int(feeds["start"][0])
    keys, values = (
        np.concatenate([feeds[f"past_{name}"][:, :, :start], new[:, :, None]], axis=2)
        for name, new in (("k", k), ("v", v))
    )
    scores = np.einsum("bhd,bhtd->bht", q, keys) * (8**-0.5 if scale is None else scale)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares = shares / shares.sum(-1, keepdims=True)
    return np.einsum("bht,bhtd->bhd", shares, values).reshape(len(q), 1, 24)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("case", CASES)
def test_a_row_is_written_at_the_start_and_all_before_it_are_read(
    case: str, batch: int, partitions: list[cpu_partition.CpuPartition]
) -> None:
    session, peer = session_of(CASES[case]), peer_of(CASES[case])
    for start in (0, 3, 5, 6, 7, ROWS - 1):
        feeds = feeds_of(session, batch, start, seed=start)
        found, want = session.run(None, feeds), peer.run(None, feeds)
        for own, other in zip(found, want, strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-5)
        truth = float64_result(feeds, 0.2 if "scaled" in case else None)
        np.testing.assert_allclose(found[0], truth, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(found[1][:, :, start + 1 :], feeds["past_k"][:, :, start + 1 :])
    assert all(not each.refusals for each in partitions), "compiled"


@pytest.mark.parametrize("start", [-1, -(2**31), ROWS, ROWS + 1, 2**31 - 1])
@pytest.mark.parametrize("case", CASES)
def test_a_start_that_is_not_in_the_buffer_is_refused_and_nothing_is_written_elsewhere(case: str, start: int) -> None:
    session = session_of(CASES[case])
    for good in range(6):
        session.run(None, feeds_of(session, 2, good))
    feeds = feeds_of(session, 2, 0)
    feeds["start"] = np.array([start], np.int32)
    with pytest.raises(OrtError, match="do not fit the buffer"):
        session.run(None, feeds)
    assert np.isfinite(session.run(None, feeds_of(session, 2, 2))[0]).all()


@pytest.mark.unguarded
def test_a_buffer_that_is_bound_as_both_gets_the_row_alone() -> None:
    session = session_of(CASES["decoder"])
    peer, rng = peer_of(CASES["decoder"]), np.random.default_rng(1)
    buffers = {part: rng.standard_normal((2, 3, 64, 8)).astype(np.float32) for part in "kv"}
    own = {part: ort.OrtValue.ortvalue_from_numpy(array.copy()) for part, array in buffers.items()}
    binding = session.io_binding()
    for part in "kv":
        binding.bind_ortvalue_input(f"past_{part}", own[part])
        binding.bind_ortvalue_output(f"present_{part}", own[part])
    for start in range(40):
        feeds = {name: rng.standard_normal((2, 1, 24)).astype(np.float32) for name in "qkv"}
        feeds["start"] = np.array([start], np.int32)
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        want = peer.run(None, {**feeds, **{f"past_{part}": array for part, array in buffers.items()}})
        buffers = dict(zip("kv", want[1:], strict=True))
        np.testing.assert_allclose(binding.get_outputs()[-1].numpy(), want[0], rtol=1e-5, atol=1e-5)
        for part in "kv":
            np.testing.assert_array_equal(own[part].numpy(), buffers[part])


def test_what_masks_a_buffer_is_left_to_the_kernels() -> None:
    text = text_of("DecoderMaskedMultiHeadAttention", "", ", int32[B, T] mask")
    session = session_of(text)
    feeds = feeds_of(session, 2, 4)
    feeds["mask"][1, 2] = 0
    expected = float64_result({name: array[:1] for name, array in feeds.items() if name != "mask"}, None)
    np.testing.assert_allclose(session.run(None, feeds)[0][:1], expected, rtol=1e-5, atol=1e-5)
    assert "numpy" in str(session.explain())


INPUTS = "float[B, 1, 24] q, float[B, 1, 24] k, float[B, 1, 24] v"
CACHES = "float[B, 3, M, 8] past_k, float[B, 3, M, 8] past_v"
OTHERS = {  # without a buffer: rows are appended, or keys and values are given
    "appended": f"""g ({INPUTS}, {CACHES})
        => (float[B, 1, 24] y, float[B, 3, R, 8] present_k, float[B, 3, R, 8] present_v) {{
            y, present_k, present_v = com.microsoft.DecoderMaskedMultiHeadAttention <num_heads = 3>
                (q, k, v, , , past_k, past_v) }}""",
    "appended, masked": f"""g ({INPUTS}, int32[B, T] mask, {CACHES})
        => (float[B, 1, 24] y, float[B, 3, R, 8] present_k, float[B, 3, R, 8] present_v) {{
            y, present_k, present_v = com.microsoft.DecoderMaskedMultiHeadAttention
                <num_heads = 3, mask_filter_value = -50.0> (q, k, v, mask, , past_k, past_v) }}""",
    "appended, with an addend": f"""g ({INPUTS}, float[B, 3, 1, T] addend, {CACHES})
        => (float[B, 1, 24] y, float[B, 3, R, 8] present_k, float[B, 3, R, 8] present_v) {{
            y, present_k, present_v = com.microsoft.DecoderMaskedMultiHeadAttention <num_heads = 3>
                (q, k, v, , addend, past_k, past_v) }}""",
    "given": """g (float[B, 1, 24] q, float[B, 3, M, 8] k, float[B, 3, M, 8] v) => (float[B, 1, 24] y) {
            y = com.microsoft.DecoderMaskedMultiHeadAttention <num_heads = 3> (q, k, v) }""",
}


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("case", OTHERS)
def test_decoders_without_a_buffer_give_what_the_kernels_give(case: str, batch: int) -> None:
    session = session_of(HEAD + OTHERS[case])
    model = parser.parse_model(HEAD + OTHERS[case]).SerializeToString()
    reference = ort.InferenceSession(model, providers=["ReferenceExecutionProvider"])
    for rows in (1, 5, 8, 9, 10, 30, 31):
        feeds = feeds_of(session, batch, rows, rows=rows)
        del feeds["start"]
        if "mask" in feeds:
            feeds["mask"][:, 0] = 0
        for own, other in zip(session.run(None, feeds), reference.run(None, feeds), strict=True):
            np.testing.assert_allclose(own, other, rtol=2e-5, atol=2e-5)
