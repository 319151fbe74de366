"""How one model is served."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ort_serve.failures import InvalidRequest

Provider = str | tuple[str, dict[str, str]]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


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
    preferred_sizes: tuple[Annotated[int, Field(ge=1)], ...] = ()

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
    time_limit_s: float | None = Field(default=None, gt=0)
    priorities: int = Field(default=1, ge=1, le=1000)
    default_priority: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _has_its_default(self) -> Self:
        if self.default_priority > self.priorities:
            raise ValueError(f"default_priority {self.default_priority} is beyond the {self.priorities} priorities")
        return self


class WarmUpInput(_Strict):
    """One tensor of a warm-up run: a shape, and what it holds."""

    shape: tuple[Annotated[int, Field(ge=0)], ...]
    fill: Literal["zeros", "ones", "random"] = "zeros"


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
    shape: tuple[int, ...] | None = None
    reshape: tuple[int, ...] | None = None


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

    file: str = Field(default="model.onnx", pattern=r"^[^/\\]+$")
    providers: tuple[Provider, ...] = ()
    session_options: dict[str, str] = Field(default_factory=dict)
    instances: int = Field(default=1, ge=1, le=256)
    threads: int | None = Field(default=None, ge=1)
    versions: Literal["latest", "all"] | tuple[int, ...] = "latest"
    latest: int = Field(default=1, ge=1)
    is_pinned: bool = Field(default=False, alias="pinned")
    batching: BatchSettings = BatchSettings()
    queue: QueueSettings = QueueSettings()
    warm_up: tuple[WarmUp, ...] = ()
    inputs: tuple[DeclaredTensor, ...] = ()
    outputs: tuple[DeclaredTensor, ...] = ()


def checked_settings(values: object, source: str) -> ModelSettings:
    """Return settings from plain values.

    Raises:
        InvalidRequest: a name or a value is not one of the settings.
    """
    try:
        return ModelSettings.model_validate(values)
    except ValidationError as error:
        told = "; ".join(f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors())
        known = ", ".join(field.alias or name for name, field in ModelSettings.model_fields.items())
        raise InvalidRequest(f"{source}: {told}. Settings are: {known}") from error
