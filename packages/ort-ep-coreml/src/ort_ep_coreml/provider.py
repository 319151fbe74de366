"""The two providers: Core ML on Apple's devices, and the same programs evaluated anywhere to check them."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from ort_core.plugin import (
    Available,
    Capability,
    CompiledPartition,
    CompileRequest,
    ExecutionProvider,
    GraphView,
    Rejection,
    Unavailable,
)
from ort_ep_coreml import _sdk
from ort_ep_coreml.options import CoreMlEvaluationOptions, CoreMlOptions

if TYPE_CHECKING:  # each process that may use providers imports this file, few compile for this one
    from ort_ep_coreml.mil import MilProgram
    from ort_ep_coreml.partition import Predictor


class _MilProvider(ExecutionProvider):
    """What both have in common: claims, programs, packages."""

    is_listed: ClassVar[bool] = False  # installing a package moves no model: it is used where a session names it

    def get_capability(self, view: GraphView) -> Capability:
        """Return claims of convex groups, and a reason for every node that is left."""
        from ort_ep_coreml.capability import find_capability

        return find_capability(view, self._options)

    def compile(self, request: CompileRequest) -> CompiledPartition:
        """Build a package of one claim and open it.

        Raises:
            EPFail: coremltools or Core ML refused it.
        """
        from ort_ep_coreml.compilation import compile_partition

        return compile_partition(request, self._options, self._facts(), self._opened)

    def load(self, blob: bytes, request: CompileRequest) -> CompiledPartition | Rejection:
        """Restore what ``CoreMlPartition.serialize`` wrote, or say why it does not fit here."""
        from ort_ep_coreml.compilation import load_partition

        return load_partition(blob, request, self._options, self._facts(), self._opened)

    def cache_key(self) -> str:
        """Return the provider's name, coremltools' version and every option: claims and runs depend on them."""
        return f"{self.name}|{self._facts()}|{self._options!r}"

    def _facts(self) -> str:
        """Return what a package depends on besides its program; both providers share packages."""
        given = self._options
        built = (given.DeploymentTarget, given.Precision, given.MaximumSize, given.OpenSizes)
        passes = " ".join(_sdk.OMITTED_PASSES)
        return f"coremltools {_sdk.version()} without {passes}|{'|'.join(map(str, built))}"

    @abstractmethod
    def _opened(self, path: Path, program: MilProgram) -> Predictor:
        """Open a package."""

    @property
    def _options(self) -> CoreMlOptions:
        return cast(CoreMlOptions, self.options)


class CoreMlExecutionProvider(_MilProvider):
    """Runs subgraphs as Core ML models, in float32 unless the user allows less."""

    name: ClassVar[str] = "CoreMLExecutionProvider"
    options_type: ClassVar[type] = CoreMlOptions
    priority: ClassVar[int] = 50

    @classmethod
    def check(cls) -> Available | Unavailable:
        """Return whether this is a Mac with coremltools, and why not."""
        return _sdk.find_runtime()

    def _opened(self, path: Path, program: MilProgram) -> Predictor:
        given = self._options
        low_precision = given.AllowLowPrecisionAccumulationOnGPU
        states = tuple(each.feature for each in program.states)
        return _sdk.Model(
            path, given.MLComputeUnits, given.SpecializationStrategy, low_precision, states,
            keeps_compiled=bool(given.ModelCacheDirectory),
        )  # fmt: skip


class CoreMlEvaluationProvider(_MilProvider):
    """Computes packages without Core ML: read back from disk, operation by operation. A check, and slow."""

    name: ClassVar[str] = "CoreMLEvaluationExecutionProvider"
    options_type: ClassVar[type] = CoreMlEvaluationOptions
    priority: ClassVar[int] = 1

    @classmethod
    def check(cls) -> Available | Unavailable:
        """Return whether coremltools is here; the detail says that Core ML itself runs nothing."""
        found = _sdk.find_toolkit()
        return Available(f"{found.detail}: by evaluation, not by Core ML") if isinstance(found, Available) else found

    def compile(self, request: CompileRequest) -> CompiledPartition:
        """Build a package, write a copy where ``PackagePath`` says, and open it. Raises as the other provider's."""
        from ort_ep_coreml.package import copy_stored

        found = super().compile(request)
        given = cast(CoreMlEvaluationOptions, self.options)
        if given.PackagePath:
            copy_stored(found, Path(given.PackagePath))
        return found

    def _opened(self, path: Path, program: MilProgram) -> Predictor:
        from ort_ep_coreml.evaluation.evaluator import Evaluator

        return Evaluator.of_package(path, self._options.DeploymentTarget)
