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
}
