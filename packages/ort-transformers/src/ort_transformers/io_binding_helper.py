"""IOBindingHelper: buffers of torch for sessions' inputs and outputs, and what element types torch has for ONNX's.

torch is imported when a buffer is made, not before.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import ort_core
from ort_core.type_names import TypeHelper

__all__ = ["CudaSession", "GpuBinding", "GpuBindingManager", "IOBindingHelper", "ShapeDict", "TypeHelper"]

Tensor = Any  # torch's, which need not be installed
ShapeDict = Mapping[str, Sequence[int]]


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


class CudaSession:
    """A session whose inputs and outputs stay in tensors of torch between runs, on a CPU or a GPU.

    Args:
        ort_session: the session.
        device: where torch's tensors lie.
        enable_cuda_graph: not available.

    Raises:
        ValueError: CUDA graphs are asked for.
    """

    def __init__(self, ort_session: ort_core.InferenceSession, device: Any, enable_cuda_graph: bool = False) -> None:
        if enable_cuda_graph:
            raise ValueError("enable_cuda_graph is for onnxruntime's CUDA provider: leave it out")
        torch = importlib.import_module("torch")
        self.ort_session, self.device = ort_session, torch.device(device)
        self.enable_cuda_graph = enable_cuda_graph
        self.input_names = [each.name for each in ort_session.get_inputs()]
        self.output_names = [each.name for each in ort_session.get_outputs()]
        self.io_name_to_onnx_type = TypeHelper.get_io_onnx_type_map(ort_session)
        self.io_name_to_torch_type = TypeHelper.get_io_torch_type_map(ort_session)
        self.io_binding = ort_session.io_binding()
        self.input_tensors: dict[str, Tensor] = {}
        self.output_tensors: dict[str, Tensor] = {}
        self.buffer_sharing: dict[str, str] = {}

    def set_buffer_sharing(self, input_name: str, output_name: str) -> None:
        """Let an input and an output have one tensor, which a run overwrites.

        Raises:
            ValueError: there is no such input or output.
        """
        if input_name not in self.input_names or output_name not in self.output_names:
            raise ValueError(f"there is no input {input_name!r} or no output {output_name!r}")
        self.buffer_sharing |= {input_name: output_name, output_name: input_name}

    def bind_input_and_buffer_sharing(self, name: str, tensor: Tensor) -> None:
        """Bind an input's tensor, to the output that shares it, too."""
        shape = list(tensor.size())
        self.io_binding.bind_input(name, *_place(self.ort_session, name, tensor), shape, _address(tensor))
        if name in self.buffer_sharing:
            self._bind_output(self.buffer_sharing[name], tensor)

    def _bind_output(self, name: str, tensor: Tensor) -> None:
        dtype = TypeHelper.ort_type_to_numpy_type(TypeHelper.get_output_type(self.ort_session, name))
        place = (tensor.device.type, tensor.device.index or 0)
        self.io_binding.bind_output(name, *place, dtype, list(tensor.size()), _address(tensor))
        self.output_tensors[name] = tensor

    def allocate_buffers(self, shape_dict: Mapping[str, Sequence[int]]) -> None:
        """Make tensors for inputs and outputs of these shapes; those that have theirs stay.

        Raises:
            ValueError: a name is neither an input nor an output.
        """
        torch = importlib.import_module("torch")
        for name, shape in shape_dict.items():
            known = self.input_tensors if name in self.input_names else self.output_tensors
            if name not in self.input_names and name not in self.output_names:
                raise ValueError(f"{name!r} is neither an input nor an output")
            if name in known and tuple(known[name].shape) == tuple(shape):
                continue
            if name in self.output_names and name in self.buffer_sharing:
                continue  # its input's tensor is bound to it
            tensor = torch.empty(tuple(shape), dtype=self.io_name_to_torch_type[name], device=self.device)
            if name in self.input_names:
                self.input_tensors[name] = tensor
                self.bind_input_and_buffer_sharing(name, tensor)
            else:
                self._bind_output(name, tensor)

    def infer(
        self, feed_dict: Mapping[str, Tensor], run_options: Any = None, synchronize: bool = True
    ) -> dict[str, Tensor]:
        """Run on these inputs; return the tensors of the outputs, which the next run overwrites.

        Raises:
            ValueError: an input is not contiguous, or lies on another device.
        """
        for name, tensor in feed_dict.items():
            if not tensor.is_contiguous() or tensor.device.type != self.device.type:
                raise ValueError(f"input {name!r} must be contiguous, on {self.device}")
            if name in self.input_names:
                self.bind_input_and_buffer_sharing(name, tensor)
        if synchronize:
            self.io_binding.synchronize_inputs()
        self.ort_session.run_with_iobinding(self.io_binding, run_options)
        if synchronize:
            self.io_binding.synchronize_outputs()
        return self.output_tensors

    @staticmethod
    def get_cuda_provider_options(device_id: int, enable_cuda_graph: bool, stream: int = 0) -> dict[str, object]:
        """Return options of the CUDA provider."""
        found: dict[str, object] = {
            "device_id": device_id,
            "arena_extend_strategy": "kSameAsRequested",
            "enable_cuda_graph": enable_cuda_graph,
        }
        return found | ({"user_compute_stream": str(stream)} if stream else {})


