"""Products by cuBLASLt: bias, addend and activation behind the product, and candidates of its heuristics to tune.

cuBLASLt counts columns first: what it computes of row-major tensors is the transpose, ``out' = b' a'``. A bias, one
number for each row of ``out'``, is one for each column of ``out``.
"""

from __future__ import annotations

import ctypes
import math
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ort_core.plugin.ir import DataType
from ort_ep_cuda import _sdk
from ort_ep_cuda.engines.cublas_products import DATA_TYPES, leading, multiply
from ort_ep_cuda.engines.tuning import Candidate, LibraryStream, Tuner, bucket
from ort_ep_cuda.lowering.libraries.library_steps import ALIGNMENT_NBYTES, MatrixProduct
from ort_ep_cuda.lowering.values.views import TensorView

LT_TYPES = frozenset({DataType.FLOAT, DataType.FLOAT16, DataType.BFLOAT16})
CANDIDATES = 4  # of the heuristics: the first is mostly within some per cent of the best, which is rarely behind these
SCRATCH_NBYTES = 32 << 20  # NVIDIA's advice for Hopper; split sums of smaller devices need less
_COMPUTE_FLOAT, _COMPUTE_FLOAT_TF32 = 68, 77  # cublasComputeType_t
_SCALE_FLOAT = 0  # cudaDataType
_PLAIN_NAME = b"cublas"
_EPILOGUES = {
    (False, None): 1, (False, "relu"): 2, (True, None): 4, (True, "relu"): 6, (False, "gelu_tanh"): 32,
    (True, "gelu_tanh"): 36,
}  # fmt: skip
"""cublasLtEpilogue_t by whether there is a bias, and the activation. The library's GELU is the one with ``tanh``."""
LT_ACTIVATIONS = frozenset(kind for _, kind in _EPILOGUES if kind is not None)
# Attributes of cublasLtMatmulDesc_t, cublasLtMatrixLayout_t and cublasLtMatmulPreference_t, each with its C type.
_TRANSPOSE_A, _TRANSPOSE_B, _EPILOGUE, _BIAS = (3, np.int32), (4, np.int32), (7, np.uint32), (8, np.int64)
_BATCH_COUNT, _BATCH_STEP = (5, np.int32), (6, np.int64)
_MOST_SCRATCH, _REDUCTION = (1, np.uint64), (3, np.uint32)
_ALIGNMENTS = ((5, np.uint32), (6, np.uint32), (7, np.uint32), (8, np.uint32))
_SUMS_IN_FLOAT = 2  # cublasLtReductionScheme_t: parts of a split sum are kept in the compute type, not in 16 bits
_FAKE_POINTER = 4096  # heuristics look at whether there is a bias, not at where it lies

Attribute = tuple[int, type[np.number]]


@dataclass(frozen=True, slots=True)
class LtAlgorithm:
    """An algorithm as the library's 64 bytes, valid for one version of it, and the scratch memory that it takes."""

    code: bytes
    scratch_nbytes: int


@dataclass(slots=True)
class LtPlan:
    """Descriptors of one layout of products, and its algorithms, best first; ``lock`` guards the bias' address."""

    description: int
    layouts: tuple[int, ...]
    algorithms: tuple[LtAlgorithm, ...]
    lock: threading.Lock
    chosen: bytes | None = None


