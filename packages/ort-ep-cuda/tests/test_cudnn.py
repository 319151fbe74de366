"""Calls of cuDNN on a library that is made up: argument by argument what graphs are made of, which plans run.

``cudnn_without_device.py`` gives the same steps to the real library.
"""

from __future__ import annotations

import types
from dataclasses import replace

import pytest
from test_lt_products import FakeStream

from ort_core.plugin import EPFail
from ort_core.plugin.cache import ArtefactCache
from ort_core.plugin.ir import DataType
from ort_ep_cuda import _sdk
from ort_ep_cuda.engines.cudnn_plans import CudnnPlans, tuning_key
from ort_ep_cuda.engines.tuning import Tuner
from ort_ep_cuda.lowering.libraries.library_steps import (
    NO_EPILOGUE,
    Activation,
    Convolution,
    Epilogue,
    MatrixProduct,
    Normalization,
    ScaledAttention,
    Window,
)
from ort_ep_cuda.lowering.values.views import TensorView
from ort_ep_cuda.options import CudaOptions


class Unsupported(Exception):
    """As cudnnGraphNotSupportedError: no RuntimeError."""


class FakeTensor:
    """A tensor or result; what is set is noted."""

    def __init__(self, library: FakeCudnn, name: str) -> None:
        self._library, self.name = library, name

    def __getattr__(self, called: str):
        def note(*values):
            self._library.calls.append((f"{self.name}.{called}", {"": values}))
            return self

        return note


class FakeGraph:
    """A graph that notes every operation, and has plans."""

    def __init__(self, library: FakeCudnn) -> None:
        self._library = library

    def __getattr__(self, called: str):
        def note(*values, **named):
            shown = {key: value.name if isinstance(value, FakeTensor) else value for key, value in named.items()}
            self._library.calls.append((called, {**shown, "": values}))
            result = FakeTensor(self._library, named.get("name", called) if called == "tensor" else called)
            several = {"sdpa": (result, None), "rmsnorm": (result, None)}
            several |= dict.fromkeys(("layernorm", "instancenorm"), (result, None, None))
            return several.get(called, result)

        return note

    def check_support(self) -> None:
        if self._library.reason:
            raise Unsupported(self._library.reason)

    def get_execution_plan_count(self) -> int:
        return len(self._library.plans)

    def get_plan_name_at_index(self, index: int) -> str:
        return self._library.plans[index]

    def build_plan_at_index(self, index: int) -> None:
        if self._library.plans[index] in self._library.broken:
            raise ValueError(f"plan {index} is excluded")
        self._library.calls.append(("build", {"": (self._library.plans[index],)}))

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return 64 * index

    def execute_plan_at_index(self, places, scratch, index, handle) -> None:
        assert handle == 9
        assert scratch
        shown = {tensor.name: address for tensor, address in places.items()}
        self._library.calls.append(("execute", {"plan": self._library.plans[index], "places": shown}))


class FakeCudnn:
    """The library."""

    data_type = types.SimpleNamespace(FLOAT="f32", HALF="f16", BFLOAT16="bf16")
    scalar_type = types.SimpleNamespace(RUNTIME_PARAM="runtime")
    norm_forward_phase = types.SimpleNamespace(INFERENCE="inference")
    heur_mode = types.SimpleNamespace(A="A", FALLBACK="F")
    numerical_note = types.SimpleNamespace(
        TENSOR_CORE="tc", DOWN_CONVERT_INPUTS="down", REDUCED_PRECISION_REDUCTION="reduced"
    )

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict]] = []
        self.plans, self.broken = ["first", "second", "third", "fourth"], set()
        self.reason = ""

    def pygraph(self, **named) -> FakeGraph:
        self.calls.append(("pygraph", named))
        return FakeGraph(self)

    def named(self, name: str) -> list[dict]:
        return [values for called, values in self.calls if called == name]


class Stream(FakeStream):
    """A stream with a handle of cuDNN."""

    cudnn_handle = 9


@pytest.fixture
def cudnn(monkeypatch) -> FakeCudnn:
    """The library that is asked."""
    library = FakeCudnn()
    monkeypatch.setattr(_sdk, "cudnn", lambda: library)
    monkeypatch.setattr(_sdk, "library_errors", lambda: (RuntimeError, ValueError, Unsupported))
    return library


