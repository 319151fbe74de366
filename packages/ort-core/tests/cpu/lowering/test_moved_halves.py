"""Halves that are only moved: compiled as the 16 bits that they are, beside numpy kernels and onnxruntime."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import parser

import ort_core as ort

HALVES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
ODD = np.array([0x7E01, 0xFE55, 0x7C01, 0x8000, 0x0000, 0x7C00, 0x0001, 0x83FF, 0x3C00], np.uint16)  # NaNs, -0, ...

MOVES = {
    "Concat": "y = Concat<axis = 1>(x, z, x)",
    "Transpose": "y = Transpose<perm = [1, 0]>(x)",
    "Slice": "s = Constant<value_ints = [1]>() e = Constant<value_ints = [3]>() a = Constant<value_ints = [0]>()"
    " y = Slice(x, s, e, a)",
    "Gather": "i = Constant<value_ints = [0, -1, 0]>() y = Gather<axis = 1>(x, i)",
    "GatherElements": "i = Constant<value = int64[1, 3] {1, -2, 0}>() y = GatherElements<axis = 0>(x, i)",
    "GatherND": "i = Constant<value = int64[2, 1] {1, 0}>() y = GatherND(x, i)",
    "Pad": "p = Constant<value_ints = [0, 1, 2, 3]>() y = Pad(x, p, b)",
    "edges": 'p = Constant<value_ints = [0, 1, 2, 3]>() y = Pad<mode = "edge">(x, p)',
    "Expand": "s = Constant<value_ints = [2, 1, 1]>() y = Expand(x, s)",
    "Tile": "r = Constant<value_ints = [2, 3]>() y = Tile(x, r)",
    "Trilu": "y = Trilu<upper = 1>(x)",
    "Split": "u, v = Split<axis = 0, num_outputs = 2>(x) y = Concat<axis = 1>(v, v)",
    "Where": "y = Where(c, x, b)",
    "ScatterElements": "i = Constant<value = int64[1, 3] {1, 0, 1}>() f = Shape(x) "
    "y = ScatterElements<axis = 0>(x, i, z3)",
    "ScatterND": "i = Constant<value = int64[1, 2] {1, 2}>() y = ScatterND(x, i, b1)",
    "ReverseSequence": "l = Constant<value_ints = [1, 2, 2]>() y = ReverseSequence(x, l)",
    "Reshape": "s = Constant<value_ints = [-1]>() t = Transpose(x) y = Reshape(t, s)",
    "fill": "s = Shape(x) w = ConstantOfShape<value = HALF[1] {48640}>(s) y = Concat<axis = 0>(x, w)",
}


TAKEN = {  # shapes where not all are
    "Gather": [(3, 1), (3, 17), (3, 300)],
    "GatherElements": [(3, 3), (3, 17)],
    "edges": [(3, 1), (3, 17)],
    "ReverseSequence": [(3, 3)],
    "ScatterElements": [(3, 3), (3, 17)],
    "ScatterND": [(3, 3), (3, 17)],
}
SIZES = [(3, 1), (3, 3), (3, 15), (3, 17), (2, 67), (3, 300), (3, 0)]


def model(text: str, half: str, sizes: str) -> bytes:
    constants = f"{half}[1, 3] z3 = {{1, 2, 65535}}, {half}[1] b1 = {{47104}}, {half} b = {{16640}}"  # as bits
    inputs = f"{half}[{sizes}] x, {half}[{sizes}] z, bool[{sizes}] c"
    head = f'<ir_version: 10, opset_import: ["": 21]> g ({inputs}) => ({half} y) <{constants}>'
    made = parser.parse_model(f"{head} {{ {text.replace('HALF', half)} }}")
    made.graph.output[0].type.tensor_type.ClearField("shape")
    return made.SerializeToString()


def feeds(dtype: np.dtype, shape: tuple[int, int]) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(7)
    x, z = generator.integers(0, 1 << 16, (2, *shape)).astype(np.uint16)
    x.reshape(-1)[: ODD.size] = ODD[: x.size]
    return {"x": x.view(dtype), "z": z.view(dtype), "c": generator.integers(0, 2, shape).astype(np.bool_)}


def run(text: bytes, given: dict[str, np.ndarray], provider: str) -> np.ndarray:
    return ort.InferenceSession(text, providers=[provider]).run(None, given)[0]


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", MOVES)
def test_a_move_keeps_every_bit(name: str, half: str) -> None:
    if (name, half) == ("ReverseSequence", "bfloat16"):
        pytest.skip("ONNX has none")
    text = model(MOVES[name], half, "R, N")
    session = ort.InferenceSession(text, providers=["CPUExecutionProvider"])
    assert "numpy" not in str(session.explain())
    oracle = ort.InferenceSession(text, providers=["ReferenceExecutionProvider"])
    peer = onnxruntime.InferenceSession(text, providers=["CPUExecutionProvider"]) if half == "float16" else None
    for shape in TAKEN.get(name, SIZES):
        given = feeds(HALVES[half], shape)
        (found,), (wanted,) = session.run(None, given), oracle.run(None, given)
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found.view(np.uint16), wanted.view(np.uint16))
        if peer is not None:  # its NaNs have other bits where it converts to float32 and back, its Where loses -0
            np.testing.assert_array_equal(found, peer.run(None, given)[0])


def test_halves_that_something_computes_with_are_widened_as_before() -> None:
    text = "s = Add(x, z) y = Concat<axis = 0>(s, x)"
    session = ort.InferenceSession(model(text, "float16", "R, N"), providers=["CPUExecutionProvider"])
    given = feeds(HALVES["float16"], (3, 17))
    with np.errstate(all="ignore"):
        wanted = np.concatenate([given["x"] + given["z"], given["x"]])
    np.testing.assert_array_equal(session.run(None, given)[0], wanted)


def test_moved_halves_are_recalled_from_the_cache() -> None:
    text = model(MOVES["Concat"].replace("z, x", "z3, x"), "float16", "1, N")
    given = feeds(HALVES["float16"], (1, 2000))
    first, second = (run(text, given, "CPUExecutionProvider") for _ in range(2))
    wanted = run(text, given, "ReferenceExecutionProvider")
    for found in (first, second):
        np.testing.assert_array_equal(found.view(np.uint16), wanted.view(np.uint16))
