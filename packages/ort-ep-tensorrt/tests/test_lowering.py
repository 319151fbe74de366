"""Lowering: what the parser is handed and the layers that it makes, as text; and engines that TensorRT-RTX builds.

python packages/ort-ep-tensorrt/tests/test_lowering.py     # writes the files in goldens/ anew; needs tensorrt_rtx
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from ort_core.testing.claims import typed_model, view_of
from ort_ep_tensorrt._sdk import Sdk, device_of
from ort_ep_tensorrt.building import build_engine
from ort_ep_tensorrt.engine import Engine
from ort_ep_tensorrt.lowering.legalization import Changes
from ort_ep_tensorrt.network import Network, parse
from ort_ep_tensorrt.program import Program, program_of
from ort_ep_tensorrt.ranges import Bounds, ShapeRange
from ort_ep_tensorrt.recording import SdkError
from ort_ep_tensorrt.settings import BuildSettings

GOLDENS = Path(__file__).with_name("goldens")
HEADER = '<ir_version: 10, opset_import: ["" : 21]> '
MARK = "\n---- layers\n"
PROGRAMS = {
    "chain": "g (float[n,4] x) => (float[n,4] y) { a = Relu(x)  b = Tanh(a)  y = Add(a, b) }",
    "half_precision": "g (float16[n,4] x) => (float[n,4] y) { a = Exp(x)  y = Cast<to=1>(a) }",
    "integers": "g (int64[n,4] x, bool[n,4] c) => (int64[n,4] y) { a = Add(x, x)  y = Where(c, a, x) }",
    "attention": (
        "g (float[2,4,8,16] q, float[2,4,8,16] k, float[2,4,8,16] v) => (float[2,4,8,16] y) <float c = {0.25}> "
        "{ t = Transpose<perm=[0,1,3,2]>(k)  a = MatMul(q, t)  b = Mul(a, c)  p = Softmax(b)  y = MatMul(p, v) }"
    ),
    "quantized_product": (
        "g (float[n,4] x, int8[4,4] w) => (float[n,4] y) <float s = {0.5}, int8 z = {0}> "
        "{ q = QuantizeLinear(x, s, z)  a = DequantizeLinear(q, s, z)  b = DequantizeLinear(w, s, z) "
        "y = MatMul(a, b) }"
    ),
    "dilated_window": "g (float[n,2,5,5] x) => (float[n,2,3,3] y) "
    "{ y = MaxPool<kernel_shape=[2,2], dilations=[2,2]>(x) }",
    "transform": "g (float[n,4,1] x) => (float[n,4,2] y) <int64 k = {1}> { y = DFT(x, , k) }",
    "quantized_linear": (
        "g (uint8[n,4] a, int8[4,3] b) => (uint8[n,3] y) "
        "<float s = {0.5}, float t = {0.25}, uint8 z = {3}, int8 o = {0}, float r = {2.0}> "
        "{ y = QLinearMatMul(a, s, z, b, t, o, r, z) }"
    ),
}
IN_PARTS = frozenset({"dilated_window", "transform", "quantized_linear"})
"""ONNX text of claims whose lowered form is kept in ``goldens/``, by name."""


def program_of_text(text: str) -> Program:
    """Return the program of a graph before any pass; what TensorRT's parser lacks is in other words."""
    view = view_of(typed_model(onnx.parser.parse_model(HEADER + text)))
    is_lacking = text in {PROGRAMS[name] for name in IN_PARTS}
    return program_of(view, view.nodes, Changes(frozenset({0}) if is_lacking else frozenset()))


def handed(program: Program) -> str:
    """Return what the parser is handed, as ONNX text."""
    return onnx.printer.to_text(onnx.load_from_string(program.content).graph)


def layers(sdk: Sdk, program: Program) -> str:
    """Return the layers that the parser makes, one a line."""
    parsed = parse(sdk, program)
    assert isinstance(parsed, Network), parsed
    return "\n".join(f"{kind} {result}" for kind, result in parsed.layers()) + "\n"


def kept(name: str) -> tuple[str, str]:
    """Return the two halves of a golden."""
    before, _, after = (GOLDENS / f"{name}.txt").read_text(encoding="utf-8").partition(MARK)
    return before, after


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_parser_is_handed_the_program_that_is_kept(name):
    assert handed(program_of_text(PROGRAMS[name])) == kept(name)[0], f"goldens/{name}.txt: run this file"


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_parser_makes_the_layers_that_are_kept(rtx, name):
    assert layers(rtx, program_of_text(PROGRAMS[name])) == kept(name)[1], f"goldens/{name}.txt: run this file"


def test_every_golden_belongs_to_a_program():
    assert {path.stem for path in GOLDENS.glob("*.txt")} == set(PROGRAMS)


def ranges_of(program: Program) -> dict[str, ShapeRange]:
    """Return ranges from 1 to 8 for every symbolic size."""
    found = {}
    for info in onnx.load_from_string(program.content).graph.input:
        dims = [d.dim_value if d.HasField("dim_value") else None for d in info.type.tensor_type.shape.dim]
        sizes = (tuple(free if size is None else size for size in dims) for free in (1, 4, 8))
        found[info.name] = ShapeRange(*sizes)
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_is_built_without_a_gpu(rtx, name):
    program = program_of_text(PROGRAMS[name])
    built = build_engine(
        rtx, program, BuildSettings(caches_timings=False, is_detailed=True), Bounds(ranges_of(program))
    )
    assert len(built.content) > 1000
    assert built.timings is None


def test_weights_are_read_where_they_lie(rtx):
    weight = np.random.default_rng(3).standard_normal((256, 256)).astype(np.float32)
    graph = onnx.parser.parse_graph("g (float[2,256] x) => (float[2,256] y) { y = MatMul(x, w) }")
    graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    view = view_of(typed_model(model))
    program = program_of(view, view.nodes)
    built = build_engine(rtx, program, BuildSettings(caches_timings=False), Bounds({}))
    assert weight[5].tobytes() in built.content or weight.T[5].tobytes() in built.content, (
        "its values are in the engine"
    )


def test_a_size_without_a_range_is_an_error(rtx):
    with pytest.raises(SdkError, match="no range of sizes is given for 'x'"):
        build_engine(rtx, program_of_text(PROGRAMS["chain"]), BuildSettings(caches_timings=False), Bounds({}))


def test_an_impossible_range_is_an_error_with_words(rtx):
    ranges = {"x": ShapeRange((1, 4), (2, 5), (3, 6))}
    with pytest.raises(SdkError) as caught:
        build_engine(rtx, program_of_text(PROGRAMS["chain"]), BuildSettings(caches_timings=False), Bounds(ranges))
    assert "no reason" not in str(caught.value)


def test_an_engine_that_does_not_load_is_an_error_with_words(rtx):
    with pytest.raises(SdkError, match=r"failed to load an engine: .*(magicTag|cudaError)"):
        Engine(rtx, b"no engine", BuildSettings(), program_of_text(PROGRAMS["chain"]))


def test_check_answers_without_raising(rtx):
    found = device_of(rtx)
    assert found or re.search(r"finds no usable GPU: .*cudaError", str(found))


if __name__ == "__main__":
    import tensorrt_rtx

    for each, text in PROGRAMS.items():
        wanted = program_of_text(text)
        content = handed(wanted) + MARK + layers(Sdk(tensorrt_rtx, "tensorrt_rtx"), wanted)
        (GOLDENS / f"{each}.txt").write_text(content, encoding="utf-8")
