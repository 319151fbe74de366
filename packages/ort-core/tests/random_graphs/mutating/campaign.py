"""Records the models of tests, and judges many mutants of them in worker processes that may crash or hang.

    python campaign.py FOLDER FIRST COUNT OUT [WORKERS] [low|full] [TESTS ...]

FOLDER has the recorded models; where there are none, TESTS are run to record them: the suite's own tests of passes,
rewriting and lowering, unless others are named. Transformers and patterns of this folder stand beside them, and alone
where the only one of TESTS is ``none``. OUT gets a line of JSON for each mutant, as that of random graphs has
for each seed; mutants that stand in it already are not tried again. The last line of stdout is the summary; the exit
status is 1 where a difference is not explained.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from random_graphs.campaign import Campaign, judge_seeds
from random_graphs.mutating.records import record_made, recorded_paths

OWN_TESTS = Path(__file__).parents[2]
TESTS = ("passes", "rewrite", "cpu/low_precision", "cpu/lowering", "cpu/attention", "cpu/products", "cpu/rows")
WORKER = Path(__file__).with_name("worker.py")


def record(folder: Path, tests: Sequence[str]) -> None:
    """Run tests with the plugin that records their models; whether they pass is asked elsewhere."""
    record_made(folder)
    if list(tests) == ["none"]:
        return
    named = list(tests) or [str(OWN_TESTS / each) for each in TESTS]
    paths = os.pathsep.join([str(OWN_TESTS), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "random_graphs.mutating.recording", "-n", "0", "-q", *named],
        env={**os.environ, "PYTHONPATH": paths, "ORT_RECORDED_MODELS": str(folder)}, check=False,
    )  # fmt: skip


def main() -> int:
    """Run the campaign of the command line."""
    folder, first, count, path = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    workers = int(sys.argv[5]) if len(sys.argv) > 5 else 2
    effort = sys.argv[6] if len(sys.argv) > 6 else "low"
    if not folder.exists() or not recorded_paths(folder):
        record(folder, sys.argv[7:])
    if not recorded_paths(folder):
        print(f"{folder} has no models: the tests gave none to sessions or passes")
        return 1
    return judge_seeds(first, count, path, workers, lambda out: Campaign(out, effort, WORKER, (str(folder),)))


if __name__ == "__main__":
    sys.exit(main())
