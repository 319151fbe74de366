"""An operator with a kernel in CUDA C++, checked on the CPU by emulation: no GPU is needed to write it.

    python examples/custom_ops/cuda_kernel.py

Each block computes the log-sum-exp of one row: a partial result for each thread, combined by shuffles and by shared
memory. On the CPU the numpy kernel runs; a provider for CUDA devices runs the other one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import ort_core as ort
from ort_core.plugin.kernels import CudaSource, Launch, LaunchRequest
from ort_core.testing import OpReport, check_custom_op

THREADS = 128
SOURCE = """
extern "C" __global__ void row_log_sum_exp(const float* x, float* y, long long columns) {
  __shared__ float parts[4];
  const float* row = x + blockIdx.x * columns;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float most = -3.402823466e38f;
  for (long long i = threadIdx.x; i < columns; i += blockDim.x) most = fmaxf(most, row[i]);
  for (int step = 16; step; step >>= 1) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
  if (!lane) parts[warp] = most;
  __syncthreads();
  most = fmaxf(fmaxf(parts[0], parts[1]), fmaxf(parts[2], parts[3]));
  __syncthreads();
  float sum = 0;
  for (long long i = threadIdx.x; i < columns; i += blockDim.x) sum += expf(row[i] - most);
  for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (!lane) parts[warp] = sum;
  __syncthreads();
  if (!threadIdx.x) y[blockIdx.x] = logf(parts[0] + parts[1] + parts[2] + parts[3]) + most;
}
"""


@ort.custom_op("com.acme", "RowLogSumExp")
def row_log_sum_exp(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return ``log(sum(exp(x)))`` of each row of a matrix with at least one column."""
    most = x.max(axis=1)
    return np.log(np.exp(x - most[:, None]).sum(axis=1, dtype=np.float32)) + most


row_log_sum_exp.shape(lambda x: (x[0],))


def launch(request: LaunchRequest) -> Launch:
    """Return one block for each row."""
    (shape,) = request.inputs
    assert shape is not None
    return Launch((shape[0], 1, 1), (THREADS, 1, 1), (shape[1],))


row_log_sum_exp.cuda(CudaSource(SOURCE, "row_log_sum_exp", launch))


def check() -> OpReport:
    """Hold the CUDA kernel, emulated, and everything else against numpy; odd sizes and large values included."""
    rng = np.random.default_rng(0)
    cases = [[(rng.standard_normal(shape) * 40).astype(np.float32)] for shape in ((3, 1000), (1, 1), (5, 33), (2, 128))]
    return check_custom_op(row_log_sum_exp, cases)


if __name__ == "__main__":
    print(check())
