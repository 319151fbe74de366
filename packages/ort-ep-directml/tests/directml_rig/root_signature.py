"""Root signatures: which root argument a register of a shader gets its buffer from.

A blob is the part ``RTS0`` of a shader container, alone or within one; serializing writes it alone.
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass

from directml_rig.dxil.container import parts_of
from directml_rig.dxil.module import ResourceClass
from directml_rig.errors import RuleBrokenError
from directml_rig.structs import DescriptorRange, DescriptorRange1, RootParameter, VersionedRootSignatureDesc

_TABLE, _CONSTANTS, _CBV, _SRV, _UAV = range(5)
_ROOT_CLASSES = {_CBV: ResourceClass.CBV, _SRV: ResourceClass.SRV, _UAV: ResourceClass.UAV}
_CLASSES = (ResourceClass.SRV, ResourceClass.UAV, ResourceClass.CBV)  # as D3D12_DESCRIPTOR_RANGE_TYPE counts
_APPEND = 0xFFFFFFFF
_UNBOUNDED = 0xFFFFFFFF
_SIGNATURE = struct.Struct("<6I")  # version, parameters, their offset, samplers, their offset, flags
_PARAMETER = struct.Struct("<3I")  # type, visibility, offset


@dataclass(frozen=True, slots=True)
class TableRange:
    """Registers that a descriptor table serves.

    Attributes:
        of: what they are.
        register, space, count: which.
        offset: of the first within the table.
    """

    of: ResourceClass
    register: int
    space: int
    count: int
    offset: int


@dataclass(frozen=True, slots=True)
class Parameter:
    """A root parameter.

    Attributes:
        ranges: of a descriptor table; empty otherwise.
        of, register, space: of constants (a CBV to the shader) or of a buffer given by its address.
        words: how many constants.
    """

    ranges: tuple[TableRange, ...] = ()
    of: ResourceClass | None = None
    register: int = 0
    space: int = 0
    words: int = 0


@dataclass(frozen=True, slots=True)
class Source:
    """Where a register is served: by which parameter, and in a table at which place."""

    parameter: int
    offset: int = 0
    in_table: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """A root signature's parameters."""

    parameters: tuple[Parameter, ...]

    def source(self, of: ResourceClass, space: int, register: int) -> Source:
        """Return where a register is served.

        Raises:
            RuleBrokenError: nowhere.
        """
        for index, parameter in enumerate(self.parameters):
            if (parameter.of, parameter.space, parameter.register) == (of, space, register):
                return Source(index)
            for each in parameter.ranges:
                if (each.of, each.space) == (of, space) and 0 <= register - each.register < each.count:
                    return Source(index, each.offset + register - each.register, in_table=True)
        raise RuleBrokenError(f"the root signature serves no {of.name} register {register} of space {space}")


def serialized(address: int) -> bytes:
    """Return a D3D12_VERSIONED_ROOT_SIGNATURE_DESC in memory as a part ``RTS0``.

    Raises:
        RuleBrokenError: its version is not known, or it has samplers.
    """
    desc = VersionedRootSignatureDesc.from_address(address)
    if desc.Version not in (1, 2) or desc.NumStaticSamplers:
        raise RuleBrokenError(f"a root signature of version {desc.Version} with {desc.NumStaticSamplers} samplers")
    parameters = (RootParameter * desc.NumParameters).from_address(desc.pParameters) if desc.NumParameters else ()
    heads = _SIGNATURE.size
    body = b""
    begin = heads + _PARAMETER.size * desc.NumParameters
    table = b""
    for parameter in parameters:
        table += _PARAMETER.pack(parameter.ParameterType, parameter.ShaderVisibility, begin + len(body))
        body += _parameter_bytes(parameter, desc.Version, begin + len(body))
    head = _SIGNATURE.pack(desc.Version, desc.NumParameters, heads, 0, 0, desc.Flags)
    return head + table + body


def _parameter_bytes(parameter: RootParameter, version: int, at: int) -> bytes:
    if parameter.ParameterType != _TABLE:
        words = 3 if parameter.ParameterType == _CONSTANTS or version == 2 else 2
        return bytes(parameter.Constants)[: 4 * words]
    kind = DescriptorRange if version == 1 else DescriptorRange1
    count = parameter.DescriptorTable.NumDescriptorRanges
    ranges = (kind * count).from_address(parameter.DescriptorTable.pDescriptorRanges)
    return struct.pack("<2I", count, at + 8) + bytes(ranges)


def signature_of(blob: bytes) -> Signature:
    """Read a root signature, alone or within a shader.

    Raises:
        RuleBrokenError: the shader has none.
    """
    if blob[:4] == b"DXBC":
        part = parts_of(blob).get("RTS0")
        if part is None:
            raise RuleBrokenError("a root signature is asked of a shader that has none")
        blob = part
    version, count, begin, *_ = _SIGNATURE.unpack_from(blob)
    heads = [_PARAMETER.unpack_from(blob, begin + index * _PARAMETER.size) for index in range(count)]
    return Signature(tuple(_parameter(blob, kind, offset, version) for kind, _, offset in heads))


def _parameter(blob: bytes, kind: int, offset: int, version: int) -> Parameter:
    if kind == _TABLE:
        count, at = struct.unpack_from("<2I", blob, offset)
        return Parameter(ranges=_ranges(blob, at, count, version))
    register, space = struct.unpack_from("<2I", blob, offset)
    if kind == _CONSTANTS:
        return Parameter(of=ResourceClass.CBV, register=register, space=space, words=_word(blob, offset + 8))
    return Parameter(of=_ROOT_CLASSES[kind], register=register, space=space)


def _word(blob: bytes, offset: int) -> int:
    return int(struct.unpack_from("<I", blob, offset)[0])


def _ranges(blob: bytes, at: int, count: int, version: int) -> tuple[TableRange, ...]:
    kind = DescriptorRange if version == 1 else DescriptorRange1
    found, free = [], 0
    for index in range(count):
        each = kind.from_buffer_copy(blob, at + index * ctypes.sizeof(kind))
        stated = each.OffsetInDescriptorsFromTableStart
        offset = free if stated == _APPEND else stated
        free = offset + (0 if each.NumDescriptors == _UNBOUNDED else each.NumDescriptors)
        found.append(
            TableRange(
                _CLASSES[each.RangeType], each.BaseShaderRegister, each.RegisterSpace, each.NumDescriptors, offset
            )
        )
    return tuple(found)
