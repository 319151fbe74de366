"""An optimized model comes back from the cache as it was made, for the model and the weights that it was made from."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from ort_core import optimized_cache
from ort_core.cache.key import CacheKey
from ort_core.cache.store import ArtefactCache
from ort_core.errors import OrtError
from ort_core.ir.dims import SymbolicDim, maximum
from ort_core.ir.structure import ModelStructure
from ort_core.ir.traversal import graphs_of
from ort_core.ir.type_data import type_from_data, type_to_data
from ort_core.ir.types import (
    DataType,
    MapType,
    OpaqueType,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
)
from ort_core.onnx_io.load import load_model
from ort_core.options import GraphOptimizationLevel, SessionOptions
from ort_core.passes.base import Pass
from ort_core.session import InferenceSession
from ort_core.stages import optimizing

WIDTH, NUM_LAYERS = 24, 30  # weights of 2,304 bytes: above what counts as structure
X = np.linspace(-1, 1, 2 * WIDTH, dtype=np.float32).reshape(2, WIDTH)


def weights(seed: int = 0) -> list[np.ndarray]:
    """Return the weights of ``layers``; each keeps the size of what goes through."""
    draw = np.random.default_rng(seed)
    return [draw.standard_normal((WIDTH, WIDTH)).astype(np.float32) / WIDTH**0.5 for _ in range(NUM_LAYERS)]


def layers(given: list[np.ndarray], *, folds: bool = True) -> onnx.ModelProto:
    """Layers of MatMul, Identity and Relu, then sums of weights that are folded, then an If."""
    nodes, name = [], "x"
    for index in range(len(given)):
        nodes.append(helper.make_node("MatMul", [name, f"w{index}"], [f"m{index}"], f"matmul{index}"))
        nodes.append(helper.make_node("Identity", [f"m{index}"], [f"i{index}"], f"identity{index}"))
        nodes.append(helper.make_node("Relu", [f"i{index}"], [f"r{index}"], f"relu{index}"))
        name = f"r{index}"
    if folds:
        nodes += [
            helper.make_node("Constant", [], ["half"], "half", value_float=0.5),
            helper.make_node("Mul", ["w0", "half"], ["halved"], "folded"),
            helper.make_node("Transpose", ["w1"], ["turned"], "turned"),
            helper.make_node("Add", ["halved", "turned"], ["kept"], "sum"),
            helper.make_node("MatMul", [name, "kept"], ["last"], "last"),
            helper.make_node("MatMul", ["last", "turned"], ["turned_last"], "turned_last"),
        ]
        name = "turned_last"
    branch = [
        helper.make_graph(
            [helper.make_node(op, [name], [f"{op}_out"])], op, [], [helper.make_empty_tensor_value_info(f"{op}_out")]
        )
        for op in ("Neg", "Abs")
    ]
    nodes.append(helper.make_node("If", ["go"], ["y"], "choice", then_branch=branch[0], else_branch=branch[1]))
    shape = ["N", WIDTH]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
        helper.make_tensor_value_info("go", TensorProto.BOOL, []),
    ]
    graph = helper.make_graph(
        nodes, "layers", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(array, f"w{index}") for index, array in enumerate(given)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a cache of the test's own, and keep everything however quickly it was made."""
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("ORT_OPTIMIZED_MODEL_CACHE", raising=False)
    monkeypatch.setattr(optimized_cache, "MIN_DURATION_S", 0.0)
    return tmp_path / "cache"


def load(model: onnx.ModelProto, **config: str) -> InferenceSession:
    """Return a session; ``config`` has keys below ``session.``."""
    options = SessionOptions()
    for key, value in config.items():
        options.add_session_config_entry(f"session.{key}", value)
    return InferenceSession(model.SerializeToString(), options)


def came_from_cache(session: InferenceSession) -> bool:
    return session.explain().is_optimized_model_cached


def outputs_of(session: InferenceSession) -> list[np.ndarray]:
    return [session.run(None, {"x": X, "go": np.bool_(go)})[0] for go in (False, True)]


