"""Models in and out of files: read with the shapes that ONNX infers, marked, brought to a newer opset, written.

Large tensors that lie in files of their own stay there: a model is read without them, each is read when it is
quantized, and those that stay as they are go from file to file in pieces. Nothing beside the model is written to.
"""

from __future__ import annotations

import logging
import math
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import onnx
from onnx import ModelProto, TensorProto, defs, external_data_helper, helper, numpy_helper

from ort_core.errors import NoSuchFile
from ort_core.model_graphs import graphs_of, without_functions
from ort_core.whole_files import written_whole
from ort_quantization.errors import InvalidQuantization
from ort_quantization.models.dropout_masks import BOOL_SINCE, write_out_masks
from ort_quantization.models.model_checks import checked
from ort_quantization.models.node_order import name_apart, put_in_order
from ort_quantization.models.retired_operators import replace_retired
from ort_quantization.models.tensor_folder import SET_ASIDE_FROM, TensorFolder
from ort_quantization.models.unseen_types import inferred_seen, show, unseen
from ort_quantization.quantized_types import type_name

log = logging.getLogger(__name__)

PREPARED = ("onnx.quant.pre_process", "onnxruntime.quant")
"""The mark of a model that was prepared before: key and value of its metadata."""

INFERRED = ("onnx.infer", "onnxruntime.quant")
"""The mark of a model whose shapes were inferred here: key and value of its metadata."""

FILE_LIMIT = 2**31 - 2**20  # bytes; protobuf's own limit is 2 GiB, and the rest of a message needs some
EXTERNAL_FROM = 1024  # bytes: smaller tensors stay in the model's own file, as onnx writes them
_LAST_OPSET = 28
_FIRST_OPSET = 7  # before, operators broadcast by an attribute
_INITIALIZERS_ALONE = 9  # opset from which on ONNX's converter finds initializers that are no inputs
_IR_WITH_INITIALIZERS_ALONE = 4
FIRST_OPSET_OF_CHANNELS = 13  # opset in which QuantizeLinear and DequantizeLinear have an axis
_ASIDE = "ort.quantization.aside"  # a domain for the time that ONNX's converter is not to look at nodes
_ALIGNMENT = 64  # bytes; a mapped tensor may then be read by any vector unit
_PIECE = 2**24  # bytes that are copied at once from file to file

Source = ModelProto | str | Path


def read_model(source: Source) -> tuple[ModelProto, str]:
    """Return a model of its own, its nodes in order, and the folder of its external data; that data is not read.

    Raises:
        NoSuchFile: there is no such file.
        InvalidQuantization: the file is no model.
    """
    if isinstance(source, ModelProto):
        copied = ModelProto()
        copied.CopyFrom(source)
        checked(copied.graph)
        put_in_order(copied.graph)
        name_apart(copied.graph)
        return copied, ""
    if not isinstance(source, str | os.PathLike):
        hint = "; onnx.load_model_from_string makes a model of bytes" if isinstance(source, bytes) else ""
        raise InvalidQuantization(f"a model or the path of one is quantized, not {type(source).__name__}{hint}")
    path = Path(source)
    if path.is_dir():
        raise InvalidQuantization(f"{path} is a folder; the file of a model is expected")
    if not path.is_file():
        raise NoSuchFile(f"{path} cannot be quantized: there is no such file")
    if not path.stat().st_size:
        raise InvalidQuantization(f"{path} is no ONNX model: the file is empty")
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:
        raise InvalidQuantization(f"{path} is no ONNX model: {error}") from error
    checked(model.graph)
    put_in_order(model.graph)
    name_apart(model.graph)
    return model, str(path.parent)


def read_with_shapes(source: Source) -> tuple[ModelProto, str]:
    """Return a model with inferred shapes, marked so, and the folder of its external data."""
    model, folder = read_model(source)
    return with_shapes(model, folder), folder


