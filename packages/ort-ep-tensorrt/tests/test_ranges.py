"""Ranges: engines are built for what was seen, and grow."""

from ort_ep_tensorrt.ranges import ShapeRange, bounds_for, holds_all, ranges_for


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


def test_a_size_that_grows_again_gets_room_so_that_a_long_loop_builds_few_engines():
    bounds, builds = None, 0
    for step in range(1, 257):
        shapes = {"past": (1, step), "mask": (1, step + 1)}
        if bounds is None or not bounds.hold(shapes, {}):
            bounds, builds = bounds_for(shapes, {}, {}, bounds), builds + 1
            assert bounds.hold(shapes, {})
            assert bounds.shapes["past"].minimum == (1, 1)
            highest = bounds.shapes["past"].maximum[1]
            assert bounds.shapes["mask"].maximum[1] == highest + 1, "what differs by one goes on doing so"
    assert builds <= 7


def test_a_size_that_grows_for_the_first_time_gets_no_room():
    first = bounds_for({"x": (2, 3)}, {}, {})
    assert bounds_for({"x": (8, 3)}, {}, {}, first).shapes["x"].maximum == (8, 3)


def test_values_have_ranges_of_their_own():
    bounds = bounds_for({"s": (2,)}, {"s": (3, 8)}, {})
    assert bounds.hold({"s": (2,)}, {"s": (3, 8)})
    assert not bounds.hold({"s": (2,)}, {"s": (4, 6)})
    wider = bounds_for({"s": (2,)}, {"s": (4, 6)}, {}, bounds)
    assert wider.values == {"s": ShapeRange((3, 6), (4, 6), (4, 8))}
    assert wider.text() != bounds.text()
