"""Legalization: what the parser is handed computes what the claim does; checked with numbers."""

import numpy as np
import onnx
import onnxruntime
import pytest

from ort_core.plugin.ir import extract
from ort_core.plugin.kernels import BoundGraph, Unguarded
from ort_core.testing.claims import typed_model, view_of
from ort_core.tolerances import compare
from ort_ep_tensorrt import program
from ort_ep_tensorrt.lowering.editing import LoweringRefusal
from ort_ep_tensorrt.lowering.legalization import Changes
from ort_ep_tensorrt.program import program_of
from ort_ep_tensorrt.rules import refusal
from ort_ep_tensorrt.settings import BuildSettings

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
    "quantize and back": (
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
    "a vector with one scale": (
        "g (uint8[4] x, float[1] s, uint8[1] z) => (float[4] y) { y = DequantizeLinear(x, s, z) }",
        (BYTES[0, :4].copy(), np.array([0.5], np.float32), np.array([3], np.uint8)),
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


def test_a_dynamic_quantization_is_its_parts():
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


@pytest.mark.parametrize("rows", [1, 64, 700])
def test_products_of_integers_are_exact_however_long_the_sums(rows):
    text = f"g (uint8[3,{rows}] a, uint8 z, int8[{rows},5] w) => (int32[3,5] y) {{ y = MatMulInteger(a, w, z) }}"
    model = onnx.parser.parse_model(HEADER + text)
    weight = random.integers(-128, 128, (rows, 5), np.int8)
    weight[:, 0], weight[:, 1] = 127, -128
    model.graph.input.pop()
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    a = random.integers(0, 256, (3, rows), np.uint8)
    a[0], a[1] = 255, 0
    view = view_of(typed_model(model))
    handed = onnx.load_from_string(whole(program_of(view, view.nodes, Changes(in_parts=frozenset({0})))))
    session = onnxruntime.InferenceSession(handed.SerializeToString(), providers=["CPUExecutionProvider"])
    found = session.run(None, {"a": a, "z": np.array(3, np.uint8)})[0]
    np.testing.assert_array_equal(found, (a.astype(np.int64) - 3) @ weight.astype(np.int64))
    assert found.dtype == np.int32


def whole(program):
    """Return a program's model with its weights inside."""
    model = onnx.load_from_string(program.content)
    for each in model.graph.initializer:
        if each.name in program.weights:
            each.CopyFrom(onnx.numpy_helper.from_array(program.weights[each.name], each.name))
    return model.SerializeToString()


CONTRIB = {
    "BiasGelu": "g (float[3,8] x, float[8] b) => (float[3,8] y) { y = com.microsoft.BiasGelu(x, b) }",
    "FastGelu": "g (float[3,8] x, float[8] b) => (float[3,8] y) { y = com.microsoft.FastGelu(x, b) }",
    "Gelu": "g (float[3,8] x) => (float[3,8] y) { y = com.microsoft.Gelu(x) }",
    "QuickGelu": "g (float[3,8] x) => (float[3,8] y) { y = com.microsoft.QuickGelu<alpha=1.5>(x) }",
    "FusedMatMul": (
        "g (float[2,3,8] x, float[2,3,8] b) => (float[2,8,8] y) "
        "{ y = com.microsoft.FusedMatMul<transA=1, alpha=0.25>(x, b) }"
    ),
    "SkipLayerNormalization": (
        "g (float[2,3,8] x, float[2,3,8] k, float[8] s, float[8] b, float[8] c) => "
        "(float[2,3,8] y, float[2,3,8] t) "
        "{ y, , , t = com.microsoft.SkipLayerNormalization<epsilon=0.001>(x, k, s, b, c) }"
    ),
}


@pytest.mark.parametrize("name", CONTRIB)
def test_operators_of_onnxruntime_are_said_in_onnx(name):
    header = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> '
    model = onnx.parser.parse_model(header + CONTRIB[name])
    feeds = {
        each.name: random.standard_normal([d.dim_value for d in each.type.tensor_type.shape.dim]).astype(np.float32)
        for each in model.graph.input
    }
    view = view_of(typed_model(model))
    program = program_of(view, view.nodes, Changes(in_parts=frozenset({0})))
    handed = onnx.load_from_string(program.content)
    assert not [node for node in handed.graph.node if node.domain == "com.microsoft"]
    expected, found = (
        onnxruntime.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
        for m in (model, handed)
    )
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def test_an_average_over_all_there_is_is_a_global_one():
    text = "g (float[2,3,4,5] x) => (float[2,3,1,1] y) { y = AveragePool<kernel_shape=[4,5]>(x) }"
    x = random.standard_normal((2, 3, 4, 5)).astype(np.float32)
    expected, found = both(text, x, in_parts=frozenset({0}))
    assert compare(found["y"], expected["y"], "rounding").passes
    assert operators(lowered(text, in_parts=frozenset({0}))[2])[0] == "GlobalAveragePool"
    beyond = text.replace("[4,5]>", "[90,90], strides=[90,90], ceil_mode=1>")  # some exporters write such a window
    assert (
        operators(lowered(beyond.replace("float[2,", "float[n,"), in_parts=frozenset({0}))[2])[0] == "GlobalAveragePool"
    )
    other = text.replace("[4,5]>", "[4,4]>").replace("3,1,1] y", "3,1,2] y")
    expected, found = both(other, x, in_parts=frozenset({0}))
    assert compare(found["y"], expected["y"], "rounding").passes
    with pytest.raises(LoweringRefusal, match="the sizes of 'x' are open"):
        lowered(other.replace("float[2,3,4,5] x", "float[2,3,h,5] x"), in_parts=frozenset({0}))


def packed_model(**attributes):
    """Return a model of one MatMulNBits with weights of 4 bits."""
    facts = {"K": 64, "N": 16, "bits": 4, "block_size": 32, **attributes}
    node = onnx.helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", **facts)
    info = [onnx.helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [3, 64]), ("y", [3, 16]))]
    weights = [
        onnx.numpy_helper.from_array(random.integers(0, 256, (16, 2, 4 * facts["bits"]), np.uint8), "w"),
        onnx.numpy_helper.from_array(random.standard_normal(32).astype(np.float32), "s"),
    ]
    graph = onnx.helper.make_graph([node], "g", info[:1], info[1:], weights)
    imports = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("com.microsoft", 1)]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)


