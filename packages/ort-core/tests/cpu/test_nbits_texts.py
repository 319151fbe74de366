"""Products of few bits share the texts of their kernels where they compute the same, and only there."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core
from ort_core.cpu.lowering.rules.quantized import nbits_products

DEPTH, COLUMNS, BLOCK = 64, 64, 32


def model(addends):
    """Return a model of one product for each addend, and the float64 weights of each."""
    random = np.random.default_rng(4)
    tensors, nodes, weights, outputs = [], [], [], []
    for place, addend in enumerate(addends):
        numbers = random.integers(0, 16, (COLUMNS, DEPTH // BLOCK, BLOCK))
        scales = random.uniform(0.01, 0.1, (COLUMNS, DEPTH // BLOCK)).astype(np.float32)
        packed = (numbers[..., ::2] | numbers[..., 1::2] << 4).astype(np.uint8)
        weights.append(((numbers - 8) * scales[..., None].astype(np.float64)).reshape(COLUMNS, DEPTH).T)
        names = [f"{part}{place}" for part in ("w", "s", "m", "a", "y")]
        tensors += [numpy_helper.from_array(packed, names[0]), numpy_helper.from_array(scales.ravel(), names[1])]
        more = {"K": DEPTH, "N": COLUMNS, "bits": 4, "block_size": BLOCK, "domain": "com.microsoft"}
        result = names[4] if addend is None else names[2]
        nodes.append(helper.make_node("MatMulNBits", ["x", *names[:2]], [result], f"product{place}", **more))
        if addend is not None:
            tensors.append(numpy_helper.from_array(addend, names[3]))
            nodes.append(helper.make_node("Add", [names[2], names[3]], [names[4]], f"add{place}"))
        outputs.append(helper.make_tensor_value_info(names[4], TensorProto.FLOAT, ["rows", COLUMNS]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", DEPTH])
    graph = helper.make_graph(nodes, "products", [x], outputs, tensors)
    domains = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=10).SerializeToString(), weights


@pytest.fixture
def texts(monkeypatch):
    found, write = [], nbits_products.nbits_functions
    monkeypatch.setattr(nbits_products, "nbits_functions", lambda *given: found.append(1) or write(*given))
    return found


def test_layers_of_one_shape_have_one_text(texts):
    ort_core.InferenceSession(model([None] * 5)[0], providers=["CPUExecutionProvider"])
    assert len(texts) == 1


def test_addends_that_lie_otherwise_have_texts_of_their_own(texts):
    random = np.random.default_rng(5)
    shapes = [(COLUMNS,), (1,), (COLUMNS,), (1, 1), None]
    addends = [None if each is None else random.standard_normal(each).astype(np.float32) for each in shapes]
    content, weights = model(addends)
    session = ort_core.InferenceSession(content, providers=["CPUExecutionProvider"])
    assert 1 < len(texts) < len(addends)
    for rows in (1, 3, 40):
        x = random.standard_normal((rows, DEPTH)).astype(np.float32)
        for found, weight, addend in zip(session.run(None, {"x": x}), weights, addends, strict=True):
            expected = x.astype(np.float64) @ weight + (0 if addend is None else addend)
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
