"""Triton's ``config.pbtxt``: the fields that have a meaning here, and the names of the others."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from ort_serve.failures import InvalidRequest
from ort_serve.protocol.datatypes import BY_CONFIG_NAME
from ort_serve.repository.model_settings import ModelSettings, QueueSettings, checked_settings
from ort_serve.rpc.messages import MESSAGE_CLASSES
from ort_serve.rpc.schema import ENUMS

_READ = frozenset({  # paths of fields
    "name", "platform", "backend", "max_batch_size", "default_model_filename", "input", "input.name",
    "input.data_type", "input.dims", "input.reshape", "input.reshape.shape", "output", "output.name",
    "output.data_type", "output.dims", "output.reshape", "output.reshape.shape", "version_policy",
    "version_policy.latest", "version_policy.latest.num_versions", "version_policy.all",
    "version_policy.specific", "version_policy.specific.versions", "instance_group", "instance_group.name",
    "instance_group.count", "instance_group.kind", "dynamic_batching",
    "dynamic_batching.preferred_batch_size", "dynamic_batching.max_queue_delay_microseconds",
    "dynamic_batching.priority_levels", "dynamic_batching.default_priority_level",
    "dynamic_batching.default_queue_policy",
    "dynamic_batching.default_queue_policy.default_timeout_microseconds",
    "dynamic_batching.default_queue_policy.max_queue_size", "parameters", "parameters.key",
    "parameters.value", "parameters.value.string_value", "model_warmup", "model_warmup.name",
    "model_warmup.batch_size", "model_warmup.count", "model_warmup.inputs", "model_warmup.inputs.key",
    "model_warmup.inputs.value", "model_warmup.inputs.value.data_type", "model_warmup.inputs.value.dims",
    "model_warmup.inputs.value.zero_data", "model_warmup.inputs.value.random_data",
})  # fmt: skip
# without them results would be others
_REFUSED = ("batch_input", "batch_output", "ensemble_scheduling", "sequence_batching")
_THREADS = "intra_op_thread_count"
_KINDS = ("KIND_AUTO", "KIND_CPU")
_TOKEN = re.compile(
    r"""\#[^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|(?:(?<!\w)(?P<name>\w+)\s*)?(?P<mark>[:{}\[\]<>])"""
)
_PLATFORMS = ("", "onnxruntime_onnx")
_BACKENDS = ("", "onnxruntime")
_MOST_DIGITS = 9  # of a number of threads
# what settings are called here, in messages of a file that has Triton's names
_NAMES = {
    "file": "default_model_filename",
    "instances": "instance_group.count",
    "threads": f"parameters {_THREADS!r}",
    "versions": "version_policy.specific.versions",
    "batching.max_batch_size": "max_batch_size",
    "batching.max_delay_ms": "dynamic_batching.max_queue_delay_microseconds, in milliseconds,",
    "batching.preferred_sizes": "dynamic_batching.preferred_batch_size",
    "batching": "dynamic_batching",
    "queue.time_limit_s": "dynamic_batching.default_queue_policy.default_timeout_microseconds, in seconds,",
    "queue.priorities": "dynamic_batching.priority_levels",
    "queue": "dynamic_batching",
    "inputs": "input",
    "outputs": "output",
    "warm_up": "model_warmup",
}
_UNREADABLE = (OSError, ValueError, RecursionError, text_format.ParseError)


def read_triton_config(path: Path) -> ModelSettings:
    """Return the settings that a ``config.pbtxt`` means.

    Raises:
        InvalidRequest: the file cannot be read, or is for a model of another kind.
    """
    try:
        text = path.read_text(encoding="utf-8")
        config = _parsed(text)
    except _UNREADABLE as error:
        raise InvalidRequest(f"{path} cannot be read: {error}") from error
    if config.platform not in _PLATFORMS or config.backend not in _BACKENDS:
        raise InvalidRequest(
            f"{path}: platform {config.platform or config.backend!r} is not served here, only ONNX models"
        )
    if config.name and config.name != path.parent.name:
        raise InvalidRequest(
            f"{path}: name {config.name!r} is not that of the folder, which clients ask for; "
            f"leave it out, or rename one of the two"
        )
    refused = sorted(_paths(text).intersection(_REFUSED))
    if refused:
        raise InvalidRequest(f"{path}: {', '.join(refused)} cannot be done here, and results would be others without")
    values = {
        "file": config.default_model_filename or "model.onnx",
        "instances": _instances(config, path),
        "threads": _threads(config, path),
        "versions": _versions(config.version_policy),
        "latest": max(config.version_policy.latest.num_versions, 1),
        "batching": _batching(config),
        "queue": _queue(config.dynamic_batching),
        "inputs": [_declared(tensor, config.max_batch_size) for tensor in config.input],
        "outputs": [_declared(tensor, config.max_batch_size) for tensor in config.output],
        "warm_up": [_warm_up(each, config.max_batch_size) for each in config.model_warmup],
    }
    if config.max_batch_size < 0:
        raise InvalidRequest(f"{path}: max_batch_size must be at least 0; found {config.max_batch_size}")
    return checked_settings(values, str(path), _NAMES)