def convolution(
    dtype: DataType = DataType.FLOAT, order: tuple[int, ...] = (), *, is_transposed: bool = False, buffer: int = 0,
    batch: int = 2, epilogue: Epilogue = NO_EPILOGUE,
) -> Convolution:  # fmt: skip
    shapes = (batch, 4, 6, 5), (batch, 6, 6, 5), (4, 3, 3, 3)
    out, x, weights = (TensorView.in_order(buffer, dtype, shape, order) for shape in shapes)
    return Convolution(out, x, weights, Window((1, 1), (0, 1), (1, 1), (2, 1)), 2, is_transposed, epilogue)


def epilogue_of(step: Convolution, *, bias: bool = True, addend: bool = False, kind: str = "relu") -> Epilogue:
    vector = TensorView.dense(7, step.out.dtype, (4,)) if bias else None
    return Epilogue(vector, step.out if addend else None, 1.0, Activation(kind, 0.0, 6.0) if kind else None)


def attention(dtype: DataType = DataType.FLOAT16, *, bias: bool = False, is_causal: bool = False) -> ScaledAttention:
    q = TensorView.dense(0, dtype, (2, 5, 4, 8)).permuted((0, 2, 1, 3))
    k, v = (TensorView.dense(buffer, dtype, (2, 2, 7, 8)) for buffer in (1, 2))
    mask = TensorView.dense(3, dtype, (1, 1, 5, 7)) if bias else None
    return ScaledAttention(q, q, k, v, 0.25, mask, is_causal)


def rows_of(dtype: DataType = DataType.FLOAT16, kind: str = "layer") -> Normalization:
    x, factors = TensorView.dense(0, dtype, (6, 40)), TensorView.dense(1, dtype, (40,))
    return Normalization(x, x, factors, None if kind == "rms" else factors, 0.25, kind)


def plans(tmp_path, **options: object) -> CudnnPlans:
    tuner = Tuner((("cudnn", "1"),), (RuntimeError, Unsupported), ArtefactCache(tmp_path))
    return CudnnPlans(CudaOptions(**options), tuner, lambda: 9)


def test_a_convolution_is_described_with_its_strides(cudnn, tmp_path) -> None:
    assert plans(tmp_path).refuse(convolution(DataType.FLOAT16, (0, 2, 3, 1))) is None
    (graph,) = cudnn.named("pygraph")
    assert graph == {
        "io_data_type": "f16", "intermediate_data_type": "f32", "compute_data_type": "f32", "handle": 9,
    }  # fmt: skip
    image, weights = cudnn.named("tensor")
    assert image == {"name": "x", "dim": [2, 6, 6, 5], "stride": [180, 1, 30, 6], "data_type": "f16", "": ()}
    assert weights == {"name": "weights", "dim": [4, 3, 3, 3], "stride": [27, 1, 9, 3], "data_type": "f16", "": ()}
    assert cudnn.named("conv_fprop") == [
        {"image": "x", "weight": "weights", "pre_padding": [1, 1], "post_padding": [0, 1], "stride": [1, 1],
         "dilation": [2, 1], "": ()},
    ]  # fmt: skip
    assert cudnn.named("conv_fprop.set_dim") == [{"": ([2, 4, 6, 5],)}]
    assert cudnn.named("conv_fprop.set_stride") == [{"": ([120, 1, 20, 4],)}]


def test_bias_residual_and_activation_are_operations_behind_it(cudnn, tmp_path) -> None:
    plain = convolution(DataType.FLOAT16, (0, 2, 3, 1))
    step = convolution(DataType.FLOAT16, (0, 2, 3, 1), epilogue=epilogue_of(plain, addend=True, kind="clip"))
    found = plans(tmp_path)
    assert found.refuse(step) is None
    assert [name for name, _ in cudnn.calls if name in ("conv_fprop", "bias", "add", "relu")] == [
        "conv_fprop", "bias", "add", "relu",
    ]  # fmt: skip
    assert cudnn.named("tensor")[2] == {
        "name": "bias", "dim": [1, 4, 1, 1], "stride": [4, 1, 4, 4], "data_type": "f16", "": (),
    }  # fmt: skip
    assert cudnn.named("relu") == [{"input": "add", "lower_clip": 0.0, "upper_clip": 6.0, "": ()}]
    found.run(step, (1, 2, 3, 4, 5), Stream())
    places = {"x": 1, "weights": 2, "bias": 3, "addend": 4, "relu": 5}
    assert cudnn.named("execute")[-1]["places"] == places


