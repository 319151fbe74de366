"""Evaluator: the operations of a package that was read back from disk, computed one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ort_ep_coreml import _sdk
from ort_ep_coreml.evaluation.table import OWN_VALUES
from ort_ep_coreml.mil import MilOperation, Operand, Ref

_WRITES = frozenset({"coreml_update_state", "write_state"})
_WITHOUT_NAME = frozenset({"name"})


class Evaluator:
    """Runs a program on numpy arrays. Slow, and exact in the sense of coremltools' own value inference.

    Args:
        operations: of the program, in order.
        outputs: names of its outputs, and of its states.
        target: the operator set, as coremltools names it (``iOS17``).
    """

    def __init__(self, operations: Sequence[MilOperation], outputs: Sequence[str], target: str) -> None:
        self._operations, self._outputs, self._target = tuple(operations), tuple(outputs), target

    @classmethod
    def of_package(cls, path: Path, target: str) -> Evaluator:
        """Read a package. Raises ``SdkError`` where coremltools does not."""
        features = _sdk.features_of(path)
        return cls(_sdk.reload_package(path), (*features.outputs, *features.states), target)

    def predict(self, features: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Return the outputs by name, and the states as the run left them; features hold what they were before.

        Raises:
            SdkError: an operation has no value here, or refuses the values.
        """
        with np.errstate(all="ignore"):  # whatever the caller asks of numpy: what overflows here does so on a device
            return self._predicted(features)

    def _predicted(self, features: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        values: dict[str, Any] = dict(features)
        for operation in self._operations:
            if operation.kind in _WRITES:
                state = operation.inputs["state"]
                assert isinstance(state, Ref), "a state is not a constant"
                values[state.name] = _value(
                    operation.inputs["value" if "value" in operation.inputs else "data"], values
                )
            inputs = {n: _value(v, values) for n, v in operation.inputs.items() if n not in _WITHOUT_NAME}
            values.update(zip(operation.outputs, self._results(operation.kind, inputs), strict=True))
        return {name: values[name] for name in self._outputs}

    def _results(self, kind: str, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
        if kind == "read_state":
            return (inputs["input"],)
        if kind in _WRITES:
            return (inputs["state"],)
        own = OWN_VALUES.get(kind)
        if own is None:
            # copies: coremltools counts negative bounds of slices from the front in place
            return _sdk.values_of(kind, {name: _copied(each) for name, each in inputs.items()}, self._target)
        try:
            found = own(inputs)
        except (ValueError, IndexError) as error:
            raise _sdk.SdkError(f"value of {kind}: {error}") from error
        return found if isinstance(found, tuple) else (found,)


def _value(operand: Operand, values: Mapping[str, Any]) -> Any:
    if isinstance(operand, Ref):
        return values[operand.name]
    if isinstance(operand, tuple):
        return tuple(_value(each, values) for each in operand)
    return operand


def _copied(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_copied(each) for each in value)
    return value.copy() if isinstance(value, np.ndarray) else value
