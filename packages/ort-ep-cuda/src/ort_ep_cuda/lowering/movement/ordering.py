"""TopK, ArgMax, ArgMin and Hardmax by repeated selection.

Selection: a block takes a row and finds, ``k`` times, the best element behind the one found before. Elements are
ordered by value, then by place, so that equal ones keep their order. NaN is larger than all numbers, as numpy sorts it;
ArgMin finds it, too, as numpy does. It costs ``k`` walks over the row and no memory.
"""

from __future__ import annotations

import math

from ort_core.plugin.ir import DataType, Node
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.node_facts import LoweredNode, axis_of
from ort_ep_cuda.lowering.program import Kernel
from ort_ep_cuda.lowering.values.views import Shape, TensorView
from ort_ep_cuda.lowering.writing.preamble import STORAGE, compute_type
from ort_ep_cuda.lowering.writing.writer import (
    Worker,
    blocks_for,
    filled,
    launch_elements,
    launched,
    numbers,
    pointers,
    replaced,
    template,
    walk,
)

SELECTION_THREADS = 128

_SELECT = """
__shared__ @C@ best_values[@N@];
__shared__ long long best_places[@N@];
@ROWS@
  const long long first = row / inner_size * size * inner_size + row % inner_size;
  const long long target = row / inner_size * k * inner_size + row % inner_size;
  @C@ last_value = 0;
  long long last_place = -1;
  for (long long turn = 0; turn < k; ++turn) {
    @C@ value = 0;
    long long place = -1;
    for (long long c = threadIdx.x; c < size; c += blockDim.x) {
      const @C@ v = ort_load(x[first + c * inner_size]);
      const bool is_left = turn == 0 || ort_before_@ORDER@(last_value, last_place, v, c);
      if (is_left && (place < 0 || ort_before_@ORDER@(v, c, value, place))) { value = v; place = c; }
    }
    best_values[threadIdx.x] = value; best_places[threadIdx.x] = place;
    __syncthreads();
    for (int half = @N@ / 2; half > 0; half /= 2) {
      if ((int)threadIdx.x < half) {
        const long long other = best_places[threadIdx.x + half];
        const @C@ v = best_values[threadIdx.x + half];
        const long long mine = best_places[threadIdx.x];
        if (other >= 0 && (mine < 0 || ort_before_@ORDER@(v, other, best_values[threadIdx.x], mine))) {
          best_values[threadIdx.x] = v; best_places[threadIdx.x] = other;
        }
      }
      __syncthreads();
    }
    last_value = best_values[0]; last_place = best_places[0];
    __syncthreads();
    if (threadIdx.x == 0) { @STORE@ places[target + turn * inner_size] = last_place; }
  }
}
"""
_BEFORE = """template <typename T>
__device__ __forceinline__ bool ort_before_@ORDER@(T a, long long i, T b, long long j) {
  const bool is_nan = a != a, is_other_nan = b != b;
  if (is_nan != is_other_nan) return @NAN_FIRST@ ? is_nan : is_other_nan;
  return a @SIGN@ b || (!(b @SIGN@ a) && i @TIE@ j);
}
"""


def refuse_selection(node: Node) -> str | None:
    """Return why a selection is not generated: types without an order here."""
    value = node.input(0)
    assert value is not None
    return f"{node.op_type} of bool is not generated" if element_type(value) is DataType.BOOL else None


def lower_top_k(facts: LoweredNode) -> None:
    """Store the ``k`` largest (or smallest) elements of each row in order, and their places."""
    x = facts.builder.dense(facts.value(0))
    axis = axis_of(facts.node.int_attribute("axis", -1), len(x.shape))
    (k,) = facts.integers(1, "k") or (facts.node.int_attribute("k", 1),)
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    values_out, places_out = facts.node.outputs
    values = facts.builder.result(values_out, shape) if values_out else facts.builder.temporary(x.dtype, shape)
    places = facts.builder.result(places_out, shape) if places_out else facts.builder.temporary(DataType.INT64, shape)
    order = "descending" if facts.node.int_attribute("largest", 1) else "ascending"
    _select(facts, x, axis, k, order, places, values)


