"""Values that read no memory, and that one node reads several times, load in bounded work, with onnxruntime's numbers.

What a load shares among equal expressions tells copies of one apart by what they read: these read nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np
import onnxruntime
import pytest
from hostile_models import Graph
from onnx import TensorProto, helper, numpy_helper

import ort_core

MAX_CALLS = 3_000_000  # of Python; the loads here take some hundred thousand
CHAIN = 40
Source = Callable[[Graph], str]
Use = Callable[[Graph, str, str], None]
F32 = TensorProto.FLOAT


class TooMuchWorkError(BaseException):
    """A load goes on and on; no handler of errors takes this one."""


def _filled(number: float, sizes: str, *op_types: str, to: int = F32) -> Source:
    """Return what adds a tensor of one number, of given sizes or those of ``x``, and elementwise nodes behind it."""

    def add(graph: Graph) -> str:
        dtype = helper.tensor_dtype_to_np_dtype(to)
        graph.node("ConstantOfShape", sizes, "c0", value=numpy_helper.from_array(np.array([number], dtype)))
        for i, op_type in enumerate(op_types):
            graph.node(op_type, f"c{i}", f"c{i + 1}", **({"to": F32} if op_type == "Cast" else {}))
        return f"c{len(op_types)}"

    return add


def _range(graph: Graph) -> str:
    graph.node("Size", "x", "count")
    graph.node("Range", "zero count one", "numbers")
    graph.node("Cast", "numbers", "c", to=F32)
    return "c"


def _one_node(op_type: str, inputs: str, **attributes: object) -> Source:
    def add(graph: Graph) -> str:
        graph.node(op_type, inputs, "c", **attributes)
        return "c"

    return add


def _sizes(graph: Graph) -> str:
    graph.node("Cast", "sizes", "c", to=F32)
    return "c"


SOURCES: dict[str, Source] = {
    "zeros": _filled(0.0, "four"),
    "zeros below 0": _filled(-0.0, "four"),
    "NaN": _filled(np.nan, "sizes"),
    "numbers of any size": _filled(0.5, "sizes"),
    "expression of any size": _filled(0.5, "sizes", "Neg", "Sigmoid"),
    "integers": _filled(3, "sizes", "Neg", "Cast", to=TensorProto.INT64),
    "range": _range,
    "diagonal": _one_node("EyeLike", "x", dtype=F32),
    "expanded": _one_node("Expand", "half sizes"),
    "sizes": _sizes,
    "constant row": _one_node("Tanh", "row"),
}


def _node(op_type: str, *pattern: str) -> Use:
    """Return what adds one node: its inputs are ``c`` as often as the pattern says, and other values."""

    def add(graph: Graph, c: str, y: str) -> None:
        attributes = {"axis": 0} if op_type == "Concat" else {}
        graph.node(op_type, " ".join([c if each == "c" else each for each in pattern]), y, **attributes)

    return add


def _doubled(op_type: str) -> Use:
    def add(graph: Graph, c: str, y: str) -> None:
        for i in range(CHAIN):
            graph.node(op_type, f"{y}{i} {y}{i}" if i else f"{c} {c}", f"{y}{i + 1}")
        graph.node("Tanh", f"{y}{CHAIN}", y)

    return add


def _layers(graph: Graph, c: str, y: str) -> None:
    """Equal layers, each of which reads the value twice at once, and once more."""
    before = "x"
    for i in range(8):
        graph.node("Add", f"{c} {c}", f"{y}b{i}")
        graph.node("ReduceMax", f"{y}b{i}", f"{y}r{i}", keepdims=0)
        graph.node("Add", f"{before} {y}r{i}", f"{y}m{i}")
        graph.node("ReduceMax", c, f"{y}s{i}", keepdims=0)
        graph.node("Sub", f"{y}m{i} {y}s{i}", f"{y}t{i}")
        graph.node("Sin", f"{y}t{i}", f"{y}v{i}")
        before = f"{y}v{i}"
    graph.node("Identity", before, y)


def _several(graph: Graph, c: str, y: str) -> None:
    graph.node("Add", f"{c} {c}", f"{y}a")
    graph.node("Mul", f"{c} {c}", f"{y}b")
    graph.node("Sub", f"{y}a {y}a", f"{y}d")
    graph.node("Add", f"{y}b {y}b", f"{y}e")
    graph.node("Add", f"{y}d {y}e", f"{y}f")
    graph.node("Less", f"{y}f {y}a", f"{y}g")
    graph.node("Where", f"{y}g {y}a {y}b", y)


USES: dict[str, Use] = {
    "sum": _node("Add", "c", "c"),
    "difference": _node("Sub", "c", "c"),
    "power": _node("Pow", "c", "c"),
    "clipped": _node("Clip", "c", "half", "half"),
    "three": _node("Sum", "c", "c", "c"),
    "seventy": _node("Max", *["c"] * 70),
    "mean": _node("Mean", *["c"] * 13),
    "joined": _node("Concat", "c", "c", "c"),
    "doublings": _doubled("Add"),
    "squares": _doubled("Mul"),
    "several": _several,
    "layers": _layers,
}


def _model(source: Source, uses: Sequence[Use], is_body: bool) -> bytes:
    """Return a model of all uses of one value, in its main graph or in the body of a loop."""
    graph = Graph(shape=("a", "b"), outputs=[])
    graph.constant("half", np.float32(0.5))
    graph.constant("row", np.linspace(-1, 1, 4, dtype=np.float32))
    graph.constant("four", np.int64([4, 4]))
    graph.constant("zero", np.int64(0))
    graph.constant("one", np.int64(1))
    graph.node("Shape", "x", "sizes")
    value = source(graph)
    for number, use in enumerate(uses):
        use(graph, value, f"y{number}")
        graph.outputs.append(f"y{number}")
    if is_body:
        _put_into_a_loop(graph)
    return graph.proto()


def _put_into_a_loop(graph: Graph) -> None:
    graph.node("Identity", "again", "more")
    flags = [helper.make_tensor_value_info(name, TensorProto.BOOL, ()) for name in ("again", "more")]
    results = [helper.make_tensor_value_info(name, F32, None) for name in graph.outputs]
    number = helper.make_tensor_value_info("i", TensorProto.INT64, ())
    body = helper.make_graph(list(graph.nodes), "body", [number, flags[0]], [flags[1], *results])
    graph.outputs = [f"all {name}" for name in graph.outputs]
    graph.constant("rounds", np.int64(2))
    graph.nodes[:] = [helper.make_node("Loop", ["rounds", ""], graph.outputs, body=body)]


def _in_bounds(load: Callable[[], ort_core.InferenceSession]) -> ort_core.InferenceSession:
    """Return what is loaded, or end a load that makes more calls than any of these does."""
    left = MAX_CALLS

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise TooMuchWorkError

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        return load()
    except TooMuchWorkError:
        pytest.fail(f"the load has made {MAX_CALLS} calls and goes on", pytrace=False)
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize("is_body", [False, True], ids=["graph", "body"])
@pytest.mark.parametrize("name", SOURCES)
def test_values_that_read_nothing_are_read_several_times(name, is_body, tmp_path, monkeypatch):
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path))
    content = _model(SOURCES[name], list(USES.values()), is_body)
    disabled = ["CommonSubexpressionElimination", "ConstantFolding"]
    session = _in_bounds(
        lambda: ort_core.InferenceSession(content, providers=["CPUExecutionProvider"], disabled_optimizers=disabled)
    )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    peer = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    for feed in (x, x[:1, :2]):
        found, expected = (each.run(None, {"x": feed}) for each in (session, peer))
        for use, ours, theirs in zip(USES, found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6, err_msg=use)
