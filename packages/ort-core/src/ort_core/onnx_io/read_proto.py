"""read_proto(): from a path, bytes or a file object to a ModelProto; other files are told by their first bytes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

import onnx
from google.protobuf.message import DecodeError

from ort_core.errors import Fail, InvalidArgument, InvalidProtobuf, InvalidType, NoSuchFile
from ort_core.onnx_io.ort_format import is_ort_format, read_ort_format

ProtoSource = str | bytes | bytearray | memoryview | os.PathLike | IO[bytes] | onnx.ModelProto


def read_proto(source: ProtoSource) -> tuple[onnx.ModelProto, Path | None]:
    """Return a model's protobuf, and the file that it was read from. Raises as ``load.load_model``."""
    if isinstance(source, onnx.ModelProto):
        return source, None
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _parse(bytes(source), "the given bytes"), None
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        try:
            if path.is_dir():
                raise InvalidProtobuf(f"Load model from {path} failed:Protobuf parsing failed. {_of_folder(path)}")
            if path.exists() and not path.is_file():
                raise InvalidProtobuf(
                    f"Load model from {path} failed:Protobuf parsing failed. It is a pipe or a device; read it, and "
                    "give its bytes."
                )
            if not path.is_file():
                raise NoSuchFile(f"Load model from {path} failed:Load model {path} failed. File doesn't exist")
            content = path.read_bytes()
        except (OSError, ValueError) as error:
            if isinstance(error, (NoSuchFile, InvalidProtobuf)):
                raise
            raise Fail(f"Load model from {str(source)!r} failed: {error}") from error
        return _parse(content, str(path)), path
    if hasattr(source, "read"):
        name = getattr(source, "name", None)
        path_of_file = Path(name) if isinstance(name, str) and os.path.exists(name) else None
        content = source.read()
        if not isinstance(content, bytes):
            raise InvalidType("a model's file object must be opened in binary mode ('rb')")
        return _parse(content, repr(source)), path_of_file
    raise InvalidType(f"Unable to load from type '{type(source)}'")


def _of_folder(path: Path) -> str:
    """Return what to give in place of a folder."""
    models = sorted(each.name for each in path.iterdir() if each.suffix in (".onnx", ".ort"))
    if not models:
        return "It is a folder without an .onnx file."
    return f"It is a folder; name a model in it: {', '.join(models[:3])}{', …' if len(models) > 3 else ''}."


def _parse(content: bytes, origin: str) -> onnx.ModelProto:
    if not content:
        raise InvalidArgument(f"Load model from {origin} failed: No graph was found in the protobuf.")
    if is_ort_format(content):
        return read_ort_format(content)
    try:
        return onnx.ModelProto.FromString(content)
    except (DecodeError, RecursionError) as error:
        raise InvalidProtobuf(
            f"Load model from {origin} failed:Protobuf parsing failed. {_what_else(content)}"
        ) from error


_OTHER_FORMATS = (
    (0, b"version https://git-lfs", "It is a pointer of Git LFS: run `git lfs pull` for the model itself."),
    (0, b"PK\x03\x04", "It is a zip archive: unpack it, or, if PyTorch wrote it, export the model with torch.onnx."),
    (0, b"\x89HDF", "It is an HDF5 file, as Keras writes: convert the model to ONNX."),
    (0, b"\x1f\x8b", "It is compressed by gzip: unpack it."),
    (
        0,
        b"GGUF",
        "It is a GGUF file of a language model: the guide to these says how to build a model from it.",
    ),
    (8, b'{"', "It is a safetensors file, which holds weights without a graph: export the model to ONNX."),
    (0, b"\x80\x02", "It is a pickle, as older versions of PyTorch write: export the model with torch.onnx."),
    (4, b"TFL3", "It is a TensorFlow Lite model: convert it to ONNX."),
    (0, b"<", "It is a text such as a web page: the download gave something else than the model."),
    (0, b"{", "It is a text such as JSON, not a model in ONNX's binary form."),
)  # what stands where a model was named, by its first bytes


def _what_else(content: bytes) -> str:
    """Say what bytes are that are no model, as far as their beginning tells."""
    found = next((text for start, sign, text in _OTHER_FORMATS if content[start:].startswith(sign)), None)
    return found or f"Its {len(content):,} bytes are no ONNX model, or only a part of one."
