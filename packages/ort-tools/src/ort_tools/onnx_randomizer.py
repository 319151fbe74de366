"""Replace the weights of a model by random ones of the same range, to show its graph alone; onnxruntime.tools' names.

python -m ort_tools.onnx_randomizer -m model.onnx -o random.onnx
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, numpy_helper

from ort_core.cli.interrupts import run_program
from ort_core.model_graphs import write_proto
from ort_tools.onnx_model_utils import iterate_graph_per_graph_func

SIZE_THRESHOLD = 10  # tensors of so few elements may be shapes, which must stay


def graph_iterator(model: ModelProto, func: Callable[[GraphProto], object]) -> None:
    """Call a function for each graph of a model."""
    iterate_graph_per_graph_func(model.graph, func)


def randomize_graph_initializer(graph: GraphProto) -> None:
    """Replace a graph's weights of more than ``SIZE_THRESHOLD`` numbers by random ones between their extremes."""
    for tensor in graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.size <= SIZE_THRESHOLD or array.dtype.kind in "OSU":
            continue  # texts are no numbers
        wide = array.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        low, high = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
        values = np.random.uniform(low, high, array.shape).astype(array.dtype)  # noqa: NPY002 - np.random.seed reaches it
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def main(arguments: Sequence[str] | None = None) -> None:
    """Randomize the model that the command line names.

    Raises:
        RuntimeError: external data would be written over that of the model.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-m", required=True, help="the model")
    parser.add_argument("-o", required=True, help="the file to write")
    parser.add_argument("--use_external_data_format", action="store_true", help="weights lie in other files")
    parser.add_argument("--all_tensors_to_one_file", action="store_true", help="… in one other file")
    args = parser.parse_args(arguments)
    source, target = Path(args.m), Path(args.o)
    if args.use_external_data_format and source.parent == target.parent:
        raise RuntimeError("Please specify output directory with different parent path to input directory.")
    target.parent.mkdir(parents=True, exist_ok=True)
    model = onnx.load(source)
    graph_iterator(model, randomize_graph_initializer)
    write_proto(
        model, target, has_external_data=args.use_external_data_format, is_one_file=args.all_tensors_to_one_file
    )


if __name__ == "__main__":
    run_program(main)
