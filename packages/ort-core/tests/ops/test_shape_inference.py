"""The inference engine: merging, symbols, contents of shapes, bodies, functions, contradictions."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from ort_core.errors import Fail, InvalidGraph
from ort_core.ir.dims import SymbolicDim
from ort_core.ir.model import Model
from ort_core.ir.traversal import walk
from ort_core.ir.types import DataType, OptionalType, SequenceType, TensorType
from ort_core.ir.values import Value
from ort_core.ops.inference_report import NoteKind
from ort_core.ops.unknown_dims import is_unknown

n, m = SymbolicDim.named("n"), SymbolicDim.named("m")


def find(model: Model, name: str) -> Value:
    """Return the value of that name, in nested graphs too."""
    for node in walk(model.graph):
        for value in node.present_outputs():
            if value.name == name:
                return value
    raise AssertionError(f"no value {name!r}")


def test_named_sizes_flow_through_operators(infer):
    model, report = infer("g (float[n, 3] x, float[3, m] w) => (float[?, ?] y) { a = MatMul(x, w) y = Relu(a) }")
    assert find(model, "y").type == TensorType(DataType.FLOAT, (n, m))
    assert report.notes == ()


def test_unknown_sizes_get_anonymous_names_that_stay_equal(infer):
    model, _ = infer("g (float[?, 4] x) => (float[?, ?] y) { a = Relu(x) b = Add(a, x) y = Transpose(b) }")
    first = model.graph.inputs[0].shape[0]
    assert is_unknown(first)
    assert find(model, "y").shape == (4, first)


def test_two_question_marks_are_not_the_same_size(schemas, rules):
    from ort_core.ir.graph import Graph
    from ort_core.ir.nodes import Node
    from ort_core.ops.shape_inference import infer_types

    mark = SymbolicDim.named("?")
    graph = Graph(inputs=[Value("x", TensorType(DataType.FLOAT, (mark, mark)))])
    node = graph.append(Node("Relu", graph.inputs, [Value("y")]))
    graph.add_output(node.output)
    infer_types(Model(graph, {"": 18}), schemas, rules)
    assert node.output.shape[0] != node.output.shape[1]


def test_contents_of_shapes_flow_through_shape_arithmetic(infer):
    model, report = infer("""g (float[n, 4, 6] x) => (float[?, ?] y) {
        s = Shape(x)
        i = Constant<value = int64 {0}>()
        b = Gather(s, i)
        two = Constant<value = int64 {2}>()
        half = Div(b, two)
        back = Mul(half, two)
        axes = Constant<value = int64[1] {0}>()
        u = Unsqueeze(b, axes)
        rest = Constant<value = int64[1] {-1}>()
        t = Concat<axis = 0>(u, rest)
        y = Reshape(x, t)
    }""")
    assert find(model, "y").shape == (n, 24)
    assert report.values[find(model, "half")].reshape(-1)[0] == n // 2


def test_expand_pattern_of_exporters_is_understood(infer):
    model, _ = infer("""g (float[1, n] x, float[m, n] like) => (float[?, ?] y) {
        s = Constant<value = int64[2] {5, -1}>()
        minus = Constant<value = int64[1] {-1}>()
        k = Constant<value = int64[1] {2}>()
        ones = ConstantOfShape<value = int64[1] {1}>(k)
        is_minus = Equal(s, minus)
        target = Where(is_minus, ones, s)
        y = Expand(x, target)
    }""")
    assert find(model, "y").shape == (5, n)


@pytest.mark.parametrize("scatter", ["ScatterElements<axis = 0>(s, i, k)", "ScatterND(s, p, k)"])
def test_a_shape_of_which_one_size_is_replaced_is_understood(infer, scatter):
    """What torch writes for ``index_copy`` into a cache: the indices, expanded to the cache's shape but one axis."""
    model, report = infer(f"""g (float[n, 4, 6] cache, int64[m] place, float[n, m, 6] new) => (float[?, ?, ?] y) {{
        s = Shape(cache)
        i = Constant<value = int64[1] {{-2}}>()
        p = Constant<value = int64[1, 1] {{1}}>()
        k = Shape(place)
        t = {scatter}
        axes = Constant<value = int64[2] {{0, 2}}>()
        u = Unsqueeze(place, axes)
        e = Expand(u, t)
        y = ScatterElements<axis = 1>(cache, e, new)
    }}""")
    assert find(model, "e").shape == (n, m, 6)
    assert report.notes == ()


