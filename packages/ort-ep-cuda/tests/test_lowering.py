"""What is sent to the device: programs and kernels are those of the goldens, and are the same for every size."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from emulated_provider import session_of
from goldens import FOLDER, NAMES, program_of, text_of
from graph_cases import CASES

import ort_core as ort
from ort_core.plugin import Claim, InvalidArgument
from ort_core.testing.claims import request_for, typed_model, view_of
from ort_core.testing.models import model_of
from ort_ep_cuda.capability import find_capability
from ort_ep_cuda.lowering.libraries.library_steps import Convolution, MatrixProduct
from ort_ep_cuda.lowering.lower_partition import lower_partition
from ort_ep_cuda.lowering.movement.movement import reshape_target
from ort_ep_cuda.lowering.operators import OPERATORS
from ort_ep_cuda.lowering.program import Launch


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_is_lowered_to_its_golden(name: str) -> None:
    golden = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    assert text_of(program_of(name)) == golden, "python packages/ort-ep-cuda/tests/goldens.py accepts the change"


def test_every_golden_is_compared() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(NAMES)


def _kinds(name: str) -> list[type]:
    return [type(step) for step in program_of(name).steps]


def test_a_chain_of_elementwise_operators_is_one_kernel() -> None:
    assert _kinds("chain_of_elementwise") == [Launch]


def test_a_transpose_that_an_elementwise_operator_reads_costs_no_copy() -> None:
    assert _kinds("transpose_read_by_elementwise") == [Launch]


def test_attention_is_two_products_and_a_softmax_that_scales() -> None:
    assert _kinds("attention_as_products") == [MatrixProduct, Launch, MatrixProduct]


def test_bias_and_activation_of_a_convolution_are_one_kernel_behind_it() -> None:
    assert _kinds("convolution_with_bias_and_relu") == [Convolution, Launch]


def test_other_sizes_of_the_same_rank_have_the_same_kernels() -> None:
    (case,) = (case for case in CASES if case.name == "layer_norm")
    view = view_of(typed_model(model_of(case.body, opsets=f'"" : {case.opset}')))
    (claim,) = (found for found in find_capability(view, lambda op_type: None) if isinstance(found, Claim))
    request = request_for(view, claim)
    programs = [lower_partition(request.graph, request.context, [(n, 200), (200,), (200,)], {}) for n in (2, 5, 4096)]
    first, *others = ([kernel.name for kernel in program.kernels()] for program in programs)
    assert others == [first, first]


@pytest.mark.parametrize(
    "text",
    [
        "g (float[1,1,n] x, float[1,1,3] w) => (float[1,1,m] y) { y = Conv(x, w) }",
        "g (float[1,1,n] x) => (float[1,1,m] y) { y = MaxPool<kernel_shape=[4]>(x) }",
    ],
)
def test_windows_that_do_not_fit_are_refused_when_the_sizes_are_known(text: str) -> None:
    view = view_of(typed_model(model_of(text)))
    (claim,) = (found for found in find_capability(view, lambda op_type: None) if isinstance(found, Claim))
    request = request_for(view, claim)
    shapes = {"x": (1, 1, 2), "w": (1, 1, 3)}
    with pytest.raises(InvalidArgument, match="does not fit into axis 0 of"):
        lower_partition(request.graph, request.context, [shapes[value.name] for value in request.graph.inputs], {})


def test_the_documentation_names_every_operator_that_is_lowered() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "providers" / "cuda.md"
    if not page.is_file():
        pytest.skip("the page is not part of the package")
    table = page.read_text(encoding="utf-8").partition("| computed by |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", table)) == {name for _, name in OPERATORS}


@pytest.mark.parametrize(
    ("shape", "wanted", "is_zero_allowed"),
    [
        ((0, 3), (0, -1), False), ((0, 3, 2), (0, -1), False), ((4, 0, 2), (0, -1), False), ((2, 0, 3), (0, 3), True),
        ((2, 0, 3), (3, 0, 2), True), ((0, 5), (-1, 5), False), ((0, 6), (-1, 2, 3), False), ((3, 0), (-1, 7), False),
        ((2, 0, 3), (4, 0), True), ((2, 3), (0, -1), False), ((2, 3, 4), (-1, 0), False),
    ],
)  # fmt: skip
def test_a_tensor_without_elements_is_reshaped_as_the_kernels_of_numpy_do(shape, wanted, is_zero_allowed):
    model = model_of(
        f"g (float[{', '.join('abcd'[: len(shape)])}] x) => (float[{', '.join('pqrs'[: len(wanted)])}] y) "
        f"<int64[{len(wanted)}] w = {{{', '.join(map(str, wanted))}}}> "
        f"{{ y = Reshape<allowzero = {int(is_zero_allowed)}>(x, w) }}"
    )
    session = ort.InferenceSession(model, providers=["ReferenceExecutionProvider"])
    assert reshape_target(shape, wanted, is_zero_allowed) == session.run(None, {"x": np.ones(shape, "f4")})[0].shape


@pytest.mark.parametrize(
    ("opset", "text", "why"),
    [
        (7, "g (float[2,3,4] x, float[3,4] s) => (float[a,b,c] y) { y = BatchNormalization<spatial=0>(x, s, s, s, s) }",
         "statistics of every place"),
        (18, "g (int32[3] x) => (int32[1] y) { y = ReduceProd(x) }", "ReduceProd of int32"),
    ],
)  # fmt: skip
def test_what_kernels_would_compute_otherwise_is_left(opset, text, why):
    report = session_of(text, opset=opset, strict=False).explain()
    assert why in str(report)
