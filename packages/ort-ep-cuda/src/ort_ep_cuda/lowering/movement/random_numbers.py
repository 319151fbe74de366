"""Random numbers by Philox 4x32-10: a number is a function of seed, draw and place, so that threads share no state.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011). The draw is the number of the run; the host writes
it to the device before each run, since the arguments of a captured launch are fixed. A node with an attribute ``seed``
gives the same numbers in every session, run for run; one without draws from the session's seed.
"""

from __future__ import annotations

import math

import numpy as np

from ort_core.plugin.ir import DataType, Node
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.node_facts import LoweredNode
from ort_ep_cuda.lowering.program import Argument, Kernel, Launch, Pointer
from ort_ep_cuda.lowering.values.views import TensorView
from ort_ep_cuda.lowering.writing.preamble import STORAGE, compute_type
from ort_ep_cuda.lowering.writing.writer import filled, launch_elements, numbers, pointers

_PHILOX = """\
#ifndef ORT_PHILOX
#define ORT_PHILOX
struct ort_words { unsigned int word[4]; };
__device__ __forceinline__ ort_words ort_philox(long long place, const unsigned long long* draw, long long seed) {
  unsigned int a = (unsigned int)place, b = (unsigned int)(place >> 32);
  unsigned int c = (unsigned int)draw[0], d = (unsigned int)(draw[0] >> 32);
  const unsigned long long session = seed >= 0 ? 0ULL : draw[1];
  unsigned int k = (unsigned int)seed ^ (unsigned int)session;
  unsigned int l = (unsigned int)(seed >> 32) ^ (unsigned int)(session >> 32);
  for (int round = 0; round < 10; ++round) {
    const unsigned long long p = 0xD2511F53ULL * a, q = 0xCD9E8D57ULL * c;
    a = (unsigned int)(q >> 32) ^ b ^ k; b = (unsigned int)q;
    c = (unsigned int)(p >> 32) ^ d ^ l; d = (unsigned int)p;
    k += 0x9E3779B9u; l += 0xBB67AE85u;
  }
  ort_words r; r.word[0] = a; r.word[1] = b; r.word[2] = c; r.word[3] = d;
  return r;
}
__device__ __forceinline__ float ort_unit(unsigned int w) { return (float)(w >> 8) * 5.9604644775390625e-8f; }
__device__ __forceinline__ double ort_unit(unsigned int w, unsigned int v) {
  return (double)(((unsigned long long)w << 21) ^ (v >> 11)) * 1.1102230246251565e-16;
}
#endif
"""
_DRAWN = {
    DataType.FLOAT: "const float u = ort_unit(ort_philox(i / 4, draw, seed).word[i % 4]);",
    DataType.DOUBLE: "const ort_words w = ort_philox(i / 2, draw, seed);\n"
    "const double u = ort_unit(w.word[i % 2 * 2], w.word[i % 2 * 2 + 1]);",
}
_UNIFORM = "@DRAWN@\nout[i] = ort_store<@T@>::of(u * (@C@)width + (@C@)low);\n"
_BERNOULLI = "@DRAWN@\nout[i] = ort_store<@T@>::of((@O@)(u < ort_load(x[i]) ? 1 : 0));\n"
_NORMAL = {  # Box and Muller; one less u lies in (0, 1], where the logarithm is finite
    DataType.FLOAT: """
const ort_words w = ort_philox(i / 2, draw, seed);
const float radius = sqrtf(-2.0f * logf(1.0f - ort_unit(w.word[i % 2 * 2])));
out[i] = ort_store<@T@>::of(radius * cospif(2.0f * ort_unit(w.word[i % 2 * 2 + 1])) * (float)width + (float)low);
""",
    DataType.DOUBLE: """
const ort_words w = ort_philox(i, draw, seed);
const double radius = sqrt(-2.0 * log(1.0 - ort_unit(w.word[0], w.word[1])));
out[i] = ort_store<@T@>::of(radius * cospi(2.0 * ort_unit(w.word[2], w.word[3])) * width + low);
""",
}
_MULTINOMIAL = """
const float u = ort_unit(ort_philox(i / 4, draw, seed).word[i % 4]);
const long long first = i / samples * classes;
float largest = ort_load(x[first]), total = 0.0f, passed = 0.0f;
for (long long k = 1; k < classes; ++k) largest = ort_max(largest, (float)ort_load(x[first + k]));
for (long long k = 0; k < classes; ++k) total += expf((float)ort_load(x[first + k]) - largest);
long long found = 0;
for (; found < classes - 1; ++found) {
  passed += expf((float)ort_load(x[first + found]) - largest);
  if (passed > u * total) break;
}
out[i] = (@T@)found;
"""
FLOATS = frozenset({DataType.FLOAT, DataType.DOUBLE, DataType.FLOAT16, DataType.BFLOAT16})


