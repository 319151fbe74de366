"""Environments for tests: the one that sessions use, replaced for a while by one with further plugins."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from ort_core import environment as home
from ort_core.environment import Environment, default_environment
from ort_core.providers.discovery import PluginSource, entry_point_sources


def session_environment() -> Environment:
    """Return the environment that new sessions of this process use."""
    return default_environment()


@contextmanager
def installed(*sources: PluginSource) -> Iterator[Environment]:
    """Let new sessions see the given plugins beside the installed ones, as if their packages were installed.

    For one thread at a time: the environment is that of the process.
    """
    with _as_default(Environment(lambda: [*entry_point_sources(), *sources])) as environment:
        yield environment


def own_sources() -> list[PluginSource]:
    """Return ort-core's own plugins: what a test counts on wherever it runs, whatever else is installed."""
    return [source for source in entry_point_sources() if source.distribution == "ort-core"]


@contextmanager
def alone(*sources: PluginSource) -> Iterator[Environment]:
    """Let new sessions see ort-core's own plugins and the given ones only, whatever else is installed.

    For one thread at a time: the environment is that of the process.
    """
    with _as_default(Environment(lambda: [*own_sources(), *sources])) as environment:
        yield environment


@contextmanager
def without_operators(keys: Collection[tuple[str, str, int]]) -> Iterator[Environment]:
    """Let new sessions see no plugin's operators of these domains, names and versions: another takes their place.

    For one thread at a time: the environment is that of the process.
    """
    with _as_default(default_environment().without_operators(keys)) as environment:
        yield environment


@contextmanager
def _as_default(environment: Environment) -> Iterator[Environment]:
    previous = default_environment()
    home._default = environment
    try:
        yield environment
    finally:
        home._default = previous