def test_a_shape_with_sizes_added_or_placed_twice_stays_unknown(infer):
    for scatter in ('ScatterElements<axis = 0, reduction = "add">(s, i, k)', "ScatterElements<axis = 0>(s, j, l)"):
        model, _ = infer(f"""g (float[n, 4, 6] x) => (float[?, ?, ?] y) {{
            s = Shape(x)
            i = Constant<value = int64[1] {{1}}>()
            j = Constant<value = int64[2] {{1, -2}}>()
            k = Constant<value = int64[1] {{1}}>()
            l = Constant<value = int64[2] {{1, 4}}>()
            t = {scatter}
            y = Expand(x, t)
        }}""")
        assert is_unknown(find(model, "y").shape[1])


def test_repeats_of_one_axis_are_understood_as_torch_writes_them(infer):
    model, _ = infer("""g (float[1, 1, 8] x, float[n, 3] like) => (float[?, ?, ?] y) {
        sizes = Shape(like)
        first = Constant<value = int64 {0}>()
        count = Gather(sizes, first)
        one = Constant<value = int64[1] {1}>()
        row = Reshape(count, one)
        pair = Concat<axis = 0>(one, row)
        depth = Constant<value = int64 {3}>()
        flags = OneHot(one, depth, pair)
        minus = Constant<value = int64[1] {-1}>()
        repeats = Reshape(flags, minus)
        y = Tile(x, repeats)
    }""")
    assert find(model, "y").shape == (1, n, 8)


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_contents_of_a_one_hot_are_those_of_the_reference(infer, axis, depth):
    places = np.array([[0, -1, 5], [1, -4, 3]])
    text = f"""g (float[1, 1, 1] x) => (float[?] y) {{
        places = Constant<value = int64[2, 3] {{0, -1, 5, 1, -4, 3}}>()
        depth = Constant<value = int64 {{{depth}}}>()
        pair = Constant<value = int64[2] {{2, 7}}>()
        z = OneHot<axis = {axis}>(places, depth, pair)
        minus = Constant<value = int64[1] {{-1}}>()
        sizes = Reshape(z, minus)
        y = ConstantOfShape(sizes)
    }}"""
    model, _ = infer(text)
    node = onnx.helper.make_node("OneHot", ["i", "d", "v"], ["z"], axis=axis)
    given = {"i": places, "d": np.array(depth), "v": np.array([2, 7])}
    (wanted,) = ReferenceEvaluator(node).run(None, given)
    assert find(model, "y").shape == tuple(wanted.reshape(-1))


def test_broadcast_of_two_symbols_is_the_same_wherever_it_happens(infer):
    model, _ = infer("g (float[n] x, float[m] z) => (float[?] y) { a = Add(x, z) b = Mul(z, x) y = Sub(a, b) }")
    shape = find(model, "y").shape
    assert shape == find(model, "a").shape
    assert shape[0].evaluate({"n": 1, "m": 7}) == 7
    assert shape[0].evaluate({"n": 0, "m": 1}) == 0


def test_positions_cut_to_a_table_meet_the_sequence_length(infer):
    model, _ = infer("""g (float[n, 8] x, float[512, 8] table) => (float[?, ?] y) {
        s = Shape<end = 1>(x)
        zero = Constant<value = int64[1] {0}>()
        t = Slice(table, zero, s)
        y = Add(x, t)
    }""")
    assert find(model, "y").shape == (n, 8)


