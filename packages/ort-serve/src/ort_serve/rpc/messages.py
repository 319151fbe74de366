"""Message classes of the protocol, built from the table in ``schema``."""

from __future__ import annotations

import re
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from ort_serve.rpc.schema import ENUMS, MESSAGES

_PACKAGE = "inference"
_ONEOF = "parameter_choice"
_FIELD = re.compile(r"(\d+) (\w+) (\{?)([.\w]+)\}?([*|]?)")
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": _Field.TYPE_BOOL, "bytes": _Field.TYPE_BYTES, "double": _Field.TYPE_DOUBLE, "float": _Field.TYPE_FLOAT,
    "int32": _Field.TYPE_INT32, "int64": _Field.TYPE_INT64, "string": _Field.TYPE_STRING, "uint32": _Field.TYPE_UINT32,
    "uint64": _Field.TYPE_UINT64,
}  # fmt: skip


class Messages:
    """The classes of all messages, by name: ``MESSAGE_CLASSES.get("ServerLiveRequest")``."""

    def __init__(self) -> None:
        pool = descriptor_pool.DescriptorPool()
        pool.Add(_file())
        self._pool = pool

    def get(self, name: str) -> Any:
        """Return a message class; its fields are known only to protobuf."""
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="ort_serve/open_inference.proto", package=_PACKAGE, syntax="proto3")
    for name, values in ENUMS.items():
        enum = file.enum_type.add(name=name)
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)
    known: dict[str, descriptor_pb2.DescriptorProto] = {}
    for line in MESSAGES.strip().splitlines():
        name, _, fields = line.partition(":")
        outer, _, inner = name.rpartition(".")
        message = known[outer].nested_type.add(name=inner) if outer else file.message_type.add(name=name)
        known[name] = message
        for number, field, is_map, kind, mark in _FIELD.findall(fields):
            _add_field(message, name, int(number), field, kind, mark, bool(is_map))
    return file


def _add_field(
    message: descriptor_pb2.DescriptorProto, owner: str, number: int, name: str, kind: str, mark: str, is_map: bool
) -> None:
    field = message.field.add(name=name, number=number)
    field.label = _Field.LABEL_REPEATED if mark == "*" or is_map else _Field.LABEL_OPTIONAL
    if is_map:
        entry = _add_entry(message, owner, name, kind)
        field.type, field.type_name = _Field.TYPE_MESSAGE, entry
        return
    _set_type(field, owner, kind)
    if mark == "|":
        if not message.oneof_decl:
            message.oneof_decl.add(name="policy_choice" if owner == "ModelVersionPolicy" else _ONEOF)
        field.oneof_index = 0


def _add_entry(message: descriptor_pb2.DescriptorProto, owner: str, name: str, kind: str) -> str:
    """Add the message of a map's entries, and return its full name."""
    title = "".join(part.capitalize() for part in name.split("_")) + "Entry"
    entry = message.nested_type.add(name=title)
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL)
    _set_type(entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL), owner, kind)
    return f".{_PACKAGE}.{owner}.{title}"


def _set_type(field: descriptor_pb2.FieldDescriptorProto, owner: str, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
        return
    field.type = _Field.TYPE_ENUM if kind in ENUMS else _Field.TYPE_MESSAGE
    field.type_name = f".{_PACKAGE}.{owner}{kind}" if kind.startswith(".") else f".{_PACKAGE}.{kind}"


MESSAGE_CLASSES = Messages()
