"""How random graphs are run by the real DirectML on a rig: ``nox -s graphs -- FIRST COUNT OUT 1 low THIS``."""

from random_graphs.explained import Explained, has_special_values
from random_graphs.on_provider import GraphsProvider
from rig_dml import RigDmlProvider
from rig_provider import rig_plugin

from ort_core.testing.environments import installed

_INSTALLED = installed(rig_plugin())  # for the rest of the process
KNOWN = (
    Explained(
        RigDmlProvider.name,
        "Atan Celu Clip FusedConv FusedGemm FusedMatMulActivation HardSigmoid LpNormalization Max MaxPool Min "
        "ReduceMax ReduceMin Relu Sign ThresholdedRelu",
        r"^values .*nan",
        "DirectML loses a NaN there",
        has_special_values,
    ),
    Explained(
        RigDmlProvider.name,
        "MaxPool",
        r"^values .*-3\.4028235e\+38\), expected np\.float64\(-inf\)",
        "DirectML's maximum of nothing but -infinity is the least number",
        has_special_values,
    ),
)

PROVIDER = GraphsProvider(RigDmlProvider.name, known=KNOWN, prepare=lambda: _INSTALLED.__enter__())
