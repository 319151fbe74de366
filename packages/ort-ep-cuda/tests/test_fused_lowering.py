"""What is given to libraries that fuse: which nodes become part of a product, which do not, in which layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from emulated_gpu import EmulatedGpu
from emulated_provider import EmulatedCudaProvider, session_of
from goldens import program_of
from graph_cases import CASES
from library_numbers import FuseEverything

from ort_core.plugin import Claim
from ort_core.testing.claims import request_for, typed_model, view_of
from ort_core.testing.models import model_of
from ort_ep_cuda.capability import find_capability
from ort_ep_cuda.lowering.libraries.library_steps import (
    Activation,
    AnyLibraryStep,
    Convolution,
    MatrixProduct,
    ScaledAttention,
)
from ort_ep_cuda.lowering.lower_partition import lower_partition
from ort_ep_cuda.lowering.program import Launch, Program


class Choosy(FuseEverything):
    """Libraries that refuse some activations."""

    def __init__(self, *refused: str) -> None:
        super().__init__()
        self.refused = refused

    def refuse(self, step: AnyLibraryStep) -> str | None:
        super().refuse(step)
        kind = step.epilogue.activation.kind if step.epilogue.activation is not None else None
        return f"no {kind}" if kind in self.refused else None


def fused(name: str, libraries: FuseEverything | None = None) -> Program:
    """Return the program of a case."""
    (case,) = (case for case in CASES if case.name == name)
    view = view_of(typed_model(model_of(case.body, opsets=f'"" : {case.opset}')))
    (claim,) = (found for found in find_capability(view, lambda op_type: None) if isinstance(found, Claim))
    request = request_for(view, claim)
    shapes = [array.shape for array in case.feeds.values()]
    return lower_partition(request.graph, request.context, shapes, {}, libraries=libraries or FuseEverything())


def library_steps(name: str) -> list[AnyLibraryStep]:
    """Return the library calls of a case that is run by a session."""
    (case,) = (case for case in CASES if case.name == name)
    gpu = EmulatedCudaProvider.device = EmulatedGpu(collects=True, libraries=FuseEverything())
    session_of(case.body, opset=case.opset).run(None, case.feeds)
    return gpu.library_steps


def kinds(steps: Sequence[object]) -> list[type]:
    return [type(step) for step in steps]


def test_bias_and_activation_are_part_of_the_product() -> None:
    (step,) = fused("product_with_bias_and_relu").steps
    assert str(step).endswith("@ %2[1, 4, 6]:[0, 6, 1] + bias %3[6]:[1] then relu")
    assert step.out.shape == (1, 6, 6), "rows of all batches are one product"


def test_a_residual_is_added_by_the_product_and_the_softmax_reads_one_tensor() -> None:
    product, softmax = fused("product_with_bias_and_residual").steps
    assert product.epilogue.bias is not None
    assert product.epilogue.addend is not None
    assert softmax.reads == (product.out.buffer,)


def test_a_batch_of_products_shares_a_bias() -> None:
    (step,) = library_steps("batched_product_with_bias")
    assert (step.out.shape, step.epilogue.bias.shape, step.epilogue.activation.kind) == ((2, 3, 6), (6,), "gelu_tanh")


def test_an_addend_of_gemm_keeps_its_factor() -> None:
    (step,) = fused("gemm_with_a_scaled_addend").steps
    assert (step.epilogue.beta, step.epilogue.addend.shape) == (0.25, (1, 3, 6))


def test_one_of_two_products_adds_the_other() -> None:
    first, second = fused("sum_of_two_products").steps
    assert kinds((first, second)) == [MatrixProduct, MatrixProduct]
    assert second.epilogue.addend.buffer == first.out.buffer or first.epilogue.addend is not None


def test_what_no_epilogue_holds_is_a_kernel_behind_the_product() -> None:
    assert kinds(fused("sums_that_no_epilogue_holds").steps) == [MatrixProduct, Launch] * 3


def test_a_refused_activation_leaves_the_bias_in_the_product() -> None:
    libraries = Choosy("relu")
    product, kernel = fused("product_with_bias_and_relu", libraries).steps
    assert product.epilogue.bias is not None
    assert product.epilogue.activation is None
    assert isinstance(kernel, Launch)
    assert [step.epilogue.activation is None for step in libraries.asked] == [False, True], "the longest is asked first"


def test_a_residual_block_is_two_convolutions() -> None:
    first, second = fused("residual_block").steps
    assert kinds((first, second)) == [Convolution, Convolution]
    assert [step.epilogue.activation.kind for step in (first, second)] == ["relu", "relu"]
    assert second.epilogue.addend.shape == second.out.shape


def test_channels_lie_last_between_convolutions_and_are_turned_at_the_borders() -> None:
    steps = fused("residual_block", FuseEverything(is_channels_last=True)).steps
    convolutions = [step for step in steps if isinstance(step, Convolution)]
    for step in convolutions:
        assert {view.strides[1] for view in (step.x, step.out, step.weights)} == {1}
    assert convolutions[1].x == convolutions[0].out, "nothing is copied in between"
    assert kinds(steps).count(Launch) == 3, "image and result of the graph, and weights of 3x3, which are inputs here"


def test_constant_weights_are_sent_in_the_order_that_the_library_reads() -> None:
    EmulatedCudaProvider.device = EmulatedGpu(libraries=FuseEverything(is_channels_last=True))
    weights = np.arange(36, dtype=np.float32).reshape(2, 2, 3, 3)
    numbers = ", ".join(str(number) for number in weights.reshape(-1))
    body = f"g (float[1,2,5,4] x) => (float[1,2,3,2] y) <float[2,2,3,3] w = {{{numbers}}}> {{ y = Conv(x, w) }}"
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 4)).astype("f4")
    found = session_of(body).run(None, {"x": x})[0]
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    np.testing.assert_allclose(found, np.einsum("nchwij,mcij->nmhw", windows, weights), rtol=1e-5)
    (step,) = EmulatedCudaProvider.device.library_steps
    assert step.weights.strides == (18, 1, 6, 2)


def test_attention_of_16_bits_is_one_call_that_writes_merged_heads() -> None:
    (step,) = fused("attention_of_16_bits").steps
    assert isinstance(step, ScaledAttention)
    (merged,) = library_steps("multi_head_attention")
    assert merged.bias.shape == (2, 1, 5, 7)
    assert merged.out.strides == (160, 8, 32, 1)


def test_rows_that_a_mask_leaves_without_keys_are_cleared_behind_the_call() -> None:
    bias, call, emptiness, cleared = fused("attention_with_mask").steps
    assert isinstance(call, ScaledAttention)
    assert call.bias.buffer in bias.writes
    assert set(emptiness.writes) < set(cleared.reads)
    assert cleared.writes == (call.out.buffer,)


def test_a_normalization_has_its_kernel_as_a_rival_where_nothing_stands_in_front() -> None:
    layer, rms, instance = fused("normalizations_of_plain_tensors").steps
    assert [step.kind for step in (layer, rms, instance)] == ["layer", "rms", "instance"]
    assert {step.own.kernel for step in (layer, rms, instance)} <= set(
        fused("normalizations_of_plain_tensors").kernels()
    )
    assert layer.layout() == replace(layer, own=None).layout()


def test_an_exact_gelu_is_part_of_the_product() -> None:
    (step,) = fused("product_with_an_exact_gelu").steps
    assert step.epilogue.activation == Activation("gelu")


@pytest.mark.parametrize("name", ["product_with_bias_and_relu", "convolution_with_bias_and_relu"])
def test_nothing_is_fused_where_no_library_does(name) -> None:
    step, *_ = program_of(name).steps
    assert str(step).count("bias") == 0


def test_sizes_are_computed_while_the_program_is_built() -> None:
    program = fused("sizes_that_are_computed")
    assert {buffer.name for buffer in program.buffers if buffer.content is not None} >= {"n"}
    assert [output.shape for output in program.outputs] == [(3, 8), (2,), (2, 3, 4)]
