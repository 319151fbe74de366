"""The engine cache: found again when all is equal, never when anything that matters differs."""

import fake_cuda
import numpy as np
import onnx
import pytest

from ort_core.testing.claims import typed_model, view_of
from ort_ep_tensorrt.program import program_of
from ort_ep_tensorrt.ranges import Bounds, ShapeRange
from ort_ep_tensorrt.settings import BuildSettings
from ort_ep_tensorrt.store import EngineStore

FIXED = "g (float[2,4] x) => (float[2,4] y) { a = Relu(x)  y = Exp(a) }"


def open_twice(session, first, second, **options):
    with session(first, **options) as one:
        one.run(None, {"x": np.ones((2, 4), np.float32)})
    with session(second, **options) as other:
        return other.run(None, {"x": np.ones((2, 4), np.float32)})[0]


def test_an_engine_is_loaded_in_the_next_session(session, builds):
    open_twice(session, FIXED, FIXED)
    assert len(builds) == 1


def test_another_model_of_the_same_names_gets_an_engine_of_its_own(session, builds):
    found = open_twice(session, FIXED, FIXED.replace("Exp", "Neg"))
    assert len(builds) == 2
    np.testing.assert_array_equal(found, -np.ones((2, 4), np.float32))


def test_nothing_is_kept_when_the_user_says_so(session, builds):
    open_twice(session, FIXED, FIXED, trt_engine_cache_enable="0")
    assert len(builds) == 2


def test_nothing_is_kept_where_the_device_does_not_name_its_hardware(session, builds, monkeypatch):
    monkeypatch.setattr(fake_cuda.FakeCudaApi, "hardware", "")
    open_twice(session, FIXED, FIXED)
    assert len(builds) == 2


def test_a_folder_of_the_users_own_holds_the_engines(session, builds, tmp_path):
    open_twice(session, FIXED, FIXED, trt_engine_cache_path=str(tmp_path / "engines"))
    assert len(builds) == 1
    assert any((tmp_path / "engines").rglob("*"))


def test_an_engine_that_does_not_load_is_built_anew_and_replaced(session, builds, caplog):
    caplog.set_level("INFO", "ort_ep_tensorrt.engines")
    keep = EngineStore.keep_engine
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(EngineStore, "keep_engine", lambda self, bounds, content: keep(self, bounds, b"of another GPU"))
        open_twice(session, FIXED, FIXED)
    assert len(builds) == 2
    assert "magicTag" in caplog.text
    open_twice(session, FIXED, FIXED)
    assert len(builds) == 3, "the second of these sessions finds what the first one wrote"


def test_measurements_of_kernels_are_handed_to_the_next_build(session, builds):
    open_twice(session, FIXED, FIXED.replace("Exp", "Neg"))
    assert [each["timings"] for each in builds] == [b"", b"+"]


def weighted(scale):
    """A store of a claim with a large weight."""
    weight = onnx.numpy_helper.from_array(np.full((32, 32), scale, np.float32), "w")
    graph = onnx.parser.parse_graph("g (float[2,32] x) => (float[2,32] y) { y = MatMul(x, w) }")
    graph.initializer.append(weight)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    view = view_of(typed_model(model))
    return program_of(view, view.nodes)


@pytest.fixture
def digest():
    def of(scale=1.0, version="11.4", hardware="H", low=1, **settings):
        ranges = {"x": ShapeRange((low, 32), (2, 32), (2, 32))}
        store = EngineStore(weighted(scale), BuildSettings(**settings), version, hardware)
        return store.engine_key(Bounds(ranges)).digest()

    return of


def test_equal_facts_give_equal_keys(digest):
    assert digest() == digest()


@pytest.mark.parametrize(
    "other",
    [
        {"scale": 2.0}, {"version": "11.5"}, {"hardware": "another GPU"}, {"low": 2}, {"optimization_level": 5},
        {"workspace_nbytes": 7}, {"uses_sparsity": True}, {"is_hardware_compatible": True}, {"device_id": 1},
    ],
    ids=str,
)  # fmt: skip
def test_whatever_an_engine_depends_on_is_in_its_key(digest, other):
    assert digest() != digest(**other)


def test_where_engines_are_kept_is_not_in_their_key(digest):
    assert digest() == digest(engine_folder="elsewhere", timing_folder="elsewhere", excluded=frozenset({"TopK"}))


def test_large_weights_are_not_copied_into_the_program():
    program = weighted(1.0)
    assert list(program.weights) == ["w"]
    assert len(program.content) < 1024 < program.weights["w"].nbytes
