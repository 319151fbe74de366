"""write_proto(): a model in the form of its file to a path; what it replaces stays until the new files are whole."""

from __future__ import annotations

import errno
import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import onnx
from onnx import GraphProto, ModelProto, TensorProto, external_data_helper

from ort_core.onnx_io.proto_graphs import graphs_of
from ort_core.onnx_io.save import MAX_PROTOBUF_NBYTES
from ort_core.whole_files import is_no_regular_file, move_whole, replace_file

THRESHOLD = 1024
_STRUCTURE_NBYTES = 1 << 26  # left for nodes and names
_KEPT = 50  # letters of a name, so that the longest ones leave room for the ending


def write_proto(
    model: ModelProto,
    path: str | os.PathLike,
    *,
    has_external_data: bool = False,
    is_one_file: bool = True,
    location: str | None = None,
    size_threshold: int = THRESHOLD,
    convert_attribute: bool = False,
) -> None:
    """Write a model, its large tensors beside it where that is asked for, or where no file would hold them.

    Args:
        model: not changed.
        path: of the model.
        has_external_data: whether large tensors get files of their own.
        is_one_file: whether that is one file; else there is one for each tensor, by its name.
        location: the name of the one file, by default that of the model with ``.data``.
        size_threshold: bytes from which on a tensor is large.
        convert_attribute: move tensors of attributes, too.

    Raises:
        OSError: a file cannot be written.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{str(target)!r} cannot be written: there is no folder {str(target.parent)!r}")
    tensors = [tensor for graph in graphs_of(model.graph) for tensor in graph.initializer]
    is_too_large = sum(len(each.raw_data) for each in tensors) > MAX_PROTOBUF_NBYTES - _STRUCTURE_NBYTES
    is_split = has_external_data or is_too_large
    if is_no_regular_file(target):
        if is_split:
            raise IsADirectoryError(errno.EISDIR, "a model with files beside it needs a file of its own", str(target))
        replace_file(target, model.SerializeToString())
        return
    with tempfile.TemporaryDirectory(prefix=f".{target.name[:_KEPT]}.partial-", dir=target.parent) as folder:
        made = Path(folder) / target.name
        written = model
        if is_split:
            written = ModelProto()
            written.CopyFrom(model)
            one = (location or f"{target.name}.data") if is_one_file else None
            for tensor in _tensors(written.graph, convert_attribute):
                if tensor.HasField("raw_data") and len(tensor.raw_data) >= size_threshold:
                    external_data_helper.set_external_data(tensor, one or _file_name(tensor.name, target.name))
            if one is not None:
                (Path(folder) / one).parent.mkdir(parents=True, exist_ok=True)
        onnx.save_model(written, made)
        _put_in_place(Path(folder), target)


def _tensors(graph: GraphProto, with_attributes: bool) -> Iterator[TensorProto]:
    for each in graphs_of(graph):
        yield from each.initializer
        for node in each.node if with_attributes else ():
            for attribute in node.attribute:
                yield from (attribute.t, *attribute.tensors)


def _file_name(tensor: str, model: str) -> str:
    """Return a file's name for a tensor: its own, where it is one."""
    is_name = tensor not in ("", ".", "..", model) and not set(tensor) & set('<>:;,?"*|/\\\0')
    return tensor if is_name else str(uuid.uuid1())


def _put_in_place(folder: Path, target: Path) -> None:
    """Move files from a folder to where the model goes, the model last."""
    files = [each for each in folder.rglob("*") if each.is_file()]
    for each in sorted(files, key=lambda each: each.name == target.name and each.parent == folder):
        place = target.parent / each.relative_to(folder)
        place.parent.mkdir(parents=True, exist_ok=True)
        move_whole(each, place)
