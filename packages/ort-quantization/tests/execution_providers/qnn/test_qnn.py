"""Choices for QNN beside onnxruntime's: which types, scales and conversions follow from a caller's few words."""

from __future__ import annotations

import copy
import importlib
import itertools
import random

import numpy as np
import onnx
import onnxruntime.quantization
import pytest
from float_models import Builder, feeds_of
from onnxruntime.quantization import QuantType as TheirType
from onnxruntime.quantization import quantize as their_quantize
from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config as theirs
from static_models import STATIC

import ort_quantization
from ort_quantization import QuantType, quantize
from ort_quantization.errors import InvalidQuantization
from ort_quantization.execution_providers.qnn import get_qnn_qdq_config

U8, I8, U16, I16 = (QuantType[f"Q{name}"] for name in ("UInt8", "Int8", "UInt16", "Int16"))


def one(op_type: str, *inputs, opset: int = 21):
    """A model of one operator: a text is an input, a shape is a weight."""
    b = Builder(opset)
    names = [each if isinstance(each, str) else b.weight(f"w{n}", *each) for n, each in enumerate(inputs)]
    b.node(op_type, names, "y")
    return b.model({"x": (1, 4, 6), "z": (1, 6, 4)}, ["y"])


OPERATORS = {
    "MatMul": ("x", (6, 5)), "MatMul of values": ("x", "z"), "MatMul of a weight first": ((6, 4), "x"),
    "Add": ("x", (6,)), "LayerNormalization": ("x", (6,), (6,)), "Sigmoid": ("x",), "Tanh": ("x",),
    "Conv": ("x", (3, 4, 1), (3,)), "Gemm": ("x", (6, 5)), "Cast": ("x",),
}  # fmt: skip


def graph_of_branches():
    """Eight operators; values join and part."""
    b = Builder(21)
    for place, (source, result) in enumerate(
        [("input_0", "a"), ("input_1", "b"), ("a", "c"), ("b", "d")]
    ):  # fmt: skip
        b.node("Relu", [source], result, f"first_{place}")
    b.node("Add", ["c", "d"], "e", "join")
    b.node("Sigmoid", ["e"], "y", "end")
    b.node("Tanh", ["b"], "u", "left")
    b.node("MatMul", ["b", b.weight("w", 3, 4)], "v", "right")
    return b.model({"input_0": (2, 3), "input_1": (2, 3)}, ["y", "u", "v"])


def plain(value):
    """Choices without the classes of either tool."""
    if isinstance(value, dict):
        has_scale = "scale" in value  # the tool leaves a "symmetric" beside it, which quantizing refuses
        return {key: plain(each) for key, each in value.items() if not (has_scale and key == "symmetric")}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray):
        return value.dtype.name, value.tolist()
    return getattr(value, "name", value)


def translated(value):
    """Choices of ours in the other tool's classes."""
    if isinstance(value, QuantType):
        return TheirType[value.name]
    if isinstance(value, dict):
        return {key: translated(each) for key, each in value.items()}
    return [translated(each) for each in value] if isinstance(value, list) else copy.deepcopy(value)


def facts(config) -> dict:
    """A configuration's choices, but for its reader."""
    found = {name: plain(value) for name, value in vars(config).items() if name != "calibration_data_reader"}
    return {**found, "op_types_to_quantize": sorted(found["op_types_to_quantize"])}


def both(model, **choices):
    """The configurations of both tools; a refusal is its word."""
    found = []
    for make, given in ((get_qnn_qdq_config, choices), (theirs, translated(choices))):
        try:
            found.append(facts(make(model, None, **given)))
        except ValueError:
            found.append("refused")
    return found


@pytest.mark.parametrize("name", OPERATORS)
def test_choices_for_operators_are_onnxruntimes(name):
    model = one(name.split()[0], *OPERATORS[name])
    if name == "Cast":
        model.graph.node[0].attribute.append(onnx.helper.make_attribute("to", 1))
    for per_channel, activations, weights in itertools.product((False, True), (U8, I8, U16, I16), QuantType):
        found, expected = both(
            model, per_channel=per_channel, activation_type=activations, weight_type=weights
        )  # fmt: skip
        assert found == expected