def test_the_last_elements_of_an_axis_are_all_of_it_where_there_are_as_many(infer):
    model, _ = infer("""g (float[b, n] x) => (float[?, ?] y) {
        s = Shape<start = 1>(x)
        first = Neg(s)
        end = Constant<value = int64[1] {9223372036854775807}>()
        one = Constant<value = int64[1] {1}>()
        y = Slice(x, first, end, one)
    }""")
    assert find(model, "y").shape == (SymbolicDim.named("b"), n)


def test_a_backward_slice_of_sizes_that_starts_before_them_keeps_the_first(infer):
    model, _ = infer("""g (float[n, 3] x, float z) => (float[?] y) {
        s = Shape(x)
        start = Constant<value = int64[1] {-9}>()
        end = Constant<value = int64[1] {-9223372036854775808}>()
        axis = Constant<value = int64[1] {0}>()
        back = Constant<value = int64[1] {-1}>()
        target = Slice(s, start, end, axis, back)
        y = Expand(z, target)
    }""")
    assert find(model, "y").shape == (n,)


def test_a_condition_of_compress_counts_as_far_as_the_axis_goes(infer):
    model, _ = infer("""g (float[2, n] x) => (float[?, ?] y) {
        c = Constant<value = bool[3] {1, 0, 1}>()
        none = Constant<value = bool[2] {0, 0}>()
        y = Compress<axis = 0>(x, c)
        open = Compress<axis = 1>(x, c)
        nothing = Compress<axis = -1>(x, none)
    }""")
    assert find(model, "y").shape == (1, n)
    assert find(model, "open").shape[0] == 2
    assert is_unknown(find(model, "open").shape[1])
    assert find(model, "nothing").shape == (2, 0)


def test_declared_number_wins_over_an_inferred_unknown(infer):
    model, report = infer("g (float[n] x) => (int64[1, 7] y) { y = NonZero(x) }")
    assert find(model, "y").shape == (1, 7)
    assert report.notes == ()


def test_declared_name_wins_over_an_anonymous_size_only(infer):
    model, _ = infer("g (float[n] x) => (int64[1, hits] y, float[other] z) { y = NonZero(x) z = Relu(x) }")
    assert find(model, "y").shape == (1, SymbolicDim.named("hits"))
    assert find(model, "z").shape == (n,)


def test_contradicting_element_type_is_noted_and_raises_when_strict(infer):
    text = "g (float[2] x) => (double[2] y) { [node_name] y = Relu(x) }"
    model, report = infer(text)
    (note,) = report.of_kind(NoteKind.TYPE)
    assert note.message == (
        "Type Error: Type (tensor(double)) of output arg (y) of node (node_name) does not match expected type "
        "(tensor(float))."
    )
    assert isinstance(note.error(), Fail)
    assert find(model, "y").type == TensorType(DataType.FLOAT, (2,))
    with pytest.raises(InvalidGraph, match="does not match expected type"):
        infer(text, strict=True)


def test_contradicting_shape_is_noted_and_the_inferred_one_kept(infer):
    model, report = infer("g (float[2] x) => (float[3] y) { y = Relu(x) }")
    (note,) = report.of_kind(NoteKind.SHAPE)
    assert "{3} declared for 'y' contradicts the inferred shape {2}" in note.message
    assert find(model, "y").shape == (2,)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("(float[2] x, double[2] z) => (float[2] y) { [k] y = Add(x, z) }", "Type parameter (T) of Optype (Add) bound"),
        ("(string[2] x) => (string[2] y) { [k] y = Relu(x) }", "Type 'tensor(string)' of input parameter (x)"),
        ("(float[2] x) => (float[2] y) { [k] y = Add(x) }", "has input size 1 not in range [min=2, max=2]"),
        ("(float[2, 3] x, float[4, 5] z) => (float[?] y) { [k] y = MatMul(x, z) }", "Node (k) Op (MatMul)"),
        ("(float[2] x) => (float[2] y) { [k] y = Softmax<axis = 7>(x) }", "'axis' must be in [-1 , 0]"),
        ("(float[2, 3] x) => (float[?] y) { [k] y = Transpose<perm = [0, 2]>(x) }", "not a permutation"),
    ],
)
def test_impossible_node_is_noted_with_its_name(infer, body, text):
    _, report = infer(f"g {body}")
    assert any(text in note.message and "k" in note.message for note in report.notes)
    with pytest.raises(InvalidGraph):
        report.raise_first()


