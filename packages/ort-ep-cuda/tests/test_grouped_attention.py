"""GroupQueryAttention over a buffer of caches that past and present share, as decoders on a device have it."""

from __future__ import annotations

import numpy as np
import pytest
from device_arrays import content, on_device
from emulated_gpu import EmulatedGpu
from emulated_provider import EmulatedCudaProvider, session_of

import ort_core as ort
from ort_core.plugin import InvalidArgument
from ort_core.testing.cuda_emulation import find_compiler
from ort_ep_cuda.lowering.attention.grouped_attention import TOO_LONG

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler to emulate kernels with")

ROOM, SIZE, SHARED, HEADS = 12, 8, 2, 4
BODY = f"""g (
    float[1,R,{HEADS * SIZE}] q, float[1,R,{SHARED * SIZE}] k, float[1,R,{SHARED * SIZE}] v,
    float[1,{SHARED},{ROOM},{SIZE}] past_key, float[1,{SHARED},{ROOM},{SIZE}] past_value, int32[1] lengths, int32 total
) => (
    float[1,R,{HEADS * SIZE}] y, float[1,{SHARED},{ROOM},{SIZE}] key, float[1,{SHARED},{ROOM},{SIZE}] value
) {{
    y, key, value = com.microsoft.GroupQueryAttention<num_heads = {HEADS}, kv_num_heads = {SHARED}>(
        q, k, v, past_key, past_value, lengths, total)
}}"""