def test_packed_weights_of_4_bits_are_int4():
    model = packed_model()
    view = view_of(typed_model(model))
    handed = onnx.load_from_string(whole(program_of(view, view.nodes, Changes(in_parts=frozenset({0})))))
    assert onnx.TensorProto.INT4 in [each.data_type for each in handed.graph.initializer]
    x = random.standard_normal((3, 64)).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # else x is quantized, too
    session = onnxruntime.InferenceSession(handed.SerializeToString(), options, providers=["CPUExecutionProvider"])
    packed, scales = (onnx.numpy_helper.to_array(each) for each in model.graph.initializer)
    numbers = np.stack([packed & 15, packed >> 4], -1).reshape(16, 2, 32).astype(np.float64) - 8
    expected = x.astype(np.float64) @ (numbers * scales.reshape(16, 2, 1)).reshape(16, 64).T
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-4, atol=1e-4)


def test_questions_with_large_weights_are_asked_in_the_words_that_the_parser_gets(monkeypatch):
    monkeypatch.setattr(program, "INLINE_NBYTES", 0)
    monkeypatch.setattr(program, "LARGE_NBYTES", 100)
    view = view_of(typed_model(packed_model()))
    question = onnx.load_from_string(program.question_of(view, view.nodes, Changes(in_parts=frozenset({0}))))
    kinds = {each.type.tensor_type.elem_type for each in question.graph.input}
    assert kinds == {onnx.TensorProto.FLOAT, onnx.TensorProto.INT4}, "weights are inputs, with their unpacked type"
    assert not [each for each in question.graph.initializer if each.name == "w"], "nobody reads the packed ones"


def test_packed_weights_that_are_not_int4_are_refused():
    view = view_of(typed_model(packed_model(bits=8)))
    with pytest.raises(LoweringRefusal, match="only 4 bits in whole blocks"):
        program_of(view, view.nodes, Changes(in_parts=frozenset({0})))


