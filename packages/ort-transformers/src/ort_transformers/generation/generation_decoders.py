"""Decoders as bodies of BeamSearch, GreedySearch and Sampling: what they must have, and tensors that they share."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from ort_core.model_types import infer_proto
from ort_transformers.benchmark_helper import Precision
from ort_transformers.onnx_model import OnnxModel
from ort_transformers.past_helper import PastKeyValuesHelper

log = logging.getLogger(__name__)

_BY_POSITION = {  # operators that compute each place of a sentence from the same place of their inputs
    "Add", "BiasGelu", "Cast", "FastGelu", "Gelu", "Identity", "LayerNormalization", "MatMul", "Mul",
    "QuickGelu", "Relu",
    "SimplifiedLayerNormalization", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "Sub", "Tanh",
}  # fmt: skip
_TO_THE_END = np.iinfo(np.int64).max


# ------------------------------------------------------------------ what a body must have
def verify_gpt2_subgraph(graph: GraphProto, precision: Precision | str) -> None:
    """Refuse a decoder that GPT-2's search cannot run.

    Raises:
        ValueError: the name, order or element type of an input or output is another one.
    """
    layers = len(graph.input) - 3
    kind = _float_of(precision)
    inputs = dict.fromkeys(("input_ids", "position_ids", "attention_mask"), int(TensorProto.INT32))
    inputs |= {f"past_{layer}": kind for layer in range(layers)}
    outputs = dict.fromkeys(("logits", *(f"present_{layer}" for layer in range(layers))), kind)
    _verify(graph, inputs, outputs)


def verify_t5_decoder_subgraph(graph: GraphProto, precision: Precision | str) -> None:
    """Refuse a decoder that T5's search cannot run.

    Raises:
        ValueError: the name, order or element type of an input or output is another one.
    """
    layers, kind = (len(graph.input) - 2) // 4, _float_of(precision)
    inputs = dict.fromkeys(("input_ids", "encoder_attention_mask"), int(TensorProto.INT32))
    inputs |= dict.fromkeys(PastKeyValuesHelper.get_past_names(layers), kind)
    present = PastKeyValuesHelper.get_past_names(layers, present=True)[: 2 * layers]
    _verify(graph, inputs, dict.fromkeys(("logits", *present), kind))


def verify_t5_encoder_decoder_init_subgraph(graph: GraphProto, precision: Precision | str) -> None:
    """Refuse an encoder that T5's search cannot run.

    Raises:
        ValueError: the name, order or element type of an input or output is another one.
    """
    kind = _float_of(precision)
    tokens = ("encoder_input_ids", "encoder_attention_mask", "decoder_input_ids")
    if graph.output and "cross" in graph.output[0].name:
        layers = len(graph.output) // 2
        names = PastKeyValuesHelper.get_past_names(layers, present=True)[2 * layers :]
        _verify(graph, dict.fromkeys(tokens[:2], int(TensorProto.INT32)), dict.fromkeys(names, kind))
        return
    log.warning("an encoder with the decoder's first step is an older form; encoders of today give cross caches alone")
    names = PastKeyValuesHelper.get_past_names((len(graph.output) - 2) // 4, present=True)
    outputs = dict.fromkeys(("logits", "encoder_hidden_states", *names), kind)
    _verify(graph, dict.fromkeys(tokens, int(TensorProto.INT32)), outputs)


def _float_of(precision: Precision | str) -> int:
    return TensorProto.FLOAT16 if str(precision) == Precision.FLOAT16.value else TensorProto.FLOAT


def _verify(graph: GraphProto, inputs: Mapping[str, int], outputs: Mapping[str, int]) -> None:
    for what, values, wanted in (("input", graph.input, inputs), ("output", graph.output, outputs)):
        found = {each.name: each.type.tensor_type.elem_type for each in values}
        if list(found) != list(wanted):
            raise ValueError(f"{graph.name}: {what}s are {', '.join(found)}; wanted are {', '.join(wanted)}")
        for name, kind in wanted.items():
            if found[name] != kind:
                names = [TensorProto.DataType.Name(each) for each in (found[name], kind)]
                raise ValueError(f"{graph.name}: {what} {name!r} is {names[0]}, wanted is {names[1]}")


# ------------------------------------------------------------------ tensors of two bodies
def remove_shared_initializers(
    graph1: GraphProto,
    graph2: GraphProto,
    shared_prefix: str = "shared_",
    min_elements: int = 1024,
    signature_cache1: dict[str, int] | None = None,
    signature_cache2: dict[str, int] | None = None,
) -> list[TensorProto]:
    """Take large tensors that both graphs have out of them, and return them with the names that nodes read now.

    Raises:
        RuntimeError: a name with the prefix is taken.
    """
    seconds = [each for each in graph2.initializer if math.prod(each.dims) >= min_elements]
    renamed1: dict[str, str] = {}
    shared: dict[str, TensorProto] = {}
    for tensor in graph1.initializer:
        if math.prod(tensor.dims) < min_elements:
            continue
        for other in seconds:
            if OnnxModel.has_same_value(tensor, other, signature_cache1, signature_cache2):
                renamed1[tensor.name] = shared_prefix + other.name
                shared[other.name] = other
                break
    renamed2 = {name: shared_prefix + name for name in shared}
    result = []
    for name, tensor in shared.items():
        copy = TensorProto()
        copy.CopyFrom(tensor)
        copy.name = renamed2[name]
        result.append(copy)
    for graph, renamed in ((graph1, renamed1), (graph2, renamed2)):
        taken = {name for node in graph.node for name in node.input} & set(renamed2.values())
        if taken:
            raise RuntimeError(f"the name {min(taken)!r} is taken in {graph.name!r}: choose another shared_prefix")
        _read_from_outside(graph, renamed, result)
    return result


def _read_from_outside(graph: GraphProto, renamed: dict[str, str], tensors: Sequence[TensorProto]) -> None:
    for place in reversed(range(len(graph.initializer))):
        if graph.initializer[place].name in renamed:
            del graph.initializer[place]
    for place in reversed(range(len(graph.value_info))):
        if graph.value_info[place].name in renamed:
            del graph.value_info[place]
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
    used = set(renamed.values())
    declare(graph, [each for each in tensors if each.name in used])


def declare(graph: GraphProto, tensors: Iterable[TensorProto]) -> None:
    """Say the types of tensors that a body reads from outside, which onnxruntime wants to be told."""
    graph.value_info.extend(helper.make_tensor_value_info(each.name, each.data_type, each.dims) for each in tensors)


def get_shared_initializers(encoder_model: ModelProto, decoder_model: ModelProto) -> list[TensorProto]:
    """Give all names inside of two bodies a prefix, and return the large tensors that both have, taken out of them."""
    caches: list[dict[str, int]] = [{}, {}]
    for proto, prefix, cache in zip((encoder_model, decoder_model), ("e_", "d_"), caches, strict=True):
        body = OnnxModel(proto)
        body.add_prefix_to_names(prefix)
        body.remove_duplicated_initializer(cache)
    return remove_shared_initializers(
        decoder_model.graph, encoder_model.graph, shared_prefix="s_", signature_cache1=caches[1],
        signature_cache2=caches[0],
    )  # fmt: skip


def move_initializers(graph: GraphProto, min_elements: int = 1024) -> list[TensorProto]:
    """Take large tensors out of a graph and return them."""
    moved = []
    for tensor in graph.initializer:
        if math.prod(tensor.dims) >= min_elements:
            copy = TensorProto()
            copy.CopyFrom(tensor)
            moved.append(copy)
    names = {each.name: each.name for each in moved}
    _read_from_outside(graph, names, moved)
    return moved


# ------------------------------------------------------------------ changes of files
def pad_weights_of_logits_matmul(onnx_path: str, use_external_data_format: bool = True) -> bool:
    """Pad the head of a float16 decoder to a multiple of 8 tokens, in the file; return whether it has that now."""
    proto = onnx.load_model(onnx_path, load_external_data=True)
    is_padded = pad_head(proto)
    if is_padded:
        OnnxModel.save(proto, onnx_path, save_as_external_data=use_external_data_format)
    return is_padded


def pad_head(proto: ModelProto) -> bool:
    """Pad the head of a float16 decoder to a multiple of 8 tokens, in place; return whether it has that now."""
    decoder = OnnxModel(proto)
    head = decoder.output_name_to_node().get(proto.graph.output[0].name)
    if head is None or head.op_type != "MatMul":
        return False
    weight, axis = decoder.get_initializer(head.input[1]), 1
    if weight is None:
        turned = decoder.match_parent(head, "Transpose", 1)
        weight, axis = (None, 0) if turned is None else (decoder.get_initializer(turned.input[0]), 0)
    if weight is None or weight.data_type != TensorProto.FLOAT16 or len(weight.dims) != 2:
        return False
    missing = -weight.dims[axis] % 8
    widths = [(0, missing) if each == axis else (0, 0) for each in (0, 1)]
    weight.CopyFrom(numpy_helper.from_array(np.pad(numpy_helper.to_array(weight), widths), weight.name))
    _fix_size(proto.graph.output[0], 2, weight.dims[axis])
    return True


def update_input_shapes_for_gpt2_decoder_model(decoder_onnx_path: str, use_external_data_format: bool = True) -> bool:
    """Fix the length of tokens and positions at 1 in a decoder's file, as all steps but the first have it."""
    proto = onnx.load_model(decoder_onnx_path, load_external_data=True)
    take_one_token(proto)
    OnnxModel.save(proto, decoder_onnx_path, save_as_external_data=use_external_data_format)
    return True


