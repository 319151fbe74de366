"""InferenceSession: what it tells, how it runs, stops, is placed, pickled and closed."""

import asyncio
import gc
import io
import json
import os
import pickle
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, parser

import ort_core
from ort_core.environment import Environment, default_environment
from ort_core.errors import (
    AllocationLimitExceeded,
    Fail,
    InvalidArgument,
    InvalidProtobuf,
    InvalidType,
    InvalidValue,
    ModelLoadCanceled,
    NoSuchFile,
    RunTerminated,
    RunTimeout,
    UnknownOption,
)
from ort_core.options import RunOptions, SessionOptions
from ort_core.session import InferenceSession
from ort_core.stages import PrepareSettings
from ort_core.tensors.ort_value import OrtValue
from ort_core.tensors.ort_value_vector import OrtValueVector

X = np.arange(8, dtype=np.float32).reshape(2, 4)
FEEDS = {"x": X, "z": X}
ENDLESS = {"count": np.int64(1 << 60), "go": np.True_, "x": np.ones(1, np.float32)}


@pytest.mark.parametrize("name", ["two_inputs", "scale", "text", "sequence", "optional", "long_loop"])
def test_inputs_outputs_and_metadata_are_shown_as_by_onnxruntime(model, session_of, name):
    ours, theirs = session_of(name), onnxruntime.InferenceSession(model(name))
    for method in ("get_inputs", "get_outputs", "get_overridable_initializers"):
        found = [(a.name, a.type, a.shape) for a in getattr(ours, method)()]
        assert found == [(a.name, a.type, a.shape) for a in getattr(theirs, method)()], method
    for field in ("custom_metadata_map", "description", "domain", "graph_description", "graph_name", "producer_name"):
        assert getattr(ours.get_modelmeta(), field) == getattr(theirs.get_modelmeta(), field), field
    assert str(ours.get_inputs()[0]) == str(theirs.get_inputs()[0])


def test_the_version_of_the_model_is_shown(session_of):
    assert session_of("scale").get_modelmeta().version == 7
    assert session_of("text").get_modelmeta().version == (1 << 63) - 1  # what onnxruntime shows for none


@pytest.mark.parametrize("form", ["path", "str", "bytes", "memoryview", "bytearray", "file", "proto"])
def test_a_model_is_loaded_from_every_form(model, tmp_path, form):
    content = model("two_inputs")
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    sources = {
        "path": path, "str": str(path), "bytes": content, "memoryview": memoryview(content),
        "bytearray": bytearray(content), "file": io.BytesIO(content), "proto": onnx.ModelProto.FromString(content),
    }  # fmt: skip
    session = InferenceSession(sources[form])
    again = pickle.loads(pickle.dumps(session))
    for each in (session, again):
        np.testing.assert_array_equal(each.run(["total"], FEEDS)[0], X + X)
    assert again.get_providers() == session.get_providers()


def test_a_missing_file_and_a_foreign_object_are_refused():
    with pytest.raises(
        NoSuchFile, match=r"Load model from nope.onnx failed:Load model nope.onnx failed. File doesn't exist"
    ):
        InferenceSession("nope.onnx")
    with pytest.raises(InvalidType, match="Unable to load from type"):
        InferenceSession(3)


def test_a_folder_in_place_of_a_model_is_refused_with_what_lies_in_it(tmp_path):
    (tmp_path / "nothing").mkdir()
    (tmp_path / "model.onnx").write_bytes(b"")
    for path, told in (
        (tmp_path, "; name a model in it: model.onnx"),
        (tmp_path / "nothing", " without an .onnx file"),
    ):
        with pytest.raises(InvalidProtobuf, match=f"Protobuf parsing failed. It is a folder{told}"):
            InferenceSession(path)


