"""A session comes back from the cache whole, for the very files, options and processor that it was made from."""

from __future__ import annotations

import gc
import json
import os
import pickle
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from ort_core.cpu.storage import stored_program
from ort_core.cpu.storage.recalled import RecalledPartition
from ort_core.cpu.storage.stored_partition import decode_partition
from ort_core.environment import default_environment
from ort_core.errors import OrtError
from ort_core.options import GraphOptimizationLevel, SessionOptions
from ort_core.plugin import Rejection, ThreadOptions
from ort_core.session import InferenceSession
from ort_core.session_api import file_identity
from ort_core.session_api.file_identity import are_settled, identity_of

DENSE = """
    <ir_version: 8, opset_import: ["": 17]>
    dense (float[N, 32] x, int64[M] rows) => (float[M, 48] y, float[N, 48] all) {
        product = MatMul(x, w)
        all = Relu(product)
        y = Gather <axis = 0> (all, rows)
    }"""
DEFAULTED = """
    <ir_version: 8, opset_import: ["": 13]>
    scale (float[N] x, float[1] factor = {2}) => (float[N] y) {
        scaled = Mul(x, factor)
        y = Exp(scaled)
    }"""
X = np.linspace(-1, 1, 3 * 32, dtype=np.float32).reshape(3, 32)
FEEDS = {"x": X, "rows": np.array([2, 0], np.int64)}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, which remembers files however young they are."""
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(file_identity, "MIN_AGE_S", -1.0)
    return tmp_path / "cache"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "dense.onnx", 1)


def weights(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((32, 48)).astype(np.float32)


def write_model(path: Path, seed: int) -> Path:
    """Write a product with weights in a file of their own."""
    proto = parser.parse_model(DENSE)
    proto.graph.initializer.append(numpy_helper.from_array(weights(seed), "w"))
    proto.doc_string = "for the tests"
    onnx.save(proto, path, save_as_external_data=True, location="dense.weights", size_threshold=0)
    return path


def load(path: Path, options: SessionOptions | None = None) -> InferenceSession:
    return InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def is_recalled(session: InferenceSession) -> bool:
    (planned,) = session._loaded.plans._plan.steps
    return isinstance(planned.step.compiled, RecalledPartition)


def expected(seed: int) -> np.ndarray:
    return np.maximum(X.astype(np.float64) @ weights(seed), 0)


def assert_computes(session: InferenceSession, seed: int) -> None:
    for _ in range(4):  # the third run and those behind it go directly
        y, every = session.run(None, FEEDS)
        np.testing.assert_allclose(every, expected(seed), rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(y, every[FEEDS["rows"]])


def touch_later(path: Path) -> None:
    """Give a file that was written just now a time that differs, whatever the clock's steps."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000_000))


def drop_sessions() -> None:
    """Let go of the files that dropped sessions have mapped: Windows lets nobody write to them, or replace them."""
    gc.collect()


def entry(cache: Path) -> Path:
    (found,) = (cache / "session").glob("*.artefact")
    return found


