"""Requests of gRPC whose head was seen before: read as protobuf reads them, whatever the bytes are."""

from __future__ import annotations

import random

import numpy as np
import pytest
from google.protobuf.message import DecodeError

from ort_serve.failures import RequestFailure
from ort_serve.protocol.shared_memory import SharedMemoryRegions
from ort_serve.rpc.decoding import decode_infer, read_request
from ort_serve.rpc.messages import MESSAGE_CLASSES
from ort_serve.rpc.wire import split_message

MESSAGE = MESSAGE_CLASSES.get("ModelInferRequest")
REGIONS = SharedMemoryRegions("")
TYPES = {"FP32": 4, "INT64": 8, "BOOL": 1, "FP16": 2, "BYTES": 5, "FP33": 4}


def drawn(generator: random.Random) -> object:
    """Return a message: mostly sound."""
    message = MESSAGE(model_name=generator.choice(["m", "é" * 40, ""]))
    if generator.random() < 0.5:
        message.id = str(generator.random())
    if generator.random() < 0.3:
        message.model_version = "3"
    if generator.random() < 0.3:
        message.parameters["timeout"].int64_param = generator.choice([5, -5])
    for number in range(generator.choice([0, 1, 1, 1, 2, 3])):
        kind = generator.choice(list(TYPES))
        tensor = message.inputs.add(name=f"x{number}", datatype=kind)
        count = generator.choice([0, 1, 7, 200])
        tensor.shape.extend([1, count])
        if generator.random() < 0.1:
            tensor.contents.fp32_contents.append(1.0)
        if generator.random() < 0.05:
            tensor.parameters["shared_memory_region"].string_param = "nowhere"
        if generator.random() < 0.95:
            message.raw_input_contents.append(
                b"\1\0\0\0a" * count if kind == "BYTES" else generator.randbytes(count * TYPES[kind])
            )
    for number in range(generator.choice([0, 0, 1, 2])):
        message.outputs.add(name=f"y{number}").parameters["classification"].int64_param = number
    return message


def by_protobuf(wire: bytes) -> object:
    try:
        return decode_infer(MESSAGE.FromString(wire), REGIONS)
    except DecodeError:
        return "unreadable"
    except RequestFailure as failure:
        return str(failure)


def by_parts(wire: bytes) -> object:
    try:
        return read_request(wire, REGIONS)
    except RequestFailure as failure:
        return "unreadable" if str(failure).startswith("the message cannot be read") else str(failure)


def assert_same(wire: bytes) -> None:
    expected, found = by_protobuf(wire), by_parts(wire)
    if isinstance(expected, str):
        assert found == expected
        return
    assert list(found.inputs) == list(expected.inputs)
    for name, array in expected.inputs.items():
        assert found.inputs[name].dtype == array.dtype
        np.testing.assert_array_equal(found.inputs[name], array)
    for field in ("model", "version", "identifier", "outputs", "are_outputs_binary", "priority", "timeout_s"):
        assert getattr(found, field) == getattr(expected, field)
    assert dict(found.parameters) == dict(expected.parameters)


def test_requests_are_read_as_protobuf_reads_them():
    generator = random.Random(1)
    for _ in range(1500):
        assert_same(drawn(generator).SerializeToString())


def test_bytes_that_are_changed_cut_or_put_elsewhere_are_read_as_protobuf_reads_them():
    generator = random.Random(2)
    for _ in range(3000):
        wire = bytearray(drawn(generator).SerializeToString())
        kind = generator.random()
        if kind < 0.4 and wire:
            wire[generator.randrange(min(len(wire), 80))] = generator.randrange(256)
        elif kind < 0.7:
            del wire[generator.randint(0, len(wire)) :]
        else:  # fields in another order, and twice
            wire += drawn(generator).SerializeToString()
        assert_same(bytes(wire))


def test_a_head_that_comes_again_is_one_form_whatever_id_and_elements_are():
    def request(identifier: str, value: float, name: str = "x") -> object:
        message = MESSAGE(model_name="m", id=identifier)
        message.inputs.add(name=name, datatype="FP32").shape.extend([1])
        message.raw_input_contents.append(np.float32(value).tobytes())
        return read_request(message.SerializeToString(), REGIONS)

    first, second, other = request("a", 1.0), request("b", 2.0), request("a", 1.0, "z")
    assert first.form is second.form is not None
    assert first.form is not other.form
    assert (first.identifier, second.identifier) == ("a", "b")
    assert (first.inputs["x"][0], second.inputs["x"][0]) == (1.0, 2.0)


@pytest.mark.parametrize(
    "wire",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\x0a", id="no length"),
        pytest.param(b"\x0a\x80\x80\x80\x80\x00", id="long length"),
        pytest.param(b"\x3a\x05ab", id="cut"),
        pytest.param(b"\x3a\x00\x0a\x01m", id="raw contents first"),
        pytest.param(b"\x08\x01\x3a\x00", id="field that is a number"),
        pytest.param(b"\x1a\x01\xff\x3a\x00", id="id that is no text"),
    ],
)
def test_what_is_laid_out_otherwise_is_left_to_protobuf(wire):
    assert split_message(wire) is None
