"""A model that runs in pieces shows what it shows when it runs whole, and loads no more than a piece of its weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx
import pytest
from float_models import Builder
from onnx import ModelProto, TensorProto, helper, numpy_helper

from ort_quantization.calibration import runs_in_pieces
from ort_quantization.calibration.activation_capture import Samples, captured
from ort_quantization.calibration.runs_in_pieces import RunsInPieces, weight_nbytes
from ort_quantization.errors import InvalidCalibration
from ort_quantization.matmul_nbits_quantizer import (
    AWQWeightOnlyQuantConfig,
    GPTQWeightOnlyQuantConfig,
    MatMulNBitsQuantizer,
)

SIZE = 16
LAYER_NBYTES = SIZE * SIZE * 4


def deep(layers: int = 5) -> ModelProto:
    """Products in a row; the input is added to the last, a branch reads the first, and a sequence goes past pieces."""
    b = Builder(17)
    value = first = b.node("MatMul", ["x", b.weight("w0", SIZE, SIZE)], "h0")
    parts = b.node("SplitToSequence", [first], "parts", axis=1, keepdims=1)
    for place in range(1, layers):
        value = b.node("Relu", [b.node("MatMul", [value, b.weight(f"w{place}", SIZE, SIZE)], f"h{place}")], f"r{place}")
    inner = Builder(17)
    product = inner.node("MatMul", [first, "w0"], "inner")
    branch = helper.make_graph(inner.nodes, "then", [], [helper.make_tensor_value_info(product, 1, None)])
    other = inner.node("Identity", [first], "same")
    rest = helper.make_graph(inner.nodes[1:], "else", [], [helper.make_tensor_value_info(other, 1, None)])
    value = b.node("Add", [value, b.node("If", ["flag"], "chosen", then_branch=branch, else_branch=rest)], "sum")
    value = b.node("Add", [value, b.node("ConcatFromSequence", [parts], "joined", axis=1)], "whole")
    b.node("MatMul", [b.node("Add", [value, "x"], "last"), b.weight("end", SIZE, 4)], "y")
    model = b.model({"x": ("n", SIZE), "flag": ()}, ["y"], {"flag": TensorProto.BOOL})
    del model.graph.value_info[:]
    return model


def samples(count: int = 3) -> list[dict[str, np.ndarray]]:
    """Samples of several lengths."""
    random = np.random.default_rng(3)
    return [
        {"x": random.normal(size=(5 + place, SIZE)).astype(np.float32), "flag": np.array(place % 2 == 0)}
        for place in range(count)
    ]


def in_pieces(model: ModelProto, asked: Sequence[Sequence[str]], limit: int, folder: str = "") -> Iterator[list]:
    names = [name for part in asked for name in part]
    with Samples(iter(samples())) as kept, RunsInPieces(model, folder, names, kept, None, limit) as runs:
        for part in asked:
            yield list(runs.values(part))


@pytest.mark.parametrize("limit", [1, 2 * LAYER_NBYTES, 1 << 20])
@pytest.mark.parametrize(
    "asked", [[["x", "h0", "r2"], ["last"]], [["x", "h0", "r2", "last"]], [["x"], ["h0"], ["last"]]]
)
def test_pieces_give_the_values_of_the_whole(limit, asked, monkeypatch):
    loaded = []

    def session_of(model, *others):
        loaded.append([weight_nbytes(each) for each in model.graph.initializer])
        return opened(model, *others)

    opened = runs_in_pieces.session_of
    monkeypatch.setattr(runs_in_pieces, "session_of", session_of)
    model = deep()
    before = model.SerializeToString()
    names = [name for part in asked for name in part]
    expected = list(captured(model, "", names, iter(samples())))
    found: list[dict[str, np.ndarray]] = [{} for _ in expected]
    for part in in_pieces(model, asked, limit):
        for place, values in enumerate(part):
            found[place % len(expected)] |= values
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name in names:
            np.testing.assert_allclose(one[name], other[name], rtol=1e-5, atol=1e-6)
    assert all(len(each) <= 1 or sum(each) <= max(limit, 2 * LAYER_NBYTES) for each in loaded)
    assert model.SerializeToString() == before


def test_weights_outside_are_read_by_the_piece_that_needs_them(tmp_path):
    onnx.save_model(deep(), tmp_path / "a.onnx", save_as_external_data=True, location="numbers", size_threshold=0)
    model = onnx.load(tmp_path / "a.onnx", load_external_data=False)
    expected = list(captured(deep(), "", ["last"], iter(samples())))
    (found,) = in_pieces(model, [["last"]], 1, str(tmp_path))
    found = [each for each in found if each]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one["last"], other["last"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("sample", "told"),
    [
        ({"x": samples()[0]["x"]}, "sample 0: input 'flag' is missing"),
        ({**samples()[0], "z": np.zeros(3)}, "sample 0: Invalid input name: z"),
        ({**samples()[0], "x": np.zeros((2, 3), np.float32)}, "sample 0"),
    ],
)
def test_a_sample_that_no_piece_takes_is_refused_with_its_number(sample, told):
    with (
        Samples(iter([sample])) as kept,
        RunsInPieces(deep(), "", ["last"], kept, None, 1) as runs,
        pytest.raises(InvalidCalibration, match=told),
    ):
        list(runs.values(["last"]))


@pytest.mark.parametrize("config", [GPTQWeightOnlyQuantConfig, AWQWeightOnlyQuantConfig])
def test_methods_that_use_data_give_the_same_weights_in_pieces(config, monkeypatch):
    found = []
    for large_from in (1 << 30, 0):
        monkeypatch.setattr(runs_in_pieces, "LARGE_FROM", large_from)
        monkeypatch.setattr(runs_in_pieces, "PIECE_NBYTES", 1)
        quantizer = MatMulNBitsQuantizer(deep(), algo_config=config(iter(samples())))
        quantizer.process()
        found.append(quantizer.model.model)
    for one, other in zip(*(model.graph.initializer for model in found), strict=True):
        assert one.name == other.name
        assert np.mean(numpy_helper.to_array(one) == numpy_helper.to_array(other)) > 0.95  # sums are rounded elsewhere
    assert [node.op_type for node in found[0].graph.node] == [node.op_type for node in found[1].graph.node]
