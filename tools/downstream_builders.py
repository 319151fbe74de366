"""Unchanged programs that write, fold and judge graphs with onnxruntime beneath, and boosters' converters."""

from __future__ import annotations

from downstream_models import NETWORK, SPEECH

BOOSTED = """
import tempfile
import numpy as np, xgboost, lightgbm, catboost, onnx, onnxruntime
from onnxmltools import convert_xgboost, convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType
from sklearn.datasets import make_classification, make_regression
features, classes = make_classification(300, 12, n_informative=8, n_classes=3, random_state=1)
_, targets = make_regression(300, 12, random_state=1)
features = features.astype(np.float32)
features[::7, 3] = np.nan
binary, counts = (classes > 0).astype(int), np.abs(targets / 50).astype(int)
result, small = {}, dict(n_estimators=7, random_state=1)
kinds = [("x", FloatTensorType([None, 12]))]
def attempt(name, make):
    try:
        data = make().SerializeToString()
    except Exception as error:  # the converter's own limits, the same beside both engines
        result[name] = f"not converted: {type(error).__name__}"
        return
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    try:
        result[name] = session.run(None, {session.get_inputs()[0].name: features[:40]})
    except onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument:  # a label that no leaf has
        result[name] = "refused"
def xgb(cls, y, **more):
    estimator = cls(**{**small, **more}).fit(features, y)
    attempt(f"xgboost {cls.__name__} {more}", lambda: convert_xgboost(estimator, initial_types=kinds))
def lgb(cls, y, **more):
    estimator = cls(**{**small, **more}, verbose=-1).fit(features, y)
    for given in ({}, {"zipmap": False}, {"split": 3}):
        name = f"lightgbm {cls.__name__} {more} {given}"
        attempt(name, lambda given=given: convert_lightgbm(estimator, initial_types=kinds, **given))
def cat(cls, y, **given):
    fixed = dict(iterations=7, random_seed=1, verbose=False, thread_count=1, allow_writing_files=False)
    estimator = cls(**fixed).fit(features, y, **given)
    path = tempfile.mktemp(suffix=".onnx")
    estimator.save_model(path, format="onnx")
    attempt(f"catboost {cls.__name__} {np.asarray(y).dtype} {len(set(y))}", lambda: onnx.load(path))
for y, more in ((classes, {}), (binary, {}), (classes, {"booster": "dart", "rate_drop": 0.3}),
    (classes, {"objective": "multi:softmax"}), (binary, {"objective": "binary:logitraw"}),
    (binary, {"objective": "binary:hinge"}), (classes, {"n_estimators": 1})):
    xgb(xgboost.XGBClassifier, y, **more)
for y, more in ((targets, {"booster": "gblinear"}), (targets, {}), (counts, {"objective": "count:poisson"}),
    (counts, {"objective": "reg:tweedie"}), (counts + 1, {"objective": "reg:gamma"}),
    (binary, {"objective": "reg:logistic"}), (targets, {"max_depth": 0})):
    xgb(xgboost.XGBRegressor, y, **more)
xgb(xgboost.XGBRFClassifier, classes)
for y, more in ((classes, {}), (binary, {}), (classes, {"objective": "multiclassova"}),
    (classes, {"boosting_type": "rf", "subsample": 0.6, "subsample_freq": 1})):
    lgb(lightgbm.LGBMClassifier, y, **more)
for y, more in ((binary, {"objective": "cross_entropy"}), (targets, {"boosting_type": "dart"}),
    (counts, {"objective": "poisson"}), (targets, {"zero_as_missing": True}), (targets, {"use_missing": False})):
    lgb(lightgbm.LGBMRegressor, y, **more)
for y in (classes, binary, np.array(["red", "green", "blue"])[classes]):
    cat(catboost.CatBoostClassifier, y)
cat(catboost.CatBoostRegressor, targets)
cat(catboost.CatBoostRanker, targets, group_id=np.arange(300) // 30)
"""
BUILDERS = {
    "boosters": BOOSTED,
    "onnx-asr": SPEECH
    + """
from importlib import resources
import onnxruntime
folder, result = resources.files("onnx_asr.preprocessors") / "data", {}
feeds = {"waveforms": np.stack([speech(2), 0.5 * speech(2)[::-1]]), "waveforms_lens": np.array([32000, 20123])}
for file in sorted(folder.iterdir(), key=str):
    if file.name.endswith(".onnx"):
        result[file.name] = onnxruntime.InferenceSession(str(file)).run(None, feeds)
assert len(result) > 20
""",
    "audonnx": """
import tempfile
import numpy as np, audonnx
from audonnx import testing
signal = np.random.default_rng(1).standard_normal((1, 12)).astype("f4")
model, folder = testing.create_model([[2, -1], [1, 3, -1]]), tempfile.mkdtemp()
model.to_yaml(folder + "/model.yaml")  # writes the bytes that the session was made of
again = audonnx.load(folder)
result = {"found": model(signal, 16000), "text": str(model), "again": again(signal, 16000)}
""",
    "spox": """
import numpy as np, onnxruntime, spox
import spox.opset.ai.onnx.ml.v3 as ml
import spox.opset.ai.onnx.v21 as op
x = spox.argument(spox.Tensor(np.float32, ("N", 4)))
table = op.const(np.arange(12, dtype=np.float32).reshape(4, 3))
shape = op.concat([op.const(np.array([-1])), op.mul(op.const(np.array([2])), op.const(np.array([3])))], axis=0)
y = op.reshape(op.matmul(x, op.add(table, op.const(np.float32(1)))), shape)
z = op.if_(op.greater(op.reduce_sum(x, keepdims=0), op.const(np.float32(0))),
    then_branch=lambda: [op.mul(x, op.const(np.float32(2)))], else_branch=lambda: [op.neg(x)])[0]
model = spox.build({"x": x}, {"y": y, "z": z, "w": ml.scaler(x, offset=[1.0], scale=[0.5])})
feeds = {"x": np.random.default_rng(1).standard_normal((4, 4)).astype("f4")}
known = op.range(op.const(0), op.const(9), op.const(2)), op.string_concat(op.const("a"), op.const("b"))
result = {"values": onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds), "type": str(y.type),
    "known": [str(each._get_value()) for each in known]}
""",
    "ndonnx": """
import numpy as np, ndonnx as ndx, onnxruntime
x, s = ndx.argument(shape=("N", 3), dtype=ndx.float64), ndx.argument(shape=("N",), dtype=ndx.utf8)
n = ndx.argument(shape=("N",), dtype=ndx.nint64)
outputs = {"mean": ndx.mean(x, axis=0), "sorted": ndx.sort(x, axis=0), "arg": ndx.argsort(x[:, 0]),
    "cum": ndx.cumulative_sum(x[:, 0]), "where": ndx.where(x > 0, x, -x), "nullable": n + 2, "prod": ndx.prod(x),
    "unique": ndx.unique_values(ndx.astype(x, ndx.int64)), "str": s + ndx.asarray(np.array("!")),
    "eq": s == ndx.asarray(np.array("b")), "mod": ndx.astype(x, ndx.int32) % 3, "std": ndx.std(x, axis=1),
    "nz": ndx.nonzero(x > 0)[0], "take": ndx.take(x, ndx.asarray([1, 0]), axis=1)}
session = onnxruntime.InferenceSession(ndx.build({"x": x, "s": s, "n": n}, outputs).SerializeToString())
feeds = {"x": np.random.default_rng(1).standard_normal((5, 3)) * 3, "s": np.array(["a", "b", "c", "b", "a"], object),
    "n_values": np.arange(5), "n_null": np.array([0, 1, 0, 0, 1], bool)}
made = session.run(None, feeds)
result = {o.name: v.astype(str) if v.dtype == object else v for o, v in zip(session.get_outputs(), made)}
a = ndx.asarray(np.random.default_rng(2).standard_normal((4, 6)).astype("f4"))  # computed at once, by onnxruntime
at_once = [ndx.sum(a, axis=0), ndx.matmul(a, ndx.permute_dims(a, (1, 0))), ndx.clip(a, -1, 1), ndx.argmax(a, axis=1),
    ndx.concat([a, a * 2], axis=1), a[1:3, ::-2], ndx.astype(a * 10, ndx.int8), ndx.roll(a, 2, axis=1), ndx.tril(a),
    ndx.searchsorted(ndx.sort(a[0, :]), a[1, :])]
result["at once"] = [each.unwrap_numpy() for each in at_once]
""",
    "polygraphy": NETWORK
    + """
from polygraphy.backend.onnx import fold_constants
from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx
from polygraphy.comparator import Comparator, DataLoader
data, folded = network().SerializeToString(), fold_constants(network(), fold_shapes=True)
runners = [OnnxrtRunner(SessionFromOnnx(each), name=str(place))
    for place, each in enumerate((data, folded.SerializeToString()))]
found = Comparator.run(runners, data_loader=DataLoader(seed=1))
result = {name: [np.asarray(each) for each in runs[0].values()] for name, runs in found.items()}
result["alike"] = bool(Comparator.compare_accuracy(found))
result["nodes"] = [node.op_type for node in folded.graph.node]
with OnnxrtRunner(SessionFromOnnx(data)) as runner:
    result["inputs"] = str(runner.get_input_metadata())
""",
    "graphsurgeon": NETWORK
    + """
import onnx_graphsurgeon as gs, onnxruntime
model = parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    net (float[n, 2, 4] x) => (float[n, 2, 4] y) <float[2, 3] a = {0, 1, 2, 3, 4, 5}, int64[2] p = {1, 0},
        float[3, 4] b = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}> {
    c = MatMul (a, b)
    s = Shape (c)
    g = Gather (s, p)
    z = ConstantOfShape <value = float[1] {2.0}> (g)
    t = Transpose (z)
    d = Add (c, t)
    y = Mul (x, d)
}''')
result = {}
for name, each, shape in (("shapes", model, (2, 2, 4)), ("net", network(), (2, 3, 16, 16))):
    made = gs.export_onnx(gs.import_onnx(each).fold_constants(error_ok=False).cleanup().toposort())
    feeds = {"x": np.random.default_rng(1).random(shape).astype("f4")}
    result[name] = [node.op_type for node in made.graph.node]
    result[name + " values"] = onnxruntime.InferenceSession(made.SerializeToString()).run(None, feeds)
""",
    "onnxconverter-common": NETWORK
    + """
import onnxruntime
from onnxconverter_common import auto_mixed_precision, float16
feeds, result = {"x": np.random.default_rng(1).random((2, 3, 16, 16)).astype("f4")}, {}
search = dict(rtol=0.01, atol=0.001, keep_io_types=True)
for name, made in (("auto", auto_mixed_precision.auto_convert_mixed_precision(network(), feeds, **search)),
    ("half", float16.convert_float_to_float16(network(), keep_io_types=True))):
    result[name] = sorted(node.op_type for node in made.graph.node)
    result[name + " values"] = onnxruntime.InferenceSession(made.SerializeToString()).run(None, feeds)
""",
    "sit4onnx": NETWORK
    + """
import tempfile
from sit4onnx import inference
path = tempfile.mktemp(suffix=".onnx")
onnx.save(network(), path)
feed = np.random.default_rng(1).random((2, 3, 16, 16)).astype("f4")
result = {"found": inference(input_onnx_file_path=path, fixed_shapes=[[2, 3, 16, 16]], onnx_execution_provider="cpu",
    test_loop_count=2, non_verbose=True, numpy_ndarrays_for_testing=[feed])}
""",
    "torch-export": """
import numpy as np, torch
from torch.onnx import verification
torch.manual_seed(1)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8)
        self.attention, self.head = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.nn.Linear(8, 5)
    def forward(self, x):
        h = torch.nn.functional.gelu(self.norm(self.conv(x)))
        t = h.flatten(2).transpose(1, 2)
        t = t + self.attention(t, t, t, need_weights=False)[0]
        return self.head(t.mean(1)), h.to(torch.bfloat16), h.argmax(1)
x = torch.randn(2, 3, 8, 8)
program, result = torch.onnx.export(Net().eval(), (x,), dynamo=True, dynamic_shapes={"x": {0: "n"}}), {}
for n in (2, 3):
    made = program(torch.full((n, 3, 8, 8), 0.3))  # run by onnxruntime, over OrtValues
    result[f"{n}"] = [[str(each.dtype), each.float().numpy()] for each in made]
result["verified"] = [[each.name, bool(each.max_abs_diff < 1e-2)]
    for each in verification.verify_onnx_program(program, (x,))]
""",
}
