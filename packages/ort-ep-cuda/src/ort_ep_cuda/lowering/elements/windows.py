"""Pooling: the maximum, mean or norm of each window."""

from __future__ import annotations

from dataclasses import dataclass

from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.ops import known_sizes, node_windows
from ort_ep_cuda.lowering.node_facts import LoweredNode
from ort_ep_cuda.lowering.products.convolutions import window_counts
from ort_ep_cuda.lowering.writing.preamble import STORAGE, compute_type
from ort_ep_cuda.lowering.writing.writer import filled, launch_elements, numbers, pointers

_LEAST = {DataType.INT8: "-128", DataType.UINT8: "0"}
_NUMBERS_OF_AXIS = ("size", "result", "window", "stride", "dilation", "pad", "pad_after")


def refuse_pool(node: Node) -> str | None:
    """Return why a pooling is not generated."""
    value = node.input(0)
    shape = getattr(value.type, "shape", None) if value is not None else None
    if shape is None or not 3 <= len(shape) <= 5:
        return "only pooling over one to three axes of space of known rank is generated"
    dtype = getattr(value.type, "dtype", None) if value is not None else None
    if dtype is None or not (dtype.is_float or (node.op_type == "MaxPool" and dtype in _LEAST)):
        return f"{node.op_type} of {dtype.text if dtype else 'unknown type'} is not generated"
    return None


def lower_pool(facts: LoweredNode) -> None:
    """Reduce the window of each result by its maximum or mean."""
    x = facts.builder.dense(facts.value(0))
    space = len(x.shape) - 2
    window = facts.node.ints_attribute("kernel_shape") or x.shape[2:]
    axes = node_windows(facts.node, x.shape[2:], window)
    sizes = window_counts(facts.node, axes, is_pooling=True)
    out = facts.builder.result(facts.output, (*x.shape[:2], *sizes))
    if not out.size:
        return
    per_axis = [
        known_sizes((axis.size, axis.count, axis.kernel, axis.stride, axis.dilation, axis.before, axis.after))
        for axis in axes
    ]
    declared = ", ".join(f"long long {name}{a}" for a in range(space) for name in _NUMBERS_OF_AXIS)
    written = [out]
    places = facts.node.outputs[1] if len(facts.node.outputs) > 1 else None
    if places is not None:
        written.append(facts.builder.result(places, out.shape))
    stored = ", long long* places" if places is not None else ""
    parameters = f"const @T@* x, @T@* out{stored}, {declared}, long long count"
    body = _PoolPrinter(facts.node, space, x.dtype, places is not None).body()
    kernel = filled("pool", parameters, body, _types(x.dtype))
    arguments = (*pointers(x, *written), *numbers(*(number for axis in per_axis for number in axis)))
    facts.builder.add(launch_elements(kernel, out.size, arguments, [x], written))


def _types(dtype: DataType) -> dict[str, str]:
    power = "pow" if dtype is DataType.DOUBLE else "powf"
    return {"T": STORAGE[dtype], "C": STORAGE[compute_type(dtype)], "POW": power}


@dataclass(frozen=True, slots=True)
class _PoolPrinter:
    """Prints the loops over a window: one for each axis of space, places outside of the image left out."""

    node: Node
    space: int
    dtype: DataType
    has_places: bool

    def body(self) -> str:
        lines = ["long long rest = i;"]
        for a in reversed(range(self.space)):
            lines.append(f"const long long start{a} = rest % result{a} * stride{a} - pad{a}; rest /= result{a};")
        is_max = self.node.op_type == "MaxPool"
        lines.append(f"@C@ value = {self._least() if is_max else '0'};")
        lines.append("long long counted = 0, best = -1;" if is_max else "long long counted = 0;")
        for a in range(self.space):
            # where places are kept, too, a compiler that unrolls holds more registers than three blocks have
            lines += ["#pragma unroll 2"] if self.has_places and a == self.space - 1 else []
            lines.append(f"for (long long k{a} = 0; k{a} < window{a}; ++k{a}) {{")
            lines.append(f"const long long at{a} = start{a} + k{a} * dilation{a};")
            if self._counts_padding():
                lines.append(f"if (at{a} >= size{a} + pad_after{a}) break;")
        lines += [*self._element(), *["}"] * self.space, f"out[i] = ort_store<@T@>::of({self._result()});"]
        return "\n".join([*lines, *(["places[i] = best;"] if self.has_places else [])])

    def _element(self) -> list[str]:
        inside = " && ".join(f"at{a} >= 0 && at{a} < size{a}" for a in range(self.space))
        place = "rest"
        for a in range(self.space):
            place = f"({place} * size{a} + at{a})"
        lines = ["++counted;"] if self._counts_padding() else []
        lines += [f"if (!({inside})) continue;", f"const @C@ v = ort_load(x[{place}]);"]
        if self.node.op_type == "MaxPool":
            found = f"{{ value = v; best = {self._place_of_best(place)}; }}"
            return [*lines, f"if (best < 0 || v > value || v != v) {found}"]
        term = {"AveragePool": "v", "LpPool": self._power("v")}[self.node.op_type]
        return [*lines, f"value += {term};", *([] if self._counts_padding() else ["++counted;"])]

    def _place_of_best(self, place: str) -> str:
        if not self.node.int_attribute("storage_order", 0):
            return place
        column = f"at{self.space - 1}"  # columns first: the last axis of space counts most
        for a in reversed(range(self.space - 1)):
            column = f"({column} * size{a} + at{a})"
        image = " * ".join(f"size{a}" for a in range(self.space))
        return f"rest * ({image}) + {column}"

    def _counts_padding(self) -> bool:
        return self.node.op_type == "AveragePool" and self.node.int_attribute("count_include_pad", 0) == 1

    def _power(self, value: str) -> str:
        power = self.node.int_attribute("p", 2)
        if power in (1, 2):
            return f"({value} < 0 ? -{value} : {value})" if power == 1 else f"{value} * {value}"
        return f"@POW@({value} < 0 ? -{value} : {value}, (@C@){power})"

    def _result(self) -> str:
        if self.node.op_type == "AveragePool":
            return "value / (@C@)counted"
        if self.node.op_type == "MaxPool":
            return "value"
        power = self.node.int_attribute("p", 2)
        return {1: "value", 2: "(@C@)sqrt(value)"}.get(power, f"@POW@(value, (@C@)(1.0 / {power}.0))")

    def _least(self) -> str:
        return _LEAST.get(self.dtype, "-(@C@)__int_as_float(0x7f800000)")
