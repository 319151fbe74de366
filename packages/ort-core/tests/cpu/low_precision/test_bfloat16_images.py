"""``precision=bfloat16`` and convolutions: which round, what is stored rounded, and how far results are off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from onnx import ModelProto, NodeProto
from test_groups import FLOAT, N, model_of

import ort_core as ort
from ort_core.cpu.codegen.machine_code import known_host, llvm_targets
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products.bfloat16_tiles import has_tile_products
from ort_core.cpu.lowering.rules.convolutions import rounded_images
from ort_core.cpu.provider import _tell_what_is_rounded

UNIT = 2.0**-8  # what rounding to bfloat16 changes at most, relative to the number
RANDOM = np.random.default_rng(19)


def _target(products: str) -> Target:
    """Return this host; for dot products without its name, which alone tells that they are slow."""
    target = host_target() if products == "tiles" else llvm_targets.restricted_target("amx")
    if not (has_tile_products(target) if products == "tiles" else target.lanes == 16 and target.has("avx512bf16")):
        pytest.skip(f"this processor has no {products} of bfloat16, or the system withholds them")
    return target


@pytest.fixture(params=["dot products", "tiles"])
def rounded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How images were rounded by sessions on this host: ``made`` so, ``copied``, ``bordered``, or stored ``twice``."""
    target = _target(request.param)
    monkeypatch.setattr(known_host, "known_host", lambda: target)
    ways: list[str] = []
    for way, name in (
        ("made", "_stored_rounded"),
        ("copied", "_copied_rounded"),
        ("twice", "_as_stored_twice"),
        ("bordered", "inside_border"),
    ):
        function = getattr(rounded_images, name)

        def noted(*arguments: object, way: str = way, function: object = function) -> object:
            found = function(*arguments)  # type: ignore[operator]  # as it was
            ways.extend([way] if found is not None else [])
            return found

        monkeypatch.setattr(rounded_images, name, noted)
    return ways


