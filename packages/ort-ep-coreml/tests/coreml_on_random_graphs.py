"""How random graphs are run by Core ML's programs, evaluated: ``nox -s graphs -- FIRST COUNT OUT 1 low THIS``."""

from random_graphs.explained import Explained
from random_graphs.on_provider import GraphsProvider

NAME = "CoreMLEvaluationExecutionProvider"
KNOWN = (
    Explained(
        NAME, "TopK", r"^values .*int64, ", "neither Core ML nor coremltools says in which order equal elements come"
    ),
)
PROVIDER = GraphsProvider(
    NAME,
    known=KNOWN,
    options=({}, {"EnableOnSubgraphs": "1"}, {"DeploymentTarget": "iOS18"}),
)
