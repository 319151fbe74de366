"""What a shader does with buffers: loads, stores, atomic changes and sizes, written for the views that are bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from directml_rig.dxil.calls import Call
from directml_rig.dxil.module import ResourceKind
from directml_rig.dxil.views import FLOATS, View, place, read, size_of, written
from directml_rig.errors import UnsupportedShaderError

Define = Callable[[str, str], None]
"""Takes the name of a function and its text; a second time is nothing."""
_ATOMICS = {0: "add", 1: "and", 2: "or", 3: "xor", 4: "smin", 5: "smax", 6: "umin", 7: "umax"}
_EXCHANGE = 8
_ALL_COMPONENTS = 0xF


def load(call: Call, view: View, define: Define) -> str:
    """Return the function that a load from a view calls; it takes the views, the slot and two coordinates."""
    name = f"@rig.{call.intrinsic}.{view.name}"
    lines = _loaded(call, view, define)
    components, status = _result(call)
    value = "poison"
    for index in range(components):
        lines.append(f"%r{index} = insertvalue {call.result} {value}, {call.overload} %c{index}, {index}")
        value = f"%r{index}"
    if status:
        lines.append(f"%done = insertvalue {call.result} {value}, i32 1, {components}")
        value = "%done"
    lines.append(f"ret {call.result} {value}")
    define(name, _function(call.result, name, "i32 %i, i32 %j", lines))
    return name


def _result(call: Call) -> tuple[int, bool]:
    """How many components a load returns, and whether a status follows them."""
    if call.intrinsic.startswith("cbufferLoadLegacy"):
        return 16 // size_of(call.overload), False
    return 4, True


def _loaded(call: Call, view: View, define: Define) -> list[str]:
    components, _ = _result(call)
    if view.kind is ResourceKind.TYPED:
        found = define_place(view, view.element.nbytes, define)
        lines = [f"%p = call ptr {found}(ptr %views, i32 %slot, i32 %i, i32 %j, ptr @rig.zeros)"]
        for index in range(view.element.components):
            stored = view.element.stored
            lines.append(f"%p{index} = getelementptr {stored}, ptr %p, i32 {index}")
            lines.append(f"%v{index} = load {stored}, ptr %p{index}, align {size_of(stored)}")
            lines += read(stored, view.element.kind, call.overload, f"%v{index}", f"%c{index}")
        for index in range(view.element.components, components):
            lines.append(_constant(call.overload, f"%c{index}", one=index == components - 1))
        return lines
    nbytes = size_of(call.overload)
    found = define_place(view, nbytes, define)
    lines = ["%row = mul i32 %i, 16"] if view.kind is ResourceKind.CONSTANTS else ["%row = add i32 %i, 0"]
    moved = "j" if view.kind is ResourceKind.STRUCTURED else "row"
    for index in range(components):
        lines.append(f"%o{index} = add i32 %{moved}, {index * nbytes}")
        first, second = ("%row", f"%o{index}") if moved == "j" else (f"%o{index}", "0")
        lines.append(f"%p{index} = call ptr {found}(ptr %views, i32 %slot, i32 {first}, i32 {second}, ptr @rig.zeros)")
        unchanging = ", !invariant.load !0" if view.kind is ResourceKind.CONSTANTS else ""
        lines.append(f"%c{index} = load {call.overload}, ptr %p{index}, align {min(nbytes, 4)}{unchanging}")
    return lines


def _constant(kind: str, name: str, *, one: bool) -> str:
    if kind in FLOATS.values():
        return f"{name} = fadd {kind} 0.0, {float(one)}"
    return f"{name} = add {kind} 0, {int(one)}"


def store(call: Call, view: View, define: Define) -> str:
    """Return the function that a store to a view calls; it takes what ``load``'s takes, then four components."""
    mask = int(call.values[8])
    name = f"@rig.{call.intrinsic}.{view.name}.{mask}"
    kind = call.overload
    if view.kind is ResourceKind.TYPED:
        found = define_place(view, view.element.nbytes, define)
        lines = [f"%p = call ptr {found}(ptr %views, i32 %slot, i32 %i, i32 %j, ptr @rig.sink)"]
        for index in range(view.element.components):
            stored = view.element.stored
            lines += written(stored, view.element.kind, kind, f"%v{index}", f"%c{index}")
            lines.append(f"%p{index} = getelementptr {stored}, ptr %p, i32 {index}")
            lines.append(f"store {stored} %c{index}, ptr %p{index}, align {size_of(stored)}")
    else:
        lines = []
        nbytes = size_of(kind)
        found = define_place(view, nbytes, define)
        structured = view.kind is ResourceKind.STRUCTURED
        for index in (index for index in range(4) if mask >> index & 1):
            lines.append(f"%o{index} = add i32 %{'j' if structured else 'i'}, {index * nbytes}")
            at = f"i32 %i, i32 %o{index}" if structured else f"i32 %o{index}, i32 0"
            lines.append(f"%p{index} = call ptr {found}(ptr %views, i32 %slot, {at}, ptr @rig.sink)")
            lines.append(f"store {kind} %v{index}, ptr %p{index}, align {min(nbytes, 4)}")
    lines.append("ret void")
    values = ", ".join(f"{kind} %v{index}" for index in range(4))
    define(name, _function("void", name, f"i32 %i, i32 %j, {values}", lines))
    return name


