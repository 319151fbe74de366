"""The models that a server offers: loaded, swapped, unloaded and evicted without losing a request.

A new version is loaded and warmed up in a thread while the old ones serve; then it takes their place in one step, and
they finish what waits for them. A version that cannot be loaded changes nothing but its own state. All methods belong
to the event loop's thread, but for the loading itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ort_core import OrtError
from ort_serve.failures import InvalidRequest, NotFound, NotReady, plain_text
from ort_serve.repository.model_version import LoadRequest, ModelVersion
from ort_serve.repository.scan import FoundModel, scan_models, scan_one
from ort_serve.repository.version_files import Stamp, stamp_of
from ort_serve.scheduling.core_budget import CoreBudget
from ort_serve.statistics import Metrics

log = logging.getLogger(__name__)
READY, LOADING, UNAVAILABLE = "READY", "LOADING", "UNAVAILABLE"
_UNLOADED = "unloaded"
_EVICTED = "made room for other models; it is loaded again when it is asked"


@dataclass
class VersionState:
    """One version as the index shows it."""

    state: str
    reason: str = ""
    stamp: Stamp | None = None
    loaded: ModelVersion | None = None


@dataclass
class ModelState:
    """One model: its versions by number, when it was last asked, and how many wait for it to be loaded."""

    name: str
    versions: dict[int, VersionState] = field(default_factory=dict)
    problem: str = ""
    remark: str = ""
    last_used: float = 0.0
    is_pinned: bool = False
    waiting: int = 0
    loading: asyncio.Lock = field(default_factory=asyncio.Lock)

    def ready(self) -> dict[int, ModelVersion]:
        """Return the versions that serve."""
        return {number: state.loaded for number, state in self.versions.items() if state.loaded is not None}

    def has_made_room(self) -> bool:
        """Return whether it was unloaded for other models, and is loaded again when it is asked."""
        return any(each.reason == _EVICTED for each in self.versions.values())


class ModelRepository:
    """The models of one file or folder.

    Args:
        root: ``model.onnx``, or a folder of NAME/VERSION/model.onnx.
        cores: shared out over the models.
        metrics: told what happens.
        memory_limit: most bytes of loaded models' files; models that are not pinned and were not asked for the
            longest time
            are unloaded beyond it, and loaded again when they are asked. None: no limit.
        result_limit: most bytes of a result's tensors; None: no limit.
        run_limit: most bytes that one run may hold; None: half of the memory.
        loads_at_once: how many models are loaded side by side.

    Attributes:
        changes: how many versions came or went.
    """

    def __init__(
        self, root: Path, cores: CoreBudget, metrics: Metrics, memory_limit: int | None = None,
        result_limit: int | None = None, run_limit: int | None = None, loads_at_once: int = 2,
    ) -> None:  # fmt: skip
        self.root = root
        self._cores = cores
        self._metrics = metrics
        self._memory_limit = memory_limit
        self._result_limit, self._run_limit = result_limit, run_limit
        self._models: dict[str, ModelState] = {}
        self._drains: set[asyncio.Task[None]] = set()
        self._asked: set[asyncio.Task[None]] = set()
        self._loads = asyncio.Semaphore(loads_at_once)
        self._looking = asyncio.Lock()
        self.changes = 0

    async def load_all(self) -> None:
        """Bring the models to what the folder says: new and changed ones are loaded, removed ones unloaded."""
        async with self._looking:  # two at once, by the clock and by a signal, would remove the same models
            found = await asyncio.to_thread(scan_models, self.root)
            for name in [name for name in self._models if name not in found]:
                await self.unload(name, "its folder was removed")
                del self._models[name]
            await asyncio.gather(*(self._update(model, is_asked=False) for model in found.values()))

    async def load(self, name: str) -> None:
        """Load one model as its folder says now.

        It is loaded to the end also where the call is cancelled: the thread cannot be stopped, and a version that
        nobody took over would keep its threads and its memory.

        Raises:
            NotFound: the folder has no such model.
            NotReady: the folder cannot be read.
            InvalidRequest: no version of it could be loaded; the message says why.
        """
        task = asyncio.get_running_loop().create_task(self._load_asked(name))
        self._asked.add(task)
        task.add_done_callback(self._has_loaded)
        await asyncio.shield(task)

    def _has_loaded(self, task: asyncio.Task[None]) -> None:
        self._asked.discard(task)
        if not task.cancelled():
            task.exception()  # whoever asked may have gone: the index and the log have told it

    async def _load_asked(self, name: str) -> None:
        found = await asyncio.to_thread(self._scan_one, name)
        state = self._models.setdefault(name, ModelState(name))
        with self._kept(state):
            await self._update(found, is_asked=True)
            _check_loaded(state)

    async def unload(self, name: str, reason: str = _UNLOADED) -> None:
        """Let a model's versions finish what waits for them, and go. What is being loaded goes when it is there.

        Raises:
            NotFound: there is no such model.
        """
        state = self._state(name)
        async with state.loading:
            self._retire_all(state, reason)

    def find_version(self, name: str, version: str) -> ModelVersion | None:
        """Return the version that answers a request, where no more is to be said of it than that it is ready."""
        state = self._models.get(name)
        if state is None or version:
            return None
        state.last_used = time.monotonic()
        ready = state.ready()
        return ready[max(ready)] if ready else None

    def get_version(self, name: str, version: str) -> ModelVersion:
        """Return the version that answers a request: the newest that is ready where none is named.

        Raises:
            NotFound: there is no such model or version.
            NotReady: it does not serve now.
        """
        state = self._state(name)
        state.last_used = time.monotonic()
        ready = state.ready()
        if not version:
            if not ready:
                raise NotReady(f"model {name!r} has no version that is ready: {_told(state)}")
            return ready[max(ready)]
        number = int(version) if version.isdecimal() and len(version) <= 18 else -1
        if number in ready:
            return ready[number]
        known = state.versions.get(number)
        if known is None:
            raise NotFound(
                f"model {name!r} has no version {version!r}; it has {', '.join(map(str, sorted(state.versions)))}"
            )
        raise NotReady(f"version {version} of model {name!r} is {known.state}: {known.reason}")

    def check_answers(self, name: str, version: str) -> None:
        """Refuse a version that cannot answer. One of a model that made room for others can: it is loaded for that.

        Raises:
            NotFound: there is no such model or version.
            NotReady: it does not serve now.
        """
        try:
            self.get_version(name, version)
        except NotReady:
            if not self._state(name).has_made_room():
                raise

    async def get_version_or_load(self, name: str, version: str) -> ModelVersion:
        """Return the version that answers a request; a model that made room for others is loaded again.

        It is not unloaded before its caller has had the time to use it: up to its next ``await``.

        Raises:
            NotFound: there is no such model or version.
            NotReady: it does not serve now, or cannot be loaded again.
        """
        try:
            return self.get_version(name, version)
        except NotReady:
            state = self._state(name)
            if not state.has_made_room():
                raise
        with self._kept(state):
            try:
                await self.load(name)
            except InvalidRequest as error:  # what a client asked is right: the server cannot do it
                raise NotReady(str(error)) from error
            return self.get_version(name, version)

    def versions(self, name: str) -> dict[int, VersionState]:
        """Return a model's versions.

        Raises:
            NotFound: there is no such model.
        """
        return self._state(name).versions

    def names(self) -> list[str]:
        """Return the names of all models."""
        return sorted(self._models)

    def index(self) -> list[tuple[str, str, str, str]]:
        """Return name, version, state and reason of everything known."""
        rows = []
        for name in self.names():
            state = self._models[name]
            if not state.versions:
                rows.append((name, "", UNAVAILABLE, plain_text(state.problem)))
            rows += [
                (name, str(number), each.state, plain_text(each.reason))
                for number, each in sorted(state.versions.items())
            ]
        return rows

    def loaded(self) -> list[ModelVersion]:
        """Return every version that serves."""
        return [version for name in self.names() for version in self._models[name].ready().values()]

    def is_ready(self) -> bool:
        """Return whether every model has a version that serves, or made room for others."""
        return all(
            state.ready() or any(each.reason in (_EVICTED, _UNLOADED) for each in state.versions.values())
            for state in self._models.values()
        )

    def terminate(self) -> None:
        """Stop what runs and what waits in every model: each request fails."""
        for version in self.loaded():
            version.terminate()

    async def close(self, grace_s: float) -> None:
        """Finish what waits in every model; stop what still runs after ``grace_s`` seconds."""
        loaded = self.loaded()
        for name in self.names():
            await self.unload(name, "the server ends")
        if not self._drains:
            return
        _, late = await asyncio.wait(self._drains, timeout=grace_s)
        if late:
            for version in loaded:
                version.terminate()
            _, late = await asyncio.wait(late, timeout=grace_s)
            if late:
                log.error("%d models do not end; their threads are left behind", len(late))

    def _state(self, name: str) -> ModelState:
        found = self._models.get(name)
        if found is None:
            raise NotFound(f"there is no model {name!r}; models are: {', '.join(self.names()) or 'none'}")
        return found

    def _scan_one(self, name: str) -> FoundModel:
        try:
            found = scan_one(self.root, name)
        except OSError as error:
            log.warning("the repository cannot be read: %s", error)
            raise NotReady(f"the folder of models cannot be read: {error.strerror}") from error
        if found is None:
            raise NotFound(f"there is no model {name!r} in the repository")
        return found

    async def _update(self, found: FoundModel, *, is_asked: bool) -> None:
        state = self._models.setdefault(found.name, ModelState(found.name))
        async with state.loading:
            self._models[found.name] = state  # it may have gone while this waited
            for known, told in ((state.problem, found.problem), (state.remark, found.remark)):
                if told and told != known:  # once, however often the folder is looked at
                    log.warning("model %s: %s", found.name, told)
            state.problem, state.remark = found.problem, found.remark
            state.is_pinned = found.settings.is_pinned
            if found.problem:
                return
            chosen = found.chosen()
            await asyncio.gather(*(self._load(state, found, number, path, is_asked) for number, path in chosen.items()))
            if any(number in state.ready() for number in chosen):  # else the old ones go on
                for number in [number for number in state.versions if number not in chosen]:
                    self._retire(state.versions[number], UNAVAILABLE, "another version took its place")
                    if number not in found.versions:
                        del state.versions[number]
        self._make_room(state)

    async def _load(self, state: ModelState, found: FoundModel, number: int, path: Path, is_asked: bool) -> None:
        old, stamp = state.versions.get(number), None
        try:
            stamp = await asyncio.to_thread(stamp_of, path, found.settings, is_alone=path == self.root)
        except OSError as error:  # it goes while it is looked at
            self._keep(state, number, error, stamp)
            return
        if old is not None and old.stamp == stamp and (old.loaded is not None or not is_asked):
            return  # nothing changed: what was unloaded, or could not be loaded, waits until it is asked
        if old is None:
            state.versions[number] = VersionState(LOADING)
        request = LoadRequest(found.name, number, path, found.settings, self._result_limit, self._run_limit)
        try:
            async with self._loads:
                loaded = await asyncio.to_thread(ModelVersion, request, self._cores, self._metrics)
        except Exception as error:  # noqa: BLE001  # whatever it is, the index and the log tell it
            self._keep(state, number, error, stamp)
            return
        log.info(
            "model %s, version %s is ready (%.2f s); %s",
            found.name,
            number,
            loaded.load_seconds,
            loaded.batching.reason,
        )
        state.versions[number] = VersionState(READY, "", stamp, loaded)
        self.changes += 1
        if old is not None:
            self._drain(old)

    def _keep(self, state: ModelState, number: int, error: Exception, stamp: Stamp | None) -> None:
        """Let a version be what it was, because of an error."""
        is_told = isinstance(error, (OrtError, InvalidRequest, OSError))
        log.warning("model %s, version %s cannot be loaded: %s", state.name, number, error, exc_info=not is_told)
        old = state.versions.get(number)
        kept = None if old is None else old.loaded
        state.versions[number] = VersionState(READY if kept else UNAVAILABLE, str(error), stamp, kept)

    @contextmanager
    def _kept(self, state: ModelState) -> Iterator[None]:
        """Do not let a model make room for others while somebody waits for it.

        Room is made in the event loop's next turn: whoever waited has used the model then.
        """
        state.waiting += 1
        try:
            yield
        finally:
            state.waiting -= 1
            if self._memory_limit is not None:
                asyncio.get_running_loop().call_soon(self._make_room, state)

    def _make_room(self, newest: ModelState) -> None:
        if self._memory_limit is None or not newest.ready():  # loaded beside another that took its room already
            return
        while sum(version.nbytes for version in self.loaded()) > self._memory_limit:
            others = [
                state
                for state in self._models.values()
                if state is not newest and not state.is_pinned and not state.waiting and state.ready()
            ]
            if not others:
                return
            oldest = min(others, key=lambda state: state.last_used)
            log.info("model %s makes room for %s", oldest.name, newest.name)
            self._retire_all(oldest, _EVICTED)

    def _retire_all(self, model: ModelState, reason: str) -> None:
        for state in model.versions.values():
            self._retire(state, UNAVAILABLE, reason)

    def _retire(self, state: VersionState, name: str, reason: str) -> None:
        self._drain(state)
        state.state, state.reason, state.loaded = name, reason, None

    def _drain(self, state: VersionState) -> None:
        if state.loaded is not None:
            task = asyncio.get_running_loop().create_task(asyncio.to_thread(state.loaded.drain))
            self._drains.add(task)
            task.add_done_callback(self._drained)

    def _drained(self, task: asyncio.Task[None]) -> None:
        self._drains.discard(task)
        self.changes += 1


def _check_loaded(state: ModelState) -> None:
    """Refuse a model of which nothing could be loaded.

    Raises:
        InvalidRequest: the message says why.
    """
    failed = {number: each.reason for number, each in state.versions.items() if each.reason and each.loaded is None}
    if state.problem or (failed and not state.ready()):
        told = state.problem or "; ".join(f"version {number}: {reason}" for number, reason in failed.items())
        raise InvalidRequest(f"model {state.name!r} cannot be loaded: {told}")


def _told(state: ModelState) -> str:
    reasons: Mapping[int, str] = {number: each.reason or each.state for number, each in state.versions.items()}
    return state.problem or "; ".join(f"version {number}: {reason}" for number, reason in sorted(reasons.items()))
