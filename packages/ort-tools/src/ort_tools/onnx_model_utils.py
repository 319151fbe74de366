"""Helpers for models' files: walks, operator sets, fixed sizes, optimized copies; onnxruntime.tools' names."""

from __future__ import annotations

import logging
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import onnx
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

import ort_core
from ort_core.model_graphs import write_proto
from ort_core.model_types import infer_proto
from ort_tools.opsets.conversion import bodies_of, convert_opset

_LEVELS = {
    "disable": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED",
    "layout": "ORT_ENABLE_LAYOUT", "all": "ORT_ENABLE_ALL",
}  # fmt: skip
_EXTERNAL_FILE = "external_data.pb"


def iterate_graph_per_node_func(graph: GraphProto, per_node_func: Callable[..., object], **func_args: Any) -> None:
    """Call ``per_node_func(node, **func_args)`` for each node of a graph and of the graphs within it."""
    for node in graph.node:
        per_node_func(node, **func_args)
        for attribute in node.attribute:
            for body in bodies_of(attribute):
                iterate_graph_per_node_func(body, per_node_func, **func_args)


def iterate_graph_per_graph_func(graph: GraphProto, per_graph_func: Callable[..., object], **func_args: Any) -> None:
    """Call ``per_graph_func(graph, **func_args)`` for a graph and each graph within it."""
    per_graph_func(graph, **func_args)
    for node in graph.node:
        for attribute in node.attribute:
            for body in bodies_of(attribute):
                iterate_graph_per_graph_func(body, per_graph_func, **func_args)


def get_opsets_imported(model: ModelProto) -> dict[str, int]:
    """Return the version of each domain that a model imports; the empty one is ``ai.onnx``."""
    return {each.domain or "ai.onnx": int(each.version) for each in model.opset_import}


def update_onnx_opset(
    model_path: pathlib.Path,
    opset: int,
    out_path: pathlib.Path | None = None,
    logger: logging.Logger | None = None,
) -> ModelProto:
    """Write a model in another version of ai.onnx, newer or older (``opsets.conversion``).

    Args:
        model_path: the model's file.
        opset: the version, from 7 to 28.
        out_path: the file to write, if one is.
        logger: told what is read and written.

    Raises:
        OpsetRefusal: a node has no form in that version.
        InvalidArgument: the version lies outside.
    """
    path = str(pathlib.Path(model_path).resolve(strict=True))
    if logger:
        logger.info("Updating %s to opset %d", path, opset)
    converted = convert_opset(onnx.load(path), opset)
    if out_path:
        write_proto(converted, out_path)
        if logger:
            logger.info("Saved updated model to %s", out_path)
    return converted


def optimize_model(
    model_path: pathlib.Path,
    output_path: pathlib.Path,
    level: ort_core.GraphOptimizationLevel = ort_core.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    log_level: int = 3,
    use_external_initializers: bool = False,
) -> None:
    """Write the model that a session's passes make.

    Args:
        model_path: the model's file.
        output_path: the file to write.
        level: which passes.
        log_level: of the session, by default errors alone.
        use_external_initializers: write weights into ``external_data.pb`` beside it; models above 2 GB need that.

    Raises:
        OrtError: the model cannot be loaded.
    """
    options = ort_core.SessionOptions()
    options.optimized_model_filepath = str(pathlib.Path(output_path).resolve())
    options.graph_optimization_level = level
    options.log_severity_level = log_level
    if use_external_initializers:
        key = "session.optimized_model_external_initializers_file_name"
        options.add_session_config_entry(key, _EXTERNAL_FILE)
    source = str(pathlib.Path(model_path).resolve(strict=True))
    ort_core.InferenceSession(source, options, providers=["CPUExecutionProvider"])


# ---- sizes


def _tensors(graph: GraphProto) -> Iterator[ValueInfoProto]:
    for each in (*graph.input, *graph.output, *graph.value_info):
        if each.type.HasField("tensor_type"):
            yield each


def remove_invalid_dim_values(graph: GraphProto) -> None:
    """Let sizes below 1, which converters write for open ones, be open, in a graph and the graphs within it."""

    def clear(inner: GraphProto) -> None:
        for each in _tensors(inner):
            for dim in each.type.tensor_type.shape.dim:
                if dim.HasField("dim_value") and dim.dim_value < 1:
                    dim.Clear()

    iterate_graph_per_graph_func(graph, clear)


def make_dim_param_fixed(graph: GraphProto, param_name: str, value: int) -> None:
    """Let a named size be a number, wherever it stands in a graph and the graphs within it."""

    def fix(inner: GraphProto) -> None:
        for each in _tensors(inner):
            for dim in each.type.tensor_type.shape.dim:
                if dim.HasField("dim_param") and dim.dim_param == param_name:
                    dim.dim_value = value

    iterate_graph_per_graph_func(graph, fix)


