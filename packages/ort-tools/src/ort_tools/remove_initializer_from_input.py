"""Take weights off the inputs of a model, so that passes may fold them; onnxruntime.tools' names.

python -m ort_tools.remove_initializer_from_input --input model.onnx --output smaller.onnx
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import onnx

from ort_core.cli.interrupts import run_program
from ort_core.model_graphs import write_proto

_INPUTS_ARE_FREE = 4  # the IR version from which initializers need not be inputs


def get_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--input", required=True, help="the model")
    parser.add_argument("--output", required=True, help="the file to write")
    return parser.parse_args(arguments)


def remove_initializer_from_input(model: onnx.ModelProto) -> bool:
    """Take initializers off a model's inputs, in place.

    Returns:
        Whether there were such; ``False`` for IR versions below 4, where they must be inputs.
    """
    if model.ir_version < _INPUTS_ARE_FREE:
        sys.stdout.write("Model with ir_version below 4 requires to include initializer in graph input\n")
        return False
    weights = {each.name for each in model.graph.initializer}
    kept = [each for each in model.graph.input if each.name not in weights]
    is_changed = len(kept) < len(model.graph.input)
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return is_changed


def main(arguments: Sequence[str] | None = None) -> None:
    """Change the model that the command line names."""
    args = get_args(arguments)
    model = onnx.load(args.input)
    remove_initializer_from_input(model)
    write_proto(model, args.output)


if __name__ == "__main__":
    run_program(main)
