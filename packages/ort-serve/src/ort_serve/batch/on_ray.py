"""A job on a Ray cluster: Ray Data's actors hold sessions and run parts, its scheduler gives lost ones to others.

The source and the folder of the output are seen by all nodes under the same path. A part is renamed into place when it
is complete, whoever wrote it, so that a part that was run twice, or a job taken up again, gives each row once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ort_core import InferenceSession, SessionOptions
from ort_serve.batch.job import BatchReport, Progress, run_part
from ort_serve.batch.joining import JoiningState
from ort_serve.batch.parts import Parts
from ort_serve.batch.rows import Row, count_rows, read_rows
from ort_serve.repository.signature import read_signature


@dataclass(frozen=True)
class RayJob:
    """What every actor knows of the job.

    Attributes:
        model: the model's file.
        providers: execution providers, in order; None: the default.
        source: the rows.
        output: the file that the parts become.
        description: what the parts' folder is stamped with.
        rows_at_once: rows of one run, where the model has a batch axis.
        part_rows: rows of one part.
        cores: of one actor, its session's threads.
    """

    model: Path
    providers: tuple[str, ...] | None
    source: Path
    output: Path
    description: Mapping[str, object]
    rows_at_once: int
    part_rows: int
    cores: int = 1


class PartRunner:
    """An actor: a session, and the place in the source where it was last."""

    def __init__(self, job: RayJob) -> None:
        self._job = job
        options = SessionOptions()
        options.intra_op_num_threads = job.cores
        providers = None if job.providers is None else list(job.providers)
        self._session = InferenceSession(str(job.model), options, providers=providers)
        self._signature = read_signature(self._session.get_inputs(), self._session.get_outputs())
        self._joining = JoiningState(self._session, self._signature, job.rows_at_once)
        self._parts = Parts(job.output, job.description)
        self._rows: Iterator[Row] = iter(())
        self._at = -1

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[int]]:
        """Run the parts whose numbers are in column ``id``, and return their counts of rows."""
        return {"rows": [self._run(int(number)) for number in batch["id"]]}

    def _run(self, number: int) -> int:
        first = number * self._job.part_rows
        part = self._read(first)
        if not self._parts.has(number):
            found, failures = run_part(self._session, self._signature, part, first, self._joining, lambda rows: None)
            self._parts.write(number, found, failures)
        return len(part)

    def _read(self, first: int) -> list[Row]:
        if not 0 <= self._at <= first:
            self._rows, self._at = read_rows(self._job.source, first), first
        part = list(itertools.islice(self._rows, first - self._at, first - self._at + self._job.part_rows))
        self._at = first + len(part)
        return part


def run_ray_job(job: RayJob, address: str | None, progress: Progress) -> BatchReport:
    """Run a job on a Ray cluster, and join its parts here.

    Args:
        job: the job.
        address: of the cluster; None: the one that Ray finds, or one on this machine alone.
        progress: told how many rows are done, each time some are.

    Raises:
        InvalidRequest: the source cannot be read.
        ModuleNotFoundError: Ray is not installed.
    """
    import ray

    parts = Parts(job.output, job.description)
    total = count_rows(job.source, is_needed=True) or 0
    numbers = range(max(-(-total // job.part_rows), 1))
    missing = [number for number in numbers if not parts.has(number)]
    skipped = max(total - len(missing) * job.part_rows, 0)
    progress(skipped)
    was_connected = ray.is_initialized()
    if not was_connected:
        ray.init(address=address, log_to_driver=False)
    try:
        actors = max(int(ray.cluster_resources().get("CPU", 1)) // job.cores, 1)
        for batch in _batches(job, missing, actors) if missing else ():
            progress(int(sum(batch["rows"])))
    finally:
        if not was_connected:
            ray.shutdown()
    written, failed = parts.join()
    return BatchReport(written, failed, skipped)


def _batches(job: RayJob, numbers: Sequence[int], actors: int) -> Iterator[Mapping[str, Any]]:
    import ray.data

    numbered = ray.data.from_items([{"id": number} for number in numbers], override_num_blocks=len(numbers))
    done = numbered.map_batches(
        PartRunner,
        fn_constructor_args=(job,),
        batch_size=1,
        num_cpus=job.cores,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=actors, initial_size=actors),
    )
    yield from done.iter_batches(batch_size=1, prefetch_batches=0)
