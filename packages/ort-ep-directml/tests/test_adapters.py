"""Which adapter a session gets, on machines with several."""

from __future__ import annotations

import pytest
from fake_adapters import Card, Machine

from ort_core.plugin import EPFail, InvalidArgument
from ort_ep_directml.abi import d3d12
from ort_ep_directml.adapters import choose_adapter, list_by_number
from ort_ep_directml.device_holder import shared_holder
from ort_ep_directml.options import DmlOptions

INSIDE = Card("Inside graphics", power=1)
DRAWS_MUCH = Card("Big card, 24 GB", power=9)
NPU = Card("Neural unit", draws=False, power=0)
SOFTWARE = Card("Basic Render Driver", is_hardware=False, power=5)


@pytest.fixture
def machine():
    """A laptop: the screen hangs on the small GPU; the ledger must be empty of objects at the end."""
    made = Machine(INSIDE, DRAWS_MUCH, NPU, SOFTWARE)
    yield made
    assert made.ledger.faults == []
    assert made.ledger.objects == {}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (DmlOptions(), INSIDE),
        (DmlOptions(device_id=0), INSIDE),
        (DmlOptions(device_id=1), DRAWS_MUCH),
        (DmlOptions(performance_preference="high_performance"), DRAWS_MUCH),
        (DmlOptions(performance_preference="minimum_power"), INSIDE),
        (DmlOptions(device_filter="npu"), NPU),
        (DmlOptions(performance_preference="minimum_power", device_filter="any"), NPU),
        (DmlOptions(performance_preference="high_performance", device_filter="any"), DRAWS_MUCH),
    ],
)
def test_options_choose(machine, options, expected):
    assert choose_adapter(machine.libraries(), options).description == expected.name


def test_without_dxgi_numbers_are_those_of_dxcore(machine):
    found = list_by_number(machine.libraries(has_dxgi=False))
    assert [each.description for each in found] == [card.name for card in (INSIDE, DRAWS_MUCH, NPU, SOFTWARE)]


def test_a_number_that_is_not_there_lists_those_that_are(machine):
    with pytest.raises(InvalidArgument, match=r"no adapter with device_id 7; .* 1: Big card, 24 GB \(gpu\)"):
        choose_adapter(machine.libraries(), DmlOptions(device_id=7))


def test_software_is_refused_by_number(machine):
    with pytest.raises(InvalidArgument, match="device_id 2 is software"):
        choose_adapter(machine.libraries(), DmlOptions(device_id=2))


def test_a_filter_that_nothing_passes_lists_what_there_is():
    machine = Machine(SOFTWARE)
    with pytest.raises(InvalidArgument, match=r"device_filter 'gpu'; .* 0: Basic Render Driver \(software\)"):
        choose_adapter(machine.libraries(), DmlOptions())


def test_without_dxcore_preferences_are_refused_and_numbers_are_not(machine):
    libraries = machine.libraries(has_dxcore=False)
    assert choose_adapter(libraries, DmlOptions(device_id=1)).description == DRAWS_MUCH.name
    with pytest.raises(EPFail, match="DXCore"):
        choose_adapter(libraries, DmlOptions(device_filter="npu"))


def test_both_lists_number_an_adapter_alike(machine):
    libraries = machine.libraries()
    by_dxgi = choose_adapter(libraries, DmlOptions(device_id=1))
    by_dxcore = choose_adapter(libraries, DmlOptions(performance_preference="high_performance"))
    assert by_dxgi.luid == by_dxcore.luid == DRAWS_MUCH.luid


def test_sessions_share_a_device_exactly_where_they_choose_one_adapter(machine):
    libraries = machine.libraries()
    first = shared_holder(libraries, DmlOptions())
    assert shared_holder(libraries, DmlOptions(device_id=0, enable_cpu_sync_spinning=True)) is first
    assert shared_holder(libraries, DmlOptions(device_id=1)) is not first
    del first
    assert list(libraries.holders) == []


def test_an_npu_is_asked_for_less_than_a_gpu():
    narrow = Card("Narrow unit", draws=False, computes=False)
    machine = Machine(INSIDE, NPU, narrow)
    found = {each.description: each.feature_level for each in list_by_number(machine.libraries(has_dxgi=False))}
    assert found == {
        INSIDE.name: d3d12.FEATURE_LEVEL_11_0,
        NPU.name: d3d12.FEATURE_LEVEL_1_0_CORE,
        narrow.name: d3d12.FEATURE_LEVEL_1_0_GENERIC,
    }


def test_an_older_windows_lists_what_computes(machine):
    libraries = machine.libraries(knows_generic=False)
    assert choose_adapter(libraries, DmlOptions(device_filter="npu")).description == NPU.name