def take_one_token(proto: ModelProto) -> None:
    """Fix the length of tokens and positions at 1, in place."""
    for value in proto.graph.input:
        if value.name in ("input_ids", "position_ids"):
            _fix_size(value, 1, 1)


def _fix_size(value: onnx.ValueInfoProto, axis: int, size: int) -> None:
    dim = value.type.tensor_type.shape.dim[axis]
    dim.Clear()
    dim.dim_value = size


def generate_gpt2_init_decoder(
    decoder_onnx_path: str, init_decoder_onnx_path: str, use_external_data_format: bool = True
) -> bool:
    """Write a decoder for the first step: behind the last attention it computes the last place of sentences alone.

    Returns:
        Whether there is such a place; if not, nothing is written.
    """
    proto = onnx.load_model(decoder_onnx_path, load_external_data=True)
    if not keep_last_place(proto):
        return False
    OnnxModel.save(proto, init_decoder_onnx_path, save_as_external_data=use_external_data_format)
    return True


def keep_last_place(proto: ModelProto) -> bool:
    """Slice a decoder's last place as early as its logits allow, in place; return whether it could be done.

    Nodes that lead to the logits alone, and compute each place by itself, run behind the slices.
    """
    model = OnnxModel(proto)
    behind = _nodes_for_logits_alone(model)
    inside = {name for node in behind for name in node.output}
    makers = model.output_name_to_node()
    entering = {name for node in behind for name in node.input if _is_sentence(model, makers, name)} - inside
    shapes = {each.name: _shape_of(each) for each in infer_proto(proto).model.graph.value_info}
    length = _shape_of(proto.graph.output[0])[1]
    if not entering or any(len(shapes.get(name, ())) != 3 or shapes[name][1] != length for name in entering):
        return False
    _slice_last_place(proto, behind, sorted(entering))
    del proto.graph.value_info[:]
    model.topological_sort()
    return True


