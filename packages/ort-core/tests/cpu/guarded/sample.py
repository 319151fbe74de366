"""Run one small model of each family of kernels and print how many agree with the numpy kernels; sizes leave tails.

A script, so that a guarded run that touches what it must not ends this process only, after it has named the model.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

import ort_core as ort
from ort_core.cpu.codegen.llvm_ir.scalar_printer import converts_halves
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target
from ort_core.cpu.partition.partition import CpuPartition
from ort_core.tolerances import compare

TAILS = (1, 17, 33)  # columns or channels: one over multiples of vectors of 16, 8 and 4 lanes
Arrays = Mapping[str, np.ndarray]


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def integers(*shape: int, dtype: type = np.int8, seed: int = 0) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def model(body: str, given: str, wanted: str, constants: Arrays, opset: int = 20) -> ModelProto:
    """Return a model of ONNX text with constants of any type."""
    head = f'<ir_version: 10, opset_import: ["": {opset}, "com.microsoft": 1]>'
    made = parser.parse_model(f"{head} sample ({given}) => ({wanted}) {{ {body} }}")
    made.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return made


def float_models() -> dict[str, tuple[ModelProto, Arrays]]:
    made: dict[str, tuple[ModelProto, Arrays]] = {}
    for n in TAILS:
        vectors = model("y = MatMul(x, z)", f"float[N,5,{7 + n}] x, float[N,{7 + n},1] z", "float[N,5,1] y", {})
        made[f"products of {7 + n} with vectors"] = vectors, {"x": numbers(3, 5, 7 + n), "z": numbers(3, 7 + n, 1)}
        body = "a = MatMul(x, w) b = Add(a, c) y = Gelu(b)"
        product = model(body, "float[N,19] x", f"float[N,{n}] y", {"w": numbers(19, n), "c": numbers(n, seed=1)})
        made[f"product of {n} columns"] = product, {"x": numbers(5, 19)}
        body = "a = Conv<pads=[1,1,1,1]>(x, w, c) y = Relu(a)"
        constants = {"w": 0.2 * numbers(n, 7, 3, 3), "c": numbers(n, seed=1)}
        images = model(body, "float[N,7,H,W] x", f"float[N,{n},H,W] y", constants)
        made[f"convolution of {n} channels"] = images, {"x": numbers(2, 7, 9, 11)}
        body = "a = Conv<pads=[1,1,1,1],group=G>(x, w) b = MaxPool<kernel_shape=[3,3],strides=[2,2]>(a) y = Sigmoid(b)"
        deep = model(body.replace("G", str(n)), f"float[1,{n},9,11] x", "float[a,b,c,d] y", {"w": numbers(n, 1, 3, 3)})
        made[f"depthwise convolution of {n} channels"] = deep, {"x": numbers(1, n, 9, 11)}
        large = model(
            "y = MaxPool<kernel_shape=[5,9],pads=[2,4,2,4]>(x)", f"float[1,{n},7,11] x", "float[a,b,c,d] y", {}
        )
        made[f"large windows over {n} channels"] = large, {"x": numbers(1, n, 7, 11)}
        body = "y = ConvTranspose<strides=[2,2],pads=[1,1,1,1]>(x, w, c)"
        constants = {"w": numbers(7 + n, 3, 4, 4), "c": numbers(3, seed=1)}
        grown = model(body, f"float[N,{7 + n},H,W] x", "float[a,b,c,d] y", constants)
        made[f"transposed convolution of {7 + n} channels to 3"] = grown, {"x": numbers(2, 7 + n, 5, 7)}
        body = "y = DeformConv<pads=[1,1,1,1]>(x, w, offset, c)"
        moved = {"x": numbers(2, n, 5, 7), "offset": 2 * numbers(2, 18, 5, 7)}
        given = f"float[N,{n},H,W] x, float[N,18,H,W] offset"
        constants = {"w": numbers(3, n, 3, 3), "c": numbers(3, seed=1)}
        made[f"deformed convolution of {n} channels"] = (
            model(body, given, "float[a,b,c,d] y", constants, opset=19), moved,
        )  # fmt: skip
    rows = {
        "softmax": "a = Softmax(x) y = Mul(a, x)",
        "layer normalization": "a = LayerNormalization(x, gamma, beta) y = Tanh(a)",
        "reduction": "a = ReduceMean<keepdims=1>(x, last) b = Sub(x, a) y = Exp(b)",
        "transposition": "a = Transpose<perm=[0,2,1]>(x) b = Sqrt(a) c = Abs(x) d = Transpose<perm=[0,2,1]>(b) "
        "y = Add(c, d)",
        "concatenation": "a = Concat<axis=2>(x, x) b = Neg(a) c, d = Split<axis=2,num_outputs=2>(b) y = Mul(c, d)",
        "half": "a = Cast<to=10>(x) b = Exp(a) y = Add(b, b)",
        "attention": "t = Transpose<perm=[0,2,1]>(x) a = MatMul(x, t) b = Softmax(a) y = MatMul(b, x)",
        "pooling": "u = Unsqueeze(x, first) a = AveragePool<kernel_shape=[1,3],pads=[0,1,0,1]>(u) "
        "b = Squeeze(a, first) y = Exp(b)",
    }
    constants = {
        "gamma": numbers(33), "beta": numbers(33, seed=1), "last": np.array([2], np.int64),
        "first": np.array([0], np.int64),
    }  # fmt: skip
    for name, body in rows.items():
        used = {key: array for key, array in constants.items() if f", {key}" in body}
        wanted = "float16[a,b,c] y" if name == "half" else "float[a,b,c] y"
        made[name] = model(body, "float[N,M,33] x", wanted, used), {"x": np.abs(numbers(3, 5, 33))}
    gates = {"w": 0.3 * numbers(1, 68, 9), "r": 0.3 * numbers(1, 68, 17, seed=1), "b": numbers(1, 136, seed=2)}
    body = "s, h, c = LSTM<hidden_size=17>(x, w, r, b) y = Tanh(s)"
    if not converts_halves(host_target()):
        del made["half"]  # runs by numpy
    made["recurrent layer"] = model(body, "float[T,N,9] x", "float[a,b,c,d] y", gates), {"x": numbers(4, 3, 9)}
    return made


def integer_models() -> dict[str, tuple[ModelProto, Arrays]]:
    made: dict[str, tuple[ModelProto, Arrays]] = {}
    quantized = "q = QuantizeLinear(x, sx, zx) d = DequantizeLinear(q, sx, zx) v = DequantizeLinear(w, sw, zw) "
    steps = {"sx": np.float32(0.03), "zx": np.uint8(7), "sw": np.float32(0.01), "zw": np.int8(0), "so": np.float32(0.4)}
    arrays = {name: np.asarray(value) for name, value in {**steps, "zo": np.uint8(9)}.items()}
    for n in TAILS:
        body = quantized + "a = MatMul(d, v) b = Relu(a) y = QuantizeLinear(b, so, zo)"
        product = model(body, "float[N,15] x", f"uint8[N,{n}] y", {**arrays, "w": integers(15, n)})
        made[f"quantized product of {n} columns"] = product, {"x": numbers(6, 15)}
        body = quantized + "a = Conv<pads=[1,1,1,1]>(d, v) y = QuantizeLinear(a, so, zo)"
        images = model(body, "float[N,5,H,W] x", f"uint8[N,{n},H,W] y", {**arrays, "w": integers(n, 5, 3, 3)})
        made[f"quantized convolution of {n} channels"] = images, {"x": numbers(2, 5, 7, 9)}
        body = "q, s, z = DynamicQuantizeLinear(x) a = MatMulInteger(q, w, z) b = Cast<to=1>(a) y = Mul(b, s)"
        dynamic = model(body, "float[N,15] x", f"float[N,{n}] y", {"w": integers(15, n)})
        made[f"dynamically quantized product of {n} columns"] = dynamic, {"x": numbers(6, 15)}
        given = f"uint8[N,M,37] x, uint8[N,37,{n}] v, uint8 u, uint8 t"
        computed = model("y = MatMulInteger(x, v, u, t)", given, f"int32[N,M,{n}] y", {})
        bytes_ = {"x": integers(2, 5, 37, dtype=np.uint8), "v": integers(2, 37, n, dtype=np.uint8, seed=1)}
        points = {"u": np.array(7, np.uint8), "t": np.array(200, np.uint8)}
        made[f"product of two computed matrices of bytes, {n} columns"] = computed, {**bytes_, **points}
        sorting = model("y, i = TopK(x, k)", f"float[N,{20 * n}] x", "float[N,M] y, int64[N,M] i",
                        {"k": np.array([18 * n])})  # fmt: skip
        made[f"{18 * n} best of {20 * n}"] = sorting, {"x": numbers(3, 20 * n)}
        node = helper.make_node(
            "MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=40, N=n, bits=4, block_size=16
        )
        packed = {"w": integers(n, 3, 8, dtype=np.uint8), "s": 0.1 * np.abs(numbers(n * 3))}
        bits = model("y = Identity(x)", "float[N,40] x", f"float[N,{n}] y", packed)
        bits.graph.node[0].CopyFrom(node)
        made[f"product of {n} columns of 4 bits"] = bits, {"x": numbers(4, 40)}
        rounded = ModelProto()
        rounded.CopyFrom(bits)
        rounded.graph.node[0].attribute.append(helper.make_attribute("accuracy_level", 4))
        whole = np.rint(127 * numbers(4, 40).clip(-1, 1))
        whole[:, ::16] = 127.0  # the scale of each block is one: rounding to bytes changes nothing
        made[f"product of {n} columns of 4 bits and rows of bytes"] = rounded, {"x": whole}
        for mode in ("nearest", "linear"):
            resized = model(
                f'r = Resize<mode="{mode}">(x, , scales) y = Cast<to=1>(r)', f"uint8[N,{n},H,W] x", "float[a,b,c,d] y",
                {"scales": np.array([1, 1, 2, 2], np.float32)},
            )  # fmt: skip
            fixed = model(
                f'y = Resize<mode="{mode}">(x, , scales)', f"uint8[1,{n},5,7] x", "uint8[a,b,c,d] y",
                {"scales": np.array([1, 1, 2, 0.5], np.float32)},
            )  # fmt: skip
            if mode == "nearest":
                made[f"repeated bytes of {n} channels"] = resized, {"x": integers(2, n, 5, 7, dtype=np.uint8)}
            made[f"bytes of {n} channels, {mode}"] = fixed, {"x": integers(1, n, 5, 7, dtype=np.uint8)}
    means = model("y = ReduceMean<keepdims=0>(x, axes)", "int64[N,33,17] x", "int64[a,b] y", {"axes": np.array([1])})
    made["means of integers"] = means, {"x": integers(3, 33, 17, dtype=np.int64)}
    boxes = helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [1, "N", 4])
    body = "y = NonMaxSuppression(boxes, scores, most, overlap)"
    constants = {"most": np.array([5], np.int64), "overlap": np.array([0.5], np.float32)}
    found = model(body, "float[1,N,4] boxes, float[1,C,N] scores", "int64[K,3] y", constants)
    assert found.graph.input[0].name == boxes.name
    made["suppression"] = found, {"boxes": np.abs(numbers(1, 21, 4)), "scores": numbers(1, 3, 21, seed=3)}
    return made


def note_partitions() -> list[CpuPartition]:
    """Return a list that is given each partition that is compiled from now on."""
    noted: list[CpuPartition] = []
    build = CpuPartition.__init__

    def noting(self: CpuPartition, *arguments: object, **named: object) -> None:
        build(self, *arguments, **named)  # type: ignore[arg-type]  # passed on as they came
        noted.append(self)

    CpuPartition.__init__ = noting  # type: ignore[method-assign]  # a process of its own
    return noted


def run(content: bytes, feeds: Arrays, provider: str) -> np.ndarray:
    return ort.InferenceSession(content, providers=[provider]).run(None, dict(feeds))[0]


def agree(found: np.ndarray, expected: np.ndarray) -> bool:
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        return False
    if found.dtype == np.uint8:
        return bool((np.abs(found.astype(int) - expected) <= 1).all())
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    return compare((found / scale).astype(found.dtype), (expected / scale).astype(found.dtype), "approximate").passes


def main() -> None:
    models = {**float_models(), **integer_models()}
    partitions = note_partitions()
    for name, (made, feeds) in models.items():
        sys.stderr.write(f"{name}\n")
        content = made.SerializeToString()
        found, expected = (run(content, feeds, f"{kind}ExecutionProvider") for kind in ("CPU", "Reference"))
        assert partitions, f"{name} was not compiled"
        assert all(each.is_native for each in partitions), f"{name}: {[each.refusals for each in partitions]}"
        partitions.clear()
        assert agree(found, expected), f"{name}: {found}\nexpected {expected}"
    sys.stdout.write(f"{len(models)}\n")


if __name__ == "__main__":
    main()
