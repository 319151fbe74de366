"""Sizes that an operator requires to be equal: where those of a run are not, the kernels say what is wrong with them.

Compiled code would read and write beyond its memory, so each case is also run with sizes that fit, behind those that do
not: a session must come through both.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper, parser

import ort_core as ort
from ort_core.errors import OrtError
from ort_core.tolerances import compare

Arrays = dict[str, np.ndarray]
ONES = np.ones(4, np.float32)
GRID = {"s": np.array(0.1, np.float32), "z": np.array(7, np.uint8)}
CONCATENATED = "(float[N, A, B] x, float[N, C, D] z) => (float[N, E, F] y)"


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def session(text: str, constants: Arrays, opset: int, provider: str) -> ort.InferenceSession:
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}, "com.microsoft": 1]> sizes {text}')
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return ort.InferenceSession(proto.SerializeToString(), providers=[provider])


def check(text: str, constants: Arrays, good: Arrays, bad: Arrays, opset: int = 21) -> None:
    """Hold the CPU provider against the reference: the same error of one, the same numbers of the other."""
    reference, compiled = (session(text, constants, opset, f"{name}ExecutionProvider") for name in ("Reference", "CPU"))
    for _ in range(2):
        with pytest.raises(OrtError) as expected:
            reference.run(None, bad)
        with pytest.raises(OrtError) as found:
            compiled.run(None, bad)
        assert str(found.value) == str(expected.value)
        comparison = compare(compiled.run(None, good)[0], reference.run(None, good)[0], "approximate")
        assert comparison.passes, comparison


@pytest.mark.parametrize("bad", [(2, 3, 9), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "last"])
@pytest.mark.parametrize("before", ["", "x = Neg(given) "], ids=["given", "computed"])
def test_concatenation_of_parts_that_do_not_fit_writes_nothing(
    bad: tuple[int, ...], is_first: bool, before: str
) -> None:
    signature = CONCATENATED.replace("x,", "given,") if before else CONCATENATED
    parts = "x, z" if is_first else "z, x"
    name = "given" if before else "x"
    good = {name: floats(2, 5, 7), "z": floats(2, 3, 7)}
    body = f"{{ {before}joined = Concat<axis = 1>({parts}) y = Neg(joined) }}"
    check(f"{signature} {body}", {}, good, good | {"z": floats(*bad)})


def test_concatenation_leaves_out_parts_without_elements() -> None:
    text, x = f"{CONCATENATED} {{ y = Concat<axis = 1>(x, z) }}", floats(2, 5, 7)
    for empty in ((2, 3, 0), (2, 0, 9)):
        (joined,) = session(text, {}, 21, "CPUExecutionProvider").run(None, {"x": x, "z": floats(*empty)})
        assert np.array_equal(joined, x)


def test_slices_of_one_image_that_do_not_fit_are_not_joined() -> None:
    constants = {"w": floats(8, 3, 1, 1), "start": np.array([0]), "end": np.array([4]), "axis": np.array([3])}
    body = (
        "{ image = Conv(x, w) left, right = Split<axis = 1, num_outputs = 2>(image)"
        " short = Slice(left, start, end, axis) joined = Concat<axis = 1>(short, right) y = Relu(joined) }"
    )
    text = f"(float[N, 3, H, W] x) => (float[N, C, H, V] y) {body}"
    check(text, constants, {"x": floats(1, 3, 5, 4)}, {"x": floats(1, 3, 5, 9)})


def test_quantized_concatenation_of_parts_that_do_not_fit_writes_nothing() -> None:
    text = """(uint8[N, A, B] x, uint8[N, C, D] z) => (uint8[N, E, F] y) {
        y = com.microsoft.QLinearConcat<axis = 1>(s, z0, x, s, z0, z, s, z0)
    }"""
    x = np.arange(30, dtype=np.uint8).reshape(2, 3, 5)
    check(text, {"s": GRID["s"], "z0": GRID["z"]}, {"x": x, "z": x}, {"x": x, "z": x[..., :4]})


@pytest.mark.parametrize("channels", [3, 5, 1])
def test_scale_for_another_number_of_channels_is_not_read(channels: int) -> None:
    text = "(float[N, C, H, W] x) => (float[N, C, H, W] y) { y = InstanceNormalization(x, s, t) }"
    check(text, {"s": ONES, "t": ONES}, {"x": floats(2, 4, 3, 5)}, {"x": floats(2, channels, 3, 5)})


@pytest.mark.parametrize(("operator", "opset", "size"), [
    ("InstanceNormalization", 21, 4), ("GroupNormalization<num_groups = 2>", 21, 4),
])  # fmt: skip
@pytest.mark.parametrize("wrong", ["s", "t"])
@pytest.mark.parametrize("is_image", [False, True], ids=["given", "convolved"])
def test_as_many_numbers_as_given_must_be_those_of_channels(
    operator: str, opset: int, size: int, wrong: str, is_image: bool
) -> None:
    convolved = "x = Conv(given, w) " if is_image else ""
    text = f"""(float[N, 4, H, W] {"given" if is_image else "x"}, float[S] s, float[T] t) => (float[N, 4, H, W] y) {{
        {convolved}y = {operator}(x, s, t)
    }}"""
    good = {"given" if is_image else "x": floats(2, 4, 3, 5), "s": floats(size), "t": floats(size)}
    constants = {"w": floats(4, 4, 1, 1)} if is_image else {}
    check(text, constants, good, good | {wrong: floats(size - 1)}, opset)


@pytest.mark.parametrize(("operator", "window"), [
    ("Conv", (1, 1)), ("Conv", (3, 3)), ("Conv", (3, 3, 3)), ("Conv", (3,)), ("ConvTranspose", (2, 2)),
    ("ConvTranspose", (2, 2, 2)),
])  # fmt: skip
def test_bias_whose_size_only_the_run_knows_is_one_number_a_channel(operator: str, window: tuple[int, ...]) -> None:
    axes = ", ".join(f"S{axis}" for axis in range(len(window)))
    text = f"(float[N, 4, {axes}] x, float[B] b) => (float y) {{ y = {operator}(x, w, b) }}"
    good = {"x": floats(2, 4, *[5] * len(window)), "b": floats(4)}
    check(text, {"w": floats(4, 4, *window)}, good, good | {"b": floats(1)})


@pytest.mark.parametrize("window", [
    "kernel_shape = [2, 2], strides = [1, 2], pads = [0, 0, 1, 1]",
    "kernel_shape = [2, 3], strides = [3, 2], pads = [1, 0, 1, 2]",
    "kernel_shape = [3, 2], strides = [4, 5], pads = [2, 1, 2, 0]",
])  # fmt: skip
@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool"])
def test_windows_that_begin_in_the_padding_are_counted_whatever_an_output_is_declared(
    operator: str, window: str
) -> None:
    text = f"(float[N, 3, H, W] x) => (float[N, 3, H, W] y) {{ y = {operator}<ceil_mode = 1, {window}>(x) }}"
    reference, compiled = (session(text, {}, 22, f"{name}ExecutionProvider") for name in ("Reference", "CPU"))
    for shape in ((1, 3, 9, 8), (2, 3, 7, 7), (1, 3, 12, 5), (1, 3, 1, 1), (1, 3, 2, 3)):
        (expected,), (found,) = (each.run(None, {"x": floats(*shape)}) for each in (reference, compiled))
        assert found.shape == expected.shape, shape
        assert compare(found, expected, "approximate").passes, shape


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("pads", [[2, 0, 0, 0], [0, 0, 0, 3]], ids=str)
@pytest.mark.parametrize("ceil_mode", [0, 1])
def test_pads_as_large_as_the_window_are_refused(operator: str, pads: list[int], ceil_mode: int) -> None:
    attributes = f"kernel_shape = [2, 2], strides = [2, 2], ceil_mode = {ceil_mode}, pads = {pads}"
    text = f"(float[N, 3, H, W] x) => (float[N, 3, H, W] y) {{ y = {operator}<{attributes}>(x) }}"
    reference, compiled = (session(text, {}, 22, f"{name}ExecutionProvider") for name in ("Reference", "CPU"))
    with pytest.raises(OrtError, match="must be smaller than the") as expected:
        reference.run(None, {"x": floats(1, 3, 6, 5)})
    with pytest.raises(OrtError) as found:
        compiled.run(None, {"x": floats(1, 3, 6, 5)})
    assert str(found.value) == str(expected.value)
