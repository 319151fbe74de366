"""Have onnxruntime-genai generate the cases, into expected_generations.json: python record_generations.py FOLDER.

FOLDER is the tiny checkpoint `llama`, built to fp32.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import onnxruntime_genai
from genai_generation_cases import CASES, generated

if __name__ == "__main__":
    model = onnxruntime_genai.Model(sys.argv[1])
    found = {name: generated(onnxruntime_genai, model, *case) for name, case in CASES.items()}
    lines = [f"{json.dumps(name)}: {json.dumps(rows)}" for name, rows in found.items()]
    Path(__file__).with_name("expected_generations.json").write_text(
        "{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8"
    )
