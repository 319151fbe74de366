"""Map kernels: one thread per element computes an expression over strided operands and stores it, maybe strided.

    a * b + c   ->   for (i ...) { v0 = in0[i]; v1 = in1[at1]; ...; out[i] = v4; }

Sizes and strides are arguments, so that one kernel serves every shape of its rank; axes that all operands walk through
as one are joined before, so that most kernels have rank 1.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

from ort_core.plugin.loops import Scalar, print_expression
from ort_ep_cuda.lowering.program import Kernel, Launch
from ort_ep_cuda.lowering.values.views import Shape, TensorView, collapse
from ort_ep_cuda.lowering.writing.chunked_map import chunked_kernel, elements_at_once
from ort_ep_cuda.lowering.writing.preamble import STORAGE
from ort_ep_cuda.lowering.writing.writer import (
    THREADS,
    blocks_for,
    coordinates,
    elements_loop,
    index_type,
    launched,
    named,
    numbers,
    pointers,
)

PrintedKernels = MutableMapping[tuple[object, ...], tuple[Scalar, Kernel]]
"""Kernels by the identity of their expressions and by layout; an expression is kept as long as its identity counts."""


def launch_map(root: Scalar, operands: Sequence[TensorView], out: TensorView, printed: PrintedKernels) -> Launch:
    """Return the launch that stores an expression's value for every element of ``out``.

    Args:
        root: the expression; input ``k`` is an element of ``operands[k]``.
        operands: views of ``out``'s shape.
        out: where results go; any strides, none of them zero.
        printed: kernels that were printed before; one that is new is added.
    """
    views = [*operands, out]
    order = sorted(range(len(out.shape)), key=lambda axis: (-out.strides[axis], axis))  # neighbors in memory last
    sizes, strides = collapse(*_permuted(out.shape, views, order))
    kinds = [_layout(view, sizes) for view in strides]
    is_wide = any(reach(view) >= 2**31 for view in views)
    width = elements_at_once(views, kinds)
    key = (id(root), *(view.dtype for view in views), *kinds, len(sizes), is_wide, width)
    if key not in printed:
        chunked = chunked_kernel(root, views, kinds, width) if width > 1 else None
        printed[key] = (root, chunked or _kernel(root, views, kinds, len(sizes), is_wide))
    kernel = printed[key][1]
    sizes_and_strides = [out.size, *sizes[1:]] if "strided" in kinds else [out.size]
    for kind, view in zip(kinds, strides, strict=True):
        sizes_and_strides += view if kind == "strided" else ()
    arguments = (*pointers(*views), *numbers(*sizes_and_strides))
    return launched(kernel, blocks_for(out.size, THREADS * width), (THREADS, 1, 1), arguments, operands, [out])


def _permuted(shape: Shape, views: Sequence[TensorView], order: Sequence[int]) -> tuple[Shape, list[Shape]]:
    return tuple(shape[axis] for axis in order), [tuple(view.strides[axis] for axis in order) for view in views]


def reach(view: TensorView) -> int:
    """Return how far from its first element a view goes, in elements, at least its size."""
    span = sum(abs(stride) * (size - 1) for size, stride in zip(view.shape, view.strides, strict=True) if size)
    return max(span + 1, view.size)


def _layout(strides: tuple[int, ...], sizes: tuple[int, ...]) -> str:
    if not any(strides):
        return "scalar"
    return "dense" if len(sizes) == 1 and strides == (1,) else "strided"


def _kernel(root: Scalar, views: Sequence[TensorView], kinds: Sequence[str], rank: int, is_wide: bool) -> Kernel:
    names = [*(f"in{k}" for k in range(len(views) - 1)), "out"]
    positions = {"scalar": "0", "dense": "i"}
    places = [positions.get(kind, f"at_{name}") for kind, name in zip(kinds, names, strict=True)]
    expression = print_expression(root, lambda k: f"ort_load(in{k}[{places[k]}])")
    storage = [STORAGE[view.dtype] for view in views]
    parameters = [f"const {storage[k]}* {names[k]}" for k in range(len(views) - 1)]
    parameters += [f"{storage[-1]}* out", "long long count"]
    strided = [name for name, kind in zip(names, kinds, strict=True) if kind == "strided"]
    locate = ""
    if strided:
        named_sizes = [f"size{axis}" for axis in range(1, rank)]
        named_sizes += [f"{name}_stride{axis}" for name in strided for axis in range(rank)]
        parameters += [f"long long {size}" for size in named_sizes]
        texts = [[f"(Index){name}_stride{axis}" for axis in range(rank)] for name in strided]
        sizes = [f"(Index)size{axis}" for axis in range(rank)]
        starts = " ".join(f"Index at_{name} = 0;" for name in strided)
        locate = f"{starts} {coordinates('i', sizes, texts, [f'at_{name}' for name in strided])}"
    body = [
        f"typedef {index_type(is_wide)} Index;",
        *elements_loop(
            [
                "const Index i = (Index)place;",
                *([locate] if locate else []),
                *expression.statements,
                f"out[{places[-1]}] = ort_store<{storage[-1]}>::of({expression.result});",
            ],
            "place",
        ),
    ]
    return named("map", parameters, body)
