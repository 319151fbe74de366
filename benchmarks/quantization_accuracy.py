"""What 8 bits cost trained networks: accuracy on data that calibration has not seen, or signal to noise without labels.

    python benchmarks/quantization_accuracy.py --models FOLDER --results benchmarks/results/NAME.jsonl

Perceptrons for scikit-learn's digits and wine are trained here, on half of the data; calibration sees samples of that
half, and the other half judges. The network of the digits example is judged by the digits that it has held out.
Trained models with labels or images: digits at 28 by 28 for the two MNIST networks of the folder, crops of one of
scikit-learn's photographs for calibration and of the other for the judge. Needs scikit-learn and pillow.
"""

from __future__ import annotations

import argparse
import json
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper
from ort_core.quantization.calibration.sample_files import SampleReader
from ort_core.quantization.layer_report import layer_report
from ort_core.quantization.models.model_files import converted_to
from sklearn import datasets
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

import ort_core
from ort_core.quantization import (
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quant_pre_process,
    quantize_dynamic,
    quantize_static,
)

Sample = dict[str, np.ndarray]
U8, S8 = QuantType.QUInt8, QuantType.QInt8
MOVES = 2  # pixels that an image is moved by each way: 25 images of each
OPSET = 13  # the first in which QDQ models have a scale for each channel
VARIANTS: dict[str, dict[str, object]] = {
    "qdq u8s8": {"activation_type": U8, "weight_type": S8},
    "qdq u8s8 per channel": {"activation_type": U8, "weight_type": S8, "per_channel": True},
    "qdq s8s8 per channel": {"activation_type": S8, "weight_type": S8, "per_channel": True},
    "qdq u8u8": {"activation_type": U8, "weight_type": U8},
    "qdq u8s8 percentile": {"activation_type": U8, "calibrate_method": CalibrationMethod.Percentile},
    "qdq u8s8 entropy": {"activation_type": U8, "calibrate_method": CalibrationMethod.Entropy},
    "qoperator u8s8": {"activation_type": U8, "quant_format": QuantFormat.QOperator},
    "qdq u8s8 equalized": {"activation_type": U8, "extra_options": {"CrossLayerEqualization": True}},
    "qdq u8s8 corrected": {"activation_type": U8, "extra_options": {"BiasCorrection": True}},
    "qdq u8s8 equalized, corrected": {
        "activation_type": U8, "extra_options": {"CrossLayerEqualization": True, "BiasCorrection": True},
    },
    "qdq u8s8 smoothed": {"activation_type": U8, "extra_options": {"SmoothQuant": True}},
    "dynamic": {},
}  # fmt: skip


@dataclass(frozen=True)
class Network:
    """A trained model with data.

    Attributes:
        name: of the model.
        model: in float32.
        seen: samples for calibration.
        judged: other samples.
        labels: of the judged ones, in their order; nothing where there are none.
    """

    name: str
    model: ModelProto
    seen: list[Sample]
    judged: list[Sample]
    labels: np.ndarray | None


