"""Weights in 4-bit floats: onnxruntime's bytes and nodes, and equal outputs in both engines."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, numpy_helper, parser
from onnxruntime.quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer as Theirs

import ort_core
from ort_quantization.errors import InvalidQuantization
from ort_quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer, main


def model(rows: int = 48, dtype: str = "float") -> ModelProto:
    found = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        g (bool c, {dtype}[n, {rows}] x) => ({dtype}[n, 33] y) {{
            h = MatMul(x, w)
            y = If(c) <then_branch = a () => ({dtype}[n, 33] p) {{ p = MatMul(h, v) }},
                       else_branch = b () => ({dtype}[n, 33] q) {{ q = MatMul(x, w) }}>
        }}""")
    kind = np.float32 if dtype == "float" else np.float16
    random = np.random.default_rng(0)
    for name, shape in (("w", (rows, 33)), ("v", (33, 33))):
        found.graph.initializer.append(numpy_helper.from_array((random.normal(size=shape) / 6).astype(kind), name))
    found.graph.node[0].name = "first"
    return found


def tensors(found: ModelProto) -> dict[str, tuple[tuple[int, ...], bytes]]:
    return {each.name: (tuple(each.dims), numpy_helper.to_array(each).tobytes()) for each in found.graph.initializer}


@pytest.mark.parametrize("quant_type", [MatMulBnb4Quantizer.FP4, MatMulBnb4Quantizer.NF4])
@pytest.mark.parametrize(("block_size", "dtype"), [(64, "float"), (16, "float"), (32, "float16")])
def test_bytes_and_nodes_are_those_of_onnxruntime(quant_type: int, block_size: int, dtype: str) -> None:
    source = model(dtype=dtype)
    del source.graph.node[1:]  # onnxruntime's tool stores a weight that two nodes read twice, by one name
    source.graph.output[0].name = "h"
    found = []
    for tool in (Theirs, MatMulBnb4Quantizer):
        quantizer = tool(copy.deepcopy(source), quant_type, block_size)
        quantizer.process()
        found.append(quantizer.model.model)
    assert tensors(found[0]) == tensors(found[1])
    assert str(found[0].graph.node) == str(found[1].graph.node)


@pytest.mark.parametrize("quant_type", [0, 1])
def test_both_engines_compute_alike_near_the_float_model(quant_type: int) -> None:
    quantizer = MatMulBnb4Quantizer(model(), quant_type, 16)
    quantizer.process()
    small = quantizer.model.model
    assert [each.name for each in small.graph.initializer] == ["w_Bnb4", "w_absmax", "v_Bnb4", "v_absmax"]
    x = np.random.default_rng(1).normal(size=(4, 48)).astype(np.float32)
    for c in (True, False):
        feeds = {"c": np.array(c), "x": x}
        content = small.SerializeToString()
        got = ort_core.InferenceSession(content).run(None, feeds)[0]
        want = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
        exact = onnxruntime.InferenceSession(model().SerializeToString()).run(None, feeds)[0]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
        assert np.linalg.norm(got - exact) < 0.25 * np.linalg.norm(exact)


def test_the_command_writes_a_file_and_refuses_what_is_there(tmp_path: Path) -> None:
    onnx.save_model(model(), tmp_path / "model.onnx")
    arguments = ["--input_model", str(tmp_path / "model.onnx"), "--output_model", str(tmp_path / "small.onnx")]
    main([*arguments, "--nodes_to_exclude", "first", "--block_size", "32"])
    assert onnx.load(tmp_path / "small.onnx").graph.node[0].op_type == "MatMul"
    with pytest.raises(SystemExit, match="already exists"):
        main(arguments)


def test_types_and_blocks_that_do_not_exist_are_refused() -> None:
    with pytest.raises(InvalidQuantization, match="FP4"):
        MatMulBnb4Quantizer(model(), 2, 64)
    with pytest.raises(InvalidQuantization, match="block of 48"):
        MatMulBnb4Quantizer(model(), 1, 48)