class LtProducts:
    """The products of one session on one device. Safe from many threads.

    Args:
        use_tf32: whether float32 may be multiplied with 10 bits.
        tuner: chooses among candidates.
        cublas_handle: gives the handle of cuBLAS, whose own call is a candidate for plain products.
    """

    def __init__(self, use_tf32: bool, tuner: Tuner, cublas_handle: Callable[[], int]) -> None:
        self._use_tf32, self._tuner, self._cublas_handle = use_tf32, tuner, cublas_handle
        self._library = _sdk.cublas_lt()
        self._handle = self._library.create()
        self._plans: dict[MatrixProduct, LtPlan] = {}
        self._lock = threading.Lock()
        self._made: list[tuple[Callable[[int], None], int]] = [(self._library.destroy, self._handle)]
        weakref.finalize(self, _destroy, self._made)

    def refuse(self, product: MatrixProduct) -> str | None:
        """Return why a product with its epilogue is not run, ``None`` where the library has an algorithm for it."""
        if product.out.dtype not in LT_TYPES:
            return f"cuBLASLt is not used for {product.out.dtype.text}"
        activation = product.epilogue.activation
        if activation is not None and (True, activation.kind) not in _EPILOGUES:
            return f"cuBLASLt has no epilogue {activation.kind}"
        try:
            plan = self._plan(product)
        except _sdk.library_errors() as error:
            return f"cuBLASLt: {str(error).splitlines()[0]}"
        return None if plan.algorithms else "cuBLASLt has no algorithm for this product and its epilogue"

    def run(self, product: MatrixProduct, addresses: Sequence[int], stream: LibraryStream) -> None:
        """Enqueue a product; the first of its layout is tuned."""
        plan = self._plan(product)
        if plan.chosen is None:
            candidates = self._candidates(plan, product, addresses, stream)
            plan.chosen = self._tuner.choose(tuning_key(product, self._use_tf32), candidates, stream).name
        self._call(plan, product, addresses, stream, plan.chosen)()

    def _candidates(
        self, plan: LtPlan, product: MatrixProduct, addresses: Sequence[int], stream: LibraryStream
    ) -> list[Candidate]:
        names = [algorithm.code for algorithm in plan.algorithms]
        names += [] if product.epilogue.operands or product.epilogue.activation else [_PLAIN_NAME]
        known = self._tuner.find(tuning_key(product, self._use_tf32))
        if known is not None and known not in names and self._adopt(plan, known):
            names.append(known)
        return [Candidate(name, self._call(plan, product, addresses, stream, name)) for name in names]

    def _call(
        self, plan: LtPlan, product: MatrixProduct, addresses: Sequence[int], stream: LibraryStream, name: bytes
    ) -> Callable[[], None]:
        """Return what enqueues a product by one algorithm."""
        if name == _PLAIN_NAME:
            a, b, out = addresses
            return lambda: multiply(self._cublas_handle(), stream.handle, product, (a, b, out), self._use_tf32)
        algorithm = next(each for each in plan.algorithms if each.code == name)
        epilogue, (a, b, *left, out) = product.epilogue, addresses
        bias = left.pop(0) if epilogue.bias is not None else 0
        addend = left.pop(0) if left else out
        code = np.frombuffer(bytearray(algorithm.code), np.uint8)
        factors = np.array([product.alpha, epilogue.beta if epilogue.addend is not None else 0.0], np.float32)

        def call() -> None:
            scratch = stream.scratch(algorithm.scratch_nbytes) if algorithm.scratch_nbytes else 0
            layout_b, layout_a, layout_c, layout_out = plan.layouts  # all four, in the library's order
            with plan.lock:  # the descriptor, which all runs share, holds the address of the bias
                if bias:
                    self._describe(plan.description, _BIAS, bias)
                self._library.matmul(
                    self._handle, plan.description, factors.ctypes.data, b, layout_b, a, layout_a,
                    factors.ctypes.data + factors.itemsize, addend, layout_c, out, layout_out, code.ctypes.data,
                    scratch, algorithm.scratch_nbytes, stream.handle,
                )  # fmt: skip

        return call

    def _plan(self, product: MatrixProduct) -> LtPlan:
        key = replace(product.layout(), alpha=1.0)
        with self._lock:
            if key not in self._plans:
                self._plans[key] = self._built(key)
            return self._plans[key]

    def _built(self, product: MatrixProduct) -> LtPlan:
        library, epilogue = self._library, product.epilogue
        is_rounded = self._use_tf32 and product.out.dtype is DataType.FLOAT
        compute = _COMPUTE_FLOAT_TF32 if is_rounded else _COMPUTE_FLOAT
        description = self._kept(library.matmul_desc_create(compute, _SCALE_FLOAT), library.matmul_desc_destroy)
        kind = None if epilogue.activation is None else epilogue.activation.kind
        self._describe(description, _TRANSPOSE_A, leading(product.b)[0])
        self._describe(description, _TRANSPOSE_B, leading(product.a)[0])
        self._describe(description, _EPILOGUE, _EPILOGUES[epilogue.bias is not None, kind])
        if epilogue.bias is not None:
            self._describe(description, _BIAS, _FAKE_POINTER)
        addend = epilogue.addend if epilogue.addend is not None else product.out
        factors = [self._layout(view, is_factor=True) for view in (product.b, product.a)]
        layouts = (*factors, *(self._layout(view, is_factor=False) for view in (addend, product.out)))
        algorithms = self._heuristics(description, layouts, product, (product.b, product.a, addend, product.out))
        return LtPlan(description, layouts, algorithms, threading.Lock())

    def _layout(self, view: TensorView, *, is_factor: bool) -> int:
        """Return the layout of the transpose of a view as it lies: columns first."""
        library, (batch, rows, columns) = self._library, view.shape
        operation, step = leading(view) if is_factor else (0, max(columns, 1))
        stored = (rows, columns) if operation else (columns, rows)
        layout = self._kept(
            library.matrix_layout_create(DATA_TYPES[view.dtype], *stored, step), library.matrix_layout_destroy
        )
        if batch > 1:
            for attribute, value in ((_BATCH_COUNT, batch), (_BATCH_STEP, view.strides[0])):
                _set(library.matrix_layout_set_attribute, layout, attribute, value)
        return layout

    def _heuristics(
        self, description: int, layouts: Sequence[int], product: MatrixProduct, tensors: Sequence[TensorView]
    ) -> tuple[LtAlgorithm, ...]:
        library = self._library
        preference = library.matmul_preference_create()
        try:
            _set(library.matmul_preference_set_attribute, preference, _MOST_SCRATCH, SCRATCH_NBYTES)
            if product.out.dtype is not DataType.FLOAT:
                _set(library.matmul_preference_set_attribute, preference, _REDUCTION, _SUMS_IN_FLOAT)
            bias = product.epilogue.bias
            for attribute, view in zip(_ALIGNMENTS, tensors, strict=True):
                aligned = alignment(view)
                if view is product.out and bias is not None:  # a bias is read as the result is written
                    aligned = min(aligned, alignment(bias))
                _set(library.matmul_preference_set_attribute, preference, attribute, aligned)
            found = library.MatmulHeuristicResult(CANDIDATES)
            count = np.zeros(1, np.int32)
            library.matmul_algo_get_heuristic(
                self._handle, description, *layouts, preference, CANDIDATES, found.ptr, count.ctypes.data
            )
        finally:
            library.matmul_preference_destroy(preference)
        return read_results(found.ptr, int(count[0]), library.matmul_heuristic_result_dtype)

    def _adopt(self, plan: LtPlan, code: bytes) -> bool:
        """Take an algorithm that was the fastest for a similar product, if it can compute this one."""
        if len(code) != 64:  # cublasLtMatmulAlgo_t
            return False
        library = self._library
        copy, result = np.frombuffer(bytearray(code), np.uint8), library.MatmulHeuristicResult(1)
        try:
            library.matmul_algo_check(self._handle, plan.description, *plan.layouts, copy.ctypes.data, result.ptr)
        except _sdk.library_errors():
            return False
        (checked,) = read_results(result.ptr, 1, library.matmul_heuristic_result_dtype)
        if checked.scratch_nbytes > SCRATCH_NBYTES:
            return False
        plan.algorithms = (*plan.algorithms, LtAlgorithm(code, checked.scratch_nbytes))
        return True

    def _describe(self, description: int, attribute: Attribute, value: int) -> None:
        _set(self._library.matmul_desc_set_attribute, description, attribute, value)

    def _kept(self, made: int, destroy: Callable[[int], None]) -> int:
        self._made.append((destroy, made))
        return made


