"""A sweep: what TensorRT-RTX claims and builds, of model files or of ONNX's node cases, on a machine without a GPU.

python packages/ort-ep-tensorrt/tests/sweep.py [--precision float16] [--no-build] MODEL.onnx ...
    each model: nodes, claims, engines, reasons, and nodes that stay in float32
python packages/ort-ep-tensorrt/tests/sweep.py
    ONNX's node cases: counts, and engines that fail; each is built for the shapes and values of its own data
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Mapping

import numpy as np
import onnx
import tensorrt_rtx
from onnx.backend.test.loader import load_model_tests

from ort_core.plugin import Claim, GraphView, OrtError, Rejection
from ort_core.testing.claims import request_for, typed_model, view_of
from ort_ep_tensorrt._sdk import Sdk
from ort_ep_tensorrt.building import build_engine
from ort_ep_tensorrt.capability import find_capability
from ort_ep_tensorrt.lowered import Lowered, lower
from ort_ep_tensorrt.lowering.likely_sizes import likely_values
from ort_ep_tensorrt.ranges import Bounds, Shape, bounds_for
from ort_ep_tensorrt.recording import SdkError
from ort_ep_tensorrt.settings import BuildSettings

SDK = Sdk(tensorrt_rtx, "tensorrt_rtx")
Feeds = Mapping[str, np.ndarray]


def bounds_of(view: GraphView, lowered: Lowered, feeds: Feeds) -> Bounds:
    """Return bounds that hold the feeds; every free size of another input is 2: enough to build, nothing is run."""
    inputs = {value.name: value for value in view.graph.inputs}
    shapes: dict[str, Shape] = {}
    values: dict[str, Shape] = {}
    deciding = {tensor.name for tensor in lowered.network.inputs() if tensor.is_shape_tensor}
    for info in onnx.load_from_string(lowered.program.content).graph.input:
        sizes = tuple(d.dim_value if d.HasField("dim_value") else 2 for d in info.type.tensor_type.shape.dim)
        shapes[info.name] = feeds[info.name].shape if info.name in feeds else sizes
        if info.name in deciding:
            given = feeds.get(info.name)
            likely = likely_values(inputs[info.name], sizes)
            values[info.name] = likely if given is None else tuple(int(element) for element in given.reshape(-1))
    return bounds_for(shapes, values, {})


def built(view: GraphView, claim: Claim, settings: BuildSettings, feeds: Feeds) -> tuple[str, Lowered | None]:
    """Return an empty text when a claim was built, else why not; and the claim as it was built."""
    part = request_for(view, claim).view()
    try:
        lowered = lower(part, part.nodes, SDK, settings, feeds)
        if not isinstance(lowered, Lowered):
            return f"lowered differently than it was claimed: {lowered}", None
        build_engine(SDK, lowered.program, settings, bounds_of(part, lowered, feeds))
    except SdkError as error:
        return str(error), None
    return "", lowered


def sweep_model(path: str, settings: BuildSettings, *, builds: bool) -> None:
    """Print one line about a model, with seconds of the processor, and one for each reason."""
    view = view_of(typed_model(path))
    start = time.process_time()
    found = find_capability(view, SDK, settings)
    asked = time.process_time()
    claims = [each for each in found if isinstance(each, Claim)]
    outcomes = [built(view, each, settings, {}) for each in claims] if builds else []
    done = time.process_time()
    failures = [text for text, _ in outcomes if text]
    taken = sum(len(each.nodes) for each in claims)
    words = f"{len(claims) - len(failures)} engines built in {done - asked:.1f} s" if builds else "not built"
    print(
        f"{path}: {taken} of {len(view.nodes)} nodes in {len(claims)} claims, asked in {asked - start:.1f} s, {words}",
        flush=True,
    )
    reasons = Counter(f"{r.node.op_type}: {r.reason}" for r in found if isinstance(r, Rejection) and r.node)
    kept = Counter(reason for _, each in outcomes if each is not None for reason in each.program.kept.values())
    for reason, count in [*reasons.most_common(5), *Counter(failures).items(), *kept.most_common(8)]:
        print(f"    {count} x {reason}", flush=True)


def sweep_node_cases(settings: BuildSettings) -> None:
    """Print how many of ONNX's node cases are claimed whole, and built."""
    outcomes, failures = Counter(), []
    for case in load_model_tests(kind="node"):
        try:
            view = view_of(typed_model(case.model if case.model is not None else f"{case.model_dir}/model.onnx"))
        except OrtError:
            outcomes["not loaded here"] += 1
            continue
        found = find_capability(view, SDK, settings)
        claims = [each for each in found if isinstance(each, Claim)]
        if len(claims) != 1 or len(claims[0].nodes) != len(view.nodes):
            outcomes["claimed in part" if claims else "not claimed"] += 1
            continue
        names = [value.name for value in view.graph.inputs]
        feeds = zip(names, case.data_sets[0][0] if case.data_sets else (), strict=False)
        failure, _ = built(view, claims[0], settings, {name: np.asarray(array) for name, array in feeds})
        outcomes["claimed, and not built" if failure else "claimed and built"] += 1
        if failure:
            failures.append(f"{case.name}: {failure}")
    print(dict(outcomes))
    print("\n".join(failures))


def main() -> None:
    """Sweep what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL.onnx")
    parser.add_argument("--precision", choices=["float32", "float16", "bfloat16"], default="float32")
    parser.add_argument("--no-build", action="store_true", help="claims alone")
    arguments = parser.parse_args()
    settings = BuildSettings(caches_timings=False, precision=arguments.precision)
    for each in arguments.models:
        sweep_model(each, settings, builds=not arguments.no_build)
    if not arguments.models:
        sweep_node_cases(settings)


if __name__ == "__main__":
    main()
