"""ModelSource: where a session's model came from, so that it can be loaded again and pickled.

A path is kept as a path, and what tells its file from another that is written there later. Bytes, file objects and
protos are not kept: the loaded model is, which shares its constants with the optimized one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping
from typing import IO, TYPE_CHECKING, Any, cast

from ort_core.errors import Fail, ModelLoadCanceled, NoSuchFile, UnfitInitializer, did_you_mean
from ort_core.ir.constants import Constant
from ort_core.ir.dims import Dim, SymbolicDim, substitute
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType, OptionalType, SequenceType, SparseTensorType, TensorType, ValueType
from ort_core.options import SessionOptions
from ort_core.session_api.file_identity import Identity, identity_of
from ort_core.settings import environment_value
from ort_core.tensors.ort_value import OrtValue

if TYPE_CHECKING:
    from pathlib import Path

    from ort_core.ir.model import Model

log = logging.getLogger(__name__)
_FOLDER = "session.model_external_initializers_file_folder_path"
_LINKED_FOLDER = "session.model_external_initializers_linked_folder_path"
_BYTES = "bytes "  # no path of a file begins so: theirs are absolute
Loadable = str | bytes | bytearray | memoryview | os.PathLike | IO[bytes] | object  # object: an onnx.ModelProto


class ModelSource:
    """A model's path, or the model itself."""

    def __init__(self, source: Loadable) -> None:
        self._source: Loadable | None = source
        self.path = os.fspath(source) if isinstance(source, (str, os.PathLike)) else None
        self._model = _model_of(source) if self.path is None else None
        self._loaded_file: Identity | None = None
        self.has_fixed_sizes = False  # whether the options of the last load gave sizes to dimensions of inputs

    @property
    def folder(self) -> Path | None:
        """The folder of the model's file, ``None`` when it came as bytes."""
        from pathlib import Path  # as for loading: not for sessions out of the cache

        return None if self.path is None else Path(os.fsdecode(self.path)).parent

    def identity(self, options: SessionOptions) -> Identity | None:
        """Return what tells the model from all others before it is loaded; ``None`` where nothing does.

        Bytes are told by their digest, which ``session.recalls_bytes`` asks for: it takes a moment for large ones.
        """
        if self.path is not None:
            self._loaded_file = identity_of(os.fsdecode(self.path))
            return self._loaded_file
        if not isinstance(self._source, bytes) or not options.setting("session.recalls_bytes"):
            return None
        from ort_core.cache.digests import digest_of  # files need none

        return f"{_BYTES}{digest_of([self._source]).hex()}", 0, 0, len(self._source), 0, 0

    def files(self, options: SessionOptions, model: Model) -> list[Identity] | Rejection:
        """Return the identities of all files that the loaded model refers to, or why there is none for one."""
        from ort_core.ir.structure import locations_of  # only loads that may be remembered pay for it

        names = sorted(locations_of(model))
        folder = str(options.setting(_FOLDER)) or (None if self.path is None else os.path.dirname(self.path))
        if folder is None:
            return Rejection("its bytes refer to files, and no folder is given") if names else []
        found = [identity_of(os.path.join(os.fsdecode(folder), name)) for name in names]
        return Rejection("a file is missing") if None in found else [each for each in found if each is not None]

    def load(self, options: SessionOptions, where: str | None = None) -> Model:
        """Return an editable model with the options' initializers and sizes in it; of a file, read ``where`` it lies.

        Raises:
            NoSuchFile, InvalidProtobuf, InvalidGraph, Fail: as ``onnx_io.load.load_model``.
            InvalidArgument: an initializer given by the options does not fit the model.
        """
        # imports onnx, which programs that load nothing do not pay for
        from ort_core.onnx_io.load import check_inputs_have_types, load_model

        if options.load_cancelled:
            raise ModelLoadCanceled("Graph loading canceled due to user request.")
        if self.path is not None:
            self._loaded_file = identity_of(os.fsdecode(self.path))
        if self._model is None:
            folder = str(options.setting(_FOLDER)) or None
            model = load_model(
                cast(Any, where or self._source),  # Any: an object may be a ModelProto, which only onnx_io knows
                folder=folder, linked_folder=str(options.setting(_LINKED_FOLDER)) or None,
                in_memory_files=options.external_files, released_opsets_only=_released_only(options),
                given=options.initializers.keys(),
                denoted_sizes=options.dimensions_by_denotation, named_sizes=options.dimensions_by_name,
            )  # fmt: skip
            check_inputs_have_types(model.graph)
            if self.path is None:
                self._model, self._source = model.clone(), None
        else:
            model = self._model.clone()
        replace_initializers(model, options.initializers, options.needed_initializers)
        by_name = fix_dimensions(model, options.dimensions_by_name)
        self.has_fixed_sizes = by_name or bool(options.dimensions_by_denotation)
        if options.load_cancelled:
            raise ModelLoadCanceled("Graph loading canceled due to user request.")
        return model

    def load_again(self, options: SessionOptions) -> Model:
        """Return the model that was loaded once more, as ``load``.

        Raises:
            NoSuchFile: its file is gone.
            Fail: another one lies there by now: a session does not become one of that in the middle of its life.
        """
        before = self._loaded_file
        if before is None:
            return self.load(options)
        if identity_of(before[0]) != before:
            gone = not os.path.exists(before[0])
            raise (NoSuchFile if gone else Fail)(
                f"{self.path} {'is gone' if gone else 'was written again'} since this session loaded it. A run that "
                "overrides a default, or has several sizes for one name, needs it once more when it is the first of "
                "its kind. Keep the file, or give the session the model's bytes."
            )
        return self.load(options, before[0])  # the working folder may be another one by now

    def content(self) -> bytes | None:
        """Return the model as bytes, made for this call where it was loaded; ``None`` where it came from a path."""
        if self._model is None and isinstance(self._source, bytes):  # its session came out of the cache
            return self._source
        from ort_core.onnx_io.save import model_to_bytes

        return None if self._model is None else model_to_bytes(self._model)

    def __getstate__(self) -> dict[str, object]:
        return {"path": self.path, "content": self.content()}

    def __setstate__(self, state: dict[str, Any]) -> None:  # Any: pickled state
        self.path = state["path"]
        self._source, self._model = (self.path if self.path is not None else state["content"]), None
        self._loaded_file = None
        self.has_fixed_sizes = False


