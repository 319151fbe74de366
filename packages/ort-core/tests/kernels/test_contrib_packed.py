"""Weights packed in blocks: beside onnxruntime's GatherPacked, products and experts beside their formulas."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from one_node import Array, model_of, normal, run, sigmoid

import ort_core as ort
from ort_core.errors import InvalidArgument

FLOAT, FLOAT16, BFLOAT16 = 1, 10, 16
ROW_OF_512 = {0: 2048, 1: 1024, 2: 288, 6: 352, 8: 544, 13: 352, 14: 420, 16: 132, 17: 148, 18: 196, 20: 288, 22: 164,
              23: 272, 30: 1024, 42: 144}  # fmt: skip  # bytes, by number
Q8_0, IQ2_XXS = 8, 16


SCALES_AT = {2: (18, 0), 8: (34, 0), 14: (210, 208), 16: (66, 0), 22: (82, 0)}  # a block's bytes, its scale's place
TWO_TO_THE_MINUS_8 = (0, 0x1C)


def packed(*shape: int, number: int, seed: int = 0) -> Array:
    """Return random bytes of rows of 512; where it is said where scales lie, they are small numbers."""
    rows = np.random.default_rng(seed).integers(0, 256, (*shape, ROW_OF_512[number]), dtype=np.uint8)
    if number in SCALES_AT:
        block, place = SCALES_AT[number]
        for offset, value in enumerate(TWO_TO_THE_MINUS_8):
            rows[..., place + offset :: block] = value
    return rows


def unpacked(rows: Array, number: int, dtype: type = np.float32) -> Array:
    """Return float64 of what onnxruntime reads, rounded to a type."""
    table = rows.reshape(-1, rows.shape[-1])
    inputs = {"data": table, "indices": np.arange(len(table))}
    content = model_of("GatherPacked", inputs, (FLOAT,), K=512, packed_type=number, output_dtype=FLOAT)
    [found] = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, inputs)
    return np.asarray(found).astype(dtype).astype(np.float64).reshape(*rows.shape[:-1], 512)


@pytest.mark.parametrize("kind", [FLOAT, FLOAT16], ids=["float", "float16"])
@pytest.mark.parametrize("number", ROW_OF_512)
def test_rows_of_a_packed_table_are_onnxruntimes(number: int, kind: int) -> None:
    table = np.random.default_rng(0).integers(0, 256, (40, ROW_OF_512[number]), dtype=np.uint8)  # NaN, infinities too
    inputs = {"data": table, "indices": np.array([[0, 39, 7], [-1, 40, 12]], np.int32)}
    content = model_of("GatherPacked", inputs, (kind,), K=512, packed_type=number, output_dtype=kind)
    [expected] = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, inputs)
    for provider in ("CPU", "Reference"):
        [found] = ort.InferenceSession(content, providers=[f"{provider}ExecutionProvider"]).run(None, inputs)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("given", "message"),
    [({"packed_type": 40}, "packed"), ({"K": 500}, "K=500|500 elements"), ({"K": 256}, "row_bytes|must have shape")],
    ids=["unknown", "part of a block", "another row"],
)
def test_tables_that_do_not_fit_are_refused(given: dict[str, int], message: str) -> None:
    inputs = {"data": packed(4, number=Q8_0), "indices": np.array([1])}
    content = model_of("GatherPacked", inputs, (FLOAT,), **{"K": 512, "packed_type": Q8_0, "output_dtype": 1, **given})
    for module in (onnxruntime, ort):
        with pytest.raises(Exception, match=message):
            module.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, inputs)


@pytest.mark.parametrize("activation", ["none", "relu2", "relu_squared", "silu"])
@pytest.mark.parametrize("number", [2, Q8_0, 14, 22])
def test_products_with_packed_weights(number: int, activation: str) -> None:
    weights = packed(6, number=number)
    x = (normal(2, 3, 512) / 64).astype(np.float16)
    inputs = {"a": x, "b": weights}
    given = {"K": 512, "N": len(weights), "packed_type": number, "activation_type": activation}
    [found] = run("MatMulPacked", inputs, (FLOAT16,), **given)
    wide = x.astype(np.float64) @ unpacked(weights, number, np.float16).T
    rounded = wide.astype(np.float16).astype(np.float64)
    expected = {"none": rounded, "silu": rounded * sigmoid(rounded)}.get(activation, np.maximum(rounded, 0) ** 2)
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=4e-3, atol=4e-3 * np.abs(expected).max())


def experts(number: int, *, has_up: bool) -> dict[str, Array]:
    inputs = {"x": (normal(2, 3, 512) / 8).astype(np.float16), "scores": np.round(normal(6, 4, seed=1), 1),
              "gate": packed(4, 512, number=number), "up": packed(4, 512, number=number, seed=1),
              "down": packed(4, 512, number=number, seed=2)}  # fmt: skip
    if not has_up:
        inputs["up"] = None
    return inputs


def mixed(inputs: dict[str, Array], number: int, chosen: Array, shares: Array, *, has_up: bool) -> Array:
    tokens = inputs["x"].reshape(-1, 512).astype(np.float64)
    names = ("gate", "up", "down") if has_up else ("gate", "down")
    wide = {name: unpacked(inputs[name], number, np.float16) for name in names}
    result = np.zeros_like(tokens)
    for row, token in enumerate(tokens):
        for expert, share in zip(chosen[row], shares[row], strict=True):
            gate = wide["gate"][expert] @ token
            inner = gate * sigmoid(gate) * (wide["up"][expert] @ token) if has_up else np.maximum(gate, 0) ** 2
            result[row] += share * (wide["down"][expert] @ inner)
    return result.reshape(inputs["x"].shape)


@pytest.mark.parametrize("normalized", [0, 1])
def test_packed_experts_are_mixed_by_softmax(normalized: int) -> None:
    inputs = experts(Q8_0, has_up=True)
    given = {"gate_type": Q8_0, "up_type": Q8_0, "down_type": Q8_0, "k": 2, "normalize_routing_weights": normalized}
    [found] = run("MoEPacked", inputs, (FLOAT16,), **given)
    powers = np.exp(inputs["scores"].astype(np.float64))
    shares = powers / powers.sum(axis=1, keepdims=True)
    chosen = np.argsort(-shares, axis=1, kind="stable")[:, :2]
    picked = np.take_along_axis(shares, chosen, axis=1)
    if normalized:
        picked /= picked.sum(axis=1, keepdims=True)
    expected = mixed(inputs, Q8_0, chosen, picked, has_up=True)
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=3e-3, atol=3e-3 * np.abs(expected).max())


def test_full_scores_choose_and_unbiased_values_mix() -> None:
    inputs = experts(IQ2_XXS, has_up=False)
    inputs["mixing"] = np.abs(normal(6, 4, seed=3))
    inputs["scores"][0] = [np.nan, -np.inf, np.inf, 1]
    inputs["scores"][1] = [2, 3, 3, 1]
    inputs["mixing"][2] = 0
    inputs["mixing"][3] = [np.nan, 1, 1, 1]
    inputs["scores"][3] = [9, 1, 2, 3]
    inputs["mixing"][4] = [np.nan, 1, 1, 1]
    inputs["scores"][4] = [-9, 1, 2, 3]
    given = {"gate_type": IQ2_XXS, "down_type": IQ2_XXS, "k": 2, "activation_type": "relu2",
             "routed_scaling_factor": 1.5}  # fmt: skip
    content = model_of("MoEPacked", inputs, (FLOAT16,), **given)
    feeds = {name: array for name, array in inputs.items() if array is not None}
    [found] = ort.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, feeds)
    chosen = np.array([[2, 3], [1, 2], *np.argsort(-inputs["scores"][2:], axis=1, kind="stable")[:, :2]])
    picked = np.take_along_axis(inputs["mixing"], chosen, axis=1).astype(np.float64)
    total = picked.sum(axis=1, keepdims=True)
    shares = 1.5 * np.divide(picked, total, out=np.zeros_like(picked), where=total != 0)
    shares[3] = np.nan
    expected = mixed(inputs, IQ2_XXS, chosen, shares, has_up=False)
    most = np.nanmax(np.abs(expected))
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=4e-3, atol=4e-3 * most)
    assert np.isnan(found.reshape(6, -1)[3]).all()
    assert not found.reshape(6, -1)[2].any()


@pytest.mark.parametrize(
    "given", [{"k": 5}, {"up_type": 7}, {"activation_type": "relu2"}, {"routing_epsilon": 0.1}], ids=str
)
def test_packed_experts_that_do_not_fit_are_refused(given: dict[str, object]) -> None:
    sound = {"gate_type": Q8_0, "up_type": Q8_0, "down_type": Q8_0, "k": 2}
    with pytest.raises(InvalidArgument, match="MoEPacked"):
        run("MoEPacked", experts(Q8_0, has_up=True), (FLOAT16,), **{**sound, **given})


def test_a_table_gives_bfloat16_unless_told_otherwise() -> None:
    rows = packed(4, number=Q8_0)
    content = model_of("GatherPacked", {"d": rows, "i": np.array([2])}, (BFLOAT16,), K=512, packed_type=Q8_0)
    session = ort.InferenceSession(content, providers=["ReferenceExecutionProvider"])
    [found] = session.run(None, {"d": rows, "i": np.array([2])})
    expected = unpacked(rows, Q8_0)[2:3].astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(np.asarray(found).view(np.uint16), expected.view(np.uint16))
