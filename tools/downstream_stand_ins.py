"""Unchanged programs whose trained models no wheel brings: small ones of the same inputs and outputs stand in.

What is run is the programs' own way of making sessions, feeding them and reading what they say of themselves.
"""

from __future__ import annotations

BUILT = """
import os, pathlib, tempfile
import numpy as np, onnx
from onnx import helper, numpy_helper, parser
random, folder = np.random.default_rng(1), pathlib.Path(tempfile.mkdtemp())
def save(name, text, whole=(), **shapes):
    model = parser.parse_model('<ir_version: 8, opset_import: ["": 17]> net ' + text)
    for key, shape in shapes.items():
        array = (random.standard_normal(shape) / 4).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, key))
    for key, numbers in dict(whole).items():
        model.graph.initializer.append(numpy_helper.from_array(np.array(numbers), key))
    path = folder / f"{name}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return str(path)
"""
TOKENS = """
from tokenizers import Tokenizer, models, pre_tokenizers, processors
words = ["[PAD]", "[UNK]", "hello", "world", "small", "models", "run", "anywhere", "quick", "fox", "[CLS]", "[SEP]"]
tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
texts = ["hello small world", "models run anywhere", "quick fox", "hello fox"]
"""
STAND_INS = {
    "insightface": BUILT
    + """
import pickle
arc = save("arc", '''(float[N, 3, 112, 112] data) => (float[N, 32] fc1) {
    a = Conv <strides = [8, 8]> (data, w)
    b = PRelu (a, p)
    c = GlobalAveragePool (b)
    f = Flatten (c)
    fc1 = Gemm (f, v, u)
}''', w=(16, 3, 3, 3), p=(16, 1, 1), v=(16, 32), u=(32,))
heads = "".join(f'''
    q{s} = AveragePool <kernel_shape = [{s}, {s}], strides = [{s}, {s}]> (x)
    e{s} = Conv (q{s}, we)
    f{s} = Sigmoid (e{s})
    g{s} = Transpose <perm = [0, 2, 3, 1]> (f{s})
    s{s} = Reshape (g{s}, one)
    h{s} = Conv (q{s}, wh)
    i{s} = Abs (h{s})
    j{s} = Transpose <perm = [0, 2, 3, 1]> (i{s})
    b{s} = Reshape (j{s}, four)
    k{s} = Conv (q{s}, wk)
    l{s} = Transpose <perm = [0, 2, 3, 1]> (k{s})
    p{s} = Reshape (l{s}, ten)''' for s in (8, 16, 32))
columns = (("s", 1), ("b", 4), ("p", 10))
outputs = ", ".join(f"float[M, {count}] {name}{s}" for name, count in columns for s in (8, 16, 32))
shapes = dict(one=[-1, 1], four=[-1, 4], ten=[-1, 10])
found = save("found", f"(float[1, 3, H, W] x) => ({outputs}) {{{heads} }}", shapes,
    we=(2, 3, 1, 1), wh=(8, 3, 1, 1), wk=(20, 3, 1, 1))
from insightface.model_zoo import get_model
picture = random.integers(0, 255, (320, 320, 3), dtype=np.uint8)
face = get_model(arc, providers=[("CUDAExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"])
face.prepare(-1)
again = pickle.loads(pickle.dumps(face.session))
detector = get_model(found)
detector.prepare(-1, input_size=(320, 320), det_thresh=0.6)
result = {"kinds": [type(each).__name__ for each in (face, detector)], "providers": again.get_providers(),
    "features": face.get_feat([picture[:112, :112], picture[100:212, 100:212]]),
    "again": again.run(None, {"data": np.ones((1, 3, 112, 112), np.float32)}),
    "faces": [np.asarray(each) for each in detector.detect(picture, max_num=5)]}
""",
    "kokoro-onnx": BUILT
    + """
import json
from kokoro_onnx import Kokoro
result, letters = {}, " abcdefghijklmnopqrstuvwxyz.,!?"
voices = str(folder / "voices.npz")
np.savez(voices, af=random.standard_normal((510, 1, 256)).astype(np.float32))
for kind in ("float", "int32"):
    path = save(kind, f'''(int64[1, T] input_ids, float[1, 256] style, {kind}[1] speed)
        => (float[A] waveform, int64[T] duration) {{
        e = Gather (table, input_ids)
        a = Add (e, style)
        m = MatMul (a, w)
        t = Tanh (m)
        s = Cast <to = 1> (speed)
        q = Div (t, s)
        waveform = Reshape (q, flat)
        n = Shape (input_ids)
        d = Expand (two, n)
        duration = Reshape (d, flat)
    }}''', dict(two=[2], flat=[-1]), table=(200, 256), w=(256, 600))
    model = onnx.load(path)
    vocabulary = {letter: place for place, letter in enumerate(letters, 1)}
    helper.set_model_props(model, {"kokoro_config": json.dumps({"vocab": vocabulary}), "other": "\\u00fcn\\u00ef"})
    onnx.save(model, path)
    speaker = Kokoro(path, voices)
    audio, rate, times = speaker.create_timed("hello there. my world, good!", "af", speed=1.5, is_phonemes=True)
    result[kind] = [audio, rate, list(map(str, times)), speaker.sess.get_modelmeta().custom_metadata_map]
""",
    "chromadb": BUILT
    + TOKENS
    + """
os.environ |= {"HOME": str(folder), "ANONYMIZED_TELEMETRY": "False"}
place = folder / ".cache/chroma/onnx_models/all-MiniLM-L6-v2/onnx"
save(".cache/chroma/onnx_models/all-MiniLM-L6-v2/onnx/model", '''(int64[B, S] input_ids, int64[B, S] attention_mask,
    int64[B, S] token_type_ids) => (float[B, S, 384] last_hidden_state) {
    e = Gather (table, input_ids)
    t = Gather (kinds, token_type_ids)
    a = Add (e, t)
    m = MatMul (a, w)
    n = LayerNormalization (m, g)
    last_hidden_state = Tanh (n)
}''', table=(12, 384), kinds=(2, 384), w=(384, 384), g=(384,))
tokenizer.save(str(place / "tokenizer.json"))
for name in ("config.json", "special_tokens_map.json", "tokenizer_config.json", "vocab.txt"):
    (place / name).write_text("{}")
import chromadb
collection = chromadb.EphemeralClient().create_collection("texts")
collection.add(ids=list("abcd"), documents=texts)
found = collection.query(query_texts=["small fox", "run world"], n_results=3, include=["distances", "embeddings"])
result = {"ids": found["ids"], "distances": found["distances"], "embeddings": np.asarray(found["embeddings"])}
from chromadb.utils.embedding_functions import ONNXMiniLM_L6_V2
result["named"] = np.asarray(ONNXMiniLM_L6_V2(preferred_providers=["CPUExecutionProvider"])(texts * 12))
""",
    "flashrank": BUILT
    + TOKENS
    + """
from flashrank import Ranker, RerankRequest
place, result = folder / "ms-marco-TinyBERT-L-2-v2", {}
for classes in (1, 2):
    save("ms-marco-TinyBERT-L-2-v2/flashrank-TinyBERT-L-2-v2", f'''(int64[B, S] input_ids, int64[B, S] attention_mask,
        int64[B, S] token_type_ids) => (float[B, {classes}] logits) {{
        e = Gather (table, input_ids)
        t = Gather (kinds, token_type_ids)
        a = Add (e, t)
        m = MatMul (a, w)
        p = ReduceMax <axes = [1], keepdims = 0> (m)
        logits = MatMul (p, v)
    }}''', table=(12, 64), kinds=(2, 64), w=(64, 64), v=(64, classes))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 11), ("[CLS]", 10))
    tokenizer.save(str(place / "tokenizer.json"))
    (place / "config.json").write_text('{"pad_token_id": 0}')
    (place / "tokenizer_config.json").write_text('{"model_max_length": 32, "pad_token": "[PAD]"}')
    (place / "special_tokens_map.json").write_text('{"pad_token": "[PAD]"}')
    ranker = Ranker(cache_dir=str(folder), max_length=32, log_level="ERROR")
    request = RerankRequest(query="hello fox", passages=[{"id": i, "text": text} for i, text in enumerate(texts)])
    result[str(classes)] = [[each["id"], float(each["score"])] for each in ranker.rerank(request)]
""",
    "openwakeword": BUILT
    + """
mel = save("mel", '''(float[batch_size, samples] input) => (float[time, 1, O, 32] output) <float eps = {1.0}> {
    u = Unsqueeze (input, one)
    c = Conv <strides = [160]> (u, w)
    d = Mul (c, c)
    e = Add (d, eps)
    l = Log (e)
    t = Transpose <perm = [0, 2, 1]> (l)
    output = Unsqueeze (t, one)
}''', dict(one=[1]), w=(32, 1, 512))
embedding = save("embedding", '''(float[N, 76, 32, 1] input_1) => (float[N, 1, 1, 96] conv2d_19) {
    t = Transpose <perm = [0, 3, 1, 2]> (input_1)
    c = Conv <strides = [2, 2]> (t, w)
    r = LeakyRelu (c)
    q = Conv (r, v)
    g = GlobalMaxPool (q)
    conv2d_19 = Transpose <perm = [0, 2, 3, 1]> (g)
}''', w=(16, 1, 3, 3), v=(96, 16, 3, 3))
wake = save("wake", '''(float[1, 16, 96] x) => (float[1, 1] y) {
    f = Flatten (x)
    a = Gemm (f, w, b)
    n = LayerNormalization (a, b)
    h = Relu (n)
    o = MatMul (h, v)
    y = Sigmoid (o)
}''', w=(1536, 32), b=(32,), v=(32, 1))
from openwakeword.model import Model
np.random.seed(3)  # it begins with noise
model = Model(wakeword_models=[wake], inference_framework="onnx", melspec_model_path=mel,
    embedding_model_path=embedding)
time = np.arange(16000 * 3) / 16000
sound = (8000 * np.sin(2 * np.pi * 300 * time * (1 + 0.1 * np.sin(time)))).astype(np.int16)
starts = range(0, sound.size - 1280, 1280)
result = {"chances": [float(*model.predict(sound[start:start + 1280]).values()) for start in starts],
    "features": model.preprocessor.embed_clips(np.stack([sound, sound[::-1]]), batch_size=2, ncpu=2)}
""",
    "rtmlib": BUILT
    + """
from rtmlib import RTMDet, RTMPose
pose = save("pose", '''(float[N, 3, 256, 192] input) => (float[N, 17, 384] simcc_x, float[N, 17, 512] simcc_y) {
    c = Conv <strides = [32, 32]> (input, w)
    r = Relu (c)
    f = Reshape (r, s)
    h = MatMul (f, k)
    n = Mul (h, h)
    simcc_x = MatMul (h, x)
    simcc_y = MatMul (n, y)
}''', dict(s=[0, 17, -1]), w=(17, 3, 3, 3), k=(48, 64), x=(64, 384), y=(64, 512))
boxes = save("boxes", '''(float[1, 3, 320, 320] input) => (float[1, K, 5] dets, int64[1, K] labels)
    <float score = {0.3}, float share = {0.5}, int64 most = {20}, int64 two = {2}> {
    c = Conv <strides = [32, 32]> (input, w)
    f = Reshape (c, s)
    t = Transpose <perm = [0, 2, 1]> (f)
    b, q = Split <axis = 2> (t, parts)
    bb = Abs (b)
    sg = Sigmoid (q)
    st = Transpose <perm = [0, 2, 1]> (sg)
    chosen = NonMaxSuppression (bb, st, most, share, score)
    places = Gather <axis = 1> (chosen, two)
    gb = Gather <axis = 1> (bb, places)
    gs = Gather <axis = 1> (sg, places)
    dets = Concat <axis = 2> (gb, gs)
    z = Mul (places, zero)
    labels = Unsqueeze (z, zero)
}''', dict(s=[0, 5, -1], parts=[4, 1], zero=[0]), w=(5, 3, 3, 3))
picture = random.integers(0, 255, (400, 300, 3), dtype=np.uint8)
found = RTMPose(pose, model_input_size=(192, 256))
elsewhere = RTMPose(pose, model_input_size=(192, 256), device="cuda:1")  # which is not there
result = {"pose": found(picture, bboxes=[[0, 0, 200, 200], [50, 60, 280, 390]]), "cuda": elsewhere(picture),
    "boxes": RTMDet(boxes, model_input_size=(320, 320))(picture)}
""",
    "supertonic": BUILT
    + """
from supertonic import core, loader
texts = {
    "duration": '''(int64[B, T] text_ids, float[B, 8, 16] style_dp, float[B, 1, T] text_mask) => (float[B] duration) {
        e = Gather (t, text_ids)
        m = Squeeze (text_mask, one)
        a = Mul (e, m)
        s = ReduceSum <keepdims = 0> (a, one)
        q = ReduceMean <axes = [1, 2], keepdims = 0> (style_dp)
        h = Add (s, q)
        n = Abs (h)
        duration = Add (n, u)
    }''',
    "text": '''(int64[B, T] text_ids, float[B, 50, 32] style_ttl, float[B, 1, T] text_mask)
        => (float[B, 32, T] text_emb) {
        e = Gather (table, text_ids)
        x = Transpose <perm = [0, 2, 1]> (e)
        c = Conv <pads = [2, 2]> (x, w)
        s = ReduceMean <axes = [1], keepdims = 1> (style_ttl)
        r = Transpose <perm = [0, 2, 1]> (s)
        a = Add (c, r)
        text_emb = Mul (a, text_mask)
    }''',
    "estimate": '''(float[B, 12, L] noisy_latent, float[B, 32, T] text_emb, float[B, 50, 32] style_ttl,
        float[B, 1, T] text_mask, float[B, 1, L] latent_mask, float[B] current_step, float[B] total_step)
        => (float[B, 12, L] denoised) {
        q = Conv <pads = [1, 1]> (noisy_latent, wq)
        qt = Transpose <perm = [0, 2, 1]> (q)
        sc = MatMul (qt, text_emb)
        p = Softmax (sc)
        k = Transpose <perm = [0, 2, 1]> (text_emb)
        v = MatMul (p, k)
        vt = Transpose <perm = [0, 2, 1]> (v)
        o = Conv (vt, wo)
        f = Div (current_step, total_step)
        g = Unsqueeze (f, ax)
        h = Mul (o, g)
        n = Sub (noisy_latent, h)
        d = Mul (n, latent_mask)
        denoised = Tanh (d)
    }''',
    "voice": '''(float[B, 12, L] latent) => (float[B, W] wav) {
        c = ConvTranspose <strides = [96]> (latent, w)
        wav = Reshape (c, s)
    }'''}
shapes = (dict(t=(300,), u=(1,)), dict(table=(300, 32), w=(32, 32, 5)), dict(wq=(32, 12, 3), wo=(12, 32, 1)),
    dict(w=(12, 1, 96)))
whole = (dict(one=[1]), {}, dict(ax=[1, 2]), dict(s=[0, -1]))
places = loader.get_all_onnx_module_relative_paths()
for place, text, numbers, tables in zip(places, texts.values(), whole, shapes):
    save(str(place.with_suffix("")), text, numbers, **tables)
class Letters(core.UnicodeProcessor):
    def __init__(self):
        pass
    def __call__(self, texts, lang=None):
        longest = max(map(len, texts))
        ids = np.array([[ord(letter) for letter in text.ljust(longest)] for text in texts])
        mask = [[float(place < len(text)) for place in range(longest)] for text in texts]
        return ids, np.array(mask, np.float32)[:, None]
sizes = {"ae": {"sample_rate": 8000, "base_chunk_size": 96}, "ttl": {"chunk_compress_factor": 2, "latent_dim": 6}}
engine = core.Supertonic(sizes, Letters(), *loader.load_onnx_modules(folder, 1, 1))
style = core.Style(*(random.standard_normal(shape).astype(np.float32) for shape in ((2, 50, 32), (2, 8, 16))))
np.random.seed(3)  # it begins with noise
result = {"spoken": engine(["hello world", "how are you?"], style, total_step=3)}
""",
}
