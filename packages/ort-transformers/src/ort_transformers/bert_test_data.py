"""Made-up inputs for a BERT: token ids, segments and masks, handed to programs or written as test data.

python -m ort_transformers.bert_test_data --model model.onnx --batch_size 2 --sequence_length 16
"""

from __future__ import annotations

import argparse
import logging
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, numpy_helper

import ort_core
from ort_core.cli.interrupts import run_program
from ort_core.whole_files import replace_file
from ort_transformers.onnx_model import OnnxModel
from ort_transformers.onnx_model_bert import BertOnnxModel

log = logging.getLogger("ort_transformers.bert_test_data")  # not __name__, which is __main__ of a command line

_MOST_WORDS = 10000
BertInputs = tuple[ValueInfoProto | None, ValueInfoProto | None, ValueInfoProto | None]
_DTYPES: dict[int, type[np.generic]] = {
    TensorProto.FLOAT: np.float32,
    TensorProto.INT32: np.int32,
    TensorProto.INT64: np.int64,
}


def as_declared(values: np.ndarray, declared: ValueInfoProto) -> np.ndarray:
    """Return values in the element type of an input.

    Raises:
        ValueError: it is none of float32, int32 and int64.
    """
    dtype = _DTYPES.get(declared.type.tensor_type.elem_type)
    if dtype is None:
        raise ValueError(
            f"input {declared.name!r} has the element type {declared.type.tensor_type.elem_type}; inputs of a BERT are "
            "float32, int32 or int64"
        )
    return values.astype(dtype)


def fake_input_ids_data(
    input_ids: ValueInfoProto, batch_size: int, sequence_length: int, dictionary_size: int
) -> np.ndarray:
    """Return (batch, length) numbers below the size of a dictionary."""
    drawn = np.random.randint(dictionary_size, size=(batch_size, sequence_length), dtype=np.int32)  # noqa: NPY002 - programs seed numpy's own generator
    return as_declared(drawn, input_ids)


def fake_segment_ids_data(segment_ids: ValueInfoProto, batch_size: int, sequence_length: int) -> np.ndarray:
    """Return (batch, length) zeros."""
    return as_declared(np.zeros((batch_size, sequence_length), np.int32), segment_ids)


def get_random_length(max_sequence_length: int, average_sequence_length: int) -> int:
    """Return a length between 1 and the largest; all have the given average.

    Raises:
        ValueError: the average is not within that.
    """
    if not 1 <= average_sequence_length <= max_sequence_length:
        raise ValueError(f"the average length {average_sequence_length} is not within 1 to {max_sequence_length}")
    lowest = max(1, 2 * average_sequence_length - max_sequence_length)
    return random.randint(lowest, 2 * average_sequence_length - lowest)


def fake_input_mask_data(
    input_mask: ValueInfoProto,
    batch_size: int,
    sequence_length: int,
    average_sequence_length: int,
    random_sequence_length: bool,
    mask_type: int = 2,
) -> np.ndarray:
    """Return a mask that lets the first tokens of each sentence count.

    Args:
        input_mask: the input, whose element type the mask gets.
        batch_size: how many sentences.
        sequence_length: their tokens, with those that do not count.
        average_sequence_length: how many count, on average where lengths are drawn.
        random_sequence_length: draw the lengths.
        mask_type: 1 lengths (batch), 2 ones and zeros (batch, length), 3 lengths and where queries and keys of each
            sentence begin (3 * batch + 2).

    Raises:
        ValueError: the mask type is none of those.
    """
    lengths = np.full(batch_size, average_sequence_length, np.int32)
    if random_sequence_length:
        lengths[:] = [get_random_length(sequence_length, average_sequence_length) for _ in range(batch_size)]
    if mask_type == 1:
        return as_declared(lengths, input_mask)
    if mask_type == 2:
        return as_declared((np.arange(sequence_length) < lengths[:, None]).astype(np.int32), input_mask)
    if mask_type == 3:
        begins = np.concatenate([[0], np.cumsum(lengths)])
        return as_declared(np.concatenate([lengths, begins, begins]), input_mask)
    raise ValueError(f"mask_type is {mask_type}; it is 1 (lengths), 2 (ones and zeros) or 3 (lengths and begins)")


def output_test_data(directory: str, inputs: dict[str, np.ndarray]) -> None:
    """Write inputs as ``input_0.pb``, ``input_1.pb``, ... into a folder."""
    Path(directory).mkdir(parents=True, exist_ok=True)
    _write(Path(directory), "input", inputs)


def _write(folder: Path, prefix: str, values: dict[str, np.ndarray]) -> None:
    for place, (name, value) in enumerate(values.items()):
        content = numpy_helper.from_array(value, name).SerializeToString()
        replace_file(folder / f"{prefix}_{place}.pb", content)