def perceptron(name: str, data: object, hidden: tuple[int, ...]) -> Network:
    """Train a perceptron on half of a data set."""
    split = train_test_split(data.data, data.target, test_size=0.5, random_state=0)
    scaler = StandardScaler().fit(split[0])
    seen, judged = (scaler.transform(each).astype(np.float32) for each in split[:2])
    trained = MLPClassifier(hidden, max_iter=2000, random_state=0).fit(seen, split[2])
    value, nodes, tensors = "x", [], []
    for place, (weight, bias) in enumerate(zip(trained.coefs_, trained.intercepts_, strict=True)):
        for kind, array in (("w", weight), ("b", bias)):
            tensors.append(numpy_helper.from_array(array.astype(np.float32), f"{kind}{place}"))
        is_last = place + 1 == len(trained.coefs_)
        given = "scores" if is_last else f"h{place}"
        nodes.append(helper.make_node("Gemm", [value, f"w{place}", f"b{place}"], [given], f"gemm{place}"))
        if not is_last:
            nodes.append(helper.make_node("Relu", [given], [f"r{place}"], f"relu{place}"))
        value = f"r{place}"
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", seen.shape[1]])]
    outputs = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", len(trained.classes_)])]
    graph = helper.make_graph(nodes, name, inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    batches = [{"x": each} for each in np.array_split(seen, 8)]
    return Network(name, model, batches, [{"x": judged}], split[3])


def demo() -> Network:
    """Give the network of the digits example what it was trained on for calibration, and the digits held out."""
    folder = Path(__file__).parent.parent / "examples" / "digits"
    held = np.load(folder / "held_out.npz")
    images = datasets.load_digits().images.astype(np.uint8)
    known = {image.tobytes() for image in held["images"]}
    seen = np.stack([image for image in images if image.tobytes() not in known])[:, None].astype(np.float32)
    judged = held["images"][:, None].astype(np.float32)
    batches = [{"image": each} for each in np.array_split(seen, 16)]
    return Network(
        "digits, convolutions", onnx.load(folder / "digits.onnx"), batches, [{"image": judged}], held["labels"]
    )


def image_input(model: ModelProto) -> tuple[str, int, int, int]:
    """Return the name of a model's image, and its channels, height and width."""
    given = {each.name for each in model.graph.initializer}
    value = next(each for each in model.graph.input if each.name not in given)
    return value.name, *(size.dim_value for size in value.type.tensor_type.shape.dim[1:])


def mnist(path: Path, scale: float) -> Network:
    """Give scikit-learn's digits, enlarged, to a network that was trained on MNIST; it judges them moved about, too.

    Of 899 images, six more or fewer are 0.67 points, and so many have two scores that are nearly equal.
    """
    model = onnx.load(path)
    name, *_ = image_input(model)
    data = datasets.load_digits()
    large = np.kron(data.images, np.ones((3, 3))).astype(np.float32) / 16  # 8 by 8 to 24 by 24, then a border
    images = np.pad(large, ((0, 0), (2, 2), (2, 2)))[:, None] * np.float32(scale)
    half = len(images) // 2
    seen = [{name: images[place : place + 1]} for place in range(0, half, 7)]
    moves = [(down, right) for down in range(-MOVES, MOVES + 1) for right in range(-MOVES, MOVES + 1)]
    moved = np.concatenate([np.roll(images[half:], move, axis=(2, 3)) for move in moves])
    judged = [{name: moved[place : place + 1]} for place in range(len(moved))]
    return Network(path.parent.name, model, seen, judged, np.tile(data.target[half:], len(moves)))


def photographs(path: Path, offset: float, scale: float) -> Network:
    """Give crops of a photograph to a model for calibration, and those of another one to the judge."""
    model = onnx.load(path)
    name, _, height, width = image_input(model)
    parts: list[list[Sample]] = []
    for photograph in datasets.load_sample_images().images:
        random, crops = np.random.default_rng(0), []
        for _ in range(12):
            top = int(random.integers(0, photograph.shape[0] - height + 1))
            left = int(random.integers(0, photograph.shape[1] - width + 1))
            crop = photograph[top : top + height, left : left + width].astype(np.float32)
            crops.append({name: np.ascontiguousarray(((crop - offset) / scale).transpose(2, 0, 1)[None])})
        parts.append(crops)
    return Network(path.parent.name, model, parts[0], parts[1], None)


def networks(folder: Path | None, only: list[str] | None) -> Iterator[Network]:
    """Yield the trained networks, those of a folder where it has them."""
    if not only or "digits, perceptron" in only:
        yield perceptron("digits, perceptron", datasets.load_digits(), (64, 32))
    if not only or "wine, perceptron" in only:
        yield perceptron("wine, perceptron", datasets.load_wine(), (32,))
    if not only or "digits, convolutions" in only:
        yield demo()
    places = {name: folder / name / "model.onnx" for name in MODELS} if folder else {}
    for name, path in places.items():
        if path.exists() and (not only or name in only):
            make, *arguments = MODELS[name]
            yield make(path, *arguments)


def squeezenet(path: Path) -> Network:
    """Judge a classifier by its scores: what makes labels and maps of them is cut off."""
    model = onnx.load(path)
    last = next(place for place, node in enumerate(model.graph.node) if node.op_type == "ArgMax")
    scores = model.graph.node[last].input[0]
    del model.graph.node[last:], model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info(scores, TensorProto.FLOAT, None))
    with tempfile.TemporaryDirectory() as scratch:
        cut = Path(scratch) / path.parent.name / path.name
        cut.parent.mkdir()
        onnx.save(model, cut)
        return photographs(cut, 0.0, 1.0)


