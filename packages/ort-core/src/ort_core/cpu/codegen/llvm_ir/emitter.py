"""Emitter: writes one LLVM function as text, with typed values, structured loops and variables.

Variables are stack slots: LLVM's SROA pass turns them into registers and phis, so that generators need not. Values are
``(type, name)`` pairs; ``Emitter`` methods take and return them. Integers are ``i64`` unless said otherwise.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ort_core.plugin import frozen


@frozen
class IRValue:
    """A typed LLVM value: a register (``%name``), a constant, or a global."""

    type: str
    text: str

    @property
    def typed(self) -> str:
        """The operand as LLVM writes it with its type."""
        return f"{self.type} {self.text}"


def integer(value: int, type_: str = "i64") -> IRValue:
    """Return an integer constant."""
    return IRValue(type_, str(int(value)))


def float32(value: float) -> IRValue:
    """Return a float constant, exact: LLVM writes floats as the bits of the double."""
    rounded = struct.unpack("<f", struct.pack("<f", value))[0]
    return IRValue("float", f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}")


def vector_type(width: int, element: str) -> str:
    """Return ``<width x element>``, or the element itself for width 1."""
    return element if width == 1 else f"<{width} x {element}>"


class Emitter:
    """One function under construction.

    Args:
        name: the function's symbol.
        parameters: (type with attributes, name) of each parameter, such as ``("ptr noalias", "x")``.
        linkage: ``""`` for a function that others call, ``"internal"`` else.
        word: the type of the elements that ``element`` counts where it is not told: ``float`` or ``double``.
    """

    def __init__(
        self, name: str, parameters: Sequence[tuple[str, str]], *, linkage: str = "", word: str = "float"
    ) -> None:
        self.name, self.word = name, word
        self._head = f"define {linkage} void @{name}({', '.join(f'{t} %{n}' for t, n in parameters)})"
        self._slots: list[str] = []
        self._body: list[str] = []
        self._count = 0
        self._metadata: list[str] = []
        self.declarations: dict[str, None] = {}
        self._parameters = {n: IRValue(t.split()[0], f"%{n}") for t, n in parameters}

    def rename(self, name: str) -> None:
        """Give the function another symbol; the present one must be text that occurs for nothing else."""
        old, self.name = self.name, name
        self._head = self._head.replace(old, name)
        self._body = [line.replace(old, name) for line in self._body]
        self._metadata = [line.replace(old, name) for line in self._metadata]

    def parameter(self, name: str) -> IRValue:
        """Return a parameter's value."""
        return self._parameters[name]

    def fresh(self, hint: str = "v") -> str:
        """Return a register name that nobody has."""
        self._count += 1
        return f"%{hint}{self._count}"

    def line(self, text: str) -> None:
        """Append one instruction as it is."""
        self._body.append(f"  {text}")

    def assign(self, type_: str, instruction: str, hint: str = "v") -> IRValue:
        """Append an instruction with a result and return the result."""
        name = self.fresh(hint)
        self.line(f"{name} = {instruction}")
        return IRValue(type_, name)

    # arithmetic -----------------------------------------------------------------------------------------------------

    def binary(self, opcode: str, left: IRValue, right: IRValue) -> IRValue:
        """Append ``opcode left, right`` for operands of one type; integer constants are folded."""
        folded = _fold(opcode, left, right)
        if folded is not None:
            return folded
        return self.assign(left.type, f"{opcode} {left.type} {left.text}, {right.text}")

    def add(self, left: IRValue, right: IRValue | int) -> IRValue:
        """Integer sum (index arithmetic: no signed wrap)."""
        return self.binary("add nsw", left, _operand(right, left.type))

    def sub(self, left: IRValue, right: IRValue | int) -> IRValue:
        """Integer difference."""
        return self.binary("sub nsw", left, _operand(right, left.type))

    def mul(self, left: IRValue, right: IRValue | int) -> IRValue:
        """Integer product."""
        return self.binary("mul nsw", left, _operand(right, left.type))

    def udiv(self, left: IRValue, right: IRValue | int) -> IRValue:
        """Quotient of integers that are not negative."""
        return self.binary("udiv", left, _operand(right, left.type))

    def urem(self, left: IRValue, right: IRValue | int) -> IRValue:
        """Remainder of integers that are not negative."""
        return self.binary("urem", left, _operand(right, left.type))

    def minimum(self, left: IRValue, right: IRValue | int) -> IRValue:
        """The smaller of two signed integers."""
        right = _operand(right, left.type)
        return self.call(left.type, f"llvm.smin.{left.type}", left, right)

    def maximum(self, left: IRValue, right: IRValue | int) -> IRValue:
        """The larger of two signed integers."""
        right = _operand(right, left.type)
        return self.call(left.type, f"llvm.smax.{left.type}", left, right)

    def compare(self, predicate: str, left: IRValue, right: IRValue | int) -> IRValue:
        """Compare integers: ``eq``, ``ne``, ``slt``, ``sle``, ``sgt``, ``sge``, ``ult``, ..."""
        right = _operand(right, left.type)
        return self.assign("i1", f"icmp {predicate} {left.type} {left.text}, {right.text}", "c")

    def select(self, condition: IRValue, left: IRValue, right: IRValue) -> IRValue:
        """Return ``left`` where the condition holds, else ``right``."""
        return self.assign(left.type, f"select {condition.typed}, {left.typed}, {right.typed}")

    def call(self, type_: str, function: str, *arguments: IRValue, flags: str = "") -> IRValue:
        """Call a function or intrinsic with a result; it is declared if needed."""
        self.declarations[f"declare {type_} @{function}({', '.join(a.type for a in arguments)})"] = None
        flags = f"{flags} " if flags else ""
        return self.assign(type_, f"call {flags}{type_} @{function}({', '.join(a.typed for a in arguments)})")

    def call_void(self, function: str, *arguments: IRValue) -> None:
        """Call a function of the same module."""
        self.line(f"call void @{function}({', '.join(a.typed for a in arguments)})")

    # memory ---------------------------------------------------------------------------------------------------------

    def element(self, base: IRValue, index: IRValue | int, type_: str = "") -> IRValue:
        """Return the address of element ``index`` of an array of ``type_``, of words where it is empty."""
        index = _operand(index, "i64")
        if index.text == "0":
            return base
        type_ = type_ or self.word
        return self.assign("ptr", f"getelementptr inbounds {type_}, ptr {base.text}, i64 {index.text}", "p")

    def load(self, type_: str, address: IRValue, align: int | None = None) -> IRValue:
        """Load a value."""
        suffix = f", align {align}" if align else ""
        return self.assign(type_, f"load {type_}, ptr {address.text}{suffix}")

    def store(self, value: IRValue, address: IRValue, align: int | None = None) -> None:
        """Store a value."""
        suffix = f", align {align}" if align else ""
        self.line(f"store {value.typed}, ptr {address.text}{suffix}")

    def variable(self, type_: str, initial: IRValue | None = None, hint: str = "s", align: int = 0) -> IRValue:
        """Return the address of a new variable; its ``initial`` value is stored here."""
        name = self.fresh(hint)
        self._slots.append(f"  {name} = alloca {type_}" + (f", align {align}" if align else ""))
        slot = IRValue("ptr", name)
        if initial is not None:
            self.store(initial, slot)
        return slot

    def argument(self, arguments: IRValue, index: int, type_: str = "i64") -> IRValue:
        """Load entry ``index`` of a step's argument table, as an integer or a pointer."""
        value = self.load("i64", self.element(arguments, index, "i64"))
        return value if type_ == "i64" else self.assign("ptr", f"inttoptr i64 {value.text} to ptr", "p")

    # vectors --------------------------------------------------------------------------------------------------------

    def splat(self, value: IRValue, width: int) -> IRValue:
        """Return a vector with the value in every lane."""
        if width == 1:
            return value
        type_ = vector_type(width, value.type)
        first = self.assign(type_, f"insertelement {type_} poison, {value.typed}, i32 0")
        return self.assign(
            type_, f"shufflevector {type_} {first.text}, {type_} poison, <{width} x i32> zeroinitializer"
        )

    def fma(self, a: IRValue, b: IRValue, c: IRValue) -> IRValue:
        """Return ``a * b + c``, rounded once where the target has such an instruction, twice where it has none."""
        return self.call(a.type, f"llvm.fmuladd.{suffix(a.type)}", a, b, c)

    # control --------------------------------------------------------------------------------------------------------

    @contextmanager
    def loop(
        self, start: IRValue | int, stop: IRValue, step: IRValue | int = 1, *, unroll: bool = True, hint: str = "i"
    ) -> Iterator[IRValue]:
        """Loop while ``index < stop``; the body gets the index. ``unroll=False`` forbids LLVM to unroll it."""
        slot = self.variable("i64", _operand(start, "i64"), hint)
        head, body, done = self._labels(3)
        self._branch(head)
        self._label(head)
        index = self.load("i64", slot)
        condition = self.compare("slt", index, stop)
        self.line(f"br i1 {condition.text}, label %{body}, label %{done}")
        self._label(body)
        yield index
        self.store(self.add(index, step), slot)
        tail = "" if unroll else f", !llvm.loop {self._no_unroll()}"
        self.line(f"br label %{head}{tail}")
        self._label(done)

    @contextmanager
    def repeat(self, going: IRValue) -> Iterator[None]:
        """Run the body again and again as long as the i1 variable at ``going`` holds."""
        head, body, done = self._labels(3)
        self._branch(head)
        self._label(head)
        condition = self.load("i1", going)
        self.line(f"br i1 {condition.text}, label %{body}, label %{done}")
        self._label(body)
        yield
        self._branch(head)
        self._label(done)

    @contextmanager
    def when(self, condition: IRValue) -> Iterator[None]:
        """Run the body if the condition holds."""
        body, done = self._labels(2)
        self.line(f"br i1 {condition.text}, label %{body}, label %{done}")
        self._label(body)
        yield
        self._branch(done)
        self._label(done)

    @contextmanager
    def either(self, condition: IRValue) -> Iterator[_Otherwise]:
        """Run the body if the condition holds, and what follows ``with branch.otherwise():`` if not."""
        first, second, done = self._labels(3)
        self.line(f"br i1 {condition.text}, label %{first}, label %{second}")
        self._label(first)
        branch = _Otherwise(self, second, done)
        yield branch
        if not branch.is_used:
            self._branch(done)
            self._label(second)
        self._branch(done)
        self._label(done)

    def finish(self) -> str:
        """Return the function's text."""
        slots = "\n".join(self._slots)
        body = "\n".join(self._body)
        return f"{self._head} #0 {{\nentry:\n{slots}\n{body}\n  ret void\n}}\n"

    def metadata(self) -> list[str]:
        """Return the metadata lines that the function refers to."""
        return self._metadata

    def _no_unroll(self) -> str:
        number = f"!{self.name}.{len(self._metadata)}"
        self._metadata.append(f"{number} = distinct !{{{number}, !{self.name}.u}}")
        return number

    def _labels(self, count: int) -> list[str]:
        self._count += 1
        return [f"b{self._count}_{i}" for i in range(count)]

    def _branch(self, label: str) -> None:
        self.line(f"br label %{label}")

    def _label(self, label: str) -> None:
        self._body.append(f"{label}:")


