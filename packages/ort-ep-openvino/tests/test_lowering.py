"""Lowering: the programs that OpenVINO gets, as text; and that what stands for another operator means the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from lowered_programs import GOLDENS, PROGRAMS, lowered, path_of, view_of_text

from ort_core.plugin.ir import Graph
from ort_ep_openvino.lowering.legalisation import legalise
from ort_ep_openvino.lowering.ports import Ports


@pytest.mark.usefixtures("sdk")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_claim_is_lowered_to_the_program_that_is_kept(name):
    kept = path_of(name).read_text(encoding="utf-8")
    assert lowered(PROGRAMS[name]) == kept, f"goldens/{name}.txt differs; lowered_programs.py writes it anew"


def test_every_golden_belongs_to_a_program():
    assert {path.stem for path in GOLDENS.glob("*.txt")} == set(PROGRAMS)


def test_what_openvino_reads_rightly_is_left_as_it_is():
    assert operators_behind("g (float[4] x) => (float16[4] y) { a = Relu(x)  y = Cast<to=10>(a) }") == ["Relu", "Cast"]


def test_a_cast_of_integers_to_bool_is_left_as_it_is():
    assert operators_behind("g (int32[4] x) => (bool[4] y) { y = Cast<to=9>(x) }") == ["Cast"]


@pytest.mark.parametrize("kind", ["float", "float16"])
def test_not_a_number_is_true(session, kind):
    x = np.array([0, -0.0, np.nan, np.inf, 1e-7, -2], np.float32 if kind == "float" else np.float16)
    with session(f"g ({kind}[6] x) => (bool[6] y) {{ y = Cast<to=9>(x) }}") as opened:
        assert opened.run(None, {"x": x})[0].tolist() == x.astype(bool).tolist()


@pytest.mark.parametrize(("threshold", "kept"), [(1 / 3, 2), (0.3, 1), (0.4, 2)])
def test_a_box_whose_overlap_is_the_threshold_itself_stays(session, threshold, kept):
    boxes = np.array([[[0, 0, 1, 1], [0, 0.5, 1, 1.5]]], np.float32)  # they share a third of their union
    text = (
        "g (float[1,2,4] b, float[1,1,2] s, float[1] t) => (int64[k,3] y) <int64[1] m = {9}> "
        "{ y = NonMaxSuppression(b, s, m, t) }"
    )
    feeds = {"b": boxes, "s": np.array([[[0.9, 0.8]]], np.float32), "t": np.array([threshold], np.float32)}
    with session(text) as opened:
        assert len(opened.run(None, feeds)[0]) == kept


def test_ports_are_stored_with_a_model_and_found_again():
    ports = Ports((1, 0), (0, 2), ((1, 0),))
    assert Ports.opened(ports.sealed_with(b"a\nb")) == (ports, b"a\nb")


@pytest.mark.parametrize("content", [b"", b"x\n", b"[]\n", b'{"inputs": []}\n'])
def test_bytes_without_ports_are_an_error(content):
    with pytest.raises(ValueError):  # noqa: PT011 - json's own error is one; the caller shows its text
        Ports.opened(content)


def operators_behind(text: str) -> list[str]:
    """Return the operators of a graph after legalisation."""
    found: list[str] = []

    def look(graph: Graph) -> None:
        legalise(graph)
        found.extend(node.op_type for node in graph)

    view = view_of_text(text)
    onnx.checker.check_model(view.to_onnx(view.nodes, legalise=look))
    return found