def contents(path: Path) -> Network:
    """Give files of this machine's Python to a model that tells their kinds; its float form says what is right."""
    model, width = onnx.load(path), 1024
    kinds: dict[str, list[Path]] = {}
    for each in sorted(Path(sysconfig.get_paths()["purelib"]).rglob("*")):
        if each.is_file() and each.stat().st_size > 2 * width and len(kinds.setdefault(each.suffix, [])) < 12:
            kinds[each.suffix].append(each)
    rows = []
    for each in (each for files in kinds.values() for each in files):
        content = each.read_bytes().strip()
        rows.append({"bytes": np.frombuffer(content[:width] + content[-width:], np.uint8)[None].astype(np.int32)})
    rows = [row for row in rows if row["bytes"].shape[1] == 2 * width]
    session = ort_core.InferenceSession(str(path))
    judged = rows[1::2]
    found = np.concatenate([np.asarray(session.run(None, row)[0]) for row in judged]).argmax(axis=-1)
    return Network(path.parent.name, model, rows[::4], judged, found)


MODELS: dict[str, tuple[object, ...]] = {
    "mnist_cntk": (mnist, 255.0), "mnist_pytorch_cnn": (mnist, 1.0), "ultraface_rfb_320": (photographs, 127.0, 128.0),
    "squeezenet_winml": (squeezenet,), "magika_v3_3": (contents,),
}  # fmt: skip


def scores(path: Path, samples: list[Sample]) -> np.ndarray:
    """Return the first result of all samples that is an array of floats."""
    session = ort_core.InferenceSession(str(path))
    return np.concatenate([np.asarray(session.run(None, each)[0]) for each in samples])


def rows(network: Network, folder: Path) -> Iterator[dict[str, object]]:
    """Yield the rows of one network."""
    source, target = folder / "float.onnx", folder / "small.onnx"
    opset = network.model.opset_import[0].version
    model = network.model if opset >= OPSET else converted_to(network.model, OPSET)
    onnx.save(model, folder / "given.onnx")
    quant_pre_process(folder / "given.onnx", source)
    row: dict[str, object] = {"model": network.name, "variant": "float32", "bytes": source.stat().st_size}
    if network.labels is not None:
        row["accuracy"] = accuracy(source, network)
        row["judged"] = len(network.labels)
    yield row
    for name, choices in VARIANTS.items():
        if name == "dynamic":
            quantize_dynamic(source, target)
        else:
            quantize_static(source, target, SampleReader(network.seen), **choices)
        row = {"model": network.name, "variant": name, "bytes": target.stat().st_size}
        if network.labels is not None:
            row["accuracy"] = accuracy(target, network)
        report = layer_report(source, target, network.judged[:8], ["CPUExecutionProvider"])
        row["signal_to_noise_db"] = {each.name: round(each.decibels, 1) for each in report.values if each.is_result}
        yield row


def accuracy(path: Path, network: Network) -> float:
    """Return the share of samples in percent whose greatest score is that of their label."""
    found = scores(path, network.judged).argmax(axis=-1).reshape(-1)
    return round(100 * float(np.mean(found == network.labels)), 2)


def main() -> None:
    """Judge all networks, and write a row for each variant."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]  # it has one
    parser.add_argument("--models", type=Path, help="folder of trained models, one folder each")
    parser.add_argument("--results", type=Path, help="file that rows are added to")
    parser.add_argument("--only", nargs="+", help="names of networks; all by default")
    asked = parser.parse_args()
    for network in networks(asked.models, asked.only):
        with tempfile.TemporaryDirectory() as scratch:
            for row in rows(network, Path(scratch)):
                line = json.dumps(row)
                print(line, flush=True)
                if asked.results is not None:
                    with asked.results.open("a", encoding="utf-8") as file:
                        file.write(line + "\n")


if __name__ == "__main__":
    main()