def test_unknown_operator_is_a_gap_and_keeps_declared_types(infer):
    model, report = infer("g (float[2] x) => (float[5] y) { y = local.Mystery(x) }", strict=True)
    (note,) = report.notes
    assert note.kind is NoteKind.GAP
    assert "No Op registered for Mystery" in note.message
    assert find(model, "y").shape == (5,)


def test_input_shapes_replace_named_sizes_everywhere(infer):
    model, _ = infer(
        "g (float[n, 3] x, float[n] z) => (float[n] y) <float[n, hidden] a> { a = local.Mystery(x) y = Relu(z) }",
        input_shapes={"x": (8, 3)},
    )
    assert find(model, "a").shape == (8, SymbolicDim.named("hidden"))
    assert find(model, "y").shape == (8,)


def test_input_shapes_that_contradict_the_model_are_refused(infer):
    with pytest.raises(InvalidGraph, match="input_shapes gives 'x'"):
        infer("g (float[2] x) => (float[2] y) { y = Relu(x) }", input_shapes={"x": (3,)})
    with pytest.raises(InvalidGraph, match="names 'z'"):
        infer("g (float[2] x) => (float[2] y) { y = Relu(x) }", input_shapes={"z": (3,)})


def test_if_keeps_what_both_branches_agree_on(infer):
    model, _ = infer("""g (bool c, float[n, 4] x, float[n, 5] z) => (float[?, ?] y) {
        y = If(c) <then_branch = t () => (float[?, ?] a) { a = Relu(x) },
                   else_branch = e () => (float[?, ?] b) { b = Relu(z) }>
    }""")
    shape = find(model, "y").shape
    assert shape[0] == n
    assert is_unknown(shape[1])
    assert find(model, "a").shape == (n, 4)


def test_if_with_a_decided_condition_takes_its_branch_without_notes_of_the_other(infer):
    model, report = infer("""g (float[3, 4] x) => (float[?, ?] y) {
        r = Shape<start = 0, end = 1>(x)
        three = Constant<value = int64[1] {3}>()
        c = Equal(r, three)
        y = If(c) <then_branch = t () => (float[?, ?] a) { a = Relu(x) },
                   else_branch = e () => (float[?, ?] b) { b = MatMul(x, x) }>
    }""")
    assert find(model, "y").shape == (3, 4)
    assert report.notes == ()


def test_loop_state_that_grows_has_an_unknown_size(infer):
    model, report = infer("""g (int64 k, bool c, float[1, 4] x) => (float[?, 4] y, float[?, ?, ?] z) {
        y, z = Loop(k, c, x) <body = b (int64 i, bool ci, float[?, ?] s) => (bool co, float[?, ?] t, float[?, ?] o) {
            co = Identity(ci)
            t = Concat<axis = 0>(s, x)
            o = Relu(x)
        }>
    }""")
    assert is_unknown(find(model, "y").shape[0])
    assert find(model, "y").shape[1] == 4
    assert find(model, "z").shape[1:] == (1, 4)
    assert report.notes == ()