@pytest.mark.parametrize(
    ("kind", "operation"),
    [("relu", "relu"), ("gelu", "gelu"), ("gelu_tanh", "gelu_approx_tanh"), ("sigmoid", "sigmoid"), ("tanh", "tanh")],
)
def test_each_activation_has_its_operation(cudnn, tmp_path, kind, operation) -> None:
    plans(tmp_path, use_tf32=True).refuse(convolution(epilogue=epilogue_of(convolution(), kind=kind)))
    assert cudnn.named(operation)[0]["input"] == "bias"


def test_one_axis_of_space_gets_another_of_a_single_place(cudnn, tmp_path) -> None:
    out, x, weights = (TensorView.dense(0, DataType.FLOAT, shape) for shape in ((2, 4, 9), (2, 6, 9), (4, 3, 3)))
    plans(tmp_path).refuse(Convolution(out, x, weights, Window((1,), (1,), (1,), (1,)), 2))
    assert cudnn.named("conv_fprop")[0]["pre_padding"] == [0, 1]
    assert cudnn.named("conv_fprop.set_dim") == [{"": ([2, 4, 1, 9],)}]
    assert cudnn.named("conv_fprop.set_stride") == [{"": ([36, 9, 9, 1],)}]


def test_a_transposed_convolution_is_the_gradient_of_one(cudnn, tmp_path) -> None:
    plans(tmp_path).refuse(convolution(is_transposed=True))
    assert {"loss", "filter"} <= set(cudnn.named("conv_dgrad")[0])


def test_attention_is_one_operation_over_strided_heads(cudnn, tmp_path) -> None:
    found = plans(tmp_path)
    assert found.refuse(attention(bias=True, is_causal=True)) is None
    assert cudnn.named("tensor")[0]["stride"] == [160, 8, 32, 1]
    assert cudnn.named("sdpa") == [
        {"q": "q", "k": "k", "v": "v", "bias": "bias", "attn_scale": 0.25, "is_inference": True,
         "use_causal_mask": True, "name": "attention", "": ()},
    ]  # fmt: skip
    assert cudnn.named("sdpa.set_stride") == [{"": ([160, 8, 32, 1],)}]
    found.run(attention(bias=True, is_causal=True), (1, 2, 3, 4, 5), Stream())
    assert cudnn.named("execute")[-1]["places"] == {"q": 1, "k": 2, "v": 3, "bias": 4, "sdpa": 5}


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (convolution(epilogue=Epilogue(activation=Activation("clip", -1.0, 1.0))), "clips from zero"),
        (convolution(epilogue=Epilogue(addend=convolution().out, beta=0.5)), "as they are"),
        (MatrixProduct(*[TensorView.dense(0, DataType.FLOAT, (1, 2, 2))] * 3, alpha=0.5), "as they are"),
        (replace(rows_of(), bias=None), "with a bias only"),
    ],
)
def test_a_form_that_has_no_graph_is_refused_without_asking(cudnn, tmp_path, step, words) -> None:
    assert words in plans(tmp_path).refuse(step)
    assert cudnn.calls == []


def test_what_the_librarys_check_declines_is_refused_with_its_words_and_cannot_be_run(cudnn, tmp_path) -> None:
    cudnn.reason = "no engine for this\nand more"
    found = plans(tmp_path)
    assert found.refuse(convolution()) == "cuDNN: no engine for this"
    with pytest.raises(EPFail, match="no engine for this"):
        found.run(convolution(), (1, 2, 3), Stream())
    assert len(cudnn.named("pygraph")) == 1, "it is asked once"


