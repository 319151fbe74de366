"""Passes of users in sessions: every level, ordering, failures, and checking them."""

from __future__ import annotations

import numpy as np
import pytest

import ort_core as ort
from ort_core.errors import Fail, InvalidArgument, InvalidType
from ort_core.onnx_io.save import model_to_bytes
from ort_core.passes.base import Level, Pass, PassContext, PassRecordState
from ort_core.testing import check_pass
from ort_core.testing.models import model_of

BODY = "g (float[N] x) => (float[N] y) { a = Neg (x) y = Abs (a) }"
X = np.array([-1.5, 2.0], np.float32)


class Renaming(Pass):
    """Makes every Neg an Identity: right before Abs, wrong elsewhere."""

    name = "Renaming"

    def __init__(
        self, ran: list[str] | None = None, level: Level = Level.BASIC, name: str = "Renaming", **order
    ) -> None:
        self.ran = ran if ran is not None else []
        self.level, self.name = level, name
        for constraint, names in order.items():
            setattr(self, constraint, names)

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        self.ran.append(self.name)
        for graph in context.graphs():
            for node in graph.nodes:
                if node.op_type == "Neg":
                    node.op_type = "Identity"
                    record.changed("Neg to Identity")


def session_of(*passes: object, body: str = BODY) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.custom_passes = list(passes)
    return ort.InferenceSession(model_to_bytes(model_of(body)), options)


@pytest.mark.parametrize("level", [Level.BASIC, Level.EXTENDED, Level.LAYOUT])
def test_a_pass_of_any_level_runs(level: Level) -> None:
    each = Renaming(level=level)
    session = session_of(each)
    assert each.ran
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], np.abs(X))


def test_a_class_in_place_of_a_pass_is_told_to_lack_its_parentheses() -> None:
    with pytest.raises(InvalidType, match=r"not a Pass \(an instance is needed"):
        session_of(Renaming)
    with pytest.raises(InvalidType, match="holds 3, which is not a Pass"):
        session_of(3)


def test_passes_run_in_the_order_of_their_constraints() -> None:
    ran: list[str] = []
    session_of(Renaming(ran, name="Last", after=("First",)), Renaming(ran, name="First", before=("EliminateIdentity",)))
    assert ran[:2] == ["First", "Last"]
    with pytest.raises(InvalidArgument, match="form a cycle: A, B"):
        session_of(Renaming(name="A", after=("B",)), Renaming(name="B", after=("A",)))


def test_a_pass_that_raises_is_named_and_its_exception_kept() -> None:
    class Broken(Renaming):
        def apply(self, context: PassContext, record: PassRecordState) -> None:
            raise KeyError("weights")

    with pytest.raises(
        Fail, match=r"pass Broken \(.*Broken\) failed: KeyError: 'weights'.*disabled_optimizers"
    ) as caught:
        session_of(Broken(name="Broken"))
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_pass_may_be_left_out_by_name() -> None:
    each = Renaming()
    options = ort.SessionOptions()
    options.custom_passes = [each]
    ort.InferenceSession(model_to_bytes(model_of(BODY)), options, disabled_optimizers=["Renaming"])
    assert not each.ran


def test_check_pass_passes_what_is_right_and_names_what_is_wrong() -> None:
    assert check_pass(Renaming(), model_of(BODY)).counts == {"Neg to Identity": 1}
    with pytest.raises(Fail, match="pass Renaming changed the result: output 'y' is off by up to"):
        check_pass(Renaming(), model_of("g (float[N] x) => (float[N] y) { y = Neg (x) }"), sizes={"N": 3})
    with pytest.raises(Fail, match=r"is off by up to \S+, 2 of its largest value"):
        check_pass(Renaming(), model_of("g (float[1] x) => (float[1] y) { y = Neg (x) }"), share_of_largest=1.9)
    check_pass(Renaming(), model_of("g (float[1] x) => (float[1] y) { y = Neg (x) }"), share_of_largest=2.1)

    class Silent(Renaming):
        def apply(self, context: PassContext, record: PassRecordState) -> None:
            super().apply(context, PassRecordState())

    with pytest.raises(Fail, match="says that it changed nothing, but the model differs"):
        check_pass(Silent(name="Silent"), model_of(BODY))