def weights(*shape: int) -> np.ndarray:
    return (RANDOM.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def run(model: ModelProto, x: np.ndarray, precision: str, threads: int = 2) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    providers = [("CPUExecutionProvider", {"precision": precision})]
    return ort.InferenceSession(model.SerializeToString(), options, providers=providers).run(None, {"x": x})  # type: ignore[return-value]  # arrays


def check(
    nodes: Sequence[NodeProto], constants: Mapping[str, np.ndarray], shape: tuple[int, ...], roundings: int,
    outputs: Sequence[str] = ("y",), *, is_open: bool = True,
) -> None:  # fmt: skip
    """Compare with float32; ``roundings`` are how many operands are rounded on the longest way through the graph.

    The same graph over absolute values, in which nothing cancels, tells how large the sums are.
    """
    open_shape = ["N", shape[1], *(f"S{axis}" for axis in range(2, len(shape)))] if is_open else ["N", *shape[1:]]
    absolute = {name: np.abs(array) if array.dtype == np.float32 else array for name, array in constants.items()}
    graphs = [
        model_of(nodes, {"x": (FLOAT, open_shape)}, dict.fromkeys(outputs, FLOAT), each)
        for each in (constants, absolute)
    ]
    x = RANDOM.standard_normal(shape).astype(np.float32)
    exact, found = (run(graphs[0], x, precision) for precision in ("float32", "bfloat16"))
    sizes = run(graphs[1], np.abs(x), "float32")
    for wide, narrow, size in zip(exact, found, sizes, strict=True):
        bound = ((1 + UNIT) ** roundings - 1 + 1e-5) * np.abs(size)
        assert (np.abs(narrow - wide) <= bound).all()
    assert any((narrow != wide).any() for narrow, wide in zip(found, exact, strict=True)), "nothing was rounded"


def test_a_bottleneck_stores_what_convolutions_alone_read_rounded_and_its_residual_in_float32(
    rounded: list[str], request: pytest.FixtureRequest
) -> None:
    constants = {
        "a": weights(16, 32, 1, 1),
        "b": weights(16, 16, 3, 3),
        "c": weights(32, 16, 1, 1),
        "d": weights(96, 32, 1, 1),
    }
    nodes = [
        N("Conv", ["x", "a"], ["h"]), N("Relu", ["h"], ["i"]),
        N("Conv", ["i", "b"], ["j"], pads=[1, 1, 1, 1]), N("Relu", ["j"], ["k"]),
        N("Conv", ["k", "c"], ["l"]), N("Add", ["l", "x"], ["m"]), N("Relu", ["m"], ["n"]),
        N("Conv", ["n", "d"], ["y"], strides=[2, 2]), N("GlobalAveragePool", ["n"], ["z"]),
    ]  # fmt: skip
    check(nodes, constants, (2, 32, 9, 11), 8, ("y", "z"))
    has_tiles = request.node.callspec.params["rounded"] == "tiles"
    assert sorted(rounded) == ["copied", *(["made", "made", "twice"] if has_tiles else ["copied", "made", "made"])]


def test_depthwise_convolutions_read_and_store_rounded_what_nobody_else_reads(rounded: list[str]) -> None:
    constants = {"a": weights(48, 32, 1, 1), "b": weights(48, 1, 3, 3), "c": weights(20, 48, 1, 1)}
    nodes = [
        N("Conv", ["x", "a"], ["h"]), N("Clip", ["h"], ["i"]),
        N("Conv", ["i", "b"], ["j"], pads=[1, 1, 1, 1], group=48),
        N("Sigmoid", ["j"], ["s"]), N("Mul", ["j", "s"], ["k"]),
        N("Conv", ["k", "c"], ["y"]),
    ]  # fmt: skip
    check(nodes, constants, (1, 32, 8, 10), 9)  # x * sigmoid(x) changes up to 1.1 times as much as x: counted as 2
    assert rounded == ["copied", "made", "made"]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("shape", "kernel", "attributes"),
    [
        ((2, 33, 9, 11), (33, 1, 5, 3), {"pads": [2, 1, 2, 1]}),
        ((1, 40, 12, 9), (40, 1, 3, 3), {"strides": [2, 2], "pads": [0, 0, 1, 1]}),
        ((1, 17, 15, 14), (17, 1, 3, 3), {"dilations": [2, 2], "auto_pad": "SAME_UPPER"}),
        ((2, 19, 31), (19, 1, 7), {"pads": [3, 3]}),
        ((1, 24, 6, 6), (24, 1, 6, 6), {}),
        ((1, 16, 20, 1), (16, 1, 4, 1), {"strides": [2, 1]}),
    ],
    ids=["odd channels", "strides", "automatic pads", "1-D", "whole images", "columns"],
)
def test_depthwise_convolutions_of_every_form_read_what_a_sum_stored_rounded(
    shape: tuple[int, ...], kernel: tuple[int, ...], attributes: dict[str, object], threads: int, rounded: list[str]
) -> None:
    first = weights(kernel[0], shape[1], *[1] * (len(shape) - 2))
    second, x = weights(*kernel), RANDOM.standard_normal(shape).astype(np.float32)
    nodes = [
        N("Conv", ["x", "a"], ["h"]), N("Relu", ["h"], ["i"]),
        N("Conv", ["i", "b"], ["y"], group=kernel[0], **attributes),
    ]  # fmt: skip
    model = model_of(nodes, {"x": (FLOAT, list(shape))}, {"y": FLOAT}, {"a": first, "b": second})
    (found,) = run(model, x, "bfloat16", threads)
    assert rounded == (["copied", "made"] if shape[1] % 2 == 0 else ["made"])
    sums, signs = (
        run(model_of(nodes, {"x": (FLOAT, list(shape))}, {"y": FLOAT}, {"a": a, "b": b}), each, "float32")[0]
        for a, b, each in ((first, second, x), (np.abs(first), np.abs(second), np.abs(x)))
    )
    assert (np.abs(found - sums) <= ((1 + UNIT) ** 3 - 1 + 1e-5) * signs).all()
    assert (found != sums).any()


