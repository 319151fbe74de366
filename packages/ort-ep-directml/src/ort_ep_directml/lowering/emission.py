"""Emission: operators of a plan, appended one by one while nodes are lowered, each checked against the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ort_core.plugin.claims import SMALL_NBYTES
from ort_core.plugin.ir import Node, Value
from ort_ep_directml.lowering.lowering_context import LoweringContext, element_type
from ort_ep_directml.lowering.operand import Operand, packed, reshaped, transposed
from ort_ep_directml.lowering.plan import PlanConstant, PlanNode, Sizes, Source, Tensor
from ort_ep_directml.lowering.refused import Refused
from ort_ep_directml.schema.element_types import ElementType
from ort_ep_directml.schema.enumerators import ReduceFunction
from ort_ep_directml.schema.operators import OPERATORS, Field, level_text
from ort_ep_directml.schema.tensor_types import MAX_RANK, TENSOR_TYPES, TensorTypes

Made = tuple[ElementType, Sequence[int]]
"""Element type and sizes of what an operator writes."""

# Others are given packed rows: reports of wrong results for strides of theirs exist (Swish before 1.15)
_STRIDED = ("ELEMENT_WISE_", "GEMM", "CAST", "ACTIVATION_PARAMETERIZED_RELU")
_MAX_NBYTES = 1 << 32


class EmissionState:
    """What has been lowered so far.

    Args:
        context: the graph that is lowered.
        shapes: sizes of values that are known as numbers.
        is_sample: whether some of them stand for sizes that are open; tensors may then be of any extent.
        is_trial: whether nobody wants the plan: weights are then described, not read.
    """

    def __init__(
        self,
        context: LoweringContext,
        shapes: Mapping[Value, Sizes],
        *,
        is_sample: bool = False,
        is_trial: bool = False,
    ) -> None:
        self.context = context
        self.nodes: list[PlanNode] = []
        self.constants: list[PlanConstant] = []
        self._shapes = shapes
        self.is_sample = is_sample
        self._limit = None if is_sample else _MAX_NBYTES
        self.is_trial = is_trial
        self._operands: dict[Value, Operand] = {}
        self._constants: dict[tuple[str, Sizes, bytes], Operand] = {}
        self._origin = ""

    def begin(self, node: Node) -> None:
        """Say which node what follows belongs to."""
        self._origin = node.describe()

    def bind(self, value: Value, operand: Operand) -> None:
        """Say what a value is in the plan."""
        self._operands[value] = operand

    def sizes(self, value: Value | None) -> Sizes:
        """Return the sizes of a value.

        Raises:
            Refused: they are not all known before the run.
        """
        if value is None or value not in self._shapes:
            name = "a value" if value is None else repr(value.name)
            raise Refused(f"the sizes of {name} are not known before the run, and DirectML compiles for fixed sizes")
        return self._shapes[value]

    def operand(self, value: Value | None) -> Operand:
        """Return what a value is in the plan.

        Raises:
            Refused: it is absent, empty, or of a type that DirectML has not.
        """
        if value is None:
            raise Refused("an input that it needs is absent")
        if 0 in self._shapes.get(value, ()):
            raise Refused(f"{value.name!r} holds no element; DirectML has no empty tensors")
        if value not in self._operands:
            self._operands[value] = self._described(value) or self._read(value)
        return self._operands[value]

    def _described(self, value: Value) -> Operand | None:
        """Return a weight without its elements, for a trial; ``None`` for what is to be read."""
        dtype, nbytes = element_type(value), self.context.nbytes(value)
        if not self.is_trial or dtype is None or nbytes <= SMALL_NBYTES:
            return None
        return packed(Source("constant", 0), dtype, self.sizes(value))

    def _read(self, value: Value) -> Operand:
        array = self.context.constant(value)
        if array is None:
            raise Refused(f"{value.name!r} is neither computed nor constant")
        return self.constant(array, element_type(value))

    def operands(self, node: Node) -> list[Operand]:
        """Return the operands of all inputs that are present."""
        return [self.operand(value) for value in node.present_inputs()]

    def constant(self, array: np.ndarray, dtype: ElementType | None = None) -> Operand:
        """Return a constant of the plan; small ones with equal elements are one.

        Raises:
            Refused: DirectML has no such element type, or there is no element.
        """
        dtype = dtype or ElementType.__members__.get(array.dtype.name.upper())
        if dtype is None:
            raise Refused(f"DirectML has no element type for constants of {array.dtype.name}")
        if array.size == 0:
            raise Refused("a constant holds no element; DirectML has no empty tensors")
        key = (dtype.text, tuple(array.shape), array.tobytes()) if array.nbytes <= 256 else None
        if key is not None and key in self._constants:
            return self._constants[key]
        order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])  # as it lies in memory, not copied
        laid = np.ascontiguousarray(array.transpose(order))
        whole = packed(Source("constant", len(self.constants)), dtype, laid.shape)
        self.constants.append(PlanConstant(whole.tensor(), laid))
        found = transposed(whole, [order.index(axis) for axis in range(array.ndim)])
        if key is not None:
            self._constants[key] = found
        return found

    def scalar(self, dtype: ElementType, value: float) -> Operand:
        """Return a constant of one element, without sizes."""
        return self.constant(np.array(value).astype(dtype.numpy), dtype)

    def emit(self, kind: str, made: Made, **fields: object) -> Operand:
        """Append an operator with one result, and return it; see ``emit_many``."""
        (output,) = OPERATORS[kind].outputs[:1]
        return self.emit_many(kind, {output.name: made}, **fields)[0]

    def emit_many(self, kind: str, made: Mapping[str, Made], **fields: object) -> list[Operand]:
        """Append an operator.

        Args:
            kind: its name.
            made: what it writes, by the name of the field.
            fields: operands, numbers, arrays by name; those that are absent may be ``None`` or left out. Tensors get
                sizes of 1 in front where the operator takes no fewer.

        Returns:
            One operand for each entry of ``made``, in order.

        Raises:
            Refused: the device's feature level, or a type or rank, does not allow it.
        """
        schema = OPERATORS[kind]
        if schema.level > self.context.level:
            here, needed = level_text(self.context.level), level_text(schema.level)
            raise Refused(f"DirectML's {kind} needs feature level {needed}; this device has {here}")
        sources: list[Source | None] = []
        values: dict[str, object] = {}
        rank = _types_of(kind, fields).ranks[0]
        for field in schema.fields:
            if field.is_input:
                operands = [None if each is None else self._readable(kind, each) for each in _operands(fields, field)]
                tensors = tuple(each.tensor(rank) for each in operands if each is not None)
                sources += [None if each is None else each.source for each in operands]
                if tensors:
                    values[field.name] = tensors if field.kind == "ins" else tensors[0]
            elif not field.is_output and fields.get(field.name) is not None:
                values[field.name] = fields[field.name]
        place = len(self.nodes)  # moving what cannot be read in place has appended nodes
        results = {name: packed(Source("node", place, _slot(kind, name)), *each) for name, each in made.items()}
        values |= {name: result.tensor(rank) for name, result in results.items()}
        node = PlanNode(kind, values, tuple(sources), self._origin)
        check_node(node, self.context.level, self._limit)
        self.nodes.append(node)
        return list(results.values())

    def packed(self, operand: Operand) -> Operand:
        """Return an operand with packed rows: the operand, or a copy."""
        if operand.is_packed:
            return operand
        return self.emit("ELEMENT_WISE_IDENTITY", (operand.dtype, operand.sizes), Input=operand)

    def reshape(self, operand: Operand, sizes: Sequence[int]) -> Operand:
        """Return an operand with other sizes: a view, or a copy where strides cannot say it."""
        found = reshaped(operand, sizes)
        if found is None:
            found = reshaped(self.packed(operand), sizes)
        assert found is not None, "packed rows can be seen with any sizes"
        return found

    def cast(self, operand: Operand, dtype: ElementType) -> Operand:
        """Return an operand's elements in another type."""
        if operand.dtype is dtype:
            return operand
        return self.emit("CAST", (dtype, operand.sizes), Input=operand)

    def _readable(self, kind: str, operand: Operand) -> Operand:
        return operand if kind.startswith(_STRIDED) else self.packed(operand)


