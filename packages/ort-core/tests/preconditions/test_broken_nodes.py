"""A share of the sweep: a broken rank or size of one input of a node, in onnxruntime and here."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from asking import ask, session
from breaks import breaks
from count_refusals import SHAPES
from node_cases import chosen, onnx_cases
from onnx import parser

import ort_core as ort

OPERATORS = ("Attention", "ConvTranspose", "GRU", "LSTM", "RNN", "RotaryEmbedding")


@pytest.mark.parametrize("op_type", OPERATORS)
def test_what_onnxruntime_refuses_of_shapes_is_refused(op_type: str) -> None:
    cases = [case for case in chosen(onnx_cases(), 1) if case.operator == ("", op_type)]
    assert cases, op_type
    broken = [each for case in cases for each in breaks(case) if each[0].startswith(("input 1: size", "input 2: size"))]
    assert broken
    for what, case in broken:
        if ask("onnxruntime", "named", case)[0] == "refused":
            for shapes in SHAPES:
                assert ask("cpu", shapes, case)[0] == "refused", f"{case.name}: {what}, sizes {shapes}"


@pytest.mark.parametrize("op_type", ["BatchNormalization", "EyeLike", "PRelu", "ReduceMean", "SwiGLU"])
def test_a_node_that_is_compiled_with_others_refuses_what_its_kernel_refuses(op_type: str) -> None:
    """A cheap node is no program of its own: alone it always runs by its kernel."""
    cases = [case for case in chosen(onnx_cases(), 2) if case.operator == ("", op_type)]
    assert cases, op_type
    for case in cases:
        for what, broken in breaks(case):
            if what.startswith("input"):
                content, feeds = _followed(broken.model("known")[0]), broken.model("known")[1]
                found = [_refuses(engine, content, feeds) for engine in ("reference", "cpu")]
                assert found[0] == found[1], f"{case.name}: {what}: {found}"


def _followed(content: bytes) -> bytes:
    """Return a model whose first result goes through two more nodes."""
    model = onnx.ModelProto.FromString(content)
    graph = model.graph
    name, dtype = graph.output[0].name, graph.output[0].type.tensor_type.elem_type
    graph.node.append(onnx.helper.make_node("Neg", [name], ["negative"]))
    graph.node.append(onnx.helper.make_node("Abs", ["negative"], ["end"]))
    del graph.output[:]
    graph.output.append(onnx.helper.make_tensor_value_info("end", dtype, None))
    return model.SerializeToString()


def _refuses(engine: str, content: bytes, feeds: dict[str, np.ndarray]) -> bool:
    try:
        session(engine, content).run(None, feeds)
    except ort.OrtError:
        return True
    return False


@pytest.mark.parametrize("node", ["CumSum(r, far)", "MeanVarianceNormalization <axes = [2]> (r)"])
def test_an_axis_that_a_computed_operand_does_not_have_is_refused_in_compiled_code_too(node: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    g (float[A,S,B] x) => (y) <int64 far = {{2}}, int64[1] last = {{2}}> {{
        e = Exp(x)
        r = ReduceMax <keepdims = 0> (e, last)
        y = {node}
    }}"""
    feeds = {"x": np.ones((2, 3, 4), np.float32)}
    for provider in ("ReferenceExecutionProvider", "CPUExecutionProvider"):
        with pytest.raises(ort.OrtError, match=r"(?i)axis|axes"):
            ort.InferenceSession(parser.parse_model(text).SerializeToString(), providers=[provider]).run(None, feeds)
