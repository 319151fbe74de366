"""OrtValueVector: a list of OrtValues with onnxruntime's methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.arguments import size, takes
from ort_core.errors import InvalidType, InvalidValue
from ort_core.ir.types import DataType
from ort_core.tensors.ort_value import OrtValue

if TYPE_CHECKING:
    from ort_core.tensors.device import OrtDevice


class OrtValueVector:
    """A growing list of OrtValues."""

    def __init__(self) -> None:
        self._values: list[OrtValue] = []

    def push_back(self, value: object, is_bool_tensor: bool = False) -> None:
        """Append an OrtValue, or a tensor with ``__dlpack__`` (uint8 read as bool where asked)."""
        if not isinstance(value, OrtValue):
            if not hasattr(value, "__dlpack__"):
                raise InvalidType(f"a vector holds OrtValues and tensors with __dlpack__, found {value!r}")
            value = OrtValue.from_dlpack(value)
            if is_bool_tensor:
                value = OrtValue.of(value.numpy().view(np.bool_))
        self._values.append(value)

    def push_back_batch(
        self,
        tensors: Sequence[object],
        addresses: Sequence[int],
        element_types: Sequence[object],
        shapes: Sequence[Sequence[int]],
        devices: Sequence[OrtDevice],
        /,
    ) -> None:
        """Append tensors that export themselves by DLPack; the other arguments are onnxruntime's and say the same."""
        for tensor in tensors:
            self.push_back(tensor)

    @takes(count=size)
    def reserve(self, count: int, /) -> None:
        """Accept onnxruntime's hint; a list needs none."""

    def shrink_to_fit(self) -> None:
        """Accept onnxruntime's hint; a list needs none."""

    def bool_tensor_indices(self) -> list[int]:
        """Return the positions of tensors of bool."""
        return [
            i for i, value in enumerate(self._values) if value.is_tensor() and value.element_type() == DataType.BOOL
        ]

    def element_type_at(self, idx: int) -> int:
        """Return ONNX's number of an element type."""
        return self._values[idx].element_type()

    def dlpack_at(self, index: int, /) -> object:
        """Return a DLPack capsule of one tensor."""
        return self._values[index].__dlpack__()

    def to_dlpacks(self, to_tensor: Callable[[object], object] | None = None) -> list[object]:
        """Return DLPack capsules of all tensors, or what ``to_tensor`` makes of each."""
        capsules = [value.__dlpack__() for value in self._values]
        return capsules if to_tensor is None else [to_tensor(capsule) for capsule in capsules]

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: int) -> OrtValue:
        try:
            return self._values[index]
        except IndexError as error:
            raise IndexError(f"index {index} of a vector of {len(self._values)} OrtValues") from error

    def __iter__(self) -> Iterator[OrtValue]:
        return iter(self._values)

    def replace(self, values: Sequence[OrtValue]) -> None:
        """Hold these values instead."""
        if not all(isinstance(value, OrtValue) for value in values):
            raise InvalidValue("an OrtValueVector holds OrtValues only")
        self._values = list(values)
