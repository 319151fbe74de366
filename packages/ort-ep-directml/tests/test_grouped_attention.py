"""GroupQueryAttention: one claim with what is around it, and on the real DirectML what onnxruntime computes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime as peer
import pytest
from rig_dml import RigDmlProvider
from rig_provider import session_of

from ort_core.plugin import Claim, Rejection
from ort_core.testing.claims import typed_model, view_of
from ort_core.testing.models import model_of
from ort_core.tolerances import compare
from ort_ep_directml.capability import find_capability

LEVEL, HEADS, SHARED, SIZE = 0x6400, 4, 2, 32
WIDTH = HEADS * SIZE
MASKED = """
    sum = ReduceSum<keepdims=0>(mask, axis)  less = Sub(sum, one)  last = Cast<to=6>(less)
    sizes = Shape(mask)  size = Gather(sizes, one)  total = Cast<to=6>(size)
"""


def decoder(attributes: str = "", *, pairs: int = 16, dtype: str = "float", rows: int = 24, past: str = "P") -> str:
    """Return a graph whose lengths come of a mask, as exporters of language models write it."""
    numbers = ",".join(f"{number:.3f}" for number in np.cos(np.arange(rows * pairs) / 7))
    columns = (HEADS + 2 * SHARED) * SIZE
    caches = ", ".join(f"{dtype}[B,{SHARED},{past},kv] past_{name}" for name in ("k", "v"))
    presents = ", ".join(f"{dtype}[B,{SHARED},T,kv] {name}" for name in ("k", "v"))
    turned = f"do_rotary=1{', ' if attributes else ''}{attributes}" if pairs else attributes
    tables = ", angles, angles" if pairs else ""
    angles = f", {dtype}[{rows},{pairs}] angles = {{{numbers}}}" if pairs else ""
    return (
        f"g ({dtype}[B,S,{columns}] x, int64[B,T] mask, {caches}) => ({dtype}[B,S,{WIDTH}] y, {presents}) "
        f"<int64[1] axis = {{1}}, int64 one = {{1}}{angles}> {{ {MASKED} z = Relu(x) "
        f"y, k, v = com.microsoft.GroupQueryAttention<num_heads={HEADS}, kv_num_heads={SHARED}"
        f"{', ' if turned else ''}{turned}>(z, , , past_k, past_v, last, total{tables}) }}"
    )


def fed(valid: Sequence[int], fresh: int, past: int, total: int, dtype: str = "f4") -> dict[str, np.ndarray]:
    random, batch = np.random.default_rng(5), len(valid)
    mask = (np.arange(total) < np.array(valid)[:, None]).astype(np.int64)
    x = random.standard_normal((batch, fresh, (HEADS + 2 * SHARED) * SIZE))
    caches = {name: random.standard_normal((batch, SHARED, past, SIZE)) for name in ("past_k", "past_v")}
    return {"x": x.astype(dtype), "mask": mask, **{name: cache.astype(dtype) for name, cache in caches.items()}}


def answers(text: str) -> tuple[list[list[str]], dict[str, str]]:
    found = find_capability(view_of(typed_model(model_of(text, opsets='"" : 21, "com.microsoft" : 1'))), LEVEL)
    claims = [[node.op_type for node in each.nodes] for each in found if isinstance(each, Claim)]
    return claims, {each.node.op_type: each.reason for each in found if isinstance(each, Rejection)}


def test_all_is_one_claim_but_the_lengths_which_are_looked_at_before_it_runs() -> None:
    claims, reasons = answers(decoder())
    assert claims == [["Shape", "Gather", "Cast", "Relu", "GroupQueryAttention"]]
    assert reasons.keys() == {"ReduceSum", "Sub", "Cast"}
    assert all("looked at before" in reason for reason in reasons.values())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (decoder("smooth_softmax=1"), "a smooth softmax"),
        (decoder("causal=0"), "causal=0"),
        (decoder().replace("size = Gather(sizes, one)", "size = ReduceMax<keepdims=0>(sum)"), "follow from shapes"),
        (decoder(pairs=0).replace("last = Cast<to=6>(less)", "f = Cast<to=1>(less) last = Cast<to=6>(f)"), "nobody"),
    ],
    ids=["a smooth softmax", "all keys", "a total that is data", "lengths of floats"],
)
def test_other_forms_are_refused_with_the_reason(text: str, why: str) -> None:
    claims, reasons = answers(text)
    assert not any("GroupQueryAttention" in claim for claim in claims)
    assert why in reasons["GroupQueryAttention"]


CASES = {
    "one token of each sequence": (decoder(), fed([6, 4], 1, 5, 6)),
    "a prompt without a past": (decoder(), fed([4], 4, 0, 4)),
    "some tokens behind a past": (decoder(), fed([8], 3, 5, 8)),
    "caches of a fixed capacity": (decoder(past="T"), fed([3, 7], 1, 8, 8)),
    "a window": (decoder("local_window_size=4"), fed([12], 3, 9, 12)),
    "bounded scores": (decoder("softcap=5.0"), fed([6], 1, 5, 6)),
    "pairs side by side of a part of each head": (decoder("rotary_interleaved=1", pairs=8), fed([11], 2, 9, 11)),
    "heads that are not turned": (decoder(pairs=0), fed([11], 2, 9, 11)),
    "float16": (decoder(dtype="float16", pairs=0), fed([6], 1, 5, 6, "f2")),
}


@pytest.mark.parametrize("name", CASES)
def test_the_real_directml_computes_what_onnxruntime_does(rig, name: str) -> None:
    text, feeds = CASES[name]
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> {text}')
    own = session_of(model.SerializeToString(), strict=False)
    assert [node.op_type for node in own.explain().on(RigDmlProvider.name)][-1] == "GroupQueryAttention"
    expected = peer.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    for found, right in zip(own.run(None, feeds), expected, strict=True):
        facts = compare(found, right, "approximate")
        assert facts.passes, facts


def test_lengths_beyond_the_caches_are_an_error_in_a_sentence(rig) -> None:
    session = session_of(decoder(), strict=False)
    with pytest.raises(Exception, match=r"seqlens_k\[0\] = -1 is out of range"):
        session.run(None, fed([0], 1, 5, 6))