@pytest.mark.parametrize("opset", [17, 21])
def test_choices_of_a_call_are_onnxruntimes(opset):
    model = one("MatMul", "x", (6, 5), opset=opset)
    for choices in (
        {}, {"activation_type": U16}, {"weight_type": QuantType.QInt4}, {"stride": 2, "calibration_providers": ["A"]},
        {"weight_symmetric": True, "activation_symmetric": True, "keep_removable_activations": True},
        {"op_types_to_quantize": ["MatMul", "Conv"], "nodes_to_exclude": ["n"]}, {"weight_type": I16},
    ):  # fmt: skip
        found, expected = both(model, **choices)
        assert found == expected


def overrides_of(seed: int) -> dict:
    """A few random choices of types, one in four with a conversion."""
    dice = random.Random(seed)
    values = dice.sample(["input_0", "input_1", "a", "b", "c", "d", "e", "y", "u", "v"], dice.randint(1, 3))
    found = {}
    for name in values:
        chosen = {"quant_type": dice.choice([U8, U16, U16, U16, I16])}
        if dice.random() < 0.2 and chosen["quant_type"] is not U8:
            chosen["symmetric"] = True
        if name == "b" and dice.random() < 0.5:
            chosen["convert"] = {"quant_type": U16 if chosen["quant_type"] is U8 else U8, "recv_nodes": {"left"}}
        found[name] = [chosen]
    return found


@pytest.mark.parametrize("seed", range(60))
def test_what_follows_for_values_around_is_what_onnxruntime_adds(seed):
    choices = {"init_overrides": overrides_of(seed), "activation_type": U8}
    found, expected = both(graph_of_branches(), **choices)
    assert (found == "refused") == (expected == "refused")
    assert found == expected


def test_what_cannot_be_followed_is_refused_in_a_sentence():
    overrides = {"c": [{"quant_type": U16}], "d": [{"quant_type": I16}]}
    with pytest.raises(InvalidQuantization, match=r"'e' would have several types.*choose one"):
        get_qnn_qdq_config(graph_of_branches(), None, init_overrides=overrides)
    assert overrides == {"c": [{"quant_type": U16}], "d": [{"quant_type": I16}]}


def test_files_by_these_choices_have_onnxruntimes_nodes_and_types(tmp_path):
    model, source = STATIC["transformer block"](), tmp_path / "float.onnx"
    onnx.save(model, source)
    reader = type("Reader", (), {"get_next": lambda self: next(self.left, None)})
    for make, run, kind, name in (
        (get_qnn_qdq_config, quantize, QuantType, "here"), (theirs, their_quantize, TheirType, "there"),
    ):  # fmt: skip
        given = reader()
        given.left = iter([feeds_of(model)])
        config = make(source, given, activation_type=kind.QUInt16, weight_type=kind.QUInt8)
        run(source, tmp_path / name, config)
    here, there = (onnx.load(tmp_path / name) for name in ("here", "there"))
    kinds = [{tensor.name: tensor.data_type for tensor in each.graph.initializer} for each in (here, there)]
    assert kinds[0] == kinds[1]
    assert sorted(node.name for node in here.graph.node) == sorted(node.name for node in there.graph.node)


@pytest.mark.parametrize("default", [U8, I8], ids=str)
@pytest.mark.parametrize("seed", range(12))
def test_choices_are_completed_as_onnxruntime_completes_them(default, seed):
    model, draw = onnx.shape_inference.infer_shapes(graph_of_branches()), random.Random(seed)
    names = draw.sample(["input_0", *"abcde", "y", "u"], draw.randint(1, 3))
    chosen = {name: [{"quant_type": draw.choice([U8, I8, U16, I16])}] for name in names}
    for name in names:
        if draw.random() < 0.5:
            chosen[name][0]["symmetric"] = draw.random() < 0.7
    outcomes = []
    for library, types in ((ort_quantization, QuantType), (onnxruntime.quantization, TheirType)):
        fixer = importlib.import_module(
            f"{library.__name__}.execution_providers.qnn.mixed_precision_overrides_utils"
        ).MixedPrecisionTensorQuantOverridesFixer
        overrides = library.tensor_quant_overrides.TensorQuantOverridesHelper(
            {name: [{**each, "quant_type": types[each["quant_type"].name]}] for name, (each,) in chosen.items()}
        )
        try:
            fixer.create_from_model(overrides, model, types[default.name]).apply(types[default.name], False)
        except ValueError:
            outcomes.append("refused")
        else:
            outcomes.append(plain({name: [_named(each)] for name, (each,) in overrides.get_dict().items()}))
    assert outcomes[0] == outcomes[1]


def _named(choice):
    """A choice with its types as names."""
    return {
        key: _named(value) if key == "convert" else value.name if key == "quant_type" else value
        for key, value in choice.items()
    }