def test_a_step_is_described_once_for_all_places_and_streams(cudnn, tmp_path) -> None:
    found = plans(tmp_path)
    for buffer in (0, 5):
        found.run(convolution(buffer=buffer), (1, 2, 3), Stream())
    assert len(cudnn.named("pygraph")) == 1
    assert [values[""][0] for values in cudnn.named("build")] == ["first", "second", "third"]


def test_the_fastest_of_three_plans_runs_and_is_built_alone_the_next_time(cudnn, tmp_path) -> None:
    plans(tmp_path).run(convolution(), (1, 2, 3), Stream(9, 3, 3, 3, 9, 1, 1, 1, 9, 2, 2, 2))
    assert cudnn.named("execute")[-1]["plan"] == "second"
    cudnn.calls.clear()
    found, stream = plans(tmp_path), Stream()
    for _ in range(2):
        found.run(convolution(), (1, 2, 3), stream)
    assert [values[""][0] for values in cudnn.named("build")] == ["second"]
    assert [values["plan"] for values in cudnn.named("execute")] == ["second"] * 2
    assert stream.measured == 0


def test_batches_of_one_power_of_two_are_tuned_once(cudnn, tmp_path) -> None:
    found, stream = plans(tmp_path), Stream()
    for batch in (5, 6, 8):
        found.run(convolution(batch=batch), (1, 2, 3), stream)
    assert stream.measured == 12
    assert tuning_key(convolution(batch=8), found._options) != tuning_key(convolution(batch=9), found._options)


def test_plans_that_are_excluded_or_do_not_build_are_passed_over(cudnn, tmp_path) -> None:
    cudnn.broken = {"first", "third"}
    plans(tmp_path).run(convolution(), (1, 2, 3), Stream())
    assert [values[""][0] for values in cudnn.named("build")] == ["second", "fourth"]
    cudnn.broken = set(cudnn.plans)
    with pytest.raises(EPFail, match=r"builds no plan for convolution.*is excluded"):
        plans(tmp_path).run(convolution(batch=9), (1, 2, 3), Stream())


@pytest.mark.parametrize(("search", "count"), [("DEFAULT", 1), ("HEURISTIC", 3), ("EXHAUSTIVE", 4)])
def test_the_option_says_how_many_plans_are_tried(cudnn, tmp_path, search, count) -> None:
    plans(tmp_path, cudnn_conv_algo_search=search).run(convolution(), (1, 2, 3), Stream())
    assert len(cudnn.named("build")) == count


@pytest.mark.parametrize(("kind", "has_addend"), [("gelu", False), ("clip", False), ("relu", True), ("", True)])
def test_exact_float32_is_fused_with_a_bias_and_relu_only(cudnn, tmp_path, kind, has_addend) -> None:
    step = convolution(epilogue=epilogue_of(convolution(), kind=kind, addend=has_addend))
    assert "16 bits or TF32 only" in plans(tmp_path).refuse(step)
    assert plans(tmp_path, use_tf32=True).refuse(step) is None
    assert plans(tmp_path).refuse(convolution(epilogue=epilogue_of(convolution()))) is None


def test_float32_excludes_engines_that_round_unless_tf32_is_allowed(cudnn, tmp_path) -> None:
    plans(tmp_path).refuse(convolution())
    assert cudnn.named("deselect_numeric_notes") == [{"": (["tc", "down", "reduced"],)}]
    cudnn.calls.clear()
    plans(tmp_path, use_tf32=True).refuse(convolution())
    plans(tmp_path).refuse(convolution(DataType.FLOAT16))
    assert cudnn.named("deselect_numeric_notes") == []


def test_an_option_bounds_scratch_memory(cudnn, tmp_path) -> None:
    plans(tmp_path, cudnn_conv_use_max_workspace=False).refuse(convolution())
    assert cudnn.named("deselect_workspace_greater_than") == [{"": (32 << 20,)}]


