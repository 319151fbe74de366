"""Runs of a model whose weights are too large for memory: one piece of its nodes after another, each over all samples.

    for each piece:   load its weights;   for each sample: read what the pieces before gave, run, write what others need

What a sample needs further on lies in a file between two pieces, so that memory is that of one piece and one sample.
"""

from __future__ import annotations

import contextlib
import gc
import math
import pickle
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper

import ort_core
from ort_core.model_graphs import copy_of, reads_in_order, reads_of
from ort_quantization.calibration.activation_capture import Providers, Samples, run_sample, session_of
from ort_quantization.calibration.calibration_data import Sample
from ort_quantization.errors import InvalidCalibration

LARGE_FROM = 1 << 30  # bytes of weights from which on a model runs in pieces; smaller ones are loaded once
PIECE_NBYTES = 1 << 28  # of the weights of one piece; a single larger weight is a piece of its own


def weight_nbytes(tensor: TensorProto) -> int:
    """Return how many bytes the numbers of a tensor take, wherever they lie."""
    if tensor.data_type in (TensorProto.STRING, TensorProto.UNDEFINED):
        return tensor.ByteSize()
    return math.prod(tensor.dims) * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize


def has_large_weights(graph: GraphProto) -> bool:
    """Return whether a model with this main graph is not to be held in memory whole."""
    return sum(map(weight_nbytes, graph.initializer)) >= LARGE_FROM


