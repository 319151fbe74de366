"""Provider requests: the forms in which callers name providers become one, a list of (name, options)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from ort_core.errors import InvalidArgument, InvalidRequest

if TYPE_CHECKING:
    from ort_core.environment import Environment
    from ort_core.options import SessionOptions

Providers = Sequence[str | tuple[str, Mapping[str, object]]]
Request = list[tuple[str, dict[str, object]]]


def provider_request(
    providers: Providers | None,
    provider_options: Sequence[Mapping[str, object]] | None,
    options: SessionOptions,
    environment: Environment,
    metadata: Mapping[str, str] | None = None,
) -> Request | None:
    """Return what was asked for, in order; ``None`` when nothing was (the default providers then).

    Raises:
        InvalidArgument: names and options do not fit together.
    """
    if providers:
        if options.has_providers():
            warnings.warn(
                "Specified 'providers'/'provider_options' when creating InferenceSession but SessionOptions has "
                "already been configured with providers. InferenceSession will only use the providers passed to "
                "InferenceSession().",
                stacklevel=4,
            )
        return normalized(providers, provider_options)
    if provider_options:
        raise InvalidArgument("'provider_options' was given without 'providers'; name a provider for each")
    if options.providers:
        return [(name, dict(values)) for name, values in options.providers]
    if options.provider_policy is not None:
        from ort_core.session_api.policy_request import request_by_policy  # few sessions have one

        return request_by_policy(options, environment, metadata or {})
    return None


def normalized(providers: Providers, provider_options: Sequence[Mapping[str, object]] | None) -> Request:
    """Return the request in its one form; a provider named twice counts once, with a warning."""
    if isinstance(providers, str) or not isinstance(providers, Sequence):
        raise InvalidRequest(f"providers is {providers!r}, expected a list such as [{providers!r}]")
    entries: list[tuple[str, Mapping[str, object]]] = []
    if provider_options is not None:
        if not isinstance(provider_options, Sequence):
            raise InvalidRequest(f"provider_options is {provider_options!r}, expected a list with a mapping for each")
        if len(providers) != len(provider_options):
            raise InvalidRequest(
                "'providers' and 'provider_options' should be the same length if both are given: "
                f"{len(providers)} and {len(provider_options)}"
            )
        if not all(isinstance(name, str) for name in providers):
            raise InvalidRequest("Only string values for 'providers' are supported if 'provider_options' is given.")
        entries = list(zip(cast("Sequence[str]", providers), provider_options, strict=True))
    else:
        entries = [_entry(item) for item in providers]
    request: dict[str, dict[str, object]] = {}
    for name, values in entries:
        if not isinstance(values, Mapping):
            raise InvalidRequest(f"the options of provider {name!r} are {values!r}, expected a mapping")
        if name in request:
            warnings.warn(f"Duplicate provider '{name}' encountered, ignoring.", stacklevel=5)
            continue
        request[name] = {str(key): value for key, value in values.items()}
    return list(request.items())


def _entry(item: object) -> tuple[str, Mapping[str, object]]:
    if isinstance(item, str):
        return item, {}
    if isinstance(item, (tuple, list)) and len(item) == 2 and isinstance(item[0], str) and isinstance(item[1], Mapping):
        return item[0], item[1]
    raise InvalidRequest(
        f"{item!r} in 'providers' is neither a provider's name nor a pair (name, options): "
        "'providers' values must be either strings or (string, dict) tuples."
    )
