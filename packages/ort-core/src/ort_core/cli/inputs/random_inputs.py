"""Random inputs that a model accepts: sizes from names, values from what the graph does with them.

Token ids lie in the range of the table that they index, masks are ones, positions count up behind the past, and an
integer that the graph compares with a constant is that constant. What is guessed is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import typer

from ort_core.errors import InvalidArgument
from ort_core.ir.dims import Dim, SymbolicDim
from ort_core.ir.types import DataType, MapType, OptionalType, SequenceType, SparseTensorType, TensorType, ValueType
from ort_core.ir.values import Value

ANONYMOUS_SIZE = 16
_BATCH, _SEQUENCE, _PAST, _IMAGE = 1, 16, 8, 224
_WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "it", "rains")
_SIZES_BY_NAME = (  # first match wins; searched in the lower-case name of a dimension
    (re.compile(r"batch|beam|^(n|b|bs)$"), _BATCH),
    (re.compile(r"past|cache|history"), _PAST),
    (re.compile(r"height|width|^(h|w)$"), _IMAGE),
    (re.compile(r"channel|^c$"), 3),
)
_RECURRENT = re.compile(r"state|hidden|cell|^(h|c)_?(0|n|t)?$")  # [layers, batch, size] as LSTM and GRU have it
_ANONYMOUS = re.compile(r"^$|^(unk__?\d+|none|\?.*|-1|anonymous.*|_+\d*)$", re.IGNORECASE)
_PASSES_VALUES = frozenset(
    {
        "Cast",
        "Identity",
        "Reshape",
        "Unsqueeze",
        "Squeeze",
        "Flatten",
        "Transpose",
        "Expand",
        "Slice",
        "Split",
        "Concat",
    }
)  # operators whose output holds the same integers as their first input
_KEEPS_SHAPE = frozenset({"Cast", "Identity", "DequantizeLinear"})
_EMBEDDINGS = {"EmbedLayerNormalization": {0: 2, 1: 4}, "SkipLayerNormalization": {}}
_SAFE_BOUND = 3  # of integers that nothing is known about: good as indices into almost anything


@dataclass(frozen=True, slots=True)
class RandomInput:
    """A made-up value: what it is in words, and which of its sizes were guessed without even a name."""

    value: object
    origin: str
    guessed_axes: tuple[int, ...] = ()


class InputMaker:
    """Makes values for inputs.

    Args:
        inputs: all inputs of the graph without a default.
        shapes: shapes by input name, as given by the user.
        sizes: sizes by dimension name, as given by the user.
        seed: of the random numbers.
        anonymous_size: of a dimension of which nothing is known.
    """

    def __init__(
        self,
        inputs: Iterable[Value],
        shapes: Mapping[str, tuple[int, ...]],
        sizes: Mapping[str, int],
        seed: int = 0,
        anonymous_size: int = ANONYMOUS_SIZE,
    ) -> None:
        self._inputs = tuple(inputs)
        self._shapes = shapes
        self._sizes = dict(sizes)
        self._generator = np.random.default_rng(seed)
        self._anonymous_size = anonymous_size
        self._names = dimension_names(self._inputs)

    def make(self, value: Value) -> RandomInput:
        """Return a value for one input.

        Raises:
            typer.BadParameter: its rank is unknown and no shape was given, or the given one does not fit.
            InvalidArgument: nobody can make up a value of its type.
        """
        made = self._of_type(value, value.type)
        axes = () if value.name in self._shapes else self._guessed_axes(value)
        return RandomInput(made[0], made[1], axes)

    def size(self, dim: Dim, axis: int) -> int:
        """Return the size of a dimension: given, fixed, or by its name."""
        if isinstance(dim, int):
            return dim
        if isinstance(dim, SymbolicDim):
            return dim.evaluate({name: self.size_of_name(name, axis) for name in dim.symbols()})
        return _BATCH if axis == 0 else self._anonymous_size

    def open_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the inputs that leave a size open, with the sizes chosen here."""
        shapes = {}
        for value in self._inputs:
            declared, shape = value.type, value.shape or ()
            is_open = any(not isinstance(dim, int) for dim in shape)
            if value.constant is None and is_open and isinstance(declared, TensorType):
                shapes[value.name] = self._shape(value, declared)
        return shapes

    def size_of_name(self, name: str, axis: int = 0) -> int:
        """Return the size of a named dimension: given, or by what its name says."""
        if name in self._sizes:
            return self._sizes[name]
        parts = [part.strip() for part in name.split("+")]
        if len(parts) > 1:
            return sum(int(part) if part.isdigit() else self.size_of_name(part, axis) for part in parts)
        lower = name.lower()
        if _ANONYMOUS.match(name):
            return _BATCH if axis == 0 else self._anonymous_size
        if "total" in lower or "max" in lower:
            past = next(
                (n for n in self._names if "past" in n.lower() and "+" not in n and "total" not in n.lower()), None
            )
            plain = next((n for n in self._names if re.search("seq|len", n.lower()) and n not in (name, past)), None)
            return sum(self.size_of_name(n, axis) for n in (past, plain) if n is not None) or _SEQUENCE
        return next((size for pattern, size in _SIZES_BY_NAME if pattern.search(lower)), _SEQUENCE)

    def _guessed_axes(self, value: Value) -> tuple[int, ...]:
        shape = value.type.shape if isinstance(value.type, (TensorType, SparseTensorType)) else None
        return tuple(
            axis for axis, dim in enumerate(shape or ()) if axis and _is_anonymous(dim) and not self._is_given(dim)
        )

    def _is_given(self, dim: Dim) -> bool:
        return isinstance(dim, SymbolicDim) and dim.name in self._sizes

    def _of_type(self, value: Value, declared: ValueType | None) -> tuple[object, str]:
        if isinstance(declared, TensorType):
            return self._tensor(value, declared)
        if isinstance(declared, OptionalType):
            return self._of_type(value, declared.element)
        if isinstance(declared, SequenceType):
            items = [self._of_type(value, declared.element) for _ in range(2)]
            return [item for item, _ in items], f"two elements: {items[0][1]}"
        if isinstance(declared, MapType):
            return self._map(declared)
        raise InvalidArgument(
            f"input {value.name!r} has the type {declared or 'unknown'}, for which no random value can be made; "
            f"give --input {value.name}=FILE"
        )

    def _map(self, declared: MapType) -> tuple[object, str]:
        keys: list[object] = list(_WORDS[:3]) if declared.key is DataType.STRING else [0, 1, 2]
        items = self._generator.standard_normal(len(keys))
        return dict(zip(keys, map(float, items), strict=True)), "a map with three keys"

    def _tensor(self, value: Value, declared: TensorType) -> tuple[np.ndarray, str]:
        shape = self._shape(value, declared)
        dtype, name = declared.dtype, value.name.lower()
        if dtype is DataType.STRING:
            return self._strings(shape), "words"
        if "mask" in name and "masked" not in name:
            return np.ones(shape, dtype.numpy), "a mask of ones"
        if dtype is DataType.BOOL:
            return self._generator.random(shape) < 0.5, "random truth values"
        if dtype.is_integer:
            return self._integers(value, dtype, shape)
        if dtype in (DataType.COMPLEX64, DataType.COMPLEX128):
            parts = self._generator.standard_normal((2, *shape))
            return (parts[0] + 1j * parts[1]).astype(dtype.numpy), "random, normal"
        return np.asarray(self._generator.standard_normal(shape)).astype(dtype.numpy), "random, normal"

    def _shape(self, value: Value, declared: TensorType) -> tuple[int, ...]:
        given = self._shapes.get(value.name)
        shape = declared.shape
        if given is not None:
            fits = shape is None or not shape or len(given) == len(shape)
            if not fits or any(isinstance(d, int) and d != g for d, g in zip(shape or (), given)):
                shown = f"[{', '.join('?' if d is None else str(d) for d in shape or ())}]"
                raise typer.BadParameter(
                    f"input {value.name!r} is declared as {shown}, {'x'.join(map(str, given))} does not fit",
                    param_hint="--shape",
                )
            return given
        if shape is None:
            raise typer.BadParameter(
                f"the model does not say the rank of input {value.name!r}; give --shape {value.name}=2x3, or "
                f"--input {value.name}=FILE",
                param_hint="--shape",
            )
        batch_axis = 1 if len(shape) == 3 and _RECURRENT.search(value.name.lower()) else 0
        return tuple(self.size(dim, 0 if axis == batch_axis else axis) for axis, dim in enumerate(shape))

    def _strings(self, shape: tuple[int, ...]) -> np.ndarray:
        words = np.empty(shape, object)
        flat = words.reshape(-1)
        for index in range(flat.size):
            flat[index] = " ".join(self._generator.choice(_WORDS, 5))
        return flat.reshape(shape)

    def _integers(self, value: Value, dtype: DataType, shape: tuple[int, ...]) -> tuple[np.ndarray, str]:
        name, bound = value.name.lower(), index_bound(value)
        compared = compared_constant(value)
        if compared is not None:
            return np.full(shape, compared, dtype.numpy), f"{compared}, which the graph compares it with"
        if "position" in name and shape:
            past = next((self.size_of_name(n, 0) for n in self._names if "past" in n.lower() and "+" not in n), 0)
            start = past if bound is None or past + shape[-1] <= bound[0] else 0
            return np.broadcast_to(np.arange(start, start + shape[-1]), shape).astype(dtype.numpy), "counting positions"
        if re.search(r"(^|_)(len|length|lengths|lens)(_|$)", name) and len(shape) <= 1:
            return np.full(shape, self._sequence_size(), dtype.numpy), "the length of the sequence"
        if bound is not None:
            text = f"random below {bound[0]}, the rows of {bound[1]}"
            return self._generator.integers(0, bound[0], shape).astype(dtype.numpy), text
        if dtype is DataType.UINT8:
            return self._generator.integers(0, 256, shape).astype(dtype.numpy), "random bytes"
        limit = min(_SAFE_BOUND, 2 ** (dtype.bits - (0 if dtype.name.startswith("U") else 1)))
        return self._generator.integers(0, limit, shape).astype(dtype.numpy), f"random integers below {limit}"

    def _sequence_size(self) -> int:
        named = next((n for n in self._names if "seq" in n.lower() and "past" not in n.lower()), None)
        return self.size_of_name(named, 1) if named is not None else self._anonymous_size