def test_second_session_takes_the_optimized_model_from_the_cache() -> None:
    first, second = load(layers(weights())), load(layers(weights()))
    assert (came_from_cache(first), came_from_cache(second)) == (False, True)
    assert "optimized model from the cache" in str(second.explain())
    for expected, found in zip(outputs_of(first), outputs_of(second), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert [(n.name, n.type, n.shape) for n in second.get_inputs()] == [
        (n.name, n.type, n.shape) for n in first.get_inputs()
    ]


def test_model_from_the_cache_is_the_optimized_one_to_the_last_type() -> None:
    first, second = (load(layers(weights()))._loaded.prepared.model for _ in range(2))
    assert ModelStructure(second).digest == ModelStructure(first).digest
    assert [len(graph) for graph in graphs_of(second.graph)] == [len(graph) for graph in graphs_of(first.graph)]
    contents = [
        {value.name: value.constant.digest() for value in model.graph.initializers if value.constant is not None}
        for model in (first, second)
    ]
    assert contents[0] == contents[1]


def with_words(words: list[str]) -> onnx.ModelProto:
    """``layers``, and words of more than what counts as structure as a second output."""
    model = layers(weights())
    model.graph.initializer.append(helper.make_tensor("words", TensorProto.STRING, [len(words)], words))
    model.graph.node.append(helper.make_node("Identity", ["words"], ["said"], "said"))
    model.graph.output.append(helper.make_tensor_value_info("said", TensorProto.STRING, [len(words)]))
    return model


def test_text_of_a_model_comes_back_and_counts_by_its_contents() -> None:
    words, others = ["one"] * 400, ["two"] * 400
    load(with_words(words))
    again, changed = load(with_words(words)), load(with_words(others))
    assert (came_from_cache(again), came_from_cache(changed)) == (True, False)
    for session, expected in ((again, words), (changed, others)):
        assert session.run(["said"], {"x": X, "go": np.bool_(1)})[0].tolist() == expected


DECOMPOSED = """
    <ir_version: 8, opset_import: ["": 17, "own": 1]>
    g (float[N, 16] x) => (float[N, 16] y)
    <float[16] scale = {1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 7, 6, 5, 4, 3, 2},
     float[16] bias = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}>
    {
        axes = Constant <value_ints = [-1]> ()
        mean = ReduceMean <axes = [-1]> (x)
        centered = Sub (x, mean)
        two = Constant <value_float = 2.0> ()
        squares = Pow (centered, two)
        variance = ReduceMean <axes = [-1]> (squares)
        epsilon = Constant <value_float = 0.00001> ()
        shifted = Add (variance, epsilon)
        deviation = Sqrt (shifted)
        normal = Div (centered, deviation)
        scaled = Mul (normal, scale)
        biased = Add (scaled, bias)
        y = own.Old (biased)
    }
    <domain: "own", opset_import: ["": 12]> Old (a) => (b) { b = Softmax <axis = 1> (a) }
"""


def test_fused_nodes_keep_their_bodies_and_inlined_ones_their_opset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizing, "MIN_NODES", 1)
    content = parser.parse_model(DECOMPOSED).SerializeToString()
    first, second = (InferenceSession(content) for _ in range(2))
    assert (came_from_cache(first), came_from_cache(second)) == (False, True)
    made, kept = (session._loaded.prepared.model for session in (first, second))
    assert [(n.op_type, n.opset, n.body is None) for n in kept.graph] == [
        ("LayerNormalization", None, False),
        ("Softmax", 12, True),
    ]
    assert ModelStructure(kept).digest == ModelStructure(made).digest
    x = np.linspace(-1, 2, 32, dtype=np.float32).reshape(2, 16)
    np.testing.assert_array_equal(second.run(None, {"x": x})[0], first.run(None, {"x": x})[0])


def test_another_weight_that_was_folded_is_another_entry() -> None:
    load(layers(weights()))
    other = weights()
    other[0] = other[0] + 1
    session = load(layers(other))
    assert not came_from_cache(session)
    assert came_from_cache(load(layers(weights()))), "the first model's entry must live beside the second's"
    found = outputs_of(load(layers(other)))
    for expected, result in zip(outputs_of(load(layers(other), optimized_model_cache="0")), found, strict=True):
        np.testing.assert_array_equal(result, expected)


def test_weight_that_nobody_read_may_differ_and_is_used() -> None:
    load(layers(weights()))
    other = weights()
    other[5] = other[5] * 2
    session = load(layers(other))
    assert came_from_cache(session)
    for expected, result in zip(
        outputs_of(load(layers(other), optimized_model_cache="0")), outputs_of(session), strict=True
    ):
        np.testing.assert_array_equal(result, expected)


