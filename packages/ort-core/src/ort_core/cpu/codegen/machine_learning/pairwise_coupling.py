"""Probabilities of classes by coupling those of their pairs: Platt's scaling, then Wu, Lin and Weng (2004), method two.

    r_ij = 1 / (1 + exp(a_ij s_ij + b_ij)), r_ji = 1 - r_ij      that it is i, if it is i or j, by the decision s_ij
    p = argmin sum_ij (r_ji p_i - r_ij p_j)^2, sum p = 1         by sweeps in float64, class by class, until no part of
                                                                 the gradient is 0.005 / classes from its mean

One row at a time: classes are few, and rows stop after different numbers of sweeps.
"""

from __future__ import annotations

import struct

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer
from ort_core.cpu.codegen.llvm_ir.memoized import memoized
from ort_core.cpu.codegen.llvm_ir.scalar_printer import ScalarPrinter
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS, load_element, share
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import element, sigmoid

MAX_CLASSES = 20  # their matrix is 3.1 KiB on the stack: more than 4 KiB would ask for probes of it on Windows
_LEAST = 1e-7  # of a pair's probability: what libsvm clips to
_MIN_SWEEPS = 100
_CLOSE = 0.005
_TRUE = IRValue("i1", "true")


@memoized
def pairwise_coupling_kernel(classes: int) -> tuple[str, Emitter]:
    """Return the kernel's name and its function for 2 to ``MAX_CLASSES`` classes.

    The argument table: probabilities [rows, classes], decisions [rows, pairs], a [pairs], b [pairs] (float32), rows.
    Pairs are (0, 1), (0, 2), ..., (1, 2), ...; a positive decision is for the first of the two.
    """
    emitter = Emitter(f"coupled_classes_{classes}", KERNEL_PARAMETERS)
    args = emitter.parameter("args")
    results, decisions, scales, offsets = (emitter.argument(args, i, "ptr") for i in range(4))
    first, last = share(emitter, emitter.argument(args, 4))
    printer = _PairwiseCoupling(emitter, classes)
    with emitter.loop(first, last, unroll=False, hint="row") as row:
        pairs = classes * (classes - 1) // 2
        printer.quadratic(emitter.element(decisions, emitter.mul(row, pairs)), scales, offsets)
        printer.sweeps()
        printer.store(emitter.element(results, emitter.mul(row, classes)))
    return emitter.name, emitter


