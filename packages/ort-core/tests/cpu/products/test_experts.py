"""Mixtures of experts are compiled: against a token-by-token network in float64, for every form of experts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper
from run_levels import run_at_level

import ort_core as ort
from ort_core.cpu.partition import segments
from ort_core.cpu.partition.partition import CpuPartition


@dataclass(frozen=True)
class Experts:
    """The sizes and the form of a mixture."""

    experts: int = 5
    hidden: int = 24
    inner: int = 17
    k: int = 2
    activation: str = "relu"
    biases: bool = True
    third: bool = False
    fusion: int = 0
    normalized: int = 0
    is_constant: bool = True
    is_early: bool = False
    limit: float | None = None
    is_late: bool = False
    dtype: type = np.float32

    @property
    def columns(self) -> int:
        """How many columns fc1 gives."""
        return 2 * self.inner if self.fusion else self.inner

    def weights(self) -> dict[str, np.ndarray]:
        """Return the weights by their names."""
        e, h, i, c = self.experts, self.hidden, self.inner, self.columns
        shapes = {"fc1": (e, c, h), "fc2": (e, h, i)} | ({"fc3": (e, i, h)} if self.third else {})
        if self.biases:
            shapes |= {f"{name}_bias": shape[:2] for name, shape in shapes.items()}  # type: ignore[misc]
        generator = np.random.default_rng(7)
        return {name: (generator.standard_normal(shape) / 2).astype(self.dtype) for name, shape in shapes.items()}

    def model(self) -> ModelProto:
        """Return the model of the mixture alone."""
        weights = self.weights()
        if self.is_early:
            weights["fc1"] = weights["fc1"].reshape(self.experts, self.hidden, self.columns)
            weights["fc2"] = weights["fc2"].reshape(self.experts, self.inner, self.hidden)
        element = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        rows = {"x": ["T", self.hidden], "router": ["T", self.experts]}
        fed = {} if self.is_constant else {name: array.shape for name, array in weights.items()}
        inputs = [helper.make_tensor_value_info(name, element, shape) for name, shape in {**rows, **fed}.items()]
        held = [numpy_helper.from_array(array, name) for name, array in weights.items()] if self.is_constant else []
        names = ["fc1", "fc1_bias", "fc2", "fc2_bias", "fc3", "fc3_bias"]
        limits = {} if self.limit is None else {"swiglu_limit": self.limit}
        node = helper.make_node(
            "MoE", ["x", "router", *(name if name in weights else "" for name in names)], ["y"], domain="com.microsoft",
            k=self.k, activation_type=self.activation, swiglu_fusion=self.fusion, activation_alpha=1.5,
            activation_beta=0.5, normalize_routing_weights=self.normalized,
            swiglu_limit_after_activation=int(self.is_late), **limits,
        )  # fmt: skip
        result = helper.make_tensor_value_info("y", element, ["T", self.hidden])
        graph = helper.make_graph([node], "g", inputs, [result], initializer=held)
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def feeds(self, tokens: int) -> dict[str, np.ndarray]:
        """Return tokens whose routers differ clearly, with the weights where they are fed."""
        generator = np.random.default_rng(tokens)
        x = generator.standard_normal((tokens, self.hidden)).astype(self.dtype)
        order = [generator.permutation(self.experts) for _ in range(tokens)]
        router = (np.array(order).reshape(tokens, self.experts) / 2).astype(self.dtype)
        return {"x": x, "router": router} | ({} if self.is_constant else self.weights())

    def truth(self, x: np.ndarray, router: np.ndarray) -> np.ndarray:
        """Return what each token gets, in float64, one after the other."""
        weights = {name: array.astype(np.float64) for name, array in self.weights().items()}
        result = np.zeros(x.shape)
        for token, (row, logits) in enumerate(zip(x.astype(np.float64), router.astype(np.float64), strict=True)):
            shares = np.exp(logits - logits.max())
            shares /= shares.sum()
            chosen = np.argsort(-logits)[: self.k]
            total = shares[chosen].sum() if self.normalized else 1.0
            for expert in chosen:

                def layer(name: str, values: np.ndarray, expert: int = int(expert)) -> np.ndarray:
                    summed: np.ndarray = weights[name][expert] @ values
                    return summed + weights[f"{name}_bias"][expert] if self.biases else summed

                active = self._active(layer("fc1", row), layer("fc3", row) if self.third else None)
                result[token] += shares[expert] / total * layer("fc2", active)
        return result

    def _active(self, first: np.ndarray, third: np.ndarray | None) -> np.ndarray:
        sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731 - a formula of this method alone
        if self.activation != "swiglu":
            active = {
                "relu": lambda x: np.maximum(x, 0), "identity": lambda x: x, "silu": lambda x: x * sigmoid(x),
                "gelu": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
            }[self.activation](first)  # fmt: skip
            return active if third is None else active * third
        gate, linear = first, third
        if self.fusion == 1:
            gate, linear = first[0::2], first[1::2]
        elif self.fusion == 2:
            gate, linear = np.split(first, 2)
        assert linear is not None
        limit = np.inf if self.limit is None else self.limit
        gate = gate if self.is_late else np.minimum(gate, limit)
        active = gate * sigmoid(1.5 * gate)
        return np.minimum(active, limit if self.is_late else np.inf) * (np.clip(linear, -limit, limit) + 0.5)


PLAIN = Experts()
SWIGLU = replace(PLAIN, activation="swiglu", fusion=1, limit=1.0)
CASES = {
    "relu": PLAIN,
    "one expert": replace(PLAIN, k=1, biases=False),
    "all experts": replace(PLAIN, k=5, activation="identity"),
    "gelu, shares that sum up to one": replace(PLAIN, activation="gelu", normalized=1, k=3),
    "silu of three layers": replace(PLAIN, activation="silu", third=True),
    "gates side by side": SWIGLU,
    "gates before the rest": replace(SWIGLU, fusion=2, limit=None),
    "gates of their own": replace(SWIGLU, fusion=0, third=True),
    "a late limit": replace(SWIGLU, limit=0.3, is_late=True),
    "fed weights": replace(PLAIN, is_constant=False),
    "shapes of earlier exporters": replace(PLAIN, is_early=True),
    "long rows": replace(PLAIN, hidden=130, inner=400, biases=False, activation="silu", k=1),
    "single columns": replace(PLAIN, hidden=1, inner=1),
}
COUNTS = (1, 2, 40, 0)


def session(model: ModelProto, threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def check(case: Experts, threads: int = 2, eps: float = 2e-6) -> None:
    compiled = session(case.model(), threads)
    for tokens in COUNTS:
        feeds = case.feeds(tokens)
        found, expected = compiled.run(None, feeds)[0], case.truth(feeds["x"], feeds["router"])
        assert (found.shape, found.dtype) == (expected.shape, case.dtype)
        bound = eps * max(1.0, float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(found.astype(np.float64), expected, rtol=0, atol=bound)


@pytest.fixture
def compiled_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where kernels run."""
    monkeypatch.delattr(segments.LazyKernels, "run")


