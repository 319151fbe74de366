"""Text generation operators give onnxruntime's sequences and scores over a small decoder."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.ir.types import DataType, TensorType, ValueType
from ort_core.kernels.kernel import KernelContext, Unguarded
from ort_core.kernels.reference.generation import contrib_generation

VOCABULARY, WIDTH, END, PAD = 12, 4, 11, 10
PROMPT = np.array([[PAD, 3, 4], [1, 2, 5]], np.int32)


def decoder_graph(seed: int) -> onnx.GraphProto:
    """A decoder whose next token depends on its input, its position, the mean of all tokens and the share shown."""
    rng = np.random.default_rng(seed)
    tables = {
        "embedding": rng.standard_normal((VOCABULARY, WIDTH)),
        "place": rng.standard_normal((32, WIDTH)),
        "head": rng.standard_normal((WIDTH, VOCABULARY)) * 1.5,
    }
    weights = [numpy_helper.from_array(table.astype(np.float32), name) for name, table in tables.items()]
    weights.append(numpy_helper.from_array(np.array([0, 2], np.int64), "outer"))
    weights.append(numpy_helper.from_array(np.array([1], np.int64), "time"))
    nodes = [
        helper.make_node("Gather", ["embedding", "input_ids"], ["words"]),
        helper.make_node("Unsqueeze", ["words", "outer"], ["one"]),
        helper.make_node("Concat", ["one", "one"], ["both"], axis=0),
        helper.make_node("Concat", ["past_0", "both"], ["present_0"], axis=3),
        helper.make_node("ReduceMean", ["present_0"], ["mean"], axes=[0, 2, 3], keepdims=0),
        helper.make_node("Unsqueeze", ["mean", "time"], ["spread"]),
        helper.make_node("Gather", ["place", "position_ids"], ["places"]),
        helper.make_node("Cast", ["attention_mask"], ["shown"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["shown"], ["share"], axes=[1], keepdims=1),
        helper.make_node("Unsqueeze", ["share", "time"], ["shift"]),
        helper.make_node("Sum", ["words", "spread", "places", "shift"], ["state"]),
        helper.make_node("MatMul", ["state", "head"], ["logits"]),
    ]
    past = helper.make_tensor_value_info("past_0", TensorProto.FLOAT, [2, "B", 1, "P", WIDTH])
    present = helper.make_tensor_value_info("present_0", TensorProto.FLOAT, [2, "B", 1, "T", WIDTH])
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT32, ["B", size])
        for name, size in (("input_ids", "S"), ("position_ids", "S"), ("attention_mask", "T"))
    ]
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["B", "S", VOCABULARY])
    return helper.make_graph(nodes, "decoder", [*inputs, past], [logits, present], weights)


class Body:
    """A SubgraphRunner over onnxruntime."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=10)
        self._session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        self.input_count = len(graph.input)
        self.output_types: tuple[ValueType | None, ...] = (
            TensorType(DataType.FLOAT, (None, None, VOCABULARY)),
            TensorType(DataType.FLOAT, (2, None, 1, None, WIDTH)),
        )

    def __call__(self, *inputs: object) -> tuple[np.ndarray, ...]:
        names = [value.name for value in self._session.get_inputs()]
        return tuple(self._session.run(None, dict(zip(names, inputs, strict=True))))


def reference(
    op_type: str, feeds: list[np.ndarray | None], graph: onnx.GraphProto, outputs: int, **attributes: object
) -> list[np.ndarray]:
    names = [f"x{i}" if value is not None else "" for i, value in enumerate(feeds)]
    node = helper.make_node(
        op_type,
        names,
        [f"y{i}" for i in range(outputs)],
        domain="com.microsoft",
        decoder=graph,
        eos_token_id=END,
        pad_token_id=PAD,
        **attributes,
    )
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in zip(names, feeds, strict=True)
        if value is not None
    ]
    kinds = [TensorProto.INT32, TensorProto.FLOAT, TensorProto.FLOAT]
    results = [helper.make_tensor_value_info(f"y{i}", kinds[i], None) for i in range(outputs)]
    imports = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "search", infos, results), opset_imports=imports, ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {name: value for name, value in zip(names, feeds, strict=True) if value is not None})


def context() -> KernelContext:
    return KernelContext("BeamSearch", "com.microsoft", 1, "node", (True,) * 3, (None,) * 3, {}, Unguarded())


def number(value: float) -> np.ndarray:
    return np.array([value], np.int32 if isinstance(value, int) else np.float32)


@pytest.mark.parametrize(
    ("numbers", "attributes"),
    [
        ((10, 0, 3, 2, 1.0, 1.0), {}),
        ((10, 5, 4, 4, 2.0, 1.0), {}),
        ((12, 0, 2, 1, 0.5, 1.3), {}),
        ((12, 0, 3, 3, 1.0, 1.0), {"early_stopping": 1}),
        ((12, 0, 3, 2, 1.0, 1.0), {"no_repeat_ngram_size": 2}),
    ],
)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_beam_search_finds_the_sequences_of_onnxruntime(
    seed: int, numbers: tuple[float, ...], attributes: dict[str, int]
) -> None:
    graph = decoder_graph(seed)
    feeds = [PROMPT, *(number(value) for value in numbers)]
    expected = reference("BeamSearch", feeds, graph, 2, **attributes)
    found = contrib_generation.beam_search(
        *feeds, decoder=Body(graph), eos_token_id=END, pad_token_id=PAD, ctx=context(), **attributes
    )
    assert np.array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-4, atol=1e-5)


