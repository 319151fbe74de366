"""Mamba2Verify and RMSNormRotary of onnxruntime 1.32, beside loops over their formulas in float64."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from one_node import Array, model_of, normal

import ort_core as ort
from ort_core.errors import InvalidArgument

FLOAT, FLOAT16, BFLOAT16 = 1, 10, 16
HEADS, GROUPS, SLOTS = 4, 2, 3
INNER, CHANNELS = HEADS * 64, HEADS * 64 + 2 * GROUPS * 128


def short(x: Array) -> Array:
    """Return bfloat16."""
    return x.astype(ml_dtypes.bfloat16)


def run(op_type: str, inputs: dict[str, Array], kinds: tuple[int, ...], **given: object) -> list[Array]:
    """Return the results, bfloat16 as float32."""
    content = model_of(op_type, inputs, kinds, **given)
    session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    feeds = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in inputs.items()}
    found = session.run_with_ort_values(None, feeds)
    return [each.numpy() if each.data_type() != "tensor(bfloat16)" else
            np.asarray(each.numpy()).view(ml_dtypes.bfloat16).astype(np.float32) for each in found]  # fmt: skip


def mixer(rows: int, state_row: int = 1) -> dict[str, Array]:
    width = INNER + CHANNELS + HEADS
    return {
        "projection": short(normal(rows, width)), "conv_state": short(normal(SLOTS, CHANNELS, 3, seed=1)),
        "ssm_state": normal(SLOTS, HEADS, 128, 64, seed=2), "conv_weight": short(normal(CHANNELS, 4, seed=3) / 2),
        "conv_bias": short(normal(CHANNELS, seed=4)), "dt_bias": normal(HEADS, seed=5) - 2,
        "A_negative": -np.abs(normal(HEADS, seed=6)), "D": normal(HEADS, seed=7), "norm_weight": normal(INNER, seed=8),
        "state_row": np.array([state_row], np.int32),
    }  # fmt: skip


def silu(x: float) -> float:
    return x / (1 + math.exp(-x))


def looped(inputs: dict[str, Array], epsilon: float, least: float) -> dict[str, Array]:
    """Return what the formulas say, one number after the other; the convolution's result as it is rounded."""
    wide = {name: array.astype(np.float64) for name, array in inputs.items()}
    start = int(inputs["state_row"][0])
    rows = len(wide["projection"])
    state, before = wide["ssm_state"][start].copy(), wide["conv_state"][start].copy()
    found = {name: [] for name in ("y", "conv", "ssm", "xbc", "readout")}
    for row in range(rows):
        gate, mixed, step = np.split(wide["projection"][row], [INNER, INNER + CHANNELS])
        taps = np.concatenate([before, mixed[:, None]], axis=1)
        before = taps[:, 1:]
        sums = (taps * wide["conv_weight"].reshape(-1, 4)).sum(axis=1) + wide["conv_bias"]
        xbc = short(np.array([silu(value) for value in sums])).astype(np.float64)
        x, b, c = xbc[:INNER].reshape(HEADS, 64), xbc[INNER : INNER + 256], xbc[INNER + 256 :]
        readout = np.zeros((HEADS, 64))
        for head in range(HEADS):
            group = slice(head // 2 * 128, head // 2 * 128 + 128)
            dt = max(math.log1p(math.exp(step[head] + wide["dt_bias"][head])), least)
            state[head] = math.exp(wide["A_negative"][head] * dt) * state[head] + np.outer(b[group], dt * x[head])
            readout[head] = wide["D"][head] * x[head] + c[group] @ state[head]
        gated = (readout.reshape(-1) * np.array([silu(value) for value in gate])).reshape(GROUPS, -1)
        normal_ = gated / np.sqrt((gated**2).mean(axis=1, keepdims=True) + epsilon)
        for name, value in (("y", normal_.reshape(-1) * wide["norm_weight"]), ("conv", before), ("ssm", state.copy()),
                            ("xbc", xbc), ("readout", readout.reshape(-1))):  # fmt: skip
            found[name].append(value)
    return {name: np.array(values) for name, values in found.items()}


@pytest.mark.parametrize("rows", [1, 2, 3, 5])
def test_rows_to_be_verified(rows: int) -> None:
    inputs = mixer(rows)
    if rows == 2:
        inputs["conv_weight"] = inputs["conv_weight"].reshape(CHANNELS, 1, 4)
    given = {"heads": HEADS, "n_groups": GROUPS, "epsilon": 1e-3, "time_step_min": 0.3}
    y, conv, ssm, xbc, readout = run("Mamba2Verify", inputs, (BFLOAT16, BFLOAT16, FLOAT, BFLOAT16, FLOAT), **given)
    expected = looped(inputs, 1e-3, 0.3)
    np.testing.assert_allclose(xbc, expected["xbc"], rtol=2**-7, atol=1e-6)
    np.testing.assert_allclose(readout, expected["readout"], rtol=2e-2, atol=2e-2)
    np.testing.assert_allclose(y, expected["y"], rtol=2e-2, atol=2e-2)
    written = min(rows, SLOTS)
    np.testing.assert_array_equal(conv[:written], expected["conv"][-written:])
    np.testing.assert_allclose(ssm[:written], expected["ssm"][-written:], rtol=1e-2, atol=1e-2)
    np.testing.assert_array_equal(conv[written:], inputs["conv_state"][written:].astype(np.float32))
    np.testing.assert_array_equal(ssm[written:], inputs["ssm_state"][written:])


@pytest.mark.parametrize("state_row", [-1, SLOTS])
def test_a_row_that_is_no_snapshot_gives_nan(state_row: int) -> None:
    inputs = mixer(2, state_row)
    kinds = (BFLOAT16, BFLOAT16, FLOAT, BFLOAT16, FLOAT)
    y, conv, ssm, xbc, readout = run("Mamba2Verify", inputs, kinds, heads=HEADS, n_groups=GROUPS)
    assert all(np.isnan(each).all() for each in (y, xbc, readout, conv[:2], ssm[:2]))
    np.testing.assert_array_equal(ssm[2], inputs["ssm_state"][2])


@pytest.mark.parametrize("name", ["projection", "conv_state", "ssm_state", "conv_weight", "dt_bias", "norm_weight"])
def test_a_mixer_whose_inputs_do_not_fit_is_refused(name: str) -> None:
    inputs = mixer(2)
    inputs[name] = inputs[name][..., :-1].copy()
    with pytest.raises(InvalidArgument, match="Mamba2Verify"):
        run("Mamba2Verify", inputs, (BFLOAT16, BFLOAT16, FLOAT), heads=HEADS, n_groups=GROUPS)


def rotary(dtype: type, caches: type, width: int = 10, half: int = 3) -> dict[str, Array]:
    angles = np.outer(np.arange(16), [1, 0.3, 0.05][:half])
    return {
        "x": normal(2, 4, 3, width).astype(dtype), "scale": normal(width, seed=1),
        "position_ids": np.array([[0, 5, 2, 15], [1, 1, 3, 4]]), "cosine": np.cos(angles).astype(caches),
        "sine": np.sin(angles).astype(caches),
    }  # fmt: skip


def turned(normalized: Array, inputs: dict[str, Array], positions: Array) -> Array:
    result = normalized.copy()
    half = inputs["cosine"].shape[1]
    for batch, row, pair in np.ndindex(*positions.shape, half):
        at = positions[batch, row]
        cos, sin = (float(inputs[name][at, pair]) for name in ("cosine", "sine"))
        first, second = normalized[batch, row, :, pair], normalized[batch, row, :, pair + half]
        result[batch, row, :, pair] = first * cos - second * sin
        result[batch, row, :, pair + half] = second * cos + first * sin
    return result


@pytest.mark.parametrize("flat", [0, 1])
@pytest.mark.parametrize("fp16", [0, 1])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
def test_normalized_rows_are_rotated(dtype: type, fp16: int, flat: int) -> None:
    inputs = rotary(dtype, np.float32)
    given = {"rotary_embedding_dim": 6, "epsilon": 1e-3, "output_fp16": fp16, "flatten_batch": flat}
    y, before = run("RMSNormRotary", inputs, (FLOAT16 if fp16 else BFLOAT16, FLOAT), **given)
    x = inputs["x"].astype(np.float64)
    expected = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-3) * inputs["scale"]
    np.testing.assert_allclose(before, expected, rtol=1e-5, atol=1e-6)
    rows = (1, 8, 30) if flat else (2, 4, 30)
    wanted = turned(expected, inputs, inputs["position_ids"]).reshape(rows)
    np.testing.assert_allclose(y.astype(np.float64), wanted, rtol=2e-3 if fp16 else 8e-3, atol=1e-3)