def with_shapes(model: ModelProto, folder: str = "") -> ModelProto:
    """Return a model, its nodes in order, with the shapes that ONNX infers, marked so; the one given may be changed."""
    put_in_order(model.graph)
    opset_of(model)  # which refuses what ONNX's inference would fail on
    read_integers(model, folder)  # targets of Reshape, axes: shapes follow from them
    is_large = model.ByteSize() > FILE_LIMIT
    model = _shapes_by_file(model) if is_large else inferred(model)
    mark(model, INFERRED)
    return model


def inferred(model: ModelProto) -> ModelProto:
    """Return a model of less than 2 GB with the shapes that ONNX infers."""
    return inferred_seen(model)


def _shapes_by_file(model: ModelProto) -> ModelProto:
    """Infer shapes of a model that no single message holds: its weights lie beside it meanwhile."""
    with tempfile.TemporaryDirectory(prefix="ort.quantization.") as folder:
        path = Path(folder) / "model.onnx"
        with unseen(model):
            onnx.save_model(model, path, save_as_external_data=True, location="weights")
        onnx.shape_inference.infer_shapes_path(path, path.with_name("inferred.onnx"))
        found = onnx.load(path.with_name("inferred.onnx"))
    show(found)
    return found


def read_integers(model: ModelProto, folder: str) -> None:
    """Read the external tensors that are neither large nor floats."""
    for tensor in model.graph.initializer:
        if is_external(tensor) and tensor.data_type in (TensorProto.INT64, TensorProto.INT32):
            _load(tensor, folder)


def _load(tensor: TensorProto, folder: str) -> None:
    """Read the numbers of a tensor from its file.

    Raises:
        InvalidQuantization: the file is not there, or cannot be read.
    """
    try:
        external_data_helper.load_external_data_for_tensor(tensor, folder)
    except (OSError, onnx.checker.ValidationError) as error:
        raise _unreadable(tensor.name, external_data_helper.ExternalDataInfo(tensor).location, folder) from error


def _unreadable(name: str, location: str, folder: str) -> InvalidQuantization:
    """Return the refusal of a tensor whose file cannot be read."""
    return InvalidQuantization(
        f"the numbers of {name!r} lie in the file {location!r}, which cannot be read from {folder or 'this folder'}: "
        "give the path of the model, or load it with its external data"
    )


def has_element_type(model: ModelProto, element_type: int) -> bool:
    """Return whether values of a model, or tensors, are known to have an element type."""
    values = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    found = any(each.type.tensor_type.elem_type == element_type for each in values)
    return found or any(tensor.data_type == element_type for tensor in model.graph.initializer)


def is_external(tensor: TensorProto) -> bool:
    """Return whether the numbers of a tensor lie in a file of their own."""
    return external_data_helper.uses_external_data(tensor)


def read_tensor(tensor: TensorProto, folder: str) -> TensorProto:
    """Return a tensor whose numbers are in memory: itself, or a copy with what its file holds."""
    if not is_external(tensor):
        return tensor
    copied = TensorProto()
    copied.CopyFrom(tensor)
    place = external_data_helper.ExternalDataInfo(tensor)
    own = folder.opened(place.location) if isinstance(folder, TensorFolder) else None
    if own is None:
        _load(copied, folder)
    else:
        own.seek(place.offset or 0)
        copied.raw_data = own.read(place.length or 0)
    copied.ClearField("data_location")
    del copied.external_data[:]
    return copied


def mark(model: ModelProto, entry: tuple[str, str]) -> None:
    """Write an entry into a model's metadata, unless its key is there."""
    if all(each.key != entry[0] for each in model.metadata_props):
        model.metadata_props.add(key=entry[0], value=entry[1])


def is_marked(model: ModelProto, entry: tuple[str, str]) -> bool:
    """Return whether a model's metadata has an entry."""
    return any((each.key, each.value) == entry for each in model.metadata_props)


def has_opset(model: ModelProto) -> bool:
    """Return whether a model imports ONNX's own operators."""
    return any(each.domain in ("", "ai.onnx") for each in model.opset_import)


def opset_of(model: ModelProto) -> int:
    """Return the version of ONNX's own operators that a model imports.

    Raises:
        InvalidQuantization: it imports none, or more than one.
    """
    versions = [each.version for each in model.opset_import if each.domain in ("", "ai.onnx")]
    if len(versions) != 1:
        raise InvalidQuantization(f"a model imports one version of ONNX's operators; this one imports {versions}")
    return versions[0]