@pytest.mark.usefixtures("compiled_only")
@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("case", CASES)
def test_experts_answer_as_token_by_token(case: str, threads: int) -> None:
    check(CASES[case], threads)


@pytest.mark.usefixtures("compiled_only")
@pytest.mark.parametrize("memory", ["end", "begin"])
@pytest.mark.parametrize("case", CASES)
def test_nothing_beside_the_rows_is_touched(case: str, memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_GUARDED_MEMORY", memory)
    check(CASES[case])


@pytest.mark.usefixtures("compiled_only")
def test_experts_of_halves_are_computed_in_float32() -> None:
    check(replace(PLAIN, dtype=np.float16), eps=2e-3)


@pytest.mark.usefixtures("compiled_only")
def test_results_are_the_same_with_any_number_of_threads() -> None:
    feeds = CASES["long rows"].feeds(40)
    first, *others = (session(CASES["long rows"].model(), n).run(None, feeds)[0].tobytes() for n in (1, 2, 4))
    assert others == [first, first]


@pytest.mark.usefixtures("compiled_only")
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_row_without_numbers_leaves_others_alone(value: float) -> None:
    feeds = PLAIN.feeds(6)
    expected = PLAIN.truth(feeds["x"], feeds["router"])
    feeds["x"][1, 3] = value
    feeds["router"][4, 2] = value
    found = session(PLAIN.model(), 2).run(None, feeds)[0]
    assert np.isnan(found[4]).all()
    assert not np.isfinite(found[1]).any()
    np.testing.assert_allclose(np.delete(found, (1, 4), 0), np.delete(expected, (1, 4), 0), rtol=0, atol=1e-5)


@pytest.mark.usefixtures("compiled_only")
def test_of_equal_experts_the_first_are_asked() -> None:
    case = replace(PLAIN, k=2)
    feeds = case.feeds(3)
    feeds["router"][:] = 1
    found = session(case.model(), 2).run(None, feeds)[0]
    feeds["router"][:, 2:] -= 1e-4  # decides for the first two, and changes their shares by that much
    np.testing.assert_allclose(found, case.truth(feeds["x"], feeds["router"]), rtol=1e-3, atol=1e-3)


def test_the_sparse_mixer_is_left_to_its_kernel(partitions: list[CpuPartition]) -> None:
    model = PLAIN.model()
    model.graph.node[0].attribute.append(helper.make_attribute("use_sparse_mixer", 1))
    found = session(model, 2).run(None, PLAIN.feeds(6))[0]
    assert np.isfinite(found).all()
    assert [str(reason) for each in partitions for reason in each.refusals.values()] == [
        "the sparse mixer is not generated"
    ]


@pytest.mark.sweep
@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_code_of_each_level_answers_as_token_by_token(level: str) -> None:
    run_at_level(__file__, level)


if __name__ == "__main__":
    for each in CASES.values():
        check(each)
