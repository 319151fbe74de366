"""Folders of models: settings, versions, swaps, broken ones, eviction."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
from serve_fixtures import DOUBLER, running_server, scaler_text, write_model
from tritonclient.utils import InferenceServerException

from ort_serve.failures import InvalidRequest, NotReady
from ort_serve.inference import infer
from ort_serve.protocol.requests import InferRequest
from ort_serve.repository import model_repository
from ort_serve.repository.model_version import ModelVersion
from ort_serve.repository.scan import scan_models, scan_one
from ort_serve.repository.settings_files import read_model_settings

WEIGHTED = """
<ir_version: 10, opset_import: ["" : 21]>
weighted (float[batch, 2] x) => (float[batch, 2] y)
<float[2] weight = ["location": "weights.bin", "offset": "0", "length": "8"]>
{ y = Mul (x, weight) }
"""
PBTXT = """
# what Triton reads
name: "scaler"
platform: "onnxruntime_onnx"
max_batch_size: 16
input [ { name: "x" data_type: TYPE_FP32 dims: [ 2 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 2 ] } ]
instance_group [ { count: 2 kind: KIND_CPU } ]
version_policy: { latest { num_versions: 2 } }
dynamic_batching {
  preferred_batch_size: [ 4, 8 ]
  max_queue_delay_microseconds: 500
  priority_levels: 3
  default_priority_level: 2
  default_queue_policy { max_queue_size: 7 default_timeout_microseconds: 2000000 }
}
parameters { key: "intra_op_thread_count" value { string_value: "1" } }
optimization { graph { level: 1 } }
"""


def ask(running, factor_of: str = "scaler", version: str = "") -> float:
    request = InferRequest(factor_of, version, {"x": np.ones((1, 2), np.float32)})
    return float(running.call(infer(running.server.repository, request)).outputs[0][1][0, 0])


@pytest.fixture
def folder(tmp_path):
    for version in (1, 2, 10):
        write_model(scaler_text(float(version)), tmp_path / "scaler" / str(version) / "model.onnx")
    return tmp_path


def test_one_file_is_one_model(tmp_path):
    with running_server(write_model(scaler_text(3.0), tmp_path / "triple.onnx")) as running:
        assert running.server.repository.index() == [("triple", "1", "READY", "")]
        assert ask(running, "triple") == 3.0


def test_threads_of_a_run_sleep_until_the_next_unless_the_model_says_otherwise(folder):
    key = "session.force_spinning_stop"
    for text, expected in (("", "1"), (f'session_options = {{"{key}" = "0"}}', "0")):
        (folder / "scaler" / "model.toml").write_text(text)
        with running_server(folder) as running:
            options = running.server.repository.get_version("scaler", "").session.get_session_options()
            assert options.get_session_config_entry(key) == expected


def test_the_newest_version_answers_by_number_not_by_letter(folder):
    with running_server(folder) as running:
        assert [row[1] for row in running.server.repository.index()] == ["10"]
        assert ask(running) == 10.0


def test_a_number_that_begins_with_0_is_not_a_version_and_told(folder):
    write_model(scaler_text(99.0), folder / "scaler" / "0099" / "model.onnx")
    write_model(scaler_text(98.0), folder / "scaler" / "010" / "model.onnx")
    found = scan_models(folder)["scaler"]
    assert sorted(found.versions) == [1, 2, 10]
    assert found.remark == "not versions, for numbers of versions do not begin with 0: 0099, 010"
    with running_server(folder) as running:
        assert ask(running) == 10.0


@pytest.mark.parametrize(("name", "is_served"), [("scaler", True), ("", True), ("other", False)])
def test_a_name_in_tritons_settings_is_that_of_the_folder(folder, name, is_served):
    (folder / "scaler" / "config.pbtxt").write_text(f'name: "{name}"')
    problem = scan_models(folder)["scaler"].problem
    assert (problem == "") is is_served
    if not is_served:
        assert "name 'other' is not that of the folder" in problem


def test_versions_are_chosen_by_the_settings(folder):
    (folder / "scaler" / "model.toml").write_text("versions = [1, 2]\n")
    with running_server(folder) as running:
        assert ask(running) == 2.0
        assert ask(running, version="1") == 1.0
    (folder / "scaler" / "model.toml").write_text('versions = "all"\n')
    with running_server(folder) as running:
        assert [row[1] for row in running.server.repository.index()] == ["1", "2", "10"]


def test_a_new_version_takes_the_place_of_the_old_one_without_losing_a_request(folder):
    with running_server(folder, grpc_port=None) as running:
        ends = threading.Event()
        factors: list[float] = []
        failures: list[object] = []

        def load() -> None:
            body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 1]}]}
            with httpx.Client(base_url=f"http://{running.http}", timeout=60) as client:
                while not ends.is_set():
                    answer = client.post("/v2/models/scaler/infer", json=body)
                    if answer.status_code == 200:
                        found = answer.json()
                        factors.append(found["outputs"][0]["data"][0])
                        if found["model_version"] != str(int(factors[-1])):
                            failures.append(found)
                    else:
                        failures.append(answer.text)

        threads = [threading.Thread(target=load) for _ in range(4)]
        for thread in threads:
            thread.start()
        for version in (11, 12, 13):
            write_model(scaler_text(float(version)), folder / "scaler" / str(version) / "model.onnx")
            running.call(running.server.repository.load_all())
            while not failures and (not factors or factors[-1] != version):
                time.sleep(0.001)
        ends.set()
        for thread in threads:
            thread.join()
        assert failures == []
        assert ask(running) == 13.0
        assert set(factors) >= {11.0, 12.0, 13.0}


def test_a_file_that_was_written_anew_is_loaded_anew(folder):
    with running_server(folder) as running:
        path = write_model(scaler_text(77.0), folder / "scaler" / "10" / "model.onnx")
        os.utime(path, ns=(1, 1))
        running.call(running.server.repository.load_all())
        assert ask(running) == 77.0


def write_weighted(path: Path, weight: float) -> None:
    """Write a model whose weight lies in a file beside it."""
    write_model(WEIGHTED, path)
    path.with_name("weights.bin").write_bytes(np.full(2, weight, np.float32).tobytes())


def test_weights_beside_a_model_may_come_later_and_be_written_anew(tmp_path):
    path = tmp_path / "scaler" / "1" / "model.onnx"
    with running_server(tmp_path) as running:
        write_weighted(path, 3.0)
        weights = path.with_name("weights.bin").read_bytes()
        path.with_name("weights.bin").unlink()  # the copy is not whole yet
        running.call(running.server.repository.load_all())
        with pytest.raises(NotReady):
            ask(running)
        path.with_name("weights.bin").write_bytes(weights)
        running.call(running.server.repository.load_all())
        assert ask(running) == 3.0
        if os.name == "nt":  # weights are mapped, and nobody may write to a mapped file there
            with pytest.raises(OSError):
                path.with_name("weights.bin").write_bytes(weights)
            return
        path.with_name("weights.bin").write_bytes(np.full(2, 5.0, np.float32).tobytes())
        running.call(running.server.repository.load_all())
        assert ask(running) == 5.0


@pytest.mark.parametrize("is_renamed", [True, False], ids=["renamed", "in place"])
def test_a_file_of_the_same_size_and_time_is_another_one(folder, is_renamed):
    path = folder / "scaler" / "10" / "model.onnx"
    os.utime(path, ns=(10**18, 10**18))
    with running_server(folder) as running:
        size = path.stat().st_size
        other = write_model(scaler_text(77.0), folder / "new.onnx")
        os.utime(other, ns=(10**18, 10**18))
        if is_renamed:
            other.replace(path)
        else:
            shutil.copy2(other, path)
        assert (path.stat().st_size, path.stat().st_mtime_ns) == (size, 10**18)
        running.call(running.server.repository.load_all())
        assert ask(running) == 77.0


def test_nothing_is_loaded_anew_that_has_not_changed(folder, monkeypatch):
    with running_server(folder) as running:
        loaded = running.server.repository.loaded()
        running.call(running.server.repository.load_all())
        assert running.server.repository.loaded() == loaded


def test_files_around_a_model_that_is_served_alone_are_not_its_own(tmp_path):
    path = write_model(scaler_text(2.0), tmp_path / "2024" / "scaler.onnx")
    with running_server(path) as running:
        loaded = running.server.repository.loaded()
        (tmp_path / "2024" / "other.txt").write_text("x")
        running.call(running.server.repository.load_all())
        assert running.server.repository.loaded() == loaded


def test_a_file_that_goes_while_it_is_looked_at_stops_no_other_model(folder, monkeypatch):
    other = write_model(scaler_text(4.0), folder / "four" / "1" / "model.onnx")
    whole = model_repository.stamp_of

    def stamp_of(path: Path, *arguments, **named):
        if path == other:
            path.unlink(missing_ok=True)
        return whole(path, *arguments, **named)

    monkeypatch.setattr(model_repository, "stamp_of", stamp_of)
    with running_server(folder, allows_loading=True) as running:
        assert ask(running) == 10.0
        assert [row[2] for row in running.server.repository.index()] == ["UNAVAILABLE", "READY"]
        monkeypatch.undo()
        write_model(scaler_text(5.0), other)
        running.call(running.server.repository.load_all())
        assert ask(running, "four") == 5.0


def test_two_looks_at_once_at_a_folder_that_lost_a_model_both_end(folder):
    write_model(scaler_text(4.0), folder / "four" / "1" / "model.onnx")
    with running_server(folder) as running:
        repository = running.server.repository
        shutil.rmtree(folder / "four")

        async def look_twice() -> None:
            async with repository._models["four"].loading:
                looks = asyncio.gather(repository.load_all(), repository.load_all())
                await asyncio.sleep(0.2)
            await looks

        running.call(look_twice())
        assert repository.names() == ["scaler"]


def test_a_client_that_does_not_wait_for_a_model_leaves_nothing_behind(folder, monkeypatch):
    begun, ends = threading.Event(), threading.Event()

    def loaded_slowly(*arguments):
        begun.set()
        ends.wait(30)
        return ModelVersion(*arguments)

    write_model(scaler_text(4.0), folder / "four" / "1" / "model.onnx")
    with running_server(folder, allows_loading=True) as running:
        repository = running.server.repository
        running.call(repository.unload("four"))
        monkeypatch.setattr(model_repository, "ModelVersion", loaded_slowly)
        with triton_grpc.InferenceServerClient(running.grpc) as client:
            load = client._client_stub.RepositoryModelLoad.future(
                triton_grpc.service_pb2.RepositoryModelLoadRequest(model_name="four")
            )
            assert begun.wait(30)
            load.cancel()
            with pytest.raises(NotReady):
                ask(running, "four")
        ends.set()
        running.call(repository.load("four"))  # waits for the one that is under way
        assert ask(running, "four") == 4.0
        assert repository.is_ready()
        threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("four-1-")]
        assert len(threads) == 1
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("four-1-")]


def test_a_broken_new_version_leaves_the_old_one_serving_and_says_why(folder):
    with running_server(folder) as running:
        broken = folder / "scaler" / "11" / "model.onnx"
        broken.parent.mkdir()
        broken.write_bytes(b"this is no model")
        running.call(running.server.repository.load_all())
        assert ask(running) == 10.0
        states = {row[1]: row[2:] for row in running.server.repository.index()}
        assert states["10"] == ("READY", "")
        assert states["11"][0] == "UNAVAILABLE"
        assert states["11"][1]
        with pytest.raises(NotReady, match="11"):
            ask(running, version="11")


def test_a_model_whose_folder_was_removed_goes(folder):
    import shutil

    write_model(DOUBLER, folder / "doubler" / "1" / "model.onnx")
    with running_server(folder) as running:
        shutil.rmtree(folder / "doubler")
        running.call(running.server.repository.load_all())
        assert [row[0] for row in running.server.repository.index()] == ["scaler"]
        assert running.server.repository.is_ready()
        assert ask(running) == 10.0


def test_a_folder_that_is_gone_is_told_and_models_go_on(folder):
    away = folder.with_name("away")
    with running_server(folder, allows_loading=True) as running:
        factor = ask(running)
        folder.rename(away)
        answer = httpx.post(f"http://{running.http}/v2/repository/models/scaler/load", json={})
        assert (answer.status_code, "cannot be read" in answer.json()["error"]) == (503, True)
        assert ask(running) == factor
        away.rename(folder)
        assert httpx.post(f"http://{running.http}/v2/repository/models/scaler/load", json={}).status_code == 200


def test_what_was_unloaded_stays_so_until_it_is_asked(folder):
    with running_server(folder) as running:
        repository = running.server.repository

        running.call(repository.unload("scaler"))
        running.call(repository.load_all())
        with pytest.raises(NotReady, match="unloaded"):
            ask(running)
        running.call(repository.load("scaler"))
        assert ask(running) == 10.0


def test_models_that_nobody_asks_make_room_and_come_back(folder):
    write_model(scaler_text(4.0), folder / "four" / "1" / "model.onnx")
    with running_server(folder, memory_limit=1) as running:
        ready = [row[0] for row in running.server.repository.index() if row[2] == "READY"]
        assert len(ready) == 1
        assert ask(running, "four") == 4.0
        assert ask(running, "scaler") == 10.0
        assert running.server.repository.is_ready()


def test_clients_that_look_at_a_model_first_may_ask_one_that_made_room(folder):
    write_model(scaler_text(4.0), folder / "four" / "1" / "model.onnx")
    with (
        running_server(folder, memory_limit=1) as running,
        httpx.Client(base_url=f"http://{running.http}/v2/models") as rest,
        triton_grpc.InferenceServerClient(running.grpc) as rpc,
    ):
        for _ in range(2):
            for name in ("scaler", "four"):  # each makes room for the other
                assert rest.get(f"/{name}/ready").status_code == 200
                assert rpc.is_model_ready(name)
                assert len(running.server.repository.loaded()) == 1, "whoever asks for readiness loads nothing"
                other = "four" if name == "scaler" else "scaler"
                assert rest.get(f"/{name}").json()["inputs"][0]["name"] == "x"
                assert rpc.get_model_metadata(other).inputs[0].name == "x"
                assert rest.get(f"/{name}/config").json()["name"] == name
                assert rpc.get_model_config(other).config.name == other
                assert rest.get(f"/{name}/explain").json()["name"] == name
                assert ask(running, other) == (4.0 if other == "four" else 10.0)
        assert rest.get("/scaler/versions/3/ready").status_code == 404
        running.call(running.server.repository.unload("four"))
        assert rest.get("/four/ready").status_code == 503
        assert not rpc.is_model_ready("four")


def test_models_that_are_loaded_side_by_side_do_not_all_make_room(folder):
    for number in range(4):
        write_model(scaler_text(float(number)), folder / f"other{number}" / "1" / "model.onnx")
    with running_server(folder, memory_limit=1) as running:
        repository = running.server.repository
        models = [repository._models[name] for name in repository.names()]
        for model in models:
            running.call(repository.load(model.name))

        async def make_room_for_all() -> int:
            limit, repository._memory_limit = repository._memory_limit, None
            await asyncio.gather(*(repository.load(model.name) for model in models))
            repository._memory_limit = limit
            for model in models:  # as if all had been loaded before the first made room
                repository._make_room(model)
            return sum(bool(model.ready()) for model in models)

        assert running.call(make_room_for_all()) == 1


def test_requests_that_load_models_again_at_once_all_get_their_answers(folder):
    for number in range(6):
        write_model(scaler_text(float(number)), folder / f"other{number}" / "1" / "model.onnx")
    with running_server(folder, memory_limit=1, grpc_port=None, http_port=None) as running:
        repository = running.server.repository

        async def ask_all() -> list[float]:
            x = np.ones((1, 2), np.float32)
            requests = [InferRequest(f"other{number % 6}", "", {"x": x}) for number in range(48)]
            answers = await asyncio.gather(*(infer(repository, request) for request in requests))
            return [float(answer.outputs[0][1][0, 0]) for answer in answers]

        assert running.call(ask_all()) == [float(number % 6) for number in range(48)]
        running.call(asyncio.sleep(0))
        assert len(repository.loaded()) == 1, "what was kept for a request made room behind it"


def test_a_model_that_cannot_be_loaded_again_is_the_servers_fault(folder):
    write_model(scaler_text(4.0), folder / "four" / "1" / "model.onnx")
    with running_server(folder, memory_limit=1, grpc_port=None) as running:
        assert ask(running, "four") == 4.0
        (folder / "scaler" / "10" / "model.onnx").write_bytes(b"no model")
        answer = httpx.post(
            f"http://{running.http}/v2/models/scaler/infer",
            json={"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]},
        )
        assert answer.status_code == 503
        assert "cannot be loaded" in answer.json()["error"]


def test_pinned_models_stay(folder):
    (folder / "scaler" / "model.toml").write_text("pinned = true\n")
    write_model(scaler_text(4.0), folder / "four" / "1" / "model.onnx")
    with running_server(folder, memory_limit=1) as running:
        ask(running, "four")
        states = {row[0]: row[2] for row in running.server.repository.index()}
        assert states["scaler"] == "READY"


def test_broken_models_do_not_stop_the_others(folder):
    (folder / "empty").mkdir()
    (folder / "typo" / "1").mkdir(parents=True)
    (folder / "typo" / "model.toml").write_text("instnces = 2\n")
    with running_server(folder, grpc_port=None) as running:
        states = {row[0]: row[2:] for row in running.server.repository.index()}
        assert states["scaler"][0] == "READY"
        assert "has no VERSION/model.onnx" in states["empty"][1]
        assert "instnces" in states["typo"][1]
        assert "instances" in states["typo"][1]
        assert httpx.get(f"http://{running.http}/v2/health/ready").status_code == 503


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = [", "cannot be read"),
        ("instances = 0", "instances must be at least 1; found 0"),
        ("batching = {max_delay_ms = -1}", "max_delay_ms"),
        ('file = "../secret.onnx"', "file"),
        ("[queue]\ntime_limit_s = inf", "queue.time_limit_s"),
        ("[batching]\nmax_delay_ms = nan", "batching.max_delay_ms"),
        ("[batching]\npreferred_sizes = [0]", "batching.preferred_sizes.0"),
        ("[batching]\nmax_batch_size = 4\npreferred_sizes = [8]", "preferred size 8 is beyond"),
        ("[[warm_up]]\ninputs = {x = {shape = [-1, 2]}}", "warm_up.0.inputs.x.shape.0"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(tmp_path, text, expected):
    (tmp_path / "model.toml").write_text(text)
    with pytest.raises(InvalidRequest, match=expected):
        read_model_settings(tmp_path)


@pytest.mark.parametrize("versions", ["[]", "[4, 5]"])
def test_settings_that_ask_for_versions_that_are_not_there_are_told(folder, versions):
    (folder / "scaler" / "model.toml").write_text(f"versions = {versions}")
    found = scan_models(folder)["scaler"]
    assert found.problem.endswith(f"ask for versions {versions}; the folder has [1, 2, 10]")


def test_the_common_fields_of_triton_s_settings_are_read(folder):
    (folder / "scaler" / "config.pbtxt").write_text(PBTXT)
    settings = scan_models(folder)["scaler"].settings
    assert settings.batching.max_batch_size == 16
    assert settings.batching.preferred_sizes == (4, 8)
    assert settings.batching.max_delay_ms == 0.5
    assert settings.queue.limit == 7
    assert settings.queue.time_limit_s == 2.0
    assert (settings.queue.priorities, settings.queue.default_priority) == (3, 2)
    assert (settings.instances, settings.threads, settings.latest) == (2, 1, 2)
    assert scan_models(folder)["scaler"].remark == "config.pbtxt has fields without a meaning here: optimization"
    with running_server(folder) as running:
        assert ask(running) == 10.0
        assert [row[1] for row in running.server.repository.index()] == ["2", "10"]


def test_lists_of_messages_in_triton_s_settings_need_no_colon(folder):
    (folder / "scaler" / "config.pbtxt").write_text("""
        max_batch_size: 8  # a list [ in a comment
        parameters { key: "note" value { string_value: "a \\"list\\" [ of words ]" } }
        response_cache [ { enable: true } ]  # unknown, as a list
        optimization { execution_accelerators { cpu_execution_accelerator [ { name: "openvino" } ] } }
        model_warmup [ {
          name: "first" batch_size: 4 count: 3
          inputs { key: "x" value: { data_type: TYPE_FP32 dims: [ 2 ] random_data: true } }
        } ]
    """)
    found = scan_models(folder)["scaler"]
    assert found.problem == ""
    assert found.remark.endswith(": optimization, parameters 'note', response_cache")
    (run,) = found.settings.warm_up
    assert (run.count, run.inputs["x"].shape, run.inputs["x"].fill) == (3, (4, 2), "random")
    with running_server(folder, http_port=None, grpc_port=None) as running:
        assert ask(running) == 10.0


def test_what_is_passed_over_is_told_once_however_often_the_folder_is_looked_at(folder, caplog):
    (folder / "scaler" / "config.pbtxt").write_text("response_cache { enable: true }")
    (folder / "typo").mkdir()
    with running_server(folder, http_port=None, grpc_port=None) as running:
        for _ in range(3):
            running.call(running.server.reload())
    assert caplog.text.count("response_cache") == 1
    assert caplog.text.count("has no VERSION/model.onnx") == 1


def test_a_model_of_several_files_may_be_a_folder_of_the_file_s_name(tmp_path):
    write_model(scaler_text(3.0), tmp_path / "scaler" / "1" / "model.onnx" / "model.onnx")
    (tmp_path / "lost+found").mkdir()  # of a mounted file system: no model
    with running_server(tmp_path, http_port=None, grpc_port=None) as running:
        assert ask(running) == 3.0
        assert running.server.repository.is_ready()
        assert running.server.repository.loaded()[0].nbytes > 0


def test_a_model_of_another_kind_is_refused_by_its_settings(tmp_path):
    (tmp_path / "config.pbtxt").write_text('backend: "pytorch"')
    with pytest.raises(InvalidRequest, match="pytorch"):
        read_model_settings(tmp_path)
    (tmp_path / "config.pbtxt").write_text("name: [")
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read_model_settings(tmp_path)


def test_warm_ups_are_held_against_the_model(folder):
    (folder / "scaler" / "model.toml").write_text(
        '[[warm_up]]\ninputs = {x = {shape = [4, 2], fill = "random"}}\ncount = 2\n'
    )
    with running_server(folder) as running:
        assert ask(running) == 10.0
    (folder / "scaler" / "model.toml").write_text("[[warm_up]]\ninputs = {z = {shape = [4, 2]}}\n")
    with running_server(folder) as running:
        assert "warm_up names input 'z'" in running.server.repository.index()[0][3]


def test_a_sequence_model_is_refused_with_its_reason(tmp_path):
    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (seq(float[n]) x) => (int64 y) { y = SequenceLength (x) }
    """
    with running_server(write_model(text, tmp_path / "lengths.onnx")) as running:
        assert "dense tensors" in running.server.repository.index()[0][3]


