"""Lowering: walks a group of nodes, fuses what it can, and writes steps.

Rules (``lowering/rules``) say what a node is: an expression, a view, a row nest, an anchor. Values stay pending until
somebody needs them in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import numpy as np

from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.iota import iota_kernel
from ort_core.cpu.lowering.early_stores import side_by_side, stored_early
from ort_core.cpu.lowering.expression_core import SharedExpressions
from ort_core.cpu.lowering.images.concatenations import Concatenations
from ort_core.cpu.lowering.images.layout_steps import emit_channels_first, is_channels_last, lies_among_channels
from ort_core.cpu.lowering.moved_halves import MOVED, bits_of, only_moves_halves
from ort_core.cpu.lowering.operands import Operands
from ort_core.cpu.lowering.pending import (
    Pending,
    PendingElementwise,
    order_of,
)
from ort_core.cpu.lowering.products.weight_packing import WeightPacking
from ort_core.cpu.lowering.steps import (
    UNCOUNTABLE,
    Argument,
    KernelText,
    NotLowered,
    Operators,
    StageOfImages,
    Step,
    pointer,
    too_large,
)
from ort_core.cpu.lowering.stores import Stores
from ort_core.cpu.lowering.usual_sizes import meeting_sizes, usual_shape
from ort_core.cpu.lowering.value_types import HALVES, computed_type, stored_type, tensor_type
from ort_core.cpu.lowering.views import (
    Buffer,
    Place,
    View,
    count_of,
    dense_strides,
    ordered_strides,
)
from ort_core.plugin import Rejection
from ort_core.plugin.ir import DataType, KnownDim, Node, SymbolicDim, Value, maximum
from ort_core.plugin.loops import (
    OpMeaning,
    RowMeaning,
    Scalar,
    cast,
    element,
    meaning_of,
)
from ort_core.plugin.ops import VersionTable

T = TypeVar("T")


class Quantized(Protocol):
    """Real values that integers in memory stand for."""

    def expression(self, lowering: Lowering) -> PendingElementwise:
        """Return the values as an expression over the stored integers."""


VIEW_OPERATORS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"})


class Lowering:
    """The state of lowering one group of nodes."""

    def __init__(
        self,
        nodes: Sequence[Node],
        outputs: Sequence[Value],
        target: Target,
        opsets: Mapping[str, int],
        contents: Mapping[Value, np.ndarray] = MappingProxyType({}),
        meanings: VersionTable[OpMeaning] | None = None,
        weights: WeightPacking | None = None,
        expressions: SharedExpressions | None = None,
        *,
        uses_bfloat16: bool = False,
    ) -> None:
        self.target = target
        self.weights = WeightPacking() if weights is None else weights
        self.expressions = SharedExpressions() if expressions is None else expressions
        self.uses_bfloat16 = uses_bfloat16  # for the products of float32 models, where the user asked for it
        self.opsets = opsets
        self.contents = contents  # elements of integer tensors, as far as they are known without a run
        self._meanings = meanings
        self.steps: list[Step] = []
        self.kernels: dict[str, KernelText] = {}
        self.inputs: list[Value] = []
        self.outputs: list[Value] = list(outputs)
        self.node: Node | None = None  # being lowered
        self.row_major: dict[Buffer, View] = {}  # what channels-last copies were made of
        self.rounded: dict[Value, View] = {}  # images as they also lie in memory, channels-last in bfloat16
        self.bordered: dict[Buffer, View] = {}  # images, with a border of zeros, of which others there are the inside
        self.equal: dict[tuple[KnownDim, KnownDim], list[Node]] = {}  # sizes that a run needs equal: for whom
        self.quantized: dict[Value, Quantized] = {}  # real values that lie in memory as integers
        self.concatenations = Concatenations(self)
        self.operands = Operands(self)
        self.stores = Stores(self)
        self.nodes = tuple(nodes)
        self._moves_halves = only_moves_halves(nodes)
        self._made: dict[Hashable, KernelText] = {}
        self._remembered: dict[Hashable, Any] = {}
        self._members = set(nodes)
        self._values: dict[Value, View | Pending] = {}
        self._given: dict[Value, View] = {}  # inputs as they lie outside
        self._output_index = {value: index for index, value in enumerate(outputs)}
        self._constants: dict[int, Buffer] = {}
        self._arrays: list[np.ndarray] = []
        self._iotas: dict[KnownDim, View] = {}
        self._error = Buffer(DataType.INT64, 1, Place.ERROR)

    # what rules ask ---------------------------------------------------------------------------------------------------

    def view(self, value: Value | None) -> View:
        """Return the value in memory, computing it now if it is pending."""
        if value is None:
            raise NotLowered("a required input is missing")
        known = self._values.get(value)
        if known is None:
            known = self._values[value] = self._outside(value)
        if not isinstance(known, View):
            known = self._values[value] = self._forced(value, known)
        return known

    def contiguous(self, value: Value | None) -> View:
        """Return the value in memory in row-major order, copied if it lies otherwise."""
        view = self.view(value)
        if view.is_contiguous:
            return view
        assert value is not None
        if (view.order and is_channels_last(view)) or lies_among_channels(view):
            target = self.new_view(view.dtype, view.shape)
            emit_channels_first(self, view, target)
            self._values[value] = target
            return target
        view = self._values[value] = self.copied(view)
        return view

    def copied(self, view: View, order: tuple[int, ...] = ()) -> View:
        """Return a copy of a view without gaps, in a memory order as ``View`` has it: row-major order by default."""
        pending = PendingElementwise(element(0, view.dtype), (view,), view.shape, ("Copy",))
        return self.stores.store_elementwise(pending, self.new_view(view.dtype, view.shape, order))

    def computed(self, expression: Scalar, inputs: Sequence[View]) -> View:
        """Return an expression over views of one shape as a new contiguous view."""
        shape = inputs[0].shape
        pending = PendingElementwise(expression, tuple(inputs), shape, ("Convert",))
        return self.stores.store_elementwise(pending, self.new_view(expression.dtype, shape))

    def type_of(self, value: Value) -> tuple[DataType, tuple[KnownDim, ...]]:
        """Return the element type that a value has within this group, and its shape.

        Raises:
            NotLowered: something of it is unknown.
        """
        dtype, shape = self.outer_type_of(value)
        return computed_type(dtype), shape

    def outer_type_of(self, value: Value) -> tuple[DataType, tuple[KnownDim, ...]]:
        """As ``type_of``, as the value lies outside of the group; moved halves are integers there, too."""
        dtype, shape = stored_type(value)
        return MOVED if self._moves_halves and dtype in HALVES else dtype, shape

    def constant_of(self, value: Value | None) -> np.ndarray | None:
        """Return the array of a constant, or ``None``."""
        if value is None or value.graph is None:
            return None
        constant = value.graph.fixed_constant(value)
        return None if constant is None else self.elements_as_they_lie(constant.array())

    def elements_as_they_lie(self, array: np.ndarray) -> np.ndarray:
        """Return a constant's elements; halves that the group only moves as integers of the same bits."""
        return bits_of(array) if self._moves_halves else array

    def elements_of(self, value: Value | None) -> tuple[KnownDim, ...] | None:
        """Return the elements of a small integer tensor that are known without a run, as numbers and sizes."""
        array = self.constant_of(value)
        if array is not None:
            return tuple(array.reshape(-1).tolist()) if array.dtype.kind in "iu" else None
        known = self.contents.get(value) if value is not None else None
        if known is None or not all(isinstance(each, (int, SymbolicDim)) for each in known.reshape(-1)):
            return None
        return self.required_usual(tuple(known.reshape(-1)))

    def constant_view(self, array: np.ndarray, dtype: DataType) -> View:
        """Return a view of an array that lives as long as the program.

        Raises:
            TypeError: its elements are not as wide as those of ``dtype``.
        """
        buffer = self._constants.get(id(array))
        if buffer is None:
            if array.itemsize != dtype.numpy.itemsize:
                raise TypeError(f"a constant of {array.dtype} is read as {dtype.text}")
            dense = array if array.flags.c_contiguous else np.ascontiguousarray(array)
            buffer = self._constants[id(array)] = Buffer(dtype, array.size, Place.CONSTANT, 0, dense)
            self._arrays.append(array)  # an id is only unique while the object lives
        return View(buffer, array.shape, dense_strides(array.shape))

    def new_view(self, dtype: DataType, shape: Sequence[KnownDim], order: tuple[int, ...] = ()) -> View:
        """Return a new view in the arena without gaps: row-major, or with its axes in ``order``."""
        strides = ordered_strides(shape, order) if order else dense_strides(shape)
        return View(Buffer(dtype, count_of(shape), Place.ARENA), tuple(shape), strides, 0, order)

    def placed_view(self, value: Value, dtype: DataType, shape: Sequence[KnownDim], order: tuple[int, ...]) -> View:
        """Return where to store a value of a memory order: in a concatenation that reads it, or a new view."""
        return self.concatenations.place(value, dtype, shape, order) or self.new_view(dtype, shape, order)

    def kernel(self, key: Hashable, make: Callable[[], KernelText]) -> KernelText:
        """Return the kernel for a key, its text written once: layers of one structure are many."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def remembered(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what a rule works out once for all nodes of the group."""
        if key not in self._remembered:
            self._remembered[key] = make()
        found: T = self._remembered[key]
        return found

    def is_output(self, value: Value) -> bool:
        """Return whether the group returns a value (or a reshape of it that nobody else reads)."""
        return self._final_name(value) is not None

    def is_returned(self, value: Value) -> bool:
        """Return whether the group returns this very value."""
        return value in self._output_index

    def replace(self, value: Value, view: View) -> None:
        """Say that a value also lies elsewhere, where its next readers had better read it."""
        self._values[value] = view

    def iota(self, count: KnownDim) -> View:
        """Return the integers (int64) below ``count`` as a vector; equal ones are made once."""
        if count not in self._iotas:
            target = self._iotas[count] = self.new_view(DataType.INT64, (count,))
            name, function = iota_kernel()
            self.emit(KernelText(name, function), (pointer(target), count), (), (target.buffer,), count, ("Iota",))
        return self._iotas[count]

    def error_buffer(self) -> Buffer:
        """Return a word that a kernel sets when data it was given is out of bounds; looked at behind every run."""
        return self._error

    def scratch(self, dtype: DataType, count: KnownDim) -> Buffer:
        """Return memory for one step: ``count`` elements for each thread."""
        return Buffer(dtype, count, Place.SCRATCH)

    def result_view(self, value: Value, shape: Sequence[KnownDim] | None = None) -> View:
        """Return where a value is to be stored: in the caller's buffer when it is (a reshape of) an output."""
        dtype, own = self.type_of(value)
        shape = tuple(own if shape is None else shape)
        final = self._final_name(value)
        if final is None or self.outer_type_of(final)[0] is not dtype:
            return self.new_view(dtype, shape)
        self._require_count(own, shape)
        self._require_count(tensor_type(final)[1], shape)  # a type that was taken over from another node is a claim
        index = self._output_index[final]
        return View(Buffer(dtype, count_of(shape), Place.OUTPUT, index), shape, dense_strides(shape))

    def keeps(self, past: Value | None, present: Value | None) -> bool:
        """Return whether an input and an output of the group are halves that nobody else reads: see ``kept``."""
        if past is None or present is None or self.constant_of(past) is not None:
            return False
        is_half = stored_type(past)[0] in HALVES and stored_type(present)[0] is stored_type(past)[0]
        is_given = past.producer is None and past.use_count == 1 and past not in self._values
        is_given = is_given and past not in self._given
        return is_half and is_given and present in self._output_index and not present.use_count

    def kept(self, past: Value, present: Value) -> tuple[View, View]:
        """Return halves that the group reads, and those that it gives, as they lie outside: neither is widened."""
        self.inputs.append(past)
        places = ((past, Place.INPUT, len(self.inputs) - 1), (present, Place.OUTPUT, self._output_index[present]))
        found = []
        for value, place, index in places:
            dtype, shape = stored_type(value)
            found.append(View(Buffer(dtype, count_of(shape), place, index), shape, dense_strides(shape)))
        return found[0], found[1]

    def set(self, value: Value | None, result: View | Pending) -> None:
        """Say what a node's output is: of the type that it has within the group, or of that which is stored outside.

        Raises:
            TypeError: its elements are of neither, and a run reserves memory for those.
        """
        if value is None:
            return
        outer = self.outer_type_of(value)[0]
        if result.dtype not in (outer, computed_type(outer)):
            raise TypeError(f"{value.name!r} is lowered as {result.dtype.text}, and is of type {outer.text}")
        self._values[value] = result

    def forget(self, node: Node) -> None:
        """Say that a node is not lowered: who reads its outputs takes them for inputs."""
        for value in node.present_outputs():
            self._values.pop(value, None)
            self.quantized.pop(value, None)
            self.rounded.pop(value, None)

    def pending(self, value: Value) -> View | Pending | None:
        """Return what is known of a value, computed or not."""
        return self._values.get(value)

    def widened(self, value: Value) -> PendingElementwise | None:
        """Return halves that the group is given, and nobody has read yet, as the floats that they become when read."""
        dtype = self.type_of(value)[0]
        if value in self._values or value.producer in self._members or self.outer_type_of(value)[0] is dtype:
            return None
        return None if self.constant_of(value) is not None else self.stores.converted(self._given_view(value), dtype)

    def is_single_use(self, value: Value) -> bool:
        """Return whether exactly one node of this group reads a value, and nothing else does."""
        reader = value.only_reader
        return reader is not None and reader in self._members and value not in self._output_index

    def opset_of(self, node: Node) -> int:
        """Return the version of the operator set that a node was written for."""
        return node.opset or self.opsets.get(node.domain, 1)

    def meaning_of(self, node: Node, inputs: Sequence[Scalar], attributes: Mapping[str, object]) -> Scalar | Rejection:
        """Return what a node computes of its inputs' elements, by the meaning of a user's operator or of ONNX's."""
        own = self.own_meaning(node)
        if own is None:
            return meaning_of(node.domain, node.op_type, inputs, attributes)
        assert not isinstance(own, RowMeaning), node  # those have a rule of their own
        return own(inputs, attributes)

    def own_meaning(self, node: Node) -> OpMeaning | None:
        """Return what a user's operator says that it computes."""
        if self._meanings is None:
            return None
        return self._meanings.find(node.domain, node.op_type, self.opset_of(node))

    def require_equal(self, left: KnownDim, right: KnownDim) -> None:
        """Say that two sizes must be equal; where they differ at run time, the reference kernels run instead.

        Raises:
            NotLowered: they differ always.
        """
        if isinstance(left, int) and isinstance(right, int) and left != right:
            raise NotLowered(f"two sizes that compiled code needs equal are {left} and {right}")
        if left != right:
            nodes = self.equal.setdefault((left, right), [])
            if self.node is not None and self.node not in nodes[-1:]:
                nodes.append(self.node)

    def required_usual(self, sizes: tuple[KnownDim, ...]) -> tuple[KnownDim, ...]:
        """Return sizes of which none broadcasts what is usually equal, and require that those are equal."""
        for left, right in sorted(meeting_sizes(sizes), key=str):
            self.require_equal(left, right)
        return usual_shape(sizes)

    def _require_count(self, inferred: Sequence[KnownDim], written: Sequence[KnownDim]) -> None:
        """Require what a kernel writes into an output to fill it; a size below 0, as slices have, writes nothing."""
        if tuple(inferred) != tuple(written):
            self.require_equal(count_of(inferred), count_of([maximum(size, 0) for size in written]))

    def emit(
        self,
        kernel: KernelText,
        arguments: Sequence[Argument],
        reads: Sequence[Buffer],
        writes: Sequence[Buffer],
        work: KnownDim,
        operators: Operators,
        flops: KnownDim = 0,
        nbytes: KnownDim | None = None,
        images: StageOfImages | None = None,
        in_place: tuple[Buffer, Buffer] | None = None,
        *,
        is_divisible: bool = True,
        most_pieces: KnownDim | None = None,
        over: tuple[Buffer, Buffer] | None = None,
        least_piece: int = 0,
    ) -> None:
        """Append a step; its arguments are the fields of ``Step``."""
        self.kernels.setdefault(kernel.name, kernel)
        self.steps.append(
            Step(
                kernel.name,
                tuple(arguments),
                tuple(reads),
                tuple(writes),
                work,
                tuple(operators),
                flops,
                self.node,
                nbytes,
                images,
                in_place,
                is_divisible,
                most_pieces,
                over=over,
                least_piece=least_piece,
            )
        )

    def note_part(self, first: int, buffer: Buffer) -> None:
        """Note that what steps from ``first`` on write into a buffer is a part of it that is written nowhere else."""
        writing = [i for i in range(first, len(self.steps)) if buffer in self.steps[i].writes]
        if len(writing) == 1 and buffer not in self.steps[writing[0]].reads:  # else it may need another's part
            self.steps[writing[0]] = replace(self.steps[writing[0]], part=buffer)

    def is_member(self, node: Node | None) -> bool:
        """Return whether a node is one of the group."""
        return node in self._members

    def close(self) -> None:
        """Let go of all that was worked out on the way, weights above all: parts of a lowering refer to each other.

        The program and the kernels stay. Who lowers calls it when that is done, or given up.
        """
        known = (
            self._values,
            self._given,
            self._remembered,
            self._constants,
            self.quantized,
            self.row_major,
            self.rounded,
            self.bordered,
        )
        for each in (*known, self._arrays):
            each.clear()

    # inside -----------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Store every output of the group."""
        count = len(self.steps)
        self._store_outputs()
        stored = {id(step) for step in self.steps[count:]}
        self.steps = _needed(self.steps)
        if any(step.images is not None for step in self.steps):
            from ort_core.cpu.lowering.images.bands import join_stages  # of images alone

            join_stages(self)
        used = {step.kernel for step in self.steps}
        self.kernels = {name: kernel for name, kernel in self.kernels.items() if name in used}
        self.steps = side_by_side(stored_early(self.steps, stored))

    def _store_outputs(self) -> None:
        for value in self.outputs:
            self.node = value.producer
            try:
                self._store_output(value)
            except NotLowered as refusal:
                refusal.node = refusal.node or value.producer
                raise
        self.node = None

    def _store_output(self, value: Value) -> None:
        index = self._output_index[value]
        known = self._values.get(value)
        dtype, shape = self.outer_type_of(value)
        if isinstance(known, PendingElementwise) and known.dtype is not dtype and not order_of(known):
            self._require_count(shape, known.shape)
            narrow = PendingElementwise(cast(known.expression, dtype), known.inputs, known.shape, known.operators)
            self.stores.store_elementwise(narrow, self._output_view(index, dtype, shape).reshaped(known.shape))
            return
        view = self.view(value)
        if view.buffer.place is Place.OUTPUT and view.buffer.index == index and view.is_contiguous:
            return
        self._require_count(shape, view.shape)
        target = self._output_view(index, dtype, shape)
        if ((view.order and is_channels_last(view)) or lies_among_channels(view)) and view.dtype is dtype:
            emit_channels_first(self, view, target)
            return
        if view.dtype is not dtype:
            view = self.contiguous(value)
        self.stores.store_elementwise(self.stores.converted(view, dtype), target)

    def _output_view(self, index: int, dtype: DataType, shape: Sequence[KnownDim]) -> View:
        return View(Buffer(dtype, count_of(shape), Place.OUTPUT, index), tuple(shape), dense_strides(shape))

    def _outside(self, value: Value) -> View:
        dtype, shape = self.type_of(value)
        stored = self.outer_type_of(value)[0]
        array = self.constant_of(value)
        if array is not None:
            return self.constant_view(array if stored is dtype else array.astype(dtype.numpy), dtype)
        view = self._given_view(value)
        if stored is dtype:
            return view
        return self.stores.store_elementwise(self.stores.converted(view, dtype), self.new_view(dtype, shape))

    def _given_view(self, value: Value) -> View:
        """Return an input of the group as it lies outside."""
        if value not in self._given:
            dtype, shape = self.outer_type_of(value)
            self.inputs.append(value)
            buffer = Buffer(dtype, count_of(shape), Place.INPUT, len(self.inputs) - 1)
            self._given[value] = View(buffer, shape, dense_strides(shape))
        return self._given[value]

    def _forced(self, value: Value, pending: Pending) -> View:
        return self.stored_by(value, lambda: self.stores.stored(value, pending))

    def stored_by(self, value: Value, store: Callable[[], View]) -> View:
        """Return what ``store`` returns; its steps, and what it refuses, are those of the node that makes the value."""
        asking, self.node = self.node, value.producer
        try:
            return store()
        except NotLowered as refusal:
            refusal.node = refusal.node or value.producer
            raise
        except UNCOUNTABLE as error:
            raise too_large(error, value.producer) from error
        finally:
            self.node = asking

    def _final_name(self, value: Value) -> Value | None:
        """Return the output that a value becomes, directly or through reshapes that nobody else reads."""
        for _ in range(16):
            if value in self._output_index:
                return value
            if not self.is_single_use(value):
                return None
            node = next(value.readers())
            if node.op_type not in VIEW_OPERATORS or node.domain or node.input(0) is not value:
                return None
            value = node.output
        return None


def _needed(steps: Sequence[Step]) -> list[Step]:
    """Return the steps without those whose results nobody reads: sizes computed for a Reshape, which strides tell.

    A step without results is a check of data, and stays.
    """
    read: set[Buffer] = set()
    kept: list[Step] = []
    for step in reversed(steps):
        if not step.writes or any(buffer.place is Place.OUTPUT or buffer in read for buffer in step.writes):
            kept.append(step)
            read.update(step.reads)
    return kept[::-1]
