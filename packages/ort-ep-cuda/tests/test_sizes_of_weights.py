"""Operands that are not as large as attributes or other operands say are an error: kernels would read beyond them."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_gpu import EmulatedGpu
from emulated_provider import EmulatedCudaProvider, session_of

from ort_core.plugin import InvalidArgument, OrtError

PRODUCT = """g (float[M,K] a, uint8[B,C,D] b, float[S] s) => (float[M,5] y) {{
    y = com.microsoft.MatMulNBits<K = {inner}, N = 5, block_size = 16>(a, b, s) }}"""
TABLE = """g (uint8[4,8] b, int64[2] i, float[R,S] s) => (float[2,16] y) {
    y = com.microsoft.GatherBlockQuantized<bits = 4, block_size = 16, quantize_axis = 1>(b, i, s) }"""


@pytest.fixture(autouse=True)
def _device(monkeypatch):
    monkeypatch.setattr(EmulatedCudaProvider, "device", EmulatedGpu(collects=True), raising=False)


@pytest.mark.parametrize("rows", [2, 40])
@pytest.mark.parametrize(
    ("inner", "columns", "scales", "words"),
    [
        (16, 4, 5, "B has 32 elements, its attributes say 40"),
        (16, 5, 4, r"scales must have shape \{5\}"),
        (15, 5, 5, "A has 16 columns"),
    ],
)
def test_a_product(rows, inner, columns, scales, words):
    session = session_of(PRODUCT.format(inner=inner))
    feeds = {"a": np.ones((rows, 16), "f4"), "b": np.ones((columns, 1, 8), "u1"), "s": np.ones(scales, "f4")}
    with pytest.raises(InvalidArgument, match=words):
        session.run(None, feeds)


@pytest.mark.parametrize("shape", [(3, 1), (4, 2)])
def test_a_table(shape):
    feeds = {"b": np.ones((4, 8), "u1"), "i": np.array([0, 3]), "s": np.ones(shape, "f4")}
    with pytest.raises(InvalidArgument, match=r"do not (match|belong)"):
        session_of(TABLE).run(None, feeds)


OTHERS = {
    "a skip of fewer rows": ("SkipLayerNormalization", [(1, 5, 2), (1, 3, 2), (2,)]),
    "a skip of fewer batches": ("SkipSimplifiedLayerNormalization", [(4, 5, 2), (3, 5, 2), (2,)]),
    "a shift of one column": ("SkipLayerNormalization", [(1, 5, 2), (1, 5, 2), (2,), (1,)]),
    "a bias of one column": ("SkipSimplifiedLayerNormalization", [(1, 5, 2), (1, 5, 2), (2,), (1,)]),
    "a scale of fewer columns": ("LayerNormalization", [(3, 6), (4,)]),
    "a bias of fewer columns": ("LayerNormalization", [(3, 6), (6,), (4,)]),
    "a scale of fewer channels": ("InstanceNormalization", [(1, 6, 4), (4,), (6,)]),
    "a slope of fewer channels": ("PRelu", [(2, 6, 4), (5, 1)]),
    "a bias of fewer columns than a product": ("Gemm", [(2, 3), (3, 6), (4,)]),
}
"""Operator and shapes of its inputs. Sizes are open, so that nothing is known of them before a run."""


@pytest.mark.parametrize("name", OTHERS)
def test_operands_of_other_sizes_are_an_error(name):
    op_type, shapes = OTHERS[name]
    operator = f"com.microsoft.{op_type}" if op_type.startswith("Skip") else op_type
    names = [f"x{index}" for index in range(len(shapes))]
    declared = [
        f"float[{', '.join(f'{name}_{axis}' for axis in range(len(shape)))}] {name}"
        for name, shape in zip(names, shapes, strict=True)
    ]
    result = ", ".join(f"y_{axis}" for axis in range(len(shapes[0])))
    session = session_of(f"g ({', '.join(declared)}) => (float[{result}] y) {{ y = {operator}({', '.join(names)}) }}")
    with pytest.raises(OrtError):
        session.run(None, {name: np.ones(shape, "f4") for name, shape in zip(names, shapes, strict=True)})


@pytest.mark.parametrize(("name", "size"), [("b", 13), ("b", 1), ("xs", 2), ("ws", 5), ("z", 3), ("v", 7)])
def test_an_operator_in_parts_takes_no_operands_that_its_parts_would_repeat(name, size):
    session = session_of(
        """g (uint8[1,2,4] x, uint8[4,12] w, float[B] b, float[S] xs, float[W] ws, uint8[Z] z, uint8[V] v)
        => (float[1,2,4] y) { y = com.microsoft.QAttention<num_heads=2>(x, w, b, xs, ws, , z, v) }"""
    )
    sizes = {"b": 12, "xs": 1, "ws": 1, "z": 1, "v": 1}
    fixed = {"x": np.ones((1, 2, 4), "u1"), "w": np.ones((4, 12), "u1")}

    def feeds(sizes):
        return fixed | {each: np.ones(count, "u1" if each in "zv" else "f4") for each, count in sizes.items()}

    session.run(None, feeds(sizes))
    with pytest.raises(OrtError, match=r"QAttention|Mul|zero_point"):
        session.run(None, feeds(sizes | {name: size}))


PLACES = {
    "fewer updates than indices": ("ScatterElements", (3, 4), (3, 4), (2, 4)),
    "indices of more rows than the data": ("ScatterElements", (2, 4), (3, 4), (3, 4)),
    "updates of another slice": ("ScatterND", (3, 4), (2, 1), (2, 3)),
    "more updates than tuples": ("ScatterND", (3, 4), (2, 1), (3, 4)),
    "elements of more rows than there are": ("GatherElements", (2, 4), (5, 4)),
    "tuples of more batches": ("GatherND<batch_dims = 1>", (2, 3), (4, 1)),
}
"""Operator, and shapes of data, indices and updates, of open sizes; the axis of elements is the last one."""


@pytest.mark.parametrize("name", PLACES)
def test_places_beside_the_axis_that_are_not_there_are_an_error(name):
    operator, *shapes = PLACES[name]
    operator += "<axis = -1>" if operator.endswith("Elements") else ""
    names = ("x", "i", "u")[: len(shapes)]
    declared = ", ".join(f"{'int64' if name == 'i' else 'float'}[{name}0, {name}1] {name}" for name in names)
    rank = "y0" if operator.startswith("GatherND") else "y0, y1"
    session = session_of(f"g ({declared}) => (float[{rank}] y) {{ y = {operator}({', '.join(names)}) }}")
    feeds = {name: np.zeros(shape, "i8" if name == "i" else "f4") for name, shape in zip(names, shapes, strict=True)}
    with pytest.raises(InvalidArgument):
        session.run(None, feeds)


@pytest.mark.parametrize("image", [-1, 1])
def test_a_region_of_an_image_that_is_not_there_is_an_error(monkeypatch, image):
    monkeypatch.setattr(EmulatedCudaProvider, "device", EmulatedGpu())
    session = session_of(
        """g (float[1,1,4,4] x, float[1,4] r, int64[1] i) => (float[1,1,2,2] y) {
        y = RoiAlign<output_height = 2, output_width = 2, sampling_ratio = 2>(x, r, i) }"""
    )
    feeds = {"x": np.ones((1, 1, 4, 4), "f4"), "r": np.array([[0, 0, 3, 3]], "f4"), "i": np.array([image])}
    with pytest.raises(InvalidArgument, match="out of range"):
        session.run(None, feeds)
