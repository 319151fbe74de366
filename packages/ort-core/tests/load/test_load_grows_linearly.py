"""The work of a load, and of a first run, grows with the number of nodes and no faster.

Calls are counted, not seconds. A model of 10,000 nodes takes seconds; with work that grows with the square, minutes.
"""

from __future__ import annotations

import numpy as np
import pytest
from exported_kinds import EXPORTED
from growing_kinds import MORE
from growing_models import GROWING

import ort_core
from ort_core import optimized_cache

SIZES = (80, 160, 320)  # smaller models are not kept in the cache of optimized ones: another way
LARGER_SIZES = (126, 252, 504)  # where what grows with the square shows beside all the rest
LARGER = ("transposes",)
KINDS = {**GROWING, **MORE, **EXPORTED}
MAX_CALLS = {  # that one node adds: what is written once for equal nodes, and refused before it is worked on twice
    "transposes": 650, "additions": 800, "wide sum": 2200, "split": 950, "residual": 720, "ifs": 1500,
    "loops": 1700, "quantized pairs": 950, "scales": 1000, "independent": 1100, "numbers": 980, "refusing": 1180,
    "trees": 1950, "products": 890, "convolutions": 1080, "recurrent": 1700, "many inputs": 1150, "transformer": 800,
    "images": 1500, "constant nodes": 800,
}  # fmt: skip
MAX_GROWTH = 2.4  # of what twice as many nodes add: 2 is linear, 4 quadratic
MAX_GROWTH_OF_ONE = 3.1  # of one function's calls: few of them are lost in the sum, and are most of it in a large model
MANY_CALLS = 3000  # fewer say little: some work begins behind so many nodes


def load_and_run(content: bytes) -> ort_core.InferenceSession:
    options = ort_core.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort_core.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    shapes = {each.name: [size if isinstance(size, int) else 2 for size in each.shape] for each in session.get_inputs()}
    session.run(None, {name: np.full(shape, 0.5, np.float32) for name, shape in shapes.items()})
    return session


@pytest.mark.sweep(parts=4)
@pytest.mark.parametrize("name", KINDS)
def test_load_grows_linearly(name, calls_by_function, tmp_path, monkeypatch):
    sizes = LARGER_SIZES if name in LARGER else SIZES
    contents = [KINDS[name](count).proto() for count in sizes]
    kept = [load_and_run(content) for content in contents]  # what is imported and compiled once
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path))  # or they would be found optimized in the cache
    monkeypatch.setattr(optimized_cache, "MIN_DURATION_S", 0.0)  # each is kept there, however long it takes
    counted = [calls_by_function(load_and_run, content)[0] for content in contents]
    first, second, third = (calls.total() for calls in counted)
    growth = (third - second) / (second - first)
    assert growth < (MAX_GROWTH if sizes is SIZES else 2.2), f"{first}, {second}, {third} calls for {sizes} nodes"
    each = (third - second) / (sizes[2] - sizes[1])
    assert each < MAX_CALLS.get(name, each + 1), f"{each:.0f} calls for each node"
    assert kept
    assert not list(growing_faster(*counted)), "these are called the more often, the more nodes there are, for each"


def growing_faster(first, second, third):
    """Yield functions of Python whose calls grow faster than the nodes."""
    for function, number in third.items():
        added = second[function] - first[function]
        if number > MANY_CALLS and ".py" in function and number - second[function] > MAX_GROWTH_OF_ONE * added > 0:
            yield function, first[function], second[function], number
