"""The work of a load, and of a first run, grows with the number of nodes and no faster.

Calls are counted, not seconds. A model of 10,000 nodes takes seconds; with work that grows with the square, minutes.
"""

from __future__ import annotations

import numpy as np
import pytest
from growing_models import GROWING

import ort_core

SIZES = (40, 80, 160)
LARGER_SIZES = (126, 252, 504)  # where what grows with the square shows beside all the rest
LARGER = ("transposes",)
MAX_GROWTH = 2.4  # of what twice as many nodes add: 2 is linear, 4 quadratic


def load_and_run(content: bytes) -> object:
    options = ort_core.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort_core.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    (argument,) = session.get_inputs()
    shape = [size if isinstance(size, int) else 2 for size in argument.shape]
    return session.run(None, {argument.name: np.full(shape, 0.5, np.float32)})


@pytest.mark.parametrize("name", GROWING)
def test_load_grows_linearly(name, calls_of):
    sizes = LARGER_SIZES if name in LARGER else SIZES
    contents = [GROWING[name](count).proto() for count in sizes]
    # What is imported and compiled once; of another size, or the largest one would be found optimised in the cache.
    load_and_run(GROWING[name](sizes[-1] - 14).proto())
    first, second, third = (calls_of(load_and_run, content)[0] for content in contents)
    growth = (third - second) / (second - first)
    assert growth < (MAX_GROWTH if sizes is SIZES else 2.2), f"{first}, {second}, {third} calls for {sizes} nodes"
