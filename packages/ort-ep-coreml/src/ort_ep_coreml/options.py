"""The providers' options, named as onnxruntime names those of its CoreML provider, and a few more.

What has no meaning here is refused where it is given, with the reason: an option that is taken has an effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ort_ep_coreml import open_sizes
from ort_ep_coreml.state_pairs import parse_states

MLComputeUnits = Literal["ALL", "CPUOnly", "CPUAndGPU", "CPUAndNeuralEngine"]
Precision = Literal["FLOAT32", "FLOAT16"]
Target = Literal["iOS17", "iOS18"]


@dataclass(frozen=True, slots=True)
class CoreMlOptions:
    """Options of a session's provider; the first eight have onnxruntime's names.

    Attributes:
        MLComputeUnits: which units Core ML may use.
        ModelFormat: ``MLProgram``, the only form that is written; ``NeuralNetwork`` is refused.
        RequireStaticInputShapes: leave nodes with sizes that are only known at run time.
        EnableOnSubgraphs: claim inside bodies of control flow too.
        SpecializationStrategy: ``FastPrediction`` lets Core ML prepare longer and run faster.
        ProfileComputePlan: refused: Xcode's performance report shows it.
        AllowLowPrecisionAccumulationOnGPU: let a GPU add products in half precision.
        ModelCacheDirectory: folder that keeps packages, found again by their whole content.
        Precision: ``FLOAT32`` computes in the model's types; ``FLOAT16`` lets Core ML compute in half precision.
        DeploymentTarget: the oldest system that the packages are for: iOS17 is macOS 14, iOS18 is macOS 15.
        MaximumSize: the largest value of a size that is only known at run time; runs beyond are computed elsewhere.
        States: inputs and outputs that a model keeps inside, in half precision: ``past=present, h0=hn``.
        OpenSizes: values of sizes that are only known at run time, by name, as ranges or lists:
            ``batch=1..8, sequence=16|64|128``.
    """

    MLComputeUnits: MLComputeUnits = "ALL"
    ModelFormat: Literal["MLProgram", "NeuralNetwork"] = "MLProgram"
    RequireStaticInputShapes: bool = False
    EnableOnSubgraphs: bool = False
    SpecializationStrategy: Literal["Default", "FastPrediction"] = "Default"
    ProfileComputePlan: bool = False
    AllowLowPrecisionAccumulationOnGPU: bool = False
    ModelCacheDirectory: str = ""
    Precision: Precision = "FLOAT32"
    DeploymentTarget: Target = "iOS17"
    MaximumSize: int = 4096
    OpenSizes: str = ""
    States: str = ""

    def __post_init__(self) -> None:
        """Refuse what has no effect here (``ValueError``)."""
        if self.ModelFormat != "MLProgram":
            raise ValueError("option 'ModelFormat' is 'NeuralNetwork': only MLProgram is written")
        if self.ProfileComputePlan:
            raise ValueError("option 'ProfileComputePlan' is not supported: use Xcode's performance report")
        if self.MaximumSize < 1:
            raise ValueError(f"option 'MaximumSize' is {self.MaximumSize}, expected 1 or more")
        open_sizes.parse_open_sizes(self.OpenSizes, self.MaximumSize)
        parse_states(self.States)

    def sizes(self) -> open_sizes.OpenSizes:
        """Return the values of open sizes."""
        return open_sizes.parse_open_sizes(self.OpenSizes, self.MaximumSize)


@dataclass(frozen=True, slots=True)
class CoreMlEvaluationOptions(CoreMlOptions):
    """Options of the provider that evaluates programs; those that only concern a device have no effect on it.

    Attributes:
        PackagePath: where the package of a model that is lowered whole is written.
    """

    PackagePath: str = ""
