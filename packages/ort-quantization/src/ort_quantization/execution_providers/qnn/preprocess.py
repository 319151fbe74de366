"""``qnn_preprocess_model``: a model in the form in which QNN runs most of it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto, helper

from ort_quantization.errors import InvalidQuantization
from ort_quantization.execution_providers.qnn.graph_index import GraphIndex, known_shapes
from ort_quantization.execution_providers.qnn.patterns import (
    fuse_gelu,
    fuse_layer_normalization,
    fuse_lp_normalization,
    fuse_space_to_depth,
)
from ort_quantization.models.model_files import EXTERNAL_FROM, TensorFile, opset_of, read_with_shapes, write_model
from ort_quantization.models.node_order import put_in_order
from ort_quantization.models.prepare import as_loaded
from ort_quantization.onnx_model import ONNXModel

_NAME = "qnn_preproc_node_"


def qnn_preprocess_model(
    model_input: str | Path | ModelProto,
    model_output: str | Path,
    exclude_initializer_from_input: bool = False,
    fuse_layernorm: bool = False,
    save_as_external_data: bool = False,
    all_tensors_to_one_file: bool = False,
    external_data_location: str | None = None,
    external_data_size_threshold: int = EXTERNAL_FROM,
    external_data_convert_attribute: bool = False,
    inputs_to_make_channel_last: Sequence[str] | None = None,
    outputs_to_make_channel_last: Sequence[str] | None = None,
    dynamic_input_shapes: Sequence[tuple[str, str]] | None = None,
) -> bool:
    """Write a model prepared for QNN, if anything of it changes.

    The model is folded and fused as far as standard operators go, as a BatchNormalization into a Conv, which alone is
    not a change. Gelu, LpNormalization and SpaceToDepth are fused, LayerNormalization where that is asked for, and
    nodes without a name get one.

    Args:
        model_input: a model, or its file; neither is changed.
        model_output: the file, which is written only where something has changed.
        exclude_initializer_from_input: initializers are no inputs.
        fuse_layernorm: the means of a LayerNormalization become one node, from opset 17 on.
        save_as_external_data: large tensors get a file of their own beside the model.
        all_tensors_to_one_file: onnxruntime's; of no effect: they always are in one.
        external_data_location: the name of that file; ``NAME.data`` by default.
        external_data_size_threshold: bytes from which on a tensor is large.
        external_data_convert_attribute: onnxruntime's; of no effect.
        inputs_to_make_channel_last: inputs that have their channels last from now on; a Transpose follows.
        outputs_to_make_channel_last: outputs that do; a Transpose is before each.
        dynamic_input_shapes: names of inputs with their sizes, such as ``("x", "1,3,224,224")``.

    Returns:
        Whether something has changed.

    Raises:
        InvalidQuantization: a name is no input or output, or its shape does not fit.
    """
    left_out = ("LayerNormFusionL1",)  # QNN gets a LayerNormalization where that is asked for
    model, folder = read_with_shapes(model_input)
    is_changed = _name_nodes(model)
    with tempfile.TemporaryDirectory(prefix="ort.quantization.") as scratch:
        model, folder = as_loaded(model, folder, Path(scratch), is_optimized=True, without=left_out)
        graph = model.graph
        is_changed |= bool(exclude_initializer_from_input) and _leave_out_defaults(graph)
        for name, sizes in dynamic_input_shapes or ():
            _fix_shape(_find(graph.input, name, "input"), sizes)
            is_changed = True
        is_changed |= _fuse(model, folder, fuse_layernorm)
        for name in inputs_to_make_channel_last or ():
            _turn_input(graph, _find(graph.input, name, "input"))
            is_changed = True
        for name in outputs_to_make_channel_last or ():
            _turn_output(graph, _find(graph.output, name, "output"))
            is_changed = True
        if is_changed:
            tensors = TensorFile(external_data_location, external_data_size_threshold)
            write_model(model, folder, model_output, save_as_external_data, tensors)
    return is_changed


def _name_nodes(model: ModelProto) -> bool:
    """Give names to nodes that have none; return whether there were any."""
    first = ONNXModel(model).get_largest_node_name_suffix(_NAME) + 1
    unnamed = [node for node in model.graph.node if node.op_type != "Constant" and not node.name]
    for place, node in enumerate(unnamed, first):
        node.name = f"{_NAME}{place}"
    return bool(unnamed)


def _leave_out_defaults(graph: GraphProto) -> bool:
    names = {each.name for each in graph.initializer}
    kept = [each for each in graph.input if each.name not in names]
    is_changed = len(kept) != len(graph.input)
    copies = [ValueInfoProto.FromString(each.SerializeToString()) for each in kept]
    del graph.input[:]
    graph.input.extend(copies)
    return is_changed


def _find(values: Sequence[ValueInfoProto], name: str, kind: str) -> ValueInfoProto:
    found = next((each for each in values if each.name == name), None)
    if found is None:
        raise InvalidQuantization(
            f"{name!r} is no {kind} of the model; it has {', '.join(repr(each.name) for each in values)}"
        )
    return found


def _fix_shape(value: ValueInfoProto, sizes: str) -> None:
    try:
        wanted = [int(each) for each in sizes.split(",")]
    except ValueError as error:
        raise InvalidQuantization(f"the shape {sizes!r} of input {value.name!r} is no list of whole numbers") from error
    shape = value.type.tensor_type.shape
    found = [each.dim_value or None for each in shape.dim]
    if len(found) != len(wanted) or any(here not in (None, there) for here, there in zip(found, wanted, strict=True)):
        raise InvalidQuantization(f"input {value.name!r} of shape {found} cannot have the shape {wanted}")
    for size, number in zip(shape.dim, wanted, strict=True):
        size.dim_value = number


def _fuse(model: ModelProto, folder: str, fuses_layer_normalization: bool) -> bool:
    """Fuse all patterns; return whether there was one."""
    graph, opset, count = model.graph, opset_of(model), 0
    shapes = known_shapes(graph)
    while True:
        index = GraphIndex(graph, folder)
        is_found = (
            fuse_gelu(graph, index) or fuse_lp_normalization(graph, index) or fuse_space_to_depth(graph, index, shapes)
        )
        if not is_found and fuses_layer_normalization:
            is_found = fuse_layer_normalization(graph, index, opset)
        if not is_found:
            break
        count += 1
    held = ONNXModel(model, folder)
    if any(node.domain == "com.microsoft" for node in graph.node):
        held.set_opset_import("com.microsoft", 1)
    if count:
        held.remove_unused_constant()
    return count > 0


def _turned(value: ValueInfoProto) -> tuple[list[int], list[int]]:
    """Give a value its channels last; return the orders of axes to that and back."""
    sizes = list(value.type.tensor_type.shape.dim)
    if len(sizes) < 3:
        raise InvalidQuantization(f"{value.name!r} has {len(sizes)} axes: channels are the second of three or more")
    last = [0, *range(2, len(sizes)), 1]
    copies = [type(each).FromString(each.SerializeToString()) for each in sizes]
    for place, source in enumerate(last):
        value.type.tensor_type.shape.dim[place].CopyFrom(copies[source])
    return last, [0, len(sizes) - 1, *range(1, len(sizes) - 1)]


def _turn_input(graph: GraphProto, value: ValueInfoProto) -> None:
    name, inner = value.name, f"{value.name}_chanfirst"
    _, back = _turned(value)
    for node in graph.node:
        ONNXModel.replace_node_input(node, name, inner)
    _insert(graph, helper.make_node("Transpose", [name], [inner], f"Transpose_channel_{name}", perm=back))


def _turn_output(graph: GraphProto, value: ValueInfoProto) -> None:
    name, inner = value.name, f"{value.name}_chanfirst"
    last, _ = _turned(value)
    for node in graph.node:
        ONNXModel.replace_node_output(node, name, inner)
        ONNXModel.replace_node_input(node, name, inner)
    _insert(graph, helper.make_node("Transpose", [inner], [name], f"Transpose_channel_{name}", perm=last))


def _insert(graph: GraphProto, node: NodeProto) -> None:
    graph.node.append(node)
    put_in_order(graph, is_deep=False)