def test_two_servers_in_one_loop_do_not_meet(folder):
    with running_server(folder) as first, running_server(folder) as second:
        assert ask(first) == ask(second) == 10.0


def test_unloading_waits_for_what_is_being_loaded(folder):
    with running_server(folder) as running:
        repository = running.server.repository

        async def change() -> None:
            write_model(scaler_text(3.0), folder / "scaler" / "2000" / "model.onnx")
            loading = asyncio.create_task(repository.load("scaler"))
            while repository.versions("scaler").get(2000) is None:
                await asyncio.sleep(0.001)
            await repository.unload("scaler")
            await loading

        running.call(change())
        assert repository.loaded() == []


@pytest.mark.parametrize(
    "text",
    [
        "max_batch_size: -5 dynamic_batching { }",
        "instance_group [ { count: 1000 } ]",
        "dynamic_batching { priority_levels: 100000 }",
        "dynamic_batching { priority_levels: 2 default_priority_level: 3 }",
        'default_model_filename: "../model.onnx"',
        "max_batch_size: {",
        "max_batch_size: 99999999999999",
    ],
)
def test_settings_of_triton_that_cannot_be_meant_are_the_model_s_problem(folder, text):
    write_model(DOUBLER, folder / "doubler" / "1" / "model.onnx")
    (folder / "doubler" / "config.pbtxt").write_text(text)
    found = scan_models(folder)
    assert "config.pbtxt" in found["doubler"].problem
    assert not found["scaler"].problem


