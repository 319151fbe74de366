"""Ray, where it is installed: a job on a cluster one of whose nodes is killed, and a deployment of Ray Serve."""

from __future__ import annotations

import json
import threading
import time

import httpx
import numpy as np
import pytest
from serve_fixtures import DOUBLER, write_model

ray = pytest.importorskip("ray", reason="ray is installed by `nox -s serving`")
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{kind}")  # Ray's own, of its own names
    for kind in ("DeprecationWarning", "FutureWarning", "ResourceWarning", "pytest.PytestUnraisableExceptionWarning")
]
ROWS = 10_000
PART = 100


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "rows.jsonl"
    with path.open("w") as file:
        for row in range(ROWS):
            file.write(json.dumps({"x": [row, 1, 2, 3] if row % 500 != 7 else "wrong"}) + "\n")
    return path


def job_of(tmp_path, source):
    from ort_serve.batch.on_ray import RayJob

    model = write_model(DOUBLER, tmp_path / "doubler.onnx")
    return RayJob(model, None, source, tmp_path / "out.jsonl", {"of": "this test"}, 32, PART)


def check(tmp_path) -> None:
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    failed = [json.loads(line) for line in (tmp_path / "out.failed.jsonl").read_text().splitlines()]
    assert [row["row"] for row in failed] == list(range(7, ROWS, 500))
    assert [row["row"] for row in found] == [row for row in range(ROWS) if row % 500 != 7]
    assert all(row["total"] == row["row"] + 6.0 for row in found)


def test_each_row_is_given_once_though_a_node_is_killed(tmp_path, source):
    from ray.cluster_utils import Cluster

    from ort_serve.batch.on_ray import run_ray_job

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 100 << 20})
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=100 << 20) for _ in range(2)]
    try:
        ray.init(address=cluster.address, log_to_driver=False)
        parts = tmp_path / "out.jsonl.parts"

        def kill() -> None:
            while not (parts / "part-00000020.jsonl").exists():
                time.sleep(0.005)
            cluster.remove_node(nodes[0], allow_graceful=False)

        killer = threading.Thread(target=kill)
        killer.start()
        done: list[int] = []
        report = run_ray_job(job_of(tmp_path, source), None, done.append)
        killer.join()
        alive = [node for node in ray.nodes() if node["Alive"]]
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert len(alive) == 2, "a node went in the middle"
    assert (report.rows, report.failures, report.skipped) == (ROWS - 20, 20, 0)
    assert sum(done) == ROWS
    check(tmp_path)


def test_a_job_that_was_begun_on_a_cluster_may_be_ended_here(tmp_path, source):
    from ort_core import InferenceSession
    from ort_serve.batch.job import run_batch_job
    from ort_serve.batch.on_ray import PartRunner
    from ort_serve.batch.parts import Parts

    job = job_of(tmp_path, source)
    runner = PartRunner(job)
    assert runner({"id": np.array([3])}) == {"rows": [PART]}
    assert runner({"id": np.array([9, 2, 0])}) == {"rows": [PART] * 3}  # backwards, too
    session = InferenceSession(str(job.model))
    report = run_batch_job(session, source, Parts(job.output, job.description), 32, PART, lambda rows: None)
    assert report.skipped == 4 * PART
    check(tmp_path)


def test_ray_serve_answers_by_the_protocol(tmp_path):
    from ray import serve

    from ort_serve.on_ray import deployment

    write_model(DOUBLER, tmp_path / "models" / "doubler" / "1" / "model.onnx")
    ray.init("local", num_cpus=3, log_to_driver=False, object_store_memory=100 << 20)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": 18765})
        scaling = {"min_replicas": 1, "max_replicas": 2, "target_ongoing_requests": 4}
        serve.run(deployment(tmp_path / "models", autoscaling_config=scaling, ray_actor_options={"num_cpus": 0.5}))
        from tritonclient.http import InferenceServerClient, InferInput

        client = InferenceServerClient("127.0.0.1:18765")
        assert client.is_server_live()
        assert client.is_model_ready("doubler")
        for rows in range(1, 30):
            x = np.full((rows, 4), rows, np.float32)
            tensor = InferInput("x", list(x.shape), "FP32")
            tensor.set_data_from_numpy(x)
            np.testing.assert_array_equal(client.infer("doubler", [tensor]).as_numpy("y"), 2 * x)
        assert httpx.post("http://127.0.0.1:18765/v2/models/doubler/infer", content=b"{").status_code == 400
    finally:
        serve.shutdown()
        ray.shutdown()
