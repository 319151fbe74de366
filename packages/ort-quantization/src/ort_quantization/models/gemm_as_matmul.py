"""Gemm as MatMul and Add: products whose inputs are quantized while the model runs know MatMul only.

Before:  Y = Gemm<transB=1>(A, B, C)
After:   Y_MatMul = MatMul(A, B_Transposed);  Y = Add(Y_MatMul, C)

Weights that are to be stored in blocks are constants of MatMul nodes: there a transposed constant is one, too.

Before:  Y = MatMul(A, Transpose(B))
After:   Y = MatMul(A, B_Transposed)
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper, numpy_helper

from ort_core.model_graphs import graphs_of
from ort_quantization.models.model_files import read_tensor
from ort_quantization.models.tensor_folder import set_aside

_DERIVED = ("", "_quantized", "_scale", "_zero_point")  # names that quantization makes of a weight's


def replace_gemms(graph: GraphProto, folder: str) -> dict[str, str]:
    """Replace the Gemms of a graph and those inside it that have no factors and no transposed first input.

    Args:
        graph: changed in place.
        folder: where external tensors lie.

    Returns:
        The names of transposed weights, with the names of those they were made of.
    """
    return _Replacement(_all_names(graph), folder).replace(graph, [])


def constant_products(graph: GraphProto, folder: str, excluded: Collection[str] = ()) -> None:
    """Let the products of a graph that have a constant weight, and of those inside it, be MatMul nodes that read it.

    Args:
        graph: changed in place.
        folder: where external tensors lie; transposed weights are set aside where it takes them.
        excluded: names of nodes that stay as they are.
    """
    constants = {tensor.name for each in graphs_of(graph) for tensor in each.initializer}
    replacement = _Replacement(
        _all_names(graph), folder, lambda node: node.input[1] in constants and node.name not in excluded, constants
    )
    replacement.replace(graph, [])
    for each in graphs_of(graph):
        _drop_unread(each, replacement.folded)


def _drop_unread(graph: GraphProto, names: Collection[str]) -> None:
    """Take out the nodes that gave some values, where nothing reads these any more."""
    read = {name for each in graphs_of(graph) for node in each.node for name in node.input}
    read |= {each.name for inner in graphs_of(graph) for each in inner.output}
    gone = [node for node in graph.node if node.output[0] in names and node.output[0] not in read]
    for node in gone:
        graph.node.remove(node)


def _all_names(graph: GraphProto) -> set[str]:
    names: set[str] = set()
    for each in graphs_of(graph):
        names.update(tensor.name for tensor in each.initializer)
        names.update(value.name for value in (*each.input, *each.output, *each.value_info))
        names.update(name for node in each.node for name in (*node.input, *node.output))
    return names


class _Replacement:
    """One pass over a model; keeps the names that are taken and the weights that were transposed.

    Args:
        names: that are taken.
        folder: where external tensors lie.
        chosen: whether a Gemm, or a MatMul with a transposed constant, is replaced.
        constants: whose Transpose nodes are done away with.

    Attributes:
        folded: results of Transpose nodes that MatMul nodes read no more.
    """

    def __init__(
        self, names: set[str], folder: str, chosen: Callable[[NodeProto], bool] | None = None,
        constants: Collection[str] = (),
    ) -> None:  # fmt: skip
        self._names = names
        self._folder = folder
        self._chosen, self._constants = chosen or (lambda node: True), constants
        self._sources: dict[str, str] = {}
        self.folded: set[str] = set()

    def replace(self, graph: GraphProto, outer: list[GraphProto]) -> dict[str, str]:
        path = [*outer, graph]
        transposed: dict[str, str] = {}
        nodes: list[NodeProto] = []
        for node in graph.node:
            for attribute in node.attribute:
                inner = [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs
                for each in inner:
                    self.replace(each, path)
            if _is_plain(node) and self._chosen(node):
                nodes += self._products(node, path, transposed)
            else:
                nodes.append(self._folded(node, path, transposed))
        del graph.node[:]
        graph.node.extend(nodes)
        return self._sources

    def _products(self, node: NodeProto, path: list[GraphProto], transposed: dict[str, str]) -> list[NodeProto]:
        found: list[NodeProto] = []
        weight = node.input[1]
        if _attribute(node, "transB", 0):
            tensor = _initializer(weight, path)
            if tensor is not None:
                if weight not in transposed:
                    transposed[weight] = self._transpose(tensor, path[-1])
            elif weight not in transposed:
                name = f"{node.name}_Transpose" if node.name else ""
                transposed[weight] = self._free_name(f"{weight}_Transposed")
                found.append(helper.make_node("Transpose", [weight], [transposed[weight]], name))
            weight = transposed[weight]
        has_bias = len(node.input) > 2
        product = node.output[0] + ("_MatMul" if has_bias else "")
        name = f"{node.name}_MatMul" if node.name else ""
        found.append(helper.make_node("MatMul", [node.input[0], weight], [product], name))
        if has_bias:
            name = f"{node.name}_Add" if node.name else ""
            found.append(helper.make_node("Add", [product, node.input[2]], list(node.output), name))
        return found

    def _folded(self, node: NodeProto, path: list[GraphProto], transposed: dict[str, str]) -> NodeProto:
        """Return a node; a MatMul that reads a transposed constant reads one that was transposed before."""
        copied = _copy_of(node)
        if not self._constants or node.op_type != "MatMul" or node.domain not in ("", "ai.onnx"):
            return copied
        turned = next((each for each in path[-1].node if node.input[1] in each.output), None)
        if turned is None or not _is_transposed_matrix(turned) or turned.input[0] not in self._constants:
            return copied
        asked = _copy_of(node)
        asked.input[1] = turned.input[0]
        tensor = _initializer(turned.input[0], path)
        if tensor is None or len(tensor.dims) != 2 or not self._chosen(asked):
            return copied
        if tensor.name not in transposed:
            transposed[tensor.name] = self._transpose(tensor, path[-1])
        copied.input[1] = transposed[tensor.name]
        self.folded.add(turned.output[0])
        return copied

    def _transpose(self, tensor: TensorProto, graph: GraphProto) -> str:
        """Add a transposed copy of a weight to a graph: others may read the weight itself."""
        name = self._free_name(f"{tensor.name}_Transposed")
        values = numpy_helper.to_array(read_tensor(tensor, self._folder))
        made = numpy_helper.from_array(np.ascontiguousarray(values.T), name)
        graph.initializer.append(set_aside(made, self._folder))
        self._sources[name] = tensor.name
        return name

    def _free_name(self, base: str) -> str:
        """Take a name that no value has, nor what quantization makes of it."""
        name, suffix = base, 0
        while any(name + each in self._names for each in _DERIVED):
            suffix += 1
            name = f"{base}_{suffix}"
        self._names.update(name + each for each in _DERIVED)
        return name


def _is_plain(node: NodeProto) -> bool:
    if node.op_type != "Gemm" or node.domain not in ("", "ai.onnx"):
        return False
    return (
        _attribute(node, "alpha", 1.0) == 1 and _attribute(node, "beta", 1.0) == 1 and not _attribute(node, "transA", 0)
    )


def _is_transposed_matrix(node: NodeProto) -> bool:
    if node.op_type != "Transpose" or node.domain not in ("", "ai.onnx"):
        return False
    orders = [list(each.ints) for each in node.attribute if each.name == "perm"]
    return orders in ([], [[1, 0]])


def _attribute(node: NodeProto, name: str, default: float) -> float:
    found = next((each for each in node.attribute if each.name == name), None)
    return default if found is None else helper.get_attribute_value(found)


def _initializer(name: str, path: list[GraphProto]) -> TensorProto | None:
    for graph in reversed(path):
        for tensor in graph.initializer:
            if tensor.name == name:
                return tensor
    return None


def _copy_of(node: NodeProto) -> NodeProto:
    copied = NodeProto()
    copied.CopyFrom(node)
    return copied
