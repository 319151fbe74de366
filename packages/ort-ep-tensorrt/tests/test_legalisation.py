"""Legalisation: what the parser is handed computes what the claim does; onnxruntime reads the one, kernels the other."""

import numpy as np
import onnx
import onnxruntime
import pytest

from ort_core.plugin.ir import extract
from ort_core.plugin.kernels import BoundGraph, Unguarded
from ort_core.testing.claims import typed_model, view_of
from ort_core.tolerances import compare
from ort_ep_tensorrt.lowering.editing import LoweringRefusal
from ort_ep_tensorrt.lowering.legalisation import Changes
from ort_ep_tensorrt.program import program_of

HEADER = '<ir_version: 10, opset_import: ["" : 21]> '
random = np.random.default_rng(11)


def lowered(text, **changes):
    """Return the view of a graph, and the model that the parser is handed with all weights inside."""
    view = view_of(typed_model(onnx.parser.parse_model(HEADER + text)))
    program = program_of(view, view.nodes, Changes(**changes))
    return view, program, onnx.load_from_string(program.content)


def both(text, *feeds, **changes):
    """Return what the claim computes, and what the parser is handed computes."""
    view, _, model = lowered(text, **changes)
    graph, border = extract(view.nodes)
    arrays = [np.asarray(feed) for feed in feeds]
    by_name = dict(zip([value.name for value in view.graph.inputs], arrays, strict=True))
    expected = BoundGraph(graph, view.context).run([by_name[v.name] for v in border.inputs], {}, Unguarded())
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = session.run(None, {each.name: by_name[each.name] for each in session.get_inputs()})
    return dict(zip([v.name for v in border.outputs], expected, strict=True)), dict(
        zip([each.name for each in session.get_outputs()], found, strict=True)
    )


def operators(model):
    return [node.op_type for node in model.graph.node]


FLOATS = (random.standard_normal((3, 5)) * 90).astype(np.float32)
BYTES = random.integers(0, 256, (3, 5), np.uint8)
SIGNED = random.integers(-128, 128, (3, 5), np.int8)
EXACT = {
    "quantise and back": (
        "g (float[3,5] x, float s, uint8 z) => (float[3,5] y) "
        "{ q = QuantizeLinear(x, s, z)  y = DequantizeLinear(q, s, z) }",
        (FLOATS, np.float32(0.3), np.uint8(120)),
    ),
    "what is between is moved": (
        "g (float[3,5] x, float s, uint8 z) => (uint8[5,3] t, float[5,3] y) "
        "{ q = QuantizeLinear(x, s, z)  t = Transpose(q)  y = DequantizeLinear(t, s, z) }",
        (FLOATS, np.float32(0.3), np.uint8(7)),
    ),
    "signed with a zero point": (
        "g (float[3,5] x) => (int8[3,5] q) <float s = {0.25}, int8 z = {-9}> { q = QuantizeLinear(x, s, z) }",
        (FLOATS,),
    ),
    "a scale for each column": (
        "g (uint8[3,5] x, float[5] s, uint8[5] z) => (float[3,5] y) { y = DequantizeLinear<axis=-1>(x, s, z) }",
        (BYTES, np.arange(1, 6, dtype=np.float32) / 7, np.arange(5, dtype=np.uint8) * 40),
    ),
    "no zero point": (
        "g (float[3,5] x, float s) => (uint8[3,5] q) { q = QuantizeLinear(x, s) }",
        (FLOATS, np.float32(0.5)),
    ),
    "halfway cases": (
        "g (float[6] x) => (uint8[6] q) <float s = {2.0}> { q = QuantizeLinear(x, s) }",
        (np.array([1, 3, 5, 7, 509, 511], np.float32),),
    ),
    "floats are cut off": (
        "g (float[4] x) => (uint8[4] y) { y = Cast<to=2>(x) }",
        (np.array([0.9, 1.5, 2.5, 254.9], np.float32),),
    ),
    "bytes are numbers": ("g (uint8[3,5] x) => (float[3,5] y) { y = Cast<to=1>(x) }", (BYTES,)),
    "comparisons": (
        "g (uint8[3,5] x, uint8[3,5] z) => (bool[3,5] y, uint8[3,5] m) { y = Less(x, z)  m = Max(x, z) }",
        (BYTES, BYTES[::-1].copy()),
    ),
    "the place of the largest": ("g (int8[3,5] x) => (int64[3,1] y) { y = ArgMax<axis=1>(x) }", (SIGNED,)),
    "a constant of bytes": (
        "g (float[3] x) => (float[3] y) <uint8[3] w = {1,2,250}, float s = {0.1}, uint8 z = {128}> "
        "{ d = DequantizeLinear(w, s, z)  y = Add(x, d) }",
        (np.ones(3, np.float32),),
    ),
    "a bias of int32": (
        "g (float[3] x) => (float[3] y) <int32[3] w = {1,-2,70000}, float s = {0.01}> "
        "{ d = DequantizeLinear(w, s)  y = Add(x, d) }",
        (np.ones(3, np.float32),),
    ),
}


