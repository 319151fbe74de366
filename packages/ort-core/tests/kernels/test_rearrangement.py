"""Moving blocks between channels and space, cropping around the center, and writing into a cache."""

import numpy as np
import pytest

from ort_core.errors import InvalidArgument
from ort_core.kernels.reference.attention.position_and_cache import tensor_scatter
from ort_core.kernels.reference.movement.rearrangement import center_crop_pad, depth_to_space, space_to_depth


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_space_to_depth_undoes_depth_to_space(mode):
    x = np.arange(2 * 12 * 2 * 3).reshape(2, 12, 2, 3)
    y = depth_to_space(x, blocksize=2, mode=mode)
    assert y.shape == (2, 3, 4, 6)
    np.testing.assert_array_equal(space_to_depth(y, blocksize=2, mode=mode), x)
    first = x[0, ::3, 0, 0] if mode == "DCR" else x[0, :4, 0, 0]
    np.testing.assert_array_equal(y[0, 0, :2, :2].reshape(-1), first)


def test_blocks_must_divide_the_input():
    with pytest.raises(InvalidArgument, match="input depth to be a multiple"):
        depth_to_space(np.zeros((1, 3, 2, 2)), blocksize=2)
    with pytest.raises(InvalidArgument, match="height and width to be a multiple"):
        space_to_depth(np.zeros((1, 3, 3, 2)), blocksize=2)


def test_center_crop_pad_keeps_the_middle():
    x = np.arange(5.0)
    assert center_crop_pad(x, np.array([2])).tolist() == [1, 2]
    assert center_crop_pad(x, np.array([8])).tolist() == [0, 0, 1, 2, 3, 4, 0, 0]
    y = center_crop_pad(np.ones((3, 4), np.int8), np.array([2]), axes=(-1,))
    assert y.shape == (3, 2)
    assert center_crop_pad(np.array(["a"], object), np.array([3])).tolist() == ["", "a", ""]


def test_tensor_scatter_writes_each_sample_at_its_own_index():
    cache, update = np.zeros((2, 4, 1)), np.array([[[1.0], [2.0]], [[3.0], [4.0]]])
    y = tensor_scatter(cache, update, np.array([1, 3]), mode="circular")
    assert y[..., 0].tolist() == [[0, 1, 2, 0], [4, 0, 0, 3]]
    assert not cache.any()
    with pytest.raises(InvalidArgument, match="exceeds max_sequence_length"):
        tensor_scatter(cache, update, np.array([1, 3]))
    with pytest.raises(InvalidArgument, match="is negative"):
        tensor_scatter(cache, update, np.array([-1, 0]))
