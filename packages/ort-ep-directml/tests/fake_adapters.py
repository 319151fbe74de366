"""Machines with several adapters, made of Python: DXGI and DXCore as a session asks them."""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from directml_rig.served import INVALID_ARGUMENT, NOT_FOUND, OK, Ledger, Served, give, implements

from ort_ep_directml.abi import dxcore, dxgi
from ort_ep_directml.libraries import Libraries

OUT_OF_MEMORY = 0x8007000E


@dataclass(frozen=True)
class Card:
    """One adapter of a made-up machine; ``power`` orders it by consumption."""

    name: str
    draws: bool = True
    computes: bool = True  # shaders of any kind; else DirectML's alone
    is_hardware: bool = True
    power: int = 0

    @property
    def luid(self) -> int:
        """A number of its own."""
        return zlib.crc32(self.name.encode())


class DxgiAdapter(Served):
    interface = dxgi.ADAPTER1
    answers = (dxgi.ADAPTER1,)

    def __init__(self, ledger: Ledger, card: Card) -> None:
        super().__init__(ledger)
        self.card = card

    @implements("GetDesc1")
    def get_desc(self, result: int) -> int:
        desc = dxgi.AdapterDesc1.from_address(result)
        ctypes.memmove(desc.Description, self.card.name.encode("utf-16-le") + b"\0\0", 2 * len(self.card.name) + 2)
        desc.AdapterLuid.LowPart = self.card.luid
        desc.Flags = 0 if self.card.is_hardware else dxgi.ADAPTER_FLAG_SOFTWARE
        return OK


class DxgiFactory(Served):
    interface = dxgi.FACTORY1
    answers = (dxgi.FACTORY1,)

    def __init__(self, ledger: Ledger, cards: Sequence[Card]) -> None:
        super().__init__(ledger)
        self.cards = cards

    @implements("EnumAdapters1")
    def enum_adapters(self, index: int, result: int) -> int:
        return NOT_FOUND if index >= len(self.cards) else give(DxgiAdapter(self.ledger, self.cards[index]), result)


class CoreAdapter(Served):
    interface = dxcore.ADAPTER
    answers = (dxcore.ADAPTER,)

    def __init__(self, ledger: Ledger, card: Card) -> None:
        super().__init__(ledger)
        self.card = card

    @implements("IsAttributeSupported")
    def is_attribute_supported(self, attribute: int) -> bool:
        context = ctypes.string_at(attribute, 16)
        if context == bytes(dxcore.ATTRIBUTE_D3D12_GRAPHICS):
            return self.card.draws
        return self.card.computes or context != bytes(dxcore.ATTRIBUTE_D3D12_CORE_COMPUTE)

    @implements("GetPropertySize")
    def get_property_size(self, of: int, result: int) -> int:
        ctypes.c_size_t.from_address(result).value = len(self._property(of))
        return OK

    @implements("GetProperty")
    def get_property(self, of: int, size: int, result: int) -> int:
        found = self._property(of)
        if size < len(found):
            return INVALID_ARGUMENT
        ctypes.memmove(result, found, len(found))
        return OK

    def _property(self, of: int) -> bytes:
        if of == dxcore.PROPERTY_IS_HARDWARE:
            return bytes([self.card.is_hardware])
        if of == dxcore.PROPERTY_INSTANCE_LUID:
            return self.card.luid.to_bytes(8, "little")
        return self.card.name.encode() + b"\0"


class CoreList(Served):
    interface = dxcore.ADAPTER_LIST
    answers = (dxcore.ADAPTER_LIST,)

    def __init__(self, ledger: Ledger, cards: Sequence[Card]) -> None:
        super().__init__(ledger)
        self.cards = list(cards)

    @implements("GetAdapterCount")
    def get_adapter_count(self) -> int:
        return len(self.cards)

    @implements("GetAdapter")
    def get_adapter(self, index: int, iid: int, result: int) -> int:
        return give(CoreAdapter(self.ledger, self.cards[index]), result)

    @implements("IsAdapterPreferenceSupported")
    def is_adapter_preference_supported(self, preference: int) -> bool:
        return True

    @implements("Sort")
    def sort(self, count: int, preferences: int) -> int:
        wanted = (ctypes.c_uint32 * count).from_address(preferences)
        for each in reversed(wanted):
            if each == dxcore.PREFERENCE_HARDWARE:
                self.cards.sort(key=lambda card: not card.is_hardware)
            else:
                sign = 1 if each == dxcore.PREFERENCE_MINIMUM_POWER else -1
                self.cards.sort(key=lambda card: sign * card.power)
        return OK


class CoreFactory(Served):
    interface = dxcore.ADAPTER_FACTORY
    answers = (dxcore.ADAPTER_FACTORY,)

    def __init__(self, ledger: Ledger, cards: Sequence[Card], knows_generic: bool) -> None:
        super().__init__(ledger)
        self.cards, self.knows_generic = cards, knows_generic

    @implements("CreateAdapterList")
    def create_adapter_list(self, count: int, attributes: int, iid: int, result: int) -> int:
        if ctypes.string_at(attributes, 16) == bytes(dxcore.ATTRIBUTE_D3D12_GENERIC_ML):
            return give(CoreList(self.ledger, self.cards if self.knows_generic else ()), result)
        return give(CoreList(self.ledger, [card for card in self.cards if card.computes]), result)


class Machine:
    """A machine with these cards; ``ledger.objects`` are the objects that somebody holds a reference of."""

    def __init__(self, *cards: Card) -> None:
        self.ledger = Ledger()
        self.cards = cards

    def libraries(self, *, has_dxcore: bool = True, has_dxgi: bool = True, knows_generic: bool = True) -> Libraries:
        """Return the functions that list them; devices cannot be made."""
        drawing = [card for card in self.cards if card.draws]

        def core(iid: object, result: object) -> int:
            return give(CoreFactory(self.ledger, self.cards, knows_generic), ctypes.addressof(result._obj))

        def classic(iid: object, result: object) -> int:
            return give(DxgiFactory(self.ledger, drawing), ctypes.addressof(result._obj))

        found = Libraries(_refused, _refused, core, classic, "a made-up DirectML.dll")
        found = found if has_dxcore else replace(found, dxcore_create_factory=None)
        return found if has_dxgi else replace(found, dxgi_create_factory=None)


def _refused(*arguments: object) -> int:
    return OUT_OF_MEMORY - (1 << 32)