@pytest.mark.parametrize(
    ("given", "flag", "left", "rounds"),
    [
        ("k, ", "Identity(ci)", "int64 k = {3}", (3, 4, n)),
        ("k, yes", "Identity(yes)", "int64 k = {3}", (3, 4, n)),
        ("k, yes", "Constant<value = bool {1}>()", "int64 k = {3}", (3, 4, n)),
        ("k, yes", "Identity(ci)", "int64 k = {-2}", (0, 4, None)),
        ("k, yes", "Identity(no)", "int64 k = {3}", (None, 4, None)),
        ("k, c", "Identity(ci)", "int64 k = {3}", (None, 4, None)),
        ("k, yes", "Less(i, k)", "int64 k = {3}", (None, 4, None)),
        ("r, yes", "Identity(yes)", "int64 k = {3}", (n, 4, None)),
    ],
)
def test_a_loop_stacks_rows_for_rounds_that_nothing_stops(infer, given, flag, left, rounds):
    model, _ = infer(f"""g (bool c, float[n, 4] x) => (float[?, ?, ?] z) <bool yes = {{1}}, bool no = {{0}}, {left}> {{
        s = Shape(x)
        zero = Constant<value = int64 {{0}}>()
        r = Gather(s, zero)
        z = Loop({given}) <body = b (int64 i, bool ci) => (bool co, float[?, ?] o) {{
            co = {flag}
            o = Transpose<perm = [1, 0]>(x)
        }}>
    }}""")
    shape = find(model, "z").shape
    assert [None if is_unknown(size) else size for size in shape] == list(rounds)


def test_scan_cuts_inputs_and_stacks_outputs(infer):
    model, _ = infer("""g (float[4] s, float[n, 4] x) => (float[?] f, float[?, ?] y) {
        f, y = Scan<num_scan_inputs = 1, body = b (float[?] a, float[?] b1) => (float[?] a1, float[?] o) {
            a1 = Add(a, b1)
            o = Concat<axis = 0>(a, b1)
        }>(s, x)
    }""")
    assert find(model, "f").shape == (4,)
    assert find(model, "y").shape == (n, 8)


def test_sequences_and_optionals_carry_their_element_types(infer):
    model, _ = infer("""g (float[n, 2] x) => (float[?, 2] y) {
        s = SequenceConstruct(x, x)
        o = Optional(s)
        g1 = OptionalGetElement(o)
        y = ConcatFromSequence<axis = 0>(g1)
    }""")
    sequence = SequenceType(TensorType(DataType.FLOAT, (n, 2)))
    assert find(model, "o").type == OptionalType(sequence)
    assert find(model, "g1").type == sequence
    assert find(model, "y").shape[1] == 2


FUNCTION = """
<domain: "local", opset_import: ["" : 18]>
Half <axis> (x) => (y) {
    two = Constant<value = float {2.0}>()
    d = Div(x, two)
    y = Softmax<axis : int = @axis>(d)
}"""


def test_function_is_inferred_anew_at_every_call(infer):
    text = """g (float[n, 2] x, float[5] z) => (float[?, ?] y, float[?] w) {
        y = local.Half<axis = 1>(x)
        w = local.Half<axis = 0>(z)
    }"""
    model, report = infer(text + FUNCTION)
    assert find(model, "y").shape == (n, 2)
    assert find(model, "w").shape == (5,)
    assert report.notes == ()
    function = next(iter(model.functions.values()))
    assert all(value.type is None for value in function.graph.inputs), "a function means another thing at every call"


def test_attribute_of_a_call_reaches_the_body(infer):
    text = "g (float[n, 2] x) => (float[?, ?] y) { y = local.Half<axis = 9>(x) }"
    _, report = infer(text + FUNCTION)
    assert any("Its actual value is: 9" in note.message for note in report.notes)


def test_functions_that_explode_are_refused_in_time(schemas, rules, monkeypatch):
    from ort_core.onnx_io.text import parse_model
    from ort_core.ops import shape_inference

    monkeypatch.setattr(shape_inference, "MAX_STEPS", 5000)
    calls = "".join(
        f'<domain: "local", opset_import: ["" : 18, "local" : 1]>\n'
        f"F{i} (x) => (y) {{ a = local.F{i - 1}(x) y = local.F{i - 1}(a) }}\n"
        for i in range(1, 40)
    )
    text = (
        '<ir_version: 8, opset_import: ["" : 18, "local" : 1]>\n'
        "g (float[2] x) => (float[2] y) { y = local.F39(x) }\n" + calls + '<domain: "local", opset_import: ["" : 18]>\n'
        "F0 (x) => (y) { y = Relu(x) }"
    )
    with pytest.raises(InvalidGraph, match="expand to more than"):
        shape_inference.infer_types(parse_model(text), schemas, rules)


