"""Library calls: products by cuBLAS, convolutions by cuDNN graphs. 16-bit floats accumulate in float32."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_core.plugin.ir import DataType
from ort_ep_cuda import _sdk
from ort_ep_cuda.lowering.program import Convolution, MatrixProduct
from ort_ep_cuda.lowering.views import Shape, TensorView, dense_strides
from ort_ep_cuda.options import CudaOptions

if TYPE_CHECKING:
    from ort_ep_cuda.cupy_gpu import CupyGpu

# Numbers of cudaDataType, cublasComputeType_t, cublasOperation_t and cublasGemmAlgo_t.
_DATA_TYPES = {DataType.FLOAT: 0, DataType.DOUBLE: 1, DataType.FLOAT16: 2, DataType.BFLOAT16: 14}
_COMPUTE_FLOAT, _COMPUTE_FLOAT_TF32, _COMPUTE_DOUBLE = 68, 77, 70
_PLAIN, _TRANSPOSED = 0, 1
_DEFAULT_ALGORITHM = -1
_SMALL_WORKSPACE_NBYTES = 32 << 20  # onnxruntime's bound where cudnn_conv_use_max_workspace is 0


def multiply(handle: int, stream: int, product: MatrixProduct, addresses: tuple[int, int, int], use_tf32: bool) -> None:
    """Enqueue a product. cuBLAS counts columns first: what it computes is the transpose, ``b' a'``."""
    cublas = _sdk.cublas()
    cublas.setStream(handle, stream)
    a, b, out = product.a, product.b, product.out
    is_double = out.dtype is DataType.DOUBLE
    scalars = np.array([product.alpha, 0.0], np.float64 if is_double else np.float32)
    compute = _COMPUTE_DOUBLE if is_double else _COMPUTE_FLOAT_TF32 if use_tf32 else _COMPUTE_FLOAT
    kind = _DATA_TYPES[out.dtype]
    batch, rows, columns = out.shape
    (b_operation, b_step), (a_operation, a_step) = leading(b), leading(a)
    cublas.gemmStridedBatchedEx(
        handle, b_operation, a_operation, columns, rows, a.shape[-1], scalars.ctypes.data, addresses[1], kind, b_step,
        b.strides[0], addresses[0], kind, a_step, a.strides[0], scalars.ctypes.data + scalars.itemsize, addresses[2],
        kind, max(columns, 1), out.strides[0], batch, compute, _DEFAULT_ALGORITHM,
    )  # fmt: skip


def leading(matrix: TensorView) -> tuple[int, int]:
    """Return how cuBLAS reads the transpose of a ``[batch, rows, columns]`` view: operation and leading dimension."""
    _, rows, columns = matrix.shape
    if matrix.strides[2] == 1 and (matrix.strides[1] >= columns or rows == 1):
        return _PLAIN, max(matrix.strides[1], columns, 1)
    return _TRANSPOSED, max(matrix.strides[2], rows, 1)


class ConvolutionPlans:
    """cuDNN graphs by convolution, built when first run; their scratch memory is shared by runs of one stream.

    Args:
        gpu: gives memory.
        options: how engines are chosen.
    """

    def __init__(self, gpu: CupyGpu, options: CudaOptions) -> None:
        self._gpu, self._options = gpu, options
        self._plans: dict[tuple[Convolution, int], tuple[Any, tuple[Any, Any, Any], Any]] = {}
        self._handles: dict[int, Any] = {}  # Any: cuDNN's handles, by stream
        self._lock = threading.Lock()

    def run(self, convolution: Convolution, addresses: tuple[int, int, int], stream: int) -> None:
        """Enqueue a convolution; the first of its kind on a stream builds its plan."""
        cudnn = _sdk.cudnn()
        with self._lock:
            if stream not in self._handles:
                self._handles[stream] = cudnn.create_handle()
                cudnn.set_stream(handle=self._handles[stream], stream=stream)
            handle, key = self._handles[stream], (_without_buffers(convolution), stream)
            if key not in self._plans:
                graph, tensors = self._build(convolution, handle)
                self._plans[key] = (graph, tensors, self._gpu.allocate(max(graph.get_workspace_size(), 1)))
            graph, tensors, scratch = self._plans[key]
        graph.execute(dict(zip(tensors, addresses, strict=True)), scratch.address, handle=handle)

    def _build(self, convolution: Convolution, handle: Any) -> tuple[Any, tuple[Any, Any, Any]]:  # Any: cuDNN's objects
        cudnn = _sdk.cudnn()
        kind = {
            DataType.FLOAT: cudnn.data_type.FLOAT,
            DataType.FLOAT16: cudnn.data_type.HALF,
            DataType.BFLOAT16: cudnn.data_type.BFLOAT16,
        }[convolution.x.dtype]
        graph = cudnn.pygraph(
            handle=handle, io_data_type=kind, intermediate_data_type=cudnn.data_type.FLOAT,
            compute_data_type=cudnn.data_type.FLOAT,
        )  # fmt: skip
        x, weights, out = (_planar(view.shape) for view in (convolution.x, convolution.weights, convolution.out))
        image = graph.tensor(name="x", dim=list(x), stride=list(dense_strides(x)), data_type=kind)
        filters = graph.tensor(name="weights", dim=list(weights), stride=list(dense_strides(weights)), data_type=kind)
        is_transposed = convolution.is_transposed
        factors = {"loss": image, "filter": filters} if is_transposed else {"image": image, "weight": filters}
        result = (graph.conv_dgrad if is_transposed else graph.conv_fprop)(
            **factors, pre_padding=_lifted(convolution.pads_before, 0),
            post_padding=_lifted(convolution.pads_after, 0), stride=_lifted(convolution.strides, 1),
            dilation=_lifted(convolution.dilations, 1),
        )  # fmt: skip
        result.set_output(True).set_data_type(kind).set_dim(list(out)).set_stride(list(dense_strides(out)))
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        if not self._options.use_tf32 and convolution.x.dtype is DataType.FLOAT:
            notes = cudnn.numerical_note
            graph.deselect_numeric_notes(
                [notes.TENSOR_CORE, notes.DOWN_CONVERT_INPUTS, notes.REDUCED_PRECISION_REDUCTION]
            )
        if not self._options.cudnn_conv_use_max_workspace:
            graph.deselect_workspace_greater_than(_SMALL_WORKSPACE_NBYTES)
        graph.check_support()
        is_exhaustive = self._options.cudnn_conv_algo_search == "EXHAUSTIVE"
        policy = cudnn.build_plan_policy.ALL if is_exhaustive else cudnn.build_plan_policy.HEURISTICS_CHOICE
        graph.build_plans(policy)
        return graph, (image, filters, result)


def _without_buffers(convolution: Convolution) -> Convolution:
    """Return the convolution as a key: equal sizes and strides share a plan, wherever their tensors lie."""
    x, weights, out = (
        replace(view, buffer=0, offset=0) for view in (convolution.x, convolution.weights, convolution.out)
    )
    return replace(convolution, x=x, weights=weights, out=out)


def _planar(shape: Shape) -> Shape:
    """cuDNN wants two axes of space at least: one of a single place is added."""
    return (*shape[:2], 1, *shape[2:]) if len(shape) == 3 else shape


def _lifted(numbers: Shape, neutral: int) -> list[int]:
    return [neutral, *numbers] if len(numbers) == 1 else list(numbers)
