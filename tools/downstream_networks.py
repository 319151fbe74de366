"""Unchanged programs that export torch's networks and run them over onnxruntime: YOLOs, chains, volumes."""

from __future__ import annotations

NETWORKS = {
    "ultralytics": """
import os, tempfile
folder = tempfile.mkdtemp()
os.environ |= {"YOLO_OFFLINE": "1", "YOLO_AUTOINSTALL": "false", "YOLO_CONFIG_DIR": folder}
os.chdir(folder)
import numpy as np, onnxruntime, torch
from ultralytics import YOLO
random = np.random.default_rng(1)
picture, result = random.integers(0, 255, (240, 320, 3), dtype=np.uint8), {}
feed = np.random.default_rng(2).random((1, 3, 224, 224)).astype("f4")
for name, given in (("yolov8n.yaml", {}), ("yolo11n-seg.yaml", {}), ("yolo11n-cls.yaml", {"dynamic": True})):
    torch.manual_seed(1)
    model = YOLO(name)
    for parameter in model.model.parameters():
        if parameter.dim() == 1:
            parameter.data.add_(0.3 * torch.rand_like(parameter))
    path = model.export(format="onnx", imgsz=224, opset=17, simplify=False, **given)
    found = YOLO(path, task=model.task).predict(picture, conf=0.001, max_det=20, imgsz=224, verbose=False)[0]
    parts = {part: getattr(found, part) for part in ("boxes", "masks", "probs")}
    session = onnxruntime.InferenceSession(path)
    facts = session.get_modelmeta().custom_metadata_map
    result[name] = {part: value.data.numpy() for part, value in parts.items() if value is not None}
    result[name] |= {"facts": {key: text for key, text in facts.items() if key != "date"}}
    result[name] |= {"raw": session.run(None, {session.get_inputs()[0].name: feed})}
""",
    "kornia": """
import tempfile
import numpy as np, onnx, onnxruntime, torch
from kornia.filters import GaussianBlur2d, Sobel
from kornia.onnx import ONNXSequential
from onnx import parser
def saved(text):
    path = tempfile.mktemp(suffix=".onnx")
    onnx.save(parser.parse_model('<ir_version: 8, opset_import: ["": 17]> ' + text), path)
    return path
given, taken = "(float[N, 3, H, W] input)", "(float[N, 3, H, W] output)"
one = saved(f"one {given} => {taken} {{ t = Sigmoid (input)\\n output = Mul (t, input) }}")
two = saved(f"two {given} => (float[N, 3, 1, 1] output) {{ output = GlobalAveragePool (input) }}")
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
x = np.random.default_rng(1).random((2, 3, 8, 8)).astype("f4")
chain, plain = ONNXSequential(one, two), ONNXSequential(one, two, session_options=options)
result = {"chain": [chain(x), plain(x)], "names": [each.name for each in chain.get_session().get_inputs()]}
for op in (GaussianBlur2d((3, 3), (1.5, 1.5)), Sobel()):
    path = tempfile.mktemp(suffix=".onnx")
    torch.onnx.export(op, (torch.rand(2, 3, 8, 8),), path, dynamo=False, input_names=["x"])
    result[type(op).__name__] = onnxruntime.InferenceSession(path).run(None, {"x": x})
""",
    "monai": """
import numpy as np, onnxruntime, torch
from monai.networks import convert_to_onnx
from monai.networks.nets import BasicUNet, UNet
torch.manual_seed(1)
result = {}
checked = dict(verify=True, use_ort=True, device="cpu", use_trace=True, rtol=1e-3, atol=1e-4, opset_version=17)
for name, net, shape in (("flat", UNet(2, 1, 2, (8, 16, 32), (2, 2)), (1, 1, 32, 32)),
    ("deep", BasicUNet(3, 1, 2, (8, 8, 16, 16, 16, 8)), (1, 1, 32, 32, 32))):
    made = convert_to_onnx(net.eval(), [torch.rand(*shape)], **checked)  # which runs it and compares
    session = onnxruntime.InferenceSession(made.SerializeToString())
    feed = np.random.default_rng(1).random(shape).astype("f4")
    result[name] = session.run(None, {session.get_inputs()[0].name: feed})
""",
}
