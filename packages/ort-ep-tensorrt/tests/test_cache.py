"""The engine cache: found again when all is equal, never when anything that matters differs."""

import dataclasses

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


@pytest.mark.parametrize(("is_forced", "expected"), [("0", [b"", b""]), ("1", [b"", b"+"])])
def test_measurements_of_another_gpu_count_where_the_user_says_so(session, builds, monkeypatch, is_forced, expected):
    for hardware, text in (("one GPU", FIXED), ("another GPU", FIXED.replace("Exp", "Neg"))):
        monkeypatch.setattr(fake_cuda.FakeCudaApi, "hardware", hardware)
        with session(text, trt_force_timing_cache=is_forced):
            pass
    assert [each["timings"] for each in builds] == expected
    assert {each["ignores_mismatch"] for each in builds} == {is_forced == "1"}


def test_no_measurements_are_kept_when_the_user_says_so(session, builds):
    open_twice(session, FIXED, FIXED.replace("Exp", "Neg"), trt_timing_cache_enable="0")
    assert [each["timings"] for each in builds] == [None, None]


def test_measurements_have_a_folder_of_their_own(session, builds, tmp_path):
    for text in (FIXED, FIXED.replace("Exp", "Neg")):
        with session(text, trt_timing_cache_path=str(tmp_path / "timings")):
            pass
    assert [each["timings"] for each in builds] == [b"", b"+"]
    assert any((tmp_path / "timings").rglob("*"))


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


def model(alpha=0.1, opset=21, operator="LeakyRelu", size=2, large=None, small=None, name="w"):
    """A model with a large weight, which stays outside of the program, and a small one inside."""
    graph = onnx.parser.parse_graph(
        f"g (float[{size},32] x) => (float[{size},32] y) "
        f"{{ a = MatMul(x, {name})  b = Add(a, s)  y = {operator}<alpha={alpha}>(b) }}"
    )
    weights = {name: np.ones((32, 32), np.float32), "s": np.ones(32, np.float32)}
    for key, place in ((name, large), ("s", small)):
        if place is not None:
            weights[key][place] = 1 + np.finfo(np.float32).eps  # the last bit of one element
    graph.initializer.extend(onnx.numpy_helper.from_array(array, each) for each, array in weights.items())
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10)


def key_of(version="TensorRT 11.4.0", hardware="H", low=1, settings=None, values=(), **facts):
    view = view_of(typed_model(model(**facts)))
    store = EngineStore(program_of(view, view.nodes), settings or BuildSettings(), version, hardware)
    bounds = Bounds({"x": ShapeRange((low, 32), (2, 32), (2, 32))}, {"v": ShapeRange(values, values, values)})
    return store.engine_key(bounds).digest()


MUTATIONS = {
    "one bit of a large weight": {"large": (17, 3)},
    "one bit of a small weight": {"small": (31,)},
    "an attribute": {"alpha": 0.2},
    "an operator": {"operator": "Elu"},
    "an opset": {"opset": 16},
    "a size": {"size": 3},
    "a weight's name": {"name": "v"},
    "a range of sizes": {"low": 2},
    "a range of values": {"values": (4,)},
    "the version of the SDK": {"version": "TensorRT 11.4.1"},
    "the other SDK": {"version": "TensorRT-RTX 11.4.0"},
    "the GPU or its driver": {"hardware": "H, driver 2"},
}


def test_no_two_models_share_an_engine():
    """Each of these has a key of its own, and so has each pair of them."""
    keys = {name: key_of(**changed) for name, changed in MUTATIONS.items()}
    keys["nothing"] = key_of()
    assert key_of() == keys["nothing"], "equal models have equal keys"
    pairs = [{**MUTATIONS[a], **MUTATIONS[b]} for a in MUTATIONS for b in MUTATIONS if a < b]
    distinct = [each for each in pairs if len(each) == 2 and "version" not in each]
    found = [*keys.values(), *(key_of(**each) for each in distinct)]
    assert len(set(found)) == len(found)


OTHER = {bool: True, int: 4, type(None): 4, str: "float16", tuple: ("x",), frozenset: frozenset({"TopK"})}
NOT_BUILT_IN = {  # settings that change no engine, with what they change
    "stream": "where it runs", "min_subgraph_size": "what is claimed", "excluded": "what is claimed",
    "captures_graphs": "how it runs", "ranges": "which bounds are asked for, and these are in the key",
    "caches_engines": "what is kept", "engine_folder": "where", "caches_timings": "what is kept",
    "timing_folder": "where", "accepts_foreign_timings": "how fast it is built", "kernel_folder": "where",
}  # fmt: skip


@pytest.mark.parametrize("field", [each.name for each in dataclasses.fields(BuildSettings)])
def test_every_setting_is_in_the_key_or_changes_no_engine(field, tmp_path):
    default = getattr(BuildSettings(), field)
    if field == "plugin_paths":
        library = tmp_path / "plugins.so"
        library.write_bytes(b"code")
        changed = (str(library),)
    elif field == "tactic_sources":
        changed = (("JIT_CONVOLUTIONS", True),)
    elif field == "stream":
        changed = 7
    elif field == "ranges":
        changed = {"x": ShapeRange((1, 32), (2, 32), (2, 32))}
    else:
        changed = not default if isinstance(default, bool) else OTHER[type(default)]
    assert changed != default
    is_other = key_of(settings=BuildSettings(**{field: changed})) != key_of()
    assert is_other is (field not in NOT_BUILT_IN), NOT_BUILT_IN.get(field, "it decides what is built")


def test_a_plugin_of_other_code_at_the_same_place_is_another_engine(tmp_path):
    library, found = tmp_path / "plugins.so", set()
    for code in (b"code", b"other code"):
        library.write_bytes(code)
        found.add(key_of(settings=BuildSettings(plugin_paths=(str(library),))))
    assert len(found) == 2


def test_a_model_whose_weight_differs_in_one_bit_gets_its_own_engine_in_sessions(session, builds):
    text = "g (float[2,4] x) => (float[2,4] y) <float[4] w = {{1.0, 2.0, 3.0, {last}}}> {{ y = Mul(x, w) }}"
    for last in (4.0, float(np.nextafter(np.float32(4), np.float32(5)))):
        with session(text.format(last=repr(last))) as opened:
            found = opened.run(None, {"x": np.ones((2, 4), np.float32)})[0]
            assert found[0, 3] == np.float32(last)
    assert len(builds) == 2


def test_large_weights_are_not_copied_into_the_program():
    program = weighted(1.0)
    assert list(program.weights) == ["w"]
    assert len(program.content) < 1024 < program.weights["w"].nbytes
