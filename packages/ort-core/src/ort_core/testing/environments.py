"""Environments for tests: the one that sessions use, replaced for a while by one with further plugins."""

from __future__ import annotations

from collections.abc import Iterator
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
    previous = default_environment()
    home._default = Environment(lambda: [*entry_point_sources(), *sources])
    try:
        yield home._default
    finally:
        home._default = previous
