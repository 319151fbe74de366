"""The contract: what a provider promises by being one, whatever it computes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace

import numpy as np

import ort_core as ort
from ort_conformance.check import CannotJudge, PromiseBroken, promise, require
from ort_conformance.comparison import find_difference
from ort_conformance.process_facts import changes_by
from ort_conformance.profile import Feature
from ort_conformance.subject import ORACLE, Subject
from ort_conformance.suites.sample_graphs import BRANCHES, SAMPLES, SampleGraph
from ort_core.errors import NotFound, OrtError
from ort_core.plugin import Available, Claim, GraphView, Rejection, Unavailable, describe_options
from ort_core.plugin.ir import Node, predecessors
from ort_core.testing.claims import new_run_state, request_for
from ort_core.testing.environments import session_environment

SUITE = "contract"
THREADS = 4
MAX_DETAIL = 300  # characters: an environment is long
_IMPORTED = """
import importlib, os, sys, sysconfig
import ort_core.plugin
def loaded():
    return {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
def is_of_a_package(name):  # distributions of Python put modules of theirs among its own
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    return os.path.dirname(file) != sysconfig.get_path("stdlib")
before = loaded()
importlib.import_module(sys.argv[1]).ort_providers()
print(",".join(sorted(filter(is_of_a_package, loaded() - before))))
"""

_OF_THE_CORE = ("ort_core", "numpy", "pluggy")  # its own dependencies, which its door loads when they are asked for


@promise(SUITE, needs_availability=False)
def is_discovered_under_its_name(subject: Subject) -> None:
    """The plugin is found, states the API that it was written for, and brings a provider of the profile's name."""
    try:
        cls = subject.provider_class
    except NotFound as error:
        refused = "; ".join(f"{name}: {why}" for name, why in session_environment().plugins.unusable.items())
        raise PromiseBroken(f"{error} Plugins that cannot be used: {refused or 'none'}") from error
    require(cls.name == subject.name, f"the class is named {cls.name!r}, expected {subject.name!r}")
    require(cls.name.endswith("ExecutionProvider"), f"the name {cls.name!r} does not end in 'ExecutionProvider'")
    require(isinstance(cls.priority, int), f"priority is {cls.priority!r}, expected an integer")


@promise(SUITE, needs_availability=False)
def importing_the_plugin_loads_no_sdk(subject: Subject) -> None:
    """The plugin module and its provider class load no package but ort_core and their own."""
    module = _plugin_module(subject)
    run = subprocess.run([sys.executable, "-c", _IMPORTED, module], capture_output=True, text=True, check=False)
    require(run.returncode == 0, f"importing {module} in a new process failed: {run.stderr.strip()[-500:]}")
    own = module.partition(".")[0]
    foreign = [name for name in run.stdout.strip().split(",") if name not in ("", own, *_OF_THE_CORE)]
    require(not foreign, f"importing {module} loaded {', '.join(foreign)}; load an SDK in check() or later")


def _plugin_module(subject: Subject) -> str:
    for plugin in session_environment().plugins.plugins:
        hook = getattr(plugin.module, "ort_providers", None)
        if plugin.module is not None and hook is not None and subject.provider_class in hook():
            if plugin.module.__name__ not in sys.modules:
                raise CannotJudge(f"plugin {plugin.name!r} lives in memory only")
            return plugin.module.__name__
    raise CannotJudge(f"no plugin module brings {subject.name}")


@promise(SUITE, needs_availability=False)
def check_answers_without_raising(subject: Subject) -> None:
    """``check`` returns Available or Unavailable, the same each time, and never raises."""
    try:
        answers = [subject.provider_class.check() for _ in range(2)]
    except Exception as error:  # noqa: BLE001 - this is what must not happen
        require(False, f"check raised {type(error).__name__}: {error}")
    for answer in answers:
        require(isinstance(answer, (Available, Unavailable)), f"check returned a {type(answer).__name__}")
    require(bool(answers[0]) == bool(answers[1]), f"check answered {answers[0]!r}, then {answers[1]!r}")


@promise(SUITE, needs_availability=False)
def unavailability_is_explained(subject: Subject) -> None:
    """Where the provider cannot run, it says why and what would help."""
    state = subject.provider_class.check()
    if isinstance(state, Available):
        raise CannotJudge("the provider is available here")
    require(state.reason.strip(), "Unavailable has no reason")
    require(state.remedy.strip(), f"Unavailable({state.reason!r}) names no remedy")


@promise(SUITE, needs_availability=False)
def every_option_says_what_it_is_for(subject: Subject) -> None:
    """Each option has a sentence, which ``ort providers --options`` shows."""
    options = describe_options(subject.provider_class.options_type)
    if not options:
        raise CannotJudge("the provider has no options")
    if subject.provider_class.options_type.__doc__ is None:
        raise CannotJudge("Python runs without docstrings (-OO)")
    silent = [option.name for option in options if not option.sentence.strip()]
    where = f"the docstring of {subject.provider_class.options_type.__name__}, under 'Attributes:'"
    require(not silent, f"options without a sentence: {', '.join(silent)}; write one for each in {where}")


@promise(SUITE)
def unknown_option_is_refused_by_name(subject: Subject) -> None:
    """An option that does not exist is an error that names it."""
    name = "no_such_option_of_anyone"
    try:
        subject.new_provider({name: "1"})
    except OrtError as error:
        require(name in str(error), f"the error does not name the option: {error}")
        return
    require(False, f"the option {name!r} was accepted")


@promise(SUITE)
def option_of_a_wrong_type_is_refused_by_name(subject: Subject) -> None:
    """A value that does not parse is an error that names the option."""
    numeric = [
        field.name
        for field in fields(subject.provider_class.options_type)
        if isinstance(field.default, (bool, int, float))
    ]
    if not numeric:
        raise CannotJudge("no option is a number or a truth value")
    for name in numeric:
        try:
            subject.new_provider({name: "neither a number nor a truth value"})
        except OrtError as error:
            require(name in str(error), f"the error does not name the option {name!r}: {error}")
            continue
        require(False, f"option {name!r} accepted a text")


@promise(SUITE)
def claims_are_claims_or_reasons(subject: Subject) -> None:
    """``get_capability`` gives Claims of offered nodes and Rejections with a reason, and speaks of every node."""
    for sample, view in _views(subject):
        spoken: set[Node] = set()
        for answer in subject.answers(view):
            require(isinstance(answer, (Claim, Rejection)), f"{sample.name}: found a {type(answer).__name__}")
            if isinstance(answer, Rejection):
                require(answer.reason.strip(), f"{sample.name}: a Rejection has no reason")
                spoken |= {answer.node} if answer.node is not None else set()
            else:
                require(answer.nodes, f"{sample.name}: a claim holds no node")
                spoken.update(answer.nodes)
        silent = [node.describe() for node in view.nodes if node not in spoken]
        require(not silent, f"{sample.name}: neither claimed nor refused: {', '.join(silent)}")
        strange = [node.describe() for node in spoken if node not in set(view.nodes)]
        require(not strange, f"{sample.name}: not on offer: {', '.join(strange)}")


@promise(SUITE)
def claims_are_disjoint(subject: Subject) -> None:
    """No node stands in two claims, or twice in one, or is both claimed and refused."""
    for sample, view in _views(subject):
        answers = subject.answers(view)
        claimed = [node for answer in answers if isinstance(answer, Claim) for node in answer.nodes]
        refused = {answer.node for answer in answers if isinstance(answer, Rejection)}
        require(len(claimed) == len(set(claimed)), f"{sample.name}: a node is claimed twice")
        both = [node.describe() for node in claimed if node in refused]
        require(not both, f"{sample.name}: claimed and refused: {', '.join(both)}")


@promise(SUITE)
def claims_are_convex(subject: Subject) -> None:
    """No path leaves a claim and comes back."""
    for sample, view in _views(subject):
        for claim in subject.claims(view):
            members = set(claim.nodes)
            behind: set[Node] = set()
            for node in view.graph.nodes:
                sources = set(predecessors(node))
                if node in members:
                    require(
                        not sources & behind, f"{sample.name}: a path leaves the claim and returns at {node.describe()}"
                    )
                elif sources & (members | behind):
                    behind.add(node)


@promise(SUITE)
def claims_are_deterministic(subject: Subject) -> None:
    """The same graph gives the same answer: from one instance twice, from a new one, and from several threads."""
    for sample, view in _views(subject):
        provider = subject.new_provider()
        first = _described(list(provider.get_capability(view)))
        others = [_described(list(provider.get_capability(view))), _described(subject.answers(view))]
        with ThreadPoolExecutor(THREADS) as pool:
            others += map(_described, pool.map(provider.get_capability, [view] * THREADS))
        require(all(other == first for other in others), f"{sample.name}: the answers differ")


def _described(answers: list[Claim | Rejection]) -> list[tuple[str, ...]]:
    return [
        ("claim", *(node.name or str(node.outputs) for node in answer.nodes))
        if isinstance(answer, Claim)
        else ("refusal", str(answer.node), answer.reason)
        for answer in answers
    ]


@promise(SUITE)
def claiming_leaves_the_graph_alone(subject: Subject) -> None:
    """The graph is the same before and after ``get_capability`` and ``compile``."""
    for sample, view in _views(subject):
        before = view.to_onnx(view.nodes)
        claims = subject.claims(view)
        require(view.to_onnx(view.nodes) == before, f"{sample.name}: get_capability changed the graph")
        provider = subject.new_provider()
        for claim in claims:
            provider.compile(request_for(view, claim)).close()
        require(view.to_onnx(view.nodes) == before, f"{sample.name}: compile changed the graph")


@promise(SUITE)
def claims_stay_within_what_is_offered(subject: Subject) -> None:
    """Nodes that another provider has taken are not claimed."""
    for sample, view in _views(subject):
        for left_out in view.nodes:
            offered = tuple(node for node in view.nodes if node is not left_out)
            claimed = {node for claim in subject.claims(replace(view, nodes=offered)) for node in claim.nodes}
            require(left_out not in claimed, f"{sample.name}: claimed {left_out.describe()}, which was not on offer")


@promise(SUITE)
def an_operator_that_nobody_knows_is_refused(subject: Subject) -> None:
    """A node of an unknown domain is refused."""
    sample = SampleGraph("unknown", "g (float[2] x) => (float[2] y) { a = Relu(x)  y = org.nobody.Frobnicate(a) }", {})
    model = sample.model()
    model.opset_import.add(domain="org.nobody", version=1)
    view = subject.view(model)
    claimed = {node.op_type for claim in subject.claims(view) for node in claim.nodes}
    require("Frobnicate" not in claimed, "org.nobody::Frobnicate was claimed")


@promise(SUITE, needs=Feature.CONTROL_FLOW)
def control_flow_is_claimed_whole(subject: Subject) -> None:
    """An If whose branches hold plain arithmetic is claimed as one node, and computed rightly."""
    view = subject.view(BRANCHES.model())
    claimed = {node.op_type for claim in subject.claims(view) for node in claim.nodes}
    require("If" in claimed, f"the If was not claimed; claimed were {sorted(claimed)}")
    _require_rightly_computed(subject, BRANCHES)


@promise(SUITE)
def compiling_twice_gives_equal_results(subject: Subject) -> None:
    """One claim compiled twice, by one instance, gives two partitions that compute the same and live apart."""
    for sample, view, claim in _claims(subject):
        provider = subject.new_provider()
        first, second = (provider.compile(request_for(view, claim)) for _ in range(2))
        inputs = _inputs(view, claim, sample)
        if inputs is None:
            continue
        shapes = [value.shape for value in inputs]
        plan = first.plan(shapes, {})
        left: list[object] = [None] * len(plan.outputs)
        first.run(plan, inputs, left, new_run_state())
        left = [np.array(value) for value in left]
        first.close()
        plan = second.plan(shapes, {})
        right: list[object] = [None] * len(plan.outputs)
        second.run(plan, inputs, right, new_run_state())
        difference = find_difference(right, left, "approximate")
        require(difference is None, f"{sample.name}: {difference}")
        second.close()


@promise(SUITE)
def compiling_from_threads_works(subject: Subject) -> None:
    """One instance compiles in several threads at once, and each session computes the same."""
    for sample in SAMPLES[:4]:
        feeds = sample.feeds()

        def computed(_: int, sample: SampleGraph = sample, feeds: dict[str, np.ndarray] = feeds) -> list[object]:
            with subject.session(sample.model()) as session:
                return list(session.run(None, feeds))

        with ThreadPoolExecutor(THREADS) as pool:
            results = list(pool.map(computed, range(THREADS)))
        for result in results[1:]:
            difference = find_difference(result, results[0], "approximate")
            require(difference is None, f"{sample.name}: {difference}")


@promise(SUITE)
def plans_tell_the_truth(subject: Subject) -> None:
    """Outputs have the element types and shapes that the plan, and the model, declare."""
    for sample, view, claim in _claims(subject):
        inputs = _inputs(view, claim, sample)
        if inputs is None:
            continue
        request = request_for(view, claim)
        compiled = subject.new_provider().compile(request)
        plan = compiled.plan([value.shape for value in inputs], {})
        declared = request.graph.outputs
        require(
            len(plan.outputs) == len(declared),
            f"{sample.name}: {len(plan.outputs)} outputs planned, {len(declared)} due",
        )
        outputs: list[object] = [None] * len(declared)
        compiled.run(plan, inputs, outputs, new_run_state())
        for index, (planned, value, found) in enumerate(zip(plan.outputs, declared, outputs, strict=True)):
            if not isinstance(found, np.ndarray):
                continue
            where = f"{sample.name}: output {index} ({value.name})"
            require(
                str(found.dtype) in str(value.type) or _named(found) in str(value.type),
                f"{where}: {found.dtype} for {value.type}",
            )
            if planned.shape is not None:
                require(found.shape == planned.shape, f"{where}: shape {found.shape}, planned {planned.shape}")
        compiled.close()


def _named(array: np.ndarray) -> str:
    return {"float32": "float", "float64": "double"}.get(array.dtype.name, array.dtype.name)


@promise(SUITE)
def inputs_are_left_alone(subject: Subject) -> None:
    """A run does not write into its inputs."""
    for sample in SAMPLES:
        feeds = sample.feeds()
        kept = {name: array.copy() for name, array in feeds.items()}
        with subject.session(sample.model()) as session:
            session.run(None, feeds)
        changed = [name for name in feeds if not np.array_equal(feeds[name], kept[name])]
        require(not changed, f"{sample.name}: the run changed {', '.join(changed)}")


@promise(SUITE)
def results_stay_when_the_next_run_comes(subject: Subject) -> None:
    """What one run returned is not overwritten by the next."""
    for sample in SAMPLES:
        feeds = sample.feeds()
        with subject.session(sample.model()) as session:
            first = session.run(None, feeds)
            kept = [np.array(value) for value in first]
            session.run(None, {name: array + 1 for name, array in feeds.items()})
        same = all(np.array_equal(np.asarray(value), copy) for value, copy in zip(first, kept, strict=True))
        require(same, f"{sample.name}: the second run changed the results of the first")


@promise(SUITE)
def the_process_is_left_as_it_was(subject: Subject) -> None:
    """Sessions change no setting of the process, and write nothing to its output."""
    sample = SAMPLES[0]

    def use() -> None:
        with subject.session(sample.model()) as session:
            session.run(None, sample.feeds())

    use()  # what an SDK sets once, while it is loaded, is its own affair
    changes = changes_by(use)
    require(not changes, f"{sample.name}: {'; '.join(changes)}"[:MAX_DETAIL])


@promise(SUITE)
def sample_graphs_are_computed_rightly(subject: Subject) -> None:
    """The graphs that this suite asks about give what the oracle gives."""
    for sample in SAMPLES:
        _require_rightly_computed(subject, sample)


def _require_rightly_computed(subject: Subject, sample: SampleGraph) -> None:
    feeds = sample.feeds()
    with subject.session(sample.model()) as session:
        found = session.run(None, feeds)
    with ort.InferenceSession(sample.model().SerializeToString(), providers=[ORACLE]) as oracle:
        difference = find_difference(found, oracle.run(None, feeds), "approximate")
    require(difference is None, f"{sample.name}: {difference}")


def _views(subject: Subject) -> Iterator[tuple[SampleGraph, GraphView]]:
    for sample in SAMPLES:
        yield sample, subject.view(sample.model())


def _claims(subject: Subject) -> Iterator[tuple[SampleGraph, GraphView, Claim]]:
    found = False
    for sample, view in _views(subject):
        for claim in subject.claims(view):
            found = True
            yield sample, view, claim
    if not found:
        raise CannotJudge("the provider claims nothing of the sample graphs")


def _inputs(view: GraphView, claim: Claim, sample: SampleGraph) -> list[np.ndarray] | None:
    """Return the values at a claim's border, as the oracle computes them; ``None`` where one is not a tensor."""
    graph = request_for(view, claim).graph
    feeds = sample.feeds()
    wanted = [value.name for value in graph.inputs]
    model = sample.model()
    have = {info.name for info in model.graph.output}
    model.graph.output.extend(
        type(model.graph.output[0])(name=name) for name in wanted if name not in feeds and name not in have
    )
    with ort.InferenceSession(model.SerializeToString(), providers=[ORACLE]) as session:
        names = [name for name in wanted if name not in feeds]
        values = {**feeds, **(dict(zip(names, session.run(names, feeds), strict=True)) if names else {})}
    given = [values[name] for name in wanted]
    arrays = [value for value in given if isinstance(value, np.ndarray)]
    return arrays if len(arrays) == len(given) else None
