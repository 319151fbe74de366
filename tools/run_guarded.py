"""Run suites on guarded memory, at levels of instructions and counts of threads; a crash is reported by its case.

    python tools/run_guarded.py [--suite NAME] [--level TARGET] [--edge end|begin] [--threads N] [--pieces N] [--jobs N]

Each option may be repeated; without it, all of its values are tried that this machine can run. Each combination is one
run of pytest in worker processes; its whole output lies in the folder of --logs. Exits with 1 where anything failed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

TESTS = "packages/ort-core/tests"
SUITES = {
    "nodes": [f"{TESTS}/suites/test_onnx_backend.py"],
    "operators": [f"{TESTS}/suites/test_operator_cases.py"],
    "models": [f"{TESTS}/suites/test_onnxruntime_models.py", f"{TESTS}/suites/test_model_skeletons.py"],
    "cpu": [f"{TESTS}/cpu"],
    "fuzz": [f"{TESTS}/fuzz/test_broken_models.py"],
}
NATIVE = "native"
LEVELS = (
    "x86-64-v2", "x86-64-v3", "x86-64-v3,+avxvnni", "x86-64-v4", "x86-64-v4,+avx512vnni", "-avx512bf16", NATIVE,
)  # fmt: skip
NOTHING_COLLECTED = 5
ONLY_UNGUARDED = "not unguarded"  # the mark of tests of what guarded runs leave out, such as direct calls


@dataclass(frozen=True, slots=True)
class Combination:
    """What one run of a suite is made with."""

    suite: str
    level: str
    edge: str
    threads: int
    pieces: int

    @property
    def environment(self) -> dict[str, str]:
        """The variables that say so."""
        return {
            **os.environ,
            "ORT_GUARDED_MEMORY": self.edge,
            "ORT_CPU_TARGET": "" if self.level == NATIVE else self.level,
            "ORT_INTRA_OP_NUM_THREADS": str(self.threads),
            "ORT_STEP_PIECES": str(self.pieces),
        }

    @property
    def name(self) -> str:
        """A name for a file."""
        level = self.level.replace(",", "")
        return f"{self.suite}-{level}-{self.edge}-{self.threads}threads-{self.pieces}pieces"


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended: pytest's counts, the cases that ended their process, and seconds."""

    status: int
    counts: dict[str, int]
    crashed: list[str]
    seconds: float


def run(combination: Combination, jobs: int, logs: Path) -> Result:
    """Run a suite."""
    command = [
        sys.executable, "-X", "faulthandler", "-m", "pytest", *SUITES[combination.suite], "-q", "-n", str(jobs),
        "--max-worker-restart", "100000", "-p", "no:cacheprovider", "-m", ONLY_UNGUARDED,
    ]  # fmt: skip
    start = time.monotonic()
    path = logs / f"{combination.name}.txt"
    with path.open("w") as file:
        done = subprocess.run(command, env=combination.environment, stdout=file, stderr=subprocess.STDOUT, check=False)
    text = path.read_text(errors="replace")
    last = next((line for line in reversed(text.splitlines()) if re.search(r"\d+ (passed|failed|skipped)", line)), "")
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|skipped|xfailed|errors?)", last)}
    crashed = sorted(set(re.findall(r"crashed while running '([^']+)'", text)))
    return Result(done.returncode, counts, crashed, round(time.monotonic() - start, 1))


def levels_here() -> list[str]:
    """Return the levels that this machine can run."""
    script = "from ort_core.cpu.codegen.machine_code.llvm_targets import host_target; host_target()"
    runs = {
        level: subprocess.run(
            [sys.executable, "-c", script], capture_output=True, check=False,
            env={**os.environ, "ORT_CPU_TARGET": "" if level == NATIVE else level},
        ).returncode
        for level in LEVELS
    }  # fmt: skip
    return [level for level, status in runs.items() if status == 0]


def main() -> int:
    """Run all combinations, print a line for each, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", action="append", choices=list(SUITES))
    parser.add_argument("--level", action="append", help=f"as ORT_CPU_TARGET, or {NATIVE}")
    parser.add_argument("--edge", action="append", choices=["end", "begin"])
    parser.add_argument("--threads", action="append", type=int)
    parser.add_argument("--pieces", action="append", type=int, help="of a step for each thread; 0: chosen by its work")
    parser.add_argument("--jobs", type=int, default=2, help="processes that run tests at once")
    parser.add_argument("--logs", type=Path, default=Path("guarded-logs"))
    given = parser.parse_args()
    given.logs.mkdir(parents=True, exist_ok=True)
    console, failed = Console(soft_wrap=True), False
    for values in itertools.product(
        given.suite or SUITES, given.level or levels_here(), given.edge or ["end", "begin"],
        given.threads or [1, 2, 3, 4], given.pieces or [0, 8],
    ):  # fmt: skip
        combination = Combination(*values)
        result = run(combination, given.jobs, given.logs)
        failed = failed or result.status not in (0, NOTHING_COLLECTED)
        with (given.logs / "results.jsonl").open("a") as file:
            file.write(json.dumps({**asdict(combination), **asdict(result)}) + "\n")
        console.print(f"{combination.name}: {result.counts} {result.seconds} s {' '.join(result.crashed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
