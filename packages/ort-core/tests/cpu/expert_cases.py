"""Mixtures of experts as models, with a token-by-token network in float64 as their truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, helper, numpy_helper

import ort_core as ort

COUNTS = (1, 2, 40, 0)


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
            shapes |= {f"{name}_bias": shape[:2] for name, shape in shapes.items()}  # type: ignore[misc]  # shorter shapes
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

    def truth(self, x: np.ndarray, router: np.ndarray, mixing: np.ndarray | None = None) -> np.ndarray:
        """Return what each token gets, in float64, one after the other."""
        weights = {name: array.astype(np.float64) for name, array in self.weights().items()}
        result = np.zeros(x.shape)
        for token, (row, logits) in enumerate(zip(x.astype(np.float64), router.astype(np.float64), strict=True)):
            shares = np.exp(logits - logits.max())
            shares = shares / shares.sum() if mixing is None else mixing[token].astype(np.float64)
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


def session(model: ModelProto, threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def check(case: Experts, threads: int = 2, eps: float = 2e-6) -> None:
    compiled = session(case.model(), threads)
    for tokens in COUNTS:
        feeds = case.feeds(tokens)
        found, expected = compiled.run(None, feeds)[0], case.truth(feeds["x"], feeds["router"], feeds.get("mixing"))
        assert (found.shape, found.dtype) == (expected.shape, case.dtype)
        bound = eps * max(1.0, float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(found.astype(np.float64), expected, rtol=0, atol=bound)
