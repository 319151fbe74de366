"""NamedOutputs: what ``session(x=...)`` returns, a mapping from output names with attribute access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ort_core.errors import did_you_mean
from ort_core.tensors.ort_value import RuntimeValue
from ort_core.tensors.sparse_tensor import SparseTensor

Output = RuntimeValue | SparseTensor  # as callers receive it


class NamedOutputs(Mapping[str, Output]):
    """Outputs by name, ``outputs["logits"]`` or ``outputs.logits``, in the model's order."""

    __slots__ = ("_values",)
    _values: dict[str, Output]

    def __init__(self, names: Sequence[str], values: Sequence[Output]) -> None:
        object.__setattr__(self, "_values", dict(zip(names, values, strict=True)))

    def __getitem__(self, name: str) -> Output:
        try:
            return self._values[name]
        except KeyError:
            raise KeyError(self._unknown(name)) from None

    def __getattr__(self, name: str) -> Output:
        if name.startswith("__") or name == "_values":  # asked for by pickle and copy before there are values
            raise AttributeError(name)
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(self._unknown(name)) from None

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("outputs cannot be changed")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __reduce__(self) -> tuple[type, tuple[list[str], list[Output]]]:
        return type(self), (list(self._values), list(self._values.values()))

    def __repr__(self) -> str:
        shown = (f"{name}: {getattr(value, 'dtype', type(value).__name__)}{list(getattr(value, 'shape', ()))}"
                 for name, value in self._values.items())  # fmt: skip
        return f"NamedOutputs({', '.join(shown)})"

    def _unknown(self, name: str) -> str:
        known = list(self._values)
        return f"no output {name!r}.{did_you_mean(name, known)} Outputs: {', '.join(known)}"