def test_outputs_are_chosen_by_name_in_any_order(session_of):
    session = session_of("two_inputs")
    product, total = session.run(["product", "total"], FEEDS)
    np.testing.assert_array_equal(product, X * X)
    np.testing.assert_array_equal(total, X + X)
    assert len(session.run([], FEEDS)) == 2
    with pytest.raises(InvalidArgument, match=r"Invalid output name:totl.*Did you mean 'total'"):
        session.run(["totl"], FEEDS)
    with pytest.raises(InvalidType, match="expected a list of names such as"):
        session.run("total", FEEDS)


def test_arguments_of_other_types_are_refused(session_of):
    session = session_of("two_inputs")
    with pytest.raises(InvalidType, match="output_names is 5"):
        session.run(5, FEEDS)
    with pytest.raises(InvalidType, match="run_options is a dict, expected RunOptions"):
        session.run(None, FEEDS, {"terminate": True})
    with pytest.raises(InvalidType, match="iobinding is a int"):
        session.run_with_iobinding(3)
    with pytest.raises(InvalidType, match="disabled_optimizers is 5"):
        session_of("two_inputs", disabled_optimizers=5)
    with pytest.raises(InvalidArgument, match="NoSuchPass"):
        session_of("two_inputs", disabled_optimizers=["NoSuchPass"])


def test_a_call_returns_named_outputs(session_of):
    session = session_of("two_inputs")
    for outputs in (session(X, X), session(x=X, z=X), session(FEEDS), session(X, z=X)):
        np.testing.assert_array_equal(outputs.total, X + X)
        np.testing.assert_array_equal(outputs["product"], X * X)
        assert list(outputs) == ["total", "product"]
    with pytest.raises(AttributeError, match=r"no output 'totl'.*Did you mean 'total'"):
        _ = outputs.totl
    with pytest.raises(KeyError, match="Outputs: total, product"):
        _ = outputs["totl"]
    assert list(pickle.loads(pickle.dumps(outputs))) == ["total", "product"]
    with pytest.raises(InvalidType, match="by position and by name"):
        session(X, x=X)
    with pytest.raises(InvalidType, match="3 positional values for 2 inputs"):
        session(X, X, X)


def test_an_input_with_a_default_may_be_fed(session_of):
    session = session_of("scale")
    assert [a.name for a in session.get_overridable_initializers()] == ["factor"]
    np.testing.assert_array_equal(session(x=X[0]).y, X[0] * 6)
    np.testing.assert_array_equal(session(x=X[0], factor=[10.0]).y, X[0] * 30)


def test_results_never_share_memory_with_feeds(session_of):
    text = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 13]> g (float[N] x) => (float[N] y) { y = Identity(x) }'
    )
    (found,) = InferenceSession(text).run(None, {"x": X[0]})
    assert not np.shares_memory(found, X)


def test_eight_threads_on_one_session_give_the_serial_results(session_of):
    session = session_of("two_inputs")
    feeds = [{"x": X + k, "z": X * k} for k in range(64)]
    serial = [session.run(None, feed) for feed in feeds]
    found = {}

    def work(first):
        for k in range(first, 64, 8):
            found[k] = session.run(None, feeds[k])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(64):
        np.testing.assert_array_equal(found[k], serial[k])


def test_a_run_is_terminated_from_another_thread(session_of):
    options = RunOptions()
    timer = threading.Timer(0.05, lambda: setattr(options, "terminate", True))
    timer.start()
    with pytest.raises(RunTerminated, match=r"Exiting due to terminate flag being set to true."):
        session_of("long_loop").run(None, ENDLESS, options)
    timer.join()


def test_a_run_ends_at_its_time_limit(session_of):
    options = RunOptions()
    options.time_limit_s = 0.05
    with pytest.raises(RunTimeout, match="time limit"):
        session_of("long_loop").run(None, ENDLESS, options)


