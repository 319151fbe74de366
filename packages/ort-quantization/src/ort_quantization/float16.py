"""``convert_float_to_float16`` with onnxruntime's arguments: a model whose numbers take half the memory."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

from ort_core.model_graphs import graphs_of, without_functions
from ort_quantization.arguments.given_arguments import refuse_single_names
from ort_quantization.errors import InvalidQuantization
from ort_quantization.half_floats.float16_conversion import HalfConversion, HalfRules
from ort_quantization.half_floats.float16_tensors import LEAST, MOST, half_floats, make_half
from ort_quantization.half_floats.float16_types import opset_that_takes
from ort_quantization.models.model_checks import checked
from ort_quantization.models.model_files import (
    has_opset,
    inferred,
    is_external,
    opset_of,
    read_model,
    read_tensor,
    with_shapes,
)
from ort_quantization.weight_only.matmul_nbits_opset import converted_to

__all__ = [
    "ALWAYS_FLOAT_INPUTS", "DEFAULT_OP_BLOCK_LIST", "convert_float_to_float16", "convert_np_to_float16",
    "convert_tensor_float_to_float16", "float_to_float16_max_diff", "make_value_info_from_tensor",
]  # fmt: skip

log = logging.getLogger(__name__)

_LAST_OPSET_OF_HALVES = 22  # what later opsets add is rare, and few engines read them

DEFAULT_OP_BLOCK_LIST = [
    "ArrayFeatureExtractor", "Binarizer", "CastMap", "CategoryMapper", "CumSum", "DictVectorizer", "FeatureVectorizer",
    "Imputer", "LabelEncoder", "LinearClassifier", "LinearRegressor", "Max", "Min", "NonMaxSuppression", "Normalizer",
    "OneHotEncoder", "RandomUniformLike", "Range", "RoiAlign", "SVMClassifier", "SVMRegressor", "Scaler", "TopK",
    "TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor", "Upsample", "ZipMap",
]  # fmt: skip
"""Operators that stay float32 by default, as onnxruntime's tool leaves them."""

ALWAYS_FLOAT_INPUTS = {"Resize": [2], "GroupNorm": [1, 2], "SkipGroupNorm": [1, 2]}
"""Places of inputs that are float32 in a model of float16, too, by operator, as onnxruntime lists them."""


def make_value_info_from_tensor(tensor: TensorProto) -> ValueInfoProto:
    """Return the name, type and shape of a tensor, as an input of a graph states them."""
    return helper.make_tensor_value_info(tensor.name, tensor.data_type, numpy_helper.to_array(tensor).shape)


def convert_float_to_float16(
    model: ModelProto | str | Path,
    min_positive_val: float = LEAST,
    max_finite_val: float = MOST,
    keep_io_types: bool | Sequence[str] = False,
    disable_shape_infer: bool = False,
    op_block_list: Iterable[str] | None = None,
    node_block_list: Iterable[str] | None = None,
    force_fp16_initializers: bool = False,
    force_fp16_inputs: Mapping[str, Collection[int]] | None = None,
    use_bfloat16_as_blocked_nodes_dtype: bool = False,
) -> ModelProto:
    """Return a model in float16.

    Args:
        model: a model, which may be changed where ``disable_shape_infer`` is set, or the path of a file.
        min_positive_val: magnitude that smaller ones, but zero, are raised to; 5.96e-08 or more.
        max_finite_val: magnitude that larger finite ones are cut to; 65504 or less.
        keep_io_types: whether inputs and outputs stay float32, or the names of those that do.
        disable_shape_infer: types are inferred already. They are inferred nevertheless if one is missing beside a node
            that stays float32.
        op_block_list: operators that stay float32; ``DEFAULT_OP_BLOCK_LIST`` by default.
        node_block_list: names of nodes that do.
        force_fp16_initializers: convert weights that only blocked nodes read, too.
        force_fp16_inputs: places of inputs by operator that become float16 although they are float32 by default.
        use_bfloat16_as_blocked_nodes_dtype: blocked nodes compute in bfloat16 instead of float32.

    Raises:
        InvalidQuantization: a limit is beyond float16, or the model is none.
        NoSuchFile: there is no such model.
    """
    refuse_single_names(op_block_list=op_block_list, node_block_list=node_block_list)
    if min_positive_val < LEAST:
        raise InvalidQuantization(f"min_positive_val {min_positive_val}; float16 begins at {LEAST}")
    if max_finite_val > MOST:
        raise InvalidQuantization(f"max_finite_val {max_finite_val}; float16 ends at {MOST}")
    blocked = TensorProto.BFLOAT16 if use_bfloat16_as_blocked_nodes_dtype else TensorProto.FLOAT
    operators = DEFAULT_OP_BLOCK_LIST if op_block_list is None else op_block_list
    return converted(
        model, TensorProto.FLOAT16, blocked, (min_positive_val, max_finite_val), keep_io_types, disable_shape_infer,
        set(operators), set(node_block_list or ()), force_fp16_initializers, force_fp16_inputs or {},
    )  # fmt: skip


def converted(
    source: ModelProto | str | Path, half: int, blocked_type: int, ends: tuple[float, float],
    keep_io_types: bool | Sequence[str], has_types: bool, operators: set[str], nodes: set[str],
    has_forced_tensors: bool, forced_inputs: Mapping[str, Collection[int]], least_opset: int = 0,
) -> ModelProto:  # fmt: skip
    """Return a model in a half type; arguments as of ``convert_float_to_float16``."""
    if not isinstance(source, ModelProto | str | Path):
        raise InvalidQuantization(f"a model or the path of one is converted, not {type(source).__name__}")
    model, folder = (source, "") if isinstance(source, ModelProto) else read_model(source)
    model = converted_in_files(
        model, folder, half, blocked_type, ends, keep_io_types, has_types, operators, nodes, has_forced_tensors,
        forced_inputs, least_opset,
    )  # fmt: skip
    for graph in graphs_of(model.graph):
        for tensor in graph.initializer:
            if is_external(tensor):
                tensor.CopyFrom(read_tensor(tensor, folder))
    return model