def test_default_of_an_input_is_not_taken_for_a_constant(infer, schemas, rules):
    from ort_core.ops.shape_inference import infer_types

    model, _ = infer("g (float[6] x) => (float[a, b] y) <int64[2] s = {2, 3}> { y = Reshape(x, s) }")
    assert find(model, "y").shape == (2, 3)
    overridable, _ = infer("g (float[6] x) => (float[a, b] y) <int64[2] s = {2, 3}> { y = Reshape(x, s) }")
    output = find(overridable, "y")
    output.type = TensorType(DataType.FLOAT)
    overridable.graph.add_input(overridable.graph.find_initializer("s"))
    infer_types(overridable, schemas, rules)
    assert all(map(is_unknown, output.shape))


def test_frozen_model_can_be_inferred_again_with_the_same_result(infer, schemas, rules):
    from ort_core.ops.shape_inference import infer_types

    model, _ = infer("g (float[?, 4] x) => (int64[?, ?] y) { a = Relu(x) y = NonZero(a) }")
    before = {value.name: value.type for node in walk(model.graph) for value in node.present_outputs()}
    report = infer_types(model.freeze(), schemas, rules)
    after = {value.name: value.type for node in walk(model.graph) for value in node.present_outputs()}
    assert after == before
    assert not report.declared


def test_readers_tell_the_rank_of_what_branches_of_different_ranks_give(infer):
    model, report = infer(
        """g (bool c, float[2, n, 8] x, float[4, 6, 3] w) => (float[?, 4, ?] y) <int64[1] axis = {0}> {
            z = If (c) <then_branch = a () => (z1) { z1 = ReduceSum <keepdims = 0> (x, axis) },
                        else_branch = b () => (z2) { z2 = Neg(x) }>
            u = Unsqueeze(z, axis)
            r = Relu(u)
            y = Conv(r, w)
        }"""
    )
    assert [len(find(model, name).shape) for name in ("z", "u", "r")] == [2, 3, 3]
    assert report.notes == ()


def test_readers_inside_of_a_body_tell_nothing_of_values_around_it(infer):
    model, _ = infer(
        """g (bool c, float[2, n, 8] x, float[4, 8, 3] w) => (y) <int64[1] axis = {0}> {
            z = If (c) <then_branch = a () => (z1) { z1 = ReduceSum <keepdims = 0> (x, axis) },
                        else_branch = b () => (z2) { z2 = Neg(x) }>
            y = If (c) <then_branch = d () => (y1) { y1 = Neg(z) },
                        else_branch = e () => (y2) { y2 = Conv(z, w) }>
        }"""
    )
    assert find(model, "z").shape is None


def test_sizes_of_inputs_tell_more_than_names_that_no_input_has(infer):
    model, report = infer(
        """g (float[?, 4] x, float[batch, 4] b) => (float[shown, 4] y, float[batch, 4] z)
            <float[rows, 4] r, float[k, 4] s> {
            r = Relu(x)
            y = Neg(r)
            s = Relu(b)
            z = Neg(s)
        }"""
    )
    assert str(find(model, "r").shape[0]) == "?x_0"
    assert str(find(model, "s").shape[0]) == "batch"
    assert str(find(model, "y").shape[0]) == "shown", "outputs keep the names that their author gave"
    assert report.notes == ()


def test_reshape_with_allowzero_refuses_zero_beside_minus_one(infer):
    body = "(float[0, 3] x) => (float[?, ?] y) <int64[2] s = {0, -1}> { y = Reshape <allowzero = 1> (x, s) }"
    _, report = infer(f"g {body}")
    with pytest.raises(InvalidGraph, match="both 0 and -1"):
        report.raise_first()
