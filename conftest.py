"""What every test of the repository shares: where external test data lies, and a header that says when it is absent."""

from __future__ import annotations

import copy
import cProfile
import faulthandler
import gc
import importlib.util
import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import HealthCheck, settings

# How busy the machine is decides no test, and what is tried is the same on every day: `nox -s examples` tries others.
repository = settings(deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repository", repository)
settings.register_profile("search", repository, derandomize=False, print_blob=True)
settings.load_profile("repository")

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # images of containers set it: each program would compile 700 modules
# Workers share the cores. A thread of OpenBLAS that has multiplied waits for more by spinning: 20 ms of a core.
# numpy reads this when it is imported: workers and programs do that later than here, a lone pytest has done so before.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("ORT_STRICT_COMPILATION", "1")  # users keep their model where the compiler fails; tests tell
_STATES = pytest.StashKey[dict[object, list[tuple[np.random.Generator, Any]]]]()

MANY_OBJECTS = 50_000  # the collector looks through them in 15 ms
MOST_MEMORY = 8_000_000_000  # bytes of one worker; the largest one has a third

NO_PEER = "onnxruntime is not installed (it has no wheel for every Python): what is compared with it is skipped"
ABSENT = "ORT_TEST_DATA is not set to a folder: tests on external models and cases are skipped"


class _AbsentPeer:
    """Skips a test, or the tests of a module, when it imports onnxruntime, and there is none."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find nothing; ``onnxruntime`` ends what imports it."""
        if name == "onnxruntime":
            pytest.skip(NO_PEER, allow_module_level=True)
        return None


HAS_PEER = importlib.util.find_spec("onnxruntime") is not None
if not HAS_PEER:
    sys.meta_path.append(_AbsentPeer())


def find_test_data() -> Path | None:
    """Return the folder of external test data, or ``None`` when there is none."""
    folder = os.environ.get("ORT_TEST_DATA", "")
    return Path(folder) if folder and Path(folder).is_dir() else None


def pytest_report_header() -> list[str]:
    """State once, at the top, whether external test data is used, and whether onnxruntime is missing."""
    folder = find_test_data()
    data = f"external test data: {folder}" if folder else ABSENT
    return [data] if HAS_PEER else [data, NO_PEER]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--every-case``."""
    parser.addoption("--every-case", action="store_true", help="run sweeps with all their cases")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run a sixth of each sweep, or one case of its ``parts``."""
    if config.getoption("--every-case"):
        return
    sweeps: dict[tuple[str, int, bool], list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and (sweep := item.get_closest_marker("sweep")):
            name, parts = item.nodeid.partition("[")[0], sweep.kwargs.get("parts", 6)
            sweeps.setdefault((name, parts, sweep.kwargs.get("every_value", True)), []).append(item)
    left_out = {case for (_, parts, every), cases in sweeps.items() for case in _left_out(cases, parts, every)}
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def _left_out(cases: list[pytest.Function], parts: int, every_value: bool) -> list[pytest.Function]:
    """Return the cases of a sweep that are not run.

    Cases run where ``parts`` divides the sum of the places of their parameters: any two parameters meet in many ways.
    Of parameters with few values some value may be in none of them; its first case runs, too, unless the sweep has
    ``every_value=False``.
    """
    places = dict(zip(cases, _places(cases), strict=True))
    chosen = {case for case in cases if sum(places[case]) % parts == 0}
    columns = zip(*places.values(), strict=True) if every_value else ()
    few = [which for which, values in enumerate(columns) if len(set(values)) <= parts]
    met = {(which, places[case][which]) for case in chosen for which in few}
    for case in cases:
        values = {(which, places[case][which]) for which in few}
        if not values <= met:
            chosen.add(case)
            met |= values
    return [case for case in cases if case not in chosen]


def _places(cases: list[pytest.Function]) -> list[tuple[int, ...]]:
    """Return for each case the place that the value of each parameter has among those before it."""
    found = []
    seen: dict[str, dict[tuple[int, ...], int]] = {}
    for case in cases:
        of_case = []
        for mark in case.iter_markers("parametrize"):
            given = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
            values = seen.setdefault(str(mark.args[0]), {})
            value = tuple(id(case.callspec.params[name.strip()]) for name in given)
            of_case.append(values.setdefault(value, len(values)))
        found.append(tuple(of_case))
    return found


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note the state of every generator that the tests of a module share, as importing the module left it.

    What was collected stays to the end: the collector of garbage need not look through it each time. Nor as often as by
    itself, which is after each 700 new objects: a model makes thousands.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, *gc.get_threshold()[1:])
    modules = {item.module for item in session.items if isinstance(item, pytest.Function)}
    generators = {
        module: [each for each in vars(module).values() if isinstance(each, np.random.Generator)] for module in modules
    }
    session.config.stash[_STATES] = {
        module: [(each, copy.deepcopy(each.bit_generator.state)) for each in found]
        for module, found in generators.items() if found
    }  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give fixtures the same random numbers and level of log, whichever tests ran before in this process."""
    logging.getLogger("ort_core").setLevel(logging.NOTSET)  # runners of external cases silence it for good
    _begin_anew(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Give the test the same random numbers, whatever its fixtures drew, or drew for a test before it."""
    _begin_anew(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Let what a module leaves behind rest, too: what quantizes collects garbage for each model that it has run."""
    yield
    if getattr(nextitem, "module", None) is not getattr(item, "module", None):
        _let_rest()


def _let_rest() -> None:
    """Take what lives out of the collector's way where that is much, as after a test that has thawed what rested."""
    if len(gc.get_objects(generation=2)) > MANY_OBJECTS:
        gc.collect()
        gc.freeze()


def _begin_anew(item: pytest.Item) -> None:
    for generator, state in item.config.stash[_STATES].get(getattr(item, "module", None), ()):
        generator.bit_generator.state = state


@pytest.fixture(scope="session")
def external_test_data() -> Path:
    """Return the folder of external test data; a test that asks for it is skipped when there is none."""
    folder = find_test_data()
    if folder is None:
        pytest.skip(ABSENT)
    return folder


@pytest.fixture
def calls_of(calls_by_function: Callable[..., tuple[Counter[str], Any]]) -> Callable[..., tuple[int, Any]]:
    """Return a function that calls one, and tells how many calls that made here, C's included, and the result.

    What a machine does meanwhile changes a time, of the processor too; it does not change this number.
    """

    def count(function: Callable[..., Any], *arguments: object) -> tuple[int, Any]:
        calls, result = calls_by_function(function, *arguments)
        return calls.total(), result

    return count


@pytest.fixture
def calls_by_function() -> Callable[..., tuple[Counter[str], Any]]:
    """Return a function that calls one, and tells how often that called each function, and the result."""

    def count(function: Callable[..., Any], *arguments: object) -> tuple[Counter[str], Any]:
        profile = cProfile.Profile()
        gc.collect()
        gc.disable()  # what others left behind is no part of the work
        try:
            result = profile.runcall(function, *arguments)
        finally:
            gc.enable()
        calls: Counter[str] = Counter()
        for entry in profile.getstats():
            code = entry.code  # of one in C, its name
            calls[code if isinstance(code, str) else f"{code.co_qualname} {code.co_filename}"] += entry.callcount
        return calls, result

    return count


@pytest.fixture(scope="session", autouse=True)
def _plain_terminal() -> Iterator[None]:
    """Let every test, and every program that it starts, print as wide and as plain on one terminal as on another."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("COLUMNS", "160")
        for name in ("LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            patched.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _limited_memory(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let a test that takes memory without end fail by itself, before the system ends other programs for it."""
    capture, ended = request.config.pluginmanager.getplugin("capturemanager"), threading.Event()

    def end() -> None:
        if capture is not None:
            capture.suspend_global_capture()
        test = os.environ.get("PYTEST_CURRENT_TEST")
        print(f"{test} takes more than {MOST_MEMORY // 1_000_000_000} GB of memory:", file=sys.__stderr__, flush=True)
        faulthandler.dump_traceback(sys.__stderr__)
        os._exit(1)

    watch = threading.Thread(target=_watch_memory, args=(MOST_MEMORY, ended, end), daemon=True, name="memory")
    watch.start()
    yield
    ended.set()
    watch.join()


def _watch_memory(most: int, ended: threading.Event, end: Callable[[], None]) -> None:
    process = psutil.Process()
    while not ended.wait(0.5):
        if process.memory_info().rss > most:
            end()
            return


@pytest.fixture(scope="session", autouse=True)
def _own_cache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep tests away from the user's cache, so that they neither fill it nor depend on what lies there.

    The workers of a run share one cache, as the tests of one worker do: what one has compiled is found by the others.
    A test of the cache itself, or of what is compiled, brings its own.
    """
    folder = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):  # of pytest-xdist: each worker has a folder in that of the run
        folder = folder.parent
    cache = folder / "cache"
    cache.mkdir(mode=0o700, exist_ok=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ORT_CACHE_DIR", str(cache))
        yield
