r"""BertOnnxModelShapeOptimizer: shapes that a BERT computes as constants, for inputs of fixed sizes.

python -m ort_transformers.shape_optimizer --input model.onnx --output fixed.onnx --input_ids input_ids \
    --segment_ids token_type_ids --input_mask attention_mask --enable_shape_opt --enable_reshape_opt
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Iterable, Sequence

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

import ort_core
from ort_core.cli.interrupts import run_program
from ort_transformers.onnx_model import OnnxModel

log = logging.getLogger("ort_transformers.shape_optimizer")  # not __name__, which is __main__ of a command line

CONSTANT_SHAPE_NAME_PREFIX = "constant_shape_opt__"
RESHAPE_INPUT_SHAPE_PREFIX = "reshape_input_shape__"
_DTYPES: dict[int, type[np.generic]] = {
    TensorProto.FLOAT: np.float32,
    TensorProto.INT32: np.int32,
    TensorProto.INT64: np.int64,
}


class BertOnnxModelShapeOptimizer(OnnxModel):
    """A model whose shapes become constants.

    Args:
        onnx_model: its model is changed in place.
    """

    def __init__(self, onnx_model: OnnxModel) -> None:
        super().__init__(onnx_model.model)

    # ------------------------------------------------------------------ what is computed
    def get_shape_outputs(self) -> list[str]:
        """Return what Shape nodes compute and something reads."""
        readers = self.input_name_to_nodes()
        return [node.output[0] for node in self.graph().node if node.op_type == "Shape" and node.output[0] in readers]

    def get_reshape_shape_inputs(self) -> list[str]:
        """Return what tells Reshape nodes their shapes."""
        return [node.input[1] for node in self.graph().node if node.op_type == "Reshape"]

    def add_shape_for_reshape_input(self) -> list[str]:
        """Put a Shape beside each Reshape, of what it reads; return what they compute."""
        made = []
        for node in [each for each in self.graph().node if each.op_type == "Reshape"]:
            name = self.create_node_name("Reshape_Input", RESHAPE_INPUT_SHAPE_PREFIX)
            self.add_node(helper.make_node("Shape", [node.input[0]], [name], name=name))
            made.append(name)
        return made

    # ------------------------------------------------------------------ changes of the model
    def add_shape_initializer(self, shape: Iterable[int]) -> TensorProto:
        """Put a constant shape into the model."""
        name = self.create_node_name("Constant", CONSTANT_SHAPE_NAME_PREFIX)
        taken = {each.name for each in self.graph().initializer}
        place = 0
        while f"{name}_{place}" in taken:
            place += 1
        tensor = numpy_helper.from_array(np.asarray(list(shape), np.int64), f"{name}_{place}")
        self.add_initializer(tensor)
        return tensor

    def add_extra_graph_output(self, extra_outputs: Iterable[str]) -> list[str]:
        """Let the model give values inside; return those that are no constants, each once."""
        wanted = [name for name in dict.fromkeys(extra_outputs) if self.get_initializer(name) is None]
        known = {each.name for each in self.graph().output}
        self.graph().output.extend(ValueInfoProto(name=name) for name in wanted if name not in known)
        return wanted

    def use_static_input(self, inputs: Iterable[str], batch_size: int = 1, max_seq_len: int = 128) -> None:
        """Fix batch and length of inputs."""
        wanted = set(inputs)
        for each in (declared for declared in self.graph().input if declared.name in wanted):
            for size, number in zip(each.type.tensor_type.shape.dim, (batch_size, max_seq_len), strict=False):
                size.dim_value = number

    def create_dummy_inputs(
        self,
        input_ids: str,
        segment_ids: str,
        input_mask: str,
        batch_size: int,
        sequence_length: int,
        elem_type: int,
        dictionary_size: int = 8,
    ) -> dict[str, np.ndarray]:
        """Return token ids, and a mask and segments of ones, in an element type of float32, int32 or int64."""
        if elem_type not in _DTYPES:
            raise ValueError(f"element type {elem_type} is none of float32, int32 and int64")
        shape = (batch_size, sequence_length)
        ids = np.random.default_rng(0).integers(dictionary_size, size=shape)
        given = {input_ids: ids, segment_ids: np.zeros(shape), input_mask: np.ones(shape)}
        return {name: value.astype(_DTYPES[elem_type]) for name, value in given.items()}

    def update_target_shape(
        self, shapes: dict[str, Sequence[int]], shape_input: str, input_shape: str, verbose: bool
    ) -> None:
        """Write 0, which stands for the size that is there, into the target of a Reshape where both sizes are one."""
        target, source = (self._numbers(shapes, name) for name in (shape_input, input_shape))
        shapes[shape_input] = [
            0 if place < len(source) and source[place] == size else int(size) for place, size in enumerate(target)
        ]
        if verbose:
            log.info("%s: %s of %s becomes %s", shape_input, list(target), list(source), shapes[shape_input])

    def _numbers(self, shapes: dict[str, Sequence[int]], name: str) -> Sequence[int]:
        if name in shapes:
            return shapes[name]
        tensor = self.get_initializer(name)
        assert tensor is not None  # what is no constant was evaluated
        return [int(each) for each in numpy_helper.to_array(tensor)]

    # ------------------------------------------------------------------ all of it
    def shape_optimization(
        self,
        temp_model_path: str | None,
        input_ids: str,
        segment_ids: str,
        input_mask: str,
        output_names: Sequence[str],
        batch_size: int,
        sequence_length: int,
        enable_shape_opt: bool,
        enable_reshape_opt: bool,
        verbose: bool,
    ) -> None:
        """Evaluate shapes once, and put what came out in their place.

        Args:
            temp_model_path: taken for onnxruntime's programs: no file is written.
            input_ids: the input of token ids.
            segment_ids: the input of segments.
            input_mask: the input of the mask.
            output_names: outputs to keep.
            batch_size: of all inputs.
            sequence_length: likewise.
            enable_shape_opt: what Shape computes becomes a constant.
            enable_reshape_opt: what Reshape is told becomes a constant.
            verbose: log more.
        """
        wanted = self.get_shape_outputs() if enable_shape_opt else []
        targets = self.get_reshape_shape_inputs() if enable_reshape_opt else []
        sources = self.add_shape_for_reshape_input() if enable_reshape_opt else []
        names = self.add_extra_graph_output([*wanted, *targets, *sources])
        if not wanted and not targets:
            return
        self.use_static_input([input_ids, segment_ids, input_mask], batch_size, sequence_length)
        options = ort_core.SessionOptions()
        options.graph_optimization_level = ort_core.GraphOptimizationLevel.ORT_DISABLE_ALL
        self.topological_sort()
        session = ort_core.InferenceSession(self.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        elem_type = next(each for each in self.graph().input if each.name == input_ids).type.tensor_type.elem_type
        feeds = self.create_dummy_inputs(input_ids, segment_ids, input_mask, batch_size, sequence_length, elem_type)
        found = session.run(names, feeds)
        shapes: dict[str, Sequence[int]] = {
            name: np.asarray(value).tolist() for name, value in zip(names, found, strict=True)
        }
        for target, source in zip(targets, sources, strict=True):
            self.update_target_shape(shapes, target, source, verbose)
        for name, shape in shapes.items():
            self.replace_input_of_all_nodes(name, self.add_shape_initializer(shape).name)
        self.prune_graph(output_names)

    def validate_input(self, input: str) -> None:
        """Refuse an input that is not there.

        Raises:
            ValueError: it is not there.
        """
        _refuse_unknown("input", [input], [each.name for each in self.graph().input])

    def validate_outputs(self, output_names: Sequence[str]) -> None:
        """Refuse an output that is not there.

        Raises:
            ValueError: one is not there.
        """
        _refuse_unknown("output", output_names, [each.name for each in self.graph().output])

    def optimize(
        self,
        output_path: str | None,
        input_ids: str,
        segment_ids: str,
        input_mask: str,
        enable_shape_opt: bool,
        enable_reshape_opt: bool,
        output_names: Sequence[str] | None = None,
        batch_size: int = 1,
        sequence_length: int = 128,
        verbose: bool = False,
    ) -> None:
        """Do what is asked for, and write the model where a path is given.

        A model whose shapes are constants already, or that has other inputs than three, stays as it is.

        Raises:
            ValueError: an input or output is not there.
            OrtError: the model cannot be loaded.
        """
        if any(each.name.startswith(CONSTANT_SHAPE_NAME_PREFIX) for each in self.graph().initializer):
            log.info("shapes of this model are constants already")
            return
        for name in (input_ids, segment_ids, input_mask):
            self.validate_input(name)
        if output_names is not None:
            self.validate_outputs(output_names)
            self.prune_graph(output_names)
        remaining = [each.name for each in self.graph().output]
        if enable_shape_opt or enable_reshape_opt:
            num_inputs = len(self.get_graph_inputs_excluding_initializers())
            if num_inputs != 3:
                log.warning("the model has %d inputs, not 3: it stays as it is", num_inputs)
                return
            self.shape_optimization(
                None, input_ids, segment_ids, input_mask, remaining, batch_size, sequence_length, enable_shape_opt,
                enable_reshape_opt, verbose,
            )  # fmt: skip
            log.warning("the model may only take batches of %d with %d tokens now", batch_size, sequence_length)
        if output_path is not None:
            self.save_model_to_file(output_path)


def _refuse_unknown(kind: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"the model has no {kind} {name!r}; it has {', '.join(known)}")


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what a command line asks for; by default this process's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, text in (("input", "the model"), ("output", "the file to write"), ("input_ids", "input of token ids"),
                       ("segment_ids", "input of segments"), ("input_mask", "input of the mask")):  # fmt: skip
        parser.add_argument(f"--{name}", required=True, type=str, help=text)
    parser.add_argument("--output_names", type=str, default=None, help="outputs to keep, separated by semicolons")
    parser.add_argument("--batch_size", type=int, default=1)
    parser.add_argument("--sequence_length", type=int, default=128)
    parser.add_argument("--enable_shape_opt", action="store_true", help="what Shape computes becomes a constant")
    parser.add_argument("--enable_reshape_opt", action="store_true", help="what Reshape is told becomes a constant")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Optimize what a command line asks for."""
    asked = parse_arguments(argv)
    logging.basicConfig(format="%(message)s", level=logging.DEBUG if asked.verbose else logging.INFO)
    model: ModelProto = onnx.load(os.fspath(asked.input))
    names = None if asked.output_names is None else asked.output_names.split(";")
    BertOnnxModelShapeOptimizer(OnnxModel(model)).optimize(
        asked.output, asked.input_ids, asked.segment_ids, asked.input_mask, asked.enable_shape_opt,
        asked.enable_reshape_opt, names, asked.batch_size, asked.sequence_length, asked.verbose,
    )  # fmt: skip


if __name__ == "__main__":
    run_program(main)