class _PairwiseCoupling:
    def __init__(self, emitter: Emitter, classes: int) -> None:
        self._e, self._classes, self._count = emitter, classes, integer(classes)
        self._matrix = emitter.variable(f"[{classes * classes} x double]", hint="matrix")
        self._chances = emitter.variable(f"[{classes} x double]", hint="chances")
        self._gradient = emitter.variable(f"[{classes} x double]", hint="gradient")
        self._objective = emitter.variable("double", hint="objective")

    def quadratic(self, decisions: IRValue, scales: IRValue, offsets: IRValue) -> None:
        """Set the matrix of the quadratic form, symmetric, and equal chances."""
        e, k = self._e, self._classes
        with e.loop(0, integer(k * k), hint="cell") as cell:
            e.store(_number(0.0), self._at(self._matrix, cell))
        with e.loop(0, self._count, hint="class") as each:
            e.store(_number(1.0 / k), self._at(self._chances, each))
        pair = e.variable("i64", integer(0), "pair")
        with (
            e.loop(0, self._count, unroll=False, hint="one") as i,
            e.loop(e.add(i, 1), self._count, unroll=False, hint="other") as j,
        ):
            at = e.load("i64", pair)
            wins = self._wins(*(load_element(e, each, at, DataType.FLOAT, 1) for each in (decisions, scales, offsets)))
            loses = self._do("fsub", _number(1.0), wins)
            both = self._do("fsub", _number(0.0), self._do("fmul", wins, loses))
            e.store(both, self._cell(i, j))
            e.store(both, self._cell(j, i))
            self._increase(self._cell(i, i), self._do("fmul", loses, loses))
            self._increase(self._cell(j, j), self._do("fmul", wins, wins))
            e.store(e.add(at, 1), pair)

    def sweeps(self) -> None:
        """Improve the chances class by class until they are close or enough was tried."""
        e = self._e
        going = e.variable("i1", _TRUE, "going")
        tried = e.variable("i64", integer(0), "tried")
        with e.repeat(going):
            is_far = e.assign("i1", f"fcmp oge double {self._distance().text}, {_number(_CLOSE / self._classes).text}")
            has_more = e.compare("slt", e.load("i64", tried), max(_MIN_SWEEPS, self._classes))
            e.store(e.assign("i1", f"and i1 {is_far.text}, {has_more.text}"), going)
            e.store(e.add(e.load("i64", tried), 1), tried)
            with e.when(e.load("i1", going)), e.loop(0, self._count, unroll=False, hint="class") as each:
                self._improve(each)

    def store(self, results: IRValue) -> None:
        """Store the chances as float32."""
        e = self._e
        with e.loop(0, self._count, hint="class") as each:
            chance = e.assign("float", f"fptrunc double {self._get(self._chances, each).text} to float")
            e.store(chance, e.element(results, each), 4)

    def _wins(self, decision: IRValue, scale: IRValue, offset: IRValue) -> IRValue:
        e = self._e
        operands = (decision, scale, offset)
        share_ = sigmoid(-(element(0, DataType.FLOAT) * element(1, DataType.FLOAT) + element(2, DataType.FLOAT)))
        value = ScalarPrinter(e, 1, operands.__getitem__).print(share_)
        wide = e.assign("double", f"fpext float {value.text} to double")
        for opcode, limit in (("olt", _number(_LEAST)), ("ogt", _number(1.0 - _LEAST))):  # a NaN stays
            wide = e.select(e.assign("i1", f"fcmp {opcode} double {wide.text}, {limit.text}"), limit, wide)
        return wide

    def _distance(self) -> IRValue:
        """Set gradient and objective; return how far one is from the other at most, 0 if all is NaN."""
        e = self._e
        e.store(_number(0.0), self._objective)
        with e.loop(0, self._count, unroll=False, hint="class") as i:
            total = e.variable("double", _number(0.0), "total")
            with e.loop(0, self._count, unroll=False, hint="other") as j:
                self._increase(total, self._do("fmul", e.load("double", self._cell(i, j)), self._get(self._chances, j)))
            e.store(e.load("double", total), self._at(self._gradient, i))
            self._increase(self._objective, self._do("fmul", e.load("double", total), self._get(self._chances, i)))
        most = e.variable("double", _number(0.0), "most")
        with e.loop(0, self._count, unroll=False, hint="class") as i:
            away = self._do("fsub", self._get(self._gradient, i), e.load("double", self._objective))
            away = e.call("double", "llvm.fabs.f64", away)
            known = e.load("double", most)
            is_more = e.assign("i1", f"fcmp ogt double {away.text}, {known.text}")
            e.store(e.select(is_more, away, known), most)
        return e.load("double", most)

    def _improve(self, column: IRValue) -> None:
        """Move one class to where its part of the gradient vanishes, and scale all so that they add up to 1."""
        e = self._e
        own, slope = e.load("double", self._cell(column, column)), self._get(self._gradient, column)
        objective = e.load("double", self._objective)
        change = self._do("fdiv", self._do("fsub", objective, slope), own)
        self._increase(self._at(self._chances, column), change)
        scale = self._do("fadd", _number(1.0), change)
        twice = self._do("fadd", self._do("fmul", change, own), self._do("fmul", _number(2.0), slope))
        moved = self._do("fadd", objective, self._do("fmul", change, twice))
        e.store(self._do("fdiv", moved, self._do("fmul", scale, scale)), self._objective)
        with e.loop(0, self._count, unroll=False, hint="other") as j:
            step = self._do("fmul", change, e.load("double", self._cell(column, j)))
            slope = self._do("fadd", self._get(self._gradient, j), step)
            e.store(self._do("fdiv", slope, scale), self._at(self._gradient, j))
            e.store(self._do("fdiv", self._get(self._chances, j), scale), self._at(self._chances, j))

    def _at(self, array: IRValue, index: IRValue) -> IRValue:
        return self._e.element(array, index, "double")

    def _get(self, array: IRValue, index: IRValue) -> IRValue:
        return self._e.load("double", self._at(array, index))

    def _cell(self, row: IRValue, column: IRValue) -> IRValue:
        return self._at(self._matrix, self._e.add(self._e.mul(row, self._classes), column))

    def _do(self, opcode: str, left: IRValue, right: IRValue) -> IRValue:
        return self._e.assign("double", f"{opcode} double {left.text}, {right.text}")

    def _increase(self, address: IRValue, by: IRValue) -> None:
        self._e.store(self._do("fadd", self._e.load("double", address), by), address)


def _number(value: float) -> IRValue:
    """Return a double as LLVM writes any of them exactly: the 64 bits."""
    return IRValue("double", f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}")
