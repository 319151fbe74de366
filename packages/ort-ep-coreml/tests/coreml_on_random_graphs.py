"""How random graphs are run by Core ML's programs, evaluated: ``nox -s graphs -- FIRST COUNT OUT 1 low THIS``."""

from random_graphs.on_provider import GraphsProvider

PROVIDER = GraphsProvider(
    "CoreMLEvaluationExecutionProvider",
    options=({}, {"EnableOnSubgraphs": "1"}, {"DeploymentTarget": "iOS18"}),
)