def dimension_names(inputs: Iterable[Value]) -> tuple[str, ...]:
    """Return the names of all dimensions of dense inputs, in order."""
    names: dict[str, None] = {}
    for value in inputs:
        for dim in (value.type.shape or ()) if isinstance(value.type, TensorType) else ():
            if isinstance(dim, SymbolicDim):
                names.update(dict.fromkeys(sorted(dim.symbols())))
    return tuple(names)


def index_bound(value: Value) -> tuple[int, str] | None:
    """Return how many rows the smallest table has that a value indexes (through reshapes and casts), and its name."""
    found: tuple[int, str] | None = None
    for current in _same_values(value):
        for node, index in current.uses:
            table = _table_of(node.op_type, index)
            if table is None or (source := node.input(table)) is None:
                continue
            axis = node.int_attribute("axis", 0) if node.op_type in ("Gather", "GatherElements") else 0
            shape = _known_shape(source)
            rows = shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None
            if isinstance(rows, int) and rows > 0 and (found is None or rows < found[0]):
                found = (rows, source.name)
    return found


def compared_constant(value: Value) -> int | None:
    """Return the first integer constant that the graph compares a value with for equality, or ``None``."""
    if value.rank not in (0, None) and value.shape != (1,):
        return None
    for current in _same_values(value):
        for node, index in current.uses:
            other = node.input(1 - index) if node.op_type == "Equal" else None
            constant = _constant_of(other)
            if constant is not None and constant.size == 1:
                return int(constant.reshape(-1)[0])
    return None


