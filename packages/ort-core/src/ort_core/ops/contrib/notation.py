"""A compact notation for operator schemas, and its parser.

    BiasGelu(A:T B:T) -> (C:T) | | T: bfloat16 double float float16
    Pad(data:T pads:tensor(int64) value:T?) -> (output:T) | mode:string=constant | T: double float float16

An entry starts in the first column, indented lines continue it. A parameter is ``name:type`` with ``?`` when
optional, ``*`` when it repeats and ``~`` when its repetitions may differ in type. An attribute is ``name:kind`` with
``!`` when required or ``=default``. A constraint lists element types of tensors, full type texts, or a group below.
``Affine@10!`` is version 10 of an operator, which is deprecated from then on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from ort_core.ir.attributes import Attribute, AttributeKind
from ort_core.ops.schema import AttributeSchema, OpSchema, Parameter, ParameterOption

GROUPS = {
    "NUMBERS_AND_BOOL": "bfloat16 bool double float float16 int16 int32 int64 int8 uint16 uint32 uint64 uint8",
    "NUMBERS": "bfloat16 double float float16 int16 int32 int64 int8 uint16 uint32 uint64 uint8",
    "CLASSIC": (
        "bool complex128 complex64 double float float16 int16 int32 int64 int8 string uint16 uint32 uint64 uint8"
    ),
    "CLASSIC_BFLOAT16": (
        "bfloat16 bool complex128 complex64 double float float16 "
        "int16 int32 int64 int8 string uint16 uint32 uint64 uint8"
    ),
}
_KINDS = {kind.name.lower(): kind for kind in AttributeKind}
_OPTIONS = {"?": ParameterOption.OPTIONAL, "*": ParameterOption.VARIADIC}
_SIGNATURE = re.compile(r"(?P<name>\w+)(?:@(?P<since>\d+)(?P<gone>!)?)?\((?P<inputs>.*)\) -> \((?P<outputs>.*)\)$")


def parse_schemas(text: str, domain: str) -> Iterator[OpSchema]:
    """Yield the schemas of a text in this notation.

    Raises:
        ValueError: an entry is not of the form described above.
    """
    for entry in re.split(r"\n(?=\S)", text.strip("\n")):
        yield _parse_entry(" ".join(entry.split()), domain)


def _parse_entry(entry: str, domain: str) -> OpSchema:
    sections = [section.strip() for section in entry.split("|")]
    match = _SIGNATURE.match(sections[0])
    if match is None or len(sections) != 3:
        raise ValueError(f"not an operator schema: {entry!r}")
    attributes = (_parse_attribute(text) for text in sections[1].split())
    return OpSchema(
        match["name"],
        domain,
        int(match["since"] or 1),
        tuple(map(_parse_parameter, match["inputs"].split())),
        tuple(map(_parse_parameter, match["outputs"].split())),
        {attribute.name: attribute for attribute in attributes},
        dict(_parse_constraint(text) for text in sections[2].split(";") if text.strip()),
        match["gone"] is not None,
    )


def _parse_parameter(text: str) -> Parameter:
    name, _, rest = text.partition(":")
    is_homogeneous = not rest.endswith("~")
    rest = rest.rstrip("~")
    option = _OPTIONS.get(rest[-1], ParameterOption.SINGLE)
    type_text = rest if option is ParameterOption.SINGLE else rest[:-1]
    return Parameter(name, type_text, option, is_homogeneous, 1)


def _parse_attribute(text: str) -> AttributeSchema:
    head, equals, default = text.partition("=")
    name, _, kind_name = head.partition(":")
    kind = _KINDS[kind_name.rstrip("!")]
    value: object = None
    if equals:
        value = default
        if kind is AttributeKind.INT:
            value = int(default)
        elif kind is AttributeKind.FLOAT:
            value = float(np.float32(default))  # files hold float32: 1e-05 there is 9.99999974737875e-06
    return AttributeSchema(name, kind, kind_name.endswith("!"), Attribute(name, kind, value) if equals else None)


def _parse_constraint(text: str) -> tuple[str, frozenset[str]]:
    variable, _, allowed = text.strip().partition(":")
    names = " ".join(GROUPS.get(name, name) for name in allowed.split()).split()
    return variable, frozenset(name if "(" in name else f"tensor({name})" for name in names)
