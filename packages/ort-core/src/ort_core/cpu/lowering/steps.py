"""Steps of a tensor program: a kernel, its argument table, what it reads and writes, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ort_core.cpu.codegen.llvm_ir.deferred_kernel import DeferredKernel
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter
from ort_core.cpu.lowering.views import Buffer, View
from ort_core.cpu.program.sizes import evaluate
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType, DimTooLarge, KnownDim, Node, Value
from ort_core.plugin.kernels import RegionWork

if TYPE_CHECKING:
    from ort_core.cpu.codegen.convolutions.convolution_bands import Stage

_ARITHMETIC = (
    ("bytes_", "int8"),
    ("product_bfloat16_", "bfloat16"),
    *((f"{name}_bfloat16_", "bfloat16") for name in ("conv", "attention")),
)


class NotLowered(Exception):
    """A node has no native form; the message says why. ``node`` is the one to take out, where that is known."""

    def __init__(self, reason: str, node: Node | None = None) -> None:
        super().__init__(reason)
        self.node = node


UNCOUNTABLE = (DimTooLarge, OverflowError)  # what counting elements and bytes of impossible tensors raises


def too_large(error: Exception, node: Node | None = None) -> NotLowered:
    """Return the refusal for sizes that nothing can count."""
    return NotLowered(f"a size needs more than 64 bits ({error})", node)


@frozen
class Pointer:
    """The address of an element of a buffer."""

    buffer: Buffer
    offset: KnownDim = 0


@frozen
class StageOfImages:
    """A convolution as one of several stages, and how many images it takes."""

    stage: Stage
    batch: KnownDim


Argument = Pointer | KnownDim
Operators = tuple[Node | str, ...]  # what a step computes: nodes of the model, words for copies that no node asked for


@frozen
class Step:
    """One kernel call; ``work`` estimates its cost in elements touched, for deciding on threads.

    ``flops`` and ``nbytes`` are what reports compare with the machine's ceilings. ``in_place`` is a buffer read and one
    written that may be the same memory: then nothing that stays as it is is copied. A step that ``is_divisible`` may be
    cut into many more pieces than there are threads, each of the estimated work ``least_piece`` where that is more than
    usual; of one that has ``most_pieces`` no more threads than that do anything. ``part`` is a buffer of which it
    writes a part that no other step writes which names it so. ``over`` is a buffer read and one written: each element
    is read before the one in its place is written, so that they may share memory where nobody reads the first one
    later.
    """

    kernel: str
    arguments: tuple[Argument, ...]
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]
    work: KnownDim
    operators: Operators = ()
    flops: KnownDim = 0
    node: Node | None = None  # at whose lowering it was written
    nbytes: KnownDim | None = None  # read and written at least
    images: StageOfImages | None = None  # as what it can run together with its neighbors
    in_place: tuple[Buffer, Buffer] | None = None
    is_divisible: bool = True
    most_pieces: KnownDim | None = None
    part: Buffer | None = None
    over: tuple[Buffer, Buffer] | None = None
    least_piece: int = 0

    def __str__(self) -> str:
        places = {"reads": self.reads, "writes": self.writes}
        told = [f"{name} {', '.join(map(_plain, buffers))}" for name, buffers in places.items() if buffers]
        costs = f"work {self.work}, flops {self.flops}"
        return "; ".join([f"{operators_text(self.operators)} by {self.kernel}", *told, costs])

    def work_at(self, sizes: Mapping[str, int], name: str = "") -> RegionWork:
        """Return the step's work under an assignment of the named sizes; ``name`` is its own in reports."""
        nbytes = None if self.nbytes is None else evaluate(self.nbytes, sizes)
        return RegionWork(evaluate(self.flops, sizes), nbytes, self.arithmetic, name)

    @property
    def arithmetic(self) -> str:
        """The kind of most of its operations, as ceilings name it; products are told by the prefix of their kernels."""
        for prefix, kind in _ARITHMETIC:
            if self.kernel.startswith(prefix):
                return kind
        return "float64" if any(buffer.dtype is DataType.DOUBLE for buffer in self.writes) else "float32"


@dataclass(slots=True)
class KernelText:
    """A generated kernel: one function, or the text of a whole module that defines it, now or when it is needed.

    Attributes:
        name: the kernel's symbol.
        code: what defines it.
        is_vectorized: few passes do to compile a module's text; a deferred kernel says it itself.
    """

    name: str
    code: Emitter | str | DeferredKernel
    is_vectorized: bool = False


def operators_text(operators: Iterable[Node | str]) -> str:
    """Return what a step computes, such as ``MatMul+Add+Gelu``."""
    return "+".join(each.op_type if isinstance(each, Node) else each for each in operators) or "Copy"


def _plain(buffer: Buffer) -> str:
    return f"{buffer.place.value} {buffer.dtype.text}[{buffer.count}]"


def pointer(view: View) -> Pointer:
    """Return the address of a view's first element."""
    return Pointer(view.buffer, view.offset)


def last_outputs(step: Step) -> tuple[Value | None, ...]:
    """Return the outputs of the last of the nodes that a step computes, which are what it leaves."""
    return next((tuple(each.outputs) for each in reversed(step.operators) if isinstance(each, Node)), ())


def step_node(step: Step, name: str) -> Node:
    """Return the node that a step is reported as: its own if it computes one, else one named for all of them.

    One that computes none, such as a border around images, is named for the node at whose lowering it was written.
    """
    nodes = [each for each in step.operators if isinstance(each, Node)]
    if len(nodes) == 1 == len(step.operators):
        return nodes[0]
    words = [each.op_type if isinstance(each, Node) else each for each in step.operators]
    served = step.node.name if step.node is not None else ""
    title = "+".join(each.name or each.op_type for each in nodes) or served or name
    return Node("+".join(words) or "Copy", (), 0, name=title, domain="ort_core.cpu")