def _set(function: Callable[[int, int, int, int], None], target: int, attribute: Attribute, value: int) -> None:
    number, kind = attribute
    content = np.array([value], kind)
    function(target, number, content.ctypes.data, content.nbytes)


def _destroy(made: Sequence[tuple[Callable[[int], None], int]]) -> None:
    for destroy, each in reversed(made):
        destroy(each)


def read_results(address: int, count: int, dtype: Any) -> tuple[LtAlgorithm, ...]:  # Any: numpy's type of a record
    """Return what heuristics found, out of ``count`` records at an address; failed ones are left out."""
    if not count:
        return ()
    size = count * np.dtype(dtype).itemsize
    raw = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address)).copy()
    records = raw.view(dtype)
    return tuple(
        LtAlgorithm(record["algo"].tobytes(), int(record["workspace_size"]))
        for record in records
        if not int(record["state"])
    )


def alignment(view: TensorView) -> int:
    """Return to how many bytes the first element of every matrix of a view is aligned."""
    return math.gcd(view.offset * view.dtype.numpy.itemsize, ALIGNMENT_NBYTES)


def tuning_key(product: MatrixProduct, use_tf32: bool) -> str:
    """Return what the fastest algorithm depends on: types, layouts, epilogue; rows and batch by powers of two."""
    batch, rows, columns = product.out.shape
    inner, epilogue = product.a.shape[2], product.epilogue
    operations = f"{'NT'[leading(product.a)[0]]}{'NT'[leading(product.b)[0]]}"
    kind = "none" if epilogue.activation is None else epilogue.activation.kind
    aligned = min(alignment(view) for view in product.operands)
    return (
        f"product {product.out.dtype.text} tf32={int(use_tf32)} {bucket(batch)}x{bucket(rows)}x{columns}x{inner} "
        f"{operations} bias={int(epilogue.bias is not None)} addend={int(epilogue.addend is not None)} {kind} "
        f"aligned={aligned}"
    )
