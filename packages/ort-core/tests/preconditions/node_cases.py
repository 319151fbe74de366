"""Valid cases of one operator: ONNX's own node cases, and the recorded operator cases of ``ORT_TEST_DATA``."""

from __future__ import annotations

import base64
import functools
import gzip
import json
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

NEWEST_OPSET = 26  # that goes with operators of other domains


@dataclass(frozen=True)
class NodeCase:
    """One node with its inputs: arrays (``None``: left out), outputs by name ("" : left out) with their types."""

    name: str
    op_type: str
    domain: str
    opset: int
    attributes: tuple[AttributeProto, ...]
    inputs: tuple[np.ndarray | None, ...]
    outputs: tuple[tuple[str, onnx.TypeProto], ...]

    @property
    def operator(self) -> tuple[str, str]:
        """Domain and name of the operator."""
        return self.domain, self.op_type

    def form(self) -> tuple[object, ...]:
        """What makes a case another kind of case than others of its operator."""
        kinds = tuple(None if array is None else array.ndim for array in self.inputs)
        return self.opset, frozenset(a.name for a in self.attributes), kinds, len(self.outputs)

    def with_input(self, index: int, array: np.ndarray | None) -> NodeCase:
        """Return this with another array as one of its inputs."""
        inputs = (*self.inputs[:index], array, *self.inputs[index + 1 :])
        return replace(self, inputs=inputs)

    def with_attribute(self, name: str, attribute: AttributeProto | None) -> NodeCase:
        """Return this with another attribute of that name, or without it."""
        kept = tuple(each for each in self.attributes if each.name != name)
        return replace(self, attributes=kept if attribute is None else (*kept, attribute))

    def model(self, shapes: str) -> tuple[bytes, dict[str, np.ndarray]]:
        """Return the model and its feeds.

        Args:
            shapes: ``stated``: every size; ``named``: each size a name of its own; ``fixed``: as ``named``, and all
                inputs but the first are initializers; ``known``: as ``stated``, and such initializers.
        """
        names, infos, constants, feeds = [], [], [], {}
        for index, array in enumerate(self.inputs):
            names.append("" if array is None else f"in{index}")
            if array is None:
                continue
            dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
            if not is_plain(array) or (shapes in ("fixed", "known") and index > 0):
                constants.append(numpy_helper.from_array(array, names[-1]))
                continue
            sizes = array.shape if shapes in ("stated", "known") else [f"n{index}_{axis}" for axis in range(array.ndim)]
            infos.append(helper.make_tensor_value_info(names[-1], dtype, sizes))
            feeds[names[-1]] = array
        while names and not names[-1]:
            names.pop()
        node = helper.make_node(self.op_type, names, [n for n, _ in self.outputs], name="node", domain=self.domain)
        node.attribute.extend(self.attributes)
        results = [helper.make_value_info(n, t) for n, t in self.outputs if n]
        graph = helper.make_graph([node], "broken", infos, results, constants)
        imports = [helper.make_opsetid(self.domain, self.opset)]
        if self.domain:
            imports.append(helper.make_opsetid("", NEWEST_OPSET))
        return helper.make_model(graph, opset_imports=imports, ir_version=11).SerializeToString(), feeds


def is_plain(array: np.ndarray) -> bool:
    """Return whether an array can be fed: ml_dtypes' cannot, everywhere."""
    return array.dtype.kind in "biufO"


def without_shape(info: onnx.TypeProto) -> onnx.TypeProto:
    """Return a tensor's type without its shape; others as they are."""
    if info.WhichOneof("value") != "tensor_type":
        return info
    return helper.make_tensor_type_proto(info.tensor_type.elem_type, None)