class RunsInPieces:
    """Gives values of a model's main graph as samples show them; each name is asked for once, in the nodes' order.

    Args:
        model: in order; it stays as it is until the last value is given.
        folder: where its external data lies.
        names: all values that will be asked for; inputs of the graph may be among them.
        samples: inputs of runs.
        providers: that run it; the default ones by default.
        piece_nbytes: of the weights that are loaded at once; ``PIECE_NBYTES`` by default.
    """

    def __init__(
        self, model: ModelProto, folder: str, names: Sequence[str], samples: Samples, providers: Providers | None,
        piece_nbytes: int | None = None,
    ) -> None:  # fmt: skip
        graph = model.graph
        self._model, self._folder, self._providers, self._limit = model, folder, providers, piece_nbytes or PIECE_NBYTES
        self._names, self._samples = list(names), samples
        self._nodes = _needed(list(graph.node), set(names))
        self._maker = {name: place for place, node in enumerate(self._nodes) for name in node.output if name}
        self._tensors = {each.name: each for each in graph.initializer}
        self._types = {each.name: each for each in (*graph.value_info, *graph.output, *graph.input)}
        self._inputs = {each.name for each in graph.input}
        self._place = 0
        self._file: IO[bytes] | None = None
        self._count = 0

    def __enter__(self) -> RunsInPieces:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the file of what is known of samples."""
        if self._file is not None:
            self._file.close()

    def values(self, names: Sequence[str]) -> Iterator[dict[str, np.ndarray]]:
        """Yield what a piece shows of some values, for one sample after another, piece by piece.

        Raises:
            InvalidCalibration: there are no samples, or the model does not run on one.
        """
        stop = max((self._maker[name] + 1 for name in names if name in self._maker), default=0)
        left = set(names)
        self._names = [name for name in self._names if name not in left]
        while left:
            end = self._end_of_piece(stop)
            made = {name for node in self._nodes[self._place : end] for name in node.output}
            known = {name for name in left if self._maker.get(name, -1) < self._place}
            given = known | (left & made)
            left -= given
            yield from self._piece(end, sorted(given), left)

    def _end_of_piece(self, stop: int) -> int:
        """Return the place behind the last node of the next piece."""
        loaded: set[str] = set()
        nbytes = 0
        for place in range(self._place, stop):
            new = self._weights_of(self._nodes[place]) - loaded
            nbytes += sum(weight_nbytes(self._tensors[name]) for name in new)
            if loaded and nbytes > self._limit:
                return place
            loaded |= new
        return max(stop, self._place)

    def _weights_of(self, node: NodeProto) -> set[str]:
        return {name for name in reads_of(node) if name in self._tensors}

    def _piece(self, end: int, names: Sequence[str], left: set[str]) -> Iterator[dict[str, np.ndarray]]:
        """Run one piece over all samples, and yield values that it knows."""
        nodes = self._nodes[self._place : end]
        made = {name for node in nodes for name in node.output if name}
        later = {name for node in self._nodes[end:] for name in reads_of(node)} | left | set(self._names)
        results = sorted(made & (later | set(names)))
        session = None
        with contextlib.ExitStack() as broken_off:
            file = broken_off.enter_context(tempfile.TemporaryFile(prefix="ort.pieces."))
            count = 0
            for count, sample in enumerate(self._kept()):
                values: dict[str, object] = dict(sample)
                if results:
                    session = session or self._session(nodes, results, sample)
                    values |= zip(results, run_sample(session, results, _fed(session, sample), count), strict=True)
                kept = {name: value for name, value in values.items() if name in later}
                pickle.dump(kept, file, protocol=pickle.HIGHEST_PROTOCOL)
                yield {name: np.asarray(values[name]) for name in names if name in values}
            broken_off.pop_all()
        self.close()
        self._file, self._count, self._place = file, count + 1, end
        del session
        gc.collect()  # it holds the weights, and objects that know each other hold it

    def _kept(self) -> Iterator[Sample]:
        """Yield what is known of each sample at this place."""
        if self._file is None:
            for count, sample in enumerate(self._samples):
                self._check_inputs(sample, count)
                yield sample
            return
        self._file.seek(0)
        for _ in range(self._count):
            yield pickle.load(self._file)  # what was written above, into a file without a name

    def _check_inputs(self, sample: Sample, count: int) -> None:
        """Refuse a sample that a run of the whole model would refuse for its names."""
        unknown = sorted(sample.keys() - self._inputs)
        missing = sorted(self._inputs - self._tensors.keys() - sample.keys())
        if unknown or missing:
            found = f"Invalid input name: {unknown[0]}" if unknown else f"input {missing[0]!r} is missing"
            raise InvalidCalibration(f"the model does not run on calibration sample {count}: {found}")

    def _session(self, nodes: Sequence[NodeProto], results: Sequence[str], sample: Sample) -> ort_core.InferenceSession:
        """Open a session of some nodes, whose inputs are what is known of a sample."""
        read = list(dict.fromkeys(name for node in nodes for name in reads_in_order(node)))
        piece = ModelProto(ir_version=self._model.ir_version)
        piece.opset_import.extend(self._model.opset_import)
        piece.functions.extend(self._model.functions)
        graph = piece.graph
        graph.name = "piece"
        graph.node.extend(copy_of(node) for node in nodes)
        graph.input.extend(self._type_of(name, sample[name]) for name in read if name in sample)
        graph.output.extend(self._types.get(name, ValueInfoProto(name=name)) for name in results)
        graph.initializer.extend(self._tensors[name] for name in read if name in self._tensors and name not in sample)
        inner = {name for node in nodes for name in node.output} & self._types.keys() - set(results)
        graph.value_info.extend(self._types[name] for name in sorted(inner))
        return session_of(piece, self._folder, self._providers)

    def _type_of(self, name: str, value: object) -> ValueInfoProto:
        known = self._types.get(name)
        return known if known is not None else ValueInfoProto(name=name, type=_type_of(value))


def _needed(nodes: Sequence[NodeProto], names: set[str]) -> list[NodeProto]:
    """Return the nodes that values follow from."""
    wanted, found = set(names), []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            wanted |= reads_of(node)
            found.append(node)
    return found[::-1]


def _fed(session: ort_core.InferenceSession, sample: Sample) -> dict[str, np.ndarray]:
    names = [each.name for each in session.get_inputs()]
    return {name: sample[name] for name in names if name in sample}


def _type_of(value: object) -> TypeProto:
    """Return the type of a value between two pieces; its rank is known, its sizes may be others next time."""
    if isinstance(value, list):
        return helper.make_sequence_type_proto(_type_of(value[0] if value else np.zeros(0, np.float32)))
    array = np.asarray(value)
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim)
