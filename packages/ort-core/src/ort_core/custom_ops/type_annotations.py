"""Annotations of inputs and outputs as ONNX type texts and type variables.

NDArray[np.float32]                   tensor(float)
NDArray[np.float32 | np.float64]      a type variable of its own with two types
NDArray[np.floating]                  the same with every floating-point type of numpy
T = TypeVar("T", np.float32, np.float64);  NDArray[T]     the type variable T, shared by all that are annotated so
NDArray[np.str_]                      tensor(string): an array of dtype object
np.ndarray, or no annotation          any tensor
list[NDArray[np.float32]]             seq(tensor(float))
Annotated[dict, "map(string,float)"]  the type that the text names
"""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar, Union

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.frozen import frozen
from ort_core.ir.types import DataType
from ort_core.ops.type_text import parse_type

ALL_TENSORS = frozenset(f"tensor({t.text})" for t in DataType if t is not DataType.UNDEFINED)
_STRINGS = (np.str_, np.object_, str)


@frozen
class AnnotatedType:
    """What one annotation says: ``texts`` are the allowed types, ``variable`` names the type variable they share.

    Without a variable and with one text the type is fixed.
    """

    texts: frozenset[str]
    variable: str | None = None


def read_type(annotation: object, where: str) -> AnnotatedType:
    """Return what an annotation of an input or output means.

    Raises:
        InvalidArgument: it is none of the forms above; the message lists them.
    """
    annotation = without_aliases(annotation)
    if annotation is Any or annotation is np.ndarray or annotation is None:
        return AnnotatedType(ALL_TENSORS)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _from_text(arguments[1:], where)
    if origin is np.ndarray:
        return _from_element(typing.get_args(arguments[1])[0], where)
    if origin in (list, Sequence):
        element = read_type(arguments[0], where)
        return AnnotatedType(frozenset(f"seq({text})" for text in element.texts))
    if is_union(annotation):
        parts = [read_type(part, where) for part in arguments]
        return AnnotatedType(frozenset().union(*(part.texts for part in parts)))
    raise InvalidArgument(
        f"{where} is annotated with {annotation!r}, not a type of ONNX. Write numpy.typing.NDArray[np.float32], "
        "NDArray[T] with a TypeVar of element types, np.ndarray for any tensor, list[NDArray[...]] for a sequence, or "
        "Annotated[object, 'seq(tensor(string))']; attributes are keyword-only parameters (behind a *)."
    )


def without_aliases(annotation: Any) -> Any:  # Any: annotations are any objects
    """Return what an alias of PEP 695 stands for (``type Vector = ...``); numpy's NDArray is one since numpy 2.5."""
    origin = typing.get_origin(annotation)
    if hasattr(origin, "__value__"):  # asked first: what is subscripted has its origin's attributes, too
        return without_aliases(origin.__value__[typing.get_args(annotation)])
    return without_aliases(annotation.__value__) if hasattr(annotation, "__value__") else annotation


def without_none(annotation: object) -> tuple[object, bool]:
    """Return an annotation without ``None`` in its union, and whether it was there."""
    annotation = without_aliases(annotation)
    if not is_union(annotation):
        return annotation, False
    parts = [part for part in typing.get_args(annotation) if part is not type(None)]
    if len(parts) == len(typing.get_args(annotation)):
        return annotation, False
    return Union[tuple(parts)], True  # noqa: UP007 - a union of parts that are only known here


def is_union(annotation: object) -> bool:
    """Return whether an annotation is ``A | B``, in either spelling."""
    return typing.get_origin(annotation) in (Union, types.UnionType)


def _from_text(extras: Sequence[object], where: str) -> AnnotatedType:
    text = next((extra for extra in extras if isinstance(extra, str)), None)
    if text is None or parse_type(text) is None:
        raise InvalidArgument(
            f"{where} is annotated with {text!r}, which names no ONNX type such as 'tensor(float)' or "
            "'map(string,float)'"
        )
    return AnnotatedType(frozenset({text.replace(" ", "")}))


def _from_element(element: object, where: str) -> AnnotatedType:
    element = without_aliases(element)
    if isinstance(element, TypeVar):
        choices = element.__constraints__ or ((element.__bound__,) if element.__bound__ is not None else (Any,))
        texts = frozenset().union(*(_element_texts(choice, where) for choice in choices))
        return AnnotatedType(texts, element.__name__)
    return AnnotatedType(_element_texts(element, where))


def _element_texts(element: object, where: str) -> frozenset[str]:
    element = without_aliases(element)
    if element is Any or element is np.generic:
        return ALL_TENSORS
    if is_union(element):
        return frozenset().union(*(_element_texts(part, where) for part in typing.get_args(element)))
    if element in _STRINGS:
        return frozenset({"tensor(string)"})
    if isinstance(element, type):
        found = frozenset(f"tensor({t.text})" for t in _data_types_of(element))
        if found:
            return found
    raise InvalidArgument(f"{where} has elements of {element!r}, which is not an element type of ONNX")


def _data_types_of(element: type) -> list[DataType]:
    if not issubclass(element, np.generic):
        try:
            return [DataType.from_numpy(np.dtype(element))]  # a scalar type of ml_dtypes
        except (TypeError, ValueError):
            return []
    known = [t for t in DataType if t not in (DataType.UNDEFINED, DataType.STRING)]
    return [t for t in known if issubclass(t.numpy.type, element)]
