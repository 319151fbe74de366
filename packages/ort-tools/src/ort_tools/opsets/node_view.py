"""NodeView: what an adapter sees of its node, and how it makes others: types, constants, attributes, new nodes."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, SparseTensorProto, TensorProto, TypeProto, helper, numpy_helper

from ort_tools.opsets.refusal import OpsetRefusal


@dataclass(slots=True)
class Names:
    """The names that a model uses, so that new ones are others."""

    used: set[str]
    _count: int = 0

    def fresh(self, hint: str) -> str:
        """Return a name that nothing has."""
        while True:
            self._count += 1
            name = f"{hint}_{self._count}"
            if name not in self.used:
                self.used.add(name)
                return name


@dataclass(slots=True)
class GraphState:
    """A graph while its nodes are adapted: known constants, and the initializers that adapters add."""

    types: Mapping[str, TypeProto]
    constants: ChainMap[str, TensorProto]
    names: Names
    keeps_initializers: bool
    new_initializers: list[TensorProto] = field(default_factory=list)
    is_grown: bool = False  # adapters made values whose types nobody knows yet


class NodeView:
    """One node on its way from one operator set to the next.

    Args:
        node: the node, which adapters may change and return.
        state: of its graph.
        source: the operator set that it is written in.
        target: the one that it goes to, ``source`` plus or minus 1.
    """

    def __init__(self, node: NodeProto, state: GraphState, source: int, target: int) -> None:
        self.node, self.source, self.target = node, source, target
        self._state = state
        self._before: list[NodeProto] = []

    def refuse(self, what: str) -> OpsetRefusal:
        """Return the error that says what of the node has no form."""
        return OpsetRefusal(self.node, self.target, what)

    # ---- attributes

    def find(self, name: str) -> AttributeProto | None:
        """Return an attribute. Raises ``OpsetRefusal``: only a function's caller knows its value."""
        found = next((each for each in self.node.attribute if each.name == name), None)
        if found is not None and found.ref_attr_name:
            raise self.refuse(f"attribute {name!r} is a function's attribute, whose value only its callers know")
        return found

    def integer(self, name: str, default: int) -> int:
        """Return an attribute's integer."""
        found = self.find(name)
        return default if found is None else int(found.i)

    def number(self, name: str, default: float) -> float:
        """Return an attribute's number."""
        found = self.find(name)
        return default if found is None else float(found.f)

    def integers(self, name: str) -> list[int] | None:
        """Return an attribute's integers, ``None`` where the node does not have it."""
        found = self.find(name)
        return None if found is None else list(found.ints)

    def text(self, name: str, default: str) -> str:
        """Return an attribute's text."""
        found = self.find(name)
        return default if found is None else found.s.decode()

    def drop(self, *names: str) -> None:
        """Take attributes away."""
        kept = [each for each in self.node.attribute if each.name not in names]
        del self.node.attribute[:]
        self.node.attribute.extend(kept)

    def put(self, name: str, value: object) -> None:
        """Set an attribute."""
        self.drop(name)
        self.node.attribute.append(helper.make_attribute(name, value))

    # ---- inputs and outputs

    def input(self, place: int) -> str:
        """Return the name of an input, empty where there is none."""
        return self.node.input[place] if place < len(self.node.input) else ""

    def set_inputs(self, names: Iterable[str]) -> None:
        """Set the inputs; empty ones at the end are left out."""
        kept = list(names)
        while kept and not kept[-1]:
            kept.pop()
        del self.node.input[:]
        self.node.input.extend(kept)

    def has_output(self, place: int) -> bool:
        """Return whether an output is named."""
        return place < len(self.node.output) and bool(self.node.output[place])

    def constant(self, place: int) -> np.ndarray | None:
        """Return an input's constant, ``None`` where there is no input or no constant."""
        tensor = self._state.constants.get(self.input(place)) if self.input(place) else None
        return None if tensor is None else numpy_helper.to_array(tensor)

    def need_constant(self, place: int, what: str) -> np.ndarray:
        """Return an input's constant. Raises ``OpsetRefusal``: it is none."""
        found = self.constant(place)
        if found is None:
            raise self.refuse(f"input {what!r} is not a constant, and would have to become an attribute or fixed sizes")
        return found

    def need_integers(self, place: int, what: str) -> list[int]:
        """Return an input's constant as integers. Raises as ``need_constant``."""
        return [int(each) for each in self.need_constant(place, what).ravel()]

    # ---- types

    def type_of(self, name: str) -> TypeProto | None:
        """Return the type of a value."""
        return self._state.types.get(name)

    def element_type(self, name: str) -> int:
        """Return the element type of a tensor. Raises ``OpsetRefusal``: it is not known."""
        found = self.type_of(name)
        if found is None or not found.tensor_type.elem_type:
            raise self.refuse(f"the element type of {name!r} is not known")
        return int(found.tensor_type.elem_type)

    def rank(self, name: str) -> int | None:
        """Return the rank of a tensor, ``None`` where it is not known."""
        found = self.type_of(name)
        return None if found is None or not found.tensor_type.HasField("shape") else len(found.tensor_type.shape.dim)

    def need_place(self, axis: int, rank: int) -> int:
        """Return an axis counted from the front. Raises ``OpsetRefusal``: a tensor of this rank has none such."""
        if not -rank <= axis < rank:
            raise self.refuse(f"axis {axis} is none of a tensor of rank {rank}")
        return axis % rank

    def need_rank(self, name: str, why: str) -> int:
        """Return the rank of a tensor. Raises ``OpsetRefusal``: it is not known."""
        found = self.rank(name)
        if found is None:
            raise self.refuse(f"{why}, and the rank of {name!r} is not known")
        return found

    def sizes(self, name: str) -> list[int | None] | None:
        """Return the sizes of a tensor, ``None`` for those that are not fixed; ``None`` without a rank."""
        found = self.type_of(name)
        if found is None or not found.tensor_type.HasField("shape"):
            return None
        return [dim.dim_value if dim.HasField("dim_value") else None for dim in found.tensor_type.shape.dim]

    def need_sizes(self, name: str, why: str) -> list[int]:
        """Return the sizes of a tensor. Raises ``OpsetRefusal``: not all are fixed."""
        found = self.sizes(name)
        fixed = [each for each in found or () if each is not None]
        if found is None or len(fixed) != len(found):
            raise self.refuse(f"{why}, and the shape of {name!r} is not fixed")
        return fixed

    # ---- new nodes

    def add(self, op_type: str, inputs: Sequence[str], output: str = "", **attributes: object) -> str:
        """Put a node before what the adapter returns; return the name of its result."""
        result = output or self._state.names.fresh(f"{self.node.output[0] or op_type}_{op_type}")
        self._before.append(self.make(op_type, inputs, [result], **attributes))
        return result

    def make(self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: object) -> NodeProto:
        """Return a new node."""
        self._state.is_grown = True
        node = helper.make_node(op_type, inputs, outputs)
        node.attribute.extend(helper.make_attribute(name, value) for name, value in sorted(attributes.items()))
        if self.node.name:
            node.name = self._state.names.fresh(f"{self.node.name}_{op_type}")
        return node

    def fresh(self, hint: str) -> str:
        """Return a name that nothing has."""
        self._state.is_grown = True
        return self._state.names.fresh(hint)

    def put_constant(self, array: np.ndarray | TensorProto, hint: str) -> str:
        """Return the name of a new constant."""
        name = self._state.names.fresh(f"{self.node.output[0] or self.node.op_type}_{hint}")
        tensor = TensorProto()
        tensor.CopyFrom(array if isinstance(array, TensorProto) else numpy_helper.from_array(array))
        tensor.name = name
        self._state.constants[name] = tensor
        self._state.is_grown = True
        if self._state.keeps_initializers:
            self._state.new_initializers.append(tensor)
        else:
            self._before.append(helper.make_node("Constant", [], [name], value=tensor))
        return name

    def put_integers(self, values: Sequence[int], hint: str) -> str:
        """Return the name of a new constant of int64."""
        return self.put_constant(np.asarray(values, np.int64), hint)

    def put_scalar(self, value: float, like: str, hint: str, shape: Sequence[int] = ()) -> str:
        """Return the name of a new constant of one number, of the element type of another value."""
        count = int(np.prod(shape, dtype=np.int64))
        return self.put_constant(helper.make_tensor("", self.element_type(like), shape, [value] * count), hint)

    def take(self) -> list[NodeProto]:
        """Return the nodes that were put before, which are no longer kept."""
        taken, self._before = self._before, []
        return taken