def is_of_file(identity: Identity) -> bool:
    """Return whether an identity is that of a file."""
    return not identity[0].startswith(_BYTES)


def _released_only(options: SessionOptions) -> bool:
    key = "session.allow_released_opsets_only"
    return bool(options.setting(key)) and bool(environment_value("ALLOW_RELEASED_ONNX_OPSET_ONLY"))


def _model_of(source: Loadable) -> Model | None:
    from ort_core.ir.model import Model  # a path needs none to be found in the cache

    return source if isinstance(source, Model) else None


def replace_initializers(model: Model, given: Mapping[str, object], needed: Collection[str]) -> None:
    """Give initializers the data of OrtValues, not copied. What is not ``needed`` may be none of the model's.

    Raises:
        UnfitInitializer: the model has no such initializer, or element type or shape differ.
    """
    by_name = {value.name: value for value in model.graph.initializers}
    for name, ort_value in given.items():
        known = by_name.get(name)
        if known is None or known.constant is None:
            if name not in needed:
                log.warning("the model has no initializer %r, for which the session's options give data", name)
                continue
            raise UnfitInitializer(
                f"SessionOptions gives data for the initializer {name!r}, which the model does not have."
                f"{did_you_mean(name, list(by_name))}"
            )
        array = cast(OrtValue, ort_value).numpy()
        dtype = DataType.STRING if array.dtype == object else DataType.from_numpy(array.dtype)
        if dtype is not known.constant.dtype or array.shape != known.constant.shape:
            raise UnfitInitializer(
                f"the data given for the initializer {name!r} is {dtype.text}{list(array.shape)}, the model has "
                f"{known.constant.dtype.text}{list(known.constant.shape)}"
            )
        known.constant = Constant.of(array)


def fix_dimensions(model: Model, by_name: Mapping[str, int]) -> bool:
    """Replace named dimensions of inputs by sizes; return whether there were any. The rest is inferred from them."""
    found = False
    for value in model.graph.inputs if by_name else ():
        fixed = None if value.type is None or value.constant is not None else _fixed_type(value.type, by_name)
        found |= fixed != value.type
        value.type = fixed or value.type
    return found


def distinguish_sizes(model: Model) -> None:
    """Give every named dimension of the inputs a name of its own: for runs in which sizes of one name differ."""
    seen: set[str] = set()
    for value in model.graph.inputs:
        if isinstance(value.type, (TensorType, SparseTensorType)) and value.type.shape is not None:
            shape = tuple(_distinct(dim, f"{value.name}[{axis}]", seen) for axis, dim in enumerate(value.type.shape))
            value.type = type(value.type)(value.type.dtype, shape)


def _distinct(dim: Dim, place: str, seen: set[str]) -> Dim:
    if not isinstance(dim, SymbolicDim) or dim.name is None:
        return dim
    name = dim.name
    while name in seen:
        name = f"{name} of {place}"
    seen.add(name)
    return SymbolicDim.named(name)


def _fixed_type(value_type: ValueType, sizes: Mapping[str, int]) -> ValueType:
    if isinstance(value_type, (TensorType, SparseTensorType)) and value_type.shape is not None:
        return type(value_type)(value_type.dtype, tuple(_fixed(dim, sizes) for dim in value_type.shape))
    if isinstance(value_type, SequenceType):
        return SequenceType(_fixed_type(value_type.element, sizes))
    if isinstance(value_type, OptionalType):
        return OptionalType(_fixed_type(value_type.element, sizes))
    return value_type


def _fixed(dim: Dim, sizes: Mapping[str, int]) -> Dim:
    return substitute(dim, sizes) if isinstance(dim, SymbolicDim) else dim
