"""Rules of onnxruntime's own operators: shapes as its documentation of them says."""

from __future__ import annotations

import pytest

CASES = {
    "Attention": (
        "float[n, 7, 16] x, float[16, 48] w, float[48] b",
        "y, p = com.microsoft.Attention<num_heads = 4>(x, w, b)",
        {"y": ("n", 7, 16), "p": (2, "n", 4, 7, 4)},
    ),
    "MultiHeadAttention with a past": (
        "float[n, s, 16] q, float[n, s, 16] k, float[n, s, 24] v, float[n, 4, p, 4] pk, float[n, 4, p, 6] pv",
        "y, a, b = com.microsoft.MultiHeadAttention<num_heads = 4>(q, k, v, , , , pk, pv)",
        {"y": ("n", "s", 24), "a": ("n", 4, "p + s", 4), "b": ("n", 4, "p + s", 6)},
    ),
    "GroupQueryAttention with packed queries": (
        "float[n, s, 32] q, float[n, 2, 9, 4] pk, float[n, 2, 9, 4] pv, int32[n] l, int32 t",
        "y, a, b = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2>(q, , , pk, pv, l, t)",
        {"y": ("n", "s", 16)},
    ),
    "SkipLayerNormalization": (
        "float[n, s, 8] x, float[n, s, 8] k, float[8] g",
        "y, m, i, t = com.microsoft.SkipLayerNormalization(x, k, g)",
        {"y": ("n", "s", 8), "m": ("n", "s", 1), "t": ("n", "s", 8)},
    ),
    "EmbedLayerNormalization": (
        "int32[n, s] i, int32[n, s] t, float[99, 8] w, float[50, 8] p, float[2, 8] e, float[8] g, float[8] b",
        "y, m = com.microsoft.EmbedLayerNormalization(i, t, w, p, e, g, b)",
        {"y": ("n", "s", 8), "m": ("n",)},
    ),
    "MatMulNBits": (
        "float[n, s, 32] x, uint8[64, 1, 16] w, float[64] c",
        "y = com.microsoft.MatMulNBits<K = 32, N = 64, bits = 4, block_size = 32>(x, w, c)",
        {"y": ("n", "s", 64)},
    ),
    "FusedMatMul with transposed batch": (
        "float[5, n, 3] x, float[n, 3, 7] w",
        "y = com.microsoft.FusedMatMul<transBatchA = 1>(x, w)",
        {"y": ("n", 5, 7)},
    ),
    "FusedConv": (
        "float[n, 3, 8, 8] x, float[6, 3, 3, 3] w",
        'y = com.microsoft.FusedConv<activation = "Relu", pads = [1, 1, 1, 1], strides = [2, 2]>(x, w)',
        {"y": ("n", 6, 4, 4)},
    ),
    "BifurcationDetector with an earlier match in a vector": (
        "int64[s] a, int64[t] b, int64[1] m, int64[p] d",
        "y, i = com.microsoft.BifurcationDetector(a, b, m, d)",
        {"i": (1,)},
    ),
    "HyperConnectionPreMix of as many rows as branches": (
        "float[n, 2, 64] x, float[n, 2, 2] m",
        "y = com.microsoft.HyperConnectionPreMix<num_branches = 2>(x, m)",
        {"y": ("n", 2, 32)},
    ),
    "HyperConnectionPreMix of branches apart": (
        "float[n, 2, 64] x, float[n, 2] m",
        "y = com.microsoft.HyperConnectionPreMix(x, m)",
        {"y": ("n", 64)},
    ),
    "QLinearAdd": (
        "uint8[n, 3] a, float s, uint8 z, uint8[3] b",
        "y = com.microsoft.QLinearAdd(a, s, z, b, s, z, s, z)",
        {"y": ("n", 3)},
    ),
    "QLinearConcat": (
        "float s, uint8 z, uint8[n, 2] a, uint8[n, 5] b",
        "y = com.microsoft.QLinearConcat<axis = 1>(s, z, a, s, z, b, s, z)",
        {"y": ("n", 7)},
    ),
    "GatherBlockQuantized": (
        "uint8[100, 16] d, int64[n, s] i, float[100, 1] c",
        "y = com.microsoft.GatherBlockQuantized<bits = 4, block_size = 32>(d, i, c)",
        {"y": ("n", "s", 32)},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_outputs_have_the_documented_shapes(infer, name):
    inputs, call, expected = CASES[name]
    model, report = infer(f"g ({inputs}) => () {{ {call} }}")
    assert report.notes == ()
    found = {value.name: value.shape for node in model.graph for value in node.present_outputs()}
    for value, shape in expected.items():
        assert tuple(d if isinstance(d, int) else str(d) for d in found[value]) == shape
