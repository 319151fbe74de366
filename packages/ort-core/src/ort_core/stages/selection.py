"""The providers of a session: those that were asked for and can run, and why the others cannot."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence

from ort_core.environment import Environment
from ort_core.errors import InvalidArgument, NotFound, ProviderUnavailable
from ort_core.frozen import frozen
from ort_core.providers.provider import ExecutionProvider, check_device, make_provider
from ort_core.stages.settings import PrepareSettings

log = logging.getLogger(__name__)

ProviderRequest = Sequence[tuple[str, Mapping[str, object]]]


class PlacementWarning(UserWarning):
    """Something runs elsewhere than the caller asked first; the text says what and why."""


@frozen
class ProviderSelection:
    """The providers of a session, in order, and those that were asked for and cannot run."""

    providers: tuple[ExecutionProvider, ...]
    unavailable: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The providers' names, in order."""
        return tuple(provider.name for provider in self.providers)


def select_providers(
    request: ProviderRequest | None, environment: Environment, settings: PrepareSettings
) -> ProviderSelection:
    """Instantiate the providers asked for (those that are used by default when ``None``), the last resort appended.

    Raises:
        ProviderUnavailable: none of those asked for can run here, or one cannot and ``strict`` is set.
        NotFound: a name is neither installed nor known.
        InvalidArgument: an option is not known to its provider or does not parse.
    """
    if request is None:
        request = [(name, {}) for name in environment.default_providers()]
    chosen: list[ExecutionProvider] = []
    unavailable: list[tuple[str, str]] = []
    for name, options in request:
        if any(provider.name == name for provider in chosen):
            log.warning("Duplicate provider %r encountered, ignoring.", name)
            continue
        state = environment.check(name)
        if not state:
            _check_known(name, environment)
            unavailable.append((name, str(state)))
            continue
        made = make_provider(environment.get_provider(name), options)
        state = check_device(made) if isinstance(made, ExecutionProvider) else made
        if isinstance(made, ExecutionProvider) and state:
            chosen.append(made)
        else:
            unavailable.append((name, str(state)))
    if request and (not chosen or (settings.strict and unavailable)):
        reasons = "; ".join(f"{name}: {reason}" for name, reason in unavailable)
        raise ProviderUnavailable(
            f"None of the asked-for execution providers can run here ({reasons}). "
            f"Available: {', '.join(environment.available_providers()) or 'none'}."
            if not chosen
            else f"strict placement: an execution provider that was asked for cannot run here ({reasons})."
        )
    for name, reason in unavailable:
        rest = ", ".join(provider.name for provider in chosen)
        warnings.warn(f"{name} is not available and {rest} is used instead: {reason}", PlacementWarning, stacklevel=4)
    return ProviderSelection((*chosen, *last_resorts(chosen, environment, settings)), tuple(unavailable))


def last_resorts(
    chosen: Sequence[ExecutionProvider], environment: Environment, settings: PrepareSettings
) -> list[ExecutionProvider]:
    """Return who takes what the chosen providers leave: nobody where one of them is a last resort or none may be."""
    if not settings.allow_last_resort or any(provider.is_last_resort for provider in chosen):
        return []
    classes = environment.provider_classes().values()
    return [cls({}) for cls in classes if cls.is_last_resort and environment.check(cls.name)]


def _check_known(name: str, environment: Environment) -> None:
    from ort_core.environment import PACKAGES

    if name not in PACKAGES and name not in environment.plugins.unusable:
        try:
            environment.get_provider(name)
        except NotFound as error:
            raise InvalidArgument(str(error)) from None
