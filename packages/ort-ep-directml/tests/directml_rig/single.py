"""One operator of DirectML, run by itself: the shortest way from a descriptor to numbers.

It makes the calls of Direct3D and DirectML that any program makes, one at a time and as plainly as possible; the
provider's own runtime is not used.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from directml_rig.rig import Rig
from ort_ep_directml.abi import d3d12, dml
from ort_ep_directml.abi.com import ComObject, build_by_function
from ort_ep_directml.graph import create_operator
from ort_ep_directml.lowering.plan import PlanNode, Tensor

_LEVEL = 0x5000
_P = ctypes.c_void_p
COMMON, UAV = d3d12.RESOURCE_STATE_COMMON, d3d12.RESOURCE_STATE_UNORDERED_ACCESS
SOURCE, TARGET = d3d12.RESOURCE_STATE_COPY_SOURCE, d3d12.RESOURCE_STATE_COPY_DEST


class Bench:
    """A device with a queue and one command list.

    Args:
        rig: the libraries.
    """

    def __init__(self, rig: Rig) -> None:
        create = rig.d3d12.D3D12CreateDevice
        create.argtypes = [_P, ctypes.c_uint32, _P, _P]
        create.restype = ctypes.c_int32
        self.device = build_by_function(create, "D3D12CreateDevice", d3d12.DEVICE, None, d3d12.FEATURE_LEVEL_11_0)
        create = rig.directml.DMLCreateDevice1
        create.argtypes = [_P, ctypes.c_uint32, ctypes.c_uint32, _P, _P]
        create.restype = ctypes.c_int32
        self.directml = build_by_function(create, "DMLCreateDevice1", dml.DEVICE1, self.device.address, 0, _LEVEL)
        kind = d3d12.COMMAND_LIST_TYPE_COMPUTE
        desc = d3d12.CommandQueueDesc(kind, 0, 0, 0)
        self.queue = self.device.build("CreateCommandQueue", d3d12.COMMAND_QUEUE, ctypes.addressof(desc))
        self.allocator = self.device.build("CreateCommandAllocator", d3d12.COMMAND_ALLOCATOR, kind)
        self.commands = self.device.build(
            "CreateCommandList", d3d12.GRAPHICS_COMMAND_LIST, 0, kind, self.allocator.address, None
        )
        self.fence = self.device.build("CreateFence", d3d12.FENCE, 0, d3d12.FENCE_FLAG_NONE)
        self.recorder = self.directml.build("CreateCommandRecorder", dml.COMMAND_RECORDER)
        self._waited = 0

    # ------------------------------------------------------------ Direct3D
    def buffer(self, nbytes: int, heap: int = d3d12.HEAP_TYPE_DEFAULT) -> ComObject:
        """Return a new buffer."""
        properties = d3d12.HeapProperties(heap, 0, 0, 1, 1)
        is_default = heap == d3d12.HEAP_TYPE_DEFAULT
        flags = d3d12.RESOURCE_FLAG_ALLOW_UNORDERED_ACCESS if is_default else d3d12.RESOURCE_FLAG_NONE
        desc = d3d12.ResourceDesc(
            Dimension=d3d12.RESOURCE_DIMENSION_BUFFER,
            Width=nbytes,
            Height=1,
            DepthOrArraySize=1,
            MipLevels=1,
            SampleDesc=d3d12.SampleDesc(1, 0),
            Layout=d3d12.TEXTURE_LAYOUT_ROW_MAJOR,
            Flags=flags,
        )
        states = {d3d12.HEAP_TYPE_UPLOAD: d3d12.RESOURCE_STATE_GENERIC_READ, d3d12.HEAP_TYPE_READBACK: TARGET}
        pointers = (ctypes.addressof(properties), 0, ctypes.addressof(desc), states.get(heap, COMMON), None)
        return self.device.build("CreateCommittedResource", d3d12.RESOURCE, *pointers)

    def move(self, buffer: ComObject, before: int, after: int) -> None:
        """Record a barrier."""
        barrier = d3d12.ResourceBarrier(Type=d3d12.RESOURCE_BARRIER_TYPE_TRANSITION)
        barrier.Transition = d3d12.TransitionBarrier(buffer.address, 0xFFFFFFFF, before, after)
        self.commands.call("ResourceBarrier", 1, ctypes.addressof(barrier))

    def finish(self) -> None:
        """Execute what was recorded, and wait."""
        self.commands.call("Close")
        lists = (_P * 1)(self.commands.address)
        self.queue.call("ExecuteCommandLists", 1, ctypes.addressof(lists))
        self._waited += 1
        self.queue.call("Signal", self.fence.address, self._waited)
        self.fence.call("SetEventOnCompletion", self._waited, None)
        self.allocator.call("Reset")
        self.commands.call("Reset", self.allocator.address, None)

    def upload(self, data: bytes) -> ComObject:
        """Return a buffer that holds bytes."""
        size = max(16, -(-len(data) // 16) * 16)
        staged, target = self.buffer(size, d3d12.HEAP_TYPE_UPLOAD), self.buffer(size)
        memory = _P()
        staged.call("Map", 0, None, ctypes.addressof(memory))
        ctypes.memmove(memory.value or 0, data, len(data))
        staged.call("Unmap", 0, None)
        self.commands.call("CopyBufferRegion", target.address, 0, staged.address, 0, size)
        self.finish()
        staged.release()
        return target

    def download(self, buffer: ComObject, nbytes: int) -> bytes:
        """Return the bytes of a buffer."""
        size = max(16, -(-nbytes // 16) * 16)
        staged = self.buffer(size, d3d12.HEAP_TYPE_READBACK)
        self.commands.call("CopyBufferRegion", staged.address, 0, buffer.address, 0, size)
        self.finish()
        memory = _P()
        staged.call("Map", 0, None, ctypes.addressof(memory))
        found = ctypes.string_at(memory.value or 0, nbytes)
        staged.call("Unmap", 0, None)
        staged.release()
        return found

    # ------------------------------------------------------------ DirectML
    def run(self, node: PlanNode, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        """Return the outputs of one operator, packed.

        Args:
            node: the operator.
            inputs: its tensors in the order of the table; ``None`` for one that is absent.
        """
        kept: list[object] = []
        operator = create_operator(self.directml, node, kept)
        flags = dml.EXECUTION_FLAG_DISABLE_META_COMMANDS
        compiled = self.directml.build("CompileOperator", dml.COMPILED_OPERATOR, operator.address, flags)
        needed = compiled.call_struct("GetBindingProperties", dml.BindingProperties)
        persistent = self.buffer(needed.PersistentResourceSize) if needed.PersistentResourceSize else None
        self._initialize(compiled, persistent, needed.PersistentResourceSize)
        buffers = [None if each is None else self.upload(each.tobytes()) for each in inputs]
        tensors = list(node.output_tensors())
        outputs = [self.buffer(max(16, -(-tensor.nbytes // 16) * 16)) for tensor in tensors]
        bound_inputs = [(b, n) for b, n in zip(buffers, _bytes_of(inputs), strict=True)]
        bound_outputs = [(b, t.nbytes) for b, t in zip(outputs, tensors, strict=True)]
        self._dispatch(compiled, needed, bound_inputs, bound_outputs, persistent)
        return [_array(self.download(b, t.nbytes), t) for b, t in zip(outputs, tensors, strict=True)]

    def _initialize(self, compiled: ComObject, persistent: ComObject | None, nbytes: int) -> None:
        operators = (_P * 1)(compiled.address)
        initializer = self.directml.build(
            "CreateOperatorInitializer", dml.OPERATOR_INITIALIZER, 1, ctypes.addressof(operators)
        )
        needed = initializer.call_struct("GetBindingProperties", dml.BindingProperties)
        outputs = [] if persistent is None else [(persistent, nbytes)]
        self._dispatch(initializer, needed, [], outputs, None)

    def _dispatch(
        self,
        dispatchable: ComObject,
        needed: dml.BindingProperties,
        inputs: Sequence[tuple[ComObject | None, int]],
        outputs: Sequence[tuple[ComObject | None, int]],
        persistent: ComObject | None,
    ) -> None:
        kept: list[object] = []
        count = max(1, needed.RequiredDescriptorCount)
        desc = d3d12.DescriptorHeapDesc(
            d3d12.DESCRIPTOR_HEAP_TYPE_CBV_SRV_UAV, count, d3d12.DESCRIPTOR_HEAP_FLAG_SHADER_VISIBLE, 0
        )
        heap = self.device.build("CreateDescriptorHeap", d3d12.DESCRIPTOR_HEAP, ctypes.addressof(desc))
        heaps = (_P * 1)(heap.address)
        self.commands.call("SetDescriptorHeaps", 1, ctypes.addressof(heaps))
        cpu = heap.call_struct("GetCPUDescriptorHandleForHeapStart", d3d12.CpuDescriptorHandle)
        gpu = heap.call_struct("GetGPUDescriptorHandleForHeapStart", d3d12.GpuDescriptorHandle)
        table_desc = dml.BindingTableDesc(dispatchable.address, cpu, gpu, count)
        table = self.directml.build("CreateBindingTable", dml.BINDING_TABLE, ctypes.addressof(table_desc))
        temporary = self.buffer(needed.TemporaryResourceSize) if needed.TemporaryResourceSize else None
        if temporary is not None:
            table.call("BindTemporaryResource", _bindings([(temporary, needed.TemporaryResourceSize)], kept))
        if persistent is not None:
            nbytes = needed.PersistentResourceSize
            table.call("BindPersistentResource", _bindings([(persistent, nbytes)], kept))
        if inputs:
            table.call("BindInputs", len(inputs), _bindings(inputs, kept))
        if outputs:
            table.call("BindOutputs", len(outputs), _bindings(outputs, kept))
        self.recorder.call("RecordDispatch", self.commands.address, dispatchable.address, table.address)
        self.finish()


def _bindings(buffers: Sequence[tuple[ComObject | None, int]], kept: list[object]) -> int:
    found = []
    for buffer, nbytes in buffers:
        if buffer is None:
            found.append(dml.BindingDesc(dml.BINDING_TYPE_NONE, None))
        else:
            kept.append(dml.BufferBinding(buffer.address, 0, nbytes))
            found.append(dml.BindingDesc(dml.BINDING_TYPE_BUFFER, ctypes.addressof(kept[-1])))  # type: ignore[arg-type]  # kept holds objects of any kind
    array = (dml.BindingDesc * len(found))(*found)
    kept.append(array)
    return ctypes.addressof(array)


def _bytes_of(inputs: Sequence[np.ndarray | None]) -> list[int]:
    return [0 if each is None else -(-each.nbytes // 4) * 4 for each in inputs]


def _array(data: bytes, tensor: Tensor) -> np.ndarray:
    dtype = np.dtype(tensor.dtype.numpy)
    count = int(np.prod(tensor.sizes))
    return np.frombuffer(data, dtype, count).reshape(tensor.sizes)
