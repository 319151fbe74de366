"""Small graphs whose compiled programs are kept as text in ``goldens/``, so that changes of the lowering show.

The text is that of one level of instructions and two threads, whatever machine writes it. After a change that is meant:

    python packages/ort-core/tests/cpu/golden_programs.py
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

import llvmlite.binding as llvm
import numpy as np
from onnx import numpy_helper, parser

from ort_core import stages
from ort_core.cpu.codegen.machine_code.llvm_targets import target_of
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.machine_code.target_setting import LEVELS
from ort_core.cpu.partition.partition import CpuPartition
from ort_core.cpu.provider import CpuExecutionProvider
from ort_core.cpu.threads.pool import shared_pool
from ort_core.environment import default_environment
from ort_core.onnx_io.load import load_model
from ort_core.options import SessionOptions
from ort_core.plugin import CompileRequest, ThreadOptions

FOLDER = Path(__file__).parent / "goldens"
IMPORTS = '<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>'
_HASH = re.compile(r"_[0-9a-f]{16,}")
Constants = Mapping[str, tuple[int, ...]]

PROGRAMS: Mapping[str, tuple[str, Constants]] = {
    "elementwise_chain": (
        "(float[N, 8] x, float[N, 8] z) => (float[N, 8] y) { a = Add(x, z) b = Tanh(a) y = Mul(b, z) }", {},
    ),
    "fused_convolutions_of_onnxruntime": (
        "(float[1, 8, 16, 16] x) => (float[1, 8, 14, 14] y) "
        "{ a = com.microsoft.FusedConv<activation = \"Clip\", activation_params = [0.0, 6.0]>(x, w) "
        "y = com.microsoft.FusedConv<activation = \"Relu\">(a, v) }",
        {"w": (8, 8, 1, 1), "v": (8, 8, 3, 3)},
    ),
    "product_with_bias_and_relu": (
        "(float[N, 64] x) => (float[N, 32] y) { a = MatMul(x, w) b = Add(a, c) y = Relu(b) }",
        {"w": (64, 32), "c": (32,)},
    ),
    "products_with_vectors": (
        "(float[N, 64] x, float[B, S, 24] z, float[B, 24, 1] v) => (float[N, 1] y, float[B, S, 1] u) "
        "{ a = Gemm(x, w, c) y = Sigmoid(a) u = MatMul(z, v) }",
        {"w": (64, 1), "c": (1,)},
    ),
    "product_of_a_sequence_before_its_batch": (
        "(float[B, S, 16] x) => (float[S, B, 32] y) { a = Transpose <perm = [1, 0, 2]> (x) y = MatMul(a, w) }",
        {"w": (16, 32)},
    ),
    "two_layers": (
        "(float[N, 16] x) => (float[N, 4] y) { a = Gemm(x, w, c) b = Sigmoid(a) d = Gemm(b, v, e) y = Softmax(d) }",
        {"w": (16, 32), "c": (32,), "v": (32, 4), "e": (4,)},
    ),
    "layer_normalization_behind_a_sum": (
        "(float[B, S, 64] x, float[B, S, 64] z) => (float[B, S, 64] y) "
        "{ a = Add(x, z) y = LayerNormalization <axis = -1> (a, g, b) }",
        {"g": (64,), "b": (64,)},
    ),
    "convolutions_and_pooling": (
        "(float[N, 3, 16, 16] x) => (float[N, 8, 8, 8] y) { a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> "
        "(x, w, c) b = Relu(a) d = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (b) "
        "y = Conv <kernel_shape = [1, 1]> (d, v) }",
        {"w": (16, 3, 3, 3), "c": (16,), "v": (8, 16, 1, 1)},
    ),
    "depthwise_convolution": (
        "(float[1, 16, 8, 8] x) => (float[1, 16, 8, 8] y) { a = Conv <group = 16, kernel_shape = [3, 3], "
        "pads = [1, 1, 1, 1]> (x, w) y = Clip(a, low, high) }",
        {"w": (16, 1, 3, 3), "low": (), "high": ()},
    ),
    "attention": (
        "(float[B, 2, S, 16] q, float[B, 2, S, 16] k, float[B, 2, S, 16] v) => (float[B, 2, S, 16] y) "
        "{ t = Transpose <perm = [0, 1, 3, 2]> (k) s = MatMul(q, t) p = Softmax <axis = -1> (s) y = MatMul(p, v) }", {},
    ),
    "gather_of_an_embedding": (
        "(int64[B, S] ids) => (float[B, S, 32] y) { a = Gather(table, ids) y = Mul(a, a) }", {"table": (100, 32)},
    ),
    "quantized_product": (
        "(float[N, 32] x) => (float[N, 16] y) { a, s, z = DynamicQuantizeLinear(x) "
        "b = MatMulInteger(a, w, z) d = Cast <to = 1> (b) y = Mul(d, s) }",
        {"w": (32, 16)},
    ),
    "quantized_attention": (
        "(float[B, 4, S, 16] q, float[B, 4, S, 16] k) => (float[B, 4, S, S] y) "
        "{ t = Transpose <perm = [0, 1, 3, 2]> (k) a, s, z = DynamicQuantizeLinear(q) "
        "c, r, x = DynamicQuantizeLinear(t) p = MatMulInteger(a, c, z, x) "
        "f = Cast <to = 1> (p) m = Mul(s, r) y = Mul(f, m) }", {},
    ),
    "best_of_rows": (
        "(float[N, 400] x) => (float[N, 200] y, int64[N, 200] i) { a = Exp(x) y, i = TopK(a, many) }", {"many": (1,)},
    ),
    "reductions": (
        "(float[N, 4, 8] x) => (float[N, 1, 8] y, float[N, 4] z) { y = ReduceMean <keepdims = 1> (x, one) "
        "z = ReduceMax <keepdims = 0> (x, two) }",
        {"one": (1,), "two": (1,)},
    ),
    "recurrent_layer": (
        "(float[S, B, 8] x) => (float[S, 1, B, 16] y) { y, h, c = LSTM <hidden_size = 16> (x, w, r) }",
        {"w": (1, 64, 8), "r": (1, 64, 16)},
    ),
    "movement": (
        "(float[N, 4, 6] x) => (float[N, 6, 8] y) { a = Transpose <perm = [0, 2, 1]> (x) b = Exp(a) "
        "y = Concat <axis = 2> (a, b) }", {},
    ),
    "program_kernel_program": (
        "(float[N, 8] x, bool[N] keep) => (float[M, 8] y) { a = Softmax(x) b = Compress <axis = 0> (a, keep) "
        "y = Softmax(b) }", {},
    ),
}  # fmt: skip
"""By name: a graph, and the shapes of its constants, which are seeded; of ``one``, ``two`` and ``many`` a number."""


def fixed_target() -> Target:
    """Return x86-64-v3 as a target, whether or not this machine can run it."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    features = ",".join(f"+{name}" for name in sorted(LEVELS["x86-64-v3"]))
    return target_of("x86_64-unknown-linux-gnu", "x86-64", features)


