"""The libraries of one device under one session's options: who runs a step, and what is fused."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ort_core.plugin import Available, EPFail
from ort_core.plugin.ir import DataType
from ort_ep_cuda import _sdk
from ort_ep_cuda.engines.cublas_products import multiply
from ort_ep_cuda.engines.cudnn_plans import CudnnPlans, CudnnStream
from ort_ep_cuda.engines.lt_products import LT_ACTIVATIONS, LT_TYPES, LtProducts
from ort_ep_cuda.engines.tuning import Tuner
from ort_ep_cuda.lowering.libraries.library_steps import AnyLibraryStep, MatrixProduct
from ort_ep_cuda.options import CudaOptions

log = logging.getLogger(__name__)


def _is_for_cudnn(step: AnyLibraryStep) -> bool:
    """Return whether a step is cuDNN's: all but products, and those with an activation that cuBLASLt lacks."""
    if not isinstance(step, MatrixProduct):
        return True
    activation = step.epilogue.activation
    return activation is not None and activation.kind not in LT_ACTIVATIONS


class DeviceLibraries:
    """Products by cuBLASLt where nvmath-python is installed, else by cuBLAS; all else by cuDNN.

    A product with an activation that cuBLASLt does not have is one graph of cuDNN.

    Args:
        options: of the session.
        device: name, architecture and driver of the device, which tuning depends on.
        cublas_handle: gives cuBLAS' handle of the calling thread.
        cudnn_handle: gives a handle of cuDNN.
        current: makes the device the current one, to which handles and heuristics belong; may be entered again.
    """

    def __init__(
        self,
        options: CudaOptions,
        device: tuple[tuple[str, str], ...],
        cublas_handle: Callable[[], int],
        cudnn_handle: Callable[[], Any],  # Any: cuDNN's handle
        current: AbstractContextManager[object],
    ) -> None:
        self._options, self._device, self._current = options, device, current
        self._cublas_handle, self._cudnn_handle = cublas_handle, cudnn_handle
        self._left_by_lt: set[MatrixProduct] = set()

    @property
    def fuses(self) -> bool:
        """Whether cuBLASLt or cuDNN is there."""
        return self._lt is not None or self._cudnn is not None

    def prefers_channels_last(self, dtype: DataType) -> bool:
        """Return whether tensor cores compute convolutions of an element type: they read channels side by side."""
        uses_tensor_cores = dtype is not DataType.FLOAT or self._options.use_tf32
        return self._cudnn is not None and (uses_tensor_cores or self._options.puts_channels_last)

    def refuse(self, step: AnyLibraryStep) -> str | None:
        """Return why a step is not fused; the library itself is asked."""
        with self._current:
            if isinstance(step, MatrixProduct) and not _is_for_cudnn(step):
                return self._lt.refuse(step) if self._lt is not None else "cuBLASLt is not there"
            return self._cudnn.refuse(step) if self._cudnn is not None else "cuDNN is not there"

    def run(
        self,
        step: AnyLibraryStep,
        addresses: Sequence[int],
        stream: CudnnStream,
        own: Callable[[], None] | None = None,
    ) -> None:
        """Enqueue a step; the device is the current one. ``own`` does the same by generated kernels."""
        if not isinstance(step, MatrixProduct) or _is_for_cudnn(step):
            if self._cudnn is None:
                raise EPFail(str(_sdk.find_cudnn()))
            self._cudnn.run(step, addresses, stream, own)
        elif self._lt is None or step.out.dtype not in LT_TYPES or step in self._left_by_lt:
            self._multiply(step, addresses, stream)
        else:
            try:
                self._lt.run(step, addresses, stream)
            except _sdk.library_errors() as error:
                if step.epilogue.operands or step.epilogue.activation:
                    raise  # cuBLAS has no epilogues
                log.warning("%s runs by cuBLAS from now on: cuBLASLt fails: %s", step, error)
                self._left_by_lt.add(step)
                self._multiply(step, addresses, stream)

    def _multiply(self, step: MatrixProduct, addresses: Sequence[int], stream: CudnnStream) -> None:
        a, b, out = addresses
        multiply(self._cublas_handle(), stream.handle, step, (a, b, out), self._options.use_tf32)

    @functools.cached_property
    def _lt(self) -> LtProducts | None:
        found = _sdk.find_cublas_lt()
        if not isinstance(found, Available):
            log.info("products are not fused with what follows them: %s", found)
            return None
        try:
            with self._current:
                return LtProducts(self._options.use_tf32, self._tuner("cublaslt", found.detail), self._cublas_handle)
        except _sdk.library_errors() as error:
            log.warning("products run by cuBLAS, not fused with what follows them: cuBLASLt does not start: %s", error)
            return None

    @functools.cached_property
    def _cudnn(self) -> CudnnPlans | None:
        found = _sdk.find_cudnn()
        if not isinstance(found, Available) or not self._options.enable_cudnn:
            return None
        return CudnnPlans(self._options, self._tuner("cudnn", found.detail), self._cudnn_handle)

    def _tuner(self, library: str, version: str) -> Tuner:
        return Tuner((*self._device, (library, version)), _sdk.library_errors())
