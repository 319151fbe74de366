"""Network: what TensorRT's parser makes of a program, or what it says against it, node by node."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ort_core.plugin.ir import DataType
from ort_ep_tensorrt._sdk import Sdk
from ort_ep_tensorrt.program import Program
from ort_ep_tensorrt.recording import RecordState, SdkError, stripped

_DTYPES = {
    "FLOAT": DataType.FLOAT, "HALF": DataType.FLOAT16, "BF16": DataType.BFLOAT16, "INT8": DataType.INT8,
    "INT32": DataType.INT32, "INT64": DataType.INT64, "BOOL": DataType.BOOL, "UINT8": DataType.UINT8,
    "FP8": DataType.FLOAT8E4M3FN, "INT4": DataType.INT4,
}  # fmt: skip


def dtype_of(tensor: Any) -> DataType | None:
    """Return the element type of a tensor of a network, ``None`` for one that ONNX lacks."""
    return _DTYPES.get(tensor.dtype.name)


@dataclass(frozen=True, slots=True)
class Network:
    """A parsed network, and what must live as long as it: the SDK's objects do not keep each other alive.

    Attributes:
        record: what the SDK says.
        builder: builds engines of it.
        network: the layers.
        kept: parser, logger and weights.
    """

    record: RecordState
    builder: Any
    network: Any
    kept: tuple[object, ...] = field(repr=False, default=())

    def inputs(self) -> list[Any]:
        """Return the network's inputs."""
        return [self.network.get_input(index) for index in range(self.network.num_inputs)]

    def outputs(self) -> list[Any]:
        """Return the network's outputs."""
        return [self.network.get_output(index) for index in range(self.network.num_outputs)]

    def layers(self) -> list[tuple[str, str]]:
        """Return kind, and type and shape of the first output, of every layer in order, for tests."""
        found = (self.network.get_layer(index) for index in range(self.network.num_layers))
        return [(each.type.name, _text_of(each.get_output(0))) for each in found]


@dataclass(frozen=True, slots=True)
class ParseRefusal:
    """What the parser does not take.

    Attributes:
        text: its words.
        nodes: its words by the place of the node in the program, for the nodes that it names.
    """

    text: str
    nodes: Mapping[int, str]


def parse(sdk: Sdk, program: Program) -> Network | ParseRefusal:
    """Parse a program; its weights are read in place and must stay as long as the network.

    Raises:
        SdkError: the SDK failed outside of the parser.
    """
    record, logger, builder, network, parser = _opened(sdk)
    record.expect(parser.load_model_proto(program.content), "read a model")
    for name, array in program.weights.items():
        record.expect(parser.load_initializer(name, array.ctypes.data, array.nbytes), f"take the weight {name!r}")
    if not parser.parse_model_proto():
        return ParseRefusal(record.take(), _errors(parser))
    parsed = Network(record, builder, network, (parser, logger, program))
    names = {each.name for each in parsed.inputs()}
    strange = sorted(names - set(program.inputs))
    if strange:
        raise SdkError("keep the names of inputs", f"it has {strange}, expected some of {list(program.inputs)}")
    return parsed


def unsupported(sdk: Sdk, question: bytes) -> dict[int, str]:
    """Return what ``supports_model_v2`` says against single nodes of a model, by place; empty: it names none."""
    record, logger, _, network, parser = _opened(sdk)
    if parser.supports_model_v2(question):
        return {}
    found = _errors(parser)
    del network, logger, record  # they had to live until here
    return found


@functools.cache
def knows(sdk: Sdk) -> Callable[[str], bool]:
    """Return a function that tells whether the parser has an importer for an operator of ONNX.

    Raises:
        SdkError: the SDK makes no parser.
    """
    record, logger, builder, network, parser = _opened(sdk)
    kept = (record, logger, builder, network)

    @functools.cache
    def is_known(op_type: str) -> bool:
        return bool(kept) and bool(parser.supports_operator(op_type))

    return is_known


def _opened(sdk: Sdk) -> tuple[RecordState, Any, Any, Any, Any]:
    trt, record = sdk.module, RecordState()
    logger = sdk.logger(record)
    builder = record.attempt("make a builder", lambda: trt.Builder(logger))
    flags = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network = record.expect(builder.create_network(flags), "make a network")
    parser = record.attempt("make a parser", lambda: trt.OnnxParser(network, logger))
    return record, logger, builder, network, parser


def _errors(parser: Any) -> dict[int, str]:
    found: dict[int, str] = {}
    for index in range(parser.num_errors):
        error = parser.get_error(index)
        words = stripped(error.desc())
        said = str(error.code()).rpartition(".")[2] if words in ("", "false") else words  # a bare condition that failed
        if error.node() >= 0:
            found.setdefault(error.node(), said)
    return found


def _text_of(tensor: Any) -> str:
    return f"{tensor.dtype.name.lower()}{list(tensor.shape)}"