@pytest.mark.parametrize("name", ["", ".", "..", "../scaler", "scaler/1", "C:", ".git", "scaler\0", "nothing"])
def test_no_path_is_made_of_a_model_s_name(folder, name):
    (folder / ".git").mkdir()
    assert scan_one(folder, name) is None


def test_a_server_that_cannot_start_leaves_nothing_behind(folder):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        before = {thread.name for thread in threading.enumerate()}
        with pytest.raises(OSError, match="cannot listen"), running_server(folder, grpc_port=taken.getsockname()[1]):
            pass
        assert not {thread.name for thread in threading.enumerate() if "scaler" in thread.name} - before


def test_what_has_no_meaning_within_fields_of_triton_s_settings_is_named(folder, caplog):
    write_model(scaler_text(1.0), folder / "own" / "1" / "model.onnx")
    (folder / "own" / "config.pbtxt").write_text("""
        input [ { name: "x", data_type: TYPE_FP32, format: FORMAT_NONE, dims: [ 2 ] } ]
        output { name: "y" data_type: TYPE_FP32 dims: [ 2 ] label_filename: "labels.txt" }
        max_batch_size: 4
        instance_group [ { count: 1 kind: KIND_GPU gpus: [ 0 ] rate_limiter { resources [ { name: "r" } ] } } ]
        dynamic_batching { preserve_ordering: true default_queue_policy { timeout_action: DELAY max_queue_size: 4 } }
        parameters { key: "intra_op_thread_count" value { string_value: "1" } }
        parameters { key: "execution_mode" value { string_value: "1" } }
    """)
    with caplog.at_level("WARNING", logger="ort_serve"), running_server(folder):
        pass
    (told,) = [record.getMessage() for record in caplog.records if "config.pbtxt has fields" in record.getMessage()]
    assert told.partition("here: ")[2] == (
        "dynamic_batching.default_queue_policy.timeout_action, dynamic_batching.preserve_ordering, input.format, "
        "instance_group.gpus, instance_group.kind KIND_GPU, instance_group.rate_limiter, output.label_filename, "
        "parameters 'execution_mode'"
    )