def make_input_shape_fixed(graph: GraphProto, input_name: str, fixed_shape: Sequence[int]) -> None:
    """Give an input a fixed shape; names of sizes that it has become numbers everywhere.

    Args:
        graph: changed in place; sizes below 1 become open first.
        input_name: the input.
        fixed_shape: its sizes.

    Raises:
        ValueError: there is no such input, it is not a tensor, it has another rank, or a size is fixed otherwise.
    """
    remove_invalid_dim_values(graph)
    found = next((each for each in graph.input if each.name == input_name), None)
    if found is None:
        raise ValueError(
            f"Input {input_name} was not found in graph inputs. Valid input names are: "
            f"{','.join(each.name for each in graph.input)}"
        )
    if not found.type.HasField("tensor_type"):
        raise ValueError(f"Input {input_name} is not a tensor")
    dims = found.type.tensor_type.shape.dim
    if len(dims) != len(fixed_shape):
        raise ValueError(f"Rank mismatch. Existing:{len(dims)} Replacement:{len(fixed_shape)}")
    for place, (dim, size) in enumerate(zip(dims, fixed_shape, strict=True), 1):
        if dim.HasField("dim_value"):
            if dim.dim_value != size:
                raise ValueError(
                    f"Can't replace existing fixed size of {dim.dim_value} with {size} for dimension {place}"
                )
        elif dim.HasField("dim_param"):
            make_dim_param_fixed(graph, dim.dim_param, size)
        else:
            dim.dim_value = size


def fix_output_shapes(model: ModelProto) -> None:
    """Write into a model's outputs the fixed shapes that now follow from its inputs.

    Raises:
        OrtError: the model cannot be loaded.
    """
    bare = ModelProto()
    bare.CopyFrom(model)
    typed = infer_proto(bare).model
    for output, found in zip(model.graph.output, typed.graph.output, strict=True):
        if not is_fixed_size_tensor(output) and is_fixed_size_tensor(found):
            output.type.tensor_type.shape.CopyFrom(found.type.tensor_type.shape)


def is_fixed_size_tensor(value: ValueInfoProto) -> bool:
    """Return whether a value is stated to be a tensor all of whose sizes are numbers above 0."""
    if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
        return False
    return all(dim.HasField("dim_value") and dim.dim_value > 0 for dim in value.type.tensor_type.shape.dim)


# ---- who makes what


def get_producer_consumer_maps(
    graph: GraphProto,
) -> tuple[dict[NodeProto, set[NodeProto]], dict[NodeProto, set[NodeProto]]]:
    """Return which nodes make what a node reads, and which read what a node makes; graphs within count, too.

    Nodes are keys by what they are, not by what they say: ``NodeProto`` gets a hash of its identity, as programs of
    onnxruntime's expect.

    Raises:
        ValueError: a node reads a value that nothing makes.
    """
    NodeProto.__hash__ = lambda self: id(self)  # type: ignore[method-assign]  # see above
    producers: dict[NodeProto, set[NodeProto]] = {}
    consumers: dict[NodeProto, set[NodeProto]] = {}
    missing = _link(graph, producers, consumers)
    if missing:
        raise ValueError(f"This appears to be an invalid model with missing inputs of {','.join(sorted(missing))}")
    return producers, consumers


def _link(
    graph: GraphProto, producers: dict[NodeProto, set[NodeProto]], consumers: dict[NodeProto, set[NodeProto]]
) -> set[str]:
    """Link the nodes of a graph; return the names that it takes from the graphs around it."""
    given = {each.name for each in (*graph.input, *graph.initializer)}
    given |= {each.values.name for each in graph.sparse_initializer}
    makers: dict[str, NodeProto] = {}
    captured: set[str] = set()
    for node in graph.node:
        names = {name for name in node.input if name}
        for attribute in node.attribute:
            for body in bodies_of(attribute):
                names |= _link(body, producers, consumers)
        for name in names:
            maker = makers.get(name)
            if maker is not None:
                producers.setdefault(node, set()).add(maker)
                consumers.setdefault(maker, set()).add(node)
                producers.setdefault(maker, set())
                consumers.setdefault(node, set())
            elif name not in given:
                captured.add(name)
        makers.update(dict.fromkeys(node.output, node))
    return captured


def get_optimization_level(level: str) -> ort_core.GraphOptimizationLevel:
    """Return the level of a name: disable, basic, extended, layout or all. Raises ``ValueError``: it is none."""
    if level not in _LEVELS:
        raise ValueError(f"Invalid optimization level of {level}; they are {', '.join(_LEVELS)}")
    found: ort_core.GraphOptimizationLevel = getattr(ort_core.GraphOptimizationLevel, _LEVELS[level])
    return found


class ModelProtoWithShapeInfo:
    """A model's file with the types of its values, in ``model_with_shape_info``; models above 2 GB, too.

    Args:
        model_path: the file; its external data is not read.

    Raises:
        OrtError: the model cannot be loaded.
    """

    def __init__(self, model_path: pathlib.Path) -> None:
        self.model_path = model_path
        self.model_with_shape_info = infer_proto(str(model_path)).model
