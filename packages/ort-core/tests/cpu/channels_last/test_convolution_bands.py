"""Convolutions that run in bands give the bits that they give one after the other, and are joined where they may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.cpu.codegen.convolutions.convolution_bands import Bands, Stage, bands_kernel, fitting_rows
from ort_core.cpu.codegen.convolutions.convolution_plan import Convolution
from ort_core.cpu.codegen.convolutions.depthwise import is_narrow
from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.jit import assembly
from ort_core.cpu.codegen.machine_code.llvm_targets import target_of
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.lowering.images import bands
from ort_core.cpu.program.program import NativeProgram
from ort_core.tolerances import compare

ARM = target_of("aarch64-unknown-linux-gnu", "cortex-a76", "+neon,+fp-armv8")
AVX2 = target_of("x86_64-pc-windows-msvc", "haswell", "+avx2,+fma")
Join = Callable[[int], None]
KernelsOf = Callable[[], list[str]]


@dataclass(frozen=True)
class Link:
    """A convolution of a chain: its window, and whether it is depthwise."""

    channels: int
    kernel: int = 1
    stride: int = 1
    dilation: int = 1
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    is_depthwise: bool = False
    activation: str | None = "Relu"


WIDE = Link(20)
FILTER = Link(20, 3, pads=(1, 1, 1, 1), is_depthwise=True)
NARROW = Link(7, activation=None)
CHAINS = {
    "bottleneck": [WIDE, FILTER, NARROW],
    "strided": [WIDE, replace(FILTER, stride=2), NARROW],
    "wide_window": [WIDE, replace(FILTER, kernel=5, pads=(2, 2, 2, 2)), NARROW],
    "skipped_rows": [WIDE, Link(20, 1, stride=3, is_depthwise=True), NARROW],
    "dilated": [WIDE, replace(FILTER, dilation=2, pads=(2, 2, 2, 2)), NARROW],
    "uneven_border": [WIDE, replace(FILTER, pads=(0, 2, 2, 0)), Link(5, 2, activation="Sigmoid")],
    "stored_border": [Link(16, 3, stride=2, pads=(1, 1, 1, 1)), replace(FILTER, channels=16), NARROW],
    "two_filters": [replace(FILTER, channels=6), replace(FILTER, channels=6)],
    "two_bottlenecks": [WIDE, FILTER, NARROW, WIDE, replace(FILTER, stride=2), NARROW],
    "windows_without_border": [Link(9, 3), Link(6, 2, stride=2), Link(4, 3)],
}


def chain(links: Sequence[Link], channels: int, *, residual: bool) -> tuple[list[NodeProto], dict[str, np.ndarray]]:
    """Return nodes from ``x`` to ``y``; ``residual`` adds the input in the end."""
    random = np.random.default_rng(7)
    nodes: list[NodeProto] = []
    constants: dict[str, np.ndarray] = {}
    last, inputs = "x", channels
    for number, link in enumerate(links):
        group_inputs = 1 if link.is_depthwise else inputs
        shape = (link.channels, group_inputs, link.kernel, link.kernel)
        scale = 1 / np.sqrt(np.prod(shape[1:]))
        constants[f"w{number}"] = (random.standard_normal(shape) * scale).astype(np.float32)
        constants[f"b{number}"] = random.standard_normal(link.channels).astype(np.float32)
        nodes.append(
            helper.make_node(
                "Conv", [last, f"w{number}", f"b{number}"], [f"c{number}"], pads=link.pads, strides=[link.stride] * 2,
                dilations=[link.dilation] * 2, group=inputs if link.is_depthwise else 1,
            )
        )  # fmt: skip
        last, inputs = f"c{number}", link.channels
        if link.activation:
            nodes.append(helper.make_node(link.activation, [last], [f"a{number}"]))
            last = f"a{number}"
    nodes.append(helper.make_node("Add", [last, "x"], ["y"]) if residual else helper.make_node("Neg", [last], ["y"]))
    return nodes, constants


def session(
    nodes: Sequence[NodeProto], constants: dict[str, np.ndarray], shape: Sequence[int | str], threads: int = 2,
    provider: str = "CPUExecutionProvider",
) -> ort.InferenceSession:  # fmt: skip
    info = helper.make_tensor_value_info
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    ins, outs = [info("x", TensorProto.FLOAT, shape)], [info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(list(nodes), "bands", ins, outs, initializer=initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    return ort.InferenceSession(model.SerializeToString(), options, providers=[provider])


@pytest.fixture
def join(monkeypatch: pytest.MonkeyPatch) -> Join:
    """Return a way to join whatever can be joined, with bands of so many bytes."""

    def allow(nbytes: int) -> None:
        monkeypatch.setattr(bands, "FAR_NBYTES", 0)
        monkeypatch.setattr(bands, "EDGE_NBYTES", 0)
        monkeypatch.setattr(bands, "BAND_NBYTES", nbytes)

    return allow


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> KernelsOf:
    """Return the kernels of all programs built since it was asked last, without their digests."""
    names: list[str] = []
    build = NativeProgram.__init__

    def noted(self: NativeProgram, *arguments: object) -> None:
        build(self, *arguments)  # type: ignore[arg-type]  # passed on as they came
        names.extend(step.kernel.partition("_")[0] for step in self.steps)

    monkeypatch.setattr(NativeProgram, "__init__", noted)

    def taken() -> list[str]:
        found = names[:]
        names.clear()
        return found

    return taken


@pytest.mark.parametrize("nbytes", [1, 12_000], ids=["bands_of_one_row", "bands_of_some_rows"])
@pytest.mark.parametrize("name", CHAINS)
def test_joined_convolutions_give_the_bits_of_separate_ones(
    name: str, nbytes: int, join: Join, kernels: KernelsOf
) -> None:
    nodes, constants = chain(CHAINS[name], 6, residual=False)
    shape = ["N", 6, 17, 15]
    separate = session(nodes, constants, shape)
    assert "bands" not in kernels()
    join(nbytes)
    together = [session(nodes, constants, shape, threads) for threads in (1, 2, 3)]
    assert kernels().count("bands") == 3
    reference = session(nodes, constants, shape, provider="ReferenceExecutionProvider")
    for batch in (1, 3):
        x = np.random.default_rng(batch).standard_normal((batch, 6, 17, 15)).astype(np.float32)
        expected = separate.run(None, {"x": x})[0]
        assert compare(expected, reference.run(None, {"x": x})[0], "approximate").passes
        for threads, each in enumerate(together, 1):
            assert each.run(None, {"x": x})[0].tobytes() == expected.tobytes(), f"batch {batch}, {threads} threads"


def test_residual_of_the_first_stage_is_read_by_the_last(join: Join, kernels: KernelsOf) -> None:
    nodes, constants = chain([WIDE, FILTER, replace(NARROW, channels=6)], 6, residual=True)
    separate = session(nodes, constants, ["N", 6, 9, 11])
    kernels()
    join(5_000)
    together = session(nodes, constants, ["N", 6, 9, 11])
    assert kernels().count("bands") == 1
    x = np.random.default_rng(0).standard_normal((2, 6, 9, 11)).astype(np.float32)
    assert together.run(None, {"x": x})[0].tobytes() == separate.run(None, {"x": x})[0].tobytes()


def test_scale_of_each_image_reaches_the_first_stage(join: Join, kernels: KernelsOf) -> None:
    random = np.random.default_rng(1)
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], group=6, pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["a"], ["s"]),
        helper.make_node("Mul", ["a", "s"], ["m"]),
        helper.make_node("Conv", ["m", "w1"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["y"], group=10, pads=[1, 1, 1, 1]),
    ]
    shapes = {"w0": (6, 1, 3, 3), "w1": (10, 6, 1, 1), "w2": (10, 1, 3, 3)}
    constants = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    separate = session(nodes, constants, ["N", 6, 8, 9])
    kernels()
    join(2_000)
    together = session(nodes, constants, ["N", 6, 8, 9])
    assert kernels().count("bands") == 1
    x = random.standard_normal((3, 6, 8, 9)).astype(np.float32)
    assert together.run(None, {"x": x})[0].tobytes() == separate.run(None, {"x": x})[0].tobytes()


@pytest.mark.parametrize("reason", ["result_is_read_twice", "size_is_unknown", "border_is_stored_between"])
def test_convolutions_stay_apart(reason: str, join: Join, kernels: KernelsOf) -> None:
    links = [WIDE, Link(7, 3, pads=(1, 1, 1, 1)) if reason == "border_is_stored_between" else FILTER]
    nodes, constants = chain(links, 6, residual=False)
    if reason == "result_is_read_twice":
        nodes[-1] = helper.make_node("Add", ["a0", "a1"], ["y"])
    join(5_000)
    session(nodes, constants, ["N", 6, "H" if reason == "size_is_unknown" else 9, 11])
    found = kernels()
    assert found.count("conv") == 2
    assert "bands" not in found


def test_small_results_and_large_weights_keep_convolutions_apart(kernels: KernelsOf) -> None:
    for channels, size, expected in ((16, 96, 1), (16, 32, 0), (1024, 24, 0)):
        links = [Link(channels), Link(channels, 3, pads=(1, 1, 1, 1), is_depthwise=True), Link(channels)]
        nodes, constants = chain(links, 64, residual=False)
        session(nodes, constants, [1, 64, size, size])
        assert kernels().count("bands") == expected, f"{channels} channels of {size}x{size}"


def test_band_takes_the_rows_that_fit() -> None:
    wide = Stage(Convolution(8, 64), False, (40, 40), (40, 40))
    window = Convolution(64, 64, (3, 3), groups=64, border=(1, 1, 1, 1))
    stages = (wide, Stage(window, True, (40, 40), (40, 40)))
    row_nbytes = 4 * 40 * 64
    assert fitting_rows(stages, 0) == 1
    assert fitting_rows(stages, 7 * row_nbytes) == 5
    assert Bands(stages, 5).heights == (7,)
    assert fitting_rows(stages, 1 << 30) == 40
    assert Bands(stages, 40).heights == (40,)


@pytest.mark.parametrize("target", [ARM, AVX2], ids=["ARM", "AVX2"])
def test_bands_compile_for_other_machines(target: Target) -> None:
    window = Convolution(24, 24, (3, 3), groups=24, border=(1, 1, 1, 1), expected_width=12)
    assert is_narrow(window, target)
    stages = (Stage(Convolution(8, 24, expected_width=144), False, (12, 12), (12, 12)),
              Stage(window, True, (12, 12), (12, 12)))  # fmt: skip
    text = module_text(bands_kernel("kernel", Bands(stages, 3), target))
    assert "kernel.stage0" in assembly(text, target, is_vectorized=True)
