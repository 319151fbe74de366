"""Sessions from command-line options."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ort_core.cli.parameters import LevelName, parse_config, parse_providers

if TYPE_CHECKING:
    from ort_core.environment import Environment
    from ort_core.options import GraphOptimizationLevel, SessionOptions
    from ort_core.session import InferenceSession


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """How a model is to be optimized and placed, as the user says it."""

    providers: Sequence[str] | None = None
    level: LevelName = LevelName.ALL
    disabled: Sequence[str] | None = None
    strict: bool = False
    threads: int = 0
    operators: Sequence[str] | None = None
    config: Sequence[str] | None = None

    def options(self) -> SessionOptions:
        """Return the session options."""
        from ort_core.options import SessionOptions

        options = SessionOptions()
        options.graph_optimization_level = optimization_level(self.level)
        options.strict_placement = self.strict
        options.intra_op_num_threads = self.threads
        for key, value in parse_config(self.config).items():
            options.add_session_config_entry(key, value)
        if self.operators:
            add_working_folder()
        for source in self.operators or ():
            options.register_custom_ops_library(source)
        if self.disabled:
            options.add_session_config_entry("optimization.disable_specified_optimizers", ";".join(self.disabled))
        return options

    def environment(self) -> Environment:
        """Return the process's environment with the user's operators."""
        return environment_with(self.operators or ())

    def open(self, model: Path, options: SessionOptions | None = None) -> InferenceSession:
        """Return a session of a model file."""
        from ort_core.session import InferenceSession

        return InferenceSession(str(model), options or self.options(), parse_providers(self.providers))


def providers_used(session: InferenceSession) -> list[str]:
    """Return the providers that run nodes of a session, in its order; a wanted one that runs none is told on stderr."""
    from ort_core.cli.console import note

    names, counts = session.get_providers(), session.explain().counts()
    used = [name for name in names if counts.get(name)]
    for name in names[: names.index(used[0])] if used else ():
        note(f"note: {name} runs no node of this model; `ort explain` with the same options says why.")
    return used or names


def environment_with(operators: Iterable[str]) -> Environment:
    """Return the environment with operators of Python files and modules, the folder of the command included."""
    from ort_core.custom_ops.sources import load_libraries
    from ort_core.environment import default_environment
    from ort_core.options import SessionOptions

    add_working_folder()
    options = SessionOptions()
    for source in operators:
        options.register_custom_ops_library(source)
    return default_environment().with_libraries(load_libraries(options.custom_op_libraries))


def add_working_folder() -> None:
    """Make modules of the working folder importable, as ``python -m`` does: users' operators and passes lie there."""
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)


def optimization_level(name: LevelName) -> GraphOptimizationLevel:
    """Return the level of a name."""
    from ort_core.options import GraphOptimizationLevel as Levels

    return {
        LevelName.DISABLE: Levels.ORT_DISABLE_ALL,
        LevelName.BASIC: Levels.ORT_ENABLE_BASIC,
        LevelName.EXTENDED: Levels.ORT_ENABLE_EXTENDED,
        LevelName.LAYOUT: Levels.ORT_ENABLE_LAYOUT,
        LevelName.ALL: Levels.ORT_ENABLE_ALL,
    }[name]