@pytest.mark.parametrize("field", ["sequence_batching { direct { } }", "batch_input [ { kind: BATCH_ELEMENT_COUNT } ]"])
def test_what_would_give_other_results_is_refused_by_name(folder, field):
    write_model(scaler_text(1.0), folder / "own" / "1" / "model.onnx")
    (folder / "own" / "config.pbtxt").write_text(field)
    with running_server(folder) as server:
        told = {name: reason for name, _, _, reason in server.server.repository.index()}["own"]
    assert field.split()[0] in told


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are Unicode here")
def test_a_folder_whose_name_is_no_text_is_told_and_hides_no_other(folder, caplog):
    caplog.set_level(logging.CRITICAL, logger="ort_serve")  # as below
    shutil.copytree(folder / "scaler", os.fsdecode(os.fsencode(folder) + b"/odd\xff"))
    (folder / "broken" / "1").mkdir(parents=True)
    with running_server(folder) as running, triton_grpc.InferenceServerClient(running.grpc) as client:
        rows = {row["name"]: row for row in httpx.post(f"http://{running.http}/v2/repository/index").json()}
        assert "not UTF-8" in rows["odd\\udcff"]["reason"]
        assert {"broken", "scaler"} < rows.keys()
        assert {model.name for model in client.get_model_repository_index().models} == rows.keys()
        assert ask(running) == 10.0


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are Unicode here")
def test_reasons_that_name_such_a_folder_are_told_by_both_protocols(tmp_path, caplog):
    caplog.set_level(logging.CRITICAL, logger="ort_serve")  # pytest-xdist cannot send lines that are not UTF-8
    root = Path(os.fsdecode(os.fsencode(tmp_path) + b"/odd\xff"))
    (root / "broken" / "1").mkdir(parents=True)
    with running_server(root) as running, triton_grpc.InferenceServerClient(running.grpc) as client:
        (row,) = httpx.post(f"http://{running.http}/v2/repository/index").json()
        assert "odd\\udcff" in row["reason"]
        assert client.get_model_repository_index().models[0].reason == row["reason"]
        with pytest.raises(InferenceServerException, match="odd"):
            client.get_model_metadata("broken")
        assert httpx.get(f"http://{running.http}/v2/models/broken").status_code == 503


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (
            "model.onnx",
            "no VERSION/model.onnx; a version is a folder whose name is a number from 1 on; move model.onnx to",
        ),
        ("1/net.onnx", "1 has no model.onnx, but net.onnx: rename it, or name it as `file` in"),
        ("1/readme.txt", "1 has no model.onnx"),
        ("one/model.onnx", "no VERSION/model.onnx; a version is a folder whose name is a number from 1 on"),
        ("0/model.onnx", "no VERSION/model.onnx; a version is a folder whose name is a number from 1 on"),
        ("\u0661/model.onnx", "no VERSION/model.onnx; a version is a folder whose name is a number from 1 on"),
    ],
)
def test_a_folder_without_versions_is_told_by_what_is_there_instead(tmp_path, made, told):
    write_model(DOUBLER, tmp_path / "net" / made)
    assert told in scan_models(tmp_path)["net"].problem


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
def test_a_link_to_nothing_is_told(tmp_path):
    (tmp_path / "net" / "1").mkdir(parents=True)
    (tmp_path / "net" / "1" / "model.onnx").symlink_to("nowhere.onnx")
    assert "is a link to a file that is not there" in scan_models(tmp_path)["net"].problem
