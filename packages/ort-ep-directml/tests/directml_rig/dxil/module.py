"""A shader's module as text, taken apart: its resources, the size of its thread groups, its entry function's lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

import llvmlite.binding as llvm

from directml_rig.errors import UnsupportedShaderError

_NODE = re.compile(r"^!(\d+) = (?:distinct )?!\{(.*)\}$", re.MULTILINE)
_NAMED = re.compile(r"^!([\w.]+) = !\{(.*)\}$", re.MULTILINE)
_NUM_THREADS_TAG = 4
_ELEMENT_TAG, _STRUCTURE_TAG = 0, 1
_FLOAT_ELEMENTS = (8, 9, 10, 13, 14)  # of DXIL's component types: half, float, double, and normalized ones


class ResourceClass(IntEnum):
    """What a register of a shader is, by DXIL's numbers."""

    SRV = 0
    UAV = 1
    CBV = 2


class ResourceKind(IntEnum):
    """The kinds of buffers, by DXIL's numbers; textures are not among them."""

    TYPED = 10
    RAW = 11
    STRUCTURED = 12
    CONSTANTS = 13


@dataclass(frozen=True, slots=True)
class ResourceRange:
    """Registers that a shader declares.

    Attributes:
        of: what they are.
        identifier: its number among those of its class.
        space, register, count: where they are bound.
        kind: what is behind them.
        stride: bytes of an element when structured.
        is_float: whether typed elements are floats to the shader.
    """

    of: ResourceClass
    identifier: int
    space: int
    register: int
    count: int
    kind: ResourceKind
    stride: int = 0
    is_float: bool = False


@dataclass(frozen=True, slots=True)
class ShaderModule:
    """A shader as text.

    Attributes:
        ranges: its registers.
        group: threads of a group along x, y and z.
        types: definitions of named types.
        variables: definitions of its global variables.
        body: the entry function's lines between the braces.
        others: definitions of its other functions.
    """

    ranges: tuple[ResourceRange, ...]
    group: tuple[int, int, int]
    types: tuple[str, ...]
    variables: tuple[str, ...]
    body: tuple[str, ...]
    others: tuple[str, ...]


def module_of(bitcode: bytes) -> ShaderModule:
    """Take a shader's bitcode apart.

    Raises:
        UnsupportedShaderError: LLVM does not read it, or it is not a compute shader with one entry.
    """
    try:
        text = str(llvm.parse_bitcode(readable(bitcode), llvm.create_context()))
    except RuntimeError as error:
        raise UnsupportedShaderError(f"LLVM does not read the shader: {error}") from error
    nodes = {int(number): _elements(body) for number, body in _NODE.findall(text)}
    named = {name: _elements(body) for name, body in _NAMED.findall(text)}
    if len(named.get("dx.entryPoints", [])) != 1:
        raise UnsupportedShaderError("the shader has no entry point, or several")
    entry = nodes[_number(named["dx.entryPoints"][0])]
    functions = dict(_functions(text))
    name = entry[0].removeprefix("ptr ")
    if name not in functions:
        raise UnsupportedShaderError(f"the entry function {name} is not defined in the shader")
    return ShaderModule(
        ranges=tuple(_ranges(named.get("dx.resources", []), nodes)),
        group=_group(nodes[_number(entry[4])], nodes),
        types=tuple(re.findall(r"^%\S+ = type .*$", text, re.MULTILINE)),
        variables=tuple(v for v in re.findall(r"^@\S+ = .*$", text, re.MULTILINE) if not v.startswith("@llvm.")),
        body=tuple(functions[name].splitlines()[1:-1]),
        others=tuple(function for other, function in functions.items() if other != name),
    )


def readable(bitcode: bytes) -> bytes:
    """Return bitcode with a data layout that LLVM still takes.

    Shaders with numbers of minimum precision state that bytes are aligned to 32 bits, which LLVM now refuses. The
    layout does not matter, since that of the processor replaces it. It is a record without an abbreviation, at any bit:
    each letter is two groups of six bits, five of the letter and one that says whether more follow, lowest first.
    """
    bits = format(int.from_bytes(bitcode, "little"), f"0{8 * len(bitcode)}b")[::-1]
    found = bits.replace(_letters("-i8:32-"), _letters("-i8:08-"))
    return bitcode if found == bits else int(found[::-1], 2).to_bytes(len(bitcode), "little")


def _letters(text: str) -> str:
    groups = [group for letter in text.encode() for group in (letter & 31 | 32, letter >> 5)]
    return "".join(format(group, "06b")[::-1] for group in groups)


def _functions(text: str) -> list[tuple[str, str]]:
    found = re.findall(r"^(define [^\n]*?(@[^\s(]+)\([^\n]*\n.*?^\}$)", text, re.MULTILINE | re.DOTALL)
    return [(name, whole) for whole, name in found]


def _elements(body: str) -> list[str]:
    return [part.strip() for part in body.split(", ")] if body else []


def _number(reference: str) -> int:
    return int(reference.removeprefix("!"))


def _integer(element: str) -> int:
    return int(element.split()[-1])


def _ranges(resources: list[str], nodes: dict[int, list[str]]) -> list[ResourceRange]:
    if not resources:
        return []
    found = []
    for of, reference in zip(ResourceClass, nodes[_number(resources[0])][:3], strict=True):
        members = [] if reference == "null" else nodes[_number(reference)]
        found += [_range(of, nodes[_number(member)], nodes) for member in members]
    return found


def _range(of: ResourceClass, node: list[str], nodes: dict[int, list[str]]) -> ResourceRange:
    identifier, space, register, count = (_integer(node[index]) for index in (0, 3, 4, 5))
    if of is ResourceClass.CBV:
        return ResourceRange(of, identifier, space, register, count, ResourceKind.CONSTANTS)
    shape = _integer(node[6])
    if shape not in tuple(ResourceKind):
        raise UnsupportedShaderError(f"register {register} of {of.name} is a texture of shape {shape}, not a buffer")
    tags = [] if node[-1] == "null" else [_integer(element) for element in nodes[_number(node[-1])]]
    pairs = dict(zip(tags[::2], tags[1::2], strict=True))
    stride, is_float = pairs.get(_STRUCTURE_TAG, 0), pairs.get(_ELEMENT_TAG) in _FLOAT_ELEMENTS
    return ResourceRange(of, identifier, space, register, count, ResourceKind(shape), stride, is_float)


def _group(properties: list[str], nodes: dict[int, list[str]]) -> tuple[int, int, int]:
    for tag, value in zip(properties[::2], properties[1::2], strict=True):
        if _integer(tag) == _NUM_THREADS_TAG:
            x, y, z = (_integer(element) for element in nodes[_number(value)])
            return x, y, z
    raise UnsupportedShaderError("the shader states no size of its thread groups: it is not a compute shader")