def test_another_structure_level_or_list_of_passes_is_another_entry() -> None:
    load(layers(weights()))
    assert not came_from_cache(load(layers(weights(), folds=False)))
    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_BASIC
    content = layers(weights()).SerializeToString()
    assert not came_from_cache(InferenceSession(content, options))
    assert not came_from_cache(InferenceSession(content, disabled_optimizers=["ConstantFolding"]))
    options = SessionOptions()
    options.add_free_dimension_override_by_name("N", 2)
    fixed = InferenceSession(content, options)
    assert not came_from_cache(fixed)
    assert fixed.get_outputs()[0].shape == [2, WIDTH]


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-7], lambda data: data[:300] + b"!" + data[301:], lambda data: b""]
)
def test_corrupt_entry_is_rebuilt(cache_folder: Path, damage: Callable[[bytes], bytes]) -> None:
    load(layers(weights()))
    for path in cache_folder.glob("*/*.artefact"):
        path.write_bytes(damage(path.read_bytes()))
    session = load(layers(weights()))
    assert not came_from_cache(session)
    assert came_from_cache(load(layers(weights())))


def test_entry_that_is_whole_but_of_another_make_is_rebuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    put = ArtefactCache.put

    def put_nonsense(cache: ArtefactCache, key: CacheKey, *parts: bytes) -> bool:
        return put(cache, key, *([b"[0, 1]"] if key.kind.startswith("optimized-model") else parts))

    with monkeypatch.context() as patched:
        patched.setattr(ArtefactCache, "put", put_nonsense)
        load(layers(weights()))
    assert not came_from_cache(load(layers(weights())))
    assert came_from_cache(load(layers(weights())))


def test_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path / "file"))
    assert not came_from_cache(load(layers(weights())))
    assert not came_from_cache(load(layers(weights())))


def test_key_and_variable_turn_the_cache_off(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(layers(weights()), optimized_model_cache="0")
    assert not list(cache_folder.glob("optimized-model*"))
    load(layers(weights()))
    assert not came_from_cache(load(layers(weights()), optimized_model_cache="0"))
    monkeypatch.setenv("ORT_OPTIMIZED_MODEL_CACHE", "0")
    assert not came_from_cache(load(layers(weights())))


def test_small_models_and_those_with_passes_of_the_user_leave_the_cache_alone(cache_folder: Path) -> None:
    load(layers(weights()[:3], folds=False))

    class Own(Pass):
        name = "Own"

        def apply(self, context: object, record: object) -> None:
            """Do nothing."""

    options = SessionOptions()
    options.custom_passes.append(Own())
    InferenceSession(layers(weights()).SerializeToString(), options)
    assert not list(cache_folder.glob("optimized-model*"))


def test_weight_that_cannot_be_read_gives_the_error_it_gives_without_a_cache(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save_model(layers(weights()), path, save_as_external_data=True, location="model.weights", size_threshold=0)
    InferenceSession(path)
    gc.collect()  # Windows lets nobody change a mapped file
    os.truncate(tmp_path / "model.weights", 100)
    with pytest.raises(OrtError, match="External initializer"):
        InferenceSession(path)


N, M = SymbolicDim.named("N"), SymbolicDim.named("a + b")
TYPES = [
    None,
    TensorType(DataType.FLOAT, None),
    TensorType(DataType.FLOAT, ()),
    TensorType(DataType.BFLOAT16, (1, N, None, N * 2 + M * N - 3, (N + 7) // 4, maximum(N, M) % 5)),
    SparseTensorType(DataType.INT64, (N, 3)),
    SequenceType(OptionalType(TensorType(DataType.STRING, (M,)))),
    MapType(DataType.STRING, TensorType(DataType.FLOAT, (1,))),
    OpaqueType("here", "thing"),
]


@pytest.mark.parametrize("value_type", TYPES, ids=str)
def test_types_come_back_exactly_from_plain_data(value_type: object) -> None:
    assert type_from_data(json.loads(json.dumps(type_to_data(value_type)))) == value_type


def test_structure_tells_models_apart_that_differ_in_anything_but_large_weights() -> None:
    base = layers(weights())
    digest = ModelStructure(load_model(base)).digest
    assert ModelStructure(load_model(layers(weights(1)))).digest == digest
    changes: list[Callable[[onnx.ModelProto], object]] = [
        lambda m: setattr(m.graph.node[2], "op_type", "Elu"),
        lambda m: setattr(m.graph.node[2], "name", "other"),
        lambda m: setattr(m.opset_import[0], "version", 16),
        lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_param", "M"),
        lambda m: m.graph.node[-1].attribute[0].g.node[0].__setattr__("op_type", "Ceil"),
        lambda m: setattr(next(n for n in m.graph.node if n.name == "half").attribute[0], "f", 0.25),
        lambda m: m.graph.node[-3].input.__setitem__(1, "w2"),
    ]
    for change in changes:
        changed = onnx.ModelProto()
        changed.CopyFrom(base)
        change(changed)
        assert ModelStructure(load_model(changed)).digest != digest