def constants_of(graph: GraphProto) -> dict[str, TensorProto]:
    """Return the constants of one graph by name: initializers that no caller may replace, and Constant nodes."""
    inputs = {each.name for each in graph.input}
    found = {each.name: each for each in graph.initializer if each.name not in inputs}
    for node in graph.node:
        if node.domain in ("", "ai.onnx") and node.op_type == "Constant":
            tensor = constant_tensor(node)
            if tensor is not None:
                found[node.output[0]] = tensor
        elif node.op_type == "Identity" and node.input[0] in found:
            found[node.output[0]] = found[node.input[0]]
    return found


def constant_tensor(node: NodeProto) -> TensorProto | None:
    """Return what a Constant node gives, ``None`` where only a function's caller knows it."""
    attribute = node.attribute[0] if node.attribute else None
    if attribute is None or attribute.ref_attr_name:
        return None
    value = helper.get_attribute_value(attribute)
    if attribute.name == "value":
        return attribute.t
    if attribute.name == "sparse_value":
        return numpy_helper.from_array(_dense(attribute.sparse_tensor))
    if attribute.name in ("value_string", "value_strings"):
        texts = value if isinstance(value, list) else [value]
        shape = [len(texts)] if attribute.name.endswith("s") else []
        return helper.make_tensor("", TensorProto.STRING, shape, texts)
    dtype = np.float32 if attribute.name.startswith("value_float") else np.int64
    return numpy_helper.from_array(np.asarray(value, dtype))


def _dense(sparse: SparseTensorProto) -> np.ndarray:
    values = numpy_helper.to_array(sparse.values)
    indices = numpy_helper.to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 1:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return dense