def test_a_run_may_not_allocate_more_than_allowed(session_of):
    feeds = {"x": np.ones(1, np.float32), "shape": np.array([1 << 20])}
    chosen = SessionOptions()
    chosen.max_allocation_bytes = 1 << 16
    with pytest.raises(AllocationLimitExceeded, match="limit of 65536 bytes"):
        session_of("expand", chosen).run(None, feeds)
    options = RunOptions()
    options.max_allocation_bytes = 1 << 24
    assert session_of("expand", chosen).run(None, feeds, options)[0].size == 1 << 20


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_a_pipe_is_said_to_be_one_and_a_name_that_no_file_has_is_none_of_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(InvalidProtobuf, match="is a pipe or a device"):
        InferenceSession(tmp_path / "pipe.onnx")
    with pytest.raises(NoSuchFile, match="File doesn't exist"):
        InferenceSession("a\0b.onnx")


def test_a_callback_receives_results_user_data_and_error_text(session_of):
    session = session_of("two_inputs")
    done, calls = threading.Event(), []

    def callback(results, user_data, error):
        calls.append((results, user_data, error))
        done.set()

    session.run_async(["total"], FEEDS, callback, "mine")
    assert done.wait(200)
    done.clear()
    session.run_async(["nope"], FEEDS, callback, None)
    assert done.wait(200)
    np.testing.assert_array_equal(calls[0][0][0], X + X)
    assert calls[0][1:] == ("mine", "")
    assert calls[1][:2] == ([], None)
    assert "Invalid output name:nope" in calls[1][2]
    with pytest.raises(ValueError, match="Required inputs"):
        session.run_async(None, {}, callback, None)
    session.close()


def test_a_callback_that_fails_is_told_of_and_the_next_run_goes_on(session_of, caplog):
    session, done = session_of("two_inputs"), threading.Event()

    def fail(*_: object) -> None:
        raise KeyError("the callback's own fault")

    session.run_async(["total"], FEEDS, fail, None)
    session.run_async(["total"], FEEDS, lambda *_: done.set(), None)
    assert done.wait(200)
    session._background._pool.shutdown()
    assert ["the callback of run_async" in message for message in caplog.messages] == [True]
    assert "the callback's own fault" in caplog.text


def test_a_callback_hears_of_every_failure_of_its_run(session_of, monkeypatch):
    session, done, heard = session_of("two_inputs"), threading.Event(), []

    def fail(*_: object) -> None:
        raise KeyError("something unforeseen")

    monkeypatch.setattr(session, "_run", fail)
    session.run_async(["total"], FEEDS, lambda *found: (heard.append(found), done.set()), "mine")
    assert done.wait(200), "the callback was never called"
    assert heard == [([], "mine", "'something unforeseen'")]


@pytest.mark.parametrize("module", [ort_core, onnxruntime], ids=lambda module: module.__name__)
@pytest.mark.parametrize("wrong", ["rank", "size", "type"])
def test_a_callback_hears_of_feeds_that_do_not_fit(module, wrong):
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "negated", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = module.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {"rank": np.ones(4, np.float32), "size": np.ones((2, 3), np.float32), "type": np.ones((2, 4), np.int64)}
    heard: list[tuple[object, str]] = []
    done = threading.Event()

    def callback(results: object, data: object, error: str) -> None:
        heard.append((data, error))
        done.set()

    session.run_async(None, {"x": feeds[wrong]}, callback, "mine")
    assert done.wait(60), "the callback was never called"
    [(data, error)] = heard
    assert data == "mine"
    assert "input" in error


def test_arun_is_awaited_and_many_run_at_once(session_of):
    session = session_of("two_inputs")

    async def many():
        return await asyncio.gather(*(session.arun(["total"], {"x": X, "z": X + k}) for k in range(10)))

    for k, (total,) in enumerate(asyncio.run(many())):
        np.testing.assert_array_equal(total, X + X + k)
    session.close()


def test_cancelling_the_task_stops_the_run(session_of):
    session = session_of("long_loop")

    async def cancelled():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.arun(None, ENDLESS), 0.05)

    asyncio.run(cancelled())
    session._background._pool.shutdown(wait=True)  # ends only if the run has been told to stop