class GpuBinding(CudaSession):
    """A session with buffers of certain shapes, on a CPU or a GPU.

    Args:
        ort_session: the session.
        device: where torch's tensors lie.
        shape_dict: the shape of each input and output.
        enable_gpu_graph: not available.
        gpu_graph_id: what a run is told of the graph that it belongs to; -1 for none.
        stream: a CUDA stream on which runs are not waited for.
        buffer_sharing: the output of each input that shares its tensor.

    Raises:
        ValueError: CUDA graphs are asked for, or a name is neither an input nor an output.
    """

    def __init__(
        self,
        ort_session: ort_core.InferenceSession,
        device: Any,
        shape_dict: ShapeDict,
        enable_gpu_graph: bool = False,
        gpu_graph_id: int = -1,
        stream: int = 0,
        buffer_sharing: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(ort_session, device, enable_gpu_graph)
        for input_name, output_name in (buffer_sharing or {}).items():
            self.set_buffer_sharing(input_name, output_name)
        self.allocate_buffers(shape_dict)
        self.gpu_graph_id, self.stream = gpu_graph_id, stream
        self.shape_dict: ShapeDict | None = None
        self.last_run_gpu_graph_id: int | None = None

    def get_run_options(self, disable_cuda_graph_in_run: bool = False) -> ort_core.RunOptions:
        """Return the options of a run, which name its graph."""
        options = ort_core.RunOptions()
        self.last_run_gpu_graph_id = -1 if disable_cuda_graph_in_run else self.gpu_graph_id
        options.add_run_config_entry("gpu_graph_id", str(self.last_run_gpu_graph_id))
        return options

    def infer(  # type: ignore[override]  # onnxruntime's, too, has another second argument than its base class
        self, feed_dict: Mapping[str, Tensor], disable_cuda_graph_in_run: bool = False
    ) -> dict[str, Tensor]:
        """Run on these inputs; return the tensors of the outputs, which the next run overwrites.

        Raises:
            ValueError: an input is not contiguous, or lies on another device.
        """
        options = self.get_run_options(disable_cuda_graph_in_run)
        if self.stream:
            options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        return super().infer(feed_dict, options)


class GpuBindingManager:
    """Keeps the binding of a session, and gives it buffers of the shapes that are asked for.

    Args:
        ort_session: the session.
        device: where torch's tensors lie.
        stream: a CUDA stream on which runs are not waited for.
        max_cuda_graphs: how many CUDA graphs there may be; none are made.
    """

    def __init__(
        self, ort_session: ort_core.InferenceSession, device: Any, stream: int = 0, max_cuda_graphs: int = 1
    ) -> None:
        self.ort_session, self.device, self.stream = ort_session, device, stream
        self.max_cuda_graphs = max_cuda_graphs
        self.graph_bindings: list[GpuBinding] = []
        self.no_graph_binding: GpuBinding | None = None

    def get_binding(
        self, shape_dict: ShapeDict, use_cuda_graph: bool = False, buffer_sharing: Mapping[str, str] | None = None
    ) -> GpuBinding:
        """Return the binding, with buffers of these shapes.

        Raises:
            ValueError: CUDA graphs are asked for, or a name is neither an input nor an output.
        """
        if use_cuda_graph or self.no_graph_binding is None:
            self.no_graph_binding = GpuBinding(
                self.ort_session, self.device, shape_dict, use_cuda_graph, stream=self.stream,
                buffer_sharing=buffer_sharing,
            )  # fmt: skip
        else:
            self.no_graph_binding.allocate_buffers(shape_dict)
        return self.no_graph_binding


def _place(session: ort_core.InferenceSession, name: str, tensor: Tensor) -> tuple[str, int, type]:
    dtype = TypeHelper.ort_type_to_numpy_type(TypeHelper.get_input_type(session, name))
    return tensor.device.type, tensor.device.index or 0, dtype


def _address(tensor: Tensor) -> int:
    return int(tensor.data_ptr()) or 1  # an empty tensor has no address; bindings want one that is not 0
