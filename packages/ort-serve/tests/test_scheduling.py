"""Queues, batches, deadlines, cancellation, and cores."""

from __future__ import annotations

import asyncio
import itertools
import re
import socket
import threading
import time
from collections.abc import Iterable
from multiprocessing import shared_memory

import httpx
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
import tritonclient.utils
from serve_fixtures import DOUBLER, running_server, write_model

from ort_core import InferenceSession
from ort_serve.failures import DeadlineExceeded, InvalidRequest, ModelFailed, NotReady, Overloaded
from ort_serve.inference import infer
from ort_serve.process_metrics import metrics_text
from ort_serve.protocol.requests import InferRequest
from ort_serve.scheduling.batch_curve import measure_batches
from ort_serve.scheduling.brief_runs import LIMIT_S, BriefRuns, is_work_bounded
from ort_serve.scheduling.core_budget import CoreBudget
from ort_serve.scheduling.job import Job, join_key_of
from ort_serve.scheduling.job_queue import BatchPolicy, JobQueue

MIXER = """
<ir_version: 10, opset_import: ["" : 21]>
mixer (float[batch, 4] x) => (float[batch, 4] y) {
  axes = Constant <value_ints = [0]> ()
  mean = ReduceMean (x, axes)
  y = Sub (x, mean)
}
"""
TOML = """
[batching]
max_batch_size = 8
max_delay_ms = 200.0
preferred_sizes = [4]
[queue]
limit = 3
priorities = 2
default_priority = 2
"""


@pytest.fixture
def loop():
    made = asyncio.new_event_loop()
    yield made
    made.close()


def job(loop, rows: int = 1, columns: int = 4, **options: object) -> Job:
    inputs = {"x": np.zeros((rows, columns), np.float32)}
    return Job(inputs, (), rows, join_key_of(inputs), loop, loop.create_future(), **options)


def test_jobs_of_one_shape_are_taken_together_up_to_the_limit(loop):
    queue = JobQueue(100, BatchPolicy(max_rows=4))
    jobs = [job(loop), job(loop, 2), job(loop, columns=3), job(loop), job(loop)]
    for each in jobs:
        queue.put(each)
    assert queue.take() == [jobs[0], jobs[1], jobs[3]]
    assert queue.take() == [jobs[2]]
    assert queue.take() == [jobs[4]]


def test_a_large_job_is_not_overtaken_by_later_ones_of_its_shape(loop):
    queue = JobQueue(100, BatchPolicy(max_rows=4))
    jobs = [job(loop, 3), job(loop, 2), job(loop, 1)]
    for each in jobs:
        queue.put(each)
    assert queue.take() == [jobs[0]]
    assert queue.take() == [jobs[1], jobs[2]]


def test_a_job_larger_than_a_batch_runs_alone(loop):
    queue = JobQueue(100, BatchPolicy(max_rows=4))
    large = job(loop, 9)
    queue.put(large)
    queue.put(job(loop))
    assert queue.take() == [large]


def test_smaller_priorities_go_first(loop):
    queue = JobQueue(100, BatchPolicy())
    late, early = job(loop, priority=2), job(loop, priority=1)
    queue.put(late)
    queue.put(early)
    assert queue.take() == [early]
    assert queue.take() == [late]


def test_the_first_waits_for_others_but_no_longer_than_the_delay(loop):
    queue = JobQueue(100, BatchPolicy(max_rows=8, max_delay_ns=50_000_000))
    begin = time.perf_counter()
    queue.put(job(loop))
    assert len(queue.take()) == 1
    assert time.perf_counter() - begin >= 0.045


def test_a_preferred_size_does_not_wait(loop):
    queue = JobQueue(100, BatchPolicy(max_rows=8, max_delay_ns=600_000_000_000, preferred_rows=frozenset({2})))
    queue.put(job(loop))
    threading.Timer(0.05, lambda: queue.put(job(loop))).start()
    assert len(queue.take()) == 2


def test_a_full_queue_says_when_to_come_again(loop):
    queue = JobQueue(2, BatchPolicy())
    queue.put(job(loop))
    queue.put(job(loop))
    with pytest.raises(Overloaded, match="2 requests wait") as refusal:
        queue.put(job(loop))
    assert refusal.value.retry_after_s > 0


