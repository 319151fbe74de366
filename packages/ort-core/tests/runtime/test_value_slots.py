"""Slots: numbers of values, what a run starts with, and which step frees what."""

from __future__ import annotations

from ort_core.memory.liveness import StepUse
from ort_core.memory.slots import ABSENT, SlotUse, ValueSlots
from ort_core.testing.models import model_of

TEXT = """
g (float[2] x, float[2] y) => (float[2] z) <float[2] w = {1, 2}> {
  a = Add(x, w)
  b = Mul(a, y)
  c = Neg(a)
  z = Sub(b, c)
}
"""


def test_inputs_come_first_constants_are_there_from_the_start_and_steps_free_what_nobody_needs() -> None:
    graph = model_of(TEXT).graph
    slots = ValueSlots(graph)
    uses = slots.uses([StepUse(node.inputs, node.outputs) for node in graph])
    x, y, w, a, b, c, z = range(7)
    assert uses == [
        SlotUse((x, w), (a,), ()), SlotUse((a, y), (b,), ()), SlotUse((a,), (c,), (a,)), SlotUse((b, c), (z,), (b, c)),
    ]  # fmt: skip
    start = slots.template()
    assert [index for index, value in enumerate(start) if value is not None] == [w]
    assert start[ABSENT] is None
    assert slots.of(graph.outputs) == (z,)
    assert not slots.captures


def test_what_is_left_out_reads_nothing_and_is_never_freed() -> None:
    graph = model_of("g (float[4] x) => (float[4] y) { y = Clip(x, , ) }").graph
    (node,) = graph.nodes
    slots = ValueSlots(graph)
    (use,) = slots.uses([StepUse((*node.inputs, None), (*node.outputs, None))])
    assert use.reads[-1] == use.writes[-1] == ABSENT
    assert use.frees == ()
    assert len(slots.template()) == 3, "x, y and what is absent"


def test_a_body_captures_values_of_the_graph_around_it_by_slot() -> None:
    graph = model_of(
        "g (bool c, float[2] x) => (float[2] y) { "
        "y = If(c) <then_branch = t () => (float[2] p) { p = Neg(x) }, "
        "else_branch = e () => (float[2] q) { q = Abs(x) }> }"
    ).graph
    (node,) = graph.nodes
    body = next(iter(node.subgraphs()))
    slots = ValueSlots(body)
    slots.uses([StepUse(each.inputs, each.outputs) for each in body])
    assert [(value.name, slot) for value, slot in slots.captures] == [("x", 0)]
