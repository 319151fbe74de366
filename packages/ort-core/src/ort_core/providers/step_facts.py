"""StepFacts: one step of a compiled partition, for people: what it computes, its memory, what it costs."""

from __future__ import annotations

from ort_core.frozen import frozen

Amount = int | str | None
"""A number, its formula where sizes are not known, or ``None`` where nobody counts."""


@frozen
class MemoryFacts:
    """A piece of memory that a step reads or writes.

    Attributes:
        what: whose it is, as ``input x``, ``arena 3``, ``constant``.
        dtype: the element type.
        shape: the sizes; of memory that has no shape of its own the number of elements.
        offset: where it begins in the arena, in bytes; ``None`` elsewhere.
        nbytes: its size in bytes; of memory that each thread has its own of, one thread's.
    """

    what: str
    dtype: str
    shape: tuple[int | str, ...]
    offset: Amount
    nbytes: Amount

    def __str__(self) -> str:
        at = "" if self.offset is None else f" @{self.offset}"
        return f"{self.what}{at} {self.dtype}[{', '.join(map(str, self.shape))}]"


@frozen
class StepFacts:
    """One step.

    Attributes:
        name: ``PART.STEP`` in a partition of parts, as reports name it.
        how: the kind of code, in the provider's word.
        operators: what it computes, as ``MatMul+Relu``.
        result: the name and type of what it leaves, where that is a value of the graph.
        kernel: the name of the code.
        reads: memory that it reads.
        writes: memory that it writes, scratch memory included.
        threads: who runs it: ``1``, ``all``, or ``all, 4 pieces each``.
        waits: whether all threads meet behind it.
        work: the provider's estimate of its cost, by which it decides on threads.
        flops: operations; a fused multiply-add counts as two.
        nbytes: what it reads and writes at least.
        reason: why it runs in a plainer way than others; else empty.
        path: the bodies around it inside the partition, outermost first.
    """

    name: str
    how: str
    operators: str
    result: str = ""
    kernel: str = ""
    reads: tuple[MemoryFacts, ...] = ()
    writes: tuple[MemoryFacts, ...] = ()
    threads: str = ""
    waits: bool = False
    work: Amount = None
    flops: Amount = None
    nbytes: Amount = None
    reason: str = ""
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self, kernel: str | None = None) -> list[str]:
        """Return the step as text, what costs and where behind it; ``kernel`` is another name for the code."""
        head = f"{self.name:>5} {self.operators}" + (f"  -> {self.result}" if self.result else "")
        threads = self.threads + (", then a barrier" if self.waits else "")
        named = self.kernel if kernel is None else kernel
        costs = [
            ("work", self.work), ("flops", self.flops), ("bytes", self.nbytes), ("threads", threads), ("kernel", named),
        ]  # fmt: skip
        found = [head + ("" if self.how == "native" else f"  ({self.how})")]
        if self.reason:
            found.append(f"        why    {self.reason}")
        if self.reads:
            found.append(f"        reads  {'; '.join(map(str, self.reads))}")
        if self.writes:
            found.append(f"        writes {'; '.join(map(str, self.writes))}")
        told = ", ".join(f"{name} {value}" for name, value in costs if value not in (None, ""))
        return [*found, *([f"        {told}"] if told else [])]
