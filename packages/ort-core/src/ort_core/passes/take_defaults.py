"""take_defaults(): a model whose initializers nobody overrides, and what it showed to callers before.

Before IR version 4 every initializer was an input, and exporters went on writing them so; hardly any caller gives such
an input a value. As inputs the weights of a model can neither be folded, nor packed, nor laid out at load. So a session
runs the model with its defaults as constants, and prepares it a second time, as it is, when a run overrides one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ort_core.frozen import frozen
from ort_core.ir.values import Value

if TYPE_CHECKING:
    from ort_core.ir.model import Model


@frozen
class ShownValues:
    """What callers see of a model: values of no graph, with types that hold whatever a caller overrides."""

    required: tuple[Value, ...]
    overridable: tuple[Value, ...]
    outputs: tuple[Value, ...]

    @classmethod
    def of(cls, model: Model) -> ShownValues:
        """Copy what a model shows; constants are left out, so that nothing keeps them in memory."""
        inputs = model.graph.inputs
        return cls(
            _copies([value for value in inputs if value.constant is None]),
            _copies([value for value in inputs if value.constant is not None]),
            _copies(model.graph.outputs),
        )


def take_defaults(model: Model, infer: Callable[[Model], object]) -> ShownValues | None:
    """Make constants of the inputs that have a default; ``None`` when there are none.

    Args:
        model: an editable model, changed in place.
        infer: infers types in place. It is given a copy of the model as it was: what callers see of it must not
            follow from the contents of a default.
    """
    required = [value for value in model.graph.inputs if value.constant is None]
    if len(required) == len(model.graph.inputs):
        return None
    general = model.clone()
    infer(general)
    model.graph.set_inputs(required)
    return ShownValues.of(general)


def _copies(values: Iterable[Value]) -> tuple[Value, ...]:
    return tuple(Value(value.name, value.type) for value in values)