def _nodes_for_logits_alone(model: OnnxModel) -> list[NodeProto]:
    graph = model.graph()
    logits = graph.output[0].name
    makers, readers = model.output_name_to_node(), model.input_name_to_nodes()
    public = {each.name for each in graph.output} - {logits}
    found: dict[str, NodeProto] = {}
    waiting = [makers[logits]] if logits in makers else []
    while waiting:
        node = waiting.pop()
        ahead = [reader.output[0] for name in node.output if name for reader in readers.get(name, ())]
        if node.output[0] in found or public & set(node.output) or not set(ahead) <= set(found):
            continue  # a node with a reader that comes later is met again by way of that reader
        if node.op_type in _BY_POSITION and _is_by_position(model, node):
            found[node.output[0]] = node
            waiting += [makers[name] for name in node.input if name in makers]
    return list(found.values())


def _slice_last_place(proto: ModelProto, behind: Sequence[NodeProto], entering: Sequence[str]) -> None:
    graph = proto.graph
    bounds = {"starts": -1, "ends": _TO_THE_END, "axes": 1}
    names = [f"last_place_{each}" for each in bounds]
    tensors = [numpy_helper.from_array(np.array([value], np.int64)) for value in bounds.values()]
    for name, tensor in zip(names, tensors, strict=True):
        tensor.name = name
    graph.initializer.extend(tensors)
    for name in entering:
        sliced = f"last_place_of_{name}"
        for node in behind:
            node.input[:] = [sliced if each == name else each for each in node.input]
        graph.node.append(helper.make_node("Slice", [name, *names], [sliced], name=f"Slice_{sliced}"))
    _fix_size(graph.output[0], 1, 1)


def _shape_of(value: onnx.ValueInfoProto) -> list[int | str]:
    return [each.dim_param or each.dim_value for each in value.type.tensor_type.shape.dim]


def _is_by_position(model: OnnxModel, node: NodeProto) -> bool:
    """Return whether a node's first inputs are sentences and its others weights of features."""
    weights = [model.get_initializer(name) for name in node.input if name]
    shapes = [None if each is None else tuple(each.dims) for each in weights]
    if node.op_type == "MatMul":
        return shapes[0] is None and shapes[1] is not None and len(shapes[1]) == 2
    return all(shape is None or len(shape) <= 1 for shape in shapes)


def _is_sentence(model: OnnxModel, makers: dict[str, Any], name: str) -> bool:
    return bool(name) and model.get_initializer(name) is None and (
        name not in makers or makers[name].op_type != "Constant"
    )  # fmt: skip