@pytest.mark.parametrize(("kind", "operation"), [("layer", "layernorm"), ("rms", "rmsnorm")])
def test_rows_are_normalized_as_images_of_one_place(cudnn, tmp_path, kind, operation) -> None:
    found, step = plans(tmp_path), rows_of(kind=kind)
    assert found.refuse(step) is None
    x, scale, *bias = cudnn.named("tensor")
    assert (x["dim"], x["stride"]) == ([6, 40, 1, 1], [40, 1, 1, 1])
    assert (scale["dim"], scale["stride"]) == ([1, 40, 1, 1], [40, 1, 1, 1])
    assert [each["name"] for each in bias] == ([] if kind == "rms" else ["bias"])
    assert cudnn.named("tensor_scalar") == [{"": (0.25, "runtime")}]
    (called,) = cudnn.named(operation)
    assert (called["input"], called["scale"], called["epsilon"]) == ("x", "scale", "tensor_scalar")
    assert called["norm_forward_phase"] == "inference"
    found.run(step, range(1, 4 if kind == "rms" else 5), Stream())
    assert cudnn.named("execute")[-1]["places"][operation] == (3 if kind == "rms" else 4)


def test_channels_of_images_are_normalized_as_they_lie(cudnn, tmp_path) -> None:
    x, factors = TensorView.dense(0, DataType.FLOAT, (2, 3, 4, 5)), TensorView.dense(1, DataType.FLOAT, (3,))
    assert plans(tmp_path).refuse(Normalization(x, x, factors, factors, 1e-5, "instance")) is None
    assert cudnn.named("tensor")[0]["stride"] == [60, 20, 5, 1]
    assert cudnn.named("instancenorm.set_dim") == [{"": ([2, 3, 4, 5],)}]


def test_a_generated_kernel_that_is_faster_runs_in_place_of_the_librarys_plans_and_is_remembered(
    cudnn, tmp_path
) -> None:
    runs: list[str] = []
    times = (9, 3, 3, 3, 9, 2, 2, 2, 9, 4, 4, 4, 9, 1, 1, 1)  # of three plans, then of the kernel
    plans(tmp_path).run(rows_of(), (1, 2, 3, 4), Stream(*times), lambda: runs.append("own"))
    assert len(runs) == 5
    cudnn.calls.clear()
    stream = Stream()
    plans(tmp_path).run(rows_of(), (1, 2, 3, 4), stream, lambda: runs.append("own"))
    assert (len(runs), stream.measured, cudnn.named("build")) == (6, 0, [])


def test_a_plan_that_is_faster_runs_in_place_of_the_generated_kernel(cudnn, tmp_path) -> None:
    runs: list[str] = []
    times = (9, 3, 3, 3, 9, 2, 2, 2, 9, 4, 4, 4, 9, 5, 5, 5)
    plans(tmp_path).run(rows_of(), (1, 2, 3, 4), Stream(*times), lambda: runs.append("own"))
    assert (len(runs), cudnn.named("execute")[-1]["plan"]) == (4, "second")


def test_a_kernel_runs_where_no_plan_builds(cudnn, tmp_path) -> None:
    cudnn.broken, runs = set(cudnn.plans), []
    plans(tmp_path).run(rows_of(), (1, 2, 3, 4), Stream(), lambda: runs.append("own"))
    assert runs


def test_a_product_with_an_exact_gelu_is_one_graph(cudnn, tmp_path) -> None:
    a, out = (TensorView.dense(0, DataType.FLOAT16, shape) for shape in ((3, 2, 4), (3, 2, 6)))
    shared = replace(TensorView.dense(1, DataType.FLOAT16, (3, 4, 6)), strides=(0, 1, 4))
    bias = TensorView.dense(2, DataType.FLOAT16, (6,))
    step = MatrixProduct(out, a, shared, 1.0, Epilogue(bias, out, 1.0, Activation("gelu")))
    found = plans(tmp_path)
    assert found.refuse(step) is None
    _, b, vector, addend = cudnn.named("tensor")
    assert (b["dim"], b["stride"]) == ([1, 4, 6], [24, 1, 4])
    assert (vector["dim"], addend["dim"]) == ([1, 1, 6], [3, 2, 6])
    assert [name for name, _ in cudnn.calls if name in ("matmul", "add", "gelu")] == ["matmul", "add", "add", "gelu"]
    found.run(step, (1, 2, 3, 4, 5), Stream())
    assert cudnn.named("execute")[-1]["places"] == {"a": 1, "b": 2, "bias": 3, "addend": 4, "gelu": 5}