def atomic(call: Call, view: View, define: Define) -> str:
    """Return the function that an atomic change calls; one thread runs at a time, so it need not be atomic.

    Raises:
        UnsupportedShaderError: it is of no kind that is known.
    """
    change = int(call.values[2])
    kind = call.overload
    name = f"@rig.{call.intrinsic}.{view.name}.{change}"
    found = define_place(view, size_of(kind), define)
    lines = [
        f"%p = call ptr {found}(ptr %views, i32 %slot, i32 %i, i32 %j, ptr @rig.sink)",
        f"%old = load {kind}, ptr %p, align 4",
        *_changed(change, kind, call),
        f"store {kind} %new, ptr %p, align 4",
        f"ret {kind} %old",
    ]
    define(name, _function(kind, name, f"i32 %i, i32 %j, {kind} %v", lines))
    return name


def _changed(change: int, kind: str, call: Call) -> Sequence[str]:
    verb = _ATOMICS.get(change)
    if change == _EXCHANGE:
        return [f"%new = or {kind} %v, 0"]
    if verb is None:
        raise UnsupportedShaderError(f"{call.describe()}: the atomic change {change} is not known")
    if verb in ("add", "and", "or", "xor"):
        return [f"%new = {verb} {kind} %old, %v"]
    return [f"%new = call {kind} @llvm.{verb}.{kind}({kind} %old, {kind} %v)"]


def compare_exchange(call: Call, view: View, define: Define) -> str:
    """Return the function that a compare-and-exchange calls."""
    kind = call.overload
    name = f"@rig.{call.intrinsic}.{view.name}"
    found = define_place(view, size_of(kind), define)
    lines = [
        f"%p = call ptr {found}(ptr %views, i32 %slot, i32 %i, i32 %j, ptr @rig.sink)",
        f"%old = load {kind}, ptr %p, align 4",
        f"%same = icmp eq {kind} %old, %expected",
        f"%new = select i1 %same, {kind} %v, {kind} %old",
        f"store {kind} %new, ptr %p, align 4",
        f"ret {kind} %old",
    ]
    define(name, _function(kind, name, f"i32 %i, i32 %j, {kind} %expected, {kind} %v", lines))
    return name


def dimensions(call: Call, define: Define) -> str:
    """Return the function that asks for a buffer's size."""
    name = "@rig.dimensions"
    lines = [
        "%view = getelementptr %rig.view, ptr %views, i32 %slot",
        "%behind = getelementptr %rig.view, ptr %view, i32 0, i32 1",
        "%count = load i64, ptr %behind, align 8",
        "%n = trunc i64 %count to i32",
        f"%r = insertvalue {call.result} zeroinitializer, i32 %n, 0",
        f"ret {call.result} %r",
    ]
    define(name, _function(call.result, name, "i32 %i, i32 %j", lines))
    return name


def define_place(view: View, nbytes: int, define: Define) -> str:
    """Define the function that finds bytes in a view, and return its name."""
    name, text = place(view, nbytes)
    define(name, text)
    return name


def _function(result: str, name: str, parameters: str, lines: Sequence[str]) -> str:
    body = "\n  ".join(lines)
    return f"define internal {result} {name}(ptr %views, i32 %slot, {parameters}) alwaysinline {{\n  {body}\n}}"
