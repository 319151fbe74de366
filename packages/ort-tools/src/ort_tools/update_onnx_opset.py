"""Write a model in another operator set, newer or older: onnxruntime.tools.update_onnx_opset's command line.

python -m ort_tools.update_onnx_opset --opset 18 model.onnx newer.onnx
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Sequence

from ort_core.cli.interrupts import run_program
from ort_core.errors import OrtError
from ort_tools.onnx_model_utils import update_onnx_opset

__all__ = ["update_onnx_opset", "update_onnx_opset_helper"]

_DEFAULT = 15  # onnxruntime's


def update_onnx_opset_helper(arguments: Sequence[str] | None = None) -> None:
    """Convert the model that the command line names."""
    parser = argparse.ArgumentParser("update_onnx_opset.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--opset", type=int, default=_DEFAULT, help="the operator set, from 7 to 28; by default 15")
    parser.add_argument("input_model", type=pathlib.Path, help="the model")
    parser.add_argument("output_model", type=pathlib.Path, help="the file to write")
    args = parser.parse_args(arguments)
    try:
        update_onnx_opset(args.input_model, args.opset, args.output_model)
    except OrtError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    run_program(update_onnx_opset_helper)
