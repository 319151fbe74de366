"""What discovery found, remembered between processes: a session that asks for one provider imports that one alone.

To list the installed distributions and to import every plugin takes longer than to take a session out of the cache.
Found again by the metadata folders of all distributions that can be imported, their names and times, it tells where the
class of each provider is. It answers nothing else: who wants more, or a name that is not there, discovers.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ort_core.cache.key import CacheKey
from ort_core.cache.store import ArtefactCache
from ort_core.cache.versions import package_facts
from ort_core.frozen import frozen
from ort_core.interruptions import raise_interruption
from ort_core.providers.provider import ExecutionProvider

if TYPE_CHECKING:
    from ort_core.providers.discovery import PluginRegistry

log = logging.getLogger(__name__)

_KIND = "plugins"
_METADATA = (".dist-info", ".egg-info", ".egg", ".egg-link")
_MIN_AGE_NS = 2_000_000_000  # a folder that changed just now may change again at the same time
_OWN_HOOKS = ("ort_passes", "ort_custom_ops")

Stamp = list[tuple[str, int]]


@frozen
class RememberedProvider:
    """Where a provider's class is, and what orders and lists it."""

    name: str
    module: str
    qualified_name: str
    priority: int
    is_listed: bool

    def load(self) -> type[ExecutionProvider] | None:
        """Return the class, ``None`` when it is not there any more, is another, or does not import."""
        try:
            found: object = importlib.import_module(self.module)
            for part in self.qualified_name.split("."):
                found = getattr(found, part)
        except BaseException as error:  # noqa: BLE001 - the border to plugins: the discovery that follows says what is wrong
            raise_interruption(error)
            log.debug("%s is not where it was: %s: %s", self.name, type(error).__name__, error)
            return None
        is_provider = isinstance(found, type) and issubclass(found, ExecutionProvider)
        return found if is_provider and found.name == self.name else None  # type: ignore[attr-defined,return-value]  # a provider


@frozen
class RememberedPlugins:
    """All providers by name, the highest priority first; whether plugins bring passes or operators."""

    providers: dict[str, RememberedProvider]
    has_own_passes_or_operators: bool


def find_remembered() -> RememberedPlugins | None:
    """Return what an earlier discovery found among the same distributions."""
    content = ArtefactCache().get(_key(_installed()))
    if content is None:
        return None
    try:
        data = json.loads(content)
        stamps = data["modules"]
        if any(_stamp_of(path) != stamp for path, stamp in stamps):
            return None
        providers = [RememberedProvider(*each) for each in data["providers"]]
        return RememberedPlugins({each.name: each for each in providers}, bool(data["own"]))
    except (ValueError, KeyError, TypeError) as error:
        log.debug("what is remembered of plugins is not usable: %s", error)
        return None


def remember(registry: PluginRegistry) -> bool:
    """Keep what was discovered, if all of it is usable and settled; returns whether it was kept."""
    installed = _installed()
    if registry.unusable or any(modified_ns > time.time_ns() - _MIN_AGE_NS for _, modified_ns in installed):
        return False
    modules = {plugin.module for plugin in registry.plugins}
    classes = sorted(registry.providers.values(), key=lambda cls: (-cls.priority, cls.name))
    names = {*(module.__name__ for module in modules if module is not None), *(cls.__module__ for cls in classes)}
    files = [getattr(sys.modules.get(name), "__file__", None) for name in sorted(names)]
    if any(file is None for file in files) or any("<" in cls.__qualname__ for cls in classes):
        return False
    content = {
        "modules": [(file, _stamp_of(str(file))) for file in files],
        "providers": [(c.name, c.__module__, c.__qualname__, c.priority, c.is_listed) for c in classes],
        "own": any(hasattr(module, hook) for module in modules for hook in _OWN_HOOKS),
    }
    return ArtefactCache().put(_key(installed), json.dumps(content).encode())


def _key(installed: Stamp) -> CacheKey:
    facts = (("installed", json.dumps(installed)), ("python", sys.version), *package_facts())
    return CacheKey(_KIND, b"", (), facts)


def _installed() -> Stamp:
    """Return the paths of all metadata of distributions that can be imported, in the order of the search, and times."""
    return [each for folder in dict.fromkeys(sys.path) for each in sorted(_metadata_in(folder or "."))]


def _metadata_in(folder: str) -> Iterator[tuple[str, int]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(_METADATA):
                    yield entry.path, entry.stat().st_mtime_ns
    except NotADirectoryError:  # an archive, which may hold distributions
        yield folder, _stamp_of(folder)[1]
    except OSError:  # as the search for modules has it: what cannot be listed holds nothing
        return


def _stamp_of(path: str) -> list[int]:
    try:
        status = os.stat(path)
    except OSError:
        return [0, 0]
    return [status.st_size, status.st_mtime_ns]