def test_second_session_is_recalled_and_computes_the_same(model: Path) -> None:
    first, second = load(model), load(model)
    assert (is_recalled(first), is_recalled(second)) == (False, True)
    assert_computes(second, 1)
    for wanted, found in zip(first.run(None, FEEDS), second.run(None, FEEDS), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_session_without_a_request_is_recalled_where_one_provider_is_available(model: Path) -> None:
    available = default_environment().default_providers()
    first, second = InferenceSession(str(model)), InferenceSession(str(model))
    assert [is_recalled(each) for each in (first, second)] == [False, available == ["CPUExecutionProvider"]]
    assert second.get_providers() == first.get_providers()
    assert str(second.explain()) == str(first.explain())
    assert_computes(second, 1)


def test_recalled_session_tells_what_the_first_told(model: Path) -> None:
    first, second = load(model), load(model)
    assert is_recalled(second)
    for question in ("get_inputs", "get_outputs", "get_overridable_initializers", "get_modelmeta", "get_providers",
                     "get_provider_options"):  # fmt: skip
        assert getattr(second, question)() == getattr(first, question)(), question
    assert second.get_modelmeta().description == "for the tests"
    assert [n.name for n in second.explain().nodes] == [n.name for n in first.explain().nodes]
    assert repr(second) == repr(first)


def test_other_sizes_run_on_a_recalled_session(model: Path) -> None:
    load(model)
    session = load(model)
    assert is_recalled(session)
    x = np.random.default_rng(5).standard_normal((70, 32)).astype(np.float32)
    every = session.run(["all"], {"x": x, "rows": np.array([69], np.int64)})[0]
    np.testing.assert_allclose(every, np.maximum(x.astype(np.float64) @ weights(1), 0), rtol=1e-5, atol=1e-5)


def test_index_out_of_bounds_is_the_error_of_an_ordinary_session(model: Path) -> None:
    first, second = load(model), load(model)
    assert is_recalled(second)
    wrong = {**FEEDS, "rows": np.array([7], np.int64)}
    errors = []
    for session in (first, second):
        with pytest.raises(OrtError) as caught:
            session.run(None, wrong)
        errors.append((type(caught.value), str(caught.value)))
    assert errors[0] == errors[1]
    assert_computes(second, 1)


def test_other_weights_under_the_same_name_are_seen(model: Path) -> None:
    load(model)
    drop_sessions()
    (model.parent / "dense.weights").write_bytes(weights(2).tobytes())
    touch_later(model.parent / "dense.weights")
    session = load(model)
    assert not is_recalled(session)
    assert_computes(session, 2)
    again = load(model)
    assert is_recalled(again)
    assert_computes(again, 2)


def test_weights_replaced_by_a_file_of_the_same_time_are_seen(model: Path, tmp_path: Path) -> None:
    load(model)
    drop_sessions()
    old = model.parent / "dense.weights"
    status = old.stat()
    (tmp_path / "new").write_bytes(weights(3).tobytes())
    os.utime(tmp_path / "new", ns=(status.st_atime_ns, status.st_mtime_ns))
    (tmp_path / "new").replace(old)
    session = load(model)
    assert not is_recalled(session)
    assert_computes(session, 3)


def test_another_model_under_the_same_name_is_seen(model: Path) -> None:
    load(model)
    proto = onnx.load(model, load_external_data=False)
    proto.graph.node[1].op_type = "Neg"
    model.write_bytes(proto.SerializeToString())
    touch_later(model)
    session = load(model)
    assert not is_recalled(session)
    np.testing.assert_allclose(session.run(["all"], FEEDS)[0], -(X.astype(np.float64) @ weights(1)), rtol=1e-5)


def test_missing_weights_are_an_error_although_the_entry_holds_them(model: Path) -> None:
    load(model)
    drop_sessions()
    (model.parent / "dense.weights").unlink()
    with pytest.raises(OrtError, match=r"dense\.weights"):
        load(model)


def test_other_options_are_other_sessions(model: Path) -> None:
    load(model)
    other = SessionOptions()
    other.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_BASIC
    threads = SessionOptions()
    threads.intra_op_num_threads = 3
    for options in (other, threads):
        assert not is_recalled(load(model, options))
        assert is_recalled(load(model, options))
    assert is_recalled(load(model))


WITHOUT_PASSES = """
import sys
from ort_core.session_api import file_identity
file_identity.MIN_AGE_S = -1.0
import ort_core
names = "BranchesByRank;ConstantFolding;CommonSubexpressionElimination"
options = ort_core.SessionOptions()
options.add_session_config_entry("optimization.disable_specified_optimizers", names)
session = ort_core.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
(planned,) = session._loaded.plans._plan.steps
print(type(planned.step.compiled).__name__)
"""


def test_a_session_without_some_passes_is_recalled_in_a_process_that_orders_sets_otherwise(model: Path) -> None:
    kinds = []
    for seed in ("1", "2", "3"):
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_PASSES, str(model)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        kinds.append(done.stdout.strip())
    assert kinds == ["CpuPartition", "RecalledPartition", "RecalledPartition"]


def test_cache_that_is_switched_off_is_left_alone(model: Path, cache: Path) -> None:
    options = SessionOptions()
    options.add_session_config_entry("session.optimized_model_cache", "0")
    for _ in range(2):
        assert not is_recalled(load(model, options))
    assert not (cache / "session").exists()


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty"])
def test_damaged_entry_is_rebuilt(model: Path, cache: Path, damage: str) -> None:
    load(model)
    path = entry(cache)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    path.write_bytes({"truncated": content[: len(content) // 2], "flipped": content, "empty": b""}[damage])
    session = load(model)
    assert not is_recalled(session)
    assert_computes(session, 1)
    assert is_recalled(load(model))


def test_program_for_another_processor_is_refused(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(model)
    monkeypatch.setattr(stored_program, "host_key", lambda: "another")
    session = load(model)
    assert not is_recalled(session)
    assert_computes(session, 1)


@pytest.mark.parametrize("content", [b"", bytes(16), b"\xff" * 64, bytes(200)])
def test_bytes_that_are_no_partition_are_refused(content: bytes) -> None:
    found = decode_partition(memoryview(content), ThreadOptions(1), lambda: pytest.fail("compiled anew"))
    assert isinstance(found, Rejection)


def test_default_is_overridden_on_a_recalled_session(tmp_path: Path) -> None:
    path = tmp_path / "scale.onnx"
    path.write_bytes(parser.parse_model(DEFAULTED).SerializeToString())
    load(path)
    session = load(path)
    assert is_recalled(session)
    x = np.array([0.5, 1], np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], np.exp(2 * x), rtol=1e-6)
    np.testing.assert_allclose(session.run(None, {"x": x, "factor": np.ones(1, np.float32)})[0], np.exp(x), rtol=1e-6)


def test_young_files_are_not_old_enough(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_identity, "MIN_AGE_S", 2.0)
    identity = identity_of(model)
    assert identity is not None
    changed = max(identity[4:])
    assert not are_settled([identity], changed + 1_900_000_000)
    assert are_settled([identity], changed + 2_100_000_000)
    monkeypatch.setattr(file_identity, "MIN_AGE_S", 3600.0)
    load(model)
    assert not is_recalled(load(model))


LOAD = """
import importlib.metadata, json, logging, sys  # from 3.15 on logging imports pathlib
import numpy
every = importlib.metadata.entry_points
importlib.metadata.entry_points = lambda **chosen: [e for e in every(**chosen) if e.value.startswith("ort_core")]
for name in json.loads(sys.argv[2]):  # what the line above imported; with what is inside: pathlib of 3.13 is a package
    for each in [m for m in sys.modules if m == name or m.startswith(f"{name}._")]:
        del sys.modules[each]
from ort_core.session_api import file_identity
file_identity.MIN_AGE_S = -1.0
import ort_core
session = ort_core.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
names = sorted(sys.modules)
(planned,) = session._loaded.plans._plan.steps
x = numpy.linspace(-1, 1, 96, dtype=numpy.float32).reshape(3, 32)
outputs = session.run(None, {"x": x, "rows": numpy.array([2, 0])})
print(json.dumps([type(planned.step.compiled).__name__, names, [each.tolist() for each in outputs]]))
"""
SLOW = ("hashlib", "_hashlib", "pathlib", "urllib.parse", "concurrent.futures", "numpy.typing", "platformdirs")
IS_LINKED_HERE = sys.platform == "linux" and platform.machine() == "x86_64"
LINKING = ("llvmlite", "pathlib", "urllib.parse")  # what links elsewhere, and what it imports
UNUSED = (*(name for name in SLOW if name not in LINKING), *(LINKING if IS_LINKED_HERE else ()),
          "ort_core.cpu.direct.direct_calls", "ort_core.ir.model", "ort_core.ir.nodes",
          "onnx", "google.protobuf", "ort_core.passes.base", "ort_core.kernels.evaluator", "ort_core.stages.preparing",
          "ort_core.ops.schema", "ort_core.cpu.lowering.lowering", "ort_core.cpu.partition.partition")  # fmt: skip


def test_two_processes_that_load_at_once_leave_one_good_entry(model: Path, cache: Path) -> None:
    command = [sys.executable, "-c", LOAD, str(model), json.dumps(SLOW)]
    both = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [each.wait() for each in both] == [0, 0]
    assert entry(cache).stat().st_size > 0
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    kind, modules, (y, every) = json.loads(done.stdout)
    assert kind == "RecalledPartition"
    np.testing.assert_allclose(every, expected(1), rtol=1e-5, atol=1e-5)
    assert y == [every[2], every[0]]
    assert not set(UNUSED) & set(modules), "what only a load of a model needs"


TRUNCATING = """
import os, sys
import numpy as np
from ort_core.session_api import file_identity
from ort_core.session import InferenceSession
file_identity.MIN_AGE_S = -1.0
feeds = {"x": np.ones((3, 32), np.float32), "rows": np.array([2, 0], np.int64)}
expected = InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"]).run(None, feeds)
session = InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
folder = os.path.join(os.environ["ORT_CACHE_DIR"], "session")
(name,) = os.listdir(folder)
with open(os.path.join(folder, name), "r+b") as file:
    if sys.argv[2] == "truncated":
        file.truncate(0)
    else:
        file.write(os.urandom(os.path.getsize(file.name)))
for _ in range(4):
    for found, wanted in zip(session.run(None, feeds), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
"""


@pytest.mark.parametrize("what", ["truncated", "overwritten"])
def test_a_session_survives_what_another_process_does_to_its_entry_in_place(model: Path, what: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRUNCATING, str(model), what], capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, (done.returncode, done.stderr)


def test_an_intact_entry_of_another_model_is_not_its_answer(tmp_path: Path, cache: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    first, second = (write_model(folder / "dense.onnx", seed) for seed, folder in enumerate(folders, 1))
    load(first)
    of_first = entry(cache).rename(tmp_path / "first")
    load(second)
    of_second = entry(cache)
    of_first.replace(of_second)
    session = load(second)
    assert not is_recalled(session)
    assert_computes(session, 2)
    assert is_recalled(load(second)), "the entry was not made anew"


def load_bytes(content: bytes, folder: Path, is_kept: str = "1") -> InferenceSession:
    options = SessionOptions()
    options.add_session_config_entry("session.recalls_bytes", is_kept)
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    return InferenceSession(content, options, providers=["CPUExecutionProvider"])


def test_bytes_are_recalled_by_their_digest_where_that_is_asked_for(model: Path) -> None:
    content = model.read_bytes()
    sessions = [load_bytes(content, model.parent, kept) for kept in "0011"]
    assert [is_recalled(each) for each in sessions] == [False, False, False, True]
    assert_computes(sessions[-1], 1)
    assert_computes(pickle.loads(pickle.dumps(sessions[-1])), 1)
    other = onnx.load_from_string(content)
    other.graph.node[1].op_type = "Sigmoid"
    assert not is_recalled(load_bytes(other.SerializeToString(), model.parent))


def test_other_weights_beside_the_same_bytes_are_seen(model: Path) -> None:
    content = model.read_bytes()
    load_bytes(content, model.parent)
    drop_sessions()
    (model.parent / "dense.weights").write_bytes(weights(2).tobytes())
    touch_later(model.parent / "dense.weights")
    session = load_bytes(content, model.parent)
    assert not is_recalled(session)
    assert_computes(session, 2)


def test_weights_in_a_folder_of_their_own_are_those_that_are_watched(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "dense.weights").write_bytes(weights(3).tobytes())
    options = SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    assert [is_recalled(load(model, options)) for _ in range(2)] == [False, True]
    drop_sessions()
    (folder / "dense.weights").write_bytes(weights(4).tobytes())
    touch_later(folder / "dense.weights")
    session = load(model, options)
    assert not is_recalled(session)
    assert_computes(session, 4)
