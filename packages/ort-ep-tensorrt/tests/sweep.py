"""A sweep: what TensorRT-RTX claims and builds, of model files or of ONNX's node cases, on a machine without a GPU.

python packages/ort-ep-tensorrt/tests/sweep.py MODEL.onnx ...     # each model: nodes, claims, engines, reasons
python packages/ort-ep-tensorrt/tests/sweep.py                     # ONNX's node cases: counts, and engines that fail
"""

from __future__ import annotations

import sys
import time
from collections import Counter

import onnx
import tensorrt_rtx
from onnx.backend.test.loader import load_model_tests

from ort_core.plugin import Claim, GraphView, OrtError, Rejection
from ort_core.testing.claims import request_for, typed_model, view_of
from ort_ep_tensorrt._sdk import Sdk
from ort_ep_tensorrt.building import build_engine
from ort_ep_tensorrt.capability import find_capability
from ort_ep_tensorrt.program import Program, program_of_request
from ort_ep_tensorrt.ranges import ShapeRange
from ort_ep_tensorrt.recording import SdkError
from ort_ep_tensorrt.settings import BuildSettings

SDK = Sdk(tensorrt_rtx, "tensorrt_rtx")
SETTINGS = BuildSettings(caches_timings=False)


def ranges_of(program: Program) -> dict[str, ShapeRange]:
    """Return ranges that hold every free size at 2: enough to build, nothing is run."""
    found = {}
    for info in onnx.load_from_string(program.content).graph.input:
        shape = tuple(d.dim_value if d.HasField("dim_value") else 2 for d in info.type.tensor_type.shape.dim)
        found[info.name] = ShapeRange(shape, shape, shape)
    return found


def built(view: GraphView, claim: Claim) -> str:
    """Return an empty text when a claim was built, else why not."""
    program = program_of_request(request_for(view, claim))
    try:
        build_engine(SDK, program, SETTINGS, ranges_of(program))
    except SdkError as error:
        return str(error)
    return ""


def sweep_model(path: str) -> None:
    """Print one line about a model, and one for each reason."""
    view = view_of(typed_model(path))
    start = time.perf_counter()
    found = find_capability(view, SDK, SETTINGS)
    asked_s = time.perf_counter() - start
    claims = [each for each in found if isinstance(each, Claim)]
    failures = [text for each in claims if (text := built(view, each))]
    taken = sum(len(each.nodes) for each in claims)
    print(
        f"{path}: {taken} of {len(view.nodes)} nodes in {len(claims)} claims, asked in {asked_s:.1f} s, "
        f"{len(claims) - len(failures)} engines built"
    )
    reasons = Counter(f"{r.node.op_type}: {r.reason}" for r in found if isinstance(r, Rejection) and r.node)
    for reason, count in [*reasons.most_common(5), *Counter(failures).items()]:
        print(f"    {count} x {reason}")


def sweep_node_cases() -> None:
    """Print how many of ONNX's node cases are claimed whole, and built."""
    outcomes, failures = Counter(), []
    for case in load_model_tests(kind="node"):
        try:
            view = view_of(typed_model(case.model if case.model is not None else f"{case.model_dir}/model.onnx"))
        except OrtError:
            outcomes["not loaded here"] += 1
            continue
        found = find_capability(view, SDK, SETTINGS)
        claims = [each for each in found if isinstance(each, Claim)]
        if len(claims) != 1 or len(claims[0].nodes) != len(view.nodes):
            outcomes["claimed in part" if claims else "not claimed"] += 1
            continue
        failure = built(view, claims[0])
        outcomes["claimed, and not built" if failure else "claimed and built"] += 1
        if failure:
            failures.append(f"{case.name}: {failure}")
    print(dict(outcomes))
    print("\n".join(failures))


if __name__ == "__main__":
    for each in sys.argv[1:]:
        sweep_model(each)
    if not sys.argv[1:]:
        sweep_node_cases()
