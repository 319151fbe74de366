"""Errors: wrong use is refused by name, bad data is an error and no crash, and the session lives on."""

from __future__ import annotations

import numpy as np

import ort_core as ort
from ort_conformance.check import promise, require
from ort_conformance.comparison import find_difference
from ort_conformance.subject import Subject
from ort_conformance.suites.model_text import OPSET, node_model
from ort_conformance.suites.sample_graphs import PRODUCT
from ort_core.errors import OrtError, RunTerminated

SUITE = "errors"


@promise(SUITE)
def wrong_feeds_are_refused_by_name(subject: Subject) -> None:
    """A missing, unknown, ill-typed or ill-shaped input is an error that names it; the session then runs as before."""
    feeds = PRODUCT.feeds()
    wrong = {
        "w": [{"x": feeds["x"]}, {**feeds, "w": feeds["w"].astype(np.float64)}, {**feeds, "w": feeds["w"][:, :, None]}],
        "v": [{**feeds, "v": feeds["x"]}],
    }
    with subject.session(PRODUCT.model()) as session:
        expected = session.run(None, feeds)
        for name, bad in wrong.items():
            for each in bad:
                _require_error(session, each, name)
        difference = find_difference(session.run(None, feeds), expected, "approximate")
    require(difference is None, f"after the errors: {difference}")


@promise(SUITE)
def sizes_that_do_not_fit_are_an_error(subject: Subject) -> None:
    """Sizes that contradict each other only at run time are an error, and the session lives on."""
    model = node_model("MatMul", {"a": np.zeros((2, 3), np.float32), "b": np.zeros((3, 4), np.float32)}, {})
    for info in model.graph.input:
        for index, dim in enumerate(info.type.tensor_type.shape.dim):
            dim.dim_param = f"{info.name}{index}"
    good = {"a": np.ones((2, 3), np.float32), "b": np.ones((3, 4), np.float32)}
    with subject.session(model) as session:
        session.run(None, good)
        _require_error(session, {**good, "b": np.ones((5, 4), np.float32)})
        require(np.asarray(session.run(None, good)[0]).tolist() == [[3.0] * 4] * 2, "wrong results after an error")


@promise(SUITE)
def an_index_out_of_bounds_is_an_error(subject: Subject) -> None:
    """Gather with an index outside of its data is an error: never a crash, never other memory."""
    feeds: dict[str, np.ndarray] = {"x": np.arange(12, dtype=np.float32).reshape(4, 3), "i": np.array([1, 3], np.int64)}
    with subject.session(node_model("Gather", feeds, {}, opset=OPSET)) as session:
        session.run(None, feeds)
        for index in (4, -5, 2**40, -(2**62)):
            _require_error(session, {**feeds, "i": np.array([1, index], np.int64)})


@promise(SUITE)
def a_terminated_run_stops(subject: Subject) -> None:
    """A run whose options ask for termination raises RunTerminated; the next one is complete."""
    feeds = PRODUCT.feeds()
    options = ort.RunOptions()
    options.terminate = True
    with subject.session(PRODUCT.model()) as session:
        try:
            session.run(None, feeds, options)
        except RunTerminated:
            session.run(None, feeds)
            return
    require(False, "the run went on")


@promise(SUITE)
def a_closed_session_refuses_to_run(subject: Subject) -> None:
    """Closing twice does nothing, and a closed session raises an error."""
    session = subject.session(PRODUCT.model())
    session.run(None, PRODUCT.feeds())
    session.close()
    session.close()
    _require_error(session, PRODUCT.feeds())


def _require_error(session: ort.InferenceSession, feeds: dict[str, np.ndarray], name: str = "") -> None:
    shapes = {key: (str(array.dtype), array.shape) for key, array in feeds.items()}
    try:
        session.run(None, feeds)
    except OrtError as error:
        require(name in str(error), f"the error for {shapes} does not name {name!r}: {error}")
        return
    require(False, f"no error for {shapes}")