def test_jobs_that_nobody_waits_for_make_room(loop):
    queue = JobQueue(2, BatchPolicy())
    left = [job(loop), job(loop)]
    for each in left:
        queue.put(each)
        each.cancel()
    stays = job(loop)
    queue.put(stays)
    assert queue.take() == [stays]


def test_a_job_whose_time_is_up_is_never_given_out(loop):
    queue = JobQueue(9, BatchPolicy())
    dead, alive = job(loop, deadline_ns=time.monotonic_ns() - 1), job(loop)
    queue.put(dead)
    queue.put(alive)
    assert queue.take() == [alive]
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert isinstance(dead.result.exception(), DeadlineExceeded)


def test_a_closed_queue_gives_out_what_waits_and_takes_no_more(loop):
    queue = JobQueue(9, BatchPolicy(max_rows=8, max_delay_ns=10**12))
    queue.put(job(loop))
    queue.close()
    assert len(queue.take()) == 1
    assert queue.take() is None
    with pytest.raises(NotReady):
        queue.put(job(loop))


def test_cores_are_held_in_order_of_arrival():
    budget = CoreBudget(2)
    order: list[str] = []

    def run(name: str, cores: int) -> None:
        with budget.hold(cores):
            order.append(name)

    with budget.hold(1):
        wide = threading.Thread(target=run, args=("wide", 2))
        wide.start()
        while not budget._waiting:
            time.sleep(0.001)
        narrow = threading.Thread(target=run, args=("narrow", 1))
        narrow.start()
        while len(budget._waiting) < 2:
            time.sleep(0.001)
        assert order == []
    wide.join()
    narrow.join()
    assert order == ["wide", "narrow"]
    with budget.hold(99):  # more than there are: all of them
        pass


