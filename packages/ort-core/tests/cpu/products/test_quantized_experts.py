"""Mixtures of experts of 4 and 8 bits are compiled: against a token-by-token network in float64."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from expert_cases import Experts, check, session
from onnx import ModelProto, TensorProto, helper, numpy_helper
from run_levels import run_at_level

from ort_core.cpu.partition.partition import CpuPartition

LAYERS = ("fc1", "fc2", "fc3")


@dataclass(frozen=True)
class QuantizedExperts(Experts):
    """A mixture whose rows of weights are codes with a scale each, or for each block of them."""

    hidden: int = 64
    inner: int = 32
    bits: int = 4
    block: int = 0
    has_zeros: bool = False
    scale_type: type = np.float32
    has_mixing: bool = False  # weights that the router only chooses

    def _shapes(self) -> dict[str, tuple[int, int]]:
        """Return columns and depth of each layer."""
        shapes = {"fc1": (self.columns, self.hidden), "fc2": (self.hidden, self.inner)}
        return shapes | ({"fc3": (self.inner, self.hidden)} if self.third else {})

    def codes(self) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Return the codes of each layer [experts, columns, depth], and scales and zero points by blocks."""
        generator, found, largest = np.random.default_rng(3), {}, 0.1 if self.bits == 4 else 0.01
        for name, (columns, depth) in self._shapes().items():
            shape = (self.experts, columns, depth // (self.block or depth))
            codes = generator.integers(0, 1 << self.bits, (self.experts, columns, depth))
            zeros = np.full(shape, 1 << (self.bits - 1))
            if self.has_zeros:
                zeros = generator.integers(0, 1 << self.bits, shape)
            found[name] = codes, (generator.uniform(0.5, 1, shape) * largest).astype(self.scale_type), zeros
        return found

    def weights(self) -> dict[str, np.ndarray]:
        """Return what the codes stand for, and the biases."""
        real = {}
        for name, (codes, scales, zeros) in self.codes().items():
            length = codes.shape[2] // scales.shape[2]
            wide = [np.repeat(each, length, axis=2) for each in (scales.astype(np.float64), zeros)]
            real[name] = (codes - wide[1]) * wide[0]
        if self.biases:
            generator = np.random.default_rng(5)
            for name, (columns, _) in self._shapes().items():
                real[f"{name}_bias"] = generator.standard_normal((self.experts, columns)).astype(np.float32)
        return real

    def model(self) -> ModelProto:
        """Return the model of the mixture alone."""
        held = {name: array for name, array in self.weights().items() if name.endswith("_bias")}
        for name, (codes, scales, zeros) in self.codes().items():
            held[name] = packed(codes, self.bits)
            held[f"{name}_scales"] = scales if self.block else scales[:, :, 0]
            if self.has_zeros:
                held[f"{name}_zeros"] = packed(zeros if self.block else zeros[:, :, 0], self.bits)
        names = [name for layer in LAYERS for name in (layer, f"{layer}_scales", f"{layer}_bias")]
        names.extend(f"{layer}_zeros" for layer in LAYERS)
        names.append("mixing")
        optional = {"block_size": self.block} if self.block else {}
        optional |= {} if self.limit is None else {"swiglu_limit": self.limit}
        rows = {"x": self.hidden, "router": self.experts} | ({"mixing": self.experts} if self.has_mixing else {})
        inputs = ["x", "router", *(name if name in (*held, *rows) else "" for name in names)]
        node = helper.make_node(
            "QMoE", inputs, ["y"], domain="com.microsoft", k=self.k, activation_type=self.activation,
            swiglu_fusion=self.fusion, activation_alpha=1.5, activation_beta=0.5, expert_weight_bits=self.bits,
            normalize_routing_weights=self.normalized, **optional,
        )  # fmt: skip
        fed = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["T", size]) for name, size in rows.items()]
        result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["T", self.hidden])
        initializers = [numpy_helper.from_array(array, name) for name, array in held.items()]
        graph = helper.make_graph([node], "g", fed, [result], initializer=initializers)
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def feeds(self, tokens: int) -> dict[str, np.ndarray]:
        """Return tokens, with weights of the experts where the router only chooses them."""
        mixing = np.random.default_rng(tokens + 1).uniform(0.1, 1, (tokens, self.experts)).astype(np.float32)
        return super().feeds(tokens) | ({"mixing": mixing} if self.has_mixing else {})


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Return codes as bytes, the first of each in its low bits; zeros fill the last byte up."""
    if bits == 8:
        return codes.astype(np.uint8)
    whole = np.concatenate([codes, np.zeros((*codes.shape[:-1], codes.shape[-1] % 2), codes.dtype)], axis=-1)
    return (whole[..., 0::2] | whole[..., 1::2] << 4).astype(np.uint8)


PLAIN = QuantizedExperts()
CASES = {
    "4 bits": PLAIN,
    "8 bits": replace(PLAIN, bits=8, k=1, biases=False),
    "4 bits in blocks": replace(PLAIN, block=16, activation="silu"),
    "8 bits in blocks with zero points": replace(PLAIN, bits=8, block=32, has_zeros=True, activation="gelu"),
    "zero points of rows": replace(PLAIN, has_zeros=True, third=True, activation="silu", normalized=1),
    "zero points of blocks": replace(PLAIN, has_zeros=True, block=16, k=3),
    "gates side by side": replace(PLAIN, activation="swiglu", fusion=1, limit=1.0, block=16),
    "gates of their own": replace(PLAIN, activation="swiglu", third=True, bits=8),
    "odd sizes": replace(PLAIN, experts=3, hidden=40, inner=72, block=8),
    "chosen by the router, weighted by others": replace(PLAIN, has_mixing=True, k=3),
    "chosen by the router, with shares of others": replace(PLAIN, has_mixing=True, k=2, normalized=1),
    "scales of halves": replace(PLAIN, scale_type=np.float16, block=32),
}


@pytest.mark.usefixtures("nothing_runs_by_numpy")
@pytest.mark.sweep(parts=3)
@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("case", CASES)
def test_quantized_experts_answer_as_token_by_token(case: str, threads: int) -> None:
    check(CASES[case], threads)


@pytest.mark.usefixtures("nothing_runs_by_numpy")
@pytest.mark.parametrize("memory", ["end", "begin"])
@pytest.mark.parametrize("case", CASES)
def test_nothing_beside_the_rows_is_touched(case: str, memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_GUARDED_MEMORY", memory)
    check(CASES[case])


@pytest.mark.usefixtures("nothing_runs_by_numpy")
@pytest.mark.parametrize("block", [0, 16])
def test_experts_with_many_rows_unpack_their_weights(block: int) -> None:
    case = replace(PLAIN, block=block, k=1)
    feeds = case.feeds(150)
    found = session(case.model(), 2).run(None, feeds)[0]
    np.testing.assert_allclose(found, case.truth(feeds["x"], feeds["router"]), rtol=0, atol=1e-4)


def test_codes_of_two_bits_are_left_to_their_kernel(partitions: list[CpuPartition]) -> None:
    model = replace(PLAIN, biases=False).model()
    held = {each.name: each for each in model.graph.initializer}
    for name in ("fc1", "fc2"):  # the first quarter of each row
        codes = numpy_helper.to_array(held[name])
        held[name].CopyFrom(numpy_helper.from_array(np.ascontiguousarray(codes[:, :, : codes.shape[2] // 2]), name))
    next(each for each in model.graph.node[0].attribute if each.name == "expert_weight_bits").i = 2
    assert np.isfinite(session(model, 2).run(None, PLAIN.feeds(4))[0]).all()
    reasons = [str(reason) for each in partitions for reason in each.refusals.values()]
    assert len(reasons) == 1
    assert reasons[0].startswith("codes of 2 bits")


@pytest.mark.sweep(parts=2, every_value=False)
@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4", "x86-64-v2"])
def test_code_of_each_level_answers_as_token_by_token(level: str) -> None:
    run_at_level(__file__, level)


if __name__ == "__main__":
    for each in CASES.values():
        check(each)
