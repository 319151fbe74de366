"""Lowering: the programs that claims become, as text. Needs no coremltools.

python packages/ort-ep-coreml/tests/test_lowering.py     # writes the files in goldens/ anew
"""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from ort_core.plugin import Claim
from ort_core.testing.claims import request_for, typed_model, view_of
from ort_ep_coreml.capability import find_capability, program_of
from ort_ep_coreml.options import CoreMlOptions

GOLDENS = Path(__file__).with_name("goldens")
HEADER = '<ir_version: 10, opset_import: ["" : 21]> '
PROGRAMS = {
    "chain": "g (float[n,4] x) => (float[n,4] y) { a = Relu(x)  b = Tanh(a)  y = Add(a, b) }",
    "booleans_at_the_border": "g (bool[4] x, float[4] z) => (bool[4] y) { a = Less(z, z)  y = And(a, x) }",
    "scalars_at_the_border": "g (float x) => (float y) { a = Exp(x)  y = Neg(a) }",
    "attention": (
        "g (float[n,4,8,16] q, float[n,4,8,16] k, float[n,4,8,16] v) => (float[n,4,8,16] y) <float c = {0.25}> "
        "{ t = Transpose<perm=[0,1,3,2]>(k)  a = MatMul(q, t)  b = Mul(a, c)  p = Softmax(b)  y = MatMul(p, v) }"
    ),
    "convolution": (
        "g (float[1,1,7,7] x) => (float[1,1,4,4] y) <float[1,1,2,2] w = {1,2,3,4}, float[1] b = {5}> "
        '{ a = Conv<strides=[2,2], auto_pad="SAME_UPPER">(x, w, b)  y = Relu(a) }'
    ),
    "embedding": ("g (int64[n,3] i) => (float[n,3,2] y) <float[4,2] t = {1,2,3,4,5,6,7,8}> { y = Gather(t, i) }"),
    "open_reshape": ("g (float[n,m,6] x) => (float[n,m,2,3] y) <int64[4] s = {0,0,2,3}> { y = Reshape(x, s) }"),
    "slice_to_the_end": (
        "g (float[n,5] x) => (float[k,2] y) "
        "<int64[2] b = {1,-1}, int64[2] e = {9223372036854775807,0}, int64[2] a = {0,1}, int64[2] t = {1,-2}> "
        "{ y = Slice(x, b, e, a, t) }"
    ),
    "normalized": (
        "g (float[2,4] x) => (float[2,4] y) <float[4] s = {1,2,3,4}, float[4] b = {0,1,0,1}> "
        "{ y = LayerNormalization(x, s, b) }"
    ),
}
"""ONNX text of claims whose lowered form is kept in ``goldens/``, by name."""


def lowered(text: str) -> str:
    """Return the program of a model that is one claim."""
    view = view_of(typed_model(onnx.parser.parse_model(HEADER + text)))
    (claim,) = find_capability(view, CoreMlOptions())
    assert isinstance(claim, Claim), claim
    return program_of(request_for(view, claim), CoreMlOptions()).text()


def path_of(name: str) -> Path:
    """Return the file of a golden."""
    return GOLDENS / f"{name}.txt"


def test_what_lacks_of_a_stated_size_are_zeros_behind():
    text = lowered(
        "g (float[1,1,5] x) => (float[1,1,18] y) <float[1,1,4] w = {1,2,3,4}> "
        "{ y = ConvTranspose<strides=[3], output_shape=[18]>(x, w) }"
    )
    assert "pad(x=%ConvTranspose, pad=int32[2]{[0, 2]}" in text.replace("conv_transpose", ""), text


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_claim_is_lowered_to_the_program_that_is_kept(name):
    kept = path_of(name).read_text(encoding="utf-8")
    assert lowered(PROGRAMS[name]) == kept, f"goldens/{name}.txt: run this file to write it anew"


def test_every_golden_belongs_to_a_program():
    assert {path.stem for path in GOLDENS.glob("*.txt")} == set(PROGRAMS)


if __name__ == "__main__":
    for name, text in PROGRAMS.items():
        path_of(name).write_text(lowered(text), encoding="utf-8")
