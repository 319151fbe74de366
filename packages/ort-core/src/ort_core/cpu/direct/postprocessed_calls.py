"""Direct calls of a model that ends in maps or strings, made in Python of what its program returns.

    number, scores = <native program>(x);  label = LabelEncoder(number);  maps = ZipMap(scores)
    label = Reshape(ArrayFeatureExtractor(labels, number), [-1])

Classifiers that are exported with their labels end so. Native code makes arrays of numbers only; what is left is one
line of Python for each such output. Arrays of the caller, lists that would be empty, and numbers that no label has are
the ordinary run's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.cpu.direct.direct_calls import build_direct_calls
from ort_core.cpu.direct.finished_calls import FinishedCalls
from ort_core.plugin import DirectCalls, Rejection
from ort_core.plugin.ir import DataType, TensorType

if TYPE_CHECKING:
    from ort_core.cpu.direct.direct_calls import FedSource
    from ort_core.cpu.program.program import NativeProgram
    from ort_core.plugin.ir import Graph, Node, Value
    from ort_core.plugin.kernels import RuntimeValue

ML_DOMAIN = "ai.onnx.ml"
Finish = Callable[[np.ndarray], "RuntimeValue | None"]  # ``None``: the ordinary run must answer
Made = tuple[int, Finish | None]  # of which result of the program, and how


def finished(results: Sequence[np.ndarray], outputs: Sequence[Made]) -> list[RuntimeValue] | None:
    """Return the outputs that are made of results; ``None`` where the ordinary run must answer."""
    found = [results[n] if finish is None else finish(results[n]) for n, finish in outputs]
    return None if any(each is None for each in found) else found


def build_postprocessed_calls(
    program: NativeProgram, sources: Sequence[FedSource], outputs: Sequence[Made]
) -> DirectCalls | Rejection:
    """Return the direct calls of a program whose results are finished, or why it has none.

    Args:
        program: what runs.
        sources: for each of its inputs where it comes from.
        outputs: for each output of which result it is made, and how.
    """
    if all(finish is None for _, finish in outputs):
        return build_direct_calls(program, sources, [number for number, _ in outputs])
    needed = list(dict.fromkeys(number for number, _ in outputs))
    calls = build_direct_calls(program, sources, needed)
    if isinstance(calls, Rejection):
        return calls
    made = [(needed.index(number), finish) for number, finish in outputs]
    return FinishedCalls(calls, lambda results: finished(results, made) if results[0].size else None)


def postprocessed_outputs(
    graph: Graph, border: tuple[Sequence[int], Sequence[int]], made: Mapping[int, Made], imports: Mapping[str, int]
) -> dict[int, Made] | Rejection:
    """Return how the outputs of nodes behind a program are made of its results, or why they are left to kernels.

    Args:
        graph: the nodes.
        border: the slots of its inputs and of its outputs.
        made: how the values in slots are made that there are already.
        imports: the versions of operators.
    """
    read = dict(zip(graph.inputs, border[0], strict=False))
    written = dict(zip(graph.outputs, border[1], strict=False))
    found: dict[int, Made] = {}
    inner: dict[Value, Made] = {}
    for node in graph:
        finish = find_finish(node, node.opset or imports.get(ML_DOMAIN, 1))
        if isinstance(finish, Rejection):
            return finish
        value = node.inputs[1 if node.op_type == "ArrayFeatureExtractor" else 0]
        given = None if value is None else inner.get(value) or made.get(read.get(value, -1))
        if given is None or (given[1] is not None) != (node.op_type == "Reshape"):
            return Rejection(f"what {node.op_type} reads is not a result of the program", node)
        inner[node.output] = (given[0], finish if given[1] is None else _chained(given[1], finish))
        if node.output in written:
            found[written[node.output]] = inner[node.output]
    return found


def _chained(first: Finish, then: Finish) -> Finish:
    def chained(numbers: np.ndarray) -> RuntimeValue | None:
        found = first(numbers)
        return then(found) if isinstance(found, np.ndarray) else None

    return chained


def find_finish(node: Node, opset: int) -> Finish | Rejection:
    """Return what a ZipMap, or what makes strings of numbers, does, or why it is left to kernels.

    Args:
        node: any node.
        opset: the version of its operators.
    """
    if not node.domain and node.op_type == "Reshape":
        return _flattened(node)
    if node.domain == ML_DOMAIN and node.op_type == "ArrayFeatureExtractor":
        return _picked_strings(node)
    if node.domain != ML_DOMAIN or node.op_type not in ("ZipMap", "LabelEncoder"):
        return Rejection(f"{node.op_type} runs by a numpy kernel", node)
    given = node.inputs[0]
    if given is None or not isinstance(given.type, TensorType) or given.type.shape is None:
        return Rejection(f"what {node.op_type} reads is not a tensor of known rank", node)
    return _zip_map(node, given.type) if node.op_type == "ZipMap" else _label_encoder(node, given.type, opset)


def _zip_map(node: Node, given: TensorType) -> Finish | Rejection:
    names = node.attribute("classlabels_strings") or node.attribute("classlabels_int64s")
    assert given.shape is not None
    if not isinstance(names, tuple) or len(given.shape) != 2 or given.shape[1] != len(names):
        return Rejection("the scores are not rows of one for each label", node)
    places = {name: place for place, name in enumerate(names)}
    keys = sorted(places)
    order = [places[key] for key in keys]
    if order != list(range(len(names))):  # maps are in the order of their keys
        return lambda scores: [dict(zip(keys, row)) for row in scores[:, order].tolist()]
    return lambda scores: [dict(zip(keys, row)) for row in scores.tolist()]  # strict costs a tenth, and sizes are known


def _label_encoder(node: Node, given: TensorType, opset: int) -> Finish | Rejection:
    strings = node.attribute("classes_strings" if opset < 2 else "values_strings")
    if given.dtype is not DataType.INT64 or not isinstance(strings, tuple):
        return Rejection("LabelEncoder runs by a numpy kernel where it does not make strings of int64", node)
    keys = tuple(range(len(strings))) if opset < 2 else node.attribute("keys_int64s")
    if keys != tuple(range(len(strings))):
        return Rejection("LabelEncoder runs by a numpy kernel where its keys are not 0, 1, 2, …", node)
    other = node.string_attribute("default_string", "_Unused")
    table = np.array([other, *strings, other], object)

    def strings_of(numbers: np.ndarray) -> np.ndarray:
        return np.asarray(table.take(numbers + 1, mode="clip"), object)

    return strings_of


def _picked_strings(node: Node) -> Finish | Rejection:
    labels, numbers = node.inputs[0], node.inputs[1]
    table = None if labels is None or labels.constant is None else labels.constant
    if table is None or table.dtype is not DataType.STRING or numbers is None or not table.size:
        return Rejection("ArrayFeatureExtractor runs by a numpy kernel where it does not pick constant strings", node)
    if not isinstance(numbers.type, TensorType) or numbers.type.dtype is not DataType.INT64:
        return Rejection("the numbers of the labels are not int64", node)
    row = np.asarray(table.array(), object)
    if row.ndim not in (1, 2) or row.size != row.shape[-1]:
        return Rejection("the labels are not one row", node)
    row = row.reshape(-1)

    def picked(places: np.ndarray) -> np.ndarray | None:
        if not places.size or places.min() < 0 or places.max() >= len(row):
            return None
        return np.asarray(row.take(places.reshape(1, -1)), object)

    return picked


def _flattened(node: Node) -> Finish | Rejection:
    target = node.inputs[1]
    if target is None or target.constant is None or target.constant.array().tolist() != [-1]:
        return Rejection("Reshape runs by a numpy kernel where it does not make one dimension", node)
    return lambda strings: strings.reshape(-1)
