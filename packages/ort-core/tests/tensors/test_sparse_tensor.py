"""SparseTensor: three forms, one meaning; the same answers as onnxruntime's."""

import numpy as np
import onnxruntime
import pytest

import ort_core
from ort_core.errors import InvalidValue
from ort_core.tensors.device import OrtDevice
from ort_core.tensors.sparse_tensor import OrtSparseFormat, SparseTensor

CPU, ORT_CPU = OrtDevice.make("cpu", 0), onnxruntime.OrtDevice.make("cpu", 0)
DENSE = np.array([[1, 0, 2], [0, 0, 0], [0, 3, 0]], np.float32)
SHAPE = np.array(DENSE.shape)
VALUES = DENSE[DENSE != 0]
FLAT = np.flatnonzero(DENSE)
PAIRS = np.ascontiguousarray(np.argwhere(DENSE))
INNER, OUTER = PAIRS[:, 1].copy(), np.array([0, 2, 2, 3])


@pytest.mark.parametrize("indices", [FLAT, PAIRS], ids=["flat", "pairs"])
def test_coordinates_are_those_of_onnxruntime(indices):
    ours = SparseTensor.sparse_coo_from_numpy(SHAPE, VALUES, indices, CPU)
    theirs = onnxruntime.SparseTensor.sparse_coo_from_numpy(SHAPE, VALUES, indices, ORT_CPU)
    np.testing.assert_array_equal(ours.as_coo_view().indices(), theirs.as_coo_view().indices())
    for question in ("values", "dense_shape", "data_type", "device_name"):
        np.testing.assert_array_equal(getattr(ours, question)(), getattr(theirs, question)(), question)
    assert ours.format() is OrtSparseFormat.ORT_SPARSE_COO
    np.testing.assert_array_equal(ours.to_sparse_array().dense(), DENSE)


def test_compressed_rows_are_those_of_onnxruntime():
    ours = SparseTensor.sparse_csr_from_numpy(SHAPE, VALUES, INNER, OUTER, CPU)
    theirs = onnxruntime.SparseTensor.sparse_csr_from_numpy(SHAPE, VALUES, INNER, OUTER, ORT_CPU)
    for part in ("inner", "outer"):
        np.testing.assert_array_equal(getattr(ours.as_csrc_view(), part)(), getattr(theirs.as_csrc_view(), part)())
    assert ours.format().name == theirs.format().name
    np.testing.assert_array_equal(ours.to_sparse_array().dense(), DENSE)


def test_blocks_mean_the_dense_matrix():
    blocks = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    tensor = SparseTensor.sparse_block_from_numpy(np.array([4, 6]), blocks, np.array([[0, 1], [2, 0]]), CPU)
    expected = np.zeros((4, 6), np.float32)
    expected[0:2, 4:6], expected[2:4, 0:2] = blocks
    np.testing.assert_array_equal(tensor.to_sparse_array().dense(), expected)
    assert tensor.format() is OrtSparseFormat.ORT_SPARSE_BLOCK_SPARSE
    np.testing.assert_array_equal(tensor.as_blocksparse_view().indices(), [[0, 1], [2, 0]])


def test_the_view_of_another_form_is_refused_as_by_onnxruntime():
    tensor = SparseTensor.sparse_coo_from_numpy(SHAPE, VALUES, FLAT, CPU)
    with pytest.raises(RuntimeError, match=r"This sparse tensor does not contain CSR\(C\) format"):
        tensor.as_csrc_view()
    with pytest.raises(RuntimeError, match="does not contain BlockSparse format"):
        tensor.as_blocksparse_view()
    with pytest.raises(RuntimeError, match="Cuda is not available"):
        tensor.to_cuda(OrtDevice.make("cuda", 0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SparseTensor.sparse_coo_from_numpy(SHAPE, VALUES, np.array([0, 1]), CPU), "coo_indices has the shape"),
        (lambda: SparseTensor.sparse_coo_from_numpy(SHAPE, VALUES[:, None], FLAT, CPU), "Got dims: 2"),
        (
            lambda: SparseTensor.sparse_coo_from_numpy(SHAPE, VALUES, np.array([0, 1, 9]), CPU),
            "outside the dense shape",
        ),
        (
            lambda: SparseTensor.sparse_coo_from_numpy(SHAPE, VALUES, np.array([0, 1, -1]), CPU),
            "outside the dense shape",
        ),
        (lambda: SparseTensor.sparse_csr_from_numpy(SHAPE, VALUES, INNER, OUTER[:2], CPU), "compressed rows need"),
        (lambda: SparseTensor.sparse_csr_from_numpy(SHAPE, VALUES, INNER + 5, OUTER, CPU), "outside 0..2"),
        (lambda: SparseTensor.sparse_csr_from_numpy(SHAPE, VALUES, INNER, OUTER[::-1], CPU), "must rise"),
        (lambda: SparseTensor.sparse_coo_from_numpy(-SHAPE, VALUES, FLAT, CPU), "negative size"),
        (lambda: SparseTensor.sparse_coo_from_numpy(SHAPE, VALUES, FLAT, OrtDevice.make("cuda", 0)), "live on the CPU"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(make, message):
    with pytest.raises(InvalidValue, match=message):
        make()


def test_a_value_over_a_sparse_tensor_keeps_its_form_as_in_onnxruntime():
    values, inner, outer = np.array([1, 2], np.float32), np.array([1, 1]), np.array([0, 1, 2, 2])
    for ort in (onnxruntime, ort_core):
        device = ort.OrtDevice.make("cpu", 0)
        made = ort.SparseTensor.sparse_csr_from_numpy(np.array([3, 3]), values, inner, outer, device)
        found = ort.OrtValue.ort_value_from_sparse_tensor(made).as_sparse_tensor()
        assert found.format().name == "ORT_SPARSE_CSRC"
        assert found.as_csrc_view().inner().tolist() == [1, 1]
        assert found.as_csrc_view().outer().tolist() == [0, 1, 2, 2]


def test_what_a_tensor_shows_can_be_written_to_where_onnxruntime_lets_it():
    texts = np.array(["one", "two", "three"][: VALUES.size])
    for values in (VALUES, texts):
        ours = SparseTensor.sparse_coo_from_numpy(SHAPE, values, FLAT, CPU)
        theirs = onnxruntime.SparseTensor.sparse_coo_from_numpy(SHAPE, values, FLAT, ORT_CPU)
        assert ours.values().dtype == theirs.values().dtype
        for shown, expected in (
            (ours.values(), theirs.values()),
            (ours.as_coo_view().indices(), theirs.as_coo_view().indices()),
        ):
            assert shown.flags.writeable == expected.flags.writeable
    rows = SparseTensor.sparse_csr_from_numpy(SHAPE, VALUES, INNER, OUTER, CPU).as_csrc_view()
    assert not rows.inner().flags.writeable
    assert not rows.outer().flags.writeable
