"""IOBindingHelper: buffers of torch for sessions' inputs and outputs, and what element types torch has for ONNX's.

torch is imported when a buffer is made, not before.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import ort_core
from ort_core.type_names import TypeHelper

__all__ = ["IOBindingHelper", "TypeHelper"]

Tensor = Any  # torch's, which need not be installed


class IOBindingHelper:
    """Binds torch's tensors to a session of a decoder with its past."""

    @staticmethod
    def get_output_buffers(
        ort_session: ort_core.InferenceSession, output_shapes: Mapping[str, Sequence[int]], device: Any
    ) -> dict[str, Tensor]:
        """Return a flat tensor for each output, as large as its shape says, by name."""
        torch = importlib.import_module("torch")
        buffers = {}
        for name, shape in output_shapes.items():
            dtype = TypeHelper.ort_type_to_torch_type(TypeHelper.get_output_type(ort_session, name))
            size = 1
            for each in shape:
                size *= int(each)
            buffers[name] = torch.empty(size, dtype=dtype, device=device)
        return buffers

    @staticmethod
    def prepare_io_binding(
        ort_session: ort_core.InferenceSession,
        input_ids: Tensor,
        position_ids: Tensor | None,
        attention_mask: Tensor | None,
        past: Sequence[Tensor] | None,
        output_buffers: Mapping[str, Tensor],
        output_shapes: Mapping[str, Sequence[int]],
    ) -> Any:
        """Return a binding of the inputs given and of the buffers; ``past`` is bound as ``past_0``, ``past_1``, ...

        Raises:
            ValueError: an input is not contiguous.
        """
        binding = ort_session.io_binding()
        given = {"input_ids": input_ids, "position_ids": position_ids, "attention_mask": attention_mask}
        given |= {f"past_{place}": each for place, each in enumerate(past or ())}
        names = {each.name for each in ort_session.get_inputs()}
        for name, tensor in given.items():
            if tensor is None or name not in names:
                continue
            if not tensor.is_contiguous():
                raise ValueError(f"input {name!r} is not contiguous: call contiguous() on it first")
            binding.bind_input(name, *_place(ort_session, name, tensor), list(tensor.size()), _address(tensor))
        for each in ort_session.get_outputs():
            buffer = output_buffers[each.name]
            dtype = TypeHelper.ort_type_to_numpy_type(each.type)
            binding.bind_output(
                each.name, buffer.device.type, buffer.device.index or 0, dtype, output_shapes[each.name],
                buffer.data_ptr(),
            )  # fmt: skip
        return binding

    @staticmethod
    def get_outputs_from_io_binding_buffer(
        ort_session: ort_core.InferenceSession,
        output_buffers: Mapping[str, Tensor],
        output_shapes: Mapping[str, Sequence[int]],
        return_numpy: bool = True,
    ) -> list[Any]:
        """Return the outputs in order, copied out of their buffers: numpy's arrays, or torch's tensors."""
        found = []
        for each in ort_session.get_outputs():
            shape = output_shapes[each.name]
            size = 1
            for length in shape:
                size *= int(length)
            copied = output_buffers[each.name][:size].reshape(tuple(shape)).clone().detach()
            found.append(copied.cpu().numpy() if return_numpy else copied)
        return found


def _place(session: ort_core.InferenceSession, name: str, tensor: Tensor) -> tuple[str, int, type]:
    dtype = TypeHelper.ort_type_to_numpy_type(TypeHelper.get_input_type(session, name))
    return tensor.device.type, tensor.device.index or 0, dtype


def _address(tensor: Tensor) -> int:
    return int(tensor.data_ptr()) or 1  # an empty tensor has no address; bindings want one that is not 0
