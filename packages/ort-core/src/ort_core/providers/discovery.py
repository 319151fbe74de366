"""Discovery: plugins from entry points, each checked before a hook of it is called, none able to break another.

A plugin that does not import, does not fit or shares a provider's name with another becomes ``Unavailable`` with the
reason. Nothing is discovered before somebody asks.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import logging
from collections.abc import Iterable, Sequence
from types import ModuleType

import pluggy

from ort_core.frozen import frozen
from ort_core.interruptions import raise_interruption
from ort_core.providers import hookspecs
from ort_core.providers.provider import ExecutionProvider, Unavailable

log = logging.getLogger(__name__)
GROUP = hookspecs.ENTRY_POINT_GROUP
OWN_PLUGINS = {"cpu": "ort_core.cpu.plugin", "reference": "ort_core.providers.reference_plugin"}  # as pyproject.toml


@frozen
class PluginSource:
    """Where a plugin comes from: a name, the distribution, and a module or the way to import it."""

    name: str
    distribution: str
    load: object  # an importlib EntryPoint, or a ModuleType given directly


@frozen
class DiscoveredPlugin:
    """One plugin: its module, or why it is not used."""

    name: str
    distribution: str
    module: ModuleType | None
    refusal: Unavailable | None = None


@frozen
class PluginRegistry:
    """All plugins and the providers they bring; immutable.

    ``providers`` holds usable classes by name; ``unusable`` holds provider or plugin names that cannot be used and why.
    """

    plugins: tuple[DiscoveredPlugin, ...]
    providers: dict[str, type[ExecutionProvider]]
    origins: dict[str, str]
    unusable: dict[str, Unavailable]
    manager: pluggy.PluginManager

    def call(self, hook: str) -> list[tuple[str, object]]:
        """Call a hook on every usable plugin; a plugin that raises is logged and left out. Returns (plugin, result)."""
        results: list[tuple[str, object]] = []
        for plugin in self.plugins:
            function = getattr(plugin.module, hook, None) if plugin.module is not None else None
            if function is None:
                continue
            try:
                results.append((plugin.name, function()))
            except Exception as error:
                raise_interruption(error)
                log.warning("plugin %s failed in %s: %s: %s", plugin.name, hook, type(error).__name__, error)
                log.debug("plugin %s failed in %s", plugin.name, hook, exc_info=True)
        return results


def entry_point_sources() -> list[PluginSource]:
    """Return the engine's own plugins and those that installed distributions name, sorted by name.

    The engine's own are there without its distribution's metadata, too: a frozen program, a vendored copy or a source
    tree on ``PYTHONPATH`` has none.
    """
    sources = {
        (name, value): PluginSource(name, "ort-core", importlib.metadata.EntryPoint(name, value, GROUP))
        for name, value in OWN_PLUGINS.items()
    }
    for point in importlib.metadata.entry_points(group=GROUP):
        sources[point.name, point.value] = PluginSource(point.name, point.dist.name if point.dist else "?", point)
    return [sources[key] for key in sorted(sources)]


def discover(sources: Iterable[PluginSource]) -> PluginRegistry:
    """Import and check plugins and collect their providers. Never raises."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    plugins = [_load(source, manager) for source in sources]
    unusable = {p.name: p.refusal for p in plugins if p.refusal is not None}
    offers: dict[str, list[tuple[DiscoveredPlugin, type[ExecutionProvider]]]] = {}
    for index, plugin in enumerate(plugins):
        classes = _providers_of(plugin)
        if isinstance(classes, Unavailable):
            plugins[index] = DiscoveredPlugin(plugin.name, plugin.distribution, None, classes)
            unusable[plugin.name] = classes
            continue
        for cls in classes:
            offers.setdefault(cls.name, []).append((plugin, cls))
    providers, origins = {}, {}
    for name, offered in offers.items():
        if len(offered) > 1:
            owners = " and ".join(sorted(plugin.distribution for plugin, _ in offered))
            unusable[name] = Unavailable(f"{owners} both provide {name}", "uninstall one of them")
            continue
        providers[name] = offered[0][1]
        origins[name] = offered[0][0].distribution
    return PluginRegistry(tuple(plugins), providers, origins, unusable, manager)


def _load(source: PluginSource, manager: pluggy.PluginManager) -> DiscoveredPlugin:
    try:
        module = source.load if isinstance(source.load, ModuleType) else source.load.load()  # type: ignore[attr-defined]  # an EntryPoint
        refusal = _check_api(module)
        if refusal is None:
            manager.register(module, name=source.name)
            manager.check_pending()
    except BaseException as error:  # the border to plugins: even an import that exits must not end the program
        raise_interruption(error)
        log.debug("plugin %s cannot be used", source.name, exc_info=True)
        refusal = Unavailable(
            f"plugin {source.name!r} of {source.distribution} failed to load: {type(error).__name__}: {error}",
            f"reinstall or uninstall {source.distribution}",
        )
        module = None
    return DiscoveredPlugin(source.name, source.distribution, module if refusal is None else None, refusal)


def _check_api(module: ModuleType) -> Unavailable | None:
    stated = getattr(module, "ORT_PLUGIN_API", None)
    major, minor = hookspecs.PLUGIN_API
    if not (isinstance(stated, tuple) and len(stated) == 2 and all(isinstance(part, int) for part in stated)):
        return Unavailable(
            f"{module.__name__} states ORT_PLUGIN_API = {stated!r}; needed: a pair of integers, ({major}, {minor})"
        )
    written = f"{module.__name__} was written for plugin API {stated[0]}.{stated[1]}, this ort-core has {major}.{minor}"
    if stated > hookspecs.PLUGIN_API:
        return Unavailable(written, "upgrade ort-core")
    changed = hookspecs.CHANGED_FOR_PROVIDERS.get(stated[0])
    if stated[0] != major and changed is None:
        return Unavailable(written, "upgrade the plugin's package")
    if stated[0] != major and hasattr(module, "ort_providers"):
        return Unavailable(f"{written}: {changed}", "upgrade the plugin's package")
    return None


def _providers_of(plugin: DiscoveredPlugin) -> Sequence[type[ExecutionProvider]] | Unavailable:
    hook = getattr(plugin.module, "ort_providers", None)
    if hook is None:
        return ()
    try:
        classes = list(hook())
    except BaseException as error:  # the border to plugins: the hook imports what the module did not
        raise_interruption(error)
        log.debug("plugin %s failed in ort_providers", plugin.name, exc_info=True)
        return Unavailable(f"plugin {plugin.name!r} failed in ort_providers: {type(error).__name__}: {error}")
    for cls in classes:
        if not (isinstance(cls, type) and issubclass(cls, ExecutionProvider)):
            return Unavailable(
                f"plugin {plugin.name!r} returned {cls!r} from ort_providers, not an ExecutionProvider class"
            )
        title = f"provider class {cls.__qualname__} of plugin {plugin.name!r}"
        name = getattr(cls, "name", None)
        if not isinstance(name, str) or not name.strip():
            return Unavailable(f"{title} has no name: its class variable 'name' is {name!r}")
        if not dataclasses.is_dataclass(cls.options_type):
            return Unavailable(f"{title}: its options_type is {cls.options_type!r}, expected a frozen dataclass")
    return classes
