"""Judges many seeds in worker processes that may crash or hang, and sums up; resumes where it was stopped.

    python campaign.py FIRST COUNT OUT [WORKERS] [low|full] [PROVIDER]

OUT gets a line of JSON for each seed (``worker.py``), for each crash and each hang. Seeds that stand in it already are
not tried again, whatever code they ran: several runs add up in one file. Each line names its code by a digest of all
modules of ort_core and of the campaign, and the summary counts seeds by code. The last line of stdout is the summary;
the exit status is 1 where a difference is not explained.

PROVIDER is a file of another provider's package, ``tests/*_on_random_graphs.py`` (``on_provider``): graphs are run
by it then, with the CPU behind it, and by no other engine.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import ort_core

WORKER = Path(__file__).with_name("worker.py")
CHUNK = 400  # seeds of one process: its start takes as long as thirty
INSIDE_ONNXRUNTIME = "onnxruntime_inference_collection.py"  # in the stack of a process that crashed
READS_OURS = "read_by_onnxruntime"  # in the stack of one that crashed over a file that we saved
HANG_S = 300.0  # for one seed with its minimizer, on a machine that others use, too


@dataclass
class Campaign:
    """A run over seeds; ``out`` is written by one thread at a time. ``more`` goes to the worker behind the rest."""

    out: IO[str]
    effort: str
    worker: Path = WORKER
    more: Sequence[str] = ()

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def write(self, facts: Mapping[str, Any]) -> None:
        """Write one line."""
        facts = {**facts, "code": code_digest()}
        with self._lock:
            print(json.dumps(facts), file=self.out, flush=True)

    def run(self, chunks: queue.Queue[range]) -> None:
        """Judge chunks until there are no more."""
        while True:
            try:
                chunk = chunks.get_nowait()
            except queue.Empty:
                return
            start = chunk.start
            while start < chunk.stop:
                start = self._one_process(start, chunk.stop)

    def _one_process(self, start: int, stop: int, without: str = "") -> int:
        """Judge seeds in one process; returns the first that is left to be judged."""
        warned = [f"-W{each}" for each in sys.warnoptions]
        given = (str(start), str(stop - start), self.effort, without, *self.more)
        command = [sys.executable, *warned, str(self.worker), *given]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stderr is not None
        errors: list[str] = []
        threading.Thread(target=lambda: errors.extend(process.stderr), daemon=True).start()
        trying = start
        for line in _lines(process):
            if line is None:
                self.write({"seed": trying, "hang": HANG_S})
                return trying + 1
            if not line.startswith("{"):
                continue  # onnx itself prints there that a model has experimental operators
            facts = json.loads(line)
            if "trying" in facts:
                trying = facts["trying"]
            else:
                self.write(facts)
        if process.wait() == 0:
            return stop
        text = "".join(errors)
        if INSIDE_ONNXRUNTIME in text and READS_OURS not in text and not without:
            return self._one_process(trying, trying + 1, "onnxruntime")
        self.write({"seed": trying, "crash": process.returncode, "text": text[-3000:]})
        return trying + 1


def _lines(process: subprocess.Popen[str]) -> Iterator[str | None]:
    """Yield the lines of a process; ``None`` when none came in time: it has been ended then."""
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=HANG_S)
        except queue.Empty:
            process.kill()
            process.wait()
            yield None
            return
        if not line:
            return
        yield line


@functools.cache
def code_digest() -> str:
    """Return 12 letters that change with any module of ort_core or of this folder."""
    found = hashlib.sha256()
    for folder in (Path(ort_core.__file__).parent, Path(__file__).parent):
        for path in sorted(folder.rglob("*.py")):
            found.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:12]


def read_lines(path: Path) -> list[Mapping[str, Any]]:
    """Return what a campaign has written so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def chunks_of(first: int, count: int, done: set[int]) -> Sequence[range]:
    """Return runs of seeds that are not done, none longer than ``CHUNK``."""
    found: list[range] = []
    for seed in range(first, first + count):
        if seed in done:
            continue
        if found and found[-1].stop == seed and len(found[-1]) < CHUNK:
            found[-1] = range(found[-1].start, seed + 1)
        else:
            found.append(range(seed, seed + 1))
    return found


def summary(lines: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return counts: seeds, nodes, endings by engine, differences by engine, kind, operators and explanation.

    Seeds are counted by the code that they ran as well.
    """
    endings: collections.Counter[str] = collections.Counter()
    claimed: collections.Counter[str] = collections.Counter()
    explained: collections.Counter[str] = collections.Counter()
    open_ones: dict[str, list[int]] = collections.defaultdict(list)
    for line in lines:
        endings.update(f"{engine}: {ending}" for engine, ending in line.get("endings", {}).items())
        claimed.update(line.get("claimed", {}))
        for found in line.get("found", ()):
            if found["explained"]:
                explained[f"{found['engine']}: {found['explained']}"] += 1
            else:
                operators = "+".join(found["operators"][:4])
                open_ones[f"{found['engine']} {found['kind']}: {operators}"].append(line["seed"])
        for kind in ("crash", "hang"):
            if kind in line:
                open_ones[kind].append(line["seed"])
    return {
        "seeds": len(lines),
        "codes": dict(collections.Counter(line.get("code", "not told") for line in lines)),
        "nodes": sum(line.get("nodes", 0) for line in lines),
        "processor_s": round(sum(line.get("s", 0) for line in lines)),
        "endings": dict(sorted(endings.items())),
        **({"claimed": dict(claimed.most_common())} if claimed else {}),
        "explained": dict(explained.most_common()),
        "unexplained": dict(sorted(open_ones.items(), key=lambda item: -len(item[1]))),
    }


def judge_seeds(first: int, count: int, path: Path, workers: int, start: Callable[[IO[str]], Campaign]) -> int:
    """Judge those of the seeds that do not stand in a file yet, print the summary of all, and return the exit status.

    Args:
        first: the first seed.
        count: how many there are.
        path: the file of results.
        workers: processes at once.
        start: returns the campaign that writes into an open file.
    """
    chunks: queue.Queue[range] = queue.Queue()
    for chunk in chunks_of(first, count, {line["seed"] for line in read_lines(path)}):
        chunks.put(chunk)
    with path.open("a") as out:
        campaign = start(out)
        threads = [threading.Thread(target=campaign.run, args=(chunks,)) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = summary([line for line in read_lines(path) if first <= line["seed"] < first + count])
    print(json.dumps(found, indent=1))
    return 1 if found["unexplained"] else 0


def main() -> int:
    """Run the campaign of the command line."""
    first, count, path = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    workers = int(sys.argv[4]) if len(sys.argv) > 4 else 2
    effort = sys.argv[5] if len(sys.argv) > 5 else "full"
    return judge_seeds(first, count, path, workers, lambda out: Campaign(out, effort, more=sys.argv[6:7]))


if __name__ == "__main__":
    sys.exit(main())
