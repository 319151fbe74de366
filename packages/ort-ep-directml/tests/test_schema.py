"""The tables of DirectML: numbers, layouts, types; and what the real library says to each of them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from directml_rig.single import Bench
from lowered_plans import LEVEL, plans, programs

from ort_core.plugin import EPFail
from ort_ep_directml.graph import create_operator
from ort_ep_directml.lowering.plan import PlanNode, Scalar, Source, Tensor
from ort_ep_directml.schema.element_types import ElementType
from ort_ep_directml.schema.enumerators import ReduceFunction
from ort_ep_directml.schema.operators import OPERATORS, level_text, parse_level
from ort_ep_directml.schema.structs import structure_of
from ort_ep_directml.schema.tensor_types import TENSOR_TYPES

TYPES = [each for each in ElementType if each.bits > 4]


@pytest.mark.parametrize(
    ("name", "number", "level"),
    [
        ("ELEMENT_WISE_IDENTITY", 1, "1.0"),
        ("CONVOLUTION", 53, "1.0"),
        ("GRU", 78, "1.0"),
        ("RESAMPLE", 96, "2.0"),
        ("QUANTIZED_LINEAR_CONVOLUTION", 120, "2.1"),
        ("GATHER_ND1", 140, "3.0"),
        ("MULTIHEAD_ATTENTION", 164, "6.1"),
        ("UNFOLD", 177, "6.4"),
    ],
)
def test_operators_have_the_numbers_of_the_header(name, number, level):
    assert (OPERATORS[name].number, level_text(OPERATORS[name].level)) == (number, level)


def test_a_level_is_read_as_it_is_written():
    assert parse_level("5.2") == 0x5200
    assert level_text(0x6400) == "6.4"


@pytest.mark.parametrize(
    ("name", "size"),
    [("ELEMENT_WISE_ADD", 24), ("GEMM", 56), ("CONVOLUTION", 104), ("FILL_VALUE_CONSTANT", 24), ("LSTM", 120)],
)
def test_structures_have_the_sizes_that_c_gives_them(name, size):
    # Counted by hand: pointers of 8 bytes, numbers of 4, a union of 8, each where its own size divides
    assert ctypes.sizeof(structure_of(name)) == size


def test_every_line_of_types_names_tensors_of_its_operator():
    for key, types in TENSOR_TYPES.items():
        named = [name for names, _ in types.groups for name in names]
        tensors = [field.name for field in OPERATORS[key.partition(".")[0]].fields if field.is_input or field.is_output]
        assert sorted(named) == sorted(tensors), key


def samples() -> Mapping[str, PlanNode]:
    """One node of each operator that the goldens hold; of reductions one for each function."""
    found: dict[str, PlanNode] = {}
    for members in programs().values():
        for text, opset in members.values():
            for node in (node for plan in plans(text, opset, LEVEL) for node in plan.nodes):
                function = node.fields.get("Function")
                suffix = f".{ReduceFunction(function).name}" if isinstance(function, int) else ""
                found.setdefault(node.kind + suffix, node)
    return found


def retyped(node: PlanNode, names: tuple[str, ...], dtype: ElementType) -> PlanNode:
    """A node with another element type for some of its tensors, and for numbers that have their type."""
    fields = dict(node.fields)
    for name in names:
        value = fields.get(name)
        if isinstance(value, Tensor):
            fields[name] = replace(value, dtype=dtype)
        elif isinstance(value, tuple):
            fields[name] = tuple(replace(each, dtype=dtype) for each in value)
    for field in OPERATORS[node.kind].fields:
        value = fields.get(field.name)
        if isinstance(value, Scalar):
            fields[field.name] = Scalar(dtype, 0)
        elif field.kind == "type" and value is not None:
            fields[field.name] = int(dtype)
    return replace(node, fields=fields)


def disagreements(device, node: PlanNode, key: str) -> Iterator[str]:
    for names, types in TENSOR_TYPES[key].groups:
        if not any(name in node.fields for name in names):
            continue
        for dtype in TYPES:
            try:
                create_operator(device, retyped(node, names, dtype), []).release()
                is_taken = True
            except EPFail:
                is_taken = False
            if is_taken != (types.get(dtype, LEVEL + 1) <= LEVEL):
                yield f"{key}: {', '.join(names)} as {dtype.text}: {'taken' if is_taken else 'not taken'}"


def test_the_library_takes_the_types_of_the_table_and_no_others(rig):
    device = Bench(rig).directml
    wrong = [line for key, node in samples().items() for line in disagreements(device, node, key)]
    assert not wrong, "\n".join(wrong)


def test_every_operator_takes_inputs_that_the_library_owns_but_recurrent_ones(rig):
    device = Bench(rig).directml
    refused = set()
    for node in samples().values():
        for place, source in enumerate(node.sources):
            if source is None:
                continue
            sources = tuple(None if each is None else Source("input", port) for port, each in enumerate(node.sources))
            owned = sources[place]
            assert owned is not None
            try:
                create_operator(device, replace(node, sources=sources), [], frozenset({owned})).release()
            except EPFail:
                refused.add(node.kind)
    assert refused == {"RNN", "GRU", "LSTM"}
