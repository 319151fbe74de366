"""Ranges: engines are built for what was seen, and grow."""

from ort_ep_tensorrt.ranges import ShapeRange, holds_all, ranges_for


def test_the_first_engine_is_built_for_the_first_shapes():
    assert ranges_for({"x": (2, 3)}, {}, {}) == {"x": ShapeRange((2, 3), (2, 3), (2, 3))}


def test_a_shape_outside_widens_the_range_and_becomes_what_it_is_fastest_for():
    before = ranges_for({"x": (2, 3)}, {}, {})
    assert ranges_for({"x": (8, 1)}, {}, before) == {"x": ShapeRange((2, 1), (8, 1), (8, 3))}


def test_a_given_range_counts_where_it_holds_the_shape():
    given = {"x": ShapeRange((1,), (4,), (8,))}
    assert ranges_for({"x": (2,)}, given, {}) == given
    assert ranges_for({"x": (9,)}, given, {}) == {"x": ShapeRange((1,), (9,), (9,))}


def test_ranges_hold_shapes_only_when_every_input_lies_within():
    ranges = {"x": ShapeRange((1,), (1,), (4,)), "y": ShapeRange((2,), (2,), (2,))}
    assert holds_all(ranges, {"x": (4,), "y": (2,)})
    assert not holds_all(ranges, {"x": (5,), "y": (2,)})
    assert not holds_all(ranges, {"x": (1, 1), "y": (2,)})
    assert not holds_all({}, {"x": (1,)})