@functools.cache
def onnx_cases() -> tuple[NodeCase, ...]:
    """Return ONNX's cases of one node over tensors."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = sorted(load_model_tests(kind="node"), key=lambda case: case.name)
    return tuple(found for case in cases if (found := _of_model(case)) is not None)


def _of_model(case: Any) -> NodeCase | None:
    graph = case.model.graph
    if len(graph.node) != 1 or not case.data_sets or graph.initializer or case.model.functions:
        return None
    node, (feeds, _) = graph.node[0], case.data_sets[0]
    given = dict(zip((info.name for info in graph.input), feeds, strict=False))
    values = [numpy_helper.to_array(v) if isinstance(v, TensorProto) else v for v in given.values()]
    if any(isinstance(v, (list, dict, str, onnx.SequenceProto, onnx.OptionalProto)) or v is None for v in values):
        return None
    arrays = {name: np.asarray(value) for name, value in zip(given, values, strict=True)}
    arrays = {n: a.astype(object) if a.dtype.kind in "US" else a for n, a in arrays.items()}
    if any(name and name not in arrays for name in node.input):
        return None
    types = {info.name: without_shape(info.type) for info in graph.output}
    if any(name and name not in types for name in node.output):
        return None
    imports = {each.domain: each.version for each in case.model.opset_import}
    outputs = tuple((name, types.get(name, onnx.TypeProto())) for name in node.output)
    inputs = tuple(arrays.get(name) for name in node.input)
    version = imports[node.domain]
    return NodeCase(case.name, node.op_type, node.domain, version, tuple(node.attribute), inputs, outputs)


def recorded_cases(folder: Path) -> Iterator[NodeCase]:
    """Yield the recorded cases below a folder that expect a result, and whose values are tensors."""
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                found = _of_record(f"{path.name.removesuffix('.jsonl.gz')}#{number}", json.loads(line))
                if found is not None:
                    yield found


def _of_record(name: str, record: dict[str, Any]) -> NodeCase | None:
    values = [*record["inputs"], *record["outputs"]]
    is_ready = record["expect"] != "failure" and not record["config"]
    if not is_ready or any(v["kind"] not in ("tensor", "missing") or v["optional"] for v in values):
        return None
    if "CPUExecutionProvider" in record["excluded"]:
        return None
    outputs, attributes = [], []
    for number, value in enumerate(record["outputs"]):
        is_there = value["kind"] != "missing" and value["name"] != ""
        declared = helper.make_tensor_type_proto(value["type"], None) if is_there else onnx.TypeProto()
        outputs.append((f"out{number}" if is_there else "", declared))
    for key, value in record["attrs"].items():
        attribute = _attribute(key, value)
        if attribute is None:
            return None
        attributes.append(attribute)
    domain = "" if record["domain"] == "ai.onnx" else record["domain"]
    opset = record["opset"] if record["opset"] > 0 else NEWEST_OPSET
    inputs = tuple(None if value["kind"] == "missing" else _tensor(value) for value in record["inputs"])
    return NodeCase(name, record["op"], domain, opset, tuple(attributes), inputs, tuple(outputs))


def _tensor(value: dict[str, Any]) -> np.ndarray:
    if value["type"] == TensorProto.STRING:
        return np.array(_strings(value["data"]), object).reshape(value["dims"])
    raw = base64.b64decode(value["data"] or "")
    return numpy_helper.to_array(TensorProto(data_type=value["type"], dims=value["dims"], raw_data=raw))


def _strings(values: Iterable[dict[str, str]] | None) -> list[str]:
    return [base64.b64decode(each["b"]).decode("utf-8", "replace") for each in values or ()]


def _attribute(name: str, value: dict[str, Any]) -> AttributeProto | None:
    if "i" in value:
        return helper.make_attribute(name, value["i"])
    if "f" in value:
        return helper.make_attribute(name, float(np.frombuffer(base64.b64decode(value["f"]), "<f4")[0]), attr_type=1)
    if "s" in value:
        return helper.make_attribute(name, base64.b64decode(value["s"]["b"]))
    if "ints" in value:
        return helper.make_attribute(name, value["ints"], attr_type=7)
    if "floats" in value:
        floats = np.frombuffer(base64.b64decode(value["floats"]), "<f4").tolist()
        return helper.make_attribute(name, floats, attr_type=6)
    if "strings" in value:
        return helper.make_attribute(name, _strings(value["strings"]), attr_type=8)
    return None


def chosen(cases: Iterable[NodeCase], per_operator: int) -> list[NodeCase]:
    """Return the first cases of each operator, of as many forms as there are, and none with large inputs."""
    found: dict[tuple[str, str], dict[tuple[object, ...], NodeCase]] = {}
    for case in cases:
        if sum(array.size for array in case.inputs if array is not None) > 20_000:
            continue
        forms = found.setdefault(case.operator, {})
        if len(forms) < per_operator:
            forms.setdefault(case.form(), case)
    return [case for _, forms in sorted(found.items()) for case in forms.values()]
