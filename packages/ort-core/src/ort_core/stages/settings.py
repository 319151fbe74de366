"""What decides how a model is prepared, read out of a session's options and the environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from ort_core.errors import InvalidType
from ort_core.frozen import frozen
from ort_core.options import GraphOptimizationLevel, SessionOptions
from ort_core.providers.thread_options import ThreadOptions, parse_affinities
from ort_core.settings import environment_value

if TYPE_CHECKING:
    from ort_core.environment import Environment
    from ort_core.passes.base import Pass

_NOT_OPTIMIZING = frozenset(  # of PrepareSettings
    {"strict", "allow_last_resort", "threads", "seed", "use_cache", "placement", "samples", "short_cuts"}
)

_SWITCHED_OFF = {"session.disable_double_qdq_remover": "DoubleQDQPairsRemover"}  # passes by keys of their own
_SWITCHED_ON = {"optimization.enable_cast_chain_elimination": "CastChainElimination"}


def thread_options(options: SessionOptions, num_threads: int) -> ThreadOptions:
    """Return what a session's options say of the threads within operators.

    Raises:
        InvalidArgument: the affinities are no list of processors, or not one for each thread but the caller's.
    """
    return ThreadOptions(
        num_threads,
        bool(options.setting("session.intra_op.allow_spinning")),
        int(options.setting("session.intra_op.spin_duration_us")),
        not options.setting("session.force_spinning_stop"),
        parse_affinities(str(options.setting("session.intra_op_thread_affinities"))),
    )


def takes_short_cuts(options: SessionOptions) -> bool:
    """Return whether a session may take short cuts: nobody who debugs has switched them off."""
    return bool(environment_value("ORT_SHORT_CUTS") and options.setting("session.short_cuts"))


@frozen
class PrepareSettings:
    """What decides how a model is prepared.

    ``strict``: anything that does not run on the first provider asked for is an error. ``allow_last_resort``: what
    nobody else took may go to the last resort (the CPU) although it was not asked for. ``use_cache``: the optimized
    model may come from the artefact cache. ``placement``: the policy, which ``measured`` tries on ``samples``.
    ``short_cuts``: known signatures may run by one native call, and objects be linked without LLVM.
    """

    strict: bool = False
    allow_last_resort: bool = True
    level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    disabled_passes: frozenset[str] = frozenset()
    enabled_passes: frozenset[str] = frozenset()
    extra_passes: tuple[Pass, ...] = ()
    threads: ThreadOptions = field(default_factory=ThreadOptions)
    seed: int | None = None
    use_cache: bool = False
    placement: str = "priority"
    samples: Mapping[str, object] = field(default_factory=dict)
    short_cuts: bool = True

    @classmethod
    def of(
        cls, options: SessionOptions, environment: Environment, disabled_passes: Iterable[str] = ()
    ) -> PrepareSettings:
        """Read the settings out of a session's options, and out of the environment where the options state none."""
        named = str(options.setting("optimization.disable_specified_optimizers")).replace(",", ";")
        disabled = {name.strip() for name in named.split(";") if name.strip()} | set(disabled_passes)
        disabled |= {name for key, name in _SWITCHED_OFF.items() if options.setting(key)}
        enabled = {name for key, name in _SWITCHED_ON.items() if options.setting(key)}
        threads = environment.intra_op_num_threads or int(environment_value("ORT_INTRA_OP_NUM_THREADS"))
        return cls(
            options.strict_placement,
            not options.setting("session.disable_cpu_ep_fallback"),
            options.graph_optimization_level,
            frozenset(disabled),
            frozenset(enabled),
            tuple(_checked_pass(each) for each in options.custom_passes),
            thread_options(options, options.intra_op_num_threads or threads),
            environment.seed,
            bool(options.setting("session.optimized_model_cache") and environment_value("ORT_OPTIMIZED_MODEL_CACHE")),
            str(options.setting("session.placement_policy")),
            options.sample_inputs,
            takes_short_cuts(options),
        )

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Every setting as a fact of a cache key: its text is the same in each process, that of a set is not."""
        given = {name: getattr(self, name) for name in self.__match_args__}
        return tuple((n, repr(sorted(v) if isinstance(v, frozenset) else v)) for n, v in given.items())

    @property
    def optimization_facts(self) -> tuple[tuple[str, str], ...]:
        """What decides how a model is optimized, as facts of a cache key: every setting that is not known not to."""
        return tuple((name, text) for name, text in self.facts if name not in _NOT_OPTIMIZING)


def _checked_pass(each: object) -> Pass:
    from ort_core.passes.base import Pass  # only sessions with passes of the user's pay for it

    if not isinstance(each, Pass):
        hint = " (an instance is needed: write it with parentheses)" if isinstance(each, type) else ""
        raise InvalidType(f"SessionOptions.custom_passes holds {each!r}, which is not a Pass{hint}")
    return each
