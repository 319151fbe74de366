"""``python campaign.py FIRST COUNT FOLDER`` runs random programs on both engines and tells where they differ.

Differences that ``explained.py`` gives a reason for are counted, all others are shown; the exit status is 1 if there
are any. A program that ends the process of an engine is left out, and named: onnxruntime reads what it should not.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from explained import reason_of

HERE = Path(__file__).parent
ENGINES = {"theirs": [], "ours": ["-m", "ort_core.dropin"]}


def outcomes(engine: str, first: int, count: int, folder: Path) -> tuple[dict[int, dict], list[int]]:
    """Return the programs of an engine by seed, and the seeds that ended its process."""
    target, end, ended = folder / f"{engine}.jsonl", first + count, []
    target.unlink(missing_ok=True)
    while first < end:
        command = [sys.executable, *ENGINES[engine], str(HERE / "worker.py"), str(first), str(end - first), str(target)]
        done = subprocess.run(command, capture_output=True, check=False, cwd=folder)  # where profiles fall
        if done.returncode == 0:
            break
        if not target.exists():
            raise RuntimeError(done.stderr.decode(errors="replace"))
        ended.append(max(line["began"] for line in _lines(target) if "began" in line))
        first = ended[-1] + 1
    return {line["seed"]: line for line in _lines(target) if "seed" in line}, ended


def _lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def differences(theirs: dict[int, dict], ours: dict[int, dict]) -> tuple[list[str], Counter[str]]:
    """Return the differences without a reason, and how often each reason was needed."""
    shown, reasons = [], Counter()
    for seed in theirs.keys() & ours.keys():
        for wanted, found in zip(theirs[seed]["steps"], ours[seed]["steps"], strict=False):
            reason = reason_of(theirs[seed], wanted, found)
            if reason is None:
                shown.append(
                    f"{seed} {theirs[seed]['model']}: {wanted[0]}\n  theirs {wanted[1:]}\n  ours   {found[1:]}"
                )
            elif reason:
                reasons[reason] += 1
            if wanted[0].startswith("session of") and wanted[1] != found[1]:
                break  # one of them has no session to go on with
    return shown, reasons


def main(first: int, count: int, folder: Path) -> int:
    """Run programs, and write what differs."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    (theirs, their_ends), (ours, our_ends) = (outcomes(engine, first, count, folder) for engine in ENGINES)
    shown, reasons = differences(theirs, ours)
    lines = [*shown, *(f"{number} x {reason}" for reason, number in reasons.most_common())]
    lines.append(f"{len(theirs)} programs, {len(shown)} differences; ended: theirs {their_ends}, ours {our_ends}")
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if shown or our_ends else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
