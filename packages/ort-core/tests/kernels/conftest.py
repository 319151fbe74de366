"""What the kernel tests share: a node run by onnxruntime, as the independent truth."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

sys.path.insert(0, str(Path(__file__).parent))  # tests import one_node from here

Oracle = Callable[..., list[np.ndarray]]


@pytest.fixture(scope="session")
def by_onnxruntime() -> Oracle:
    """Return a function that runs one node: ``run(op_type, inputs, opset, outputs=1, **attributes)``."""
    onnxruntime = pytest.importorskip("onnxruntime")

    def run(
        op_type: str, inputs: list[np.ndarray | None], opset: int, outputs: int = 1, **attributes: object
    ) -> list[np.ndarray]:
        names = [f"in{i}" if value is not None else "" for i, value in enumerate(inputs)]
        node = helper.make_node(op_type, names, [f"out{i}" for i in range(outputs)], **attributes)
        given = {name: value for name, value in zip(names, inputs, strict=True) if value is not None}
        declared = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in given.items()
        ]
        results = [onnx.ValueInfoProto(name=f"out{i}") for i in range(outputs)]
        graph = helper.make_graph([node], "one_node", declared, results)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # more would wait by spinning
        return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, given)

    return run
