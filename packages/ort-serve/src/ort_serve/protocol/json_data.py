"""Tensors as JSON's lists: flat in row-major order, or nested."""

from __future__ import annotations

import itertools

import numpy as np

from ort_serve.failures import InvalidRequest
from ort_serve.protocol.datatypes import Datatype, count_of, text_of

_KINDS = {"b": "booleans", "i": "integers", "u": "integers", "f": "numbers", "V": "numbers", "O": "strings"}

_INEXACT = 2.0**53  # from here on several integers are one float64


def array_from_json(name: str, datatype: Datatype, shape: tuple[int, ...], data: object) -> np.ndarray:
    """Return the tensor of a JSON list.

    Raises:
        InvalidRequest: it is ragged, has another count than the shape, or elements that the type cannot hold.
    """
    if not isinstance(data, list):
        raise InvalidRequest(f"input {name!r}: data must be a list; found {type(data).__name__}")
    flat = _strings(name, data) if datatype.is_text else _numbers(name, datatype, data)
    if flat.size != count_of(shape):
        raise InvalidRequest(f"input {name!r}: {flat.size} elements, shape {list(shape)} has {count_of(shape)}")
    return flat.reshape(shape)


def array_to_json(array: np.ndarray) -> list[object]:
    """Return a tensor's elements as one flat list."""
    flat = array.reshape(-1)
    if flat.dtype.kind in "OSU":
        return [text_of(item) for item in flat]
    return list((flat.astype(np.float32) if flat.dtype.kind == "V" else flat).tolist())


def _numbers(name: str, datatype: Datatype, data: list[object]) -> np.ndarray:
    _refuse_texts(name, datatype, data)
    try:
        found = np.array(data) if data else np.empty(0, datatype.dtype)
    except (ValueError, OverflowError) as error:  # ragged lists, or nested deeper than numpy goes
        raise InvalidRequest(f"input {name!r}: data is not one tensor of {datatype.name}: {error}") from error
    if found.dtype.kind == "O" and all(type(item) is int for item in found.flat):
        raise InvalidRequest(f"input {name!r}: an element is beyond the range of {datatype.name}")
    if found.size == 0:
        return np.empty(0, datatype.dtype)
    if datatype.dtype.kind in "iu" and found.dtype.kind == "f":
        found = _exact(found, data)
    if found.dtype.kind not in "biuf" or (datatype.name == "BOOL" and found.dtype.kind == "f"):
        raise _others(name, datatype)
    if datatype.dtype.kind in "iu":
        _need_integers(name, datatype, found)
    with np.errstate(over="ignore", invalid="ignore"):  # a number too large for a half is infinite there
        return found.astype(datatype.dtype)


def _refuse_texts(name: str, datatype: Datatype, data: list[object]) -> None:
    """Refuse texts before numpy sees them: it gives each element the width of the longest."""
    level: list[object] = data
    while level:
        kinds = set(map(type, level))
        if any(issubclass(kind, (str, bytes)) for kind in kinds):
            raise _others(name, datatype)
        lists = [item for item in level if isinstance(item, list)] if list in kinds else []
        level = list(itertools.chain.from_iterable(lists))


def _others(name: str, datatype: Datatype) -> InvalidRequest:
    return InvalidRequest(
        f"input {name!r}: {datatype.name} takes {_KINDS[datatype.dtype.kind]}; found others among the elements"
    )


def _exact(found: np.ndarray, data: list[object]) -> np.ndarray:
    """Return integers of 64 bits as they are: beside smaller ones numpy takes those above 2**63 for fractions."""
    items = np.array(data, object)
    is_whole = all(type(item) is int and 0 <= item < 2**64 for item in items.flat)
    return items.astype(np.uint64) if is_whole else found


def _need_integers(name: str, datatype: Datatype, found: np.ndarray) -> None:
    limits = np.iinfo(datatype.dtype)
    if found.dtype.kind == "f" and not (np.isfinite(found).all() and (found == np.trunc(found)).all()):
        raise InvalidRequest(f"input {name!r}: {datatype.name} takes integers; found fractions")
    if found.dtype.kind != "b" and (int(found.min()) < int(limits.min) or int(found.max()) > int(limits.max)):
        raise InvalidRequest(f"input {name!r}: an element is beyond {datatype.name}'s {limits.min} to {limits.max}")
    if found.dtype.kind == "f" and np.abs(found).max() >= _INEXACT:
        raise InvalidRequest(
            f"input {name!r}: {datatype.name} has elements beyond 2**53 beside fractions, or beyond 64 bits, which are "
            "rounded when JSON is read; write all as integers within the range, or send binary data"
        )


def _strings(name: str, data: list[object]) -> np.ndarray:
    found: list[str] = []
    waiting: list[object] = list(reversed(data))
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting.extend(reversed(item))
        elif isinstance(item, str):
            if not item.isascii() and text_of(item) != item:
                raise InvalidRequest(f"input {name!r}: {item[:40]!a} is no Unicode: it has half of a surrogate pair")
            found.append(item)
        else:
            raise InvalidRequest(f"input {name!r}: BYTES takes strings; found {type(item).__name__}")
    array = np.empty(len(found), object)
    array[:] = found
    return array
