"""From a model and its feeds to mutants of it: cases with one to three changes, and how they are told right.

A mutant is kept where the numpy kernels run it, and where onnx's checker and strict shape inference accept it as they
do the model. Its truth is that of random graphs; where there is none, because roundings to integers decide, it is the
numpy kernels' result with a wide window, which holds a step of quantization: what ignores a part of a model is far
outside of that. Where roundings decide about all of a result, there is no mutant.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, ValueInfoProto, helper

import ort_core as ort
from ort_core.model_optimization import optimize_proto
from ort_core.passes.pipelines import build_basic_passes, build_extended_passes
from random_graphs.cases import Case
from random_graphs.engines import Engine
from random_graphs.judging import Difference, judge
from random_graphs.mutating.attributes import ATTRIBUTES
from random_graphs.mutating.constants import CONSTANTS
from random_graphs.mutating.draft import Draft, NotHere
from random_graphs.mutating.frames import AROUND, FRAMES
from random_graphs.mutating.insertions import INSERTIONS
from random_graphs.triples import NoTruth, Triple, exact
from random_graphs.truth import array_of

MUTATIONS = (*ATTRIBUTES, *CONSTANTS, *INSERTIONS, *FRAMES)
AROUND_SHARE = 0.06
WIDE = 0.01  # of the largest number of an output
TRIES = 12  # of changes, for one mutant
MOST_ELEMENTS = 60_000  # of an output
RANDOM = frozenset([
    "Dropout", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial",
])  # fmt: skip
UNSTEADY = frozenset(["ill-conditioned", "a value too large", "finite or not hangs on a last bit"])
"""Reasons of no truth where the results of engines may lie anywhere."""
_IR_VERSION = 8  # where onnx's checker knows all operator sets that are drawn
_WITHOUT_STRICTNESS = (
    onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError, RuntimeError,
)  # fmt: skip


@dataclass(frozen=True)
class Model:
    """A model to change, with feeds, every value under them, and whether onnx's checker accepts it."""

    proto: ModelProto
    feeds: Mapping[str, Any]
    values: Mapping[str, Any]
    is_checked: bool


@dataclass(frozen=True)
class MutantCase(Case):
    """A mutant; ``flags`` are its changes. ``is_wide``: it is judged by wide windows although it has a truth."""

    is_wide: bool = False

    def truths(self) -> list[list[Triple]]:
        """Return the outputs, within wide windows where there is no truth.

        Raises:
            NoTruth: it does not run, or roundings decide about all of a result.
        """
        try:
            return self._wide() if self.is_wide else super().truths()
        except NoTruth as reason:
            if str(reason) in UNSTEADY:
                raise
            return self._wide()

    def _wide(self) -> list[list[Triple]]:
        step = _largest_scale(self)
        try:
            session = _reference(self.model)
            with np.errstate(all="ignore"):
                return [[_widened(array, step) for array in session.run(None, dict(feeds))] for feeds in self.feeds]
        except ort.OrtError as error:  # a minimizer asks for graphs that do not run
            raise NoTruth(str(error)) from error


@dataclass(frozen=True)
class AllPasses(Engine):
    """The numpy kernels on what all passes make of a model; a session's provider has a choice of them."""

    name: str = "all passes"
    provider: str = "ReferenceExecutionProvider"
    level: str = "ORT_DISABLE_ALL"
    fired: list[str] = field(default_factory=list)

    def session(self, case: Case) -> Any:
        """Return a session of the optimized model."""
        pipelines = [[each for each in build() if not each.is_opt_in] for build in _PIPELINES]
        found = optimize_proto(case.served, pipelines)
        self.fired[:] = [name for name, count in found.counts.items() if count]
        return _reference(found.model)


_PIPELINES = (build_basic_passes, build_extended_passes)
_INTEGER_FORMS = "QDQSelectorActionTransformer"
ONNXRUNTIME = Engine("onnxruntime")
COMPILED = Engine("cpu", repeats=2)
FURTHER = (
    Engine("extended", level="ORT_ENABLE_EXTENDED"), Engine("cpu on 2 threads", threads=2, repeats=2),
    Engine("saved", level="ORT_ENABLE_EXTENDED", way="saved"), Engine("unoptimized", level="ORT_DISABLE_ALL"),
)  # fmt: skip
"""Ways of which each mutant takes one more."""


def judged(case: MutantCase, engines: Sequence[Engine]) -> tuple[list[Difference], Mapping[str, str]]:
    """Return what engines do wrong, and how each ended.

    Integer operators of onnxruntime round once where several nodes round twice: those are judged by wide windows. What
    an engine refuses counts where onnxruntime takes the mutant: the numpy kernels check less than others.
    """
    found: list[Difference] = []
    endings: dict[str, str] = {}
    for engine in engines:
        outcome = judge(case, [engine])
        if outcome.differences and isinstance(engine, AllPasses) and _INTEGER_FORMS in engine.fired:
            outcome = judge(replace(case, is_wide=True), [engine])
        if any(each.kind == "error" for each in outcome.differences):
            asked = judge(case, [ONNXRUNTIME]).endings[ONNXRUNTIME.name]
            endings[engine.name] = "refused" if asked != "right" else "error"
            found += outcome.differences if asked == "right" else ()
            continue
        endings.update(outcome.endings)
        found += outcome.differences
    return found, endings