class _Otherwise:
    """The second branch of ``Emitter.either``."""

    def __init__(self, emitter: Emitter, label: str, done: str) -> None:
        self._emitter, self._label, self._done = emitter, label, done
        self.is_used = False

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """Open the branch that runs when the condition does not hold."""
        self.is_used = True
        self._emitter._branch(self._done)
        self._emitter._label(self._label)
        yield


def suffix(type_: str) -> str:
    """Return how intrinsics name a type: ``v16f32`` for ``<16 x float>``."""
    names = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16"}
    if type_.startswith("<"):
        count, _, element = type_[1:-1].partition(" x ")
        return f"v{count}{names.get(element, element)}"
    return names.get(type_, type_)


def module_text(functions: Sequence[Emitter]) -> str:
    """Return a whole LLVM module with the functions and the intrinsics that they call."""
    declarations: dict[str, None] = {}
    parts = []
    for function in functions:
        declarations.update(function.declarations)
        parts.append(function.finish())
    numbered: dict[str, str] = {}
    lines = [line for function in functions for line in function.metadata()]
    text = "\n".join([*declarations, *parts])
    for line in lines:
        numbered[line.partition(" = ")[0]] = f"!{len(numbered) + 1}"
    if numbered:  # in one go: a module has thousands of loops; a pattern that begins with text is searched for quickly
        text = re.sub(r"!llvm\.loop (![^\s,!]+)\n", lambda found: f"!llvm.loop {numbered[found[1]]}\n", text)
    nodes = [f"{number} = distinct !{{{number}, !0}}" for number in numbered.values()]
    attributes = 'attributes #0 = { nounwind "prefer-vector-width"="512" "no-trapping-math"="true" }'
    return "\n".join([text, attributes, '!0 = !{!"llvm.loop.unroll.disable"}', *nodes, ""])


def _operand(value: IRValue | int, type_: str) -> IRValue:
    return integer(value, type_) if isinstance(value, int) else value


def _fold(opcode: str, left: IRValue, right: IRValue) -> IRValue | None:
    """Fold integer constants and neutral elements: generated index arithmetic is full of them."""
    if not left.type.startswith("i") or not opcode.startswith(("add", "sub", "mul", "udiv", "urem")):
        return None
    a = int(left.text) if left.text.lstrip("-").isdigit() else None
    b = int(right.text) if right.text.lstrip("-").isdigit() else None
    name = opcode.split()[0]
    if a is not None and b is not None and not (name in ("udiv", "urem") and b == 0):
        value = {"add": a + b, "sub": a - b, "mul": a * b, "udiv": a // (b or 1), "urem": a % (b or 1)}[name]
        return integer(value, left.type)
    if (name in ("add", "sub") and b == 0) or (name in ("mul", "udiv") and b == 1):
        return left
    if name == "add" and a == 0:
        return right
    if name == "mul" and a == 1:
        return right
    return None