def _operands(fields: Mapping[str, object], field: Field) -> Iterator[Operand | None]:
    value = fields.get(field.name)
    if field.kind == "ins":
        assert isinstance(value, Sequence), field
        yield from value
    else:
        assert value is None or isinstance(value, Operand), (field, value)
        yield value


def _slot(kind: str, name: str) -> int:
    """Return the place of an output among all that the operator may have."""
    return [output.name for output in OPERATORS[kind].outputs].index(name)


def _types_of(kind: str, fields: Mapping[str, object]) -> TensorTypes:
    key = kind
    if kind == "REDUCE":
        key = f"REDUCE.{ReduceFunction(fields['Function']).name}"  # type: ignore[arg-type]  # rules put a number there
    if key not in TENSOR_TYPES:
        raise Refused(f"the table of element types has no line for DirectML's {key}")
    return TENSOR_TYPES[key]


def check_node(node: PlanNode, level: int, limit: int | None = _MAX_NBYTES) -> None:
    """Compare a node with the tables, and its tensors with a limit of their bytes.

    Raises:
        Refused: DirectML does not take its types, ranks or sizes.
    """
    types = _types_of(node.kind, node.fields)
    found = [(f.name, tensor) for f in OPERATORS[node.kind].fields for tensor in _tensors(node.fields.get(f.name))]
    reason = types.refusal(node.kind, [(name, tensor.dtype) for name, tensor in found], level)
    if reason is not None:
        raise Refused(reason)
    low, high = types.ranks
    for name, tensor in found:
        if not low <= len(tensor.sizes) <= high:
            taken = f"{low} to {high}" if high < MAX_RANK else f"at most {MAX_RANK}"
            raise Refused(f"the {name} of DirectML's {node.kind} has {len(tensor.sizes)} dimensions; it takes {taken}")
        if 0 in tensor.sizes:
            raise Refused("a tensor holds no element; DirectML has no empty tensors")
        if limit is not None and tensor.nbytes >= limit:
            raise Refused(f"a tensor of {tensor.nbytes} bytes is beyond what DirectML's indices reach (4 GiB)")


def exceeds_index_range(node: PlanNode) -> bool:
    """Return whether a tensor of an operator has more bytes than DirectML's indices reach."""
    return any(tensor.nbytes >= _MAX_NBYTES for value in node.fields.values() for tensor in _tensors(value))


def _tensors(value: object) -> Iterator[Tensor]:
    for each in value if isinstance(value, tuple) else (value,):
        if isinstance(each, Tensor):
            yield each
