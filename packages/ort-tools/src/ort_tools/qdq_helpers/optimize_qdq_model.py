"""Copy a model in the QDQ format: what this once changed is done by sessions; onnxruntime.tools' command line.

python -m ort_tools.qdq_helpers.optimize_qdq_model model.onnx copy.onnx
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Sequence

import onnx

from ort_core.cli.interrupts import run_program
from ort_core.model_graphs import write_proto


def optimize_qdq_model(arguments: Sequence[str] | None = None) -> None:
    """Copy the model that the command line names."""
    parser = argparse.ArgumentParser("optimize_qdq_model.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("input_model", type=pathlib.Path, help="the model")
    parser.add_argument("output_model", type=pathlib.Path, help="the file to write")
    args = parser.parse_args(arguments)
    model = onnx.load(str(args.input_model.resolve(strict=True)))
    sys.stdout.write("Sessions give each reader of a DequantizeLinear its own: the model is written as it is.\n")
    write_proto(model, args.output_model.resolve())


if __name__ == "__main__":
    run_program(optimize_qdq_model)
