"""Unchanged programs that build, convert and watch graphs: eager arrays, scripts, additive models, profiles, nodes."""

from __future__ import annotations

from downstream_models import NETWORK

GRAPHS = {
    "onnx-array-api": NETWORK
    + """
import os, tempfile
os.chdir(tempfile.mkdtemp())
import onnx_array_api.array_api.onnx_ort as xp
from onnx_array_api.ort.ort_optimizers import ort_optimized_model
from onnx_array_api.ort.ort_profile import ort_profile
from onnx_array_api.ort.ort_tensors import EagerOrtTensor, OrtTensor
x = np.random.default_rng(1).standard_normal((4, 5)).astype("f4")
a, b = EagerOrtTensor(OrtTensor.from_array(x)), xp.asarray(np.arange(6).reshape(2, 3))  # over native values
at_once = [a + a, xp.abs(a), a > a, xp.zeros((2, 3)), xp.full((2,), 3), xp.linspace(0, 1, 5), xp.sum(b), xp.eye(3),
    xp.astype(b, xp.float32), xp.reshape(b, (3, 2)), xp.equal(b, b), b * 2, -a, a[0], a[1:3, ::2]]
result = {"at once": [np.asarray(each.numpy()) for each in at_once], "facts": [a.shape, str(a.dtype)]}
feeds = {"x": np.ones((2, 3, 16, 16), "f4")}
found = ort_profile(network().SerializeToString(), feeds, repeat=3)
result["columns"] = sorted({"cat", "dur", "name", "args_op_name", "event_name", "iteration"} & set(found.columns))
result["shrinks"] = len(ort_optimized_model(network()).graph.node) < len(network().graph.node)
""",
    "onnxscript": """
import numpy as np, onnx_ir, onnxruntime
from onnxscript import FLOAT, INT64, evaluator, optimizer, script
from onnxscript import opset18 as op
@script()
def selu(x: FLOAT[...]):
    a = op.CastLike(1.67, x)
    return op.Where(x <= 0, 1.05 * (a * op.Exp(x) - a), 1.05 * x)
@script()
def rounds(x: FLOAT["N"], n: INT64):
    total = op.Identity(x)
    for i in range(n):
        total = total + x * 0.5
        if op.ReduceSum(total) > 100.0:
            total = total / 2.0
        else:
            total = total * 1.5
    return total
x = np.random.default_rng(1).standard_normal((4, 5)).astype("f4")
with evaluator.default_as(evaluator.ORTEvaluator()):  # a session for each operator
    found = [selu(x), rounds(x[0], np.array(5)), op.MatMul(x, x.T), op.Softmax(x), op.TopK(x, np.array([2]))[0],
        op.Split(x, num_outputs=2, axis=0)[1], op.Concat(x, x, axis=0), op.Einsum(x, x, equation="ij,kj->ik"),
        op.SequenceAt(op.SequenceConstruct(x, x), np.array(1))]
result = {"at once": [np.asarray(getattr(each, "value", each)) for each in found]}
def run(model, feeds):
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
loop = rounds.to_model_proto()
folded = onnx_ir.serde.deserialize_model(loop)
optimizer.optimize(folded)
result["models"] = [run(selu.to_model_proto(), {"x": x}), run(loop, {"x": x[0], "n": np.array(7)}),
    run(onnx_ir.serde.serialize_model(folded), {"x": x[0], "n": np.array(3)})]
""",
    "ebm2onnx": """
import ebm2onnx, numpy as np, onnxruntime, pandas as pd
from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor
random = np.random.default_rng(1)
frame = pd.DataFrame({"a": random.standard_normal(200), "b": random.integers(0, 5, 200).astype(float)})
frame["c"] = random.choice(["x", "y", "z"], 200)
small, result = dict(max_rounds=20, n_jobs=1, random_state=1), {}
feeds = {"a": frame.a.to_numpy()[:9], "b": frame.b.to_numpy()[:9], "c": frame.c.to_numpy(object)[:9]}
for name, model, target in (
    ("two", ExplainableBoostingClassifier(interactions=2, **small), (frame.a + frame.b > 2).astype(int)),
    ("many", ExplainableBoostingClassifier(interactions=0, **small), frame.b.astype(int)),
    ("number", ExplainableBoostingRegressor(interactions=1, **small), frame.a * 2)):
    model.fit(frame, target)
    for given in ({}, {"explain": True}, {"predict_proba": True}):
        try:
            made = ebm2onnx.to_onnx(model, ebm2onnx.get_dtype_from_pandas(frame), **given)
        except Exception as error:  # the converter's own limits, the same beside both engines
            result[f"{name} {given}"] = f"not converted: {type(error).__name__}"
            continue
        result[f"{name} {given}"] = onnxruntime.InferenceSession(made.SerializeToString()).run(None, feeds)
""",
    "onnxdumper": NETWORK
    + """
import os, tempfile
os.chdir(tempfile.mkdtemp())
from onnxdumper import InferenceSession
onnx.save(network(), "net.onnx")
feeds = {"x": np.random.default_rng(1).random((2, 3, 16, 16)).astype("f4")}
result = {"y": InferenceSession("net.onnx").run(None, feeds, dump_path="all.npz")}
dumped = np.load("all.npz")
result["all"] = {name: dumped[name] for name in dumped.files}
""",
    "onnx-perf-test": NETWORK
    + """
import os, tempfile
os.chdir(tempfile.mkdtemp())
from onnx_perf_test.analyze_onnx_profile import parse_profile
from onnx_perf_test.onnx_perf_test import run_test
model = network()
model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
onnx.save(model, "net.onnx")
result = {}
for provider in ("DEFAULT", "CPU", "CUDA"):
    by_node, by_operator = parse_profile(run_test("net.onnx", provider, num_runs=3))
    result[provider] = ["model_run" in by_operator.index, list(by_node.columns)]
""",
    "unidic-lite-imitator": """
from unidic_lite_imitator import Tagger
texts = ("\\u3059\\u3082\\u3082\\u3082\\u3082\\u3082\\u3082\\u3082\\u3082\\u306e\\u3046\\u3061",
    "\\u543e\\u8f29\\u306f\\u732b\\u3067\\u3042\\u308b\\u3002ABC 2026")
tagger = Tagger()
result = {text: tagger.parse(text) for text in texts}
""",
    "qonnx": """
import numpy as np
from onnx import numpy_helper, parser
from qonnx.core.modelwrapper import ModelWrapper
from qonnx.core.onnx_exec import execute_onnx
from qonnx.util.cleanup import cleanup_model
model = parser.parse_model('''<ir_version: 8, opset_import: ["": 13, "qonnx.custom_op.general": 1]>
    net (float[1, 3, 16, 16] x) => (float[1, 10] y)
    <float s = {0.05}, float z = {0.0}, float b = {4.0}, int64[2] flat = {1, -1}> {
    q = qonnx.custom_op.general.Quant <signed = 1, narrow = 0, rounding_mode = "ROUND"> (x, s, z, b)
    k = qonnx.custom_op.general.Quant <signed = 1, narrow = 1, rounding_mode = "ROUND"> (w, s, z, b)
    c = Conv <pads = [1, 1, 1, 1]> (q, k)
    n = BatchNormalization (c, g, t, t, g)
    r = Relu (n)
    p = MaxPool <kernel_shape = [4, 4], strides = [4, 4]> (r)
    f = Reshape (p, flat)
    y = MatMul (f, v)
}''')
random = np.random.default_rng(1)
for name, shape in dict(w=(8, 3, 3, 3), g=(8,), t=(8,), v=(128, 10)).items():
    model.graph.initializer.append(numpy_helper.from_array(random.uniform(0.1, 1, shape).astype("f4"), name))
cleaned = cleanup_model(ModelWrapper(model))
feeds = {cleaned.graph.input[0].name: random.standard_normal((1, 3, 16, 16)).astype("f4")}
found = execute_onnx(cleaned, feeds, return_full_exec_context=True)  # a session for each node
result = {name: np.asarray(value) for name, value in found.items() if value is not None}
""",
}