@pytest.mark.parametrize("name", EXACT)
def test_float32_stands_for_integers_of_8_bits_to_the_last_bit(name):
    text, feeds = EXACT[name]
    expected, found = both(text, *feeds)
    for output, array in expected.items():
        np.testing.assert_array_equal(found[output], array, err_msg=output)
        assert found[output].dtype == array.dtype


def test_symmetric_int8_stays_as_it_is():
    text = (
        "g (float[3,5] x, int8[5,5] w) => (float[3,5] y) <float s = {0.5}, int8 z = {0}> "
        "{ q = QuantizeLinear(x, s, z)  a = DequantizeLinear(q, s, z)  b = DequantizeLinear(w, s, z) "
        "y = MatMul(a, b) }"
    )
    assert operators(lowered(text)[2]) == ["QuantizeLinear", "DequantizeLinear", "DequantizeLinear", "MatMul"]


def test_symmetric_int8_with_something_between_is_rewritten():
    text = (
        "g (float[3,5] x) => (float[5,3] y) <float s = {0.5}, int8 z = {0}> "
        "{ q = QuantizeLinear(x, s, z)  t = Transpose(q)  y = DequantizeLinear(t, s, z) }"
    )
    assert not {"QuantizeLinear", "DequantizeLinear"} & set(operators(lowered(text)[2]))
    expected, found = both(text, FLOATS)
    np.testing.assert_array_equal(found["y"], expected["y"])


def test_a_dynamic_quantisation_is_its_parts():
    text = "g (float[3,5] x) => (uint8[3,5] y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear(x) }"
    expected, found = both(text, FLOATS, in_parts=frozenset({0}))
    np.testing.assert_array_equal(found["z"], expected["z"])
    for output, array in expected.items():
        assert compare(found[output], array, "approximate").passes, output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("g (int32[4] x) => (int8[4] y) { y = Cast<to=3>(x) }", "wraps around"),
        ("g (float16[4] x, float16 s) => (uint8[4] y) { y = QuantizeLinear(x, s) }", "divides in that type"),
        (
            "g (uint8[4,2] x, float[2,2] s) => (float[4,2] y) { y = DequantizeLinear<axis=0, block_size=2>(x, s) }",
            "blocks",
        ),
    ],
    ids=["wrapping", "half", "blocks"],
)
def test_what_float32_would_compute_otherwise_is_refused(text, words):
    with pytest.raises(LoweringRefusal, match=words):
        lowered(text)


def test_settled_inputs_are_constants_and_stay_inputs():
    text = "g (float[3,5] x, int64[1] k) => (float[a,b] y) { y = ReduceSum(x, k) }"
    _, _, model = lowered(text, settled={"k": np.array([1])})
    assert [each.name for each in model.graph.input] == ["x", "k"]
    assert "k" not in model.graph.node[0].input
    expected, found = both(text, FLOATS, np.array([1]), settled={"k": np.array([1])})
    np.testing.assert_allclose(found["y"], expected["y"], rtol=1e-5)


def test_axes_that_follow_from_sizes_are_constants():
    text = (
        "g (float[3,5] x) => (float[a,b] y) <int64 one = {1}, int64 zero = {0}> "
        "{ s = Shape(x)  n = Size(s)  k = Range(one, n, one)  y = ReduceSum(x, k) }"
    )
    _, _, model = lowered(text)
    reduction = next(node for node in model.graph.node if node.op_type == "ReduceSum")
    assert [each for each in model.graph.initializer if each.name == reduction.input[1]], "axes are [1]"


def test_every_node_knows_for_which_it_stands():
    text = "g (float[3,5] x) => (float[3,5] y) { a = Relu(x)  b = Gelu(a)  y = Exp(b) }"
    _, program, model = lowered(text, in_parts=frozenset({1}))
    kinds = [set(), set(), set()]
    for place, node in zip(program.places, model.graph.node, strict=True):
        kinds[place].add(node.op_type)
        assert not node.metadata_props, "marks are not handed to the parser"
    assert kinds[0] == {"Relu"}
    assert "Erf" in kinds[1]
    assert kinds[2] == {"Exp"}
