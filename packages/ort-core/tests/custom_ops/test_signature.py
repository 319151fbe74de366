"""Annotations become schemas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from typing_extensions import TypeAliasType

from ort_core import custom_op
from ort_core.custom_ops.op_signature import read_signature
from ort_core.errors import InvalidArgument
from ort_core.ir.attributes import AttributeKind
from ort_core.ops.schema import ParameterOption

T = TypeVar("T", np.float32, np.float64)
B = TypeVar("B", bound=np.signedinteger)


def test_positional_parameters_are_inputs_and_the_result_is_the_output() -> None:
    def f(x: NDArray[T], i: NDArray[np.int64], s: NDArray[np.str_], h: NDArray[ml_dtypes.bfloat16]) -> NDArray[T]: ...

    found = read_signature(f)
    assert [p.type_text for p in found.inputs] == ["T", "tensor(int64)", "tensor(string)", "tensor(bfloat16)"]
    assert [p.name for p in found.inputs] == ["x", "i", "s", "h"]
    assert [(p.name, p.type_text) for p in found.outputs] == [("y", "T")]
    assert found.type_constraints == {"T": {"tensor(float)", "tensor(double)"}}


def test_an_alias_is_what_it_stands_for() -> None:
    """As ``type`` makes them from Python 3.12 on, and as numpy's own NDArray is from numpy 2.5 on."""
    array = TypeAliasType("array", np.ndarray[Any, np.dtype[T]], type_params=(T,))
    counts = TypeAliasType("counts", array[np.int64])  # type: ignore[valid-type]  # made at run time
    both = TypeAliasType("both", np.float32 | np.int8)

    def f(x, rest=None, *more, scales=()): ...

    f.__annotations__ = {
        "x": array[T], "rest": counts | None, "more": array[both], "scales": list[float],
        "return": tuple[counts, array[T]]
    }  # fmt: skip
    found = read_signature(f)
    assert [p.type_text for p in found.inputs] == ["T", "tensor(int64)", "T_more"]
    assert found.type_constraints["T_more"] == {"tensor(float)", "tensor(int8)"}
    assert found.inputs[1].option is ParameterOption.OPTIONAL
    assert [p.type_text for p in found.outputs] == ["tensor(int64)", "T"]


def test_none_makes_an_input_optional_and_a_star_makes_it_variadic() -> None:
    def f(x: NDArray[T], bias: NDArray[T] | None = None, *rest: NDArray[T]) -> NDArray[T]: ...

    options = [p.option for p in read_signature(f).inputs]
    assert options == [ParameterOption.SINGLE, ParameterOption.OPTIONAL, ParameterOption.VARIADIC]


def test_a_tuple_is_several_outputs_and_an_ellipsis_any_number() -> None:
    def two(x: NDArray[T]) -> tuple[NDArray[T], NDArray[np.int64] | None]: ...
    def many(x: NDArray[T]) -> tuple[NDArray[T], ...]: ...

    outputs = read_signature(two).outputs
    assert [(p.name, p.type_text) for p in outputs] == [("y0", "T"), ("y1", "tensor(int64)")]
    assert outputs[1].option is ParameterOption.OPTIONAL
    assert read_signature(many).outputs[0].option is ParameterOption.VARIADIC


def test_inputs_without_a_type_variable_of_their_own_may_differ() -> None:
    def f(x: np.ndarray, y, *rest: NDArray[Any]) -> np.ndarray: ...

    found = read_signature(f)
    assert [p.is_homogeneous for p in found.inputs] == [False, False, False]
    assert len({p.type_text for p in found.inputs}) == 3
    assert "tensor(string)" in found.type_constraints["T_x"]


def test_unions_bounds_and_abstract_types_name_several_element_types() -> None:
    def f(a: NDArray[np.float32 | np.int8], b: NDArray[np.floating], c: NDArray[B]) -> NDArray[B]: ...

    found = read_signature(f).type_constraints
    assert found["T_a"] == {"tensor(float)", "tensor(int8)"}
    assert found["T_b"] == {"tensor(float)", "tensor(double)", "tensor(float16)"}
    assert found["B"] == {"tensor(int8)", "tensor(int16)", "tensor(int32)", "tensor(int64)"}


def test_sequences_and_named_types_are_read() -> None:
    def f(x: list[NDArray[np.float32]], m: Annotated[dict, "map(string, float)"]) -> list[NDArray[np.float32]]: ...

    found = read_signature(f)
    assert [p.type_text for p in found.inputs] == ["seq(tensor(float))", "map(string,float)"]


def test_keyword_only_parameters_are_attributes_with_their_defaults() -> None:
    def f(
        x: NDArray[T], *, axis: int, cap: float = 3, mode: str = "up", on: bool = True, sizes: Sequence[int] = (1, 2),
        table: np.ndarray, names: list[str] | None = None, plain=2.5, ctx,
    ) -> NDArray[T]: ...  # fmt: skip

    found = read_signature(f)
    kinds = {name: schema.kind.name for name, schema in found.attributes.items()}
    assert kinds == {
        "axis": "INT", "cap": "FLOAT", "mode": "STRING", "on": "INT", "sizes": "INTS", "table": "TENSOR",
        "names": "STRINGS", "plain": "FLOAT",
    }  # fmt: skip
    assert {name for name, schema in found.attributes.items() if schema.is_required} == {"axis", "table"}
    assert found.attributes["cap"].default.value == 3.0
    assert found.attributes["on"].default.kind is AttributeKind.INT
    assert found.attributes["names"].default is None
    assert found.booleans == {"on"}
    assert found.handed_in == {"ctx"}


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x, axis=1: x, r"input 'axis'.*keyword-only"),
        (lambda x, **kw: x, r"takes \*\*kw"),
        (lambda x, *, a: x, r"attribute 'a'.*annotated with None"),
    ],
)
def test_a_signature_without_meaning_is_refused_with_advice(function, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        custom_op("com.acme", "Bad")(function)


def test_an_annotation_that_is_no_type_of_onnx_is_refused() -> None:
    def takes_text(x: str) -> NDArray[T]: ...
    def returns_nothing(x: NDArray[T]) -> None: ...
    def no_element(x: NDArray[np.datetime64]) -> NDArray[T]: ...
    def no_text(x: Annotated[list, "list of floats"]) -> NDArray[T]: ...

    for function, reason in (
        (takes_text, "input 'x' of .*takes_text is annotated with <class 'str'>"),
        (returns_nothing, "at least one output"),
        (no_element, "not an element type"),
        (no_text, "names no ONNX type"),
    ):
        with pytest.raises(InvalidArgument, match=reason):
            read_signature(function)


@pytest.mark.parametrize(("domain", "name", "since"), [("a", "", 1), ("a", "no-dash", 1), ("a", "Op", 0), (1, "Op", 1)])
def test_names_and_versions_are_checked(domain, name, since) -> None:
    with pytest.raises(InvalidArgument):
        custom_op(domain, name, since)(lambda x: x)