def test_ort_values_go_in_and_come_out(session_of):
    value = OrtValue.ortvalue_from_numpy(X)
    total, product = session_of("two_inputs").run_with_ort_values(None, {"x": value, "z": value})
    assert total.data_type() == "tensor(float)"
    np.testing.assert_array_equal(product.numpy(), X * X)


def test_a_vector_of_ort_values_goes_in_and_comes_out(session_of):
    feeds, fetches = OrtValueVector(), OrtValueVector()
    feeds.push_back(OrtValue.ortvalue_from_numpy(X))
    feeds.push_back(OrtValue.ortvalue_from_numpy(X))
    session_of("two_inputs").run_with_ortvaluevector(RunOptions(), ["x", "z"], feeds, ["product"], fetches, [])
    assert len(fetches) == 1
    np.testing.assert_array_equal(fetches[0].numpy(), X * X)


def test_a_closed_session_refuses_to_run_and_closes_twice(session_of):
    with session_of("two_inputs") as session:
        session.run(None, FEEDS)
    session.close()
    with pytest.raises(InvalidValue, match="this session is closed"):
        session.run(None, FEEDS)


def test_a_dropped_session_frees_its_model(session_of):
    session = session_of("two_inputs")
    plan = weakref.ref(session._loaded.prepared.plan)
    del session
    gc.collect()
    assert plan() is None


def test_an_unknown_argument_is_refused(session_of):
    with pytest.raises(UnknownOption, match=r"no argument 'disabled_optimizer'.*Did you mean 'disabled_optimizers'"):
        session_of("two_inputs", disabled_optimizer=[])
    with pytest.raises(InvalidType, match="expected SessionOptions"):
        session_of("two_inputs", {"a": 1})


def test_later_changes_of_the_options_do_not_change_the_session(session_of):
    chosen = SessionOptions()
    session = session_of("two_inputs", chosen)
    chosen.logid = "later"
    assert session.get_session_options().logid == ""


def test_the_optimized_model_is_saved(session_of, tmp_path):
    chosen = SessionOptions()
    chosen.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    session_of("two_inputs", chosen)
    np.testing.assert_array_equal(InferenceSession(tmp_path / "optimized.onnx")(X, X).total, X + X)


def test_initializers_and_sizes_are_replaced_by_the_options(session_of):
    chosen = SessionOptions()
    chosen.add_initializer("fixed", OrtValue.ortvalue_from_numpy(np.array([100], np.float32)))
    chosen.add_free_dimension_override_by_name("N", 4)
    session = session_of("scale", chosen)
    assert session.get_inputs()[0].shape == [4]
    np.testing.assert_array_equal(session(x=X[0]).y, X[0] * 200)
    again = pickle.loads(pickle.dumps(session))
    np.testing.assert_array_equal(again(x=X[0]).y, X[0] * 200)
    with pytest.raises(InvalidArgument, match="Expected: 4"):
        session(x=X[0, :3])


def test_an_initializer_that_does_not_fit_is_refused(session_of):
    chosen = SessionOptions()
    chosen.add_initializer("fixd", OrtValue.ortvalue_from_numpy(np.zeros(1, np.float32)))
    with pytest.raises(InvalidArgument, match=r"'fixd', which the model does not have.*Did you mean 'fixed'"):
        session_of("scale", chosen)
    chosen = SessionOptions()
    chosen.add_initializer("fixed", OrtValue.ortvalue_from_numpy(np.zeros(2, np.float32)))
    with pytest.raises(InvalidArgument, match=r"float\[2\], the model has float\[1\]"):
        session_of("scale", chosen)


def test_loading_is_cancelled_by_the_options(session_of):
    chosen = SessionOptions()
    chosen.set_load_cancellation_flag(True)
    with pytest.raises(ModelLoadCanceled, match="canceled due to user request"):
        session_of("scale", chosen)


