"""What the exports of `exported_architectures.py` become: onnxruntime's optimizer beside ours, as a table.

    python benchmarks/export_fusions.py FOLDER [--only NAME ...] [--output results/export_fusions.json]

For each architecture and style: attentions and norms that are one operator, of those there; nodes; how far the results
of the fused file are from torch's, in onnxruntime and in ort_core. Both optimizers run as a program calls them.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import ort_core
from ort_transformers.fusion_options import FusionOptions
from ort_transformers.fusion_report import ATTENTIONS, NORMS
from ort_transformers.fusions import fuse_model
from ort_transformers.onnx_model import OnnxModel

MODEL_TYPES = {  # onnxruntime's type for each architecture; others are of BERT's
    "bart": "bart", "whisper": "bart", "t5": "t5", "gpt2": "gpt2", "gpt_neox": "gpt_neox", "clip": "clip",
    "swin": "swin", "vit": "vit", "deit": "vit", "dinov2": "vit", "beit": "vit", "siglip": "clip",
    "conformer": "conformer", "qwen3": "qwen3", "llama": "gpt2", "mistral": "gpt2", "qwen2": "gpt2",
    "phi3": "gpt2", "gemma": "gpt2", "gemma2": "gpt2", "gemma3": "gpt2", "phi": "gpt2", "opt": "gpt2",
    "bloom": "gpt2",
}  # fmt: skip
ATTENTION_HEADS, HIDDEN_SIZE = 4, 32  # of all the small configurations
EQUAL = 2e-3  # of the largest result: random weights let errors of float32 grow to a few parts in ten thousand


def main() -> None:
    """Compare what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    logging.disable(logging.WARNING)  # of onnxruntime's optimizer: what it did is in the table
    onnxruntime.set_default_logger_severity(4)
    rows = []
    for path in sorted(asked.folder.glob("*.onnx")):
        name, style = path.stem.split(".")
        if not asked.only or name in asked.only:
            rows.append(row_of(path, name, style))
            print(as_text(rows[-1]), flush=True)
    failed = asked.folder / "FAILED.json"
    report = {
        "versions": {each.__name__: each.__version__ for each in (onnxruntime, ort_core, onnx, np)},
        "rows": rows,
        "not_exported": json.loads(failed.read_text()) if failed.exists() else {},
    }
    print(totals(rows))
    if asked.output is not None:
        asked.output.write_text(json.dumps(report, indent=1) + "\n")


def row_of(path: Path, name: str, style: str) -> dict[str, object]:
    """Return what both optimizers make of one export."""
    data = dict(np.load(path.with_suffix(".npz")))
    expected = data.pop("expected")
    there = pieces_of(path)
    row: dict[str, object] = {"architecture": name, "style": style, **there}
    for who, optimize in (("onnxruntime", by_onnxruntime), ("ours", by_us)):
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder, "fused.onnx")
            why = optimize(path, target, MODEL_TYPES.get(name, "bert"))
            row[who] = {"failed": why} if not target.exists() else facts_of(target, data, expected)
            if who == "ours" and why:
                row["reasons"] = why.splitlines()
    return row


def pieces_of(path: Path) -> dict[str, int]:
    """Return how many attentions, norms and nodes an export has, in whatever form."""
    options = FusionOptions("bert")
    for switch in [key for key in vars(options) if key.startswith("enable_")]:
        setattr(options, switch, False)
    _, report = fuse_model(str(path), options)
    return {
        "attentions": report.num_attentions + len(report.unfused_of("attention")),
        "norms": report.num_norms + len(report.unfused_of("norm")),
        "nodes": report.nodes_before,
    }


def by_onnxruntime(source: Path, target: Path, model_type: str) -> str:
    """Let onnxruntime's optimizer write the fused file; return why it did not."""
    from onnxruntime.transformers.optimizer import optimize_model  # needs torch, which takes seconds to import

    try:
        optimized = optimize_model(str(source), model_type, ATTENTION_HEADS, HIDDEN_SIZE)
        optimized.save_model_to_file(str(target))
    except Exception as error:  # noqa: BLE001 - what it refuses is a fact of the table
        return f"{type(error).__name__}: {error}"[:300]
    return ""


def by_us(source: Path, target: Path, model_type: str) -> str:
    """Write the fused file; return what was not fused, with the first reasons."""
    model, report = fuse_model(str(source), FusionOptions(model_type))
    OnnxModel(model).save_model_to_file(str(target))
    return "\n".join(f"{each.kind} {each.node}: {each.reason}" for each in report.unfused)


def facts_of(path: Path, feeds: dict[str, np.ndarray], expected: np.ndarray) -> dict[str, object]:
    """Return what a fused file has and how far its results are from torch's."""
    counts = OnnxModel(onnx.load(path)).get_operator_statistics()
    return {
        "attentions": sum(count for name, count in counts.items() if name in ATTENTIONS),
        "norms": sum(count for name, count in counts.items() if name in NORMS),
        "nodes": sum(counts.values()),
        "off_in_onnxruntime": off(path, feeds, expected, onnxruntime),
        "off_in_ort_core": off(path, feeds, expected, ort_core),
    }


def off(path: Path, feeds: dict[str, np.ndarray], expected: np.ndarray, engine: object) -> float | str:
    """Return the largest difference as a share of the largest result, or why there is none."""
    try:
        session = engine.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        read = {each.name for each in session.get_inputs()}
        (found,) = session.run(None, {name: array for name, array in feeds.items() if name in read})
    except Exception as error:  # noqa: BLE001 - a file that an engine refuses is a fact of the table
        return f"{type(error).__name__}: {error}"[:300]
    return float(f"{np.abs(found - expected).max() / np.abs(expected).max():.2g}")


def is_equal(facts: dict[str, object]) -> bool:
    """Return whether both engines gave torch's results."""
    found = [facts.get("off_in_onnxruntime"), facts.get("off_in_ort_core")]
    return all(isinstance(each, float) and each <= EQUAL for each in found)


def as_text(row: dict[str, object]) -> str:
    """Return one line of the table."""
    sides = []
    for who in ("onnxruntime", "ours"):
        facts = row[who]
        if "failed" in facts:
            sides.append(f"{who}: {facts['failed'][:80]}")
            continue
        same = "equal" if is_equal(facts) else f"OFF {facts['off_in_onnxruntime']} {facts['off_in_ort_core']}"
        sides.append(
            f"{who}: attentions {facts['attentions']}/{row['attentions']}, norms {facts['norms']}/{row['norms']}, "
            f"nodes {facts['nodes']}, {same}"
        )
    return f"{row['architecture']} {row['style']} ({row['nodes']} nodes): {'; '.join(sides)}"


def totals(rows: Iterable[dict[str, object]]) -> str:
    """Return how many rows are fused whole, and equal, on each side."""
    rows = list(rows)
    lines = []
    for who in ("onnxruntime", "ours"):
        done = [row for row in rows if "failed" not in row[who]]
        attentions = sum(row[who]["attentions"] for row in done), sum(row["attentions"] for row in rows)
        norms = sum(row[who]["norms"] for row in done), sum(row["norms"] for row in rows)
        whole = sum(row[who]["attentions"] >= row["attentions"] and row[who]["norms"] >= row["norms"] for row in done)
        equal = sum(is_equal(row[who]) for row in done)
        lines.append(
            f"{who}: {len(rows)} exports, attentions {attentions[0]}/{attentions[1]}, norms {norms[0]}/{norms[1]}, "
            f"{whole} fused whole, {equal} equal to torch in both engines, {len(rows) - len(done)} failed"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
