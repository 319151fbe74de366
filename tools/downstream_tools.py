"""More unchanged programs for ``downstream.py``: what embeds, optimizes and serves models over onnxruntime."""

from __future__ import annotations

TORCH_TOOLS = ("olive", "sentence-transformers", "txtai")
TOOLS = {
    "fastembed": """
import json, pathlib, tempfile
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers
folder = pathlib.Path(tempfile.mkdtemp())
words = ["[PAD]", "[UNK]", "hello", "world", "small", "models", "run", "anywhere", "quick", "fox"]
tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.save(str(folder / "tokenizer.json"))
for name, content in (
    ("config.json", {"pad_token_id": 0}),
    ("special_tokens_map.json", {"pad_token": "[PAD]"}),
    ("tokenizer_config.json", {"model_max_length": 32, "pad_token": "[PAD]"}),
):
    (folder / name).write_text(json.dumps(content))
random = np.random.default_rng(1)
weights = {
    "table": random.standard_normal((10, 16)),
    "w": random.standard_normal((16, 16)) / 4,
    "b": random.standard_normal(16),
}
nodes = [
    helper.make_node("Gather", ["table", "input_ids"], ["e"]),
    helper.make_node("MatMul", ["e", "w"], ["m"]),
    helper.make_node("Add", ["m", "b"], ["a"]),
    helper.make_node("Tanh", ["a"], ["last_hidden_state"]),
]
infos = [helper.make_tensor_value_info(n, TensorProto.INT64, ["b", "s"]) for n in ("input_ids", "attention_mask")]
graph = helper.make_graph(
    nodes,
    "g",
    infos,
    [helper.make_tensor_value_info("last_hidden_state", 1, ["b", "s", 16])],
    [numpy_helper.from_array(v.astype("f4"), k) for k, v in weights.items()],
)
onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), folder / "model.onnx")
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
TextEmbedding.add_custom_model(
    model="own/small",
    pooling=PoolingType.MEAN,
    normalization=True,
    sources=ModelSource(url="https://example.org/small.tar.gz"),
    dim=16,
    model_file="model.onnx",
)
model = TextEmbedding("own/small", specific_model_path=str(folder), threads=1)
result = {"embeddings": list(model.embed(["hello small world", "models run anywhere", "quick unknown fox"]))}
""",
    "olive": """
import pathlib, tempfile
import numpy as np
import onnx, onnxruntime
from onnx import TensorProto, helper, numpy_helper
folder = pathlib.Path(tempfile.mkdtemp())
random = np.random.default_rng(1)
def weight(name, *shape):
    return numpy_helper.from_array((random.standard_normal(shape) / 4).astype("f4"), name)
nodes = [
    helper.make_node("Conv", ["x", "k"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    helper.make_node("Relu", ["c"], ["r"]),
    helper.make_node("GlobalAveragePool", ["r"], ["p"]),
    helper.make_node("Flatten", ["p"], ["f"]),
    helper.make_node("MatMul", ["f", "w"], ["m"]),
    helper.make_node("Add", ["m", "b"], ["a"]),
    helper.make_node("Softmax", ["a"], ["y"], axis=-1),
]
graph = helper.make_graph(
    nodes,
    "g",
    [helper.make_tensor_value_info("x", 1, ["n", 3, 16, 16])],
    [helper.make_tensor_value_info("y", 1, ["n", 10])],
    [weight("k", 32, 3, 3, 3), weight("w", 32, 10), weight("b", 10)],
)
onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), folder / "model.onnx")
from olive.model import ONNXModelHandler
from olive.passes.olive_pass import create_pass_from_dict
from olive.passes.onnx.dynamic_to_fixed_shape import DynamicToFixedShape
from olive.passes.onnx.float16_conversion import OnnxFloatToFloat16
from olive.passes.onnx.peephole_optimizer import OnnxPeepholeOptimizer
from olive.passes.onnx.quantization import OnnxDynamicQuantization
from olive.passes.onnx.transformer_optimization import OrtTransformersOptimization
feeds = {"x": random.standard_normal((1, 3, 16, 16)).astype("f4")}
result = {}
def outputs(model):
    path = model.model_path if hasattr(model, "model_path") else str(model)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return [
        np.asarray(each, "f4")
        for each in session.run(
            None,
            {k: v.astype("f2") if session.get_inputs()[0].type == "tensor(float16)" else v for k, v in feeds.items()},
        )
    ]
for cls, config in (
    (DynamicToFixedShape, {"dim_param": ["n"], "dim_value": [1]}),
    (OnnxFloatToFloat16, {}),
    (OnnxFloatToFloat16, {"keep_io_types": True}),
    (OnnxPeepholeOptimizer, {}),
    (OnnxDynamicQuantization, {}),
    (OrtTransformersOptimization, {"model_type": "bert", "opt_level": 0}),
    (OrtTransformersOptimization, {"model_type": "bert", "opt_level": 1, "only_onnxruntime": True}),
):
    name = f"{cls.__name__} {config}"
    try:
        made = create_pass_from_dict(cls, config, disable_search=True).run(
            ONNXModelHandler(model_path=str(folder / "model.onnx")), str(folder / f"{len(result)}")
        )
        result[name] = outputs(made)
    except Exception as error:
        result[name] = f"{type(error).__name__}"
        print(name, error)
""",
    "sentence-transformers": """
import pathlib, tempfile
import numpy as np
import torch
from transformers import BertConfig, BertModel, BertTokenizerFast
folder = pathlib.Path(tempfile.mkdtemp())
words = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "hello",
    "world",
    "small",
    "models",
    "run",
    "anywhere",
    "quick",
    "fox",
]
(folder / "vocab.txt").write_text("\\n".join(words))
torch.manual_seed(1)
BertModel(
    BertConfig(
        vocab_size=13,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=32,
    )
).eval().save_pretrained(folder / "bert")
BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder / "bert")
from sentence_transformers import SentenceTransformer, models, util
transformer = models.Transformer(str(folder / "bert"), max_seq_length=16)
SentenceTransformer(modules=[transformer, models.Pooling(32)], device="cpu").save(str(folder / "sentence"))
model = SentenceTransformer(
    str(folder / "sentence"),
    backend="onnx",
    device="cpu",
    model_kwargs={"provider": "CPUExecutionProvider", "export": True},
)
texts = ["hello small world", "models run anywhere", "quick fox", "hello fox"]
embeddings = model.encode(texts)
result = {"embeddings": embeddings, "similar": util.cos_sim(embeddings, embeddings).numpy()}
from sentence_transformers.backend import export_dynamic_quantized_onnx_model, export_optimized_onnx_model
for name, action in (
    ("O2", lambda: export_optimized_onnx_model(model, "O2", str(folder / "sentence"))),
    ("avx2", lambda: export_dynamic_quantized_onnx_model(model, "avx2", str(folder / "sentence"))),
):
    action()
    file = next(
        each
        for each in sorted((folder / "sentence/onnx").glob("model_*.onnx"))
        if name in each.name or "avx2" in each.name
    )
    other = SentenceTransformer(
        str(folder / "sentence"),
        backend="onnx",
        device="cpu",
        model_kwargs={"provider": "CPUExecutionProvider", "file_name": f"onnx/{file.name}"},
    )
    result[name] = other.encode(texts)
""",
    "txtai": """
import pathlib, tempfile
import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizerFast
folder = pathlib.Path(tempfile.mkdtemp())
words = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "hello",
    "world",
    "small",
    "models",
    "run",
    "anywhere",
    "quick",
    "fox",
]
(folder / "vocab.txt").write_text("\\n".join(words))
sizes = dict(
    vocab_size=13,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=48,
    max_position_embeddings=32,
)
for name, cls in (("plain", BertModel), ("classes", BertForSequenceClassification)):
    torch.manual_seed(1)
    cls(BertConfig(num_labels=3, **sizes)).eval().save_pretrained(folder / name)
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder / name)
from txtai.models import OnnxModel
from txtai.pipeline import HFOnnx, Labels
export = HFOnnx()
tokens = BertTokenizerFast.from_pretrained(folder / "plain")(
    ["hello small world", "quick fox"], padding=True, return_tensors="pt"
)
result = {}
for quantize in (False, True):
    path = export(str(folder / "plain"), "pooling", str(folder / f"pooling-{quantize}.onnx"), quantize=quantize)
    found = OnnxModel(path)(**tokens)
    result[f"pooling {quantize}"] = np.asarray(found[0] if isinstance(found, (list, tuple)) else found)
    path = export(
        str(folder / "classes"), "text-classification", str(folder / f"classes-{quantize}.onnx"), quantize=quantize
    )
    labels = Labels((path, str(folder / "classes")), dynamic=False)
    result[f"labels {quantize}"] = [list(each) for each in labels(["hello small world", "quick fox"])]
""",
    "mlflow": """
import os, tempfile
folder = tempfile.mkdtemp()
os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/m.db"
import mlflow, numpy as np, pandas as pd
from onnx import parser
def model(text):
    return parser.parse_model('<ir_version: 8, opset_import: ["": 17]> net ' + text)
net = model('''(float[N, 4] x) => (float[N, 2] y, int64[N] label) <float[4, 2] w = {1, 2, 3, -4, 5, 6, 7, -8}> {
    a = MatMul (x, w)
    y = Softmax (a)
    label = ArgMax <axis = 1, keepdims = 0> (y)
}''')
columns = model('''(float[N] a, double[N] b, string[N] c, int64[N] d) => (float[N] y, string[N] s) {
    e = Cast <to = 1> (b)
    f = Cast <to = 1> (d)
    g = Add (a, e)
    y = Add (g, f)
    s = Identity (c)
}''')
x = np.random.default_rng(1).standard_normal((5, 4)).astype("f4")
options = {"graph_optimization_level": 99, "intra_op_num_threads": 1, "execution_mode": "sequential",
    "extra_session_config": {"session.set_denormal_as_zero": "1"}}
needs = {"pip_requirements": ["onnx"]}  # else it resolves what a process that predicts imports
mlflow.onnx.save_model(net, folder + "/net", onnx_session_options=options,
    onnx_execution_providers=["CUDAExecutionProvider", "CPUExecutionProvider"], **needs)
mlflow.onnx.save_model(columns, folder + "/columns", **needs)
frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1].astype("f8"), "d": np.arange(5)})
frame["c"] = pd.Series(list("abcde"), dtype=object)
def plain(found):
    return {name: np.asarray(value, str if name == "s" else None) for name, value in dict(found).items()}
loaded = mlflow.pyfunc.load_model(folder + "/net")
result = {"net": [plain(loaded.predict(each)) for each in (x, {"x": x})],
    "columns": plain(mlflow.pyfunc.load_model(folder + "/columns").predict(frame))}
""",
    "bentoml": """
import os, tempfile
os.environ |= {"BENTOML_HOME": tempfile.mkdtemp(), "BENTOML_DO_NOT_TRACK": "True"}
import bentoml, numpy as np, onnxruntime
from onnx import parser
model = parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
    net (float[N, 4] x, float[N, 4] z) => (float[N, 4] y, int64[N] label) {
    a = Add (x, z)
    y = Softmax (a)
    label = ArgMax <axis = 1, keepdims = 0> (y)
}''')
x = np.random.default_rng(1).standard_normal((5, 4)).astype("f4")
bentoml.onnx.save_model("net", model, signatures={"run": {"batchable": True}})
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 2
found = [bentoml.onnx.load_model("net", **given).run(None, {"x": x, "z": x})
    for given in ({"providers": ["CPUExecutionProvider"]}, {"session_options": options})]
runnable = bentoml.onnx.get_runnable(bentoml.onnx.get("net:latest"))()
result = {"loaded": found, "runnable": list(runnable.run(x, x.astype("f8")))}
wanted = [("OpenVINOExecutionProvider", {"device_type": "CPU"}), "CPUExecutionProvider"]
for name, providers in (("many", wanted), ("unknown", ["NoProvider"])):
    try:
        result[name] = bentoml.onnx.load_model("net", providers=providers).get_providers()
    except Exception as error:
        result[name] = type(error).__name__
""",
    "npu-easy": """
import os, tempfile
os.chdir(tempfile.mkdtemp())
import npu_easy, numpy as np, onnx
from onnx import parser
text = '<ir_version: 8, opset_import: ["": 17]> net (float[N, 4] x) => (float[N, 4] y) { y = Relu (x) }'
onnx.save(parser.parse_model(text), "net.onnx")
x, result = np.random.default_rng(1).standard_normal((3, 4)).astype("f4"), {}
for provider, given in (
    (None, {}),
    ("CPU", {"execution_mode": "sequential", "session_config": {"session.set_denormal_as_zero": "1"}}),
    ("CPUExecutionProvider", {"intra_op_num_threads": 1, "enable_profiling": True, "profile_file_prefix": "trace"}),
    ("CUDAExecutionProvider", {"graph_optimization_level": "basic"}),
):
    model = npu_easy.NPUModel("net.onnx", provider=provider, **given)
    facts = [model.provider, model.used_fallback, model.active_providers, sorted(model.get_info())]
    facts += [sorted(model.benchmark({"x": x})), "enable_profiling" in given and os.path.exists(model.end_profiling())]
    result[str(provider)] = [model.run(x), model.run_named({"x": x}), facts]
""",
}