def text_of(name: str) -> str:
    """Return the steps of a program, without the digests in the names of kernels."""
    body, shapes = PROGRAMS[name]
    model = parser.parse_model(f"{IMPORTS} {name} {body}")
    rng = np.random.default_rng(0)
    for constant, shape in shapes.items():
        number = {"one": 1, "two": 2, "many": 200}.get(constant)
        array = rng.standard_normal(shape).astype(np.float32) if number is None else np.full(shape, number, np.int64)
        if name == "quantized_product":
            array = rng.integers(-100, 100, shape, np.int8)
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), constant))
    sizes = {"": {}, " with N = 100, B = 2, S = 24": {"N": 100, "B": 2, "S": 24}}
    with mock.patch.object(CpuExecutionProvider, "compile", _compile):
        options = SessionOptions()
        options.add_session_config_entry("session.optimized_model_cache", "0")
        loaded = load_model(model.SerializeToString())
        prepared = stages.prepare(loaded, options, default_environment(), [("CPUExecutionProvider", {})])
    assert prepared.partitioned is not None
    parts = [step.compiled for _, step in stages.compiled_partitions(prepared.partitioned, prepared.plan)]
    listings = [
        "\n".join([f"steps{told}", *(str(facts) for part in parts for facts in part.steps(known))])
        for told, known in sizes.items()
    ]
    prepared.plan.close()
    return f"{body}\n\n" + _HASH.sub("", "\n\n".join(listings)) + "\n"


def _compile(self: CpuExecutionProvider, request: CompileRequest) -> CpuPartition:
    return CpuPartition(request, fixed_target(), shared_pool(ThreadOptions(2)))


if __name__ == "__main__":
    for each in PROGRAMS:
        (FOLDER / f"{each}.txt").write_text(text_of(each), encoding="utf-8")