@pytest.mark.parametrize("mode", [0, 1])
def test_values_in_bfloat16_are_rounded_before_the_rotation(mode: int) -> None:
    inputs = rotary(ml_dtypes.bfloat16, ml_dtypes.bfloat16) | {"prefill_numerics": np.array(mode, np.int32)}
    inputs["position_ids"] = np.array([3])
    y, before = run("RMSNormRotary", inputs, (BFLOAT16, FLOAT), rotary_embedding_dim=6)
    np.testing.assert_array_equal(before, short(before).astype(np.float32))
    positions = np.broadcast_to(3 + np.arange(4), (2, 4))
    wanted = turned(before.astype(np.float64), inputs, positions).reshape(2, 4, 30)
    np.testing.assert_allclose(y, wanted, rtol=2**-7, atol=2**-6 if mode else 2**-9)


def test_a_part_of_the_last_axis_is_taken() -> None:
    inputs = rotary(np.float16, np.float32)
    inputs["scale"] = inputs["scale"][:7]
    part = inputs | {"x": np.ascontiguousarray(inputs["x"][..., 2:9])}
    whole = run("RMSNormRotary", inputs, (FLOAT16,), rotary_embedding_dim=6, output_fp16=1, input_start=2,
                input_width=7)  # fmt: skip
    alone = run("RMSNormRotary", part, (FLOAT16,), rotary_embedding_dim=6, output_fp16=1)
    np.testing.assert_array_equal(whole[0], alone[0])


@pytest.mark.parametrize(
    "given",
    [{"rotary_embedding_dim": 5}, {"rotary_embedding_dim": 12}, {"input_start": 4}, {"input_width": 11},
     {"epsilon": -1.0}],
    ids=str,
)  # fmt: skip
def test_a_rotation_that_does_not_fit_is_refused(given: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument, match="RMSNormRotary"):
        run("RMSNormRotary", rotary(np.float16, np.float32), (FLOAT16,), **{"rotary_embedding_dim": 6,
            "output_fp16": 1, **given})  # fmt: skip


def test_positions_beyond_the_caches_are_refused() -> None:
    inputs = rotary(np.float16, np.float32)
    inputs["position_ids"] = inputs["position_ids"] + 1
    with pytest.raises(InvalidArgument, match="16 rows"):
        run("RMSNormRotary", inputs, (FLOAT16,), rotary_embedding_dim=6, output_fp16=1)
