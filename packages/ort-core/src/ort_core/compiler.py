"""ModelCompiler: writes the model that a session would run, so that another process loads it without that work."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ort_core import stages
from ort_core.environment import default_environment
from ort_core.errors import Fail, InvalidArgument, InvalidType, NotImplemented
from ort_core.options import GraphOptimizationLevel, OrtCompileApiFlags, SessionOptions
from ort_core.session_api.model_source import ModelSource
from ort_core.session_api.provider_request import provider_request

GetInitializerLocation = Callable[..., object]
_NO_EP_CONTEXT = "no installed provider writes EPContext data"


class ModelCompiler:
    """Optimises a model and writes it as ONNX.

    No provider here stores compiled partitions in a model yet: what is written is the optimised model, as onnxruntime
    writes it for a provider that compiles nothing.

    Args:
        sess_options: how to load and place the model.
        input_model_path_or_bytes: the model.
        embed_compiled_data_into_model: keep compiled artefacts inside the model.
        external_initializers_file_path: file beside the written model that takes its weights.
        external_initializers_size_threshold: smallest weight in bytes that goes there.
        flags: what is an error.
        graph_optimization_level: how far to optimise.
        get_initializer_location_func: refused; weights go inside the model or to one file.
    """

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
        if get_initializer_location_func is not None:
            raise NotImplemented(
                "get_initializer_location_func is not supported; name one file with external_initializers_file_path"
            )
        if not isinstance(input_model_path_or_bytes, (str, os.PathLike, bytes)):
            raise InvalidType(f"Unable to load from type '{type(input_model_path_or_bytes)}'")
        self._options = sess_options.copy()
        self._options.graph_optimization_level = graph_optimization_level
        self._source = ModelSource(input_model_path_or_bytes)
        self._external = None if external_initializers_file_path is None else Path(external_initializers_file_path)
        self._threshold = external_initializers_size_threshold
        self._flags = OrtCompileApiFlags(flags)

    def compile_to_file(self, output_model_path: str | None = None) -> None:
        """Write a file, by default ``<model>_ctx.onnx`` beside the input.

        Raises:
            Fail: nothing could be compiled, or the file exists, where the flags make that an error.
            InvalidArgument: no path was given and the input has none.
        """
        from ort_core.onnx_io.save import save_model

        if output_model_path is None:
            if self._source.path is None:
                raise InvalidArgument("compile_to_file needs a path: the input model was given as bytes")
            source = Path(self._source.path)
            output_model_path = str(source.with_name(f"{source.stem}_ctx.onnx"))
        if self._flags & OrtCompileApiFlags.ERROR_IF_OUTPUT_FILE_EXISTS and Path(output_model_path).exists():
            raise Fail(f"the output model {output_model_path!r} exists already; remove it, or drop the flag")
        external = None if self._external is None else str(self._external)
        save_model(
            self._compiled().model, output_model_path, external_file=external, external_threshold=self._threshold
        )

    def compile_to_bytes(self) -> bytes:
        """Return the serialised model. Raises as ``compile_to_file``."""
        from ort_core.onnx_io.save import model_to_bytes

        return model_to_bytes(self._compiled().model)

    def compile_to_stream(self, write_function: Callable[[bytes], None]) -> None:
        """Hand the serialised model to a function. Raises as ``compile_to_file``."""
        write_function(self.compile_to_bytes())

    def set_ep_context_data_write_func(self, write_func: Callable[[str, object], None]) -> None:
        """Refuse. Raises ``NotImplemented`` always."""
        raise NotImplemented(f"EPContext data cannot be handed to a callback: {_NO_EP_CONTEXT}")

    def clear_ep_context_data_write_func(self) -> None:
        """Clear the callback (there is none)."""

    def _compiled(self) -> stages.PreparedModel:
        if self._flags & OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED:
            raise Fail(
                "Unable to compile any nodes. Check that the session EPs support compilation and can execute at least "
                f"one subgraph in the model. {_NO_EP_CONTEXT.capitalize()}."
            )
        environment = default_environment()
        model = self._source.load(self._options)
        request = provider_request(None, None, self._options, environment, model.metadata)
        return stages.prepare(model, self._options, environment, request)