def test_options_are_read_from_the_model_where_asked(model):
    proto = onnx.ModelProto.FromString(model("scale"))
    proto.metadata_props.add(key="ort_config", value='{"session_options": {"intra_op_num_threads": 3}}')
    assert InferenceSession(proto).get_session_options().intra_op_num_threads == 0
    assert InferenceSession(proto, read_config_from_model=1).get_session_options().intra_op_num_threads == 3
    proto.metadata_props[-1].value = '{"other": 1}'
    assert InferenceSession(proto, read_config_from_model=1).get_session_options().intra_op_num_threads == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("{", "cannot be parsed"),
        ('{"session_options": {"intra_op_num_threads": "a"}}', "must be an integer, found 'a'"),
        ('{"session_options": {"inter_op_num_threads": -3}}', "Unsupported value for inter_op_num_threads"),
        ('{"session_options": {"graph_optimization_level": 7}}', "Unsupported value for graph_optimization_level"),
        ('{"session_options": {"execution_mode": 2}}', "Unsupported value for execution_mode"),
        ('{"session_options": {"enable_profiling": 3}}', "Unsupported value for enable_profiling"),
    ],
)
def test_options_of_a_model_that_mean_nothing_are_refused_as_in_onnxruntime(model, monkeypatch, options, told):
    proto = onnx.ModelProto.FromString(model("scale"))
    proto.metadata_props.add(key="ort_config", value=options)
    with pytest.raises(RuntimeError, match=told):
        InferenceSession(proto, read_config_from_model=1)
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    with pytest.raises(RuntimeError):
        onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])


def test_numbers_of_a_model_become_options_as_in_onnxruntime(model, monkeypatch, tmp_path):
    proto = onnx.ModelProto.FromString(model("scale"))
    wanted = {"graph_optimization_level": 2, "execution_mode": 1, "inter_op_num_threads": 5, "enable_profiling": 1}
    proto.metadata_props.add(key="ort_config", value=json.dumps({"session_options": wanted}))
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    monkeypatch.chdir(tmp_path)
    theirs = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    ours = InferenceSession(proto)
    for name in wanted:
        chosen, expected = (getattr(each.get_session_options(), name) for each in (ours, theirs))
        assert int(chosen) == (expected if isinstance(expected, (int, bool)) else expected.value), name
    for session in (ours, theirs):
        session.run(None, {"x": np.ones(2, np.float32)})
        assert Path(session.end_profiling()).stat().st_size > 0


def test_the_placement_is_explained_and_given_in_the_form_of_onnxruntime(session_of):
    chosen = SessionOptions()
    session = session_of("two_inputs", chosen)
    assert session.explain().counts() == {session.get_providers()[0]: 2}
    assert "2 nodes" in str(session.explain())
    with pytest.raises(Fail, match='must be set to "1"'):
        session.get_provider_graph_assignment_info()
    chosen.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    subgraphs = session_of("two_inputs", chosen).get_provider_graph_assignment_info()
    names = [[node.op_type for node in subgraph.get_nodes()] for subgraph in subgraphs]
    assert sorted(names) == [["Add"], ["Mul"]], "each node of the provider that takes what is left stands for itself"


def test_memory_devices_and_small_questions_are_answered(session_of):
    session = session_of("two_inputs")
    assert [info.name for info in session.get_input_memory_infos()] == ["Cpu", "Cpu"]
    assert [info.name for info in session.get_output_memory_infos()] == ["Cpu", "Cpu"]
    assert [device.ep_name for device in session.get_input_epdevices()] == session.get_providers()[:1] * 2
    assert session.create_ortvalue_from_shape_and_type([2], np.float32, "cpu").shape() == [2]
    assert session.get_tuning_results() == []
    session.set_tuning_results([])
    record = {"ep": session.get_providers()[0], "results": {}, "validators": {}}
    session.set_tuning_results([record, {**record, "ep": "NoProvider"}])
    with pytest.raises(RuntimeError, match="does not support TunableOp"):
        session.set_tuning_results([record], error_on_invalid=True)
    with pytest.raises(RuntimeError, match="Cannot find execution provider NoProvider"):
        session.set_tuning_results([{**record, "ep": "NoProvider"}], error_on_invalid=True)
    with pytest.raises(InvalidType, match="expected a dict with ep, results and validators"):
        session.set_tuning_results([{}])
    session.release_captured_graph()
    session.set_ep_dynamic_options({"ep.dynamic.workload_type": "Efficient"})
    with pytest.raises(UnknownOption):
        session.set_ep_dynamic_options({"ep.dynamic.nope": "1"})


