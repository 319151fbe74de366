"""Data: values in every form in which callers hand them over, and memory that a provider promises to use."""

from __future__ import annotations

import numpy as np

import ort_core as ort
from ort_conformance.check import CannotJudge, promise, require
from ort_conformance.comparison import find_difference
from ort_conformance.profile import Feature
from ort_conformance.subject import Subject
from ort_conformance.suites.sample_graphs import CHAIN, CHAIN_BEHIND_A_PIECE, PRODUCT
from ort_core.testing.claims import new_run_state, request_for

SUITE = "data"


@promise(SUITE)
def bound_arrays_give_the_same_as_feeds(subject: Subject) -> None:
    """IOBinding over arrays computes what ``run`` computes, and writes into a bound output."""
    feeds = PRODUCT.feeds()
    with subject.session(PRODUCT.model()) as session:
        (expected,) = session.run(None, feeds)
        binding = session.io_binding()
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        target = np.full((4, 3), np.nan, np.float32)
        binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(target))
        session.run_with_iobinding(binding)
        _require_same(target, expected, "the bound output")
        binding.clear_binding_outputs()
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        _require_same(binding.copy_outputs_to_cpu()[0], expected, "the output that the run allocated")


@promise(SUITE)
def arrays_of_any_layout_are_read_rightly(subject: Subject) -> None:
    """Transposed, strided, reversed, read-only, broadcast and unaligned inputs give what a contiguous copy gives."""
    x = CHAIN.feeds()["x"]
    wide = np.zeros((4, 16), np.float32)
    wide[:, ::2] = x
    raw = np.zeros(x.nbytes + 1, np.uint8)
    unaligned = raw[1:].view(np.float32).reshape(x.shape)
    unaligned[...] = x
    read_only = x.copy()
    read_only.flags.writeable = False
    forms = {
        "transposed": np.ascontiguousarray(x.T).T, "strided": wide[:, ::2], "unaligned": unaligned,
        "reversed": x[::-1].copy()[::-1], "read-only": read_only, "Fortran order": np.asfortranarray(x),
    }  # fmt: skip
    with subject.session(CHAIN.model()) as session:
        (expected,) = session.run(None, {"x": x})
        for name, array in forms.items():
            _require_same(session.run(None, {"x": array})[0], expected, f"a {name} input")
        row = np.broadcast_to(x[:1], x.shape)
        _require_same(session.run(None, {"x": row})[0], session.run(None, {"x": row.copy()})[0], "a broadcast input")
    # Feeds come in order; what a kernel of another provider gives, such as a piece of a sequence, may not.
    halves = np.concatenate([x, np.full_like(x, 7.0)], axis=1)
    with subject.session(CHAIN_BEHIND_A_PIECE.model()) as session:
        _require_same(session.run(None, {"x": halves})[0], expected, "a piece of a wider tensor")


@promise(SUITE)
def values_pass_through_dlpack(subject: Subject) -> None:
    """An OrtValue from DLPack is taken as input, and an output goes out through DLPack."""
    x = CHAIN.feeds()["x"]
    with subject.session(CHAIN.model()) as session:
        (expected,) = session.run(None, {"x": x})
        (found,) = session.run_with_ort_values(None, {"x": ort.OrtValue.from_dlpack(x)})
        shared = np.from_dlpack(found)  # type: ignore[arg-type]  # numpy names a narrower capsule than the protocol
        _require_same(shared, expected, "the output through DLPack")


@promise(SUITE)
def outputs_share_no_memory(subject: Subject) -> None:
    """Outputs share memory neither with an input nor with one another, and may be written."""
    x = CHAIN.feeds()["x"]
    with subject.session(CHAIN.model()) as session:
        (first,), (second,) = session.run(None, {"x": x}), session.run(None, {"x": x})
    for other, name in ((x, "the input"), (second, "the output of another run")):
        require(not np.may_share_memory(np.asarray(first), other), f"an output shares memory with {name}")
    require(np.asarray(first).flags.writeable, "an output is read-only")


@promise(SUITE, needs=Feature.FILLS_BUFFERS)
def partitions_fill_the_buffers_that_they_are_handed(subject: Subject) -> None:
    """A partition that plans an output's shape writes into the buffer of that shape, and keeps it in its place."""
    view = subject.view(CHAIN.model())
    claims = [claim for claim in subject.claims(view) if len(claim.nodes) == len(view.nodes)]
    if not claims:
        raise CannotJudge("the provider does not claim the chain of operators whole")
    x = CHAIN.feeds()["x"]
    compiled = subject.new_provider().compile(request_for(view, claims[0]))
    plan = compiled.plan([x.shape], {})
    free: list[object] = [None]
    compiled.run(plan, [x], free, new_run_state())
    target = np.full(x.shape, np.nan, np.float32)
    outputs: list[object] = [target]
    compiled.run(plan, [x], outputs, new_run_state())
    require(outputs[0] is target, "the buffer was replaced by another array")
    _require_same(target, free[0], "the buffer")
    compiled.close()


@promise(SUITE, needs=Feature.DEVICE_MEMORY)
def device_memory_keeps_values(subject: Subject) -> None:
    """A value copied to the device and back is the same, and a session takes it as input."""
    x = CHAIN.feeds()["x"]
    value = ort.OrtValue.ortvalue_from_numpy(x, subject.profile.device, 0)
    require(value.device_name() == subject.profile.device, f"the value lies on {value.device_name()!r}")
    _require_same(value.numpy(), x, "the copy back")
    with subject.session(CHAIN.model()) as session:
        (expected,) = session.run(None, {"x": x})
        (found,) = session.run_with_ort_values(None, {"x": value})
        _require_same(found.numpy(), expected, "the result of an input on the device")


def _require_same(found: object, expected: object, what: str) -> None:
    difference = find_difference([found], [expected], "approximate", what)
    require(difference is None, str(difference))
