"""Claims that hold for some sizes: each run is asked about its own, and kernels compute those that do not fit."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from ort_core.plugin import Claim, OrtError
from ort_core.testing.claims import request_for
from ort_ep_openvino.provider import OpenVinoExecutionProvider
from ort_ep_openvino.size_conditions import SizeConditions

FIRST = "g (float[n,s,4] x) => (float[n,4] y) { zero = Constant<value_int = 0>()  y = Gather<axis = 1>(x, zero) }"
POSITIONS = """g (float[n,s] x, float[8,4] table) => (float[s,4] y) {
    sizes = Shape<start = 1, end = 2>(x)
    axes = Constant<value_ints = [0]>()
    count = Squeeze(sizes, axes)
    zero = Constant<value_int = 0>()
    one = Constant<value_int = 1>()
    places = Range(zero, count, one)
    y = Gather(table, places)
}"""
SCALED = """g (float[n,s] x) => (int64[1] y, float[n,s] z) {
    sizes = Shape<start = 1, end = 2>(x)
    much = Constant<value_ints = [268435456]>()
    y = Mul(sizes, much)
    z = Relu(x)
}"""
COLUMNS = """g (float[n,s] x, bool[n,t] mask) => (bool[n,s] y) {
    rows = Shape<start = 0, end = 1>(x)
    columns = Shape<start = 1, end = 2>(x)
    both = Concat<axis = 0>(rows, columns)
    zero_axis = Constant<value_ints = [0]>()
    row_count = Squeeze(rows, zero_axis)
    column_count = Squeeze(columns, zero_axis)
    zero = Constant<value_int = 0>()
    one = Constant<value_int = 1>()
    row = Range(zero, row_count, one)
    column = Range(zero, column_count, one)
    last = Constant<value_ints = [1]>()
    row_axis = Constant<value_ints = [0]>()
    row_2 = Unsqueeze(row, last)
    column_2 = Unsqueeze(column, row_axis)
    row_3 = Expand(row_2, both)
    column_3 = Expand(column_2, both)
    end = Constant<value_ints = [-1]>()
    row_4 = Unsqueeze(row_3, end)
    column_4 = Unsqueeze(column_3, end)
    places = Concat<axis = -1>(row_4, column_4)
    y = GatherND(mask, places)
}"""
UNSEEN = """g (float[n,s] x, int64[m] picked, float[8,4] table) => (float[k,4] y) {
    found = NonZero(picked)
    sizes = Shape<start = 1, end = 2>(found)
    axes = Constant<value_ints = [0]>()
    count = Squeeze(sizes, axes)
    zero = Constant<value_int = 0>()
    one = Constant<value_int = 1>()
    places = Range(zero, count, one)
    y = Gather(table, places)
}"""


@pytest.fixture
def claims(view, sdk):
    """Return a function from ONNX text to the view, the provider and the claims on it."""

    def ask(text):
        seen = view(text)
        provider = OpenVinoExecutionProvider()
        return seen, [each for each in provider.get_capability(seen) if isinstance(each, Claim)]

    return ask


@pytest.mark.parametrize("text", [FIRST, POSITIONS, SCALED, COLUMNS])
def test_nodes_that_are_right_for_some_sizes_are_claimed_with_the_rest(claims, text):
    seen, (claim,) = claims(text)
    assert {node.op_type for node in seen.nodes if node.op_type != "Constant"} <= {node.op_type for node in claim.nodes}


def test_a_count_that_no_input_shows_is_no_ground_for_a_claim(claims):
    seen, found = claims(UNSEEN)
    claimed = {node for claim in found for node in claim.nodes}
    assert next(node for node in seen.nodes if node.op_type == "Gather") not in claimed


@pytest.mark.parametrize(
    ("text", "shapes", "reason"),
    [
        (FIRST, [(2, 1, 4)], None),
        (POSITIONS, [(2, 8), (8, 4)], None),
        (POSITIONS, [(2, 9), (8, 4)], "nothing proves that its indices lie in their axis"),
        (SCALED, [(1, 7)], None),
        (SCALED, [(1, 8)], "nothing bounds these values"),
        (COLUMNS, [(3, 4), (3, 4)], None),
        (COLUMNS, [(3, 4), (3, 900)], None),
        (COLUMNS, [(3, 4), (3, 3)], "nothing proves"),
        (COLUMNS, [(3, 4), (2, 4)], "the name of sizes that differ: 2, 3"),
    ],
)
def test_a_run_is_refused_by_its_own_sizes(claims, text, shapes, reason):
    seen, (claim,) = claims(text)
    request = request_for(seen, claim)
    by_name = dict(zip([value.name for value in seen.graph.inputs], shapes, strict=True))
    found = SizeConditions(request.view()).refusal(tuple(by_name[value.name] for value in request.graph.inputs))
    assert (found is None) if reason is None else (found is not None and reason in found)


def test_a_static_model_has_no_conditions(claims):
    seen, (claim,) = claims(FIRST.replace("float[n,s,4]", "float[2,3,4]").replace("float[n,4]", "float[2,4]"))
    assert SizeConditions(request_for(seen, claim).view()).refusal(((2, 3, 4),)) is None


def test_runs_of_all_sizes_are_right_and_those_that_do_not_fit_say_so_once(session, caplog):
    generator = np.random.default_rng(3)
    with session(SCALED) as opened, caplog.at_level(logging.WARNING, "ort_core"):
        for size in (3, 7, 8, 20, 3, 8):
            x = generator.standard_normal((2, size)).astype(np.float32)
            y, z = opened.run(None, {"x": x})
            assert y.tolist() == [size * 2**28]
            assert np.array_equal(z, np.maximum(x, 0))
    assert sum("numpy kernels" in record.getMessage() for record in caplog.records) == 1


def test_positions_beyond_the_table_are_an_error(session):
    table = np.arange(32, dtype=np.float32).reshape(8, 4)
    with session(POSITIONS) as opened:
        for size in (1, 8, 5):
            (y,) = opened.run(None, {"x": np.zeros((2, size), np.float32), "table": table})
            assert np.array_equal(y, table[:size])
        with pytest.raises(OrtError, match=r"out of (data )?bounds"):
            opened.run(None, {"x": np.zeros((2, 9), np.float32), "table": table})


@pytest.mark.parametrize(("rows", "columns", "total"), [(3, 4, 4), (3, 4, 9), (1, 1, 1), (5, 2, 7)])
def test_columns_of_indices_lie_each_in_its_own_axis(session, rows, columns, total):
    mask = np.random.default_rng(rows).random((rows, total)) < 0.5
    with session(COLUMNS) as opened:
        (y,) = opened.run(None, {"x": np.zeros((rows, columns), np.float32), "mask": mask})
    assert np.array_equal(y, mask[:, :columns])