def unread_fields(path: Path) -> list[str]:
    """Return what of a ``config.pbtxt`` has no meaning here; none where there is no file, or it cannot be read.

    Returns:
        Paths of fields, such as ``input.format``, with the field that may be meant; of a field whose values count in
        part with the value.
    """
    try:
        text = path.read_text(encoding="utf-8")
        config = _parsed(text)
    except _UNREADABLE:
        return []
    unread = _paths(text) - _READ
    # what is in them is not told, too
    found = {_with_near_name(name) for name in unread if name.rpartition(".")[0] not in unread}
    found |= {f"parameters {key!r}" for key in config.parameters if key != _THREADS}
    kinds = {ENUMS["InstanceKind"][group.kind] for group in config.instance_group}
    return sorted(found | {f"instance_group.kind {kind}" for kind in kinds.difference(_KINDS)})


def _parsed(text: str) -> Any:
    config = MESSAGE_CLASSES.get("ModelConfig")()
    text_format.Parse(_with_colons(text), config, allow_unknown_field=True)
    return config


def _with_colons(text: str) -> str:
    """Write ``name: [`` for ``name [``: protobuf reads both, but passes over unknown fields only with the colon."""

    def written(token: re.Match[str]) -> str:
        return f"{token['name']}: [" if token["name"] and token["mark"] == "[" else token[0]

    return _TOKEN.sub(written, text)


def _paths(text: str) -> set[str]:
    """Return the paths of all fields, with a dot before each field of a message."""
    outer: list[str] = [""]
    newest, found = "", set()
    for token in _TOKEN.finditer(text):
        name, mark = token["name"], token["mark"]
        if mark is None:
            continue  # a text or a comment
        if name and mark in ":{[<":
            newest = f"{outer[-1]}.{name}".lstrip(".")
            found.add(newest)
        if mark in "{[<":
            outer.append(newest)
        elif mark in "}]>" and len(outer) > 1:
            newest = outer.pop()
    return found


def _declared(tensor: Any, max_batch_size: int) -> dict[str, object]:
    """Return what a model must have: with ``max_batch_size`` its first size is the batch, which dims leave out."""
    config_name = ENUMS["DataType"][tensor.data_type]
    rows = [-1] if max_batch_size else []
    return {
        "name": tensor.name,
        "datatype": BY_CONFIG_NAME[config_name].name if config_name in BY_CONFIG_NAME else None,
        "shape": [*rows, *tensor.dims] if tensor.dims else None,
        "reshape": [*rows, *tensor.reshape.shape] if tensor.HasField("reshape") else None,
    }


def _warm_up(warm_up: Any, max_batch_size: int) -> dict[str, object]:
    """Return a warm-up run. Contents of a file are not read: the run gets zeros instead."""
    rows = [max(warm_up.batch_size, 1)] if max_batch_size else []
    inputs = {
        name: {"shape": [*rows, *given.dims], "fill": "random" if given.random_data else "zeros"}
        for name, given in warm_up.inputs.items()
    }
    return {"inputs": inputs, "count": max(warm_up.count, 1)}


def _with_near_name(field: str) -> str:
    """Return a field's path, with the known one of the same message that differs by a letter or two."""
    outer = field.rpartition(".")[0]
    known = [name for name in _READ if name.rpartition(".")[0] == outer]
    near = difflib.get_close_matches(field, known, 1, 0.9)
    return f"{field} (did you mean {near[0].rpartition('.')[2]}?)" if near else field


def _instances(config: Any, path: Path) -> int:
    counts = [group.count for group in config.instance_group]
    if min(counts, default=0) < 0:
        raise InvalidRequest(f"{path}: instance_group.count must be at least 1; found {min(counts)}")
    return max(sum(count or 1 for count in counts), 1)


def _threads(config: Any, path: Path) -> int | None:
    value = config.parameters[_THREADS].string_value if _THREADS in config.parameters else "0"
    if not (value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS):
        told = value[:40]
        raise InvalidRequest(f"{path}: parameters {_THREADS!r} must be a number of threads, or 0; found {told!r}")
    return int(value) or None


def _versions(policy: Any) -> Any:
    kind = policy.WhichOneof("policy_choice")
    return "all" if kind == "all" else tuple(policy.specific.versions) if kind == "specific" else "latest"


def _batching(config: Any) -> dict[str, object]:
    batching = config.dynamic_batching
    joins = config.HasField("dynamic_batching")
    return {
        "max_batch_size": config.max_batch_size if joins else 0,  # without the field Triton joins nothing
        "max_delay_ms": batching.max_queue_delay_microseconds / 1e3,
        "preferred_sizes": tuple(batching.preferred_batch_size),
    }


def _queue(batching: Any) -> dict[str, object]:
    policy = batching.default_queue_policy
    return {
        "limit": policy.max_queue_size or QueueSettings().limit,
        "time_limit_s": policy.default_timeout_microseconds / 1e6 or None,
        "priorities": max(batching.priority_levels, 1),
        "default_priority": max(batching.default_priority_level, 1),
    }
