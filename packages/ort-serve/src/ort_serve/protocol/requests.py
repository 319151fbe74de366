"""A request and its response, whatever carried them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ort_serve.failures import InvalidRequest
from ort_serve.protocol.shared_memory import RegionSlice, SharedMemoryRegions

Parameter = bool | int | float | str


@dataclass(frozen=True, slots=True)
class RequestedOutput:
    """One output that a client asks for.

    Attributes:
        name: the output's.
        is_binary: bytes behind the JSON; None: as the request says for all.
        classes: as many of the largest elements are wanted as texts ``value:index``; 0: the tensor itself.
        region: where in shared memory the result goes.
    """

    name: str
    is_binary: bool | None = None
    classes: int = 0
    region: RegionSlice | None = None


@dataclass(slots=True)
class RunTimes:
    """When a request's run began and ended, by the monotonic clock in nanoseconds; 0 for what did not happen."""

    arrived_ns: int = 0
    started_ns: int = 0
    ended_ns: int = 0
    batch_rows: int = 0


class Watcher(Protocol):
    """Who wants to know the times of a request."""

    def ran(self, version: str, times: RunTimes) -> None:
        """Take note of them, however the request ended."""


@dataclass(slots=True)
class InferRequest:
    """What a model is asked.

    Attributes:
        model: the model's name.
        version: empty for the server's choice.
        identifier: given back with the response.
        inputs: tensors by name.
        outputs: what is wanted; empty for all.
        are_outputs_binary: REST's default for outputs that do not say.
        priority: 0 for the model's default; 1 goes first.
        timeout_s: from the arrival to the result.
        watcher: told when it ran.
        form: stands for all of it but the elements and the identifier, where many requests have one: what was found
            out of one of them is true of all.
    """

    model: str
    version: str
    inputs: dict[str, np.ndarray]
    identifier: str = ""
    outputs: tuple[RequestedOutput, ...] = ()
    are_outputs_binary: bool = False
    priority: int = 0
    timeout_s: float | None = None
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    watcher: Watcher | None = None
    form: object | None = None

    @property
    def has_classes(self) -> bool:
        """Whether an output is wanted as texts of its largest elements."""
        return any(output.classes for output in self.outputs)


@dataclass(slots=True)
class InferResponse:
    """What a model answered.

    Attributes:
        outputs: each with its name, in the order asked for.
        written_nbytes: what they take while they are written, at most about.
    """

    model: str
    version: str
    identifier: str
    outputs: list[tuple[RequestedOutput, np.ndarray]]
    written_nbytes: int = 0


def scheduling_parameters(parameters: Mapping[str, object]) -> tuple[int, float | None]:
    """Return a request's priority, and its timeout in seconds (the protocol's is in microseconds).

    Raises:
        InvalidRequest: one of them is not a whole number that is at least 0, of 64 bits.
    """
    if not parameters:
        return 0, None
    priority, timeout = parameters.get("priority", 0), parameters.get("timeout", 0)
    for name, value in (("priority", priority), ("timeout", timeout)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**64:
            raise InvalidRequest(
                f"parameter {name!r} must be a whole number that is at least 0, of 64 bits; found {str(value)[:40]!r}"
            )
    return int(str(priority)), (int(str(timeout)) / 1e6 or None)


def checked_shape(name: str, shape: object) -> tuple[int, ...]:
    """Return a request's shape.

    Raises:
        InvalidRequest: it is not a list of sizes.
    """
    if not isinstance(shape, list) or len(shape) > 64:
        raise InvalidRequest(f"input {name!r}: shape must be a list of sizes; found {str(shape)[:100]}")
    for size in shape:
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 2**48:
            raise InvalidRequest(f"input {name!r}: shape has {str(size)[:40]} where a size is expected")
    if math.prod([size or 1 for size in shape]) >= 2**56:  # numpy counts without the zeros, too
        raise InvalidRequest(f"input {name!r}: shape {str(shape)[:100]} is beyond any memory")
    return tuple(shape)


def requested_output(name: str, parameters: Mapping[str, object], is_binary: bool | None) -> RequestedOutput:
    """Return an output as a request wants it.

    Args:
        name: the output's.
        parameters: of the output: ``classification``, and where in shared memory it goes.
        is_binary: whether it goes as bytes; None: as the request says for all.

    Raises:
        InvalidRequest: a parameter cannot be meant.
    """
    classes = parameters.get("classification", 0)
    if isinstance(classes, bool) or not isinstance(classes, int) or classes < 0:
        raise InvalidRequest(f"output {name!r}: classification must be a count; found {str(classes)[:40]!r}")
    return RequestedOutput(name, is_binary, classes, region_slice(parameters, f"output {name!r}"))


def check_regions(outputs: Sequence[RequestedOutput], regions: SharedMemoryRegions) -> None:
    """Refuse outputs that shall go where no shared memory is, before they are computed.

    Raises:
        NotFound: a region is not registered.
        InvalidRequest: a slice reaches beyond its region.
    """
    for output in outputs:
        if output.region is not None:
            regions.check(output.region)


def region_slice(parameters: Mapping[str, object], owner: str) -> RegionSlice | None:
    """Return where in shared memory a tensor is; None where it is not there.

    Args:
        parameters: the tensor's.
        owner: the tensor, for messages.

    Raises:
        InvalidRequest: a parameter cannot be meant.
    """
    if "shared_memory_region" not in parameters:
        return None
    region = parameters["shared_memory_region"]
    offset, nbytes = parameters.get("shared_memory_offset", 0), parameters.get("shared_memory_byte_size")
    if isinstance(region, str) and _is_count(offset) and _is_count(nbytes):
        return RegionSlice(region, int(str(offset)), int(str(nbytes)))
    raise InvalidRequest(f"{owner}: shared memory needs a region's name, shared_memory_byte_size, and an offset")


def _is_count(found: object) -> bool:
    return isinstance(found, int) and not isinstance(found, bool)
