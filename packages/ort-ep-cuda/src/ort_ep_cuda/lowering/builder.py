"""ProgramBuilder: collects buffers and steps while nodes are lowered one after the other. Used once, by one thread."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from dataclasses import replace

import numpy as np

from ort_core.plugin import NotImplemented
from ort_core.plugin.ir import Constant, DataType, Graph, Node, Value
from ort_core.plugin.loops import cast, lift
from ort_ep_cuda.lowering.libraries.libraries import NOTHING_FUSED, FixedSizesOnly, Libraries, has_open_sizes
from ort_ep_cuda.lowering.libraries.library_steps import MatrixProduct
from ort_ep_cuda.lowering.products.growing_products import growing_product
from ort_ep_cuda.lowering.program import Buffer, BufferKind, Launch, OutputFacts, Pointer, Program, Step, plan_arena
from ort_ep_cuda.lowering.values.growing import CannotGrow, SizeKey, grows, key_of, largest, plain
from ort_ep_cuda.lowering.values.tensors import LazyTensor, combine
from ort_ep_cuda.lowering.values.views import Shape, TensorView, dense_strides
from ort_ep_cuda.lowering.writing.map_kernel import PrintedKernels, launch_map
from ort_ep_cuda.lowering.writing.preamble import compute_type
from ort_ep_cuda.lowering.writing.sized_launches import sized

FUSED_OPERATIONS = 400  # of one kernel: registers last to about twice that; beyond, compiling takes seconds
FUSED_OPERANDS = 16  # pointers with strides of one kernel: parameters may take 4 KiB
DRAW_NBYTES = 16  # the run's number and the session's seed
OUT_OF_RANGE = "an index is out of range for the axis that it addresses"
FREE_OPERATIONS = 3  # recomputed for each reader instead of stored: less work than reading it back


class ProgramBuilder:
    """The program of one partition for one signature.

    Args:
        graph: the partition.
        shapes: of its inputs, in order.
        known: contents of values that are known on the host.
        states: what users' kernels keep from run to run, by node; filled here.
        libraries: what may be fused into library calls.
        turned: matrices that are the transpose of another constant, which is read in their place.
    """

    def __init__(
        self,
        graph: Graph,
        shapes: Sequence[Shape],
        known: Mapping[Value, np.ndarray],
        states: MutableMapping[Node, dict[str, object]] | None = None,
        libraries: Libraries = NOTHING_FUSED,
        turned: Mapping[Value, Value] | None = None,
    ) -> None:
        self._graph, self._turned = graph, turned or {}
        self.libraries: Libraries = FixedSizesOnly(libraries)
        self._sizes: int | None = None
        self._words: list[int] = []
        self._word_of: dict[SizeKey, int] = {}
        self._starts: dict[int, int] = {}
        self._ordered: dict[tuple[str, Shape], TensorView] = {}
        self.known = dict(known)
        self._printed: PrintedKernels = {}
        self._states = {} if states is None else states
        self._buffers: list[Buffer] = []
        self._steps: list[Step] = []
        self._tensors: dict[Value, LazyTensor] = {}
        self._outputs = {value: index for index, value in enumerate(graph.outputs)}
        self._written: dict[Value, TensorView] = {}
        self._checks: dict[int, str] = {}
        self._draw: int | None = None
        self._streams = 0
        self._continued: dict[int, int] = {}
        self.status = self._buffer(Buffer(BufferKind.STATUS, 4))
        for index, (value, shape) in enumerate(zip(graph.inputs, shapes, strict=True)):
            dtype = element_type(value)
            number = self._buffer(Buffer(BufferKind.INPUT, _nbytes(dtype, shape), index))
            self._tensors[value] = LazyTensor.of(TensorView.dense(number, dtype, shape))

    def tensor(self, value: Value) -> LazyTensor:
        """Return a value as it stands: maybe not yet computed. A constant of one element is part of expressions."""
        if value not in self._tensors and value in self.known:
            known = self.known[value]
            growing = known.dtype == object
            self._tensors[value] = (
                self._listed(value, known) if growing else LazyTensor.of(self.table(value.name, known))
            )
        if value not in self._tensors:
            constant = value.constant
            if constant is None:
                raise NotImplemented(f"value {value.name!r} of the partition is computed by no node of it")
            self._tensors[value] = self._constant(value, constant)
        return self._tensors[value]

    def shape(self, value: Value) -> Shape:
        """Return a value's sizes. Nothing is made of it: what the host alone reads is not sent to the device."""
        if value not in self._tensors and value in self.known:
            return tuple(self.known[value].shape)
        if value not in self._tensors and value.constant is not None:
            return value.constant.shape
        return self.tensor(value).shape

    def view(self, value: Value) -> TensorView:
        """Return a value as memory, maybe strided; it is computed now if it was not."""
        tensor = self.tensor(value)
        found = tensor.view
        if found is None:
            found = self.stored(tensor, self.temporary(tensor.dtype, tensor.shape, order_of(tensor)))
            self._tensors[value] = LazyTensor.of(found)
        return found

    def dense(self, value: Value, order: Shape = ()) -> TensorView:
        """Return a value as memory without gaps, its axes in an order (empty: row-major); copied if it lies otherwise.

        A constant is sent to the device in that order.
        """
        found = self.view(value)
        laid_out = found.laid_out(order)
        if laid_out is not None:
            return laid_out
        if order and value.constant is not None:
            return self._ordered_constant(value, value.constant, order)
        found = self.stored(LazyTensor.of(found), self.temporary(found.dtype, found.shape, order))
        self._tensors[value] = LazyTensor.of(found)
        return found

    def stored(self, tensor: LazyTensor, out: TensorView | None = None) -> TensorView:
        """Compute a tensor into memory: a new row-major temporary, or a given view."""
        out = out or self.temporary(tensor.dtype, tensor.shape)
        if out.size:
            self.add(launch_map(tensor.root, tensor.operands, out, self._printed))
        return out

    def temporary(self, dtype: DataType, shape: Shape, order: Shape = ()) -> TensorView:
        """Return new memory of the arena without gaps, axes in an order (empty: row-major)."""
        buffer = self._buffer(Buffer(BufferKind.TEMPORARY, _nbytes(dtype, shape)))
        return TensorView.in_order(buffer, dtype, shape, order)

    def table(self, name: str, content: np.ndarray) -> TensorView:
        """Return a constant that the lowering computed, such as weights of an interpolation."""
        content = np.asarray(content, order="C")  # which leaves a scalar one
        number = self._buffer(Buffer(BufferKind.CONSTANT, content.nbytes, name=name, content=content))
        return TensorView.dense(number, DataType.from_numpy(content.dtype), content.shape)

    def result(self, value: Value, shape: Shape, order: Shape = ()) -> TensorView:
        """Return dense memory for a node's output, and let the value be it: an output's own buffer, or a temporary.

        A temporary's axes lie in ``order``; an output of the graph is row-major.
        """
        dtype = element_type(value)
        view = self._output(value, dtype, shape) if value in self._outputs else self.temporary(dtype, shape, order)
        self._tensors[value] = LazyTensor.of(view)
        return view

    def define(self, value: Value, tensor: LazyTensor) -> None:
        """Let a value be a tensor; it is computed now where that is cheaper than computing it at each reader."""
        if value in self._outputs:
            self.stored(tensor, self.result(value, tensor.shape))
            return
        is_large = tensor.cost > FUSED_OPERATIONS or len(tensor.operands) > FUSED_OPERANDS
        is_repeated = value.use_count > 1 and tensor.cost > FREE_OPERATIONS
        self._tensors[value] = tensor
        if is_large or is_repeated:
            self.view(value)

    def define_constant(self, value: Value, content: np.ndarray) -> None:
        """Let a value be what no run changes, known on the host too; one element is part of expressions."""
        self.known[value] = content
        if content.size == 1:
            dtype = element_type(value)
            number = content.reshape(()).astype(compute_type(dtype).numpy).item()
            self._tensors[value] = LazyTensor(lift(number, compute_type(dtype)), (), content.shape, dtype)

    def add(self, step: Step) -> None:
        """Append a step; a product of sizes that grow is a generated kernel, which takes them as they come."""
        if isinstance(step, MatrixProduct) and has_open_sizes(step):
            self._steps.append(growing_product(step))
        else:
            self._steps.append(step)

    def check(self, node: Node, found: str = OUT_OF_RANGE) -> tuple[Pointer, np.int32]:
        """Return the arguments by which a kernel notes what is wrong with the data of ``node``, told by ``found``."""
        number = len(self._checks) + 1
        self._checks[number] = f"{node.describe()}: {found}"
        return Pointer(self.status), np.int32(number)

    def continues(self, result: TensorView, past: TensorView) -> None:
        """Note that a result may lie where an input lies: the launch that writes it reads the input before, alone."""
        kinds = self._buffers[result.buffer].kind, self._buffers[past.buffer].kind
        if kinds == (BufferKind.OUTPUT, BufferKind.INPUT):
            self._continued[result.buffer] = past.buffer

    def state(self, node: Node) -> dict[str, object]:
        """Return what a user's kernel keeps of a node as long as the session lives, whatever the sizes."""
        return self._states.setdefault(node, {})

    def draw(self) -> int:
        """Return the buffer that tells random numbers of one run from those of another."""
        if self._draw is None:
            self._draw = self._buffer(Buffer(BufferKind.DRAW, DRAW_NBYTES))
        return self._draw

    def new_stream(self) -> int:
        """Return a number for a node that draws random numbers, each time another."""
        self._streams += 1
        return self._streams - 1

    def build(self) -> Program:
        """Return the program; outputs that are inputs or constants are copied."""
        for value in self._graph.outputs:
            if value not in self._written:
                self.stored(self.tensor(value), self._output(value, element_type(value), self.tensor(value).shape))
        continued = self._that_are_read_once()
        movable = self._movable({*continued, *continued.values()})
        steps = tuple(self._sized(step, movable) for step in self._steps)
        if self._sizes is not None:
            self._buffers[self._sizes] = Buffer(BufferKind.SIZES, 8 * len(self._words))
        sizes = tuple(buffer.nbytes for buffer in self._buffers)
        buffers = tuple(replace(buffer, nbytes=largest(buffer.nbytes)) for buffer in self._buffers)
        written = [self._written[value] for value in self._graph.outputs]
        outputs = tuple(OutputFacts(view.dtype, view.shape, view.buffer) for view in written)
        program = Program(buffers, steps, plan_arena(buffers, steps), outputs, self._checks)
        found = {after: past for after, past in continued.items() if {after, past} <= movable}
        return replace(program, words=tuple(self._words), starts=self._starts, nbytes=sizes, continued=found)

    def _that_are_read_once(self) -> dict[int, int]:
        """Return the results that go on with an input which nothing else reads."""
        readers = Counter(buffer for step in self._steps for buffer in set(step.reads))
        return {after: past for after, past in self._continued.items() if readers[past] == 1}

    def _movable(self, caches: Collection[int]) -> frozenset[int]:
        """Return the inputs and outputs that generated kernels alone touch, of those that grow, and of caches.

        Each run may bind others.
        """
        own = {
            number
            for number, buffer in enumerate(self._buffers)
            if buffer.kind in (BufferKind.INPUT, BufferKind.OUTPUT) and (grows(buffer.nbytes) or number in caches)
        }
        for step in self._steps:
            if not isinstance(step, Launch) or step.kernel.entry:
                own -= {*step.reads, *step.writes}
        return frozenset(own)

    def _sized(self, step: Step, movable: frozenset[int]) -> Step:
        """Return a step that is the same for all sizes; those that grow it reads on the device."""
        if isinstance(step, Launch):
            return sized(step, self._word, self._start, movable)
        if has_open_sizes(step):
            raise CannotGrow(f"a step is made for its sizes: {type(step).__name__}")
        return step

    def _word(self, size: int) -> Pointer:
        """Return the place of a size among those that a run sends to the device."""
        key = key_of(size)
        if key not in self._word_of:
            self._word_of[key] = self._written_words([size])
        return Pointer(self._sizes_buffer(), 8 * self._word_of[key])

    def _start(self, buffer: int) -> Pointer:
        """Return the place of a buffer's address among the words."""
        if buffer not in self._starts:
            self._starts[buffer] = self._written_words([0])
        return Pointer(self._sizes_buffer(), 8 * self._starts[buffer])

    def _written_words(self, sizes: Sequence[int]) -> int:
        self._words += sizes
        return len(self._words) - len(sizes)

    def _sizes_buffer(self) -> int:
        if self._sizes is None:
            self._sizes = self._buffer(Buffer(BufferKind.SIZES, 0))
        return self._sizes

    def _listed(self, value: Value, known: np.ndarray) -> LazyTensor:
        """Return a vector of sizes that grow as a tensor: each run sends it to the device."""
        first = self._written_words([plain(number) for number in known.reshape(-1)])
        shape, dtype = known.shape, element_type(value)
        view = TensorView(self._sizes_buffer(), DataType.INT64, shape, dense_strides(shape), first)
        tensor = LazyTensor.of(view)
        return combine([tensor], lambda roots: cast(roots[0], compute_type(dtype)), dtype)

    def _output(self, value: Value, dtype: DataType, shape: Shape) -> TensorView:
        buffer = Buffer(BufferKind.OUTPUT, _nbytes(dtype, shape), self._outputs[value])
        view = self._written[value] = TensorView.dense(self._buffer(buffer), dtype, shape)
        return view

    def _buffer(self, buffer: Buffer) -> int:
        self._buffers.append(buffer)
        return len(self._buffers) - 1

    def _ordered_constant(self, value: Value, constant: Constant, order: Shape) -> TensorView:
        key = (value.name, order)
        if key not in self._ordered:
            dtype, shape = constant.dtype, constant.shape
            buffer = self._buffer(Buffer(BufferKind.CONSTANT, _nbytes(dtype, shape), name=value.name, order=order))
            self._ordered[key] = TensorView.in_order(buffer, dtype, shape, order)
        return self._ordered[key]

    def _constant(self, value: Value, constant: Constant) -> LazyTensor:
        if value in self._turned:
            return self.tensor(self._turned[value]).moved(lambda view: view.permuted((1, 0)), constant.shape)
        dtype, shape = constant.dtype, constant.shape
        if constant.size == 1:
            content = constant.array().reshape(()).astype(compute_type(dtype).numpy).item()
            return LazyTensor(lift(content, compute_type(dtype)), (), shape, dtype)
        buffer = Buffer(BufferKind.CONSTANT, _nbytes(dtype, shape), name=value.name)
        return LazyTensor.of(TensorView(self._buffer(buffer), dtype, shape, dense_strides(shape)))


def order_of(tensor: LazyTensor) -> Shape:
    """Return in which order axes of a computed tensor should lie: that of the first operand that is as large."""
    orders = (view.order for view in tensor.operands if view.shape == tensor.shape and 0 not in view.strides)
    return next((order for order in orders if order is not None), ())


def element_type(value: Value) -> DataType:
    """Return the element type of a tensor; the capability has made sure that it is known."""
    dtype = getattr(value.type, "dtype", None)
    if dtype is None:
        raise NotImplemented(f"value {value.name!r} is {value.type or 'of unknown type'}, expected a tensor")
    return dtype


def _nbytes(dtype: DataType, shape: Shape) -> int:
    return math.prod(shape) * dtype.numpy.itemsize