def model_of(proto: ModelProto, feeds: Mapping[str, Any]) -> Model:
    """Return a model with all its values.

    Raises:
        OrtError: it does not run.
    """
    asked = ModelProto()
    asked.CopyFrom(proto)
    names = list(dict.fromkeys(name for node in proto.graph.node for name in node.output if name))
    del asked.graph.output[:]
    asked.graph.output.extend(ValueInfoProto(name=name) for name in names)
    with np.errstate(all="ignore"):
        found = _reference(asked).run(None, dict(feeds))
    return Model(proto, feeds, {**feeds, **dict(zip(names, found, strict=True))}, _is_checked(proto))


def mutant_of(model: Model, seed: int) -> MutantCase | None:
    """Return a mutant, ``None`` where no try gives one that runs, or the model draws random numbers."""
    if RANDOM & {node.op_type for node in model.proto.graph.node}:
        return None
    chooser = random.Random(seed)
    tries = (_tried(model, seed, chooser) for _ in range(TRIES))
    return next((each for each in tries if each is not None), None)


def _tried(model: Model, seed: int, chooser: random.Random) -> MutantCase | None:
    proto = ModelProto()
    proto.CopyFrom(model.proto)
    del proto.graph.value_info[:]
    proto.ir_version = max(proto.ir_version, _IR_VERSION)
    own = next(each for each in proto.opset_import if each.domain == "")
    draft = Draft(proto.graph, own.version, dict(model.feeds), model.values, chooser)
    chosen = chooser.choices(MUTATIONS, [weight for weight, _ in MUTATIONS], k=chooser.choice((1, 1, 2, 2, 3)))
    if chooser.random() < AROUND_SHARE:
        chosen.append(chooser.choice(AROUND))
    try:
        changes = tuple(mutation(draft) for _, mutation in chosen)
        own.version = draft.opset
        return _declared(model, MutantCase(seed, proto, [draft.feeds], (), changes))
    except (NotHere, ValueError, TypeError, IndexError, KeyError, OverflowError):
        return None  # a change that does not fit what another one left


def _declared(model: Model, case: MutantCase) -> MutantCase | None:
    """Return a mutant whose outputs are declared as the numpy kernels find them, ``None`` where it does not run."""
    if not _keeps_sizes(case):
        return None
    asked = ModelProto()
    asked.CopyFrom(case.model)
    for info in asked.graph.output:
        info.ClearField("type")
    try:
        with np.errstate(all="ignore"):
            found = _reference(asked).run(None, dict(case.feeds[0]))
    except Exception:  # noqa: BLE001 - whatever it does not run for: then it is no mutant
        return None
    for info, array in zip(case.model.graph.output, found, strict=True):
        if not isinstance(array, np.ndarray) or array.size > MOST_ELEMENTS:
            return None
        number = TensorProto.STRING if array.dtype.kind == "O" else helper.np_dtype_to_tensor_dtype(array.dtype)
        info.CopyFrom(helper.make_tensor_value_info(info.name, number, [None] * array.ndim))
    if model.is_checked and not _is_checked(case.model):
        return None
    try:
        case.truths()
    except NoTruth:
        return None
    return case


def _is_checked(proto: ModelProto) -> bool:
    try:
        onnx.checker.check_model(proto, full_check=True)
        onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True, data_prop=True)
    except _WITHOUT_STRICTNESS:
        return False
    return True


def _keeps_sizes(case: MutantCase) -> bool:
    """Return whether the feeds have one size for each name, and the sizes that are declared."""
    known: dict[str, int] = {}
    for info in case.model.graph.input:
        if info.name not in case.feeds[0] or not info.type.tensor_type.HasField("shape"):
            continue
        dims, shape = info.type.tensor_type.shape.dim, np.shape(case.feeds[0][info.name])
        if len(dims) != len(shape):
            return False
        for dim, size in zip(dims, shape, strict=True):
            wanted = known.setdefault(dim.dim_param, size) if dim.dim_param else size
            if wanted != size or (dim.HasField("dim_value") and dim.dim_value != size):
                return False
    return True


def _largest_scale(case: MutantCase) -> float:
    """Return the largest scale, constant or fed: a level that is rounded to its neighbor is so far off, dequantized."""
    names = {
        node.input[1] for node in case.model.graph.node if node.op_type.endswith(("DequantizeLinear", "QuantizeLinear"))
    }
    scales = [array_of(each).astype(np.float64) for each in case.model.graph.initializer if each.name in names]
    scales += [np.asarray(each, np.float64) for feeds in case.feeds for name, each in feeds.items() if name in names]
    return max((float(np.abs(each).max(initial=0.0)) for each in scales), default=0.0)


def _widened(array: Any, step: float) -> Triple:
    if not isinstance(array, np.ndarray):
        return Triple(array, array, array, None, is_tensor=False)
    value = exact(array)
    if value.dtype is None or value.dtype.numpy.kind not in "iufV":
        return value
    if value.dtype.is_float:
        window = max(WIDE * np.abs(value.truth[np.isfinite(value.truth)]).max(initial=0.0), step)
    else:
        window = np.array(1, array.dtype)
    return Triple(value.truth, value.truth + window, value.truth - window, value.dtype)


def _reference(model: ModelProto) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model.SerializeToString(), options, providers=["ReferenceExecutionProvider"])