@pytest.mark.parametrize("reader", ["Add", "output", "GlobalAveragePool"])
def test_an_image_that_others_read_stays_float32_for_a_depthwise_convolution(reader: str, rounded: list[str]) -> None:
    constants = {"b": weights(24, 1, 3, 3)}
    nodes = [N("Relu", ["x"], ["h"]), N("Conv", ["h", "b"], ["j"], pads=[1, 1, 1, 1], group=24)]
    more = {"Add": [N("Add", ["j", "h"], ["y"])], "output": [N("Relu", ["j"], ["y"])]}.get(reader)
    nodes += more or [N("GlobalAveragePool", ["h"], ["m"]), N("Add", ["j", "m"], ["y"])]
    outputs = {"y": FLOAT, "h": FLOAT} if reader == "output" else {"y": FLOAT}
    model = model_of(nodes, {"x": (FLOAT, ["N", 24, "H", "W"])}, outputs, constants)
    x = RANDOM.standard_normal((2, 24, 9, 10)).astype(np.float32)
    for wide, narrow in zip(run(model, x, "float32"), run(model, x, "bfloat16"), strict=True):
        np.testing.assert_array_equal(narrow, wide)
    assert not rounded


@pytest.mark.parametrize("window", [3, 9])
@pytest.mark.parametrize("pools", [1, 3])
def test_largest_numbers_of_a_rounded_image_are_stored_rounded_for_the_convolution_that_reads_them(
    pools: int, window: int, rounded: list[str]
) -> None:
    constants = {"a": weights(24, 32, 1, 1), "b": weights(20, 24, 1, 1)}
    nodes = [N("Conv", ["x", "a"], ["h"]), N("Relu", ["h"], ["p0"])]
    for number in range(pools):
        nodes.append(
            N("MaxPool", [f"p{number}"], [f"p{number + 1}"], kernel_shape=[window] * 2, strides=[2, 1],
              pads=[window // 2] * 4)
        )  # fmt: skip
    nodes.append(N("Conv", [f"p{pools}", "b"], ["y"]))
    check(nodes, constants, (1, 32, 17, 19), 4)
    assert rounded == ["copied", "made"]


@pytest.mark.parametrize("reader", ["Relu", "Concat"])
def test_largest_numbers_that_others_read_stay_float32(reader: str, rounded: list[str]) -> None:
    constants = {"a": weights(24, 32, 1, 1), "b": weights(20, 24, 1, 1)}
    nodes = [
        N("Conv", ["x", "a"], ["h"]), N("MaxPool", ["h"], ["p"], kernel_shape=[2, 2]), N("Conv", ["p", "b"], ["y"]),
        N("Relu", ["p"], ["z"]) if reader == "Relu" else N("Concat", ["p", "p"], ["z"], axis=1),
    ]  # fmt: skip
    check(nodes, constants, (1, 32, 16, 18), 4, ("y", "z"))
    assert rounded == ["copied", "copied"]


@pytest.mark.parametrize("pads", [[3, 0, 3, 0], [0, 0, 1, 0], [0, 2, 0, 2]], ids=str)
def test_products_of_pixels_are_stored_inside_a_border_of_rows_or_columns_alone(
    pads: list[int], rounded: list[str], request: pytest.FixtureRequest
) -> None:
    window = (1 + pads[0] + pads[2], 1 + pads[1] + pads[3])  # such as Inception-v3's 7x1 behind 1x1
    nodes = [
        N("Conv", ["x", "a"], ["h"]), N("Relu", ["h"], ["i"]),
        N("Conv", ["i", "b"], ["j"], pads=pads), N("Relu", ["j"], ["y"]),
    ]  # fmt: skip
    check(nodes, {"a": weights(24, 20, 1, 1), "b": weights(33, 24, *window)}, (3, 20, 9, 17), 4, is_open=False)
    has_tiles = request.node.callspec.params["rounded"] == "tiles"
    assert ("bordered" in rounded) is has_tiles


@pytest.mark.parametrize("width", [16, 21])
@pytest.mark.parametrize("group", [1, 24], ids=["1x1", "depthwise"])
def test_tiles_read_images_that_were_stored_inside_their_border(
    width: int, group: int, rounded: list[str], request: pytest.FixtureRequest
) -> None:
    attributes = {"strides": [1, 2], "dilations": [2, 1], "pads": [2, 0, 1, 3]}
    first = weights(24, 24, 1, 1) if group == 1 else weights(24, 1, 3, 3)
    nodes = [
        N("Conv", ["x", "a"], ["h"], group=group, pads=[0, 0, 0, 0] if group == 1 else [1, 1, 1, 1]),
        N("Relu", ["h"], ["i"]),
        N("Conv", ["i", "b"], ["j"], **attributes), N("Add", ["j", "j"], ["y"]),
    ]  # fmt: skip
    check(nodes, {"a": first, "b": weights(33, 24, 3, 3)}, (2, 24, 11, width), 4, is_open=False)
    has_tiles = request.node.callspec.params["rounded"] == "tiles"
    assert ("bordered" in rounded) is has_tiles
    assert "made" in rounded


@pytest.mark.parametrize(
    ("shape", "kernel", "attributes"),
    [
        ((1, 24, 30), (32, 24, 5), {"dilations": [2], "pads": [4, 4]}),
        ((2, 24, 7, 9), (36, 12, 3, 3), {"group": 2, "strides": [2, 1], "pads": [0, 1, 2, 0]}),
        ((1, 20, 40, 1), (32, 20, 7, 1), {}),
        ((1, 32, 12, 12), (40, 32, 3, 3), {"dilations": [3, 3], "auto_pad": "SAME_UPPER"}),
        ((1, 2, 3, 3), (16, 2, 1, 1), {}),
    ],
    ids=["line", "groups", "column", "dilated", "tiny"],
)
def test_each_form_errs_by_the_rounding_of_its_operands(
    shape: tuple[int, ...], kernel: tuple[int, ...], attributes: dict[str, object], rounded: list[str]
) -> None:
    check(
        [N("Conv", ["x", "w", "b"], ["y"], **attributes)],
        {"w": weights(*kernel), "b": weights(kernel[0], 1)[:, 0]},
        shape,
        2,
    )
    assert rounded == ["copied"]


@pytest.mark.parametrize(
    ("shape", "kernel", "attributes"),
    [
        ((2, 24, 5, 7), (24, 18, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((1, 24, 6, 5), (24, 9, 3, 2), {"strides": [1, 2], "group": 2, "output_padding": [0, 1]}),
        ((1, 32, 11), (32, 20, 5), {"dilations": [2]}),
        ((1, 32, 6, 9), (32, 2, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ],
    ids=["doubled", "groups", "line", "few channels"],
)
def test_transposed_ones_read_and_store_rounded_images(
    shape: tuple[int, ...], kernel: tuple[int, ...], attributes: dict[str, object], rounded: list[str]
) -> None:
    outputs = kernel[1] * int(str(attributes.get("group", 1)))
    constants = {
        "w": weights(*kernel),
        "b": weights(outputs, 1)[:, 0],
        "v": weights(32, outputs, *[1] * len(kernel[2:])),
    }
    nodes = [
        N("ConvTranspose", ["x", "w", "b"], ["h"], **attributes),
        N("Relu", ["h"], ["i"]),
        N("Conv", ["i", "v"], ["y"]),
    ]
    check(nodes, constants, shape, 4)
    assert rounded == ["copied", "made"]


def test_parts_of_a_concatenation_and_values_that_are_returned_are_rounded_apart(rounded: list[str]) -> None:
    constants = {"a": weights(16, 8, 3, 3), "b": weights(16, 24, 1, 1), "c": weights(16, 16, 1, 1)}
    nodes = [
        N("Conv", ["x", "a"], ["h"], pads=[1, 1, 1, 1]), N("Concat", ["h", "x"], ["i"], axis=1),
        N("Conv", ["i", "b"], ["j"]), N("Conv", ["h", "c"], ["k"]), N("Add", ["j", "k"], ["y"]),
    ]  # fmt: skip
    check(nodes, constants, (1, 8, 10, 7), 4, ("y", "h"))
    assert set(rounded) == {"copied"}


@pytest.mark.parametrize(
    "kernel", [(16, 3, 3, 3), (8, 8, 1, 1), (32, 1, 3, 3)], ids=["odd channels", "few products", "depthwise"]
)
def test_forms_that_gain_nothing_stay_float32(kernel: tuple[int, ...], rounded: list[str]) -> None:
    groups = 32 if kernel[1] == 1 else 1
    nodes = [N("Conv", ["x", "w"], ["y"], group=groups)]
    model = model_of(nodes, {"x": (FLOAT, ["N", kernel[1] * groups, 9, 9])}, {"y": FLOAT}, {"w": weights(*kernel)})
    x = RANDOM.standard_normal((1, kernel[1] * groups, 9, 9)).astype(np.float32)
    wide, narrow = (run(model, x, precision) for precision in ("float32", "bfloat16"))
    np.testing.assert_array_equal(narrow[0], wide[0])
    assert not rounded


@pytest.mark.parametrize(
    ("shape", "kernel", "attributes"),
    [
        ((2, 3, 21, 37), (40, 3, 7, 7), {"strides": [2, 2], "pads": [3, 3, 3, 3]}),
        ((1, 1, 30, 16), (17, 1, 5, 5), {"auto_pad": "SAME_UPPER"}),
        ((1, 3, 32, 48), (64, 3, 16, 16), {"strides": [16, 16]}),
        ((1, 3, 9, 20), (8, 3, 3, 4), {"dilations": [1, 2], "pads": [0, 2, 1, 3]}),
    ],
    ids=["colors", "gray", "patches", "dilated"],
)
def test_tiles_take_first_layers_of_one_and_three_channels(
    shape: tuple[int, ...], kernel: tuple[int, ...], attributes: dict[str, object], rounded: list[str],
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    if request.node.callspec.params["rounded"] != "tiles":
        pytest.skip("dot products of pairs take even numbers of channels only")
    nodes = [N("Conv", ["x", "w"], ["h"], **attributes), N("Relu", ["h"], ["y"])]
    w, x = weights(*kernel), RANDOM.standard_normal(shape).astype(np.float32)
    model, absolute = (
        model_of(nodes, {"x": (FLOAT, list(shape))}, {"y": FLOAT}, {"w": each}) for each in (w, np.abs(w))
    )
    (exact,), (found,) = run(model, x, "float32"), run(model, x, "bfloat16")
    (size,) = run(absolute, np.abs(x), "float32")
    assert (np.abs(found - exact) <= ((1 + UNIT) ** 2 - 1 + 1e-5) * size).all()
    assert (found != exact).any(), "nothing was rounded"
    assert not rounded  # but by the copy that also makes the border


def test_processors_without_fast_dot_products_convolve_in_float32_and_say_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _tell_what_is_rounded.cache_clear()
    target = llvm_targets.restricted_target("avx512bf16", "amx")
    monkeypatch.setattr(known_host, "known_host", lambda: target)
    model = model_of(
        [N("Conv", ["x", "w"], ["y"])], {"x": (FLOAT, ["N", 32, 9, 9])}, {"y": FLOAT}, {"w": weights(32, 32, 3, 3)}
    )
    x = RANDOM.standard_normal((1, 32, 9, 9)).astype(np.float32)
    wide, narrow = (run(model, x, precision) for precision in ("float32", "bfloat16"))
    np.testing.assert_array_equal(narrow[0], wide[0])
    told = [record.message for record in caplog.records if "precision=bfloat16" in record.message]
    assert len(told) == 1
    assert "everything is computed in float32" in told[0]
