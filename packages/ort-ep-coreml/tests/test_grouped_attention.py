"""GroupQueryAttention and RotaryEmbedding of com.microsoft beside onnxruntime and the reference kernels."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime
import pytest

import ort_core as ort
from ort_core.tolerances import compare
from ort_ep_coreml.capability import find_capability
from ort_ep_coreml.options import CoreMlOptions

GENERATOR = np.random.default_rng(23)
HEADS, SHARED, SIZE, ROWS = 4, 2, 16, 16  # of queries, of keys and values; elements of a head; rows of the tables
DOMAINS = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("com.microsoft", 1)]


def normal(*shape: int) -> np.ndarray:
    return GENERATOR.standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class Step:
    """One call: new tokens behind a past of ``capacity`` rows, of which some are valid in each sequence."""

    fresh: int
    capacity: int
    lengths: tuple[int, ...]  # valid rows with the new ones, of each sequence
    rotates: bool = True
    packed: bool = False
    appends: bool = False
    attributes: dict[str, object] = field(default_factory=dict)

    @property
    def columns(self) -> int:
        return self.capacity + self.fresh if self.appends else self.capacity or self.fresh

    @property
    def is_total_known(self) -> bool:
        return self.appends and self.capacity > 0

    def model(self) -> onnx.ModelProto:
        batch, kv = len(self.lengths), SHARED * SIZE
        width = HEADS * SIZE + (2 * kv if self.packed else 0)
        shapes = {"q": [batch, self.fresh, width]}
        if not self.packed:
            shapes |= {name: [batch, self.fresh, kv] for name in "kv"}
        if self.capacity:
            shapes |= {name: [batch, SHARED, self.capacity, SIZE] for name in ("pk", "pv")}
        tables = {name: [ROWS, SIZE // 2] for name in ("cos", "sin")} if self.rotates else {}
        inputs = [onnx.helper.make_tensor_value_info(n, 1, s) for n, s in (shapes | tables).items()]
        inputs += [onnx.helper.make_tensor_value_info("lengths", 6, [batch])]
        # Sizes that an output declares are not believed: a total that is a constant says that the cache grows to it.
        total = [onnx.helper.make_tensor("total", 6, [1], [self.columns])] if self.is_total_known else []
        inputs += [] if total else [onnx.helper.make_tensor_value_info("total", 6, [1])]
        names = [n if n in shapes or n in tables else "" for n in ("q", "k", "v", "pk", "pv")]
        names += ["lengths", "total", *(("cos", "sin") if self.rotates else ())]
        node = onnx.helper.make_node(
            "GroupQueryAttention", names, ["y", "k2", "v2"], domain="com.microsoft", num_heads=HEADS,
            kv_num_heads=SHARED, do_rotary=int(self.rotates), **self.attributes,
        )  # fmt: skip
        cache = [batch, SHARED, self.columns, SIZE]
        given = {"y": [batch, self.fresh, HEADS * SIZE], "k2": cache, "v2": cache}
        outputs = [onnx.helper.make_tensor_value_info(n, 1, s) for n, s in given.items()]
        graph = onnx.helper.make_graph([node], "g", inputs, outputs, total)
        return onnx.helper.make_model(graph, opset_imports=DOMAINS, ir_version=10)

    def feeds(self) -> dict[str, np.ndarray]:
        found = {}
        for each in self.model().graph.input:
            shape = [dim.dim_value for dim in each.type.tensor_type.shape.dim]
            found[each.name] = normal(*shape)
        angles = np.arange(ROWS)[:, None] * 100.0 ** (-np.arange(SIZE // 2) / SIZE)
        if self.rotates:
            found["cos"], found["sin"] = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        found["lengths"] = np.array(self.lengths, np.int32) - 1
        if not self.is_total_known:
            found["total"] = np.array([max(self.lengths)], np.int32)
        return found


STEPS = {
    "a prompt": Step(5, 0, (5, 5), appends=True),
    "a prompt of several lengths into a fixed cache": Step(5, 12, (5, 3)),
    "a token behind pasts of several lengths": Step(1, 12, (4, 9)),
    "a token behind a full past, which is appended": Step(1, 7, (8, 8), appends=True),
    "several tokens behind a past": Step(3, 12, (9,), rotates=False),
    "a window": Step(1, 12, (10, 6), attributes={"local_window_size": 3}),
    "all in one input": Step(1, 12, (4, 9), packed=True),
    "interleaved pairs, a bound and a scale": Step(
        2, 10, (7,), attributes={"rotary_interleaved": 1, "softcap": 5.0, "scale": 0.3}
    ),
}


def sessions(model: onnx.ModelProto) -> tuple[ort.InferenceSession, dict[str, object]]:
    """Return the session that evaluates, every node of it lowered, and those that judge it."""
    settings = ort.SessionOptions()
    settings.strict_placement = True
    given = model.SerializeToString()
    own = ort.InferenceSession(given, settings, providers=["CoreMLEvaluationExecutionProvider"], enable_fallback=False)
    judges = {
        "onnxruntime": onnxruntime.InferenceSession(given, providers=["CPUExecutionProvider"]),
        "the reference": ort.InferenceSession(given, providers=["ReferenceExecutionProvider"]),
    }
    return own, judges


@pytest.mark.parametrize("name", STEPS)
def test_grouped_attention_is_onnxruntimes(name, sdk, caplog):
    step = STEPS[name]
    own, judges = sessions(step.model())
    feeds = step.feeds()
    found = own.run(None, feeds)
    assert "numpy kernels" not in caplog.text, "the program itself is to be compared"
    for judge, session in judges.items():
        expected = session.run(None, feeds)
        for place, output in enumerate(("y", "k2", "v2")):
            for row, length in enumerate(step.lengths):
                # Behind the valid rows, and of padded tokens, engines leave what they like.
                count = length if place else min(length, step.fresh)
                a, b = (np.moveaxis(each[place][row], -2, 0)[:count] for each in (found, expected))
                facts = compare(a, b, "approximate")
                assert facts.passes, f"{output} of sequence {row}, beside {judge}: {facts}"


def test_a_length_beyond_the_cache_is_computed_elsewhere(sdk, caplog):
    step = Step(1, 7, (8, 8), appends=False)
    model = step.model()
    for output in list(model.graph.output)[1:]:
        output.type.tensor_type.shape.dim[2].dim_param = "rows"
    own, judges = sessions(model)
    feeds = step.feeds()
    found, expected = own.run(None, feeds), judges["the reference"].run(None, feeds)
    assert "'lengths' holds values outside of [0, 6]" in caplog.text
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


ROTARY = {
    "a table of positions": ([2, 3, 64], [2, 3], {"num_heads": 4}),
    "a first position": ([2, 3, 64], [1], {"num_heads": 4, "interleaved": 1}),
    "heads apart": ([2, 4, 3, 16], [2, 3], {}),
    "a part of each head": ([1, 3, 96], [1, 3], {"num_heads": 4, "rotary_embedding_dim": 16}),
}


@pytest.mark.parametrize("name", ROTARY)
def test_rotary_embeddings_are_onnxruntimes(name, sdk):
    shape, positions, attributes = ROTARY[name]
    tables = {"cos": normal(ROWS, SIZE // 2), "sin": normal(ROWS, SIZE // 2)}
    node = onnx.helper.make_node(
        "RotaryEmbedding", ["x", "p", "cos", "sin"], ["y"], domain="com.microsoft", **attributes
    )
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node], "g", [info("x", 1, shape), info("p", 7, positions)], [info("y", 1, shape)],
        [onnx.numpy_helper.from_array(array, key) for key, array in tables.items()],
    )  # fmt: skip
    own, judges = sessions(onnx.helper.make_model(graph, opset_imports=DOMAINS, ir_version=10))
    feeds = {"x": normal(*shape), "p": GENERATOR.integers(0, ROWS - 3, positions)}
    for judge, session in judges.items():
        facts = compare(own.run(None, feeds)[0], session.run(None, feeds)[0], "approximate")
        assert facts.passes, f"beside {judge}: {facts}"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"capacity": "past"}, "has an open size"),
        ({"rows": 4}, "positions have rows"),
        ({"attribute": ("smooth_softmax", 1)}, "a smooth softmax"),
        ({"attribute": ("qk_output", 1)}, "the first 3 of the outputs"),
    ],
)
def test_a_cache_that_cannot_be_written_to_is_refused_with_the_reason(change, why):
    from ort_core.plugin import Rejection
    from ort_core.testing.claims import typed_model, view_of

    model = Step(1, 12, (4, 9)).model()
    for each in (*model.graph.input, *model.graph.output):
        if "capacity" in change and each.name in ("pk", "pv", "k2", "v2"):
            each.type.tensor_type.shape.dim[2].dim_param = change["capacity"]
        if "rows" in change and each.name in ("cos", "sin"):
            each.type.tensor_type.shape.dim[0].dim_value = change["rows"]
    if "attribute" in change:
        name, value = change["attribute"]
        model.graph.node[0].attribute.append(onnx.helper.make_attribute(name, value))
        if name == "qk_output":
            model.graph.node[0].output.append("scores")
    (answer,) = find_capability(view_of(typed_model(model)), CoreMlOptions())
    assert isinstance(answer, Rejection)
    assert why in answer.reason


def test_lengths_that_are_converted_from_what_others_compute_are_looked_at(sdk, caplog) -> None:
    step = STEPS["a token behind pasts of several lengths"]
    model, feeds = step.model(), step.feeds()
    del feeds["lengths"]
    kept = [each for each in model.graph.input if each.name != "lengths"]
    del model.graph.input[:]
    model.graph.input.extend([*kept, onnx.helper.make_tensor_value_info("mask", 7, [2, 12])])
    model.graph.initializer.extend(
        [onnx.helper.make_tensor("axis", 7, [1], [1]), onnx.helper.make_tensor("one", 7, [], [1])]
    )
    counted = [
        onnx.helper.make_node("ReduceSum", ["mask", "axis"], ["sum"], keepdims=0),
        onnx.helper.make_node("Sub", ["sum", "one"], ["last"]),
        onnx.helper.make_node("Cast", ["last"], ["lengths"], to=6),
    ]
    nodes = [*counted, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    content = model.SerializeToString()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of placement: it is asserted
        own = ort.InferenceSession(content, providers=["CoreMLEvaluationExecutionProvider", "CPUExecutionProvider"])
    taken = [node.op_type for node in own.explain().on("CoreMLEvaluationExecutionProvider")]
    assert taken == ["Cast", "GroupQueryAttention"]
    feeds["mask"] = (np.arange(12) < np.array(step.lengths)[:, None]).astype(np.int64)
    expected = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, feeds)
    facts = compare(own.run(None, feeds)[0], expected[0], "approximate")
    assert facts.passes, facts
    assert "numpy kernels" not in caplog.text, "the program itself is to be compared"
    with pytest.raises(ort.OrtError, match=r"seqlens_k\[0\] = -1 is out of range"):
        own.run(None, feeds | {"mask": np.zeros((2, 12), np.int64)})
