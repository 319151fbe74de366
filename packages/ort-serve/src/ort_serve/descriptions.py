"""What the server says of itself and its models, as plain values that both HTTP and gRPC write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ort_serve import __version__
from ort_serve.repository.model_repository import READY, ModelRepository
from ort_serve.repository.model_version import ModelVersion
from ort_serve.repository.signature import TensorSignature
from ort_serve.statistics import Duration, ModelStatistics

NAME = "ort-serve"
PLATFORM = "onnxruntime_onnx"  # what clients of Triton expect of an ONNX model
EXTENSIONS = (
    "classification", "model_configuration", "model_repository", "schedule_policy", "statistics",
    "system_shared_memory", "binary_tensor_data", "parameters", "trace", "logging",
)  # fmt: skip


def describe_server() -> dict[str, Any]:
    """Return the server's metadata."""
    return {"name": NAME, "version": __version__, "extensions": list(EXTENSIONS)}


def describe_model(repository: ModelRepository, version: ModelVersion) -> dict[str, Any]:
    """Return a model's metadata."""
    states = repository.versions(version.request.model)
    return {
        "name": version.request.model,
        "versions": [str(number) for number, state in sorted(states.items()) if state.state == READY],
        "platform": PLATFORM,
        "inputs": [_tensor(signature) for signature in version.signature.inputs],
        "outputs": [_tensor(signature) for signature in version.signature.outputs],
    }


def describe_config(version: ModelVersion) -> dict[str, Any]:
    """Return a model's configuration in Triton's form. Sizes of joined requests leave the batch axis out, as there."""
    joined = version.batching.max_rows > 1
    settings = version.request.settings
    taken = {name: reshape.target for name, reshape in version.reshapes.inputs.items()}
    given = {name: reshape.source for name, reshape in version.reshapes.outputs.items()}
    found: dict[str, Any] = {
        "name": version.request.model,
        "platform": PLATFORM,
        "backend": "onnxruntime",
        "version_policy": _policy(version),
        "max_batch_size": version.batching.max_rows if joined else 0,
        "input": [_config_tensor(tensor, joined, taken.get(tensor.name)) for tensor in version.signature.inputs],
        "output": [_config_tensor(tensor, joined, given.get(tensor.name)) for tensor in version.signature.outputs],
        "instance_group": [{"name": version.request.model, "count": settings.instances, "kind": "KIND_CPU"}],
        "default_model_filename": settings.file,
    }
    if joined:
        found["dynamic_batching"] = {
            "preferred_batch_size": list(settings.batching.preferred_sizes),
            "max_queue_delay_microseconds": int(settings.batching.max_delay_ms * 1e3),
            "priority_levels": settings.queue.priorities if settings.queue.priorities > 1 else 0,
        }
    return found


def describe_statistics(version: ModelVersion) -> dict[str, Any]:
    """Return a model's counts."""
    counts: ModelStatistics = version.statistics
    return {
        "name": version.request.model,
        "version": version.version,
        "last_inference": counts.last_inference_ms,
        "inference_count": counts.rows,
        "execution_count": counts.executions,
        "inference_stats": {
            "success": _duration(counts.success),
            "fail": _duration(counts.fail),
            "queue": _duration(counts.queue),
            "compute_input": _duration(counts.compute_input),
            "compute_infer": _duration(counts.compute_infer),
            "compute_output": _duration(counts.compute_output),
            "cache_hit": _duration(Duration()),
            "cache_miss": _duration(Duration()),
        },
        "batch_stats": [
            {
                "batch_size": rows,
                "compute_input": _duration(times.compute_input),
                "compute_infer": _duration(times.compute_infer),
                "compute_output": _duration(times.compute_output),
            }
            for rows, times in sorted(counts.batches.copy().items())
        ],
    }


def describe_placement(version: ModelVersion) -> dict[str, Any]:
    """Return how a model runs: its placement, and what is joined and why."""
    return {
        "name": version.request.model,
        "version": version.version,
        "providers": version.session.get_providers(),
        "batching": {
            "max_rows": version.batching.max_rows,
            "reason": version.batching.reason,
            "seconds_by_rows": {str(rows): seconds for rows, seconds in version.batching.seconds.items()},
        },
        "load_seconds": version.load_seconds,
        "placement": str(version.session.explain()),
    }


def _policy(version: ModelVersion) -> dict[str, Any]:
    settings = version.request.settings
    if settings.versions == "all":
        return {"all": {}}
    if settings.versions == "latest":
        return {"latest": {"num_versions": settings.latest}}
    return {"specific": {"versions": list(settings.versions)}}


def _tensor(signature: TensorSignature) -> dict[str, Any]:
    return {"name": signature.name, "datatype": signature.datatype.name, "shape": signature.metadata_shape}


def _config_tensor(signature: TensorSignature, joined: bool, model_shape: Sequence[int] | None) -> dict[str, Any]:
    first = 1 if joined else 0
    found: dict[str, Any] = {
        "name": signature.name,
        "data_type": signature.datatype.config_name,
        "dims": signature.metadata_shape[first:],
    }
    if model_shape is not None:
        found["reshape"] = {"shape": list(model_shape[first:])}
    return found


def _duration(found: Duration) -> dict[str, int]:
    return {"count": found.count, "ns": found.ns}