def refuse_random(node: Node) -> str | None:
    """Return why random numbers of a type are not generated, or those of a seed that is not a number."""
    dtype = element_type(node.output)
    if dtype not in FLOATS:
        return f"{node.op_type} of {dtype.text} is not generated"
    return refuse_seed(node)


def refuse_seed(node: Node) -> str | None:
    """Return why the seed of a node is none."""
    return None if math.isfinite(node.float_attribute("seed", 0.0)) else "the attribute seed is not a finite number"


def lower_random(facts: LoweredNode) -> None:
    """Fill a tensor with numbers, evenly in [low, high) or normally distributed."""
    node = facts.node
    shape = facts.tensor(0).shape if node.op_type.endswith("Like") else tuple(node.ints_attribute("shape") or ())
    out = facts.builder.result(facts.output, shape)
    if node.op_type.startswith("RandomNormal"):
        low, width = node.float_attribute("mean", 0.0), node.float_attribute("scale", 1.0)
        body = _NORMAL[compute_type(out.dtype)]
    else:
        low = node.float_attribute("low", 0.0)
        width, body = node.float_attribute("high", 1.0) - low, _UNIFORM
    parameters = "@T@* out, const unsigned long long* draw, long long seed, double low, double width, long long count"
    sizes = (np.float64(low), np.float64(width))
    _add(facts, body, parameters, [], out, sizes)


def lower_bernoulli(facts: LoweredNode) -> None:
    """Store 1 with the probability that the input gives, else 0."""
    x = facts.builder.dense(facts.value(0))
    out = facts.builder.result(facts.output, x.shape)
    parameters = "const @X@* x, @T@* out, const unsigned long long* draw, long long seed, long long count"
    _add(facts, _BERNOULLI, parameters, [x], out, ())


def lower_multinomial(facts: LoweredNode) -> None:
    """Draw classes by the logarithms of their weights, ``sample_size`` for each row."""
    x = facts.builder.dense(facts.value(0))
    samples = facts.node.int_attribute("sample_size", 1)
    out = facts.builder.result(facts.output, (x.shape[0], samples))
    parameters = (
        "const @X@* x, @T@* out, const unsigned long long* draw, long long seed, long long classes, long long samples, "
        "long long count"
    )
    _add(facts, _MULTINOMIAL, parameters, [x], out, numbers(x.shape[1], samples))


def _add(
    facts: LoweredNode,
    body: str,
    parameters: str,
    reads: list[TensorView],
    out: TensorView,
    sizes: tuple[Argument, ...],
) -> None:
    if not out.size:
        return
    drawn_by = compute_type(reads[0].dtype if reads else out.dtype)
    texts = {
        "DRAWN": _DRAWN[drawn_by], "T": STORAGE[out.dtype], "C": STORAGE[drawn_by],
        "O": STORAGE[compute_type(out.dtype)], "X": STORAGE[reads[0].dtype] if reads else "",
    }  # fmt: skip
    kernel = filled("random", parameters, body, texts)
    kernel = Kernel(kernel.name, _PHILOX + kernel.source)
    draw, seed = facts.builder.draw(), _seed_of(facts)
    arguments = (*pointers(*reads, out), Pointer(draw), np.int64(seed), *sizes)
    launch = launch_elements(kernel, out.size, arguments, reads, [out])
    facts.builder.add(Launch(kernel, launch.grid, launch.block, launch.arguments, (*launch.reads, draw), launch.writes))


def _seed_of(facts: LoweredNode) -> int:
    """Return the node's own seed; without one, a negative number, which each node has of its own."""
    given = facts.node.attributes.get("seed")
    if given is not None:
        return int(np.array([facts.node.float_attribute("seed", 0.0)], np.float32).view(np.uint32)[0])
    return -1 - facts.builder.new_stream()


def draw_words(draw: int, seed: int) -> np.ndarray:
    """Return what a run writes to the device: its number, and the session's seed."""
    return np.array([draw, seed & (2**64 - 1)], np.uint64)
