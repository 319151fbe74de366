"""PlainWriter: ONNX's own operators for one of com.microsoft.nchwc, in its place in the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ort_core.errors import InvalidGraph, NotImplemented
from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.values import Value

Step = tuple[str, list[Value], Mapping[str, object], int]  # operator, further inputs, attributes, since which opset
_INPUTS_OPSET = 13  # Clip, Slice and Resize take their parameters as inputs
_HARD_SWISH_OPSET = 14
_CONVOLUTION = ("auto_pad", "dilations", "kernel_shape", "pads", "strides")
_DEFAULTS = {"ceil_mode": 0, "storage_order": 0, "count_include_pad": 0}  # old versions of pools do not know them
_PARAMETERS = {  # the attributes that an activation's parameters stand for
    "Relu": (), "Sigmoid": (), "Tanh": (), "HardSwish": (), "LeakyRelu": ("alpha",), "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
}  # fmt: skip


def image_of(node: Node) -> Value:
    """Return the first input of an operator of com.microsoft.nchwc.

    Raises:
        InvalidGraph: it has none.
    """
    image = node.input(0)
    if image is None:
        raise InvalidGraph(f"{node.describe()}: the first input is missing")
    return image


def constant_input(node: Node, index: int, dtype: type = np.float32) -> np.ndarray | None:
    """Return an input that is a constant of a type, or ``None``."""
    value = node.input(index)
    owner = None if value is None else value.graph
    found = None if owner is None else owner.fixed_constant(value)
    return None if found is None or found.dtype.numpy != dtype else found.array()


class PlainWriter:
    """Writes plain operators in front of a blocked one, the last of which takes over its output."""

    def __init__(self, graph: Graph, node: Node, opset: int) -> None:
        self._graph, self._node, self._opset = graph, node, opset

    def keep(self) -> None:
        """Give the first input on."""
        self._chain(image_of(self._node), [])

    def reorder_input(self, channels: int | None) -> None:
        """Take images of [N, C, H, W] or [N, H, W, C] as they are, of which the first ``channels`` are read."""
        image = image_of(self._node)
        steps: list[Step] = []
        if self._node.int_attribute("channels_last", 0):
            steps.append(("Transpose", [], {"perm": [0, 3, 1, 2]}, 1))
        if channels is not None:
            numbers = [self._numbers([number]) for number in (0, channels, 1)]
            steps.append(("Slice", numbers, {}, _INPUTS_OPSET))
        self._chain(image, steps)

    def reorder_output(self) -> None:
        """Give plain images on, channels last if they are wanted so."""
        channels_last = self._node.int_attribute("channels_last", 0)
        steps = [("Transpose", list[Value](), {"perm": [0, 2, 3, 1]}, 1)] if channels_last else []
        self._chain(image_of(self._node), steps)

    def convolution(self, weights: np.ndarray, reads: int | None, makes: int | None) -> None:
        """Convolve with the plain filter, cut to the channels that are read and made; add and activate."""
        node, is_depthwise = self._node, self._node.int_attribute("group", 1) == weights.shape[0] > 1
        filters = weights[:makes] if is_depthwise else weights[:makes, :reads]
        attributes: dict[str, object] = {
            name: node.attributes[name] for name in _CONVOLUTION if name in node.attributes
        }
        attributes["group"] = len(filters) if is_depthwise else node.int_attribute("group", 1)
        inputs: list[Value | None] = [image_of(node), self._constant(filters, node.inputs[1])]
        if node.input(2) is not None:
            inputs.append(self._bias(weights.shape[0], makes))
        addend, steps = node.input(3), list[Step]()
        if addend is not None:
            steps.append(("Add", [addend], {}, 1))
        if node.attribute("activation"):
            steps.append(self._activation(str(node.attribute("activation"))))
        if not steps:
            self._last("Conv", inputs, attributes, 1)
            return
        self._chain(self._inner("Conv", inputs, attributes, 1), steps)

    def _bias(self, filled: int, makes: int | None) -> Value | None:
        """Return the bias of the channels that are made: the given one where that is all of them."""
        value, bias = self._node.inputs[2], constant_input(self._node, 2)
        if makes in (None, filled):
            return value
        if bias is None or bias.shape != (filled,):
            raise InvalidGraph(f"{self._node.describe()}: the bias must be a constant of [{filled}]")
        return self._constant(bias[:makes], value)

    def _activation(self, name: str) -> Step:
        given = self._node.attribute("activation_params", ())
        parameters = [float(number) for number in given] if isinstance(given, tuple) else []
        if name == "Clip" and len(parameters) == 2:
            return name, [self._scalar(each) for each in parameters], {}, _INPUTS_OPSET
        if name not in _PARAMETERS or len(parameters) < len(_PARAMETERS[name]):
            raise NotImplemented(
                f"{self._node.describe()} ends in the activation {name!r} with {len(parameters)} parameters; known are "
                f"Clip and {', '.join(sorted(_PARAMETERS))}"
            )
        attributes = dict(zip(_PARAMETERS[name], parameters, strict=False))
        return name, [], attributes, _HARD_SWISH_OPSET if name == "HardSwish" else 1

    def pool(self) -> None:
        """Pool plain images."""
        kept = {name: each for name, each in self._node.attributes.items() if each.value != _DEFAULTS.get(name)}
        if set(self._node.ints_attribute("dilations") or ()) == {1}:
            del kept["dilations"]
        self._last(self._node.op_type, [image_of(self._node)], kept, 1)

    def upsample(self) -> None:
        """Resize by whole factors."""
        node = self._node
        scales = np.array(node.ints_attribute("scales") or (), np.float32)
        mode = {"mode": node.string_attribute("mode", "nearest"), "nearest_mode": "floor"}
        mode["coordinate_transformation_mode"] = node.string_attribute("coordinate_transformation_mode", "asymmetric")
        inputs = [image_of(node), None, self._constant(scales, None)]
        self._last("Resize", inputs, mode, _INPUTS_OPSET)

    def _chain(self, value: Value, steps: Sequence[Step]) -> None:
        """Apply operators one after the other, each to the last one's result and its further inputs."""
        for number, (op_type, further, attributes, since) in enumerate(steps or [("Identity", [], {}, 1)]):
            write: Callable[..., Value] = self._last if number >= len(steps) - 1 else self._inner
            value = write(op_type, [value, *further], attributes, since)

    def _inner(
        self, op_type: str, inputs: Sequence[Value | None], attributes: Mapping[str, object], since: int
    ) -> Value:
        return self._write(op_type, inputs, Value(""), attributes, since, f"{self._node.name}_{op_type}")

    def _last(
        self, op_type: str, inputs: Sequence[Value | None], attributes: Mapping[str, object], since: int
    ) -> Value:
        return self._write(op_type, inputs, self._node.detach_output(0), attributes, since, self._node.name)

    def _write(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        output: Value,
        attributes: Mapping[str, object],
        since: int,
        name: str,
    ) -> Value:
        opset = None if self._opset >= since else since
        new = Node(op_type, inputs, [output], attributes, name=name, opset=opset)
        new.metadata = dict(self._node.metadata)
        self._graph.insert_before(self._node, new)
        return output

    def _constant(self, array: np.ndarray, former: Value | None) -> Value:
        name = "scales" if former is None else f"{former.name}_plain"
        return self._graph.new_constant(np.ascontiguousarray(array), name)

    def _numbers(self, numbers: Sequence[int]) -> Value:
        return self._graph.new_constant(np.array(numbers, np.int64), "numbers")

    def _scalar(self, number: float) -> Value:
        return self._graph.new_constant(np.array(number, np.float32), "bound")