def table_model(kind, bits, scale_kind, *, has_zeros, shape=(7, 96), block=32):
    """Return a model that gathers rows of a packed table, and its table as the operator's own tests would hold it."""
    stored = (*shape[:-1], shape[-1] * bits // 8) if kind == "uint8" else shape
    blocks = (*shape[:-1], shape[-1] // block)
    packed_blocks = (*shape[:-1], -(-blocks[-1] * bits // 8)) if kind == "uint8" else blocks
    number = onnx.TensorProto.DataType.Value(kind.upper())
    low, high = {"uint8": (0, 256), "int4": (-8, 8), "uint4": (0, 16)}[kind]

    def tensor(name, sizes):
        return onnx.helper.make_tensor(name, number, sizes, random.integers(low, high, sizes).reshape(-1).tolist())

    scales = random.standard_normal(blocks).astype(scale_kind)
    weights = [tensor("t", stored), onnx.numpy_helper.from_array(scales, "s")]
    weights += [tensor("z", packed_blocks)] if has_zeros else []
    names = ["t", "i", "s"] + ["z"] * has_zeros
    facts = {"bits": bits, "block_size": block, "quantize_axis": len(shape) - 1, "gather_axis": 0}
    node = onnx.helper.make_node("GatherBlockQuantized", names, ["y"], domain="com.microsoft", **facts)
    of = onnx.helper.np_dtype_to_tensor_dtype(scales.dtype)
    ends = [
        onnx.helper.make_tensor_value_info("i", onnx.TensorProto.INT64, ["n", 2]),
        onnx.helper.make_tensor_value_info("y", of, ["n", 2, *shape[1:]]),
    ]
    graph = onnx.helper.make_graph([node], "g", ends[:1], ends[1:], weights)
    imports = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("com.microsoft", 1)]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)


@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize("scale_kind", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("kind", "bits", "shape"),
    [
        ("uint8", 4, (7, 96)), ("uint8", 8, (7, 32)), ("uint8", 4, (5, 3, 32)), ("int4", 4, (7, 64)),
        ("uint4", 4, (7, 32)), ("uint8", 4, (7, 16)), ("uint8", 8, (3, 48)),
    ],
)  # fmt: skip
def test_rows_of_packed_tables_are_gathered_as_words(kind, bits, shape, scale_kind, has_zeros):
    model = table_model(kind, bits, scale_kind, has_zeros=has_zeros, shape=shape, block=16 if shape[-1] % 32 else 32)
    view = view_of(typed_model(model))
    handed = onnx.load_from_string(whole(program_of(view, view.nodes, Changes(in_parts=frozenset({0})))))
    assert not {each.data_type for each in handed.graph.initializer} & {2, 3, 21, 22}, "no integers below 32 bits"
    indices = np.array([[0, shape[0] - 1], [-1, 1], [shape[0], 2], [-shape[0] - 1, 2**40]])
    expected, found = (
        onnxruntime.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"])
        for each in (model, handed)
    )
    valid = indices[:2]  # onnxruntime's kernel refuses others; in ours, as on its GPUs, they give rows of zeros
    np.testing.assert_array_equal(found.run(None, {"i": valid})[0], expected.run(None, {"i": valid})[0])
    rows = found.run(None, {"i": indices})[0]
    assert not rows[2, 0].any()
    assert not rows[3].any()


def test_tables_that_a_run_brings_are_refused():
    model = table_model("uint8", 4, np.float32, has_zeros=False)
    table = next(each for each in model.graph.initializer if each.name == "t")
    model.graph.input.append(onnx.helper.make_tensor_value_info("t", onnx.TensorProto.UINT8, table.dims))
    view = view_of(typed_model(model))
    assert "8 bits" in refusal(view, view.nodes[0], BuildSettings(), is_rtx=True)


def test_fixed_inputs_are_constants_and_stay_inputs():
    text = "g (float[3,5] x, int64[1] k) => (float[a,b] y) { y = ReduceSum(x, k) }"
    _, _, model = lowered(text, fixed={"k": np.array([1])})
    assert [each.name for each in model.graph.input] == ["x", "k"]
    assert "k" not in model.graph.node[0].input
    expected, found = both(text, FLOATS, np.array([1]), fixed={"k": np.array([1])})
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