def _constant_of(value: Value | None) -> np.ndarray | None:
    if value is None:
        return None
    if value.constant is not None and not value.is_graph_input:
        return value.constant.array()
    if value.producer is not None and value.producer.op_type == "Constant":
        held = value.producer.attribute("value")
        return held.array() if hasattr(held, "array") else None
    return None


def _same_values(value: Value) -> list[Value]:
    found, waiting = [value], [value]
    while waiting:
        for node, index in waiting.pop().uses:
            if node.op_type not in _PASSES_VALUES or (index and node.op_type != "Concat"):
                continue
            for output in node.present_outputs():
                if output not in found:
                    found.append(output)
                    waiting.append(output)
    return found


def _table_of(op_type: str, index: int) -> int | None:
    if op_type in ("Gather", "GatherElements", "GatherBlockQuantized"):
        return 0 if index == 1 else None
    return _EMBEDDINGS.get(op_type, {}).get(index)


def _known_shape(value: Value) -> tuple[Dim, ...] | None:
    current: Value | None = value
    while current is not None:
        if current.constant is not None:
            return current.constant.shape
        if current.shape is not None:
            return current.shape
        producer = current.producer
        if producer is not None and producer.op_type == "Constant":
            constant = _constant_of(current)
            return None if constant is None else constant.shape
        current = producer.input(0) if producer is not None and producer.op_type in _KEEPS_SHAPE else None
    return None


def _is_anonymous(dim: Dim) -> bool:
    return dim is None or (isinstance(dim, SymbolicDim) and dim.name is not None and bool(_ANONYMOUS.match(dim.name)))
