"""Triton's ``config.pbtxt``: the fields that have a meaning here, and the names of the others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from ort_serve.failures import InvalidRequest
from ort_serve.protocol.datatypes import BY_CONFIG_NAME
from ort_serve.repository.model_settings import ModelSettings, QueueSettings, checked_settings
from ort_serve.rpc.messages import MESSAGE_CLASSES
from ort_serve.rpc.schema import ENUMS

_READ = frozenset({
    "name", "platform", "backend", "max_batch_size", "input", "output", "version_policy", "instance_group",
    "default_model_filename", "dynamic_batching", "parameters", "model_warmup",
})  # fmt: skip
_TOKEN = re.compile(r"""\#[^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|(?P<name>\w+)?\s*(?P<mark>[:{}\[\]])""")
_PLATFORMS = ("", "onnxruntime_onnx")
_BACKENDS = ("", "onnxruntime")


def read_triton_config(path: Path) -> ModelSettings:
    """Return the settings that a ``config.pbtxt`` means.

    Raises:
        InvalidRequest: the file cannot be read, or is for a model of another kind.
    """
    config = MESSAGE_CLASSES.get("ModelConfig")()
    try:
        text_format.Parse(_with_colons(path.read_text(encoding="utf-8")), config, allow_unknown_field=True)
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        raise InvalidRequest(f"{path} cannot be read: {error}") from error
    if config.platform not in _PLATFORMS or config.backend not in _BACKENDS:
        raise InvalidRequest(
            f"{path}: platform {config.platform or config.backend!r} is not served here, only ONNX models"
        )
    values = {
        "file": config.default_model_filename or "model.onnx",
        "instances": max(sum(group.count or 1 for group in config.instance_group), 1),
        "threads": _threads(config),
        "versions": _versions(config.version_policy),
        "latest": max(config.version_policy.latest.num_versions, 1),
        "batching": _batching(config),
        "queue": _queue(config.dynamic_batching),
        "inputs": [_declared(tensor, config.max_batch_size) for tensor in config.input],
        "outputs": [_declared(tensor, config.max_batch_size) for tensor in config.output],
        "warm_up": [_warm_up(each, config.max_batch_size) for each in config.model_warmup],
    }
    return checked_settings(values, str(path))


def unread_fields(path: Path) -> list[str]:
    """Return the names of a ``config.pbtxt``'s fields that have no meaning here; none where there is no file."""
    try:
        return sorted(_top_fields(path.read_text(encoding="utf-8")) - _READ)
    except (OSError, UnicodeDecodeError):
        return []


def _with_colons(text: str) -> str:
    """Write ``name: [`` for ``name [``: protobuf reads both, but passes over unknown fields only with the colon."""

    def written(token: re.Match[str]) -> str:
        return f"{token['name']}: [" if token["name"] and token["mark"] == "[" else token[0]

    return _TOKEN.sub(written, text)


def _top_fields(text: str) -> set[str]:
    """Return the names of fields outside all brackets."""
    depth, found = 0, set()
    for token in _TOKEN.finditer(text):
        name, mark = token["name"], token["mark"]
        if name and depth == 0:
            found.add(name)
        depth += (mark in ("{", "[")) - (mark in ("}", "]"))
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


def _threads(config: Any) -> int | None:
    value = (
        config.parameters["intra_op_thread_count"].string_value if "intra_op_thread_count" in config.parameters else ""
    )
    return int(value) if value.isdecimal() and int(value) else None


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
