"""Lowering: the plans that claims become, as text. Needs no DirectML.

python packages/ort-ep-directml/tests/test_lowering.py     # writes the files in goldens/ anew
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lowered_plans import LEVEL, model_of_text, plans, programs
from lowered_programs import OPSET

from ort_core.testing.claims import typed_model, view_of
from ort_ep_directml.lowering.emission import EmissionState
from ort_ep_directml.lowering.lowering_context import LoweringContext
from ort_ep_directml.lowering.table import RULES
from ort_ep_directml.schema.operators import parse_level

GOLDENS = Path(__file__).with_name("goldens")


def family_text(family: str) -> str:
    """The golden of a family: each graph's name, and its plan."""
    parts = []
    for name, (text, opset) in programs()[family].items():
        parts += [f"# {name}\n", *(plan.text() for plan in plans(text, opset)), "\n"]
    return "".join(parts)


@pytest.mark.parametrize("family", programs())
def test_claims_of_a_family_are_lowered_to_the_plans_that_are_kept(family):
    kept = (GOLDENS / f"{family}.txt").read_text(encoding="utf-8")
    assert family_text(family) == kept, f"goldens/{family}.txt: run this file to write it anew"


def test_pads_beside_a_stated_size_do_not_count():
    text = (
        "g (float[1,1,5] x, float[1,1,4] w) => (float[1,1,9] y) "
        "{ y = ConvTranspose<strides=[2], output_shape=[9], pads=[3,0]>(x, w) }"
    )
    (plan,) = plans(text, OPSET)
    assert "StartPadding=[2], EndPadding=[1]" in plan.text(), plan.text()


def test_every_golden_belongs_to_a_family():
    assert {path.stem for path in GOLDENS.glob("*.txt")} == set(programs())


def test_every_rule_has_a_graph_in_the_goldens():
    text = " ".join(text for members in programs().values() for text, _ in members.values())
    assert not {name for name in RULES if f"{name}(" not in text and f"{name}<" not in text}


def test_an_operator_that_an_older_library_lacks_is_made_of_others():
    (plan,) = plans("g (float[4] x) => (float[4] y) { y = HardSwish(x) }", OPSET, parse_level("6.1"))
    assert [node.kind for node in plan.nodes] == ["ACTIVATION_HARD_SIGMOID", "ELEMENT_WISE_MULTIPLY"]


def test_what_is_only_read_for_its_shape_is_no_part_of_the_plan():
    text = "g (float[n,6] x) => (float[k] y) { s = Shape(x)  p = ReduceProd(s)  z = Reshape(x, p)  y = Neg(z) }"
    (plan,) = plans(text.replace("ReduceProd(s)", "ReduceProd<keepdims=1>(s)"), OPSET)
    assert plan.text() == (
        "input 0 x: float32[4,6]\n"
        "%0: float32[24] = ELEMENT_WISE_NEGATE(Input=input 0 as float32[24])\n"
        "output y: %0 as float32[24]\n"
    )


def test_one_value_given_twice_is_copied_for_the_second_output():
    (plan,) = plans("g (float[4] x) => (float[4] y, float[4] z) { y = Neg(x)  z = Identity(y) }", OPSET)
    assert [port.source.index for port in plan.outputs] == [0, 1]
    assert plan.nodes[1].kind == "ELEMENT_WISE_IDENTITY"


def test_a_weight_that_lies_transposed_is_seen_so_and_not_copied():
    view = view_of(typed_model(model_of_text("g (float[4] x) => (float[4] y) { y = Neg(x) }", OPSET)))
    to = EmissionState(LoweringContext(view, LEVEL), {})
    weight = np.arange(600, dtype=np.float32).reshape(20, 30)
    operand = to.constant(weight.T)
    assert (operand.sizes, operand.strides) == ((30, 20), (1, 30))
    assert np.shares_memory(to.constants[0].array, weight)


if __name__ == "__main__":
    GOLDENS.mkdir(exist_ok=True)
    for family in programs():
        (GOLDENS / f"{family}.txt").write_text(family_text(family), encoding="utf-8")
