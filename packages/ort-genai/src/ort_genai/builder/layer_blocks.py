"""Parts of encoders, written by the names of a checkpoint: products, norms, attention of all heads, convolutions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from onnx import TensorProto, ValueInfoProto, helper

from ort_genai.builder.graph_writer import CONTRIB, GraphWriter
from ort_genai.builder.sources import WeightSource
from ort_genai.builder.weight_precision import WeightFormat, write_product
from ort_genai.errors import InvalidModelFolder


class LayerBlocks:
    """Writes parts of a graph.

    Args:
        graph: takes nodes and tensors.
        source: of weights.
        form: how weights of products are written.
        epsilon: of norms.
    """

    def __init__(self, graph: GraphWriter, source: WeightSource, form: WeightFormat, epsilon: float) -> None:
        self.graph, self.source, self.form, self._epsilon = graph, source, form, epsilon
        self.type = helper.np_dtype_to_tensor_dtype(form.dtype)

    def constant(self, name: str, value: np.ndarray) -> str:
        """Add a small tensor and return its name."""
        return self.graph.tensor(f"/constants/{name}", value)

    def read(self, name: str, shape: tuple[int, ...] | None = None) -> np.ndarray:
        """Return a tensor of the checkpoint.

        Raises:
            InvalidModelFolder: there is none, or its shape is another.
        """
        found = self.source.read(name)
        if shape is not None and found.shape != shape:
            raise InvalidModelFolder(f"tensor {name} has shape {found.shape}, its configuration states {shape}")
        return found

    def weight(self, name: str, shape: tuple[int, ...] | None = None) -> str:
        """Add a tensor of the checkpoint as it is, and return its name."""
        return self.graph.tensor(name, self.read(name, shape).astype(self.form.dtype))

    def node(
        self, op_type: str, inputs: list[str | None], name: str, domain: str = "", **more: float | str | list[int]
    ) -> str:
        """Add a node of one result, and return it."""
        return self.graph.node(op_type, inputs, f"{name}/output_0", name, domain, **more)

    def product(self, value: str, weight: str, name: str, shape: tuple[int, int]) -> str:
        """Add a product with a weight (outputs, inputs) of the checkpoint, and its bias where there is one."""
        matrix = self.read(f"{weight}.weight", shape)
        result = write_product(self.graph, self.form, value, matrix, f"{name}/MatMul", f"{name}/MatMul/output_0")
        if not self.source.has(f"{weight}.bias"):
            return result
        return self.node("Add", [result, self.weight(f"{weight}.bias", shape[:1])], f"{name}/Add")

    def norm(self, value: str, weight: str, name: str) -> str:
        """Add a norm that subtracts the mean."""
        tensors = [self.weight(f"{weight}.weight"), self.weight(f"{weight}.bias")]
        return self.node("LayerNormalization", [value, *tensors], name, axis=-1, epsilon=self._epsilon)

    def attention(
        self, parts: list[str], heads: int, name: str, caches: tuple[list[str], list[str]] | None = None
    ) -> str:
        """Add an attention of all heads over query, key and value.

        With caches, past and present, each token sees those before it alone.
        """
        node_name = f"{name}/MultiHeadAttention"
        past, present = caches or ([], [])
        inputs: list[str | None] = [*parts, *([None] * 3 if past else []), *past]
        more: dict[str, int] = {"unidirectional": 1} if past else {}
        return self.graph.node(
            "MultiHeadAttention",
            inputs,
            [f"{node_name}/output_0", *present],
            node_name,
            CONTRIB,
            num_heads=heads,
            **more,
        )

    def inner(self, value: str, name: str, weights: tuple[str, str], sizes: tuple[int, int], activation: str) -> str:
        """Add two products with an activation between them.

        Args:
            value: what they read.
            name: of the part.
            weights: names of the products in the checkpoint.
            sizes: elements outside and inside.
            activation: ``gelu``, ``gelu_tanh``, ``silu``, ``relu`` or ``quick_gelu``.
        """
        outside, inside = sizes
        first = self.product(value, weights[0], f"{name}/fc1", (inside, outside))
        return self.product(self.activated(first, activation, f"{name}/act_fn"), weights[1], f"{name}/fc2", sizes)

    def activated(self, value: str, kind: str, name: str) -> str:
        """Add an activation."""
        if kind == "relu":
            return self.node("Relu", [value], f"{name}/Relu")
        if kind in ("gelu", "gelu_tanh"):
            form = "tanh" if kind == "gelu_tanh" else "none"
            return self.node("Gelu", [value], f"{name}/Gelu", approximate=form)
        given = value
        if kind == "quick_gelu":
            factor = self.constant("quick_gelu", np.array(1.702, self.form.dtype))
            given = self.node("Mul", [value, factor], f"{name}/Mul_1")
        share = self.node("Sigmoid", [given], f"{name}/Sigmoid")
        return self.node("Mul", [value, share], f"{name}/Mul")

    def convolution(
        self, value: str, weight: str, name: str, shape: tuple[int, ...], **more: float | str | list[int]
    ) -> str:
        """Add a convolution with a weight of the checkpoint, and its bias where there is one.

        In bfloat16, which Conv has from operator set 22 on, it is computed in float32.
        """
        is_widened = self.form.dtype == ml_dtypes.bfloat16
        kind = np.dtype(np.float32) if is_widened else self.form.dtype
        has_bias = self.source.has(f"{weight}.bias")
        names, shapes = [f"{weight}.weight", f"{weight}.bias"][: 1 + has_bias], (shape, shape[:1])
        tensors = [
            self.graph.tensor(each, self.read(each, size).astype(kind))
            for each, size in zip(names, shapes, strict=False)
        ]
        given = self.node("Cast", [value], f"{name}/Widened", to=TensorProto.FLOAT) if is_widened else value
        found = self.graph.node("Conv", [given, *tensors], f"{name}/Conv/output_0", f"{name}/Conv", "", **more)
        return self.node("Cast", [found], f"{name}/Narrowed", to=self.type) if is_widened else found

    def integers(self, values: list[int]) -> str:
        """Add whole numbers, and return their name."""
        return self.constant(f"INT64/{values}", np.array(values, np.int64))

    def by_head(self, value: str, rows: int, heads: int, size: int, name: str, result: str) -> None:
        """Add (batch, heads, rows, size) of (batch, rows, heads * size) under a name."""
        split = self.node("Reshape", [value, self.integers([0, rows, heads, size])], f"{name}/Reshape")
        self.graph.node("Transpose", [split], result, f"{name}/Transpose", perm=[0, 2, 1, 3])

    def info(self, name: str, shape: list[str | int], kind: int | None = None) -> ValueInfoProto:
        """Return an input or output of the model."""
        return helper.make_tensor_value_info(name, self.type if kind is None else kind, shape)


INT32, INT64 = TensorProto.INT32, TensorProto.INT64
ACTIVATIONS = {
    "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "silu": "silu", "relu": "relu",
    "quick_gelu": "quick_gelu",
}  # fmt: skip


def activation_of(name: object) -> str:
    """Return an activation by the name that configurations have.

    Raises:
        InvalidModelFolder: it is none that is known.
    """
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise InvalidModelFolder(f"config.json names the activation {name!r}; known: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]