def converted_in_files(
    model: ModelProto, folder: str, half: int, blocked_type: int, ends: tuple[float, float],
    keep_io_types: bool | Sequence[str], has_types: bool, operators: set[str], nodes: set[str],
    has_forced_tensors: bool, forced_inputs: Mapping[str, Collection[int]], least_opset: int = 0,
) -> ModelProto:  # fmt: skip
    """Return a model in a half type whose tensors may lie in its folder before and behind; the rest as above."""
    checked(model.graph)
    model = without_functions(model)
    before = opset_of(model) if has_opset(model) else least_opset
    if before < least_opset:
        model = converted_to(model, least_opset, "casts to bfloat16")
    if half == TensorProto.BFLOAT16 and has_opset(model):
        model = _in_opset_of_bfloat16(model, operators, nodes)
    has_types = has_types and (not has_opset(model) or opset_of(model) == before)
    if not has_types or _lacks_types(model, operators, nodes):
        model = _with_types(model, folder)
    rules = HalfRules(
        half, blocked_type, *ends, _kept(model, keep_io_types), operators, nodes, has_forced_tensors, forced_inputs
    )
    HalfConversion(model, folder, rules).convert()
    return model


def _in_opset_of_bfloat16(model: ModelProto, operators: set[str], nodes: set[str]) -> ModelProto:
    """Return a model in the opset in which its operators take bfloat16, as Conv does from 22 on.

    Where ONNX's converter refuses, it stays as it is.

    Args:
        model: is changed.
        operators: that stay float32 in any case.
        nodes: names of nodes that do.
    """
    opset = opset_of(model)
    found = (node for graph in graphs_of(model.graph) for node in graph.node if node.domain in ("", "ai.onnx"))
    types = {node.op_type for node in found if node.op_type not in operators and node.name not in nodes}
    needed = {each: opset_that_takes(each, opset, _LAST_OPSET_OF_HALVES, TensorProto.BFLOAT16) for each in types}
    target = max(needed.values(), default=opset)
    if target <= opset:
        return model
    late = ", ".join(sorted(each for each, least in needed.items() if least > opset))
    kept = ModelProto()
    kept.CopyFrom(model)
    try:
        return converted_to(model, target, f"{late} in bfloat16")
    except InvalidQuantization as error:
        log.warning("%s stay float32: %s", late, error)
        return kept


def _lacks_types(model: ModelProto, operators: set[str], nodes: set[str]) -> bool:
    """Return whether nothing tells the type of a value beside a node that stays float32: it may need a Cast."""
    known: set[str] = {""}
    for graph in graphs_of(model.graph):
        known.update(each.name for each in (*graph.value_info, *graph.input, *graph.output, *graph.initializer))
    return any(
        not known.issuperset((*node.input, *node.output))
        for graph in graphs_of(model.graph)
        for node in graph.node
        if node.op_type in operators or node.name in nodes
    )


def _with_types(model: ModelProto, folder: str) -> ModelProto:
    marks = [(each.key, each.value) for each in model.metadata_props]
    if folder:
        model = with_shapes(model, folder)
    elif model.ByteSize() < onnx.checker.MAXIMUM_PROTOBUF:
        model = inferred(model)
    else:
        copied = ModelProto()
        copied.CopyFrom(model)
        model = with_shapes(copied)
    del model.metadata_props[:]
    for key, value in marks:
        model.metadata_props.add(key=key, value=value)
    return model


def _kept(model: ModelProto, keep_io_types: bool | Sequence[str]) -> set[str]:
    if not isinstance(keep_io_types, bool):
        return set(keep_io_types)
    return {each.name for each in [*model.graph.input, *model.graph.output]} if keep_io_types else set()


def convert_np_to_float16(
    np_array: np.ndarray, min_positive_val: float = LEAST, max_finite_val: float = MOST
) -> np.ndarray:
    """Return numbers in float16, without losing signs, zeros or finiteness."""
    return half_floats(np.asarray(np_array), min_positive_val, max_finite_val)


def convert_tensor_float_to_float16(
    tensor: TensorProto, min_positive_val: float = LEAST, max_finite_val: float = MOST
) -> TensorProto:
    """Convert a tensor of float32 in place and return it; others stay.

    Raises:
        InvalidQuantization: it is no tensor.
    """
    if not isinstance(tensor, TensorProto):
        raise InvalidQuantization(f"a TensorProto is converted, not {type(tensor).__name__}")
    make_half(tensor, min_positive_val, max_finite_val)
    return tensor


def float_to_float16_max_diff(
    tensor: TensorProto, min_positive_val: float = LEAST, max_finite_val: float = MOST
) -> np.floating:
    """Return the largest difference that float16 makes to the numbers of a tensor of float32.

    Raises:
        InvalidQuantization: it is no tensor of float32 that is in memory.
    """
    if not isinstance(tensor, TensorProto) or tensor.data_type != TensorProto.FLOAT or is_external(tensor):
        raise InvalidQuantization("a tensor of float32 that is in memory can be compared with its float16 numbers")
    array = numpy_helper.to_array(tensor)
    return np.abs(array - half_floats(array, min_positive_val, max_finite_val).astype(np.float32)).max()
