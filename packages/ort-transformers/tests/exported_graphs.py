"""Small graphs as exporters write them: one encoder layer of BERT's kind, in the text of ONNX."""

from __future__ import annotations

import re

import numpy as np
import onnx
from onnx import parser

HIDDEN, HEADS, SIZE, LENGTH, BATCH = 8, 2, 4, 5, 2


def random_weights(model: onnx.ModelProto, seed: int = 3) -> onnx.ModelProto:
    """Draw the initializers of a model of floats that its text left empty, named w_ROWS_COLUMNS or b_SIZE."""
    generator = np.random.default_rng(seed)
    names = {name for node in model.graph.node for name in node.input if re.fullmatch(r"[wb]\d*(_\d+)+", name)}
    for name in sorted(names):
        shape = [int(part) for part in name.split("_")[1:]]
        array = generator.standard_normal(shape).astype(np.float32) / np.sqrt(shape[0])
        model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    return model


ENCODER = """
<ir_version: 10, opset_import: ["": 18]>
encoder (float[batch, length, 8] x, int64[batch, length] attention_mask) => (float[batch, length, 8] y)
<int64[4] split = {{0, 0, 2, 4}}, int64[3] merge = {{0, 0, 8}}, float scale = {{{scale}}}, float one = {{1.0}},
 float low = {{-10000.0}}, int64[2] axes = {{1, 2}}, float epsilon = {{1e-5}}, float two = {{2.0}},
 int64[1] last = {{-1}}, float half = {{0.5}}, float root = {{1.4142135}}>
{{
  q = MatMul(x, w0_8_8)
  qb = Add(q, b0_8)
  q4 = Reshape(qb, split)
  qt = Transpose<perm=[0, 2, 1, 3]>(q4)
  k = MatMul(x, w1_8_8)
  kb = Add(k, b1_8)
  k4 = Reshape(kb, split)
  kt = Transpose<perm={keys}>(k4)
  v = MatMul(x, w2_8_8)
  vb = Add(v, b2_8)
  v4 = Reshape(vb, split)
  vt = Transpose<perm=[0, 2, 1, 3]>(v4)
  scores = MatMul(qt, kt)
  scaled = Mul(scores, scale)
  mask_f = Cast<to=1>(attention_mask)
  mask_4 = Unsqueeze(mask_f, axes)
  hidden = Sub(one, mask_4)
  added = Mul(hidden, low)
  masked = Add(scaled, added)
  share = Softmax<axis={axis}>(masked)
  weighed = MatMul(share, vt)
  turned = Transpose<perm=[0, 2, 1, 3]>(weighed)
  merged = Reshape(turned, merge)
  o = MatMul(merged, w3_8_8)
  ob = Add(o, b3_8)
  skip = Add(ob, x)
  mean = ReduceMean(skip, last)
  off = Sub(skip, mean)
  square = Pow(off, two)
  var = ReduceMean(square, last)
  safe = Add(var, epsilon)
  deviation = Sqrt(safe)
  norm = Div(off, deviation)
  weighted = Mul(norm, b4_8)
  y0 = Add(weighted, b5_8)
  up = MatMul(y0, w4_8_16)
  upb = Add(up, b6_16)
  part = Div(upb, root)
  erf = Erf(part)
  more = Add(erf, one)
  gated = Mul(upb, more)
  gelu = Mul(gated, half)
  y = MatMul(gelu, w5_16_8)
}}
"""


def encoder(*, scale: str = "0.5", keys: str = "[0, 2, 3, 1]", axis: int = -1) -> onnx.ModelProto:
    """Return the layer."""
    return random_weights(parser.parse_model(ENCODER.format(scale=scale, keys=keys, axis=axis)))


def encoder_feeds(seed: int = 5) -> dict[str, np.ndarray]:
    """Return two sentences, the second of them padded."""
    generator = np.random.default_rng(seed)
    mask = np.ones((BATCH, LENGTH), np.int64)
    mask[1, 3:] = 0
    return {"x": generator.standard_normal((BATCH, LENGTH, HIDDEN)).astype(np.float32), "attention_mask": mask}
