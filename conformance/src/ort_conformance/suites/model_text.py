"""Building small models and their truth: one node or a few, with the outputs that onnx's own evaluator gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from ort_conformance.case import Case, DataSet
from ort_core.tolerances import ToleranceName

IR_VERSION = 10
OPSET = 21


def tensor_type(name: str, array: np.ndarray, shape: Sequence[int | str | None] | None = None) -> onnx.ValueInfoProto:
    """Declare a value of an array's type; its shape where none is given."""
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape if shape is None else shape
    )


def node_model(
    op_type: str,
    feeds: Mapping[str, np.ndarray],
    attributes: Mapping[str, object],
    *,
    opset: int = OPSET,
    output_count: int = 1,
    constants: Mapping[str, np.ndarray] | None = None,
    domain: str = "",
) -> onnx.ModelProto:
    """Return a model of one node: inputs are the feeds, then the constants. Outputs have no declared shape."""
    given = dict(constants or {})
    names = [f"y{index}" for index in range(output_count)]
    node = helper.make_node(op_type, [*feeds, *given], names, domain=domain)
    node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    graph = helper.make_graph(
        [node],
        op_type,
        [tensor_type(name, array) for name, array in feeds.items()],
        [onnx.ValueInfoProto(name=name) for name in names],
        [onnx.numpy_helper.from_array(array, name) for name, array in given.items()],
    )
    imports = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)


def evaluated(
    name: str,
    build: Callable[[], tuple[onnx.ModelProto, Mapping[str, np.ndarray]]],
    limits: ToleranceName,
    *,
    is_optimized: bool = False,
    truth: Callable[[Mapping[str, np.ndarray]], Sequence[object]] | None = None,
) -> Case:
    """Return a case whose right outputs come from a formula, by default from onnx's evaluator."""

    def model() -> onnx.ModelProto:
        return build()[0]

    def data_sets() -> Iterator[DataSet]:
        built, feeds = build()
        yield DataSet(feeds, truth(feeds) if truth is not None else evaluate(built, feeds))

    return Case(name, model, data_sets, limits, is_optimized)


def evaluate(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[object]:
    """Return a model's outputs by onnx's own reference evaluator."""
    with np.errstate(all="ignore"):
        return list(ReferenceEvaluator(model).run(None, dict(feeds)))


def seeded(*facts: object) -> np.random.Generator:
    """Return a generator that depends on the given facts only, the same in every process and version."""
    text = "|".join(map(str, facts)).encode()
    return np.random.default_rng(np.frombuffer(text.ljust(-(-len(text) // 4) * 4), np.uint32))


FLOAT = TensorProto.FLOAT
