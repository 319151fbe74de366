"""Rows of tokens by expert: each token asks for the same number of experts, and each expert gets its rows in one piece.

A slot is a pair of a token and one of the experts it asks for, numbered token by token. Slots are sorted by expert, in
their order: ``starts`` says where the rows of each expert begin, ``places`` which row a slot got, ``tokens`` whose row
it is.
"""

from __future__ import annotations

from ort_core.cpu.codegen.llvm_ir.deferred_kernel import DeferredKernel, deferred_kernel
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, vector_type
from ort_core.cpu.codegen.llvm_ir.vectors import each_vector, load_vector, store_vector, zero
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS, share


def sorting_kernel(*, is_checked: bool = False) -> DeferredKernel:
    """Return the kernel that sorts slots by expert; its first piece does all of it.

    The argument table: starts (one more than there are experts), places, tokens, the expert of each slot (all int64),
    how many slots there are, how many experts, and how many slots a token has. No expert may be out of range, unless
    it ``is_checked``: then negative ones count from the end, the address of an error word is the last argument, and
    an expert out of range sets it and counts as the first one.
    """
    facts = "checked" if is_checked else ""
    return deferred_kernel("experts_sorted", facts, lambda name: [_sorting(name, is_checked)], is_joined=True)


def _sorting(name: str, is_checked: bool) -> Emitter:
    e = Emitter(name, KERNEL_PARAMETERS)
    args = e.parameter("args")
    starts, places, tokens, chosen = (e.argument(args, i, "ptr") for i in range(4))
    slots, experts, each = (e.argument(args, i) for i in range(4, 7))
    error = e.argument(args, 7, "ptr") if is_checked else None

    def expert_of(slot: IRValue) -> IRValue:
        expert = _read(e, chosen, slot)
        return expert if error is None else _checked(e, expert, experts, error)

    with e.when(e.compare("eq", e.parameter("piece"), 0)):
        with e.loop(0, e.add(experts, 1), unroll=False, hint="expert") as expert:
            _write(e, starts, expert, integer(0))
        with e.loop(0, slots, unroll=False, hint="slot") as slot:
            behind = e.add(expert_of(slot), 1)
            _write(e, starts, behind, e.add(_read(e, starts, behind), 1))
        with e.loop(0, experts, unroll=False, hint="expert") as expert:
            behind = e.add(expert, 1)
            _write(e, starts, behind, e.add(_read(e, starts, behind), _read(e, starts, expert)))
        with e.loop(0, slots, unroll=False, hint="slot") as slot:
            expert = expert_of(slot)
            row = _read(e, starts, expert)
            _write(e, places, slot, row)
            _write(e, tokens, row, e.udiv(slot, each))
            _write(e, starts, expert, e.add(row, 1))
        with e.loop(0, experts, unroll=False, hint="expert") as done:  # each start is that of the next one by now
            expert = e.sub(experts, done)
            _write(e, starts, expert, _read(e, starts, e.sub(expert, 1)))
        _write(e, starts, integer(0), integer(0))
    return e


def _checked(emitter: Emitter, expert: IRValue, experts: IRValue, error: IRValue) -> IRValue:
    """Return an expert counted from the first one; one that there is not sets the error word."""
    negative = emitter.compare("slt", expert, 0)
    expert = emitter.select(negative, emitter.add(expert, experts), expert)
    inside = emitter.compare("ult", expert, experts)  # unsigned: a negative one is huge
    with emitter.when(emitter.compare("eq", inside, 0)):
        emitter.store(integer(1), error, 8)
    return emitter.select(inside, expert, integer(0))


def _read(emitter: Emitter, table: IRValue, index: IRValue) -> IRValue:
    return emitter.load("i64", emitter.element(table, index, "i64"))


def _write(emitter: Emitter, table: IRValue, index: IRValue, value: IRValue) -> None:
    emitter.store(value, emitter.element(table, index, "i64"))


def mixing_kernel(target: Target) -> DeferredKernel:
    """Return the kernel ``out[t, :] = sum over i of weights[t, i] * rows[places[t, i], :]``, in the order of ``i``.

    The argument table: out, rows, weights (float32), places (int64), how many tokens there are, how many slots a token
    has, and the width of a row. All are row-major.
    """
    return deferred_kernel("experts_mixed", "", lambda name: [_mixing(name, target)], is_joined=True)


def _mixing(name: str, target: Target) -> Emitter:
    e, lanes = Emitter(name, KERNEL_PARAMETERS), target.lanes
    args = e.parameter("args")
    out, rows, weights, places = (e.argument(args, i, "ptr") for i in range(4))
    tokens, each, width = (e.argument(args, i) for i in range(4, 7))
    type_ = vector_type(lanes, "float")
    first, last = share(e, tokens)
    with e.loop(first, last, unroll=False, hint="token") as token:
        start, row = e.mul(token, each), e.element(out, e.mul(token, width))

        def mix(column: IRValue, mask: IRValue | None) -> None:
            total = e.variable(type_, zero(type_), "total")
            with e.loop(start, e.add(start, each), unroll=False, hint="slot") as slot:
                weight = e.splat(e.load("float", e.element(weights, slot)), lanes)
                source = e.element(rows, e.add(e.mul(_read(e, places, slot), width), column))
                part = e.binary("fmul", weight, load_vector(e, source, lanes, mask))
                e.store(e.binary("fadd", e.load(type_, total), part), total)
            store_vector(e, e.load(type_, total), e.element(row, column), mask)

        each_vector(e, width, lanes, mix)
    return e
