"""Models that end in maps or strings run by one native call and a line of Python, with the ordinary run's results."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper, parser

import ort_core as ort

HEADER = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : %d]>\n'
LINEAR = """LinearClassifier <coefficients = [1.0, 0.5, -1.0, 2.0, 0.25, -0.75], intercepts = [0.1, -0.2, 0.3],
    post_transform = "SOFTMAX", %s> (x)"""
INTEGERS = "classlabels_ints = [7, 3, 9]"
STRINGS = 'classlabels_strings = ["cat", "dog", "owl"]'


def _session(nodes: str, outputs: str, ml_opset: int = 1) -> ort.InferenceSession:
    text = HEADER % ml_opset + f"g (float[N,2] x) => ({outputs}) {{ {nodes} }}"
    return ort.InferenceSession(parser.parse_model(text).SerializeToString())


def _maps(labels: str, zipped: str) -> ort.InferenceSession:
    nodes = f"label, scores = {LINEAR % labels} maps = ai.onnx.ml.ZipMap <{zipped}> (scores)"
    text = nodes.replace("LinearClassifier", "ai.onnx.ml.LinearClassifier")
    kind = "string" if labels is STRINGS else "int64"
    model = parser.parse_model(HEADER % 1 + f"g (float[N,2] x) => ({kind}[N] label) {{ {text} }}")
    made = model.graph.output.add()
    made.name = "maps"
    key = made.type.sequence_type.elem_type.map_type
    key.key_type = 8 if kind == "string" else 7
    key.value_type.tensor_type.elem_type = 1
    return ort.InferenceSession(model.SerializeToString())


def _is_direct(session: ort.InferenceSession, feeds: dict[str, object]) -> bool:
    return session._loaded.direct.call(feeds, None) is not None


def _x(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, 2)).astype(np.float32)


def _expected(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    weights = np.array([[1.0, 0.5], [-1.0, 2.0], [0.25, -0.75]])
    scores = x.astype(np.float64) @ weights.T + [0.1, -0.2, 0.3]
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    return shares.argmax(1), shares


@pytest.mark.parametrize("rows", [1, 2, 300])
@pytest.mark.parametrize(
    ("labels", "zipped", "names"),
    [
        (INTEGERS, "classlabels_int64s = [7, 3, 9]", [7, 3, 9]),
        (STRINGS, 'classlabels_strings = ["cat", "dog", "owl"]', ["cat", "dog", "owl"]),
    ],
)
def test_maps_of_scores_run_directly(rows: int, labels: str, zipped: str, names: list[int] | list[str]) -> None:
    session = _maps(labels, zipped)
    assert session._loaded.direct.refusal is None
    for turn in range(4):
        x = _x(rows, turn)
        label, maps = session.run(None, {"x": x})
        best, shares = _expected(x)
        assert label.tolist() == [names[n] for n in best]
        assert label.dtype == (np.int64 if isinstance(names[0], int) else object)
        assert [list(each) for each in maps] == [sorted(names)] * rows
        assert all(type(value) is float for each in maps for value in each.values())
        np.testing.assert_allclose([[each[name] for name in names] for each in maps], shares, rtol=1e-5, atol=1e-6)
    assert _is_direct(session, {"x": x})


def test_no_rows_and_bound_arrays_are_the_ordinary_runs() -> None:
    session = _maps(STRINGS, 'classlabels_strings = ["cat", "dog", "owl"]')
    for _ in range(4):
        label, maps = session.run(None, {"x": _x(0)})
    assert label.shape == (0,)
    assert maps == []
    assert not _is_direct(session, {"x": _x(0)})
    for _ in range(3):
        session.run(None, {"x": _x(2)})
    assert _is_direct(session, {"x": _x(2)})
    assert session._loaded.direct.call({"x": _x(2)}, (None, None)) is None


def test_results_of_direct_runs_are_the_callers_own() -> None:
    session = _maps(STRINGS, 'classlabels_strings = ["cat", "dog", "owl"]')
    x = _x(2)
    for _ in range(4):
        label, maps = session.run(None, {"x": x})
    label[:] = "changed"
    maps[0].clear()
    again, maps_again = session.run(None, {"x": x})
    assert set(again) <= {"cat", "dog", "owl"}
    assert len(maps_again[0]) == 3


def test_values_as_objects_have_their_types_when_a_run_is_direct() -> None:
    session = _maps(STRINGS, 'classlabels_strings = ["cat", "dog", "owl"]')
    x = ort.OrtValue.ortvalue_from_numpy(_x(2))
    for _ in range(4):
        label, maps = session.run_with_ort_values(None, {"x": x})
        assert label.data_type() == "tensor(string)"
        assert maps.data_type() == "seq(map(string,tensor(float)))"


@pytest.mark.parametrize(
    ("encoder", "opset", "expected"),
    [
        ('classes_strings = ["a", "b"], default_string = "none"', 1, ["none", "a", "b", "none", "none", "none"]),
        (
            'keys_int64s = [0, 1], values_strings = ["a", "b"]',
            2,
            ["_Unused", "a", "b", "_Unused", "_Unused", "_Unused"],
        ),
        ('keys_int64s = [2, 1], values_strings = ["a", "b"], default_string = ""', 2, ["", "", "b", "a", "", ""]),
    ],
)
def test_numbers_without_a_label_get_the_default(encoder: str, opset: int, expected: list[str]) -> None:
    nodes = f"""t = Tanh(x) e = Exp(t) s = Mul(e, x) n = Cast<to=7>(x) label = ai.onnx.ml.LabelEncoder<{encoder}>(n)"""
    session = _session(nodes, "string[N,2] label, float[N,2] s", opset)
    x = np.array([[-1, 0], [1, 2], [9e18, -9.3e18]], np.float32)
    for _ in range(4):
        label, _s = session.run(None, {"x": x})
        assert label.dtype == object
        assert label.reshape(-1).tolist() == expected
    assert _is_direct(session, {"x": x}) == ("[2, 1]" not in encoder)


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
@pytest.mark.parametrize("labels", [["b", "a", "é", "Z", "b"], [5, -3, 12, 5, 0], ["a", "b", "c", "d", "e"]])
def test_maps_are_in_the_order_of_their_labels_as_in_onnxruntime(labels: list[str] | list[int], provider: str) -> None:
    """A table made of such maps has its columns in the order of the first."""
    is_text = isinstance(labels[0], str)
    name = "classlabels_strings" if is_text else "classlabels_int64s"
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", **{name: labels})
    element = helper.make_map_type_proto(8 if is_text else 7, helper.make_tensor_type_proto(1, []))
    made = helper.make_value_info("y", helper.make_sequence_type_proto(element))
    graph = helper.make_graph([node], "maps", [helper.make_tensor_value_info("x", 1, [None, 5])], [made])
    opsets = [helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("", 18)]
    content = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    session = ort.InferenceSession(content, providers=[provider])
    theirs = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    feeds = {"x": np.arange(10, dtype=np.float32).reshape(2, 5)}
    for _ in range(3):
        (found,), (expected,) = (each.run(None, feeds) for each in (session, theirs))
        assert [list(each.items()) for each in found] == [list(each.items()) for each in expected]
