"""The binary interfaces: layouts, method tables and calls, held to what a C++ compiler makes of the declarations."""

from __future__ import annotations

import ctypes
import inspect

import abi_compiled as compiled
import pytest

from ort_ep_directml.abi import com, d3d12, dml, dxcore, dxgi
from ort_ep_directml.abi.com import HRESULT, ComObject, Guid, Interface, Method
from ort_ep_directml.abi.hresults import KNOWN, HResultError, described
from ort_ep_directml.abi.struct_results import bound_after_this

MODULES = (com, d3d12, dml, dxcore, dxgi)
STRUCTS = {
    kind.c_name: kind
    for module in MODULES
    for kind in vars(module).values()
    if inspect.isclass(kind) and issubclass(kind, (ctypes.Structure, ctypes.Union)) and hasattr(kind, "c_name")
}
INTERFACES = {
    value.name: value for module in MODULES for value in vars(module).values() if isinstance(value, Interface)
}
SIZES = {  # bytes on every 64-bit system
    "DML_BUFFER_TENSOR_DESC": 48, "DML_TENSOR_DESC": 16, "DML_GRAPH_DESC": 72, "D3D12_RESOURCE_DESC": 56,
    "DML_BINDING_PROPERTIES": 24, "DML_BINDING_TABLE_DESC": 32, "DML_BUFFER_BINDING": 24, "DML_SCALAR_UNION": 8,
    "D3D12_HEAP_PROPERTIES": 20, "D3D12_RESOURCE_BARRIER": 32, "DXGI_ADAPTER_DESC1": 312, "LUID": 8, "GUID": 16,
}  # fmt: skip
needs_compiler = pytest.mark.skipif(compiled.compiler() is None, reason="no C++ compiler of this convention")


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    return compiled.objects(tmp_path_factory.mktemp("objects"))


@pytest.fixture(scope="module")
def layouts(tmp_path_factory):
    return compiled.layouts(tmp_path_factory.mktemp("layouts"))


@pytest.mark.parametrize(("name", "nbytes"), SIZES.items())
def test_a_struct_has_its_known_size(name, nbytes):
    assert ctypes.sizeof(STRUCTS[name]) == nbytes


def test_every_struct_is_declared():
    assert STRUCTS.keys() <= compiled.declared_structs().keys()
    assert len(STRUCTS) >= 30


@needs_compiler
@pytest.mark.parametrize("name", STRUCTS)
def test_a_struct_is_laid_out_as_a_compiler_does(name, layouts):
    kind = STRUCTS[name]
    nested = {field[0] for base in (kind,) for field in base._fields_}
    found = {"": ctypes.sizeof(kind)} | {field: getattr(kind, field).offset for field in nested if field != "barrier"}
    if name == "D3D12_RESOURCE_BARRIER":
        found |= {field: getattr(kind, field).offset for field in ("Transition", "UAV")}
        layouts[name].pop("Aliasing", None)
    assert found == layouts[name]


@pytest.mark.parametrize("name", INTERFACES)
def test_a_table_has_its_methods_in_the_declared_order(name):
    declared = compiled.declared_interfaces()[name]
    assert [method.name for method in INTERFACES[name].methods] == [method.name for method in declared]


@needs_compiler
@pytest.mark.parametrize("name", INTERFACES)
def test_every_described_method_reaches_its_slot_with_its_arguments(name, objects):
    interface = INTERFACES[name]
    create = getattr(objects, f"object_of_{name}")
    create.restype = ctypes.c_void_p
    address = create()
    for method in interface.methods:
        if method.arguments is None:
            continue
        numbers = [_number(kind, place) for place, kind in enumerate(method.arguments)]
        given = [kind(number) for kind, number in zip(method.arguments, numbers)]
        found = com.bound_method(address, interface, method.name)(*given)
        assert objects.last_method().decode() == f"{name}.{method.name}"
        assert [objects.last_argument(place) for place in range(objects.last_count())] == numbers, method.name
        _check_result(method, found)


def _number(kind, place):
    return int.from_bytes(bytes([0x11 * (place + 1)] * ctypes.sizeof(kind)), "little")


