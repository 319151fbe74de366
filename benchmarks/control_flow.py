"""Time a round of loops and scans beside onnxruntime, in turns, on one thread.

    python benchmarks/control_flow.py [ROUNDS] [TURNS]

The last column is onnxruntime's time over ours: of the median turn, and of the least one.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from types import ModuleType

import numpy as np
import onnxruntime
from onnx import parser

import ort_core

Feeds = Mapping[str, np.ndarray]
HEADER = '<ir_version: 9, opset_import: ["" : 21]>\n'

CELL = """
g (int64 m, float[B,64] x, float[64,64] w, float[64] b) => (float[B,64] last, float[K,B,64] all) {
    last, all = Loop (m, , x) <body = r (int64 i, bool c, float[B,64] h) => (bool c2, float[B,64] n, float[B,64] y) {
        c2 = Identity(c)
        p = MatMul(h, w)
        q = Add(p, b)
        n = Tanh(q)
        y = Identity(n)
    }>
}"""
SEARCH = """
g (int64 m, float[1,9] x, float[9,9] t, float[M,9] e) => (float[1,9] last, int64[K,9] back) {
    last, back = Loop (m, , x) <body = r (int64 i, bool c, float[1,9] h) => (bool c2, float[1,9] n, int64[9] k) {
        c2 = Identity(c)
        col = Constant <value_ints = [9, 1]> ()
        hc = Reshape(h, col)
        s = Add(hc, t)
        zero = Constant <value_ints = [0]> ()
        best = ReduceMax <keepdims = 1> (s, zero)
        k = ArgMax <axis = 0, keepdims = 0> (s)
        row = Gather <axis = 0> (e, i)
        n = Add(best, row)
    }>
}"""
COUNTER = """
g (int64 m, float[1] x) => (float[1] last) {
    last = Loop (m, , x) <body = r (int64 i, bool c, float[1] h) => (bool c2, float[1] n) {
        c2 = Identity(c)
        n = Add(h, h)
    }>
}"""
SCAN = """
g (float[4,32] first, float[M,4,32] x) => (float[4,32] last, float[M,4,32] all) {
    last, all = Scan <num_scan_inputs = 1, body = r (float[4,32] h, float[4,32] now) => (float[4,32] n, float[4,32] y) {
        a = Add(h, now)
        n = Sigmoid(a)
        y = Mul(n, now)
    }> (first, x)
}"""


def cases(rounds: int) -> dict[str, tuple[str, Feeds]]:
    """Return the models with their feeds."""
    rng = np.random.default_rng(0)

    def floats(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32) / 8

    count = {"m": np.array(rounds)}
    return {
        "a recurrent cell of 64": (CELL, {**count, "x": floats(1, 64), "w": floats(64, 64), "b": floats(64)}),
        "a search over 9 labels": (SEARCH, {**count, "x": floats(1, 9), "t": floats(9, 9), "e": floats(rounds, 9)}),
        "one addition": (COUNTER, {**count, "x": np.zeros(1, np.float32)}),
        "a scan of 4 x 32": (SCAN, {"first": floats(4, 32), "x": floats(rounds, 4, 32)}),
    }


def engine(module: ModuleType, model: bytes) -> Callable[[Feeds], list[np.ndarray]]:
    """Return the run of a model on one thread of an engine with onnxruntime's API."""
    options = module.SessionOptions()
    options.intra_op_num_threads = 1
    session = module.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def run(feeds: Feeds) -> list[np.ndarray]:
        return [np.asarray(each) for each in session.run(None, dict(feeds))]

    return run


def main() -> None:
    """Print a row for each case."""
    rounds, turns = (int(each) for each in (sys.argv[1:] + ["200", "30"][len(sys.argv) - 1 :])[:2])
    print(f"{'rounds of':24} {'ours us':>9} {'theirs us':>10} {'ratio':>14}")
    for name, (text, feeds) in cases(rounds).items():
        model = parser.parse_model(HEADER + text).SerializeToString()
        ours, theirs = engine(ort_core, model), engine(onnxruntime, model)
        for found, expected in zip(ours(feeds), theirs(feeds), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        taken: dict[str, list[float]] = {"ours": [], "theirs": []}
        for _ in range(turns):
            for key, run in (("ours", ours), ("theirs", theirs)):
                run(feeds)
                begin = time.perf_counter()
                run(feeds)
                taken[key].append((time.perf_counter() - begin) / rounds * 1e6)
        median = statistics.median(taken["theirs"]) / statistics.median(taken["ours"])
        mine, other = min(taken["ours"]), min(taken["theirs"])
        print(f"{name:24} {mine:9.2f} {other:10.2f} {median:7.2f} {other / mine:6.2f}")


if __name__ == "__main__":
    main()