def fake_test_data(
    batch_size: int,
    sequence_length: int,
    test_cases: int,
    dictionary_size: int,
    verbose: bool,
    random_seed: int,
    input_ids: ValueInfoProto | None,
    segment_ids: ValueInfoProto | None,
    input_mask: ValueInfoProto | None,
    average_sequence_length: int,
    random_sequence_length: bool,
    mask_type: int,
) -> list[dict[str, np.ndarray]]:
    """Return as many feeds as test cases, drawn from a seed.

    Raises:
        ValueError: there is no input for token ids.
    """
    if input_ids is None:
        raise ValueError("no input for token ids is given")
    np.random.seed(random_seed)  # noqa: NPY002 - the functions above draw from it
    random.seed(random_seed)
    cases = []
    for _ in range(test_cases):
        feeds = {input_ids.name: fake_input_ids_data(input_ids, batch_size, sequence_length, dictionary_size)}
        if segment_ids is not None:
            feeds[segment_ids.name] = fake_segment_ids_data(segment_ids, batch_size, sequence_length)
        if input_mask is not None:
            feeds[input_mask.name] = fake_input_mask_data(
                input_mask, batch_size, sequence_length, average_sequence_length, random_sequence_length, mask_type
            )
        if verbose:
            log.info("test case: %s", feeds)
        cases.append(feeds)
    return cases


def generate_test_data(
    batch_size: int,
    sequence_length: int,
    test_cases: int,
    seed: int,
    verbose: bool,
    input_ids: ValueInfoProto | None,
    segment_ids: ValueInfoProto | None,
    input_mask: ValueInfoProto | None,
    average_sequence_length: int,
    random_sequence_length: bool,
    mask_type: int,
    dictionary_size: int = _MOST_WORDS,
) -> list[dict[str, np.ndarray]]:
    """Return as many feeds as test cases; arguments are those of ``fake_test_data``."""
    return fake_test_data(
        batch_size, sequence_length, test_cases, dictionary_size, verbose, seed, input_ids, segment_ids, input_mask,
        average_sequence_length, random_sequence_length, mask_type,
    )  # fmt: skip


def get_graph_input_from_embed_node(
    onnx_model: OnnxModel, embed_node: NodeProto, input_index: int
) -> ValueInfoProto | None:
    """Return the input of the model that an embedding reads at a place, directly or through a Cast."""
    name = embed_node.input[input_index] if input_index < len(embed_node.input) else ""
    found = onnx_model.find_graph_input(name)
    if found is None and name:
        parent = onnx_model.get_parent(embed_node, input_index)
        if parent is not None and parent.op_type == "Cast":
            found = onnx_model.find_graph_input(parent.input[0])
    return found


def find_bert_inputs(
    onnx_model: OnnxModel,
    input_ids_name: str | None = None,
    segment_ids_name: str | None = None,
    input_mask_name: str | None = None,
) -> BertInputs:
    """Return which inputs are ids, segments and mask: by the names given, by a fused embedding, or by their names.

    Raises:
        ValueError: an input of a given name is not there, there are more inputs than names, or, without names, there
            are not three inputs of which one is a mask and one tells segments.
    """
    inputs = onnx_model.get_graph_inputs_excluding_initializers()
    if input_ids_name is not None:
        return _named(inputs, (input_ids_name, segment_ids_name, input_mask_name))
    if len(inputs) != 3:
        raise ValueError(f"the model has {len(inputs)} inputs, not 3; name those to use")
    embeddings = onnx_model.get_nodes_by_op_type("EmbedLayerNormalization")
    by_name = _guessed(inputs)
    if len(embeddings) != 1:
        if None in by_name:
            names = ", ".join(each.name for each in inputs)
            raise ValueError(f"which of {names} are token ids, segments and mask is not clear; name them")
        return by_name
    ids, segments, mask = (get_graph_input_from_embed_node(onnx_model, embeddings[0], place) for place in (0, 1, 7))
    mask = mask or by_name[2]
    if mask is None:
        raise ValueError("no input is a mask; name it")
    return ids, segments, mask


def _named(inputs: Sequence[ValueInfoProto], names: tuple[str, str | None, str | None]) -> BertInputs:
    known = {each.name: each for each in inputs}
    missing = [name for name in names if name and name not in known]
    if missing:
        raise ValueError(f"the model has no input {missing[0]!r}; it has {', '.join(known)}")
    wanted = [name for name in names if name]
    if len(known) != len(wanted):
        raise ValueError(f"the model has {len(known)} inputs ({', '.join(known)}), named are {len(wanted)}")
    first, second, third = (known[name] if name else None for name in names)
    return first, second, third


