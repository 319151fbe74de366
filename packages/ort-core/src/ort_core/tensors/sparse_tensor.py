"""SparseTensor: the API over sparse data in coordinate, compressed-row and block form.

Computation uses coordinates only (SparseArray); the two other forms are kept as given and converted on the way in.
"""

from __future__ import annotations

import numpy as np

from ort_core.arguments import an_object, sizes, takes
from ort_core.errors import InvalidType, InvalidValue
from ort_core.frozen import frozen
from ort_core.ir.types import DataType
from ort_core.options.choices import Choice
from ort_core.tensors.device import CPU, Device, OrtDevice
from ort_core.tensors.sparse import SparseArray


class OrtSparseFormat(Choice):
    """The form of a sparse tensor."""

    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4


@frozen
class SparseCooView:
    """Coordinates: ``indices()`` is int64 [nnz] (flat positions) or [nnz, 2] (row, column)."""

    _indices: np.ndarray

    def indices(self) -> np.ndarray:
        """Return the coordinates, read-only."""
        return _only_read(self._indices)


@frozen
class SparseCsrView:
    """Compressed rows: ``inner()`` are columns, ``outer()`` is where each row begins."""

    _inner: np.ndarray
    _outer: np.ndarray

    def inner(self) -> np.ndarray:
        """Return the column of each value, read-only."""
        return _only_read(self._inner)

    def outer(self) -> np.ndarray:
        """Return where each row begins, and the number of values at the end, read-only."""
        return _only_read(self._outer)


@frozen
class SparseBlockSparseView:
    """Blocks: ``indices()`` is int32 [2, blocks], row and column of each block in blocks."""

    _indices: np.ndarray

    def indices(self) -> np.ndarray:
        """Return the block coordinates, read-only."""
        return _only_read(self._indices)