def lower_arg(facts: LoweredNode) -> None:
    """Store the place of the largest (or smallest) element, of equal ones the first or the last."""
    x = facts.builder.dense(facts.value(0))
    axis = axis_of(facts.node.int_attribute("axis", 0), len(x.shape))
    kept: Shape = (1,) if facts.node.int_attribute("keepdims", 1) else ()
    out = facts.builder.result(facts.output, (*x.shape[:axis], *kept, *x.shape[axis + 1 :]))
    order = "descending" if facts.node.op_type == "ArgMax" else "least"
    is_last = facts.node.int_attribute("select_last_index", 0) == 1
    _select(facts, x, axis, 1, f"{order}_last" if is_last else order, out, None)


def _select(
    facts: LoweredNode, x: TensorView, axis: int, k: int, order: str, places: TensorView, values: TensorView | None
) -> None:
    inner = math.prod(x.shape[axis + 1 :])
    rows = math.prod(x.shape[:axis]) * inner
    if not rows or not k:
        return
    pointers_in = "const @T@* x, @T@* out, long long* places" if values else "const @T@* x, long long* places"
    parameters = f"{pointers_in}, long long rows, long long size, long long inner_size, long long k"
    kernel = _selection_kernel(x.dtype, order, parameters, has_values=values is not None)
    written = [values, places] if values else [places]
    arguments = (*pointers(x, *written), *numbers(rows, x.shape[axis], inner, k))
    facts.builder.add(launched(kernel, blocks_for(rows), (SELECTION_THREADS, 1, 1), arguments, [x], written))


def _selection_kernel(dtype: DataType, order: str, parameters: str, *, has_values: bool) -> Kernel:
    store = "out[target + turn * inner_size] = ort_store<@T@>::of(last_value);" if has_values else ""
    texts = {
        "STORE": store, "ROWS": walk(Worker.BLOCK, "row", "rows"),
        "T": STORAGE[dtype], "C": STORAGE[compute_type(dtype)], "N": str(SELECTION_THREADS),
        "ORDER": order, "SIGN": ">" if order.startswith("descending") else "<",
        "TIE": ">" if order.endswith("_last") else "<", "NAN_FIRST": "false" if order == "ascending" else "true",
    }  # fmt: skip
    kernel, before = template("select", parameters, _SELECT, texts), replaced(_BEFORE, texts)
    guard = f"ORT_BEFORE_{order.upper()}"
    return Kernel(kernel.name, f"#ifndef {guard}\n#define {guard}\n{before}#endif\n{kernel.source}")


_MARK = """
const long long place = places[i / row_size * inner_size + i % inner_size];
out[i] = ort_store<@T@>::of((@C@)(place == i / inner_size % size));
"""


def lower_hardmax(facts: LoweredNode) -> None:
    """Store 1 at the first place of the largest element of each row, 0 elsewhere."""
    x = facts.builder.dense(facts.value(0))
    axis = axis_of(facts.node.int_attribute("axis", -1 if facts.opset >= 13 else 1), len(x.shape))
    if facts.opset < 13:  # the axes from this one on are one row
        x = x.regrouped((*x.shape[:axis], math.prod(x.shape[axis:])))
    places = facts.builder.temporary(DataType.INT64, (*x.shape[:axis], *x.shape[axis + 1 :]))
    out = facts.builder.result(facts.output, facts.tensor(0).shape)
    if not out.size:
        return
    _select(facts, x, axis, 1, "descending", places, None)
    inner = math.prod(x.shape[axis + 1 :])
    texts = {"T": STORAGE[out.dtype], "C": STORAGE[compute_type(out.dtype)]}
    parameters = (
        "const long long* places, @T@* out, long long row_size, long long inner_size, long long size, long long count"
    )
    kernel = filled("hardmax", parameters, _MARK, texts)
    sizes = numbers(x.shape[axis] * inner, inner, x.shape[axis])
    facts.builder.add(launch_elements(kernel, out.size, (*pointers(places, out), *sizes), [places], [out]))
