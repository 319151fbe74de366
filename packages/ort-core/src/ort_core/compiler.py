"""ModelCompiler: writes the model with its compiled partitions, so that another process loads it without that work."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ort_core import stages
from ort_core.arguments import an, an_object, size, takes, truth, whole
from ort_core.environment import default_environment
from ort_core.ep_context.data import OrtEpContextData, OrtExternalInitializerInfo
from ort_core.ep_context.write import CompiledModel, ContextStyle, KeepContent
from ort_core.errors import Fail, InvalidArgument, InvalidCompileRequest, InvalidType
from ort_core.forks import no_fork
from ort_core.interruptions import raise_interruption
from ort_core.options import GraphOptimizationLevel, OrtCompileApiFlags, SessionOptions
from ort_core.session_api.compiled_file import (
    BesideState,
    asking_writer,
    compiled_model,
    default_path,
    external_file,
    written_beside,
)  # fmt: skip
from ort_core.session_api.model_source import ModelSource
from ort_core.session_api.provider_request import provider_request
from ort_core.tensors.ort_value import OrtValue

GetInitializerLocation = Callable[[str, OrtValue, OrtExternalInitializerInfo | None], OrtExternalInitializerInfo | None]
WriteContext = Callable[[str, OrtEpContextData], None]


@dataclass(frozen=True, slots=True)
class CompileReport:
    """Which partitions a compiled model holds as their providers store them, and why not the others."""

    stored: tuple[str, ...]
    refused: dict[str, str]


class ModelCompiler:
    """Compiles a model and writes it as ONNX: each partition that its provider can store becomes an EPContext node.

    Partitions that a provider does not store stay as optimized nodes. A session takes the compiled model as any other;
    what does not fit its machine is compiled from the graph that the node carries, and ``explain()`` says so.

    Args:
        sess_options: how to load and place the model.
        input_model_path_or_bytes: the model.
        embed_compiled_data_into_model: keep compiled partitions inside the model. Bytes and streams always do, unless
            a function takes them.
        external_initializers_file_path: file beside the written model that takes its weights; where the weights of the
            model lie in files of their own they go to one, ``<output>.data`` without a name.
        external_initializers_size_threshold: smallest weight in bytes that goes there.
        flags: what is an error.
        graph_optimization_level: how far to optimize; nothing by default, as in onnxruntime. ``ORT_ENABLE_ALL`` gives
            what a session would run.
        get_initializer_location_func: called for each initializer that stays in the model with its name, its value and
            an ``OrtExternalInitializerInfo`` of where it lies outside the input model, if it does; returns where the
            data is from now on (the function has put it there), or ``None`` for inside the model.

    Raises:
        InvalidCompileRequest: the model is empty, or a file for weights is named besides the function.
    """

    @takes(
        sess_options=an_object(SessionOptions), embed_compiled_data_into_model=truth,
        external_initializers_size_threshold=size, flags=whole,
        graph_optimization_level=an(GraphOptimizationLevel),
    )  # fmt: skip
    def __init__(
        self,
        sess_options: SessionOptions,
        input_model_path_or_bytes: str | os.PathLike | bytes,
        embed_compiled_data_into_model: bool = False,
        external_initializers_file_path: str | os.PathLike | None = None,
        external_initializers_size_threshold: int = 1024,
        flags: int = OrtCompileApiFlags.NONE,
        graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_DISABLE_ALL,
        get_initializer_location_func: GetInitializerLocation | None = None,
    ) -> None:
        if not isinstance(input_model_path_or_bytes, (str, os.PathLike, bytes)):
            raise InvalidType(f"Unable to load from type '{type(input_model_path_or_bytes)}'")
        if not isinstance(input_model_path_or_bytes, os.PathLike) and not input_model_path_or_bytes:
            kind = "path" if isinstance(input_model_path_or_bytes, str) else "bytes array"
            raise InvalidCompileRequest(f"Input model {kind} is empty")
        if get_initializer_location_func is not None and external_initializers_file_path is not None:
            raise InvalidCompileRequest(
                "Cannot initialize ModelCompiler with both `external_initializers_file_path` and "
                "`get_initializer_location_func`: each says where weights go"
            )
        find = get_initializer_location_func
        self._writer = None if find is None else asking_writer(find)
        self._options = sess_options.copy()
        self._options.graph_optimization_level = graph_optimization_level
        self._source = ModelSource(input_model_path_or_bytes)
        self._external = None if external_initializers_file_path is None else Path(external_initializers_file_path)
        self._threshold = external_initializers_size_threshold
        self._flags = OrtCompileApiFlags(flags)
        self._embeds = embed_compiled_data_into_model
        self._write: WriteContext | None = None
        self._has_external_weights = False
        self._binaries: tuple[Path, str] | None = None

    def compile_to_file(self, output_model_path: str | os.PathLike | None = None) -> CompileReport:
        """Write a file, by default ``<model>_ctx.onnx`` beside the input.

        Raises:
            Fail: nothing could be compiled, or the file exists, where the flags make that an error.
            InvalidArgument: no path was given and the input has none.
        """
        from ort_core.onnx_io.save import save_model

        path = default_path(self._source.path) if output_model_path is None else Path(output_model_path)
        if not path.name:
            raise InvalidArgument("the path of the output model is empty")
        if self._flags & OrtCompileApiFlags.ERROR_IF_OUTPUT_FILE_EXISTS and path.exists():
            raise Fail(f"the output model {str(path)!r} exists already; remove it, or drop the flag")
        folder, stem = self._binaries or (path.parent, path.stem)
        beside = BesideState(stem)
        compiled = self._compiled(None if self._embeds else beside, stem)
        asked = None if self._external is None else str(self._external)
        if asked is None and self._has_external_weights and self._writer is None:
            asked = f"{path.name}.data"  # what lay outside stays outside
        external = external_file(compiled.model, path, asked)
        with written_beside(folder, beside):
            save_model(
                compiled.model, path, external_file=external, external_threshold=self._threshold, writer=self._writer
            )
        return CompileReport(compiled.stored, compiled.refused)

    def compile_to_bytes(self) -> bytes:
        """Return the serialized model. Raises as ``compile_to_file``."""
        from ort_core.onnx_io.save import model_to_bytes

        if self._binaries is None or self._embeds:
            return model_to_bytes(self._compiled(None, "model").model, writer=self._writer)
        folder, stem = self._binaries
        beside = BesideState(stem)
        compiled = self._compiled(beside, stem)
        with written_beside(folder, beside):
            return model_to_bytes(compiled.model, writer=self._writer)

    def compile_to_stream(self, write_function: Callable[[bytes], None]) -> None:
        """Hand the serialized model to a function. Raises as ``compile_to_file``, and ``Fail`` if that fails."""
        content = self.compile_to_bytes()
        try:
            write_function(content)
        except Exception as error:  # a function of the caller
            raise_interruption(error)
            raise Fail(f"{type(error).__name__}: {error}, from the function that takes the compiled model") from error

    def set_ep_context_data_write_func(self, write_func: WriteContext) -> None:
        """Hand each compiled partition to a function, by the name that its node states, instead of keeping it.

        Sessions get them back through ``SessionOptions.set_ep_context_data_read_func``.
        """
        if not callable(write_func):
            raise InvalidType(f"expected a function of a name and the data, found {write_func!r}")
        self._write = write_func

    def clear_ep_context_data_write_func(self) -> None:
        """Keep compiled partitions in the model or beside it again."""
        self._write = None

    def set_ep_context_binary_information(self, output_directory: str | os.PathLike, model_name: str) -> None:
        """Say where compiled partitions that stay outside of the model go, and what their files' names begin with.

        Holds for ``compile_to_bytes`` and ``compile_to_stream`` as well, whose partitions would else go inside.

        Raises:
            InvalidArgument: one of the two is empty, or the directory is none.
        """
        folder = Path(os.fspath(output_directory)) if os.fspath(output_directory) else None
        if folder is None or not model_name:
            raise InvalidArgument("the output directory and the model's name must not be empty")
        if not folder.is_dir():
            raise InvalidArgument(f"the output directory {str(folder)!r} does not exist or is not a directory")
        self._binaries = (folder, Path(model_name).stem)

    def _compiled(self, beside: BesideState | None, stem: str) -> CompiledModel:
        with no_fork():
            return self._compile(beside, stem)

    def _compile(self, beside: BesideState | None, stem: str) -> CompiledModel:
        environment = default_environment()
        model = self._source.load(self._options)
        constants = [value.constant for value in model.graph.initializers]
        self._has_external_weights = any(each is not None and each.location is not None for each in constants)
        request = provider_request(None, None, self._options, environment, model.metadata)
        prepared = stages.prepare(model, self._options, environment, request, folder=self._source.folder)
        try:
            style = ContextStyle(
                self._keep(beside, stem),
                str(self._options.setting("ep.context_node_name_prefix")),
                "" if self._source.path is None else Path(os.fsdecode(self._source.path)).name,
            )
            compiled = compiled_model(prepared, self._options, environment, style)
        finally:
            prepared.plan.close()
        if not compiled.stored and self._flags & OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in compiled.refused.items())
            raise Fail(
                "Unable to compile any nodes. Check that the session EPs support compilation and can execute at least "
                f"one subgraph in the model. {reasons or 'The model has no nodes.'}"
            )
        return compiled

    def _keep(self, beside: BesideState | None, stem: str) -> KeepContent:
        write = self._write
        if write is None:
            return (lambda name, content: content) if beside is None else beside.keep

        def hand_over(partition: str, content: bytes) -> str:
            name = BesideState(stem).keep(partition, content)
            write(name, OrtEpContextData(content))
            return name

        return hand_over
