"""How one model is served."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)

from ort_serve.failures import InvalidRequest
from ort_serve.protocol.datatypes import DATATYPES
from ort_serve.repository.refused_settings import refusal

_MOST_THREADS = 1024
_MOST_ELEMENTS = 1 << 28  # of a warm-up's tensor: a gigabyte of float32
_LARGEST_SIZE = 2**48
_LONGEST_S = 1e9  # thirty years: clocks count nanoseconds in 64 bits


def _worded(wanted: str) -> WrapValidator:
    """Return what says in one sentence which forms a value may have: pydantic lists the faults of each form."""

    def check(value: object, handler: ValidatorFunctionWrapHandler) -> object:
        try:
            return handler(value)
        except ValidationError as error:
            raise ValueError(f"must be {wanted}") from error

    return WrapValidator(check)


Provider = Annotated[
    str | tuple[str, dict[str, str]], _worded('a provider\'s name, or [name, {option = "value"}] with texts as values')
]
Number = Annotated[int, Field(ge=0, lt=10**18)]
Versions = Annotated[
    Literal["latest", "all"] | tuple[Number, ...], _worded('"latest", "all" or a list of version numbers')
]
Size = Annotated[int, Field(ge=0, le=_LARGEST_SIZE)]
OpenSize = Annotated[int, Field(ge=-1, le=_LARGEST_SIZE)]


class _Strict(BaseModel):
    """Settings without conversions: ``true`` is no count, and ``"2"`` no number."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


class BatchSettings(_Strict):
    """How requests are joined.

    Attributes:
        max_batch_size: most rows of one run. None: found from the model's symbolic sizes and a measurement; 0 or 1:
            off.
        max_delay_ms: how long the first request of a batch may wait for others, in milliseconds.
        preferred_sizes: rows at which a batch is not waited with.
    """

    max_batch_size: int | None = Field(default=None, ge=0, le=65536)
    max_delay_ms: float = Field(default=0.0, ge=0, le=60_000)
    preferred_sizes: tuple[Annotated[int, Field(ge=1, le=65536)], ...] = ()

    @model_validator(mode="after")
    def _has_sizes_within_the_largest(self) -> Self:
        largest = max(self.preferred_sizes, default=0)
        if self.max_batch_size is not None and largest > max(self.max_batch_size, 1):
            raise ValueError(f"preferred size {largest} is beyond max_batch_size {self.max_batch_size}")
        return self


class QueueSettings(_Strict):
    """How requests wait.

    Attributes:
        limit: most requests that wait; beyond them requests are refused.
        time_limit_s: a request's time from arrival to result where it names none; None: no limit.
        priorities: how many levels requests may name; 1 goes first.
        default_priority: the level of requests that name none.
    """

    limit: int = Field(default=256, ge=1)
    time_limit_s: float | None = Field(default=None, gt=0, le=_LONGEST_S)
    priorities: int = Field(default=1, ge=1, le=1000)
    default_priority: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _has_its_default(self) -> Self:
        if self.default_priority > self.priorities:
            raise ValueError(f"default_priority {self.default_priority} is beyond the {self.priorities} priorities")
        return self


class WarmUpInput(_Strict):
    """One tensor of a warm-up run: a shape, and what it holds."""

    shape: tuple[Size, ...]
    fill: Literal["zeros", "ones", "random"] = "zeros"

    @field_validator("shape")
    @classmethod
    def _fits_memory(cls, shape: tuple[int, ...]) -> tuple[int, ...]:
        if math.prod(shape) > _MOST_ELEMENTS or len(shape) > 64:
            raise ValueError(f"must have at most {_MOST_ELEMENTS} elements and 64 axes")
        return shape


class WarmUp(_Strict):
    """One run before a version serves. Inputs that are not named are zeros, with 1 for each open size."""

    inputs: dict[str, WarmUpInput] = Field(default_factory=dict)
    count: int = Field(default=1, ge=1, le=1000)


class DeclaredTensor(_Strict):
    """An input or output that the model must have.

    Attributes:
        name: its name.
        datatype: the protocol's name, such as ``FP32``; None: any.
        shape: its sizes, -1 for open ones; None: any.
        reshape: the model's sizes where clients see ``shape`` instead; None: they see the model's.
    """

    name: str
    datatype: str | None = None
    shape: tuple[OpenSize, ...] | None = None
    reshape: tuple[OpenSize, ...] | None = None

    @field_validator("datatype")
    @classmethod
    def _is_known(cls, datatype: str | None) -> str | None:
        if datatype is not None and datatype not in DATATYPES:
            raise ValueError(f"must be one of {', '.join(DATATYPES)}")
        return datatype


class ModelSettings(_Strict):
    """How one model is served.

    Attributes:
        file: the model's file within a version's folder.
        providers: execution providers in order of preference, each a name or ``[name, {option = "value"}]``.
        session_options: config keys of the session, such as ``session.intra_op_thread_affinities``.
        instances: runs at once; sessions are safe to share, so this adds no memory for weights.
        threads: threads of one run; None: the cores shared out over the instances.
        versions: ``latest``, ``all``, or numbers.
        latest: how many versions ``latest`` means.
        is_pinned: never evicted to make room for other models.
        batching: how requests are joined.
        queue: how requests wait.
        warm_up: runs before a version serves; one of zeros where none is named.
        inputs: what the model must take, all of it; empty: whatever it takes. A version that differs is not served.
        outputs: what the model must give, among others.
    """

    file: str = "model.onnx"
    providers: tuple[Provider, ...] = ()
    session_options: dict[str, str] = Field(default_factory=dict)
    instances: int = Field(default=1, ge=1, le=256)
    threads: int | None = Field(default=None, ge=1, le=_MOST_THREADS)
    versions: Versions = "latest"
    latest: int = Field(default=1, ge=1)
    is_pinned: bool = Field(default=False, alias="pinned")
    batching: BatchSettings = BatchSettings()
    queue: QueueSettings = QueueSettings()
    warm_up: tuple[WarmUp, ...] = ()
    inputs: tuple[DeclaredTensor, ...] = ()
    outputs: tuple[DeclaredTensor, ...] = ()

    @field_validator("file")
    @classmethod
    def _is_a_name(cls, file: str) -> str:
        if not file or file in (".", "..") or set(file) & set("/\\\0"):
            raise ValueError("must be the name of a file in a version's folder, without a path")
        return file


def checked_settings(values: object, source: str, names: Mapping[str, str] | None = None) -> ModelSettings:
    """Return settings from plain values.

    Args:
        values: as a file has them.
        source: the file, for messages.
        names: of settings in the file where they are not those used here.

    Raises:
        InvalidRequest: a name or a value is not one of the settings.
    """
    try:
        return ModelSettings.model_validate(_with_tuples(values))
    except ValidationError as error:
        raise InvalidRequest(f"{source}: {refusal(error, ModelSettings, names or {})}") from error


def _with_tuples(value: object) -> object:
    """Return plain values with tuples for lists, which are what settings hold."""
    if isinstance(value, dict):
        return {name: _with_tuples(item) for name, item in value.items()}
    return tuple(_with_tuples(item) for item in value) if isinstance(value, list | tuple) else value
