"""What is known of providers and plugins: installed or not, available or why not."""

from __future__ import annotations

from dataclasses import dataclass

from ort_core.environment import PACKAGES, Environment, default_environment
from ort_core.providers.option_facts import OptionFacts, describe_options
from ort_core.providers.provider import Available, ExecutionProvider


@dataclass(frozen=True, slots=True)
class ProviderRow:
    """One provider; ``remarks`` says what it runs on, or why it cannot run and what to do."""

    name: str
    is_installed: bool
    is_available: bool
    is_listed: bool
    package: str
    remarks: str
    options: tuple[OptionFacts, ...] = ()


@dataclass(frozen=True, slots=True)
class PluginRow:
    """One plugin; ``reason`` says why it cannot be used, empty when it can."""

    name: str
    package: str
    reason: str


def describe_providers() -> list[ProviderRow]:
    """Return all providers: installed ones first, highest priority first, then known ones that are not installed."""
    environment = default_environment()
    classes = environment.provider_classes()
    rows = [_installed(environment, cls) for cls in classes.values()]
    plugins = {plugin.name for plugin in environment.plugins.plugins}
    for name, refusal in environment.plugins.unusable.items():
        if name not in classes and name not in plugins:
            rows.append(ProviderRow(name, True, False, False, "", str(refusal)))
    known = {row.name for row in rows}
    for name, remedy in PACKAGES.items():
        if name not in known:
            rows.append(ProviderRow(name, False, False, False, "", f"not installed: {remedy}"))
    return rows


def describe_plugins() -> list[PluginRow]:
    """Return all plugins by name."""
    found = default_environment().plugins.plugins
    return [PluginRow(p.name, p.distribution, "" if p.refusal is None else str(p.refusal)) for p in found]


def _installed(environment: Environment, cls: type[ExecutionProvider]) -> ProviderRow:
    state = environment.check(cls.name)
    remarks = state.detail if isinstance(state, Available) else str(state)
    return ProviderRow(
        cls.name,
        True,
        bool(state),
        cls.is_listed,
        environment.plugins.origins.get(cls.name, ""),
        remarks,
        describe_options(cls.options_type),
    )