def attention(q, keys, values):
    """What queries [R, heads, size] take in float64: the last sees all keys [M, T, size], each one before one less."""
    rows, total = q.shape[0], keys.shape[1]
    keys, values = (np.repeat(each.astype(np.float64), HEADS // SHARED, 0) for each in (keys, values))
    scores = np.einsum("rhs,hts->hrt", q.astype(np.float64), keys) / np.sqrt(SIZE)
    scores[:, np.arange(total) > np.arange(total - rows, total)[:, None]] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hrt,hts->rhs", weights / weights.sum(-1, keepdims=True), values)


class Decoder:
    """A session, caches on the device, and what they should hold."""

    def __init__(self, body: str = BODY) -> None:
        self.rng = np.random.default_rng(3)
        self.session = session_of(body)
        self.shape = (1, SHARED, ROOM, SIZE)
        self.caches = [on_device(np.full(self.shape, np.nan, np.float32)) for _ in range(2)]
        self.wanted = [np.full(self.shape, np.nan, np.float32) for _ in range(2)]
        self.length = 0

    def step(self, rows: int, *, lengths: int | None = None, rest: float | None = None) -> None:
        """Run new tokens, past and present in the same place, and compare all with numpy.

        ``rest`` is what lies behind the keys then.
        """
        q, k, v = (self.rng.standard_normal((1, rows, heads * SIZE), np.float32) for heads in (HEADS, SHARED, SHARED))
        self.length += rows
        bound = self.session.io_binding()
        for name, array in zip("qkv", (q, k, v), strict=True):
            bound.bind_cpu_input(name, array)
        bound.bind_cpu_input("lengths", np.array([self.length - 1 if lengths is None else lengths], np.int32))
        bound.bind_cpu_input("total", np.array(self.length, np.int32))
        for name, cache in zip(("key", "value"), self.caches, strict=True):
            bound.bind_ortvalue_input(f"past_{name}", ort.OrtValue(cache))
            bound.bind_ortvalue_output(name, ort.OrtValue(cache))
        for output in self.session.get_outputs():
            if output.name not in ("key", "value"):
                bound.bind_output(output.name, "cpu")
        self.session.run_with_iobinding(bound)
        for wanted, new in zip(self.wanted, (k, v), strict=True):
            new = new.reshape(rows, SHARED, SIZE).transpose(1, 0, 2)
            wanted[0, :, self.length - rows : self.length] = new
        if rest is not None:
            self.wanted[0][0, :, self.length :] = rest
        seen = [wanted[0, :, : self.length] for wanted in self.wanted]
        y = next(value for value in bound.get_outputs() if value.shape() == list(q.shape)).numpy()
        expected = attention(q.reshape(rows, HEADS, SIZE), *seen).reshape(y.shape)
        np.testing.assert_allclose(y, expected, rtol=2e-5, atol=2e-5)
        for cache, wanted in zip(self.caches, self.wanted, strict=True):
            np.testing.assert_array_equal(content(cache), wanted)


@pytest.fixture
def device(monkeypatch):
    gpu = EmulatedGpu()
    monkeypatch.setattr(EmulatedCudaProvider, "device", gpu, raising=False)
    return gpu


def test_caches_in_a_shared_buffer_are_written_where_they_are_new_and_nowhere_else(device):
    decoder = Decoder()
    for rows in (3, 2, 1, 1, 1, 1):
        decoder.step(rows)  # the rest of the buffer holds no numbers, and keeps what it holds
    assert device.copies_within == 0
    assert device.captures == 1


def test_a_cache_that_something_else_reads_is_continued_elsewhere(device):
    more = "float[1,R,32] y,", "float[1,R,32] y, float[1,2,12,8] old,"
    body = BODY.replace(*more).replace("y, key, value = com", "old = Mul(past_key, past_key) y, key, value = com")
    decoder = Decoder(body)
    decoder.caches = [on_device(np.ones(decoder.shape, np.float32)) for _ in range(2)]
    decoder.wanted = [np.ones(decoder.shape, np.float32) for _ in range(2)]
    decoder.step(2, rest=0.0)
    assert device.copies_within == 2


def test_a_length_beyond_the_cache_is_an_error(device):
    decoder = Decoder()
    with pytest.raises(InvalidArgument, match=TOO_LONG):
        decoder.step(1, lengths=ROOM)
    with pytest.raises(InvalidArgument, match=TOO_LONG):
        decoder.step(1, lengths=-1)


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("k", (1, 2, 16), "key and value shall have same dim 1|do not belong together"),
        ("past_key", (1, 2, 9, 8), "past_key and past_value should have same"),
        ("lengths", (2,), "has 2 elements, expected 1"),
        ("cosines", (12, 4), "angles"),
        ("cosines", (12, 5), "angles"),
        ("bias", (1, 3, 1, 12), "attention_bias is"),
        ("sink", (3,), "is not 4 numbers"),
        ("total", 15, "total_sequence_length is 15"),
        ("total", 0, "total_sequence_length is 0"),
    ],
)
def test_inputs_that_do_not_belong_together_are_an_error(device, name, shape, words):
    shapes = {
        "q": (1, 1, 32), "k": (1, 1, 16), "v": (1, 1, 16), "past_key": (1, 2, 12, 8), "past_value": (1, 2, 12, 8),
        "lengths": (1,), "total": (), "cosines": (12, 3), "sines": (12, 3), "bias": (1, 4, 1, 12), "sink": (4,),
    }  # fmt: skip
    feeds = {each: np.zeros(size, np.float32) for each, size in shapes.items()}
    feeds["lengths"], feeds["total"] = np.array([3], np.int32), np.array(4, np.int32)
    if name == "total":
        feeds[name] = np.array(shape, np.int32)
    elif name == "lengths":
        feeds[name] = np.full(shape, 3, np.int32)
    else:
        feeds[name] = np.zeros(shape, np.float32)
    types = {"lengths": "int32", "total": "int32"}

    def open_axes(each: str) -> str:
        axes = ",".join(f"{each}{axis}" for axis in range(len(shapes[each])))
        return f"{types.get(each, 'float')}[{axes}]" if axes else types.get(each, "float")

    inputs = ", ".join(f"{open_axes(each)} {each}" for each in shapes)
    for fixed, text in (("q", "1,R,32"), ("k", "1,R,16"), ("v", "1,R,16")):
        inputs = inputs.replace(f"float[{fixed}0,{fixed}1,{fixed}2]", f"float[{text}]")
    session = session_of(f"""g ({inputs}) => (float[a,b,c] y, float[d,e,f,h] key, float[i,j,k1,l] value) {{
        y, key, value = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2, do_rotary = 1>(
            q, k, v, past_key, past_value, lengths, total, cosines, sines, , bias, sink) }}""")
    with pytest.raises(InvalidArgument, match=words):
        session.run(None, feeds)
