"""Devices: names and numbers of onnxruntime, and a directory through which other devices' memory is used."""

import types

import numpy as np
import onnxruntime
import pytest

import ort_core
from ort_core import environment
from ort_core.environment import Environment
from ort_core.errors import InvalidArgument, InvalidValue
from ort_core.providers.discovery import PluginSource
from ort_core.providers.hookspecs import PLUGIN_API
from ort_core.tensors import device, memory_facts
from ort_core.tensors.device import CpuApi, CpuBuffer, CpuStream, Device, DeviceApi, DeviceDirectory, OrtDevice, Stream
from ort_core.tensors.ort_value import OrtValue, copy_tensors

ENUMERATIONS = [
    "OrtAllocatorType", "OrtDeviceMemoryType", "OrtHardwareDeviceType", "OrtMemType", "OrtMemoryInfoDeviceType",
    "OrtDeviceVendorId",
]  # fmt: skip


@pytest.mark.parametrize("name", ENUMERATIONS)
def test_enumerations_have_the_members_of_onnxruntime(name):
    theirs = getattr(onnxruntime, name).__members__
    assert {n: int(m) for n, m in getattr(memory_facts, name).__members__.items()} == {
        n: int(m) for n, m in theirs.items()
    }


@pytest.mark.parametrize("kind", ["cpu", "cuda", "dml", "cann"])
def test_devices_have_the_numbers_of_onnxruntime(kind):
    ours, theirs = OrtDevice.make(kind, 1), onnxruntime.OrtDevice.make(kind, 1)
    for question in ("device_id", "device_type", "device_vendor_id", "device_mem_type"):
        assert getattr(ours, question)() == getattr(theirs, question)(), question


@pytest.mark.parametrize("name", ["cann", "cpu", "cuda", "default_memory", "dml", "fpga", "gpu", "npu", "webgpu"])
def test_numbers_of_kinds_are_those_of_onnxruntime(name):
    theirs = onnxruntime.capi._pybind_state.OrtDevice
    assert getattr(OrtDevice, name)() == getattr(theirs, name)()


def test_the_number_of_directml_names_its_device():
    ours = OrtDevice(OrtDevice.dml(), OrtDevice.default_memory(), 2)
    theirs = onnxruntime.capi._pybind_state.OrtDevice(4, 0, 2)
    assert str(ours.device) == "dml:2"
    assert (ours.device_type(), ours.vendor_id()) == (theirs.device_type(), theirs.vendor_id())


def test_an_unknown_kind_is_refused_with_the_known_ones():
    with pytest.raises(InvalidArgument, match=r"Unsupported device type: xpu; known: .*cpu, cuda"):
        OrtDevice.make("xpu", 0)


class FakeBuffer(CpuBuffer):
    """Memory that claims to be elsewhere."""

    device = Device("npu", 0)


class FakeApi(CpuApi):
    """A device whose memory is the host's."""

    device = FakeBuffer.device

    def allocate(self, nbytes):
        return FakeBuffer(np.zeros(nbytes, np.uint8))


@pytest.fixture
def npu():
    before = device._source
    directory = DeviceDirectory({"npu": lambda index: FakeApi()})
    device.use_directory_of(lambda: directory)
    yield
    device.use_directory_of(before)


@pytest.mark.usefixtures("npu")
def test_a_tensor_on_another_device_is_copied_there_and_back():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    value = OrtValue.ortvalue_from_numpy(array, "npu", 0)
    assert (value.device_name(), value.shape(), value.data_type()) == ("npu", [2, 3], "tensor(float)")
    assert value.tensor_size_in_bytes() == 24
    np.testing.assert_array_equal(value.numpy(), array)
    value.update_inplace(array * 2)
    host = OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
    copy_tensors([value], [host])
    np.testing.assert_array_equal(host.numpy(), array * 2)
    empty = OrtValue.ortvalue_from_shape_and_type([2], np.int64, "npu")
    assert empty.numpy().tolist() == [0, 0]
    with pytest.raises(InvalidValue, match="strings live on the CPU"):
        OrtValue.ortvalue_from_shape_and_type([2], str, "npu")


def test_the_directory_names_what_is_offered():
    directory = DeviceDirectory({"npu": lambda index: FakeApi()})
    assert directory.kinds() == ("cpu", "npu")
    assert directory.get(Device("npu", 0)) is directory.get(Device("npu", 0))
    with pytest.raises(InvalidValue, match=r"cuda:1: no installed plugin offers this device \(offered: cpu, npu\)"):
        directory.get(Device("cuda", 1))


def test_the_host_fulfils_the_contracts():
    api = CpuApi()
    assert isinstance(api, DeviceApi)
    stream = api.create_stream()
    assert isinstance(stream, Stream)
    stream.wait_for(stream.record())
    stream.synchronize()
    assert CpuStream().record().is_done()
    source, target = api.allocate(8), api.allocate(8)
    api.copy_from_host(np.array([1.5]), source, stream)
    api.copy_within(source, target, stream)
    back = np.zeros(1)
    api.copy_to_host(target, back, stream)
    assert back[0] == 1.5


def test_the_users_door_leads_to_the_devices_of_plugins(monkeypatch):
    plugin = types.ModuleType("npu_plugin")
    plugin.ORT_PLUGIN_API = PLUGIN_API
    plugin.ort_devices = lambda: {"npu": lambda index: FakeApi()}
    fake = Environment(lambda: [PluginSource("npu", "tests", plugin)])
    monkeypatch.setattr(environment, "default_environment", lambda: fake)
    monkeypatch.delitem(vars(ort_core), "OrtValue", raising=False)
    before = device._source
    try:
        assert ort_core.OrtValue.ortvalue_from_numpy(np.ones(2), "npu").numpy().tolist() == [1, 1]
    finally:
        device.use_directory_of(before)
