"""Writes what onnxruntime-genai raises for wrong calls: `python record_errors.py`, with its wheel installed."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from genai_built import built
from genai_error_cases import CASES, Scene, raised


def main() -> None:
    """Write the file."""
    import onnxruntime_genai

    with tempfile.TemporaryDirectory() as empty:
        (Path(empty) / "nothing.bin").write_bytes(b"nothing")
        scene = Scene(onnxruntime_genai, built(), Path(empty))
        found = {case: raised(case, scene) for case in CASES}
    file = Path(__file__).with_name("expected_errors.json")
    file.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
