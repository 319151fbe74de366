"""Map kernels over much: a thread takes elements that lie side by side, 16 bytes of the widest operand at once.

    y = a * b   ->   chunk of a, chunk of b; y of each pair; chunk of y; one by one where less than a chunk is left

What is bound by memory asks for fewer and wider reads. Long expressions are bound by arithmetic, and would hold more
registers for each element beside the next: they take the elements one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.plugin.loops import Scalar, print_expression
from ort_ep_cuda.lowering.program import Kernel
from ort_ep_cuda.lowering.values.growing import grows, largest
from ort_ep_cuda.lowering.values.views import TensorView
from ort_ep_cuda.lowering.writing.preamble import STORAGE
from ort_ep_cuda.lowering.writing.writer import named

CHUNK_NBYTES = 16  # the most that one instruction reads; its address is a multiple of it
LEAST_ELEMENTS = 1 << 18  # below it fewer threads leave processors of a large device without work
MOST_AT_ONCE = 8  # elements: with more of them registers run out before reads get wider
MOST_STATEMENTS = 24  # of an expression; an activation has 3 to 15, functions by polynomials more


def elements_at_once(views: Sequence[TensorView], kinds: Sequence[str]) -> int:
    """Return how many elements a thread takes at once: 1 where operands have strides, bad addresses or few elements.

    Args:
        views: the operands, and last the result.
        kinds: of each ``dense``, ``scalar`` or ``strided``.
    """
    dense = [view for view, kind in zip(views, kinds, strict=True) if kind == "dense"]
    if "strided" in kinds or kinds[-1] != "dense" or largest(views[-1].size) < LEAST_ELEMENTS:
        return 1
    if any(grows(view.offset) or view.offset * view.dtype.numpy.itemsize % CHUNK_NBYTES for view in dense):
        return 1
    return min(CHUNK_NBYTES // max(view.dtype.numpy.itemsize for view in dense), MOST_AT_ONCE)


def chunked_kernel(root: Scalar, views: Sequence[TensorView], kinds: Sequence[str], width: int) -> Kernel | None:
    """Return the kernel of an expression that reads and writes ``width`` elements at once; ``None``: it is too long."""
    expression = print_expression(root, lambda k: f"ort_load({'x' if kinds[k] == 'dense' else 'in'}{k}{_at(kinds[k])})")
    if len(expression.statements) > MOST_STATEMENTS:
        return None
    storage = [STORAGE[view.dtype] for view in views]
    chunks = [f"ort_chunk<{text}, {width}>" for text in storage]
    result = storage[-1]
    dense = [k for k in range(len(views) - 1) if kinds[k] == "dense"]
    addresses = [*(f"in{k}" for k in dense), "out"]  # a caller's tensor may begin anywhere
    given = ", ".join(f"const {storage[k]} x{k}" for k in dense)
    body = [
        f"const auto value = [&]({given}) {{",
        *(f"  {statement}" for statement in expression.statements),
        f"  return ort_store<{result}>::of({expression.result});",
        "};",
        f"const bool is_aligned = (({' | '.join(f'(unsigned long long){each}' for each in addresses)}) & 15) == 0;",
        "const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;",
        f"for (long long first = thread * {width}; first < count;",
        f"     first += (long long)gridDim.x * blockDim.x * {width}) {{",
        f"  if (!is_aligned || first + {width} > count) {{",
        f"    const long long end = first + {width} < count ? first + {width} : count;",
        f"    for (long long i = first; i < end; ++i) out[i] = value({', '.join(f'in{k}[i]' for k in dense)});",
        "    continue;",
        "  }",
        *(f"  const {chunks[k]} c{k} = *(const {chunks[k]}*)(in{k} + first);" for k in dense),
        f"  {chunks[-1]} made;",
        "  #pragma unroll",
        f"  for (int j = 0; j < {width}; ++j)",
        f"    made.elements[j] = value({', '.join(f'c{k}.elements[j]' for k in dense)});",
        f"  *({chunks[-1]}*)(out + first) = made;",
        "}",
    ]
    parameters = [f"const {storage[k]}* in{k}" for k in range(len(views) - 1)]
    return named("chunks", [*parameters, f"{result}* out", "long long count"], body)


def _at(kind: str) -> str:
    return "" if kind == "dense" else "[0]"
