"""Products of few rows by matrices whose sizes grow: one query by all keys so far, its weights by all values.

Libraries choose a kernel for the sizes, so that no captured call of theirs serves others. With few rows a product reads
its right matrix once and computes little: a kernel that takes its sizes as they come loses nothing that matters.
"""

from __future__ import annotations

from ort_core.plugin.loops import element, reduction_of
from ort_ep_cuda.lowering.libraries.library_steps import NO_EPILOGUE, MatrixProduct
from ort_ep_cuda.lowering.program import Launch
from ort_ep_cuda.lowering.values.growing import CannotGrow, grows
from ort_ep_cuda.lowering.values.views import TensorView
from ort_ep_cuda.lowering.writing.double_math import ROW_FUNCTIONS
from ort_ep_cuda.lowering.writing.preamble import STORAGE, compute_type
from ort_ep_cuda.lowering.writing.row_kernel import launch_rows
from ort_ep_cuda.lowering.writing.writer import Worker, blocks_for, launched, numbers, pointers, template, walk

MAXIMUM_ROWS = 16  # of each product; more of them read the right matrix too often
COLUMNS, SLICES = 32, 8  # of one block: threads side by side take columns, those behind them parts of the sum


def growing_product(step: MatrixProduct) -> Launch:
    """Return the launch that computes a product whose sizes grow.

    Raises:
        CannotGrow: it has many rows, or their number grows: that is the work of a library.
    """
    rows = step.out.shape[1]
    if grows(rows) or rows > MAXIMUM_ROWS:
        raise CannotGrow("a product of many rows is made for its sizes")
    if step.epilogue != NO_EPILOGUE:
        raise CannotGrow("what a library does behind a product is made for its sizes")
    return _by_columns(step) if step.b.strides[2] == 1 and step.b.strides[1] != 1 else _by_sums(step)


def _by_sums(step: MatrixProduct) -> Launch:
    """A row of a row kernel is one element: the inner axis lies side by side in both."""
    batch, rows, columns = step.out.shape
    inner = step.a.shape[2]
    a, b, dtype = step.a, step.b, compute_type(step.out.dtype)
    left = TensorView(a.buffer, a.dtype, (batch, rows, 1, inner), (*a.strides[:2], 0, a.strides[2]), a.offset)
    right_strides = (b.strides[0], 0, b.strides[2], b.strides[1])
    right = TensorView(b.buffer, b.dtype, (batch, 1, columns, inner), right_strides, b.offset)
    shape = (batch, rows, columns, inner)
    total = reduction_of("ReduceSum", element(0, dtype) * element(1, dtype), ROW_FUNCTIONS)
    operands = [left.broadcast_to(shape), right.broadcast_to(shape)]
    return launch_rows([total if step.alpha == 1.0 else total * step.alpha], operands, [step.out], 3)


_PARAMETERS = (
    "const @T@* a, const @T@* b, @T@* out, @C@ alpha, long long rows, long long columns, long long inner, "
    "long long a_batch, long long a_row, long long a_step, long long b_batch, long long b_row, long long b_step, "
    "long long count"
)
_BODY = """
__shared__ @C@ parts[@SLICES@][@COLUMNS@];
const long long tiles = (columns + @COLUMNS@ - 1) / @COLUMNS@;
@WALK@
  const long long column = piece % tiles * @COLUMNS@ + threadIdx.x, rest = piece / tiles;
  const long long row = rest % rows, batch = rest / rows;
  const @T@* left = a + batch * a_batch + row * a_row;
  const @T@* right = b + batch * b_batch + column * b_step;
  @C@ sum = 0;
  if (column < columns)
    for (long long k = threadIdx.y; k < inner; k += @SLICES@)
      sum += (@C@)ort_load(left[k * a_step]) * (@C@)ort_load(right[k * b_row]);
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && column < columns) {
    @C@ total = 0;
    for (int k = 0; k < @SLICES@; ++k) total += parts[k][threadIdx.x];
    out[(batch * rows + row) * columns + column] = ort_store<@T@>::of(alpha * total);
  }
  __syncthreads();
}
"""


def _by_columns(step: MatrixProduct) -> Launch:
    """Threads side by side take columns that lie so; the sum is cut into slices, which meet in shared memory."""
    a, b, out = step.a, step.b, step.out
    batch, rows, columns = out.shape
    texts = {
        "WALK": walk(Worker.BLOCK, "piece", "count"), "T": STORAGE[out.dtype], "C": STORAGE[compute_type(out.dtype)],
        "SLICES": str(SLICES), "COLUMNS": str(COLUMNS),
    }  # fmt: skip
    kernel = template("few_rows", _PARAMETERS, _BODY, texts)
    count = batch * rows * ((columns + COLUMNS - 1) // COLUMNS)
    alpha = compute_type(out.dtype).numpy.type(step.alpha)
    sizes = numbers(rows, columns, a.shape[2], *a.strides, *b.strides, count)
    return launched(
        kernel, blocks_for(count), (COLUMNS, SLICES, 1), (*pointers(a, b, out), alpha, *sizes), [a, b], [out]
    )
