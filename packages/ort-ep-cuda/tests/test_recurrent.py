"""Recurrent layers: how many kernels and products they become, which functions they know, what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_provider import session_of

import ort_core as ort
from ort_core.testing.claims import typed_model, view_of
from ort_core.testing.models import model_of
from ort_ep_cuda.lowering.libraries.library_steps import MatrixProduct
from ort_ep_cuda.lowering.lower_partition import lower_partition
from ort_ep_cuda.lowering.program import Launch, Program
from ort_ep_cuda.lowering.recurrent.recurrent_cells import _KNOWN

SMALL, LARGE = 16, 210  # units: the weights of the second are too many for one kernel


def program(units: int, steps: int, *, direction: str = "bidirectional") -> Program:
    """A gated layer with lengths of sequences."""
    count = 2 if direction == "bidirectional" else 1
    body = (
        f"g (float[{steps},2,4] x, float[{count},{3 * units},4] w, float[{count},{3 * units},{units}] r, int32[2] n)"
        f" => (float[{steps},{count},2,{units}] y)"
        f' {{ y = GRU<hidden_size = {units}, direction = "{direction}">(x, w, r, , n) }}'
    )
    view = view_of(typed_model(model_of(body, opsets='"" : 21')))
    shapes = [tuple(value.shape) for value in view.graph.inputs]
    return lower_partition(view.graph, view.context, shapes, {})


def counts(found: Program) -> tuple[int, int]:
    """Products and launches."""
    kinds = [type(step) for step in found.steps]
    return kinds.count(MatrixProduct), kinds.count(Launch)


def test_a_layer_of_few_units_is_walked_by_one_launch_whatever_its_length() -> None:
    for steps in (3, 50):
        products, launches = counts(program(SMALL, steps))
        assert products == 2, "the input's share of each direction"
        assert launches == 2, "the recurrent weights laid out, and the walk"
    assert program(SMALL, 3).kernels() == program(SMALL, 50).kernels()


def test_steps_of_many_units_share_their_kernels() -> None:
    short, long = program(LARGE, 4), program(LARGE, 9)
    assert set(long.kernels()) == set(short.kernels())
    (more_products, more_launches), (products, launches) = counts(long), counts(short)
    assert more_products - products == 2 * 2 * 5, "two products in each step of each direction"
    assert more_launches > launches


@pytest.mark.parametrize("dtype", ["float", "double"])
def test_every_activation_computes_what_the_reference_does(dtype: str, gpu) -> None:
    names = sorted(_KNOWN.values())
    nodes = [f'y{n} = RNN<hidden_size = 5, activations = ["{name}"]>(x, w, r)' for n, name in enumerate(names)]
    outputs = ", ".join(f"{dtype}[3,1,2,5] y{n}" for n in range(len(names)))
    body = f"g ({dtype}[3,2,4] x, {dtype}[1,5,4] w, {dtype}[1,5,5] r) => ({outputs}) {{ {' '.join(nodes)} }}"
    random, kind = np.random.default_rng(3), np.float32 if dtype == "float" else np.float64
    shapes = {"x": (3, 2, 4), "w": (1, 5, 4), "r": (1, 5, 5)}
    feeds = {key: (random.standard_normal(shape) / 2).astype(kind) for key, shape in shapes.items()}
    reference = ort.InferenceSession(model_of(body, opsets='"" : 21'), providers=["ReferenceExecutionProvider"])
    for name, found, wanted in zip(names, session_of(body).run(None, feeds), reference.run(None, feeds), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_function_that_a_layer_does_not_know_is_refused_by_name(gpu) -> None:
    body = (
        "g (float[3,2,4] x, float[1,5,4] w, float[1,5,5] r) => (float[3,1,2,5] y)"
        ' { y = RNN<hidden_size = 5, activations = ["Gelu"]>(x, w, r) }'
    )
    with pytest.raises(ort.errors.Fail, match=r"RNN.*activations must name functions of .*found 'Gelu'"):
        session_of(body, strict=False)