def _guessed(inputs: Sequence[ValueInfoProto]) -> BertInputs:
    ids = segments = mask = None
    for each in inputs:
        name = each.name.lower()
        if "mask" in name:
            mask = each
        elif "token" in name or "segment" in name:
            segments = each
        else:
            ids = each
    return ids, segments, mask


def get_bert_inputs(
    onnx_file: str,
    input_ids_name: str | None = None,
    segment_ids_name: str | None = None,
    input_mask_name: str | None = None,
) -> BertInputs:
    """Return the inputs of the model in a file; see ``find_bert_inputs``."""
    model = onnx.load(onnx_file, load_external_data=False)
    return find_bert_inputs(BertOnnxModel(model), input_ids_name, segment_ids_name, input_mask_name)


def known_words(onnx_file: str, input_ids: ValueInfoProto | None, most: int = _MOST_WORDS) -> int:
    """Return how many token ids the tables of a model have that are read with them; ``most`` where none tells."""
    model = OnnxModel(onnx.load(onnx_file, load_external_data=False))
    readers, sizes = model.input_name_to_nodes(), [most]
    waiting = [] if input_ids is None else [input_ids.name]
    while waiting:
        name = waiting.pop()
        for node in readers.get(name, []):
            if node.op_type in ("Cast", "Identity"):
                waiting.extend(node.output)
            place = {"Gather": (1, 0), "EmbedLayerNormalization": (0, 2)}.get(node.op_type)
            if place is not None and node.input[place[0]] == name:
                table = model.get_initializer(node.input[place[1]])
                sizes += [] if table is None or not table.dims else [table.dims[0]]
    return min(sizes)


def create_and_save_test_data(
    model: str,
    output_dir: str,
    batch_size: int,
    sequence_length: int,
    test_cases: int,
    seed: int,
    verbose: bool,
    input_ids_name: str | None,
    segment_ids_name: str | None,
    input_mask_name: str | None,
    only_input_tensors: bool,
    average_sequence_length: int,
    random_sequence_length: bool,
    mask_type: int,
) -> None:
    """Write a folder ``test_data_set_N`` for each test case: inputs and, unless only they are asked for, outputs."""
    found = get_bert_inputs(model, input_ids_name, segment_ids_name, input_mask_name)
    cases = generate_test_data(
        batch_size, sequence_length, test_cases, seed, verbose, *found, average_sequence_length,
        random_sequence_length, mask_type, known_words(model, found[0]),
    )  # fmt: skip
    folders = [Path(output_dir, f"test_data_set_{place}") for place in range(len(cases))]
    for folder, feeds in zip(folders, cases, strict=True):
        output_test_data(str(folder), feeds)
    if only_input_tensors:
        return
    session = ort_core.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    for folder, feeds in zip(folders, cases, strict=True):
        results = (np.asarray(each) for each in session.run(names, feeds))
        _write(folder, "output", dict(zip(names, results, strict=True)))


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """Give a parser the flags that describe a BERT's inputs, as this and other command lines have them."""
    parser.add_argument("--input_ids_name", type=str, default=None, help="the input of token ids")
    parser.add_argument("--segment_ids_name", type=str, default=None, help="the input of segments")
    parser.add_argument("--input_mask_name", type=str, default=None, help="the input of the mask")
    parser.add_argument("-a", "--average_sequence_length", type=int, default=-1, help="tokens that count, on average")
    parser.add_argument("-r", "--random_sequence_length", action="store_true", help="draw how many tokens count")
    parser.add_argument("--mask_type", type=int, default=2, help="1 lengths, 2 ones and zeros, 3 lengths and begins")


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what a command line asks for; by default this process's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, type=str, help="the model")
    parser.add_argument("--output_dir", type=str, default=None, help="by default a folder beside the model")
    parser.add_argument("--batch_size", type=int, default=1)
    parser.add_argument("--sequence_length", type=int, default=128)
    parser.add_argument("--samples", type=int, default=1, help="how many test cases")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--only_input_tensors", action="store_true", help="write no outputs")
    add_input_arguments(parser)
    asked = parser.parse_args(argv)
    if asked.average_sequence_length <= 0:
        asked.average_sequence_length = asked.sequence_length
    return asked


def main(argv: Sequence[str] | None = None) -> None:
    """Write what a command line asks for."""
    asked = parse_arguments(argv)
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    folder = asked.output_dir or str(Path(asked.model).parent / f"batch_{asked.batch_size}_seq_{asked.sequence_length}")
    create_and_save_test_data(
        asked.model, folder, asked.batch_size, asked.sequence_length, asked.samples, asked.seed, asked.verbose,
        asked.input_ids_name, asked.segment_ids_name, asked.input_mask_name, asked.only_input_tensors,
        asked.average_sequence_length, asked.random_sequence_length, asked.mask_type,
    )  # fmt: skip
    log.info("test data is in %s", folder)


if __name__ == "__main__":
    run_program(main)