def needed_opset(opset: int, types: set[int], has_blocks: bool) -> int:
    """Return the least opset, from the model's own on, in which element types can be quantized to."""
    if has_blocks or types & {TensorProto.INT16, TensorProto.UINT16}:
        return max(opset, 21)
    if types & {TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT16}:  # QuantizeLinear of float16, too
        return max(opset, 19)
    return max(opset, 11) if opset < 10 else opset


def converted_to(model: ModelProto, target: int) -> ModelProto:
    """Return a model in another opset, by ONNX's converter, with functions inlined: it drops them.

    Raises:
        InvalidQuantization: the converter refuses.
        OrtError: a function cannot be inlined.
    """
    model = without_functions(model)
    opset, graph = opset_of(model), model.graph
    inputs = {each.name for each in graph.input}
    # Of the opsets before 9 the converter knows initializers by the inputs that stand for them, as IR 3 has them.
    hidden = [each for each in graph.initializer if opset < _INITIALIZERS_ALONE and each.name not in inputs]
    shown = ModelProto()
    shown.CopyFrom(model)
    if opset < _INITIALIZERS_ALONE:
        replace_retired(shown.graph)
        known = {*inputs, *(each.name for each in hidden)}
        hidden += [each for each in shown.graph.initializer if each.name not in known]
    if opset < BOOL_SINCE <= target:
        write_out_masks(shown)
    shown.graph.input.extend(helper.make_tensor_value_info(each.name, each.data_type, each.dims) for each in hidden)
    try:
        with unseen(shown):
            has_set_aside = _set_aside(shown, opset)
            found = onnx.version_converter.convert_version(shown, target)
        show(found)
    except (RuntimeError, ValueError, TypeError, onnx.version_converter.ConvertError) as error:
        raise InvalidQuantization(f"ONNX cannot convert the model from opset {opset} to {target}: {error}") from error
    if has_set_aside:
        _bring_back(found)
    names = {each.name for each in hidden}
    kept = [each for each in found.graph.input if each.name not in names]
    del found.graph.input[:]
    found.graph.input.extend(kept)
    if hidden:
        found.ir_version = max(found.ir_version, _IR_WITH_INITIALIZERS_ALONE)
    return found


def converted_without(model: ModelProto, aside: list[TensorProto], target: int) -> ModelProto:
    """Return a model in another opset; tensors that the converter need not see are its inputs meanwhile.

    The converter keeps no references to files. The model given is changed.

    Args:
        model: to convert.
        aside: some of its initializers.
        target: of ONNX's own operators.

    Raises:
        InvalidQuantization: the converter refuses.
    """
    graph, inputs = model.graph, {each.name for each in model.graph.input}
    hidden = {each.name for each in aside}
    kept = [each for each in graph.initializer if each.name not in hidden]
    added = [each for each in aside if each.name not in inputs]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    graph.input.extend(helper.make_tensor_value_info(each.name, each.data_type, each.dims) for each in added)
    converted = converted_to(model, target)
    names = {each.name for each in added}
    left = [each for each in converted.graph.input if each.name not in names]
    del converted.graph.input[:]
    converted.graph.input.extend(left)
    converted.graph.initializer.extend(aside)
    return converted


def _set_aside(model: ModelProto, opset: int) -> bool:
    """Give operators that ONNX's opset does not have a domain of their own, which its converter passes over.

    onnxruntime's optimizers write SimplifiedLayerNormalization and others without a domain.
    """
    found = False
    for each in graphs_of(model.graph):
        for node in each.node:
            if node.domain in ("", "ai.onnx") and not defs.has(node.op_type, opset):
                node.domain, found = _ASIDE, True
    if found:
        model.opset_import.add(domain=_ASIDE, version=1)
    return found


def _bring_back(model: ModelProto) -> None:
    """Undo what ``_set_aside`` did."""
    for each in graphs_of(model.graph):
        for node in each.node:
            if node.domain == _ASIDE:
                node.domain = ""
    kept = [each for each in model.opset_import if each.domain != _ASIDE]
    del model.opset_import[:]
    model.opset_import.extend(kept)


