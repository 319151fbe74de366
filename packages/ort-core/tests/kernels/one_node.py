"""One operator run twice: by onnxruntime as a model of one node, and by the reference kernel itself."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from ort_core.kernels.kernel import KernelContext, Unguarded
from ort_core.kernels.registry import KernelRegistry, wants_context

Values = list[np.ndarray | None]


def run_onnxruntime(
    op_type: str, inputs: Values, outputs: int, domain: str, opset: int = 20, **attributes: object
) -> list[np.ndarray]:
    """Return the outputs of onnxruntime's CPU kernel."""
    feeds = {f"x{i}": value for i, value in enumerate(inputs) if value is not None}
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), list(value.shape))
        for name, value in feeds.items()
    ]
    names = [f"x{i}" if value is not None else "" for i, value in enumerate(inputs)]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op_type, names, results, domain=domain, **attributes)
    graph = helper.make_graph([node], "one", infos, [onnx.ValueInfoProto(name=name) for name in results])
    imports = [helper.make_opsetid("", opset)]
    if domain:
        imports.append(helper.make_opsetid(domain, 1))
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def run_kernel(
    module: ModuleType, op_type: str, inputs: Values, outputs: int, domain: str, **attributes: object
) -> list[np.ndarray | None]:
    """Return the outputs of the kernel that ``module`` has for the operator, each of ``outputs`` asked for."""
    spec = KernelRegistry.of([module]).find(domain, op_type, 1)
    assert spec, str(spec)
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in attributes.items()}
    if wants_context(spec.function):
        values["ctx"] = KernelContext(op_type, domain, 1, "node", (True,) * outputs, (None,) * outputs, {}, Unguarded())
    result = spec.function(*inputs, **values)
    return list(result if isinstance(result, tuple) else (result,))[:outputs]
