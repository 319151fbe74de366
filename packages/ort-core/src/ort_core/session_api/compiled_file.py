"""Compiled models as files: what ModelCompiler writes, and what ``ep.context_enable`` writes when a session is made."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ort_core.environment import Environment, default_environment
from ort_core.ep_context.data import OrtExternalInitializerInfo
from ort_core.ep_context.write import CompiledModel, ContextStyle, write_contexts
from ort_core.errors import Fail, InvalidArgument
from ort_core.interruptions import raise_interruption
from ort_core.runtime.plan import PartitionStep
from ort_core.stages import PreparedModel, PrepareSettings, evaluation_context, fuse_partition
from ort_core.tensors.ort_value import OrtValue

if TYPE_CHECKING:
    from ort_core.ir.constants import Constant
    from ort_core.ir.graph import Graph
    from ort_core.ir.model import Model
    from ort_core.onnx_io.save import ConstantWriter
    from ort_core.options import SessionOptions
    from ort_core.partitioning.partition import Partition

_CTX = "_ctx.onnx"


@dataclass(slots=True)
class BesideState:
    """The contents that go to files beside a model, by name; written once the model is complete."""

    stem: str
    contents: dict[str, bytes] = field(default_factory=dict)

    def keep(self, partition: str, content: bytes) -> str:
        """Take a content and return the name of its file."""
        safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", partition)
        name = f"{self.stem}_{safe}.bin"
        self.contents[name] = content
        return name


def compiled_model(
    prepared: PreparedModel, options: SessionOptions, environment: Environment, style: ContextStyle
) -> CompiledModel:
    """Return a prepared model with its stored partitions as EPContext nodes."""
    assert prepared.partitioned is not None
    environment = prepared.environment or environment
    settings = PrepareSettings.of(options, environment)
    steps = [planned.step for planned in prepared.plan.steps]
    context = evaluation_context(prepared.model, environment, settings.seed, settings.threads.num_threads)

    def own_graph(part: Partition) -> Graph:
        graph = part.own_graph(context)
        fuse_partition(part, graph, prepared.model, environment, settings)
        return graph

    return write_contexts(
        prepared.model,
        prepared.partitioned,
        [step.compiled if isinstance(step, PartitionStep) else None for step in steps],
        own_graph,
        style,
    )


def default_path(source: str | bytes | None) -> Path:
    """Return where the compiled form of a model goes when nobody says.

    Raises:
        InvalidArgument: the model came as bytes.
    """
    if source is None:
        raise InvalidArgument("a compiled model needs a path to be written to: the input model was given as bytes")
    path = Path(os.fsdecode(source))
    return path.with_name(f"{path.stem}{_CTX}")


@contextmanager
def written_beside(folder: Path, beside: BesideState) -> Iterator[None]:
    """Write the files beside a model, which is written in the block: where that fails, they stay what they were.

    Raises:
        Fail: one cannot be written.
    """
    from ort_core.whole_files import written_whole  # as in save_compiled

    place = folder
    try:
        with ExitStack() as held:
            for name, content in beside.contents.items():
                place = folder / name
                held.enter_context(written_whole(place)).write_bytes(content)
            yield
    except OSError as error:
        raise Fail(f"cannot write the compiled partition {str(place)!r}: {error}") from error


def external_file(model: Model, path: Path, asked: str | None) -> str | None:
    """Return the file for a model's weights: as asked, or one of its own where they cannot lie inside."""
    from ort_core.onnx_io.save import needs_external_file  # as in save_compiled

    return f"{path.name}.data" if asked is None and needs_external_file(model) else asked


def asking_writer(
    find: Callable[[str, OrtValue, OrtExternalInitializerInfo | None], OrtExternalInitializerInfo | None],
) -> ConstantWriter:
    """Return what asks a caller's function where each initializer goes.

    Writing raises ``Fail`` if that fails, or returns anything but an ``OrtExternalInitializerInfo`` or ``None``.
    """
    from ort_core.onnx_io.external_data import ExternalLocation  # as in save_compiled
    from ort_core.onnx_io.save import LocationWriter

    def place(name: str, constant: Constant) -> ExternalLocation | None:
        outside = constant.location
        info = None if outside is None else OrtExternalInitializerInfo(outside, constant.offset, constant.nbytes)
        try:
            found = find(name, OrtValue.of(constant.array()), info)
        except Exception as error:  # a function of the caller
            raise_interruption(error)
            raise Fail(f"{type(error).__name__}: {error}, from get_initializer_location_func for {name!r}") from error
        if found is None:
            return None
        if not isinstance(found, OrtExternalInitializerInfo):
            raise Fail(
                f"get_initializer_location_func returned {found!r} for {name!r}, expected an "
                "OrtExternalInitializerInfo, or None to keep the initializer in the model"
            )
        return ExternalLocation(found.filepath, found.file_offset, found.byte_size)

    return LocationWriter(place)


def save_compiled(prepared: PreparedModel, options: SessionOptions, source: str | bytes | None) -> None:
    """Write the compiled form of a session's model where its options ask for it.

    Raises:
        Fail: a file cannot be written.
        InvalidArgument: no path is given and the model came as bytes.
    """
    if not options.setting("ep.context_enable"):
        return
    from ort_core.onnx_io.save import save_model  # only programs that save pay for it

    path = Path(str(options.setting("ep.context_file_path")) or default_path(source))
    beside = BesideState(path.stem)
    prefix = str(options.setting("ep.context_node_name_prefix"))
    file = "" if source is None else Path(os.fsdecode(source)).name
    is_embedded = bool(options.setting("ep.context_embed_mode"))
    style = ContextStyle(_embed if is_embedded else beside.keep, prefix, file)
    compiled = compiled_model(prepared, options, default_environment(), style)
    asked = str(options.setting("ep.context_model_external_initializers_file_name")) or None
    external = external_file(compiled.model, path, asked)
    with written_beside(path.parent, beside):
        save_model(compiled.model, path, external_file=external)


def _embed(partition: str, content: bytes) -> bytes:
    return content
