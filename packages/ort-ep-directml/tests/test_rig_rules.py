"""The rig is as strict as a device may be: what Direct3D forbids is noticed, and removes the device."""

from __future__ import annotations

import ctypes

import pytest
from directml_rig.single import COMMON, SOURCE, TARGET, UAV, Bench

from ort_ep_directml.abi import d3d12
from ort_ep_directml.abi.hresults import HResultError


@pytest.fixture
def bench(rig):
    made = Bench(rig)
    yield made
    if rig.device.removed:  # the next test gets another device, and this one's command list may be open
        rig.faults()


def broken(rig) -> str:
    """The one rule that was broken."""
    (fault,) = rig.faults()
    return str(fault)


def close_and_submit(bench) -> None:
    bench.commands.call("Close")
    lists = (ctypes.c_void_p * 1)(bench.commands.address)
    bench.queue.call("ExecuteCommandLists", 1, ctypes.addressof(lists))


def wait(bench) -> None:
    bench.queue.call("Signal", bench.fence.address, 77)
    bench.fence.call("SetEventOnCompletion", 77, None)


def memory_of(buffer) -> int:
    pointer = ctypes.c_void_p()
    buffer.call("Map", 0, None, ctypes.addressof(pointer))
    return pointer.value or 0


def test_bytes_go_there_and_back(rig, bench):
    there = bench.upload(b"sixteen bytes ok")

    assert bench.download(there, 16) == b"sixteen bytes ok"


def test_work_is_not_done_before_it_is_waited_for(rig, bench):
    source = bench.upload(bytes(16))
    staged = bench.buffer(16, d3d12.HEAP_TYPE_READBACK)
    bench.commands.call("CopyBufferRegion", staged.address, 0, source.address, 0, 16)
    close_and_submit(bench)
    seen = memory_of(staged)

    before = ctypes.string_at(seen, 16)
    wait(bench)

    assert before != bytes(16)
    assert ctypes.string_at(seen, 16) == bytes(16)


def test_a_copy_needs_a_barrier_after_another_state(rig, bench):
    buffer, target = bench.buffer(16), bench.buffer(16)
    bench.move(buffer, COMMON, UAV)
    bench.commands.call("CopyBufferRegion", target.address, 0, buffer.address, 0, 16)
    close_and_submit(bench)
    wait(bench)

    assert broken(rig) == "a copy needs a buffer in state COPY_SOURCE, not UNORDERED_ACCESS: a barrier is missing"
    with pytest.raises(HResultError, match="DXGI_ERROR_DEVICE_REMOVED"):
        bench.device.call("GetDeviceRemovedReason")


def test_a_barrier_from_another_state_than_the_buffers_is_a_fault(rig, bench):
    buffer = bench.buffer(16)
    bench.move(buffer, COMMON, SOURCE)
    bench.move(buffer, TARGET, UAV)
    close_and_submit(bench)
    wait(bench)

    assert broken(rig) == "a barrier says from COPY_DEST, and the buffer is in COPY_SOURCE"


def test_states_fall_back_when_the_queue_has_executed(rig, bench):
    buffer, target = bench.buffer(16), bench.buffer(16)
    bench.move(buffer, COMMON, UAV)
    bench.finish()

    bench.commands.call("CopyBufferRegion", target.address, 0, buffer.address, 0, 16)
    bench.finish()


def test_an_allocator_whose_commands_run_is_not_reset(rig, bench):
    close_and_submit(bench)

    with pytest.raises(HResultError, match="E_FAIL"):
        bench.allocator.call("Reset")

    assert "has not executed its commands" in broken(rig)
    wait(bench)


def test_a_buffer_outlives_the_commands_that_use_it(rig, bench):
    buffer, target = bench.buffer(16), bench.buffer(16)
    bench.commands.call("CopyBufferRegion", target.address, 0, buffer.address, 0, 16)
    close_and_submit(bench)
    buffer.release()
    wait(bench)

    assert "released before the queue executed" in broken(rig)


def test_a_copy_stays_inside(rig, bench):
    buffer, target = bench.buffer(16), bench.buffer(32)

    bench.commands.call("CopyBufferRegion", target.address, 0, buffer.address, 8, 16)

    assert broken(rig) == "bytes 8 to 24 of a buffer of 16"
    bench.finish()


def test_default_memory_is_not_mapped(rig, bench):
    with pytest.raises(HResultError, match="E_INVALIDARG"):
        bench.buffer(16).call("Map", 0, None, None)

    assert broken(rig) == "Map of a buffer that the host does not see"


def test_waiting_for_what_nobody_signals_is_a_fault(rig, bench):
    with pytest.raises(HResultError):
        bench.fence.call("SetEventOnCompletion", 99, None)

    assert "nothing will raise it" in broken(rig)


def test_a_method_that_the_rig_lacks_is_named(rig, bench):
    address = bench.device.address
    slot = d3d12.DEVICE.slots["CreateSampler"]
    table = ctypes.c_void_p.from_address(address).value or 0
    entry = ctypes.c_void_p.from_address(table + 8 * slot).value or 0

    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(entry)(address)

    assert broken(rig) == "ID3D12Device.CreateSampler is not one that the rig has"


def test_everything_is_given_back(rig):
    before = rig.ledger.alive()
    bench = Bench(rig)
    buffer = bench.upload(bytes(64))
    assert rig.ledger.alive() != before

    del buffer, bench

    assert rig.ledger.alive() == before