def _only_read(array: np.ndarray) -> np.ndarray:
    """Return a view that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def _array(value: object, what: str) -> np.ndarray:
    """Let an array through."""
    if not isinstance(value, np.ndarray):
        raise InvalidType(f"{what} is a {type(value).__name__}, expected a numpy array")
    return value


def _positions(value: object, what: str) -> np.ndarray:
    """Return an array of int64."""
    try:
        return np.asarray(value).astype(np.int64, casting="same_kind")
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise InvalidType(f"{what} is a {type(value).__name__}, expected an array of int64: {error}") from error


SparseView = SparseCooView | SparseCsrView | SparseBlockSparseView
_FORMATS: dict[type, OrtSparseFormat] = {
    SparseCooView: OrtSparseFormat.ORT_SPARSE_COO,
    SparseCsrView: OrtSparseFormat.ORT_SPARSE_CSRC,
    SparseBlockSparseView: OrtSparseFormat.ORT_SPARSE_BLOCK_SPARSE,
}


class SparseTensor:
    """A sparse tensor with onnxruntime's methods; arrays are shared, not copied."""

    def __init__(self, sparse_tensor: SparseTensor) -> None:
        self._shape: tuple[int, ...] = sparse_tensor._shape
        self._values: np.ndarray = sparse_tensor._values
        self._view: SparseView = sparse_tensor._view

    @classmethod
    def _build(cls, shape: np.ndarray, values: np.ndarray, view: SparseView) -> SparseTensor:
        tensor = cls.__new__(cls)
        tensor._shape = tuple(int(size) for size in np.asarray(shape).reshape(-1))
        tensor._values, tensor._view = np.ascontiguousarray(values), view
        return tensor

    @classmethod
    def of(cls, array: SparseArray) -> SparseTensor:
        """Return a tensor in coordinate form over a SparseArray."""
        return cls._build(np.array(array.shape), array.values, SparseCooView(array.indices))

    @classmethod
    @takes(dense_shape=sizes, values=_array, coo_indices=_positions, ort_device=an_object(OrtDevice))
    def sparse_coo_from_numpy(
        cls, dense_shape: np.ndarray, values: np.ndarray, coo_indices: np.ndarray, ort_device: OrtDevice
    ) -> SparseTensor:
        """Return a tensor in coordinate form. ``coo_indices``: int64, [nnz] flat or [nnz, rank].

        Raises:
            InvalidValue: the parts do not fit together.
        """
        _check_cpu(ort_device)
        if values.ndim != 1:
            raise InvalidValue(f"Expecting values 1-D numpy values array for COO format. Got dims: {values.ndim}")
        indices = np.ascontiguousarray(coo_indices, np.int64)
        shape = _checked_shape(dense_shape)
        if indices.ndim == 1 and len(shape) > 1 and indices.size == len(shape) * values.size and values.size:
            indices = indices.reshape(values.size, len(shape))
        if indices.shape not in ((values.size,), (values.size, len(shape))):
            raise InvalidValue(
                f"coo_indices has the shape {list(indices.shape)}, expected [{values.size}] or "
                f"[{values.size}, {len(shape)}]"
            )
        limit = np.array(shape) if indices.ndim == 2 else np.prod(shape, dtype=np.int64)
        if indices.size and (indices.min() < 0 or (indices >= limit).any()):
            raise InvalidValue(f"coo_indices has an index outside the dense shape {list(shape)}")
        return cls._build(dense_shape, values, SparseCooView(indices))

    @classmethod
    @takes(
        dense_shape=sizes, values=_array, inner_indices=_positions, outer_indices=_positions,
        ort_device=an_object(OrtDevice),
    )  # fmt: skip
    def sparse_csr_from_numpy(
        cls,
        dense_shape: np.ndarray,
        values: np.ndarray,
        inner_indices: np.ndarray,
        outer_indices: np.ndarray,
        ort_device: OrtDevice,
    ) -> SparseTensor:
        """Return a matrix in compressed rows. Raises as ``sparse_coo_from_numpy``."""
        _check_cpu(ort_device)
        shape = _checked_shape(dense_shape)
        inner = np.ascontiguousarray(inner_indices, np.int64)
        outer = np.ascontiguousarray(outer_indices, np.int64)
        if len(shape) != 2 or inner.shape != (values.size,) or outer.shape not in ((shape[0] + 1,), (0,)):
            raise InvalidValue(
                "compressed rows need a matrix, one inner index per value and rows + 1 outer indices; found shape "
                f"{list(shape)}, {values.size} values, inner {list(inner.shape)}, outer {list(outer.shape)}"
            )
        if inner.size and (inner.min() < 0 or inner.max() >= shape[1]):
            raise InvalidValue(f"inner_indices has a column outside 0..{shape[1] - 1}")
        if outer.size and (outer[0] != 0 or outer[-1] != values.size or (np.diff(outer) < 0).any()):
            raise InvalidValue(f"outer_indices must rise from 0 to the {values.size} values")
        return cls._build(dense_shape, values, SparseCsrView(inner, outer))

    @classmethod
    def sparse_block_from_numpy(
        cls, dense_shape: np.ndarray, values: np.ndarray, block_indices: np.ndarray, ort_device: OrtDevice
    ) -> SparseTensor:
        """Return a matrix of dense blocks: ``values`` [blocks, rows, columns], ``block_indices`` int32 [2, blocks].

        onnxruntime has the form but no way to make one from Python. Raises as ``sparse_coo_from_numpy``.
        """
        _check_cpu(ort_device)
        shape = _checked_shape(dense_shape)
        blocks = np.ascontiguousarray(block_indices, np.int32)
        if len(shape) != 2 or values.ndim != 3 or blocks.shape != (2, values.shape[0]):
            raise InvalidValue(
                f"blocks need a matrix, values [blocks, rows, columns] and indices [2, blocks]; found dense shape "
                f"{list(shape)}, values {list(values.shape)}, indices {list(blocks.shape)}"
            )
        size = np.array(values.shape[1:])[:, None]
        if blocks.size and (blocks.min() < 0 or ((blocks + 1) * size > np.array(shape)[:, None]).any()):
            raise InvalidValue(f"block_indices has a block outside the dense shape {list(shape)}")
        return cls._build(dense_shape, values, SparseBlockSparseView(blocks))

    def values(self) -> np.ndarray:
        """Return the stored values, not copied and read-only; of a tensor of strings a copy, as objects."""
        return _only_read(self._values) if self._values.dtype.kind not in "OSU" else self._values.astype(object)

    def as_coo_view(self) -> SparseCooView:
        """Return the coordinates (``InvalidValue`` when the tensor has another form)."""
        return self._viewed(SparseCooView, "Coo")  # type: ignore[return-value]  # checked inside

    def as_csrc_view(self) -> SparseCsrView:
        """Return the compressed rows (``InvalidValue`` when the tensor has another form)."""
        return self._viewed(SparseCsrView, "CSR(C)")  # type: ignore[return-value]  # checked inside

    def as_blocksparse_view(self) -> SparseBlockSparseView:
        """Return the blocks (``InvalidValue`` when the tensor has another form)."""
        return self._viewed(SparseBlockSparseView, "BlockSparse")  # type: ignore[return-value]  # checked inside

    @takes(ort_device=an_object(OrtDevice))
    def to_cuda(self, ort_device: OrtDevice) -> SparseTensor:
        """Refuse: sparse tensors live on the CPU."""
        raise InvalidValue(
            f"Cuda is not available in this build: sparse tensors stay on the CPU, {ort_device} was asked for"
        )

    def format(self) -> OrtSparseFormat:
        """Return the form."""
        return _FORMATS[type(self._view)]

    def dense_shape(self) -> list[int]:
        """Return the dense shape."""
        return list(self._shape)

    def data_type(self) -> str:
        """Return the type in onnxruntime's words, such as ``sparse_tensor(float)``."""
        dtype = DataType.STRING if self._values.dtype == object else DataType.from_numpy(self._values.dtype)
        return f"sparse_tensor({dtype.text})"

    def device_name(self) -> str:
        """Return the kind of the device where the data is."""
        return self.device.kind

    @property
    def device(self) -> Device:
        """Where the data is."""
        return CPU

    def to_sparse_array(self) -> SparseArray:
        """Return the run-time value: coordinates, whatever the form."""
        view = self._view
        if isinstance(view, SparseCooView):
            return SparseArray(self._values.reshape(-1), view.indices(), self._shape)
        if isinstance(view, SparseCsrView):
            outer = view.outer() if view.outer().size else np.zeros(self._shape[0] + 1, np.int64)
            rows = np.repeat(np.arange(self._shape[0]), np.diff(outer))
            return SparseArray(self._values.reshape(-1), rows * self._shape[1] + view.inner(), self._shape)
        _, height, width = self._values.shape
        rows = view.indices()[0][:, None, None] * height + np.arange(height)[None, :, None]
        columns = view.indices()[1][:, None, None] * width + np.arange(width)[None, None, :]
        positions = (rows * self._shape[1] + columns).reshape(-1).astype(np.int64)
        return SparseArray(self._values.reshape(-1), positions, self._shape)

    def _viewed(self, kind: type, name: str) -> SparseView:
        if not isinstance(self._view, kind):
            raise InvalidValue(f"This sparse tensor does not contain {name} format; it has {self.format().name}")
        return self._view

    def _get_c_tensor(self) -> SparseTensor:  # programs written for onnxruntime reach for the value inside
        return self


def _check_cpu(device: OrtDevice) -> None:
    if not device.device.is_cpu:
        raise InvalidValue(f"sparse tensors live on the CPU, {device} was asked for")


def _checked_shape(dense_shape: np.ndarray) -> tuple[int, ...]:
    shape = tuple(int(size) for size in np.asarray(dense_shape).reshape(-1))
    if any(size < 0 for size in shape):
        raise InvalidValue(f"the dense shape {list(shape)} has a negative size")
    return shape
