"""A shader's entry function, line by line, as a function that the processor can run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from directml_rig.dxil import buffers, groups
from directml_rig.dxil.arithmetic import function, safe_functions, safe_instruction
from directml_rig.dxil.calls import Call, call_of
from directml_rig.dxil.module import ResourceClass, ResourceKind, ResourceRange, ShaderModule
from directml_rig.dxil.views import PREAMBLE, View
from directml_rig.errors import UnsupportedShaderError

_SYNC_GROUP = 1
_ATTACHED = re.compile(r", ![\w.]+ !\d+")
_FAST = re.compile(r"\b(?:fast|nnan|ninf|nsz|arcp|contract|afn|reassoc) ")
_LABEL = re.compile(r"^([\w.\"$-]+):")
_LOCAL_MEMORY = re.compile(r" ?addrspace\(\d+\)")
_UNDEFINED = re.compile(r"= external (addrspace\(3\) global [^,\n]+)")  # memory of a group that nobody else defines


def slots_of(module: ShaderModule) -> Mapping[tuple[ResourceClass, int], int]:
    """Return the first slot of each range of registers, by class and number: one slot for each register."""
    slots, free = {}, 0
    for declared in module.ranges:
        slots[declared.of, declared.identifier] = free
        free += declared.count
    return MappingProxyType(slots)


def translated(module: ShaderModule, views: Sequence[View]) -> str:
    """Return the module that runs a shader with these views bound, as LLVM text with ``rig.dispatch``.

    Raises:
        UnsupportedShaderError: the shader does something that the rig does not know.
    """
    return _Translation(module, views).text()


class _Translation:
    def __init__(self, module: ShaderModule, views: Sequence[View]) -> None:
        self._module, self._views = module, views
        self._slots = slots_of(module)
        self._ranges = {(each.of, each.identifier): each for each in module.ranges}
        self._handles: dict[str, tuple[View, str]] = {}
        self._functions: dict[str, str] = {}
        self._registers = 0
        self._fresh = 0
        self._barriers = 0
        self._split: dict[str, str] = {}

    def text(self) -> str:
        for other in self._module.others:
            if "@dx.op." in other:
                raise UnsupportedShaderError("a function beside the shader's entry calls DXIL intrinsics")
        self._waits = any(self._is_barrier(line) for line in self._module.body)
        body = self._body()
        parts = [
            *self._module.types,
            PREAMBLE,
            *(_plain(line) for line in self._module.variables),
            *(_plain(other) for other in self._module.others),
            safe_functions(),
            *self._functions.values(),
            groups.thread_header(waits=self._waits),
            *body,
            "}",
            groups.dispatch(self._module.group, waits=self._waits),
            groups.DECLARATIONS if self._waits else "",
            "!0 = !{}",
        ]
        return "\n".join(parts)

    def _body(self) -> list[str]:
        lines: list[str] = []
        block = "0"
        begun = ""
        for raw in self._module.body:
            line = _plain(raw)
            label = _LABEL.match(line)
            if label is not None:
                block = label[1]
                begun = begun or block
            if self._is_barrier(line) and self._waits:
                self._barriers += 1
                lines += groups.wait(self._barriers)
                self._split[block] = f"rig.after.{self._barriers}"
            elif self._waits and line.strip() == "ret void":
                lines.append("  br label %rig.last")
            else:
                lines += self._line(line)
        lines = [self._merged(line) if " = phi " in line else line for line in lines]
        at = 1 if _LABEL.match(lines[0]) else 0
        lines[at:at] = self._prologue()
        return [*lines, groups.END_WAITING] if self._waits else lines

    def _prologue(self) -> list[str]:
        registers = [f"  %rig.registers = alloca [{self._registers} x i32]"] if self._registers else []
        return [*registers, *([groups.BEGIN_WAITING] if self._waits else [])]

    def _merged(self, line: str) -> str:
        """A phi whose predecessor was cut at a barrier comes from its last part."""
        return re.sub(r", %([\w.\"$-]+) \]", lambda m: f", %{self._split.get(m[1], m[1])} ]", line)

    def _is_barrier(self, line: str) -> bool:
        call = call_of(line) if "@dx.op.barrier" in line else None
        return call is not None and bool(int(call.values[1]) & _SYNC_GROUP)

    def _line(self, line: str) -> list[str]:
        call = call_of(line)
        if call is None:
            if "@dx." in line:
                raise UnsupportedShaderError(f"the line {line.strip()!r} of the shader is not understood")
            return [safe_instruction(line)]
        return [f"  {made}" for made in self._call(call)]

    def _call(self, call: Call) -> Sequence[str]:
        own = {
            0: self._register_load, 1: self._register_store,
            57: self._handle,
            59: self._load, 68: self._load, 139: self._load,
            69: self._store, 140: self._store,
            71: self._mapped, 72: self._dimensions, 78: self._atomic, 79: self._exchange,
            80: self._fence,
            93: self._thread, 94: self._group, 95: self._thread_in_group, 96: self._flat,
            216: self._annotated, 217: self._bound_handle,
        }.get(call.opcode)  # fmt: skip
        return own(call) if own is not None else self._arithmetic(call)

    def _arithmetic(self, call: Call) -> Sequence[str]:
        operand = call.types[1] if len(call.types) > 1 else call.overload
        text = function(call.opcode, operand, call.result, len(call.types) - 1)
        if text is None:
            raise UnsupportedShaderError(
                f"the shader calls {call.describe()}, which the rig does not have: add it to directml_rig.dxil"
            )
        name = f"@rig.op{call.opcode}.{operand}"
        self._define(name, text.replace("@rig.op(", f"{name}("))
        arguments = ", ".join(f"{kind} {value}" for kind, value in zip(call.types[1:], call.values[1:], strict=True))
        return [f"{call.name} = call {call.result} {name}({arguments})"]

    def _define(self, name: str, text: str) -> None:
        self._functions.setdefault(name, text)

    # ------------------------------------------------------------ registers of the older shader language
    def _register(self, call: Call) -> tuple[str, str]:
        index = int(call.values[1])
        self._registers = max(self._registers, index + 1)
        name = f"%rig.r{self._temporary()}"
        return name, f"{name} = getelementptr i32, ptr %rig.registers, i32 {index}"

    def _register_load(self, call: Call) -> Sequence[str]:
        place, line = self._register(call)
        return [line, f"{call.name} = load {call.overload}, ptr {place}, align 4"]

    def _register_store(self, call: Call) -> Sequence[str]:
        place, line = self._register(call)
        return [line, f"store {call.overload} {call.values[2]}, ptr {place}, align 4"]

    # ------------------------------------------------------------ resources
    def _handle(self, call: Call) -> Sequence[str]:
        of, identifier = ResourceClass(int(call.values[1])), int(call.values[2])
        declared = self._ranges.get((of, identifier))
        if declared is None:
            raise UnsupportedShaderError(f"the shader does not declare {of.name} {identifier}, which it uses")
        return self._handle_of(call, declared, call.values[3])

    def _bound_handle(self, call: Call) -> Sequence[str]:
        raise UnsupportedShaderError(
            f"the shader calls {call.describe()} of shader model 6.6, which the rig does not report"
        )

    _annotated = _bound_handle

    def _handle_of(self, call: Call, declared: ResourceRange, register: str) -> Sequence[str]:
        first = self._slots[declared.of, declared.identifier]
        if register.isdigit():
            slot = first + int(register) - declared.register
            self._handles[call.name] = (self._view(declared, slot), str(slot))
            return []
        views = {self._view(declared, first + index) for index in range(declared.count)}
        if len(views) != 1:
            raise UnsupportedShaderError("the shader chooses among buffers of several formats at run time")
        slot = f"%rig.s{self._temporary()}"
        self._handles[call.name] = (views.pop(), slot)
        return [f"{slot} = add i32 {register}, {first - declared.register}"]

    def _view(self, declared: ResourceRange, slot: int) -> View:
        if declared.kind is ResourceKind.TYPED:
            return self._views[slot]
        return View(declared.kind, stride=declared.stride)

    def _of(self, call: Call) -> tuple[View, str]:
        found = self._handles.get(call.values[1])
        if found is None:
            raise UnsupportedShaderError(f"{call.describe()} takes handle {call.values[1]}, chosen at run time")
        return found

    def _load(self, call: Call) -> Sequence[str]:
        view, slot = self._of(call)
        name = buffers.load(call, view, self._define)
        second = call.coordinate(3) if len(call.values) > 3 else "0"
        return [self._called(call, name, slot, call.coordinate(2), second)]

    def _store(self, call: Call) -> Sequence[str]:
        view, slot = self._of(call)
        name = buffers.store(call, view, self._define)
        values = [f"{call.overload} {value}" for value in call.values[4:8]]
        return [self._called(call, name, slot, call.coordinate(2), call.coordinate(3), *values)]

    def _atomic(self, call: Call) -> Sequence[str]:
        view, slot = self._of(call)
        name = buffers.atomic(call, view, self._define)
        value = f"{call.overload} {call.values[6]}"
        return [self._called(call, name, slot, call.coordinate(3), call.coordinate(4), value)]

    def _exchange(self, call: Call) -> Sequence[str]:
        view, slot = self._of(call)
        name = buffers.compare_exchange(call, view, self._define)
        values = [f"{call.overload} {value}" for value in call.values[5:7]]
        return [self._called(call, name, slot, call.coordinate(2), call.coordinate(3), *values)]

    def _dimensions(self, call: Call) -> Sequence[str]:
        _, slot = self._of(call)
        return [self._called(call, buffers.dimensions(call, self._define), slot, "0", "0")]

    def _called(self, call: Call, name: str, slot: str, first: str, second: str, *values: str) -> str:
        result = f"{call.name} = " if call.name else ""
        arguments = ["ptr %rig.views", f"i32 {slot}", f"i32 {first}", f"i32 {second}", *values]
        return f"{result}call {call.result} {name}({', '.join(arguments)})"

    def _mapped(self, call: Call) -> Sequence[str]:
        return [f"{call.name} = icmp ne i32 {call.values[1]}, 0"]

    # ------------------------------------------------------------ threads
    def _fence(self, call: Call) -> Sequence[str]:
        return []  # of memory alone: threads run one after the other

    def _thread(self, call: Call) -> Sequence[str]:
        axis = int(call.values[1])
        begin = f"%rig.b{self._temporary()}"
        return [
            f"{begin} = mul i32 %rig.g{axis}, {self._module.group[axis]}",
            f"{call.name} = add i32 {begin}, %rig.t{axis}",
        ]

    def _group(self, call: Call) -> Sequence[str]:
        return [f"{call.name} = or i32 %rig.g{int(call.values[1])}, 0"]

    def _thread_in_group(self, call: Call) -> Sequence[str]:
        return [f"{call.name} = or i32 %rig.t{int(call.values[1])}, 0"]

    def _flat(self, call: Call) -> Sequence[str]:
        x, y, _ = self._module.group
        a, b, c = (f"%rig.f{self._temporary()}" for _ in range(3))
        return [
            f"{a} = mul i32 %rig.t2, {y}",
            f"{b} = add i32 {a}, %rig.t1",
            f"{c} = mul i32 {b}, {x}",
            f"{call.name} = add i32 {c}, %rig.t0",
        ]

    def _temporary(self) -> int:
        self._fresh += 1
        return self._fresh


def _plain(text: str) -> str:
    """Without attributes, metadata, address spaces, and leave to compute otherwise than written."""
    text = re.sub(r"(?<=\)) #\d+", "", _ATTACHED.sub("", text))
    text = _UNDEFINED.sub(r"= internal \1 undef", _FAST.sub("", text))
    return _LOCAL_MEMORY.sub("", text)
