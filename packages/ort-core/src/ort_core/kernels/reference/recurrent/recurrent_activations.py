"""The activation functions that recurrent layers name, with their parameters taken from the node in order."""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.errors import InvalidArgument
from ort_core.kernels.reference.arrays.named_activations import Activation, find_activation, find_formula

# onnxruntime's defaults in layers: these are nothing without their parameters. All others are those of the operators.
_DEFAULTS: dict[str, tuple[float, float | None]] = {
    "affine": (0.0, 0.0), "scaledtanh": (0.0, 0.0), "thresholdedrelu": (0.0, None),
}  # fmt: skip


def build_activations(
    names: Sequence[str],
    alphas: Sequence[float],
    betas: Sequence[float],
    per_direction: int,
    directions: int,
    defaults: tuple[str, ...],
) -> list[tuple[Activation, ...]]:
    """Return the functions of each direction.

    Parameters are consumed in order by the functions that have them; what the node leaves out takes its default.

    Raises:
        InvalidArgument: an unknown name, or too few functions.
    """
    names = list(names) or list(defaults) * directions
    if len(names) < per_direction * directions:
        raise InvalidArgument(
            f"activations names {len(names)} functions {tuple(names)}, expected {per_direction * directions}"
        )
    given_alpha, given_beta = iter(alphas), iter(betas)
    functions = []
    for name in names[: per_direction * directions]:
        _, alpha, beta = find_formula(name)
        alpha, beta = _DEFAULTS.get(name.lower(), (alpha, beta))
        alpha = alpha if alpha is None else next(given_alpha, alpha)
        beta = beta if beta is None else next(given_beta, beta)
        functions.append(find_activation(name, alpha, beta))
    return [tuple(functions[d * per_direction : (d + 1) * per_direction]) for d in range(directions)]
