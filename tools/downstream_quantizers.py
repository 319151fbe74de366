"""Unchanged programs that fuse, quantize and diagnose a transformer which torch exports: they need torch."""

from __future__ import annotations

EXPORTED = """
import logging, pathlib, tempfile
import numpy as np, onnx, onnxruntime, torch
from transformers import BertConfig, BertModel
logging.disable(logging.CRITICAL)
torch.manual_seed(0)
folder = pathlib.Path(tempfile.mkdtemp())
path, target = str(folder / "bert.onnx"), str(folder / "changed.onnx")
config = BertConfig(vocab_size=99, hidden_size=32, num_attention_heads=4, num_hidden_layers=2, intermediate_size=64,
    max_position_embeddings=16, attn_implementation="eager", return_dict=False)
ids, mask = torch.randint(3, 90, (2, 8)), torch.ones(2, 8, dtype=torch.int64)
mask[1, 5:] = 0
torch.onnx.export(BertModel(config, add_pooling_layer=False).eval(), (ids, mask), path,
    input_names=["input_ids", "attention_mask"], output_names=["states"], opset_version=17, dynamo=False,
    dynamic_axes={"input_ids": {0: "batch"}, "attention_mask": {0: "batch"}})
feeds = {"input_ids": ids.numpy(), "attention_mask": mask.numpy()}
def states(changed):
    return onnxruntime.InferenceSession(changed, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
"""

QUANTIZERS = {
    "onnx-diagnostic": EXPORTED
    + """
from onnx_diagnostic.torch_models.validate import run_ort_fusion
said, _ = run_ort_fusion(path, target, 4, 32, "bert")
result = {"failed": [name for name in said if name.startswith("ERR")], "states": states(target)}
""",
    "neural-compressor": EXPORTED
    + """
from neural_compressor.adaptor.ox_utils.util import infer_shapes  # its quantizers need onnx below 1.19
inferred = infer_shapes(onnx.load(path), auto_merge=True)
sizes = {each.name: [dim.dim_value for dim in each.type.tensor_type.shape.dim if dim.dim_value]
         for each in inferred.graph.output}
known = {each.name for each in inferred.graph.value_info}
result = {"outputs": sizes, "known": all(name in known for node in inferred.graph.node[:-1] for name in node.output)}
""",
    "modelopt": EXPORTED
    + """
from modelopt.onnx.quantization import quantize
result, expected = {}, states(path)
for method in ("max", "entropy"):
    quantize(path, quantize_mode="int8", calibration_data=feeds, calibration_method=method, calibration_eps=["cpu"],
        output_path=target)
    kinds = [node.op_type for node in onnx.load(target).graph.node]
    counts = {name: kinds.count(name) for name in ("QuantizeLinear", "DequantizeLinear", "MatMul", "Add")}
    error = np.abs(states(target) - expected).mean() / np.abs(expected).mean()
    result[method] = {"counts": counts, "near": bool(error < 0.1)}
""",
}