def test_cores_are_never_oversubscribed():
    budget = CoreBudget(3)
    held, most, lock = 0, 0, threading.Lock()

    def run(cores: int) -> None:
        nonlocal held, most
        for _ in range(200):
            with budget.hold(cores):
                with lock:
                    held += cores
                    most = max(most, held)
                with lock:
                    held -= cores

    threads = [threading.Thread(target=run, args=(cores,)) for cores in (1, 2, 3, 1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most <= 3
    assert held == 0


def session_run(session):
    return lambda feeds: dict(zip(("y", "total"), session.run(None, feeds)))


def test_a_model_whose_rows_depend_on_each_other_is_not_joined(tmp_path):
    session = InferenceSession(str(write_model(MIXER, tmp_path / "mixer.onnx")))
    curve = measure_batches(session_run(session), {"x": np.zeros((1, 4), np.float32)})
    assert curve.max_rows == 1
    assert "depends on the rows beside it" in curve.reason


@pytest.mark.parametrize("element", [np.int64, np.int8, np.uint8, np.bool_, object])
@pytest.mark.parametrize("shape", [(1,), (1, 1), (1, 2)])
def test_a_model_that_mixes_rows_of_few_whole_numbers_or_texts_is_not_joined(element, shape):
    def run(feeds):
        numbers = np.where(feeds["x"] == "", "0", feeds["x"]) if element is object else feeds["x"]
        return {"y": numbers.astype(np.float64) - numbers.astype(np.float64).max(axis=0)}

    curve = measure_batches(run, {"x": np.full(shape, "" if element is object else 0, element)})
    assert "depends on the rows beside it" in curve.reason


class Machine:
    """A model on a clock of its own, so that no load of the real machine shows."""

    def __init__(self, fixed: float, each_row: float, disturbed: Iterable[int] = ()) -> None:
        self.now = 0.0
        self._fixed = fixed
        self._each_row = each_row
        self._disturbed = dict.fromkeys(disturbed, 51)  # rows, and how many runs of them take twice the time

    def run(self, feeds):
        rows = len(feeds["x"])
        seconds = self._fixed + self._each_row * rows
        if self._disturbed.get(rows, 0):
            self._disturbed[rows] -= 1
            seconds *= 2
        self.now += seconds
        return {"y": feeds["x"] * 2}

    def measure(self):
        return measure_batches(self.run, {"x": np.zeros((1, 4), np.float32)}, lambda: self.now)


def test_a_model_that_gains_nothing_from_batches_is_not_joined():
    curve = Machine(fixed=0.0001, each_row=0.01).measure()
    assert curve.max_rows == 1
    assert "about twice the time" in curve.reason
    assert list(curve.seconds) == [1, 2]


def test_a_model_that_gains_is_joined_as_long_as_it_does():
    assert Machine(fixed=0.004, each_row=0.00001).measure().max_rows == 64
    assert Machine(fixed=0.004, each_row=0.001).measure().max_rows == 32  # 1.06 beyond
    assert Machine(fixed=0.0, each_row=2.0).measure().max_rows == 1


def test_other_programs_do_not_end_the_measurement():
    assert Machine(fixed=0.0004, each_row=0.000001, disturbed=[4]).measure().max_rows == 64, "timed again"
    always = Machine(fixed=0.0004, each_row=0.000001, disturbed=[4])
    always._disturbed[4] = 1000
    assert always.measure().max_rows == 64, "the next size is tried"
    nothing = Machine(fixed=0.0, each_row=0.0001).measure()
    assert nothing.max_rows == 1
    assert list(nothing.seconds) == [1, 2, 4], "but no more"


@pytest.fixture
def folder(tmp_path):
    write_model(DOUBLER, tmp_path / "doubler" / "1" / "model.onnx")
    (tmp_path / "doubler" / "model.toml").write_text(TOML)
    return tmp_path


def request(rows: int = 1, value: float = 1.0, **options: object) -> InferRequest:
    return InferRequest("doubler", "", {"x": np.full((rows, 4), value, np.float32)}, **options)


def test_joined_requests_get_their_own_rows(folder):
    with running_server(folder) as running:
        repository = running.server.repository

        async def both():
            return await asyncio.gather(
                *(infer(repository, request(rows, value)) for rows, value in ((1, 1.0), (3, 2.0)))
            )

        first, second = running.call(both())
        np.testing.assert_array_equal(first.outputs[0][1], np.full((1, 4), 2))
        np.testing.assert_array_equal(second.outputs[0][1], np.full((3, 4), 4))
        counts = repository.get_version("doubler", "").statistics
        assert counts.executions == 1  # four rows are a preferred size
        assert counts.rows == 4


def test_requests_beyond_the_queue_are_refused_and_those_before_answered(folder):
    (folder / "doubler" / "model.toml").write_text(TOML.replace("preferred_sizes = [4]", ""))
    with running_server(folder) as running:
        repository = running.server.repository

        async def many():
            return await asyncio.gather(*(infer(repository, request()) for _ in range(5)), return_exceptions=True)

        found = running.call(many())
        assert sum(isinstance(each, Overloaded) for each in found) == 2
        assert sum(not isinstance(each, Exception) for each in found) == 3


def test_a_deadline_counts_the_waiting(folder):
    text = TOML.replace("preferred_sizes = [4]", "").replace("200.0", "20000.0")
    (folder / "doubler" / "model.toml").write_text(text)
    with running_server(folder) as running:
        begin = time.perf_counter()
        with pytest.raises(DeadlineExceeded, match="while it waited"):
            running.call(infer(running.server.repository, request(timeout_s=0.05)))
        assert time.perf_counter() - begin < 15


@pytest.mark.parametrize("step_s", [-86_400 * 400, 86_400 * 400])
def test_waiting_goes_on_as_before_when_the_clock_is_set(folder, monkeypatch, step_s):
    text = TOML.replace("preferred_sizes = [4]", "").replace("200.0", "20000.0")
    (folder / "doubler" / "model.toml").write_text(text)
    with running_server(folder) as running:
        real, jumps = time.time, itertools.count()
        monkeypatch.setattr(time, "time", lambda: real() + next(jumps) * step_s)
        monkeypatch.setattr(time, "time_ns", lambda: int((real() + next(jumps) * step_s) * 1e9))

        async def both() -> tuple[object, object]:
            waits = asyncio.create_task(infer(running.server.repository, request(timeout_s=3600)))
            with pytest.raises(DeadlineExceeded, match="while it waited"):
                await infer(running.server.repository, request(timeout_s=0.05))
            assert not waits.done()
            joined = await asyncio.gather(waits, infer(running.server.repository, request(rows=7)))
            return joined

        begin = time.monotonic()
        first, second = running.call(both())  # seven rows and one are a whole batch
        assert time.monotonic() - begin < 15
        assert [array.shape[0] for _, array in (first.outputs[0], second.outputs[0])] == [1, 7]


def test_a_client_that_leaves_takes_its_request_along(folder):
    text = TOML.replace("preferred_sizes = [4]", "").replace("200.0", "300.0")
    (folder / "doubler" / "model.toml").write_text(text)
    with running_server(folder) as running:
        repository = running.server.repository

        async def leave() -> None:
            task = asyncio.create_task(infer(repository, request()))
            await asyncio.sleep(0.02)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        running.call(leave())
        running.call(infer(repository, request(value=3.0)))
        counts = repository.get_version("doubler", "").statistics
        assert counts.rows == 1  # the one who left was never run


def test_a_run_that_nobody_waits_for_is_stopped(tmp_path):
    write_model(ENDLESS, tmp_path / "endless" / "1" / "model.onnx")
    (tmp_path / "endless" / "model.toml").write_text("[[warm_up]]\ninputs = {count = {shape = []}}\n")
    with running_server(tmp_path) as running:
        repository = running.server.repository
        asked = InferRequest("endless", "", {"count": np.array(2**60, np.int64)}, timeout_s=0.2)
        with pytest.raises(DeadlineExceeded, match="while it ran"):
            running.call(infer(repository, asked))
        again = InferRequest("endless", "", {"count": np.array(3, np.int64)}, timeout_s=60)
        assert running.call(infer(repository, again)).outputs[0][1] == 8


@pytest.mark.parametrize("version", ["", "/versions/1"])
def test_a_client_that_leaves_takes_its_run_along_though_it_asked_on(tmp_path, version):
    write_model(ENDLESS, tmp_path / "endless" / "1" / "model.onnx")
    (tmp_path / "endless" / "model.toml").write_text("[[warm_up]]\ninputs = {count = {shape = []}}\n")
    body = b'{"inputs": [{"name": "count", "datatype": "INT64", "shape": [], "data": [1152921504606846976]}]}'
    head = f"POST /v2/models/endless{version}/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
    with running_server(tmp_path) as running:
        statistics = running.server.repository.loaded()[0].statistics
        with socket.create_connection(("127.0.0.1", running.server.http_port)) as connection:
            connection.sendall((head.encode() + body) * 2)
            until = time.monotonic() + 30
            while not running.server.repository.loaded()[0]._runner._running and time.monotonic() < until:
                time.sleep(0.001)
        while not statistics.fail.count and time.monotonic() < until:
            time.sleep(0.001)
        assert statistics.fail.count == 1, "the first run was stopped, and the second was never begun"


def test_what_runs_too_long_when_the_server_ends_is_stopped_and_its_clients_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr("ort_serve.server._GRACE_S", 0.2)
    write_model(ENDLESS, tmp_path / "endless" / "1" / "model.onnx")
    (tmp_path / "endless" / "model.toml").write_text("[[warm_up]]\ninputs = {count = {shape = []}}\n")
    body = {"inputs": [{"name": "count", "datatype": "INT64", "shape": [], "data": [2**60]}]}
    answers: list[tuple[int, str]] = []

    def ask_http(address: str) -> None:
        answer = httpx.post(f"http://{address}/v2/models/endless/infer", json=body, timeout=60)
        answers.append((answer.status_code, answer.text))

    def ask_grpc(address: str) -> None:
        with tritonclient.grpc.InferenceServerClient(address) as client:
            tensor = tritonclient.grpc.InferInput("count", [], "INT64")
            tensor.set_data_from_numpy(np.array(2**60, np.int64))
            with pytest.raises(tritonclient.utils.InferenceServerException) as raised:
                client.infer("endless", [tensor])
        answers.append((0, f"{raised.value.status()} {raised.value.message()}"))

    with running_server(tmp_path) as running:
        version = running.server.repository.get_version("endless", "")
        clients = [
            threading.Thread(target=ask_http, args=(running.http,)),
            threading.Thread(target=ask_grpc, args=(running.grpc,)),
        ]
        for client in clients:
            client.start()
        while not (len(version._runner._running) == 1 and len(version.queue) == 1):
            time.sleep(0.001)
    for client in clients:
        client.join()
    (_, told), (status, text) = sorted(answers)
    assert told == "StatusCode.UNAVAILABLE the server ends"
    assert (status, text) == (503, '{"error":"the server ends"}')


ENDLESS = """
<ir_version: 10, opset_import: ["" : 21]>
endless (int64 count) => (float y) {
  one = Constant <value_float = 1.0> ()
  true = Constant <value = bool {1}> ()
  y = Loop (count, true, one) <body = step (int64 i, bool go, float before) => (bool still, float after) {
    after = Add (before, before)
    still = Identity (go)
  }>
}
"""


def test_only_what_is_known_to_be_short_runs_in_the_event_loop():
    brief = BriefRuns(is_bounded=True)
    assert not brief.is_brief("shapes", 1)
    brief.learn("shapes", 1, LIMIT_S / 4)
    assert brief.is_brief("shapes", 1)
    assert not brief.is_brief("shapes", 8), "eight rows may take eight times as long"
    brief.learn("shapes", 8, LIMIT_S / 2)
    assert brief.is_brief("shapes", 8)
    assert not brief.is_brief("others", 1)
    for _ in range(5):
        brief.learn("shapes", 8, 1.0)
    assert not brief.is_brief("shapes", 8)
    never = BriefRuns(is_bounded=False)
    never.learn("shapes", 1, 0.0)
    assert not never.is_brief("shapes", 1)


def test_models_whose_work_depends_on_values_never_run_in_the_event_loop():
    assert is_work_bounded([("", "Gemm"), ("ai.onnx.ml", "TreeEnsemble")])
    assert not is_work_bounded([("", "Add"), ("", "Loop")])
    assert not is_work_bounded([("my.domain", "Add")])
    for op_type in ("RoiAlign", "STFT", "GroupQueryAttention"):  # sizes of regions, steps and lengths are values
        assert not is_work_bounded([("com.microsoft" if op_type.startswith("Group") else "", op_type)])


def test_requests_of_one_moment_are_joined_in_the_event_loop(tmp_path):
    path = write_model(DOUBLER, tmp_path / "doubler" / "1" / "model.onnx")
    (tmp_path / "doubler" / "model.toml").write_text("[batching]\nmax_batch_size = 8\n")
    with running_server(path.parents[2], http_port=None, grpc_port=None) as running:
        repository = running.server.repository
        version = repository.get_version("doubler", "")
        version._runner._brief = Known()
        ran_in: set[str] = set()
        run = version.session.run
        version.session.run = lambda *arguments: (ran_in.add(threading.current_thread().name), run(*arguments))[1]

        async def ask() -> list[float]:
            requests = [InferRequest("doubler", "", {"x": np.full((1, 4), value, np.float32)}) for value in range(20)]
            answers = await asyncio.gather(*(infer(repository, request) for request in requests))
            return [float(answer.outputs[0][1][0, 0]) for answer in answers]

        assert running.call(ask()) == [2.0 * value for value in range(20)]
        assert ran_in == {"server"}, "the loop's own thread"
        assert version.statistics.executions == 4, "the first at once, and 8, 8 and 3 rows"
        version._runner._places.acquire()  # no place: a thread's work

        def later() -> None:
            version._runner._places.release()

        threading.Timer(0.05, later).start()
        assert running.call(ask())[3] == 6.0


def test_a_request_that_finds_nothing_before_it_does_not_wait_for_the_next_turn_of_the_loop(tmp_path, monkeypatch):
    path = write_model(DOUBLER, tmp_path / "doubler.onnx")
    with running_server(path, http_port=None, grpc_port=None) as running:
        repository = running.server.repository
        version = repository.get_version("doubler", "")
        version._runner._brief = Known()
        request = InferRequest("doubler", "", {"x": np.ones((1, 4), np.float32)})

        async def turns_of_one() -> int:
            turns: list[int] = []
            asyncio.get_running_loop().call_soon(turns.append, 1)
            answer = await infer(repository, request)
            assert answer.outputs[0][1][0, 0] == 2.0
            return len(turns)

        assert running.call(turns_of_one()) == 0
        with monkeypatch.context() as broken:
            broken.setattr(version.statistics, "ran", lambda *arguments: 1 / 0)
            with pytest.raises(ModelFailed, match="ZeroDivisionError"):
                running.call(turns_of_one())
        assert running.call(turns_of_one()) == 0, "the failed run gave back its place and its cores"
        version._runner._places.acquire()
        threading.Timer(0.05, version._runner._places.release).start()
        assert running.call(turns_of_one()) == 1, "no place: it waits as any other"


class Known:
    """Every run is short."""

    def is_brief(self, shapes: object, rows: int) -> bool:
        return True

    def learn(self, shapes: object, rows: int, seconds: float) -> None:
        """Take no notice."""


def test_outcomes_are_counted_by_kind_and_once(tmp_path):
    path = write_model(DOUBLER, tmp_path / "doubler.onnx")
    with running_server(path, http_port=None, grpc_port=None) as running:
        repository = running.server.repository

        async def ask(columns: int, timeout: float | None = None) -> None:
            request = InferRequest("doubler", "", {"x": np.zeros((1, columns), np.float32)}, timeout_s=timeout)
            await infer(repository, request)

        running.call(ask(4))
        with pytest.raises(InvalidRequest):
            running.call(ask(5))
        version = repository.get_version("doubler", "")
        version._runner._places.acquire()
        version._runner._brief = BriefRuns(is_bounded=False)
        with pytest.raises(DeadlineExceeded):
            running.call(ask(4, 0.02))
        version._runner._places.release()
        text = metrics_text(running.server.state.metrics).decode()
        for outcome in ("success", "invalid", "deadline"):
            assert f'ort_requests_total{{model="doubler",outcome="{outcome}",version="1"}} 1.0' in text
        assert version.statistics.fail.count == 2


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_result_that_does_not_fit_its_region_is_counted_once(tmp_path, protocol):
    path = write_model(DOUBLER, tmp_path / "doubler.onnx")
    memory = shared_memory.SharedMemory(create=True, size=64)
    try:
        with running_server(path) as running:
            running.server.state.regions.register("small", memory.name, 0, 64)
            module = tritonclient.http if protocol == "http" else tritonclient.grpc
            tensor, wanted = module.InferInput("x", [1, 4], "FP32"), module.InferRequestedOutput("y")
            tensor.set_data_from_numpy(np.ones((1, 4), np.float32))
            wanted.set_shared_memory("small", 8)
            with module.InferenceServerClient(getattr(running, protocol)) as client:
                for _ in range(3):  # by a thread, and in the event loop
                    with pytest.raises(tritonclient.utils.InferenceServerException, match="takes 16 bytes"):
                        client.infer("doubler", [tensor], outputs=[wanted])
            text = metrics_text(running.server.state.metrics).decode()
            counts = re.findall(r"^ort_requests_total\{.*\} (.*)$", text, re.M)
            assert sum(map(float, counts)) == 3
            assert re.search(r"^ort_requests_in_flight\{.*\} 0.0$", text, re.M)
    finally:
        memory.close()
        memory.unlink()


def test_a_failure_that_nobody_foresaw_is_told_and_the_thread_goes_on(tmp_path, monkeypatch, caplog):
    path = write_model(DOUBLER, tmp_path / "doubler.onnx")
    with running_server(path, http_port=None, grpc_port=None) as running:
        repository = running.server.repository
        version = repository.get_version("doubler", "")
        request = InferRequest("doubler", "", {"x": np.zeros((1, 4), np.float32)})
        with monkeypatch.context() as broken:
            broken.setattr(version.statistics, "ran", lambda *arguments: 1 / 0)
            with pytest.raises(ModelFailed, match="ZeroDivisionError"):
                running.call(infer(repository, request))
        running.call(infer(repository, request))
