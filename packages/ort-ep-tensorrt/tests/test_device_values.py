"""Values on the device: bound inputs are read, and bound outputs filled, where they lie."""

import fake_cuda
import numpy as np
import pytest

import ort_core as ort

CHAIN = "g (float[n,4] x) => (float[n,4] y) { a = Relu(x)  y = Neg(a) }"


@pytest.fixture
def copies(monkeypatch):
    """Count copies by kind."""
    found = []
    for kind in ("copy_from_host", "copy_to_host", "copy_within"):
        original = getattr(fake_cuda.FakeCudaApi, kind)

        def counted(self, source, target, stream=None, kind=kind, original=original):
            found.append(kind)
            original(self, source, target, stream)

        monkeypatch.setattr(fake_cuda.FakeCudaApi, kind, counted)
    return found


@pytest.mark.parametrize(
    ("options", "expected"), [({}, []), ({"trt_cuda_graph_enable": "1"}, ["copy_within", "copy_within"])]
)
def test_values_on_the_device_stay_there(session, copies, options, expected):
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    with session(CHAIN, **options) as opened:
        binding = opened.io_binding()
        on_device = ort.OrtValue.ortvalue_from_numpy(x, "cuda", 0)
        target = ort.OrtValue.ortvalue_from_numpy(np.zeros_like(x), "cuda", 0)
        binding.bind_ortvalue_input("x", on_device)
        binding.bind_ortvalue_output("y", target)
        copies.clear()
        opened.run_with_iobinding(binding)
        assert copies == expected, "with graphs the addresses are the slot's own"
        np.testing.assert_array_equal(target.numpy(), -np.maximum(x, 0))


def test_an_output_in_new_memory_of_the_device_is_not_fetched(session, copies):
    x = np.ones((2, 4), np.float32)
    with session(CHAIN) as opened:
        binding = opened.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_output("y", "cuda")
        opened.run_with_iobinding(binding)
        assert copies.count("copy_to_host") == 0
        np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), -x)


def test_what_one_partition_makes_for_the_next_stays_on_the_device(session, copies):
    text = "g (float[4,4] x) => (float[4,4] y) { a = Relu(x)  d = Det(a)  b = Neg(a)  y = Mul(b, d) }"
    x = np.diag(np.arange(1, 5, dtype=np.float32))
    with session(text, is_strict=False) as opened:
        claimed = [[node.op_type for node in nodes] for nodes in opened.explain().partitions().values()]
        assert claimed == [["Relu", "Neg"], ["Det"], ["Mul"]]
        copies.clear()
        np.testing.assert_allclose(opened.run(None, {"x": x})[0], -x * 24, rtol=1e-6)
    assert sorted(copies) == ["copy_from_host"] * 2 + ["copy_to_host"] * 2, "x, a, d and y: b is bound where it lies"


def test_values_of_the_host_pass_memory_that_the_device_reads_by_itself(session, monkeypatch):
    taken, sources = [], []
    original, copied = fake_cuda.FakeCudaApi.staging, fake_cuda.FakeCudaApi.copy_from_host

    def staging(self, nbytes):
        taken.append(original(self, nbytes))
        return taken[-1]

    def copy_from_host(self, source, target, stream=None):
        sources.append(source)
        copied(self, source, target, stream)

    monkeypatch.setattr(fake_cuda.FakeCudaApi, "staging", staging)
    monkeypatch.setattr(fake_cuda.FakeCudaApi, "copy_from_host", copy_from_host)
    with session(CHAIN) as opened:
        for rows in (5, 3, 5):
            known = len(taken)
            x = np.linspace(-1, 1, 4 * rows, dtype=np.float32).reshape(4, rows).T
            np.testing.assert_array_equal(opened.run(None, {"x": x})[0], -np.maximum(x, 0))
    assert len(taken) == known, "a size that was there before takes no more"
    assert all(any(np.shares_memory(source, memory) for memory in taken) for source in sources)