def test_the_seed_of_the_process_fixes_random_numbers_of_later_sessions(session_of, monkeypatch):
    monkeypatch.setattr(default_environment(), "seed", None)
    draws = []
    for seed in (1, 1, 2):
        ort_core.set_seed(seed)
        draws.append(session_of("random").run(None, {})[0].tolist())
    assert draws[0] == draws[1] != draws[2]
    with pytest.raises(InvalidType, match="expected an integer"):
        ort_core.set_seed(1.5)


def test_the_threads_of_the_process_are_for_sessions_that_state_none(monkeypatch):
    environment = Environment()
    assert PrepareSettings.of(SessionOptions(), environment).threads.num_threads == 0
    monkeypatch.setenv("ORT_INTRA_OP_NUM_THREADS", "2")
    assert PrepareSettings.of(SessionOptions(), environment).threads.num_threads == 2
    environment.intra_op_num_threads = 3
    assert PrepareSettings.of(SessionOptions(), environment).threads.num_threads == 3
    stated = SessionOptions()
    stated.intra_op_num_threads = 4
    assert PrepareSettings.of(stated, environment).threads.num_threads == 4


def test_methods_are_those_of_onnxruntime():
    theirs = {n for n in dir(onnxruntime.InferenceSession) if n[0] != "_"}
    assert not theirs - set(dir(InferenceSession))


def test_a_model_compiler_writes_a_model_that_gives_the_same(model, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(model("two_inputs"))
    compiler = ort_core.ModelCompiler(SessionOptions(), str(path))
    compiler.compile_to_file()
    pieces = []
    compiler.compile_to_stream(pieces.append)
    trusting = SessionOptions()
    trusting.add_session_config_entry("session.trust_compiled_code", "1")
    for source in (tmp_path / "model_ctx.onnx", compiler.compile_to_bytes(), b"".join(pieces)):
        np.testing.assert_array_equal(InferenceSession(source, trusting)(X, X).total, X + X)
    flags = ort_core.OrtCompileApiFlags
    with pytest.raises(Fail, match="exists already"):
        ort_core.ModelCompiler(SessionOptions(), str(path), flags=flags.ERROR_IF_OUTPUT_FILE_EXISTS).compile_to_file()
    with pytest.raises(Fail, match="Unable to compile any nodes"):
        ort_core.ModelCompiler(
            SessionOptions(), model("text"), flags=flags.ERROR_IF_NO_NODES_COMPILED
        ).compile_to_bytes()
    with pytest.raises(InvalidArgument, match="given as bytes"):
        ort_core.ModelCompiler(SessionOptions(), model("scale")).compile_to_file()


WAITING = """
import atexit, sys, threading, time
import numpy as np
import ort_core as ort
session = ort.InferenceSession(sys.argv[1])
feeds = {"x": np.ones((2, 3), np.float32)}
seen = []
def late():
    ended.wait()
    try:
        session.run(None, feeds)
    except Exception as error:
        seen.append(error)
ended = threading.Event()
def report():
    session.close()
    ended.set()
    time.sleep(0.2)
    print(len(seen))
atexit.register(report)
threading.Thread(target=late, daemon=True).start()
"""


def test_thread_that_outlives_the_interpreter_is_kept_waiting_where_sessions_are_closed(tmp_path):
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x) => (float[2, 3] y) { y = Neg(x) }'
    onnx.save(parser.parse_model(text), tmp_path / "neg.onnx")
    command = [sys.executable, "-c", WAITING, str(tmp_path / "neg.onnx")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "0"), done.stderr