def test_beam_search_obeys_the_masks_of_the_vocabulary() -> None:
    graph = decoder_graph(4)
    allowed = np.ones(VOCABULARY, np.int32)
    allowed[[2, 7]] = 0
    first = np.ones((2, VOCABULARY), np.int32)
    first[0, :6] = 0
    feeds = [PROMPT, *(number(v) for v in (9, 0, 3, 2, 1.0, 1.0)), allowed, first]
    expected = reference("BeamSearch", feeds, graph, 2)
    found = contrib_generation.beam_search(
        *feeds, decoder=Body(graph), eos_token_id=END, pad_token_id=PAD, ctx=context()
    )
    assert np.array_equal(found[0], expected[0])


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_greedy_search_finds_the_sequences_of_onnxruntime(seed: int) -> None:
    graph = decoder_graph(seed)
    feeds = [PROMPT, number(11), number(4), number(1.2)]
    (expected,) = reference("GreedySearch", feeds, graph, 1)
    # After the last sequence has ended, onnxruntime leaves the rest of its output as the memory was.
    found = contrib_generation.greedy_search(
        *feeds, decoder=Body(graph), eos_token_id=END, pad_token_id=PAD, ctx=context()
    )
    assert np.array_equal(found[found != PAD], expected[found != PAD])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_padding_counts_for_no_position_wherever_it_stands(length: int, masked: bool) -> None:
    """A mask that is given is what the decoder gets; positions follow from the padding of the prompt alone."""
    draw = np.random.default_rng(length)
    for seed in range(6):
        graph = decoder_graph(seed)
        prompt = draw.integers(0, END, (4, length)).astype(np.int32)
        prompt[0], prompt[draw.random(prompt.shape) < 0.4] = PAD, PAD
        mask = [None, None, draw.integers(0, 2, prompt.shape).astype(np.int32)] if masked else []
        longest = number(length + 6)
        for entry in range(4):  # with beams, onnxruntime mixes the masks of different entries
            own = [None if each is None else each[entry : entry + 1] for each in mask]
            feeds = [
                prompt[entry : entry + 1],
                longest,
                number(0),
                number(3),
                number(2),
                number(1.0),
                number(1.0),
                *own,
            ]
            [expected] = reference("BeamSearch", feeds, graph, 1)
            found = contrib_generation.beam_search(
                *feeds, decoder=Body(graph), eos_token_id=END, pad_token_id=PAD, ctx=context()
            )
            np.testing.assert_array_equal(found[0], expected)
        feeds = [prompt, longest, number(0), number(1.0), *mask]
        [expected] = reference("GreedySearch", feeds, graph, 1)
        found = contrib_generation.greedy_search(
            *feeds, decoder=Body(graph), eos_token_id=END, pad_token_id=PAD, ctx=context()
        )
        assert np.array_equal(found[found != PAD], expected[found != PAD])


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "ReferenceExecutionProvider"])
def test_a_search_within_a_function_finds_the_sizes_that_its_decoder_states(provider: str) -> None:
    imports = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    search = helper.make_node(
        "GreedySearch", ["ids", "longest"], ["found"], domain="com.microsoft", decoder=decoder_graph(1),
        eos_token_id=END, pad_token_id=PAD,
    )  # fmt: skip
    part = helper.make_function("own", "Part", ["ids", "longest"], ["found"], [search], imports)
    call = helper.make_node("Part", ["ids", "longest"], ["y"], domain="own")
    infos = [helper.make_tensor_value_info(n, TensorProto.INT32, s) for n, s in (("ids", ["B", "S"]), ("longest", [1]))]
    graph = helper.make_graph([call], "g", infos, [helper.make_tensor_value_info("y", TensorProto.INT32, None)])
    model = helper.make_model(
        graph, opset_imports=[*imports, helper.make_opsetid("own", 1)], functions=[part], ir_version=10
    )
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=[provider])
    [found] = session.run(None, {"ids": PROMPT, "longest": np.array([10], np.int32)})
    [expected] = reference("GreedySearch", [PROMPT, np.array([10], np.int32)], decoder_graph(1), 1)
    np.testing.assert_array_equal(found, expected)


def test_sampling_with_a_tiny_nucleus_takes_the_best_token() -> None:
    graph = decoder_graph(5)
    feeds = [PROMPT, number(9), number(0), number(1.0)]
    greedy = contrib_generation.greedy_search(
        *feeds, decoder=Body(graph), eos_token_id=END, pad_token_id=PAD, ctx=context()
    )
    for custom in (0, 1):
        sampled, _ = contrib_generation.sampling(
            *feeds,
            decoder=Body(graph),
            eos_token_id=END,
            pad_token_id=PAD,
            custom=custom,
            top_p=1e-6,
            min_tokens_to_keep=1,
            ctx=context(),
        )
        assert np.array_equal(sampled, greedy)
