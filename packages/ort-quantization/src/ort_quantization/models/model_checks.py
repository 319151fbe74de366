"""What is looked at before a model is quantized: nodes and tensors that nothing sensible follows from are refused.

Sparse initializers become dense ones: quantized operators read those, and so do ONNX's converter and its inference.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import GraphProto, SparseTensorProto, TensorProto, external_data_helper, helper, numpy_helper

from ort_core.model_graphs import graphs_of
from ort_quantization.errors import InvalidQuantization

_DENSE_LIMIT = 2**31 - 2**20  # bytes of a tensor that a message can hold
_ADDED = (  # to the name of a value, by quantizing it
    "_scale", "_zero_point", "_quantized", "_QuantizeLinear_Output", "_QuantizeLinear_Input",
    "_DequantizeLinear_Output",
)  # fmt: skip
_PACKED = {  # types of which several numbers, or parts of one, share a byte of the raw data
    getattr(TensorProto, name, None): bits
    for name, bits in (("INT4", 4), ("UINT4", 4), ("FLOAT4E2M1", 4), ("INT2", 2), ("UINT2", 2))
}


def checked(graph: GraphProto) -> None:
    """Make the sparse initializers of a graph, and of those inside it, dense, and refuse what is broken.

    Raises:
        InvalidQuantization: two nodes give one value, a tensor has fewer or more numbers than its shape says, or a
            sparse one is too large.
    """
    for each in graphs_of(graph):
        for sparse in each.sparse_initializer:
            each.initializer.append(_dense(sparse))
        del each.sparse_initializer[:]
        for tensor in each.initializer:
            _refuse_cut(tensor)
        _refuse_given_twice(each)


def _dense(sparse: SparseTensorProto) -> TensorProto:
    name, shape = sparse.values.name, tuple(sparse.dims)
    values = numpy_helper.to_array(sparse.values)
    places = numpy_helper.to_array(sparse.indices)
    if math.prod(shape) * values.itemsize > _DENSE_LIMIT:
        raise InvalidQuantization(
            f"the sparse initializer {name!r} of shape {shape} takes {math.prod(shape) * values.itemsize} bytes as a "
            "dense one, and only dense ones are quantized"
        )
    found = np.zeros(shape, values.dtype)
    try:
        if places.ndim == 2:
            found[tuple(places.T)] = values
        else:
            found.reshape(-1)[places] = values
    except (IndexError, ValueError) as error:
        raise InvalidQuantization(f"the sparse initializer {name!r} of shape {shape} is broken: {error}") from error
    return numpy_helper.from_array(found, name)


def _refuse_cut(tensor: TensorProto) -> None:
    """Refuse a tensor whose raw bytes do not fit its shape: numpy would tell neither its name nor the sizes."""
    if not tensor.HasField("raw_data") or external_data_helper.uses_external_data(tensor):
        return
    if tensor.data_type in (TensorProto.STRING, TensorProto.UNDEFINED):
        return
    bits = _PACKED.get(tensor.data_type) or 8 * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    needed = -(-math.prod(tensor.dims) * bits // 8)
    if len(tensor.raw_data) != needed:
        raise InvalidQuantization(
            f"the initializer {tensor.name!r} of shape {tuple(tensor.dims)} needs {needed} bytes and has "
            f"{len(tensor.raw_data)}"
        )


def _refuse_given_twice(graph: GraphProto) -> None:
    seen: dict[str, str] = {}
    for node in graph.node:
        for name in filter(None, node.output):
            if name in seen:
                raise InvalidQuantization(
                    f"two nodes give the value {name!r}: {seen[name]!r} and {node.name!r}; each value has one"
                )
            seen[name] = node.name


def free_names(graph: GraphProto) -> bool:
    """Give values and nodes other names whose own quantizing another value adds, as ``x_scale`` beside ``x``.

    Args:
        graph: changed in place.

    Returns:
        Whether there were such values.

    Raises:
        InvalidQuantization: an input or a result of the model has such a name.
    """
    before = {node.input[0] for node in graph.node if node.op_type == "QuantizeLinear"}
    before |= {node.output[0] for node in graph.node if node.op_type == "DequantizeLinear"}
    values = {each.name for each in (*graph.initializer, *graph.input, *graph.output)}
    values |= {name for node in graph.node for name in node.output if name}
    free = {name + added: name for name in values - before for added in _ADDED}
    taken = sorted(values & free.keys())
    ends = {each.name for each in (*graph.input, *graph.output)}
    for name in taken:
        if name in ends:
            raise InvalidQuantization(
                f"the model has an input or result {name!r}, which is what quantizing {free[name]!r} adds: rename one"
            )
    _rename(graph, {name: _unused(f"{name}_of_float", values) for name in taken})
    nodes = {node.name for node in graph.node}
    added = {name + each for name in values - before for each in ("_QuantizeLinear", "_DequantizeLinear")}
    for node in graph.node:
        if node.name in added:
            node.name = _unused(f"{node.name}_of_float", nodes)
    return bool(taken)


def _unused(name: str, taken: set[str]) -> str:
    number, found = 1, name
    while found in taken:
        number, found = number + 1, f"{name}_{number}"
    return found


def _rename(graph: GraphProto, names: dict[str, str]) -> None:
    for each in graphs_of(graph) if names else ():
        for node in each.node:
            for place, name in enumerate(node.input):
                node.input[place] = names.get(name, name)
    for node in graph.node if names else ():
        for place, name in enumerate(node.output):
            node.output[place] = names.get(name, name)
    for named in (*graph.initializer, *graph.value_info) if names else ():
        named.name = names.get(named.name, named.name)
