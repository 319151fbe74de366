"""Unchanged programs on onnxruntime and on ort-core: ``python tools/downstream.py [NAME ...]``, ``nox -s downstream``.

Each program is run twice in processes of its own, by ``python`` and by ``python -m ort_core.dropin``, and leaves what
it found in a file: numbers and texts by name. Both must agree, numbers to a thousandth of the largest. The exit status
is the number of programs that differ; a program whose packages are not installed is said to be absent, and fails too.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

TOLERANCE = 1e-3  # of the largest number: quantised models may differ by a step, which is far below
TIME_LIMIT_S = 900
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
}
END = """
import pickle, sys
with open(sys.argv[1], "wb") as file:
    pickle.dump(result, file)
"""


def run(program: str, runner: list[str], folder: Path) -> tuple[object, str]:
    """Run a program; return what it left, and what it says where it left nothing."""
    path, target = folder / "program.py", folder / "result.pickle"
    path.write_text("import warnings\nwarnings.simplefilter('ignore')\n" + program + END, encoding="utf-8")
    target.unlink(missing_ok=True)
    command = [sys.executable, *runner, str(path), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIME_LIMIT_S)
    if done.returncode:
        return None, (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return pickle.loads(target.read_bytes()), ""


def differences(ours: object, theirs: object, where: str = "") -> list[str]:
    """Return where two results differ, in words."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        if ours.keys() != theirs.keys():
            return [f"{where}: other keys"]
        return [each for key in theirs for each in differences(ours[key], theirs[key], f"{where}/{key}")]
    if isinstance(theirs, (list, tuple)) and isinstance(ours, (list, tuple)):
        if len(ours) != len(theirs):
            return [f"{where}: {len(ours)} instead of {len(theirs)}"]
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [each for number, pair in pairs for each in differences(*pair, f"{where}/{number}")]
    mine, wanted = np.asarray(ours), np.asarray(theirs)
    if mine.dtype != wanted.dtype or mine.shape != wanted.shape:
        return [f"{where}: {mine.dtype}{mine.shape} instead of {wanted.dtype}{wanted.shape}"]
    if wanted.dtype.kind not in "fiu":
        return [] if np.array_equal(mine, wanted) else [f"{where}: {ours!r} instead of {theirs!r}"[:200]]
    scale = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-30))
    worst = float(np.abs(mine.astype(np.float64) - wanted).max(initial=0)) / scale
    return [f"{where}: {worst:.2g} of the largest number"] if not worst <= TOLERANCE else []


def count(result: object) -> int:
    """Return how many numbers and texts a result holds."""
    if isinstance(result, dict):
        return sum(map(count, result.values()))
    return sum(map(count, result)) if isinstance(result, (list, tuple)) else int(np.asarray(result).size)


def judge(name: str, folder: Path) -> bool:
    """Run one program on both, print its row, and return whether they agree."""
    start = time.perf_counter()
    theirs, problem = run(PROGRAMS[name], [], folder)
    middle = time.perf_counter()
    ours, own_problem = (None, "") if problem else run(PROGRAMS[name], ["-m", "ort_core.dropin"], folder)
    end = time.perf_counter()
    if problem:
        print(f"{name:14} absent  onnxruntime's own run fails: {problem}")
        return False
    found = [own_problem] if own_problem else differences(ours, theirs)
    verdict = "differ" if found else "pass"
    print(
        f"{name:14} {verdict:7} {count(theirs):7,} values, {middle - start:5.1f} s and {end - middle:5.1f} s",
        flush=True,
    )
    for each in found[:10]:
        print(f"    {each}")
    return not found


def main(names: list[str]) -> int:
    """Run the named programs, or all; return how many do not agree."""
    with tempfile.TemporaryDirectory() as folder:
        return sum(not judge(name, Path(folder)) for name in names or PROGRAMS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
