"""DXIL's arithmetic as LLVM's: what each opcode computes, with Direct3D's answers where LLVM leaves them open.

Division by zero gives all ones, shifts take the low bits of their count, floats become the nearest integer that there
is, and a minimum or maximum of a number and NaN is the number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType

from directml_rig.dxil.views import size_of

UNARY = MappingProxyType({
    6: "fabs", 12: "cos", 13: "sin", 14: "tan", 15: "acos", 16: "asin", 17: "atan", 18: "cosh", 19: "sinh", 20: "tanh",
    21: "exp2", 23: "log2", 24: "sqrt", 26: "roundeven", 27: "floor", 28: "ceil", 29: "trunc",
    30: "bitreverse",
})  # fmt: skip
"""Opcodes that are one intrinsic of LLVM of the same type."""
BINARY = MappingProxyType({35: "maxnum", 36: "minnum", 37: "smax", 38: "smin", 39: "umax", 40: "umin"})
BITCASTS = MappingProxyType({
    124: ("i16", "half"), 125: ("half", "i16"), 126: ("i32", "float"), 127: ("float", "i32"),
    128: ("i64", "double"), 129: ("double", "i64"),
})  # fmt: skip
_INFINITY = {"half": "0xH7C00", "float": "0x7FF0000000000000", "double": "0x7FF0000000000000"}
_SMALLEST_NORMAL = {"half": "0xH0400", "float": "0x3810000000000000", "double": "0x0010000000000000"}


def function(opcode: int, operand: str, result: str, arity: int) -> str | None:
    """Return the text of a function ``@rig.op`` that computes an opcode; ``None`` where it is none of arithmetic.

    Args:
        opcode: DXIL's.
        operand: type of its operands.
        result: type of its result.
        arity: how many operands it has.
    """
    lines = _value(opcode, operand, result)
    if lines is None:
        return None
    parameters = ", ".join(f"{operand} %{letter}" for letter in "abcd"[:arity])
    body = "\n  ".join(lines)
    return f"define internal {result} @rig.op({parameters}) alwaysinline {{\n  {body}\n  ret {result} %r\n}}"


def _value(opcode: int, operand: str, result: str) -> Sequence[str] | None:
    if opcode in UNARY:
        return [f"%r = call {result} @llvm.{UNARY[opcode]}.{_suffix(operand)}({operand} %a)"]
    if opcode in BINARY:
        return [f"%r = call {result} @llvm.{BINARY[opcode]}.{_suffix(operand)}({operand} %a, {operand} %b)"]
    if opcode in BITCASTS:
        return [f"%r = bitcast {BITCASTS[opcode][0]} %a to {BITCASTS[opcode][1]}"]
    return (
        _float_facts(opcode, operand)
        or _bits(opcode, operand)
        or _pairs(opcode, operand, result)
        or _threes(opcode, operand)
        or _halves_and_doubles(opcode, result)
    )


def _suffix(kind: str) -> str:
    return {"half": "f16", "float": "f32", "double": "f64"}.get(kind, kind)


def _float_facts(opcode: int, kind: str) -> Sequence[str] | None:
    if opcode == 7:  # saturate
        return [
            f"%low = call {kind} @llvm.maxnum.{_suffix(kind)}({kind} %a, {kind} 0.0)",
            f"%r = call {kind} @llvm.minnum.{_suffix(kind)}({kind} %low, {kind} 1.0)",
        ]
    if opcode == 8:
        return [f"%r = fcmp uno {kind} %a, %a"]
    magnitude = f"%m = call {kind} @llvm.fabs.{_suffix(kind)}({kind} %a)"
    if opcode in (9, 10):  # infinite, finite
        return [magnitude, f"%r = fcmp {'oeq' if opcode == 9 else 'olt'} {kind} %m, {_INFINITY[kind]}"]
    if opcode == 11:
        return [
            magnitude,
            f"%finite = fcmp olt {kind} %m, {_INFINITY[kind]}",
            f"%normal = fcmp oge {kind} %m, {_SMALLEST_NORMAL[kind]}",
            "%r = and i1 %finite, %normal",
        ]
    if opcode == 22:  # fraction
        return [f"%f = call {kind} @llvm.floor.{_suffix(kind)}({kind} %a)", f"%r = fsub {kind} %a, %f"]
    if opcode == 25:
        return [f"%s = call {kind} @llvm.sqrt.{_suffix(kind)}({kind} %a)", f"%r = fdiv {kind} 1.0, %s"]
    return None


def _bits(opcode: int, kind: str) -> Sequence[str] | None:
    if opcode == 31:
        return [f"%n = call {kind} @llvm.ctpop.{kind}({kind} %a)", *_to_i32(kind, "%n", "%r")]
    if opcode in (32, 33, 34):  # first set bit from below; from above; of a signed value from above
        counted = "cttz" if opcode == 32 else "ctlz"
        flip = [f"%sign = ashr {kind} %a, {size_of(kind) * 8 - 1}", f"%x = xor {kind} %a, %sign"]
        plain = [f"%x = or {kind} %a, 0"]
        return [
            *(flip if opcode == 34 else plain),
            f"%n = call {kind} @llvm.{counted}.{kind}({kind} %x, i1 false)",
            f"%none = icmp eq {kind} %x, 0",
            f"%all = select i1 %none, {kind} -1, {kind} %n",
            *_to_i32(kind, "%all", "%r"),
        ]
    return None


def _to_i32(kind: str, value: str, result: str) -> Sequence[str]:
    if kind == "i32":
        return [f"{result} = or i32 {value}, 0"]
    return [f"{result} = {'trunc' if kind == 'i64' else 'sext'} {kind} {value} to i32"]


def _pairs(opcode: int, kind: str, result: str) -> Sequence[str] | None:
    both = [f"%both = insertvalue {result} poison, {kind} %first, 0"]
    if opcode in (41, 42):  # high and low words of a product
        wide = "sext" if opcode == 41 else "zext"
        bits = size_of(kind) * 8
        return [
            f"%wa = {wide} {kind} %a to i{2 * bits}",
            f"%wb = {wide} {kind} %b to i{2 * bits}",
            f"%p = mul i{2 * bits} %wa, %wb",
            f"%h = lshr i{2 * bits} %p, {bits}",
            f"%first = trunc i{2 * bits} %h to {kind}",
            f"%second = trunc i{2 * bits} %p to {kind}",
            *both,
            f"%r = insertvalue {result} %both, {kind} %second, 1",
        ]
    if opcode == 43:
        return [
            f"%zero = icmp eq {kind} %b, 0",
            f"%d = select i1 %zero, {kind} 1, {kind} %b",
            f"%q = udiv {kind} %a, %d",
            f"%m = urem {kind} %a, %d",
            f"%first = select i1 %zero, {kind} -1, {kind} %q",
            f"%second = select i1 %zero, {kind} -1, {kind} %m",
            *both,
            f"%r = insertvalue {result} %both, {kind} %second, 1",
        ]
    if opcode in (44, 45):  # with carry, with borrow
        name = "uadd" if opcode == 44 else "usub"
        return [
            f"%sum = call {{ {kind}, i1 }} @llvm.{name}.with.overflow.{kind}({kind} %a, {kind} %b)",
            f"%first = extractvalue {{ {kind}, i1 }} %sum, 0",
            f"%second = extractvalue {{ {kind}, i1 }} %sum, 1",
            *both,
            f"%r = insertvalue {result} %both, i1 %second, 1",
        ]
    return None


def _threes(opcode: int, kind: str) -> Sequence[str] | None:
    if opcode == 46:
        return [f"%p = fmul {kind} %a, %b", f"%r = fadd {kind} %p, %c"]
    if opcode == 47:
        return [f"%r = call {kind} @llvm.fma.{_suffix(kind)}({kind} %a, {kind} %b, {kind} %c)"]
    if opcode in (48, 49):
        return [f"%p = mul {kind} %a, %b", f"%r = add {kind} %p, %c"]
    if opcode in (51, 52):  # width a, offset b, value c
        return _extracted_bits(kind, signed=opcode == 51)
    if opcode == 53:  # width a, offset b, source c, target d
        return [
            f"%w = and {kind} %a, 31",
            f"%o = and {kind} %b, 31",
            f"%one = shl {kind} 1, %w",
            f"%low = sub {kind} %one, 1",
            f"%mask = shl {kind} %low, %o",
            f"%moved = shl {kind} %c, %o",
            f"%in = and {kind} %moved, %mask",
            f"%not = xor {kind} %mask, -1",
            f"%kept = and {kind} %d, %not",
            f"%r = or {kind} %in, %kept",
        ]
    return None


def _extracted_bits(kind: str, *, signed: bool) -> Sequence[str]:
    shift = "ashr" if signed else "lshr"
    return [
        f"%w = and {kind} %a, 31",
        f"%o = and {kind} %b, 31",
        f"%end = add {kind} %w, %o",
        f"%short = icmp ult {kind} %end, 32",
        f"%up = sub {kind} 32, %end",
        f"%up.safe = select i1 %short, {kind} %up, {kind} 0",
        f"%left = shl {kind} %c, %up.safe",
        f"%down = sub {kind} 32, %w",
        f"%down.safe = and {kind} %down, 31",
        f"%cut = {shift} {kind} %left, %down.safe",
        f"%whole = {shift} {kind} %c, %o",
        f"%value = select i1 %short, {kind} %cut, {kind} %whole",
        f"%empty = icmp eq {kind} %w, 0",
        f"%r = select i1 %empty, {kind} 0, {kind} %value",
    ]


def _halves_and_doubles(opcode: int, result: str) -> Sequence[str] | None:
    if opcode == 130:
        return ["%h = fptrunc float %a to half", "%b = bitcast half %h to i16", "%r = zext i16 %b to i32"]
    if opcode == 131:
        return ["%t = trunc i32 %a to i16", "%h = bitcast i16 %t to half", "%r = fpext half %h to float"]
    if opcode == 101:
        return [
            "%lo = zext i32 %a to i64",
            "%wide = zext i32 %b to i64",
            "%hi = shl i64 %wide, 32",
            "%bits = or i64 %lo, %hi",
            "%r = bitcast i64 %bits to double",
        ]
    if opcode == 102:
        return [
            "%bits = bitcast double %a to i64",
            "%lo = trunc i64 %bits to i32",
            "%up = lshr i64 %bits, 32",
            "%hi = trunc i64 %up to i32",
            f"%first = insertvalue {result} poison, i32 %lo, 0",
            f"%r = insertvalue {result} %first, i32 %hi, 1",
        ]
    return None


def safe_instruction(line: str) -> str:
    """Return an instruction of LLVM whose result could be open, as a call of a function that decides it."""
    words = line.split()
    if len(words) < 5 or words[1] != "=":
        return line
    name, verb = words[0], words[2]
    if verb in _DIVISIONS or verb in _SHIFTS:
        kind, operands = _FLAGS.sub("", line.split(f" = {verb} ", 1)[1]).split(" ", 1)
        first, second = operands.split(", ")
        if second.isdigit() and 0 < int(second) < size_of(kind) * 8:
            return line
        return f"  {name} = call {kind} @rig.{verb}.{kind}({kind} {first}, {kind} {second})"
    if verb == "fptrunc" and line.split(f" = {verb} ", 1)[1].startswith("double ") and words[-1] == "half":
        return f"  {name} = call half @rig.half(double {words[4]})"
    if verb in ("fptosi", "fptoui"):
        source, value, _, target = line.split(f" = {verb} ", 1)[1].split()
        return f"  {name} = call {target} @llvm.{verb}.sat.{target}.{_suffix(source)}({source} {value})"
    return line


_FLAGS = re.compile(r"\b(?:exact|nuw|nsw) ")
_DIVISIONS = ("udiv", "urem", "sdiv", "srem")
_SHIFTS = ("shl", "lshr", "ashr")


def safe_functions() -> str:
    """Return the functions that ``safe_instruction`` calls."""
    return "\n".join(
        [_HALF_OF_DOUBLE]
        + [_division(verb, kind) for verb in _DIVISIONS for kind in _INTEGERS]
        + [_shift(verb, kind) for verb in _SHIFTS for kind in _INTEGERS]
    )


_HALF_OF_DOUBLE = """
define internal half @rig.half(double %d) alwaysinline {
  %f = fptrunc double %d to float
  %back = fpext float %f to double
  %open = fcmp one double %back, %d
  %size = call double @llvm.fabs.f64(double %d)
  %rounded = call double @llvm.fabs.f64(double %back)
  %far = fcmp ogt double %rounded, %size
  %bits = bitcast float %f to i32
  %less = sub i32 %bits, 1
  %cut = select i1 %far, i32 %less, i32 %bits
  %odd = or i32 %cut, 1
  %kept = select i1 %open, i32 %odd, i32 %bits
  %exact = bitcast i32 %kept to float
  %h = fptrunc float %exact to half
  ret half %h
}"""
"""A half of a double, rounded once: LLVM would call a function that only some systems' libraries have."""
_INTEGERS = ("i8", "i16", "i32", "i64")


def _division(verb: str, kind: str) -> str:
    lowest = -(2 ** (size_of(kind) * 8 - 1))
    wraps = f"""%least = icmp eq {kind} %a, {lowest}
  %minus = icmp eq {kind} %b, -1
  %wraps = and i1 %least, %minus"""
    return f"""define internal {kind} @rig.{verb}.{kind}({kind} %a, {kind} %b) alwaysinline {{
  %zero = icmp eq {kind} %b, 0
  {wraps if verb.startswith("s") else "%wraps = and i1 false, false"}
  %bad = or i1 %zero, %wraps
  %d = select i1 %bad, {kind} 1, {kind} %b
  %x = {verb} {kind} %a, %d
  %r = select i1 %zero, {kind} -1, {kind} %x
  ret {kind} %r
}}"""


def _shift(verb: str, kind: str) -> str:
    return f"""define internal {kind} @rig.{verb}.{kind}({kind} %a, {kind} %b) alwaysinline {{
  %n = and {kind} %b, {size_of(kind) * 8 - 1}
  %r = {verb} {kind} %a, %n
  ret {kind} %r
}}"""