def _check_result(method: Method, found: object) -> None:
    if method.result is None:
        assert found is None
    elif method.result is HRESULT:
        assert found == 7
    elif method.result is ctypes.c_bool:
        assert found is True
    elif issubclass(method.result, ctypes.Structure):
        assert bytes(found) == bytes(range(1, ctypes.sizeof(found) + 1))
    else:
        assert found == int.from_bytes(bytes(range(1, ctypes.sizeof(method.result) + 1)), "little")


@needs_compiler
def test_on_windows_a_struct_comes_through_a_pointer_behind_this(objects):
    address = ctypes.cast(objects.after_this, ctypes.c_void_p).value
    this = ctypes.create_string_buffer(b"\x2a")
    found = bound_after_this(address, d3d12.Luid, (ctypes.c_uint32,))(ctypes.addressof(this), 5)
    assert (found.LowPart, found.HighPart) == (5, 42)


def test_a_method_that_only_holds_its_slot_is_not_called():
    with pytest.raises(KeyError, match="not described"):
        com.bound_method(0, d3d12.DEVICE, "CreateSampler")


class FakeObject:
    """An object whose methods are Python functions."""

    def __init__(self, **methods):
        self.released = 0
        kinds = {"QueryInterface": (HRESULT, 3), "AddRef": (ctypes.c_uint32, 1), "Release": (ctypes.c_uint32, 1)}
        methods = {"AddRef": lambda this: 2, "Release": self._release, **methods}
        self._kept = [
            ctypes.CFUNCTYPE(kinds[name][0], *[ctypes.c_void_p] * kinds[name][1])(methods[name])
            for name in ("QueryInterface", "AddRef", "Release")
        ]
        self._table = (ctypes.c_void_p * 3)(*[ctypes.cast(function, ctypes.c_void_p) for function in self._kept])
        self._memory = ctypes.c_void_p(ctypes.addressof(self._table))
        self.address = ctypes.addressof(self._memory)

    def _release(self, this):
        self.released += 1
        return 0


def test_a_failure_is_an_error_with_its_name_and_advice():
    fake = FakeObject(QueryInterface=lambda this, iid, out: -2005270523)  # 0x887A0005
    with pytest.raises(HResultError, match=r"IUnknown\.QueryInterface returned DXGI_ERROR_DEVICE_REMOVED") as found:
        ComObject(fake.address, com.UNKNOWN).query(d3d12.DEVICE)
    assert found.value.loses_device
    assert "driver" in str(found.value)


def test_success_without_an_object_is_an_error():
    fake = FakeObject(QueryInterface=lambda this, iid, out: 0)
    with pytest.raises(HResultError, match="E_POINTER"):
        ComObject(fake.address, com.UNKNOWN).query(d3d12.DEVICE)


def test_an_object_is_asked_by_its_interfaces_guid_and_released_once():
    context = []
    other = FakeObject(QueryInterface=lambda *arguments: 0)

    def query(this, iid, out):
        context.append(str(Guid.from_address(iid)))
        ctypes.c_void_p.from_address(out).value = other.address
        return 0

    fake = FakeObject(QueryInterface=query)
    held = ComObject(fake.address, com.UNKNOWN)
    found = held.query(d3d12.DEVICE)
    assert context == [str(d3d12.DEVICE.iid)] == ["189819f1-1db6-4b57-be54-1821339b85f7"]
    assert found.address == other.address
    del found
    held.release()
    held.release()
    assert (fake.released, other.released) == (1, 1)


def test_codes_are_known_by_name_and_the_unknown_by_their_digits():
    assert described(-2147024809).name == "E_INVALIDARG"
    assert described(0x80001234).name == "HRESULT 0x80001234"
    assert {code for code, known in KNOWN.items() if known.loses_device} == {
        0x887A0005, 0x887A0006, 0x887A0007, 0x887A0020,
    }  # fmt: skip


def test_guids_read_and_write_the_same_text():
    assert str(dml.DEVICE1.iid) == "a0884f9a-d2be-4355-aa5d-5901281ad1d2"
    assert bytes(com.UNKNOWN.iid) == bytes(8) + b"\xc0" + bytes(6) + b"\x46"