def with_opset_for(
    model: ModelProto, folder: str, types: set[int], has_blocks: bool = False, has_channels: bool = False
) -> ModelProto:
    """Return a model in an opset whose operators take element types; a newer one is warned of.

    Args:
        model: to quantize.
        folder: where its external data lies.
        types: element types.
        has_blocks: whether numbers share a scale in blocks.
        has_channels: whether DequantizeLinear has a scale for each channel, as it may from opset 13 on.

    Raises:
        InvalidQuantization: the opset is too old, or ONNX's converter cannot bring the model to the newer one.
    """
    opset = opset_of(model)
    if opset < _FIRST_OPSET:
        raise InvalidQuantization(
            f"opset {opset} is too old: models of opsets {_FIRST_OPSET} to {_LAST_OPSET} are quantized; convert the "
            "model by onnx.version_converter.convert_version(model, 13)"
        )
    if opset > _LAST_OPSET:
        raise InvalidQuantization(
            f"opset {opset} is too new: models of opsets {_FIRST_OPSET} to {_LAST_OPSET} are quantized"
        )
    target = max(needed_opset(opset, types, has_blocks), FIRST_OPSET_OF_CHANNELS if has_channels else 0)
    if target == opset:
        return model
    log.warning(
        "opset %d cannot express a quantization to %s%s; the model is converted to opset %d",
        opset, ", ".join(sorted(type_name(each) for each in types)), " by channel" if has_channels else "", target,
    )  # fmt: skip
    for tensor in model.graph.initializer:
        if is_external(tensor) and not _is_large(tensor):
            tensor.CopyFrom(read_tensor(tensor, folder))
    aside = [tensor for tensor in model.graph.initializer if is_external(tensor)]
    return with_shapes(converted_without(model, aside, target), folder)


def _is_large(tensor: TensorProto) -> bool:
    """Return whether the numbers of a tensor outside are so many that no operator's settings can be among them."""
    is_float = tensor.data_type in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    return is_float and 4 * math.prod(tensor.dims) >= SET_ASIDE_FROM


def refuse_unwritable(path: object, what: str = "model") -> None:
    """Refuse a place for a file that cannot be written, before the work whose result it is to hold.

    Raises:
        InvalidQuantization: it is no path, or a folder, or its folder cannot be written to.
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        found = "an empty text" if isinstance(path, str) else type(path).__name__
        raise InvalidQuantization(f"the path of the {what} to write is expected, not {found}")
    target = Path(path)
    if target.is_dir():
        raise InvalidQuantization(f"{target} is a folder; the path of the file to write is expected")
    folder = next((each for each in target.absolute().parents if each.exists()), Path())
    if not folder.is_dir():
        raise InvalidQuantization(f"{target} cannot be written: {folder} is no folder")
    if not os.access(folder, os.W_OK | os.X_OK) or not _takes_files(folder):
        raise InvalidQuantization(f"{target} cannot be written: files cannot be made in {folder}")


def _takes_files(folder: Path) -> bool:
    """Return whether a file can be made in a folder: that of a system such as /proc takes none, whatever it says."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class TensorFile:
    """Where the large tensors of a written model lie.

    Attributes:
        location: name of their file, in the model's folder; that of the model with ``.data`` behind it by default.
        large_from: bytes from which on a tensor is large.
    """

    location: str | None
    large_from: int

    def beside(self, model: Path) -> Path:
        """Return the path of the file.

        Raises:
            InvalidQuantization: it would lie outside the model's folder, where no engine reads it.
        """
        path = model.with_name(model.name + ".data") if self.location is None else model.parent / self.location
        if path == model or not path.resolve().is_relative_to(model.parent.resolve()):
            raise InvalidQuantization(f"external data {self.location!r} is to lie in the folder of {model}, beside it")
        return path


def write_model(
    model: ModelProto, folder: str, path: str | Path, has_external_data: bool, tensors: TensorFile | None = None
) -> None:
    """Write a model, and its large tensors into a file beside it where that is asked for or needed.

    Args:
        model: what is written; afterwards its large tensors refer to that file.
        folder: where its external tensors lie.
        path: of the model.
        has_external_data: whether large tensors get a file of their own.
        tensors: where that file lies, and which tensors are large.
    """
    path, tensors = Path(path), tensors or TensorFile(None, EXTERNAL_FROM)
    refuse_unwritable(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not has_external_data and model.ByteSize() + _external_bytes(model) > FILE_LIMIT:
        log.warning("%s would have more than 2 GB: its tensors are written into %s", path, tensors.beside(path))
        has_external_data = True
    with written_whole(path) as place:
        if has_external_data and _large_tensors(model, tensors):
            _write_both(model, folder, place, tensors.beside(path), tensors)
            return
        for graph in graphs_of(model.graph):
            for tensor in graph.initializer:
                if is_external(tensor):
                    tensor.CopyFrom(read_tensor(tensor, folder))
        place.write_bytes(model.SerializeToString())


def _external_bytes(model: ModelProto) -> int:
    entries = (entry for each in model.graph.initializer if is_external(each) for entry in each.external_data)
    return sum(int(entry.value) for entry in entries if entry.key == "length")


def _write_both(model: ModelProto, folder: str, place: Path, beside: Path, large: TensorFile) -> None:
    """Move the large tensors of all graphs into one file, and write the model that refers to it.

    Those that lie in files go there in pieces. Neither takes its name before both are whole: a source may be its own
    target, and the former model would read the new tensors.
    """
    beside.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(beside) as place_beside:
        with place_beside.open("wb") as file:
            for tensor in _large_tensors(model, large):
                _move(tensor, folder, file, large.location or beside.name)
        place.write_bytes(model.SerializeToString())


def _large_tensors(model: ModelProto, large: TensorFile) -> list[TensorProto]:
    """Return the tensors of all graphs that get a file of their own."""
    tensors = (tensor for graph in graphs_of(model.graph) for tensor in graph.initializer)
    return [each for each in tensors if is_external(each) or each.ByteSize() >= large.large_from]


def _move(tensor: TensorProto, folder: str, file: IO[bytes], name: str) -> None:
    if tensor.data_type == TensorProto.STRING:
        return
    file.write(b"\0" * (-file.tell() % _ALIGNMENT))
    start = file.tell()
    if is_external(tensor):
        _copy(tensor.name, external_data_helper.ExternalDataInfo(tensor), folder, file)
    else:
        raw = tensor.raw_data if tensor.HasField("raw_data") else _raw(tensor)
        file.write(raw)
    length = file.tell() - start
    for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
        tensor.ClearField(field)
    del tensor.external_data[:]
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", name), ("offset", start), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))


def _raw(tensor: TensorProto) -> bytes:
    return numpy_helper.from_array(numpy_helper.to_array(tensor)).raw_data


def _copy(name: str, place: external_data_helper.ExternalDataInfo, folder: str, file: IO[bytes]) -> None:
    """Copy what a tensor refers to; its file must lie in the model's folder."""
    own = folder.opened(place.location) if isinstance(folder, TensorFolder) else None
    if own is not None:
        own.seek(place.offset or 0)
        _copy_bytes(own, place.length or 0, file, "the file of tensors that were set aside")
        return
    root = Path(folder).resolve()
    source = Path(folder) / place.location
    if Path(place.location).is_absolute() or not (root / place.location).absolute().is_relative_to(root):
        raise InvalidQuantization(f"external data {place.location!r} lies outside the model's folder {folder}")
    if not source.is_file():
        raise _unreadable(name, place.location, folder)
    with source.open("rb") as other:
        offset = place.offset or 0
        left = place.length if place.length is not None else source.stat().st_size - offset
        other.seek(offset)
        _copy_bytes(other, left, file, str(source))


def _copy_bytes(source: IO[bytes], left: int, file: IO[bytes], name: str) -> None:
    while left:
        piece = source.read(min(left, _PIECE))
        if not piece:
            raise InvalidQuantization(f"{name} ends {left} bytes before the tensor that lies in it")
        file.write(piece)
        left -= len(piece)
